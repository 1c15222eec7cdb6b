"""Fits to scattered points: :func:`fit_points`, and values anywhere in the user's units."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pe_fill.adaptive.points import MIN_SAMPLES
from pe_fill.estimators.adaptive import AdaptiveFit
from pe_fill.estimators.fitted_points import Columns, Floats, PointFit, columns_of
from pe_fill.formats.point_axes import is_searched, without_seasons
from pe_fill.formats.points import Duplicates, PointArrays, PointSource, names_of
from pe_fill.kriging.seasons import SeasonalMean, find_periods
from pe_lightning.encoders import EncoderLike, automatic_width, with_seed
from pe_lightning.errors import InputError
from pe_lightning.estimators import Fits, LinearRidge
from pe_lightning.signals import Axis, GridSampling, Signals, Splitting
from pe_lightning.signals.distributed import without_notices
from pe_lightning.signals.raw import AnyArray, unmasked
from pe_lightning.signals.sources import Source
from pe_lightning.signals.validation import choice

PointModel: TypeAlias = Literal["auto", "adaptive", "exact"]

MIN_FITTED = 2
"""Fewest points of an exact fit."""
FEW_POINTS_RIDGE = 1e-3
"""Ridge of the exact fit of fewer points than the adaptive fit takes, too few to choose one by held-out points."""
MAX_ADAPTIVE_POINTS = 1_000_000
"""Points up to which ``auto`` takes :class:`~pe_fill.Adaptive`."""
AXIS_NAMES = {1: ("x",), 2: ("x", "y"), 3: ("x", "y", "z")}


def fit_points(
    coords: Columns,
    values: Columns,
    *,
    model: PointModel | Fits = "auto",
    encoder: EncoderLike | None = None,
    periodic: str | list[str] | None = None,
    duplicates: Duplicates = "average",
    same_unit: bool | None = None,
    seed: int = 0,
) -> PointFit:
    """Fits values at scattered points of one to three axes, in any units and order.

    All rows are trained on. Those with a missing or masked number are left out, with a notice of how many.

    Args:
        coords: Places: ``(P,)``, ``(P, D)`` or columns by name; numbers, or ``datetime64`` as a column of its own.
        values: Values there: ``(P,)``, ``(P, V)`` or columns by name.
        model: ``adaptive``: :class:`~pe_fill.Adaptive`. ``exact``: the exact fit of a linear layer, with width
            and ridge by held-out points. ``auto``: the first up to a million points, beyond and for very few the second. Or
            a model that is solved for.
        encoder: Encoder of the exact fit; ``laplace`` with its width by held-out points by default.
        periodic: Periods: ``hour=24`` in the unit of a coordinate, of dates ``time=24h`` (s, min, h, d, y), or several.
            Numbers that cover no more than a period repeat after it, and ``lon`` (degrees) after 360; others, and dates,
            have a season. ``auto``, the default: up to two periods of a series are proposed by its periodogram, and taken
            where they make held-out blocks more precise. ``none``: none.
        duplicates: Points at one place: ``average``, ``keep`` or ``error``.
        same_unit: Whether the axes have one unit of length; ``None``: where their extents are similar and none is of dates.
        seed: Seed of the fit, also of an encoder without one.

    Returns:
        The fit: ``predict(coords)``, ``std(coords)``, ``grid(shape)`` and ``score``.

    Example:
        >>> import numpy as np
        >>> places = np.random.default_rng(0).uniform([0, 40], [20, 60], (200, 2))
        >>> fit = fit_points(places, np.sin(places[:, 0] / 5) + places[:, 1])
        >>> fit.predict([[10.0, 50.0]]).round(1)
        array([50.9])
    """
    axes = _columns("coords", coords, AXIS_NAMES)
    columns = _columns("values", values, None)
    lengths = {len(column) for column in (*axes.values(), *columns.values())}
    if len(lengths) > 1:
        raise InputError(f"coords and values have one row per point; got {sorted(lengths)} rows")
    single = not isinstance(values, Mapping) and np.ndim(values) == 1
    return fit_source(PointArrays(axes, columns, periodic, duplicates, same_unit), model, encoder, seed, single)


def fit_source(
    source: Source,
    model: PointModel | Fits = "auto",
    encoder: EncoderLike | None = None,
    seed: int = 0,
    single: bool = False,
    periods: Sequence[float] | None = None,
) -> PointFit:
    """Fits all points of a source; see :func:`fit_points`.

    ``periods`` of the values along the first axis, in its unit, take the place of the periods that the source names.
    """
    if isinstance(model, str):
        choice("model", model, PointModel)
    if encoder is not None and model not in ("auto", "exact"):
        raise InputError("encoder is for the exact fit: set model exact, or leave it out")
    source = copy.copy(source)
    every, searched = Splitting(GridSampling(1), "none"), False
    if isinstance(source, PointArrays | PointSource) and is_searched(source.periodic):
        source.periodic, searched = "none", True
    data = plain = Signals.read(source, every)
    axes, seasons = without_seasons(plain.info.axes), dict[str, list[float]]()
    for season in plain.info.axes[len(axes) :]:
        seasons.setdefault(season.name, []).append(season.length)
    if seasons and isinstance(source, PointArrays | PointSource):
        source.periodic = _repeating(axes)
        with without_notices():
            data = plain = Signals.read(source, every)
    if periods is not None:
        seasons = {plain.info.axes[0].name: list(periods)} if periods else {}
    elif searched:
        seasons = _find_seasons(plain) if model in ("auto", "adaptive") and encoder is None else {}
    means: dict[str, SeasonalMean] = {}
    if seasons:
        data, means = _seasonal(plain, seasons)
    make = partial(_make_model, model=model, encoder=encoder, seed=seed)
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        models = [make(part).fit(part) for part in columns_of(data)]
    adapts = model == "adaptive" or isinstance(model, AdaptiveFit)
    least = MIN_SAMPLES[data.info.num_axes - 1] if adapts else MIN_FITTED
    return PointFit(models, data, make, single, plain, seasons, means, least)


def _find_seasons(data: Signals) -> dict[str, list[float]]:
    axis, count = data.info.axes[0], data.info.num_points or 0
    if data.info.num_axes > 1 or axis.periodic or count > MAX_ADAPTIVE_POINTS:
        return {}
    batch = data.evaluation_batch()
    times = axis.low + batch.coords[0, :, 0].double().numpy() * axis.length  # type: ignore[union-attr]
    found = find_periods(times, batch.values[..., 0].double().numpy().T)
    return {axis.name: list(found)} if found else {}


def _repeating(axes: Sequence[Axis]) -> list[str]:
    """The option ``periodic`` of axes that repeat."""
    return [f"{axis.name}={axis.length!r}" for axis in axes if axis.periodic] or ["none"]


def _seasonal(plain: Signals, seasons: Mapping[str, Sequence[float]]) -> tuple[Signals, dict[str, SeasonalMean]]:
    """The points with a further periodic axis for each period and without seasonal means; and these means, by axis."""
    info, batch = plain.info, plain.evaluation_batch()
    unit = batch.coords[0].double().numpy()  # type: ignore[union-attr]
    columns = {axis.name: axis.low + x * axis.length for axis, x in zip(info.axes, unit.T, strict=True)}
    found = batch.values[..., 0].double().numpy()
    values: Floats = np.stack([info.scaling.restore(column, place) for place, column in enumerate(found)], 1)
    means = {}
    for name, periods in seasons.items():
        means[name] = SeasonalMean(columns[name], values, periods)
        values = values - means[name](columns[name])
    rest = dict(zip(info.names, values.T, strict=True))
    extents = [high - low for low, high in map(info.scaling.limits, range(len(found)))]
    source = PointArrays(columns, rest, _repeating(info.axes), "keep", False, extents, seasons)
    return Signals.read(source, Splitting(GridSampling(1), "none")), means


def _make_model(data: Signals, model: PointModel | Fits, encoder: EncoderLike | None, seed: int) -> Fits:
    if not isinstance(model, str):
        return copy.deepcopy(model)
    count = data.split.num_train
    if model == "auto":
        if encoder is None and count < MIN_SAMPLES[data.info.num_axes - 1]:
            return LinearRidge("laplace", FEW_POINTS_RIDGE)
        model = "exact" if encoder is not None or count > MAX_ADAPTIVE_POINTS else "adaptive"
    if model == "adaptive":
        return AdaptiveFit()
    return LinearRidge(automatic_width(with_seed(encoder or "laplace", seed)))


def _columns(what: str, given: Columns, names: Mapping[int, Sequence[str]] | None) -> dict[str, AnyArray]:
    """Columns ``(P,)`` by name."""
    if isinstance(given, Mapping):
        found = {str(name): unmasked(column) for name, column in given.items()}
        names_of(what, list(found), 3 if names is not None else None)
        wrong = [f"{name} {column.shape}" for name, column in found.items() if column.ndim != 1]
        if wrong:
            raise InputError(f"columns of {what} have the shape (P,); got {', '.join(wrong)}")
        return found
    array = unmasked(given.detach().cpu() if isinstance(given, Tensor) else given)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] < 1 or (names is not None and array.shape[1] not in names):
        raise InputError(f"{what} have the shape (P,) or (P, {'1 to 3' if names else 'columns'}); got {np.shape(given)}")
    if array.dtype.kind == "O":
        raise InputError(f"{what} hold different kinds of things: give columns by name, {{'time': ..., 'x': ...}}")
    count = array.shape[1]
    labels = names[count] if names is not None else [f"value{n}" if count > 1 else "value" for n in range(count)]
    return dict(zip(labels, array.T, strict=True))
