"""Files and pictures of scattered points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pe_fill.formats.point_axes import without_seasons
from pe_fill.formats.points import read_places
from pe_fill.results.maps import PointMap, write_places, write_table
from pe_lightning.errors import InputError
from pe_lightning.results.output import Output
from pe_lightning.results.runs import MAX_FILES, file_names
from pe_lightning.results.signal_files import Array, Batch, Medium
from pe_lightning.signals import Axis, PointBatch, SignalInfo
from pe_lightning.signals.files import save_figure
from pe_lightning.signals.raw import AnyArray


def write_points(
    folder: Path,
    metrics: Mapping[str, Any],
    prediction: npt.NDArray[np.float32],
    batch: PointBatch,
    info: SignalInfo,
    draw: bool = True,
) -> list[str]:
    """Writes ``points.csv``: places, values, predictions ``(S, P, 1)`` in [0, 1], and whether they were trained on.

    ``draw``: draws the first :data:`~pe_lightning.results.runs.MAX_FILES` signals and returns the paths of the pictures,
    whose captions have scores of ``metrics``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    axes = without_seasons(info.axes)
    points = batch.coords[0].double().numpy()[:, : len(axes)]
    columns: dict[str, AnyArray] = {axis.name: axis.restore(column) for axis, column in zip(axes, points.T, strict=True)}
    masks = batch.train_mask if batch.train_mask is not None else batch.values.new_zeros(batch.values.shape[:2]) == 0
    pictures = []
    for index, (name, stem) in enumerate(zip(info.names, file_names(info.names), strict=True)):
        trained = masks[index % len(masks)].numpy()
        pair = {
            "truth": info.scaling.restore(batch.values[index, :, 0].double().numpy(), index),
            "prediction": info.scaling.restore(prediction[index, :, 0].astype(np.float64), index),
        }
        columns |= {name: pair["truth"], f"{name}_prediction": pair["prediction"], f"{name}_trained": trained.astype(int)}
        if draw and index < MAX_FILES:
            rmse = metrics["test/rmse_per_signal"][index] if "test/rmse" in metrics else None
            caption = name if rmse is None else f"{name}, held-out RMSE {rmse:.4g}"
            pictures.append(str(plot_points(folder / f"{stem}_comparison.png", axes, points, pair, trained, caption)))
    write_table(folder / "points.csv", columns)
    return pictures


def plot_points(
    path: Path,
    axes: Sequence[Axis],
    points: npt.NDArray[np.float64],
    columns: Mapping[str, npt.NDArray[np.float64]],
    trained: npt.NDArray[np.bool_],
    caption: str,
) -> Path:
    """Plots truth, prediction and error at points ``(P, D)`` in [0, 1) as a PNG; of three axes the first two.

    ``columns`` are ``truth`` and ``prediction`` in the user's units, ``trained`` which points were trained on, ``(P,)``.
    """
    from matplotlib.figure import Figure

    step = -(-len(points) // 20_000)
    points, trained = points[::step], trained[::step]
    truth, prediction = (columns[name][::step] for name in ("truth", "prediction"))
    places = [axis.restore(column) for axis, column in zip(axes, points.T, strict=True)]
    error, held_out = prediction - truth, ~trained
    if len(axes) == 1:
        figure = Figure(figsize=(9, 4), layout="constrained")
        panel = figure.add_subplot()
        order = np.argsort(points[:, 0])
        panel.plot(places[0][trained], truth[trained], ".", color="tab:blue", markersize=4, label="trained on")
        panel.plot(places[0][held_out], truth[held_out], ".", color="black", markersize=5, label="held out")
        panel.plot(places[0][order], prediction[order], color="tab:orange", linewidth=1, label="prediction")
        panel.set_xlabel(axes[0].name)
        panel.legend(fontsize=8)
    else:
        figure = Figure(figsize=(13, 4), layout="constrained")
        shown = held_out if held_out.any() else trained
        limits: dict[str, Any] = {"vmin": float(truth.min()), "vmax": float(truth.max()), "cmap": "viridis"}
        largest = float(np.abs(error[shown]).max()) or 1.0
        spread: dict[str, Any] = {"vmin": -largest, "vmax": largest, "cmap": "RdBu"}
        which = "held-out" if held_out.any() else "trained"
        panels = [("trained rows", trained, truth, limits), (f"prediction at {which} rows", shown, prediction, limits)]
        panels.append((f"prediction minus value at {which} rows", shown, error, spread))
        drawn_on = figure.subplots(1, 3, sharex=True, sharey=True)
        for panel, (title, where, colour, options) in zip(drawn_on, panels, strict=True):
            drawn = panel.scatter(places[0][where], places[1][where], c=colour[where], s=8, linewidths=0, **options)
            panel.set(title=title, xlabel=axes[0].name, ylabel=axes[1].name)
            figure.colorbar(drawn, ax=panel)
    figure.suptitle(caption, fontsize=10)
    return save_figure(path, figure)


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
