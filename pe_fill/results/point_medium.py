"""The medium of scattered points: predictions as maps or as values at places, and what a test compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pe_fill.formats.point_axes import without_seasons
from pe_fill.formats.points import read_places
from pe_fill.results.maps import PointMap, write_places
from pe_fill.results.points import write_points
from pe_lightning.errors import InputError
from pe_lightning.results.output import Output
from pe_lightning.results.signal_files import Array, Batch, Medium
from pe_lightning.signals import Axis, PointBatch, SignalInfo
from pe_lightning.signals.raw import AnyArray


class PointMedium(Medium):
    """Scattered points: predictions are maps, NPY by default, or values at places, CSV by default; tests write CSV."""

    suffix = "csv"

    def places(self, path: str, axes: Sequence[Axis]) -> npt.NDArray[np.float64]:
        return _places(path, axes)[1]

    def predict(
        self, folder: Path, values: Array, info: SignalInfo, output: Output | None = None, std: Array | None = None
    ) -> list[Path]:
        """Writes the prediction at places or on a grid, with its standard deviations, in one file."""
        assert output is not None
        found = {name: info.scaling.restore(values[n, ..., 0].astype(np.float64), n) for n, name in enumerate(info.names)}
        deviations = {}
        if std is not None:
            extents = [high - low for low, high in map(info.scaling.limits, range(info.num_signals))]
            deviations = {name: std[n, ..., 0].astype(np.float64) * extents[n] for n, name in enumerate(info.names)}
        form = output.output_format
        if output.at is not None:
            columns, unit = _places(output.at, info.axes)
            form = "csv" if form == "auto" else form
            if form not in ("csv", "npy"):
                raise InputError(f"values at places are written as csv or npy; got output_format {form}")
            known = np.asarray(np.isfinite(unit).all(1))
            return [write_places(folder / f"places.{form}", columns, known, found, deviations)]
        axes = {axis.name: axis.restore(axis.spread(n)) for axis, n in zip(info.axes, output.grid(info), strict=True)}
        size = "x".join(str(len(column)) for column in axes.values())
        path = folder / size / f"map.{'npy' if form == 'auto' else form}"
        return [PointMap(axes, found, deviations).write(path)]

    def pictures(
        self, folder: Path, metrics: Mapping[str, Any], prediction: Array, batch: Batch, info: SignalInfo, draw: bool
    ) -> list[str]:
        """Writes ``points.csv`` and the pictures of the points."""
        assert isinstance(batch, PointBatch)
        return write_points(folder, metrics, prediction, batch, info, draw)


def _places(path: str, axes: Sequence[Axis]) -> tuple[dict[str, AnyArray], npt.NDArray[np.float64]]:
    """Columns of a file of places by name, and coordinates in [0, 1), ``(P, D)``, NaN where one is missing."""
    names = [axis.name for axis in without_seasons(axes)]
    coordinates, columns = read_places(path, names)
    found = dict(zip(names, coordinates.values(), strict=True))
    return columns, np.stack([axis.to_unit(found[axis.name]) for axis in axes], 1)
