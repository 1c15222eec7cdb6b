"""Fits to scattered points, which answer in the user's units."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from pe_fill.kriging.seasons import SeasonalMean
from pe_fill.results.maps import PointMap
from pe_lightning.errors import InputError
from pe_lightning.estimators import Field, Fits
from pe_lightning.estimators.folds import FoldScore, interpolated_folds, score_folds
from pe_lightning.signals import Axis, FoldSampling, SignalInfo, Signals
from pe_lightning.signals.raw import AnyArray
from pe_lightning.signals.validation import integer, number

Columns: TypeAlias = npt.ArrayLike | Mapping[str, npt.ArrayLike]
"""Columns of rows: an array ``(P,)`` or ``(P, D)``, or arrays ``(P,)`` by name."""
Floats: TypeAlias = npt.NDArray[np.float64]

NUM_FOLDS = 5
MAX_FOLD_POINTS = 1 << 19
"""Points over all folds that are fitted for a score; of more points fewer folds are scored."""


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

        return [score_folds(data, fitted, *self._folds) for data in columns_of(self.data)]

    @cached_property
    def interpolation(self) -> list[tuple[dict[str, FoldScore], dict[str, str]]]:
        """Errors of interpolation of the same points by name, and reasons why others have none, of each column."""
        if not self.has_scores:
            return [({}, {})] * self.info.num_signals
        return [interpolated_folds(data, *self._folds) for data in columns_of(self.plain)]

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
        points, asked = in_unit(self.axes, self.points[0].values()) * scale, unit.numpy() * scale
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
        return np.asarray(np.isfinite(in_unit(self.axes, [coords[axis.name] for axis in self.axes])).all(1))

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
        unit = in_unit(self.axes, columns)
        if not np.isfinite(unit).all():
            raise InputError(f"{int((~np.isfinite(unit)).any(1).sum())} of {len(unit)} places have a missing coordinate")
        return torch.from_numpy(unit)

    def _inputs(self, unit: Tensor) -> Tensor:
        if self.seasons:
            columns = {axis.name: axis.low + x * axis.length for axis, x in zip(self.axes, unit.numpy().T, strict=True)}
            axes = self.data.info.axes
            unit = torch.from_numpy(in_unit(axes, [columns[axis.name] for axis in axes]))
        return unit.to(self.data.axes[0].dtype)

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
        ranges = map(self.info.scaling.limits, range(self.info.num_signals))
        return np.array([high - low for low, high in ranges])

    def _shaped(self, columns: Floats) -> Floats:
        return columns[:, 0] if self.single else columns


def columns_of(data: Signals) -> list[Signals]:
    """The points of each column of values."""
    return [data.select(slice(place, place + 1)) for place in range(data.info.num_signals)]


def in_unit(axes: Sequence[Axis], columns: Iterable[AnyArray]) -> Floats:
    """Columns of coordinates in [0, 1), ``(P, D)``."""
    return np.stack([axis.to_unit(column) for axis, column in zip(axes, columns, strict=True)], 1)
