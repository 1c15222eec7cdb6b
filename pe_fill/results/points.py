"""Files and pictures of scattered points."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pe_fill.formats.point_axes import without_seasons
from pe_lightning.results.runs import MAX_FILES, file_names
from pe_lightning.signals import Axis, PointBatch, SignalInfo
from pe_lightning.signals.files import save_figure, write_atomically
from pe_lightning.signals.raw import AnyArray


def write_table(path: Path, columns: Mapping[str, Sequence[Any] | AnyArray], force: bool = True) -> Path:
    """Writes columns of text, numbers or ``datetime64``, of one shape, atomically as ``.csv`` or a structured ``.npy``.

    In CSV numbers have as many digits as they need, and missing numbers are empty cells. ``force`` replaces a file.
    """
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    if path.suffix == ".npy":
        plain = [column.astype(str) if column.dtype.kind == "O" else column for column in arrays.values()]
        content = io.BytesIO()
        types = [(name, column.dtype) for name, column in zip(arrays, plain, strict=True)]
        np.save(content, np.rec.fromarrays(plain, dtype=types))
        write_atomically(path, content.getbuffer(), force)
        return path
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(text_of(column.ravel()) for column in arrays.values()), strict=True))
    write_atomically(path, text.getvalue(), force)
    return path


def text_of(column: Sequence[Any] | AnyArray) -> list[str]:
    """The cells of a column; a missing number is empty."""
    array = np.asarray(column)
    if array.dtype.kind == "M":
        return ["" if np.isnat(entry) else str(entry).removesuffix("T00:00:00.000") for entry in array]
    if array.dtype.kind == "f":
        return ["" if np.isnan(entry) else repr(entry) for entry in array.tolist()]
    return [str(entry) for entry in array.tolist()]


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
