"""Fits to scattered points: :func:`fit_points`, and values anywhere in the user's units."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from pe_fill.adaptive.points import MIN_SAMPLES
from pe_fill.estimators.adaptive import AdaptiveFit
from pe_fill.formats.point_axes import is_searched, without_seasons
from pe_fill.formats.points import Duplicates, PointArrays, PointSource, names_of
from pe_fill.kriging.seasons import SeasonalMean, find_periods
from pe_fill.results.maps import PointMap
from pe_lightning.encoders import EncoderLike, automatic_width, with_seed
from pe_lightning.errors import InputError
from pe_lightning.estimators import Field, Fits, LinearRidge
from pe_lightning.estimators.folds import FoldScore, interpolated_folds, score_folds
from pe_lightning.signals import Axis, FoldSampling, GridSampling, SignalInfo, Signals
from pe_lightning.signals.distributed import without_notices
from pe_lightning.signals.raw import AnyArray, unmasked
from pe_lightning.signals.sources import Source
from pe_lightning.signals.split_signals import Splitting
from pe_lightning.signals.validation import choice, integer, number

Columns: TypeAlias = npt.ArrayLike | Mapping[str, npt.ArrayLike]
"""Columns of rows: an array ``(P,)`` or ``(P, D)``, or arrays ``(P,)`` by name."""
PointModel: TypeAlias = Literal["auto", "adaptive", "exact"]
Floats: TypeAlias = npt.NDArray[np.float64]

NUM_FOLDS = 5
MIN_FITTED = 2
"""Fewest points of an exact fit."""
MAX_FOLD_POINTS = 1 << 19
"""Points over all folds that are fitted for a score; of more points fewer folds are scored."""
FEW_POINTS_RIDGE = 1e-3
"""Ridge of the exact fit of fewer points than the adaptive fit takes, too few to choose one by held-out points."""
MAX_ADAPTIVE_POINTS = 1_000_000
"""Points up to which ``auto`` takes :class:`~pe_fill.Adaptive`."""
AXIS_NAMES = {1: ("x",), 2: ("x", "y"), 3: ("x", "y", "z")}


class PointFit:
    """Models of values at scattered points, one per column of values, which answer in the user's units.

    Args:
        models: The fitted models, functions of coordinates in [0, 1) of one signal each.
        data: Their points, with phases of periods, and without seasonal means.
        make: Makes a model that is not fitted, for the score.
        single: Whether values are ``(P,)`` for one column, and not ``(P, 1)``.
        plain: The points as they were given.
        seasons: Periods of the values along an axis, by its name; of dates in seconds.
        means: Seasonal mean along each of these axes, by name.
        least: Fewest points of a fit, also of four fifths of them.

    Attributes:
        info: Names, axes and ranges.
        axes: The axes in the user's units.
    """

    def __init__(
        self,
        models: Sequence[Field],
        data: Signals,
        make: Callable[[Signals], Fits],
        single: bool,
        plain: Signals,
        seasons: Mapping[str, Sequence[float]],
        means: Mapping[str, SeasonalMean],
        least: int,
    ) -> None:
        self.models, self.data, self.single, self._make = list(models), data, single, make
        self.plain, self.means, self.least = plain, dict(means), least
        self.seasons = {name: tuple(periods) for name, periods in seasons.items()}
        self.info: SignalInfo = plain.info
        self.axes: tuple[Axis, ...] = self.info.axes

    def __repr__(self) -> str:
        names = ", ".join(self.info.names), ", ".join(axis.name for axis in self.axes)
        kinds = ", ".join(dict.fromkeys(model.label for model in self.models))
        return f"PointFit({names[0]} at ({names[1]}), {self.info.num_points} points, {kinds})"

    @cached_property
    def scores(self) -> list[FoldScore]:
        """Errors of each column at held-out points, of five random folds, each predicted by a fit of the other four.

        They are NaN where too few points are left to fit.
        """
        if not self.has_scores:
            return [FoldScore.of_squared_errors(torch.full((1,), math.nan))] * self.info.num_signals

        def fitted(part: Signals) -> Field:
            return self._make(part).fit(part)

        return [score_folds(data, fitted, *self._folds) for data in _columns_of(self.data)]

    @cached_property
    def interpolation(self) -> list[tuple[dict[str, FoldScore], dict[str, str]]]:
        """Errors of interpolation of the same points by name, and reasons why others have none, of each column."""
        if not self.has_scores:
            return [({}, {})] * self.info.num_signals
        return [interpolated_folds(data, *self._folds) for data in _columns_of(self.plain)]

    @property
    def score(self) -> float | Floats:
        """Root mean squared error of held-out points in the user's units: a number for one column, else one per column."""
        errors = np.array([float(score.errors.mean()) for score in self.scores]) * self.extents
        return float(errors[0]) if self.single else errors

    @property
    def has_scores(self) -> bool:
        """Whether enough points are left to fit where those of a fold are held out."""
        count, (folds, _) = self.info.num_points or 0, self._folds
        return count - math.ceil(count / folds.number) >= self.least

    @property
    def _folds(self) -> tuple[FoldSampling, int]:
        """The folds, and how many of them are fitted."""
        count = self.info.num_points or 1
        folds = FoldSampling("random", max(2, min(NUM_FOLDS, count)))
        return folds, max(1, min(folds.number, MAX_FOLD_POINTS // count))

    def predict(self, coords: Columns) -> Floats:
        """Values at places.

        Args:
            coords: ``(P,)`` or ``(P, D)`` in the user's units, numbers or dates; or columns by the names of the axes.

        Returns:
            ``(P,)`` for one column of values, else ``(P, V)``.
        """
        return self._shaped(self._values(self._unit(coords)))

    def std(self, coords: Columns) -> Floats:
        """Standard deviation of the values at places, with arguments and shape as in :meth:`predict`."""
        return self._shaped(self._deviations(self._unit(coords)))

    def interval(self, coords: Columns, level: float = 0.9) -> tuple[Floats, Floats]:
        """Lower and upper ends of intervals that hold a share ``level`` of the values at places.

        Their width follows from held-out points as far from others as places are: errors have heavier tails than a normal
        distribution, so that an interval of 50 % is narrower, and an interval of 99 % wider, than its quantile times
        :meth:`std`.

        Args:
            coords: As for :meth:`predict`.
            level: Share between 0 and 1.
        """
        number("level", level, "(0, 1)", hint=", such as 0.9")
        unit = self._unit(coords)
        values, half = self._values(unit), self._deviations(unit, level)
        return self._shaped(values - half), self._shaped(values + half)

    def near(self, coords: Columns, max_distance: float | Mapping[str, float]) -> npt.NDArray[np.bool_]:
        """Whether a point is within a distance of each place, ``(P,)``.

        Args:
            coords: As for :meth:`predict`.
            max_distance: In the unit of the coordinates, of dates in seconds; or one for each axis by its name, the largest
                distance along this axis alone.
        """
        return self._near(self._unit(coords), max_distance)

    def _near(self, unit: Tensor, max_distance: float | Mapping[str, float]) -> npt.NDArray[np.bool_]:
        given = max_distance if isinstance(max_distance, Mapping) else {axis.name: max_distance for axis in self.axes}
        reach = [
            number(f"max_distance of {axis.name}", given.get(axis.name), "(0, inf)", hint=" in the unit of the coordinate")
            for axis in self.axes
        ]
        scale = np.array([abs(axis.length) / length for axis, length in zip(self.axes, reach, strict=True)])
        points, asked = _in_unit(self.axes, self.points[0].values()) * scale, unit.numpy() * scale
        turns = [(0, -size, size) if axis.periodic else (0,) for axis, size in zip(self.axes, scale, strict=True)]
        tree = cKDTree(np.concatenate([points + turn for turn in itertools.product(*turns)]))
        return np.asarray(tree.query(asked, distance_upper_bound=1 + 1e-9)[0] <= 1 + 1e-9)

    def grid(
        self,
        shape: Sequence[int] | Mapping[str, npt.ArrayLike],
        std: bool = True,
        max_distance: float | Mapping[str, float] | None = None,
    ) -> PointMap:
        """Values on a grid.

        Args:
            shape: Number of samples per axis, in the order of the axes: from the lowest to the highest coordinate of the
                points, or around a period. Or the coordinates of the samples of each axis, by its name.
            std: Whether to compute standard deviations too, where the model has them.
            max_distance: Largest distance from a point, as for :meth:`near`; values farther from all points are NaN.
        """
        names = ", ".join(axis.name for axis in self.axes)
        if len(shape) != len(self.axes):
            raise InputError(
                f"the grid has {len(shape)} sizes, and the points have {len(self.axes)} axes: give one for each of {names}"
            )
        if isinstance(shape, Mapping):
            if unknown := [name for name in shape if name not in names.split(", ")]:
                raise InputError(f"the points have no axis {', '.join(unknown)}; they have {names}")
            coordinates = {axis.name: np.asarray(shape[axis.name]) for axis in self.axes}
            spread = [torch.from_numpy(axis.to_unit(coordinates[axis.name])) for axis in self.axes]
        else:
            counts = [integer("each size of a grid", size, 1) for size in shape]
            spread = [torch.from_numpy(axis.spread(count)) for axis, count in zip(self.axes, counts, strict=True)]
            coordinates = {axis.name: axis.restore(x.numpy()) for axis, x in zip(self.axes, spread, strict=True)}
        sizes = [len(x) for x in spread]
        unit = torch.cartesian_prod(*spread).reshape(-1, len(spread))
        inside = np.ones(len(unit), bool) if max_distance is None else self._near(unit, max_distance)

        def on_grid(columns: Callable[[Tensor], Floats]) -> dict[str, Floats]:
            found = np.full((len(unit), self.info.num_signals), np.nan)
            if inside.any():
                found[inside] = columns(unit[torch.from_numpy(inside)])
            return dict(zip(self.info.names, found.T.reshape(-1, *sizes), strict=True))

        values, deviations = on_grid(self._values), on_grid(self._deviations) if std and self.has_std else {}
        return PointMap(coordinates, values, deviations)

    @cached_property
    def points(self) -> tuple[dict[str, AnyArray], dict[str, Floats]]:
        """Coordinates ``(P,)`` by axis and values ``(P,)`` by name, in the user's units, as they were fitted."""
        batch = self.plain.evaluation_batch()
        unit = batch.coords[0].double().numpy()  # type: ignore[union-attr]
        values = batch.values[..., 0].double().numpy()
        return (
            {axis.name: axis.restore(column) for axis, column in zip(self.axes, unit.T, strict=True)},
            {name: self.info.scaling.restore(values[place], place) for place, name in enumerate(self.info.names)},
        )

    def known(self, coords: Mapping[str, AnyArray]) -> npt.NDArray[np.bool_]:
        """Places without a missing coordinate, ``(P,)``, of columns by name."""
        return np.asarray(np.isfinite(_in_unit(self.axes, [coords[axis.name] for axis in self.axes])).all(1))

    def num_outside(self, coords: Columns) -> int:
        """Number of places outside of the range of the points along an axis."""
        unit = self._unit(coords).numpy()
        largest = np.array([1.0 if axis.periodic else (axis.size - 1) / axis.size for axis in self.axes])
        return int(((unit < -1e-9) | (unit > largest + 1e-9)).any(1).sum())

    def _unit(self, coords: Columns) -> Tensor:
        """Coordinates in [0, 1), ``(P, D)`` float64."""
        if isinstance(coords, Mapping):
            missing = [axis.name for axis in self.axes if axis.name not in coords]
            if missing:
                raise InputError(f"coordinates lack {', '.join(missing)}; there are {', '.join(map(str, coords))}")
            columns = [np.asarray(coords[axis.name]) for axis in self.axes]
        else:
            array = np.asarray(coords)
            array = array[:, None] if array.ndim == 1 and len(self.axes) == 1 else array
            if array.ndim != 2 or array.shape[1] != len(self.axes):
                names = ", ".join(axis.name for axis in self.axes)
                raise InputError(f"coordinates have the shape (P, {len(self.axes)}), for {names}; got {array.shape}")
            columns = list(array.T)
        unit = _in_unit(self.axes, columns)
        if not np.isfinite(unit).all():
            raise InputError(f"{int((~np.isfinite(unit)).any(1).sum())} of {len(unit)} places have a missing coordinate")
        return torch.from_numpy(unit)

    def _inputs(self, unit: Tensor) -> Tensor:
        """Coordinates of the models, with phases of periods."""
        if self.seasons:
            columns = {axis.name: axis.low + x * axis.length for axis, x in zip(self.axes, unit.numpy().T, strict=True)}
            axes = self.data.info.axes
            unit = torch.from_numpy(_in_unit(axes, [columns[axis.name] for axis in axes]))
        return unit.to(self.data.dataset.axes[0].dtype)

    def _values(self, unit: Tensor) -> Floats:
        """Values ``(P, V)`` in the user's units."""
        inputs, scaling = self._inputs(unit), self.data.info.scaling
        with torch.no_grad():
            found = [model.at(inputs)[0, :, 0].double().cpu().numpy() for model in self.models]
        values: Floats = np.stack([scaling.restore(column, place) for place, column in enumerate(found)], 1)
        for axis, along in zip(self.axes, unit.numpy().T, strict=True):
            if axis.name in self.means:
                values = values + self.means[axis.name](axis.low + along * axis.length)
        return values

    def _deviations(self, unit: Tensor, level: float | None = None) -> Floats:
        """Standard deviations, or half widths of intervals of a level, ``(P, V)`` in the user's units."""
        unit = self._inputs(unit)
        found = [model.std(unit, level)[:, 0].double().cpu().numpy() for model in self.models]
        return np.stack(found, 1) * self.extents * math.prod(mean.inflation for mean in self.means.values())

    @property
    def has_std(self) -> bool:
        """Whether the models have standard deviations."""
        return all(model.has_std for model in self.models)

    @property
    def extents(self) -> Floats:
        """An error of 1 in [0, 1] in the units of each column, ``(V,)``."""
        ranges = map(self.info.scaling.of, range(self.info.num_signals))
        return np.array([high - low for low, high in ranges])

    def _shaped(self, columns: Floats) -> Floats:
        return columns[:, 0] if self.single else columns


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
    every, searched = Splitting(GridSampling(1), "none", None), False
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
        models = [make(part).fit(part) for part in _columns_of(data)]
    adapts = model == "adaptive" or isinstance(model, AdaptiveFit)
    least = MIN_SAMPLES[data.info.num_axes - 1] if adapts else MIN_FITTED
    return PointFit(models, data, make, single, plain, seasons, means, least)


def _columns_of(data: Signals) -> list[Signals]:
    return [data.one(place) for place in range(data.info.num_signals)]


def _in_unit(axes: Sequence[Axis], columns: Iterable[AnyArray]) -> Floats:
    """Columns of coordinates in [0, 1), ``(P, D)``."""
    return np.stack([axis.to_unit(column) for axis, column in zip(axes, columns, strict=True)], 1)


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
    extents = [high - low for low, high in map(info.scaling.of, range(len(found)))]
    source = PointArrays(columns, rest, _repeating(info.axes), "keep", False, extents, seasons)
    return Signals.read(source, Splitting(GridSampling(1), "none", None)), means


def _make_model(data: Signals, model: PointModel | Fits, encoder: EncoderLike | None, seed: int) -> Fits:
    """A model for points that is not fitted yet."""
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
