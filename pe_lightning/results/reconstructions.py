"""Reconstructions of a run: each signal as a file, and its comparison with the truth as a picture and as data."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pe_lightning.evaluation.metrics import unit_of
from pe_lightning.results.comparisons import ALL_SIGNALS
from pe_lightning.results.output import Output
from pe_lightning.results.pictures import COMPARED_FRAMES, comparison, comparison_frames, row_plot, to_levels, write_png
from pe_lightning.results.runs import MAX_FILES, file_names, frames_of
from pe_lightning.results.signal_files import (
    Formats,
    add_signals,
    choose_format,
    media,
    new_array,
    new_dataset,
    write_signal,
)
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.blocks import FileValues
from pe_lightning.signals.files import write_atomically
from pe_lightning.signals.raw import ValueRange

Array = npt.NDArray[np.float32]

MAX_STORED_FRAMES = 32
"""Largest number of frames of a cube in a comparison file."""
MAX_STORED_BYTES = 1 << 27
"""Approximate largest size of a comparison file before compression, in bytes; limits the number of frames."""
MAX_ASSEMBLED_BYTES = 1 << 30
"""Largest prediction that is assembled in memory, in bytes."""


def write_reconstructions(
    folder: Path,
    metrics: Mapping[str, Any],
    predictions: Array,
    values: Array,
    info: SignalInfo | None = None,
    train_mask: npt.NDArray[np.bool_] | None = None,
    interpolation: tuple[str, Array] | None = None,
    draw: bool = True,
) -> list[str]:
    """Writes all signals, and for signals of 1 to 3 axes ``<stem>_comparison.png``, whose paths it returns, and ``.h5``.

    The picture shows trained samples, truth, reconstruction, interpolation and error. The HDF5 file has the data (see
    :func:`write_comparison`).

    Of more than 64 signals, whose values take at most :data:`MAX_ASSEMBLED_BYTES`, only the first 64 have files and
    pictures, and ``reconstructions.h5`` holds all: ``values`` and ``names`` (see
    :func:`~pe_lightning.results.signal_files.add_signals`), and the datasets of the comparisons with an axis of signals
    before the others (one mask ``trained``, if it is that of all).

    Args:
        folder: Folder of the files.
        metrics: Content of ``metrics.json``: names of the signals, and their scores for the captions.
        predictions: ``(S, *grid, C)``.
        values: The truth, same shape.
        info: Shape and origin of the signals; without it images are PNG, and anything else NPY.
        train_mask: Mask of the trained samples, ``(S or 1, *grid)``.
        interpolation: Name of the best interpolation, one of ``metrics["baselines"]``, and its values, ``(S, *grid, C)``.
        draw: Whether to write the pictures.
    """
    pictures = []
    metric = metrics.get("metric", "psnr")
    stems, frames = file_names(tuple(metrics["signals"])), [0]
    if values.ndim == 5:
        frame = values[0, 0].size
        frames = frames_of(values.shape[1], min(MAX_STORED_FRAMES, max(1, MAX_STORED_BYTES // (2 * frame))))
    every = {"reconstruction": predictions, "truth": values}
    every |= {} if interpolation is None else {"interpolation": interpolation[1]}
    together = len(stems) > MAX_FILES and predictions.nbytes <= MAX_ASSEMBLED_BYTES
    if together:
        _write_together(folder / ALL_SIGNALS, metrics["signals"], every, info, frames, train_mask)
    for index, stem in enumerate(stems[:MAX_FILES] if together else stems):
        prediction, truth = predictions[index], values[index]
        write_signal(folder / stem, prediction, info, index)
        if not 2 <= truth.ndim <= 4:
            continue
        trained = None if train_mask is None else train_mask[index if len(train_mask) > 1 else 0]
        other = None if interpolation is None else interpolation[1][index]
        if not together:
            compared = {name: array[index][frames] if truth.ndim == 4 else array[index] for name, array in every.items()}
            write_comparison(folder / f"{stem}_comparison.h5", compared, info, frames, trained)
        if not draw or index >= MAX_FILES:
            continue

        def caption(what: str, scores: Mapping[str, Any], index: int = index) -> str:
            for stage, words in (("test", "held out"), ("train", "of trained samples")):
                if (score := scores.get(f"{stage}/{metric}_per_signal", {index: None})[index]) is not None:
                    return f"{what}, {f'{score:.2f} {unit_of(metric)}'.rstrip()} {words}"
            return what

        about, beside = caption("reconstruction", metrics), None
        if interpolation is not None and other is not None:
            method = interpolation[0]
            beside = caption(f"{method} interpolation", metrics["baselines"][method]), other
        if truth.ndim == 2:
            sheet = row_plot(prediction, truth, trained, about, info.rate if info is not None else None, beside)
        elif truth.ndim == 3:
            sheet = comparison(prediction, truth, about, trained=trained, interpolation=beside)
        else:
            shown = frames_of(len(truth), COMPARED_FRAMES)
            some = None if trained is None else trained[shown]
            beside = None if beside is None else (beside[0], beside[1][shown])
            sheet = comparison_frames(prediction[shown], truth[shown], about, shown, len(truth), some, beside)
        pictures.append(str(write_png(folder / f"{stem}_comparison.png", sheet)))
    return pictures


def write_comparison(
    path: Path,
    values: Mapping[str, Array],
    info: SignalInfo | None = None,
    frames: Sequence[int] = (0,),
    trained: npt.NDArray[np.bool_] | None = None,
) -> None:
    """Writes the comparison of a signal of 1 to 3 axes atomically, for ``pe-lightning compare``.

    HDF5 with a dataset for each of the ``values``. For a row these are float32, nominally in [0, 1], and ``trained`` has one
    boolean per sample. For a picture or cube these are 8-bit pictures ``(n, H, W, C)``: n = 1 for a picture, otherwise
    frames of the cube, whose indices are the attribute ``frames``. Of more than four channels the first is stored. The
    attributes ``media`` and ``rate`` are those of the source, if it is known.

    Args:
        path: The file.
        values: ``truth``, ``reconstruction`` and optionally ``interpolation``: ``(*grid, C)``, or frames of a cube.
        info: Shape and origin of the signals.
        frames: Indices of the frames of a cube.
        trained: Mask of the trained samples of a row, ``(N,)``.
    """
    content = io.BytesIO()  # HDF5 cannot close a file whose disk is full
    with h5py.File(content, "w") as file:
        shape, convert = _stored(values["truth"].shape, frames)
        for name, array in values.items():
            if len(shape) == 2:
                file.create_dataset(name, data=array, dtype=np.float32, chunks=True, shuffle=True, compression=1)
            else:
                file.create_dataset(name, data=convert(array), chunks=(1, *shape[1:]), compression=1)
        _describe_comparison(file, values["truth"].ndim, info, frames, trained)
    write_atomically(path, content.getbuffer())


def _write_together(
    path: Path,
    names: Sequence[str],
    values: Mapping[str, Array],
    info: SignalInfo | None,
    frames: Sequence[int],
    trained: npt.NDArray[np.bool_] | None,
) -> None:
    content = io.BytesIO()  # HDF5 cannot close a file whose disk is full
    with h5py.File(content, "w") as file:
        add_signals(file, values["reconstruction"], names, info)
        for name, array in values.items() if 3 <= values["truth"].ndim <= 5 else ():
            shape, convert = _stored(array.shape[1:], frames)
            dataset = new_dataset(file, name, (len(array), *shape), np.float32 if array.ndim == 3 else np.uint8)
            for start in range(0, len(array), step := dataset.chunks[0]):
                block = array[start : start + step]
                dataset[start : start + step] = np.stack([convert(s[frames] if s.ndim == 4 else s) for s in block])
        _describe_comparison(file, values["truth"].ndim - 1, info, frames, trained)
    write_atomically(path, content.getbuffer())


def _stored(shape: Sequence[int], frames: Sequence[int]) -> tuple[tuple[int, ...], Callable[[Array], npt.NDArray[Any]]]:
    """The shape that a comparison has of a signal ``(*grid, C)``, and what converts the signal, or its frames."""
    if len(shape) == 2:
        return tuple(shape), lambda array: array
    channels = shape[-1] if shape[-1] <= 4 else 1
    stored = (len(frames), *shape[-3:-1], channels)
    return stored, lambda array: to_levels(array[..., :channels]).reshape(stored)


def _describe_comparison(
    file: h5py.File, num_dims: int, info: SignalInfo | None, frames: Sequence[int], trained: npt.NDArray[np.bool_] | None
) -> None:
    if num_dims > 2:
        file.attrs["frames"] = list(frames)
    elif trained is not None:
        file.create_dataset("trained", data=trained, compression=1)
    if info is not None:
        file.attrs["media"] = info.media
        if info.rate is not None:
            file.attrs["rate"] = info.rate


class FileAssembly:
    """Assembles blocks in one NPY file per signal, ``(*grid, C)`` in the source's dtype and range.

    Several processes on one machine write to the same files. The first process creates them, with names that end in
    ``.part`` until they are complete.

    Args:
        folder: Folder of the files.
        info: Shape and origin of the signals.
        grid: Number of samples per axis; by default those of the source.
        first: Whether this process creates the files and, at the end, renames them.
    """

    def __init__(self, folder: Path, info: SignalInfo, grid: Sequence[int] | None = None, first: bool = True) -> None:
        self.info = info
        self.filled = False
        self.first = first
        self.paths = [folder / f"{stem}.npy" for stem in file_names(info.names)]
        if first:
            folder.mkdir(parents=True, exist_ok=True)
            shape = (*(grid or info.grid), info.channels)
            for path in self.paths:
                new_array(_unfinished(path), info.scaling.dtype, shape)

    def add(self, block: Tensor, start: Sequence[int] | None = None) -> None:
        """Writes a block ``(S, n_1, ..., n_D, C)`` whose first sample is at position ``start``, by default 0."""
        self.filled = True
        origin = start or [0] * (block.ndim - 2)
        where = tuple(slice(a, a + n) for a, n in zip(origin, block.shape[1:-1], strict=True))
        for index, path in enumerate(self.paths):
            # reopened for each block, so that written pages do not stay in this process's memory
            file = np.lib.format.open_memmap(_unfinished(path), "r+")
            file[where] = self.info.scaling.restore(block[index].float().cpu().numpy(), index)
            del file

    def finish(self, filled: bool = True, truth: FileValues | None = None) -> list[Path]:
        """Renames the files when all processes are done, or deletes them if nothing was added.

        With ``truth``, the comparison is written too (see :func:`write_comparison`).
        """
        for path in self.paths if self.first else ():
            if filled:
                _unfinished(path).replace(path)
            else:
                _unfinished(path).unlink()
        if self.first and filled and truth is not None:
            self._compare(truth)
        return self.paths

    def _compare(self, truth: FileValues) -> None:
        """Writes the comparison, unless a row, picture or frame exceeds :data:`MAX_STORED_BYTES`."""
        count, *frame = self.info.grid if self.info.num_axes == 3 else (1, *self.info.grid)
        size = 4 * self.info.num_signals * self.info.channels * math.prod(frame)
        if self.info.num_axes > 3 or size > MAX_STORED_BYTES:
            return
        frames = frames_of(count, min(MAX_STORED_FRAMES, MAX_STORED_BYTES // size))
        parts = [slice(n, n + 1) for n in frames] if self.info.num_axes == 3 else [slice(0, self.info.grid[0])]
        rest = [slice(0, n) for n in self.info.grid[1:]]
        values = torch.cat([truth.read((part, *rest)) for part in parts], 1).numpy()
        for index, path in enumerate(self.paths):
            stored = np.load(path, mmap_mode="r")
            prediction = self.info.scaling.to_unit(np.concatenate([stored[part] for part in parts]), index)
            compared = {"truth": values[index], "reconstruction": prediction}
            write_comparison(path.with_name(f"{path.stem}_comparison.h5"), compared, self.info, frames)


def _unfinished(path: Path) -> Path:
    return path.with_name(path.name + ".part")


class PredictionWriter:
    """Writes predictions, which arrive in blocks of rows, below ``folder`` in a folder named by their size.

    Args:
        folder: Folder of the predictions.
        info: Shape and origin of the signals.
        output: Size and format, whose rows arrive in blocks; by default each prediction is complete.
        has_std: Whether there are standard deviations: of scattered points they are written with the values, of signals on a
            grid beside them as ``<name>_std.npy``, float32 in the unit of the source, if ``output`` asks for them.

    Attributes:
        takes_std: Whether :meth:`add` takes standard deviations too.
    """

    def __init__(self, folder: Path, info: SignalInfo, output: Output | None = None, has_std: bool = False) -> None:
        self.folder = folder
        self.info = info
        self.output = output
        self.medium = media.create(info.media)
        self.takes_std = has_std and output is not None and (info.num_points is not None or output.output_std)
        self._blocks: list[Tensor] = []
        self._files: FileAssembly | None = None
        self._rows = 0
        self._std: PredictionWriter | None = None
        if self.takes_std and output is not None and info.num_points is None:
            limits = [info.scaling.of(signal) for signal in range(info.num_signals)]
            scaling = ValueRange("float32", (0.0,) * len(limits), tuple(high - low for low, high in limits))
            names = tuple(f"{name}_std" for name in info.names)
            about = replace(info, names=names, scaling=scaling, media="array")
            self._std = PredictionWriter(folder, about, Output(output.output_shape, "npy", output.scale))

    def add(self, values: Tensor, std: Tensor | None = None) -> list[Path]:
        """Adds values ``(S, n_1, ..., n_D, C)``, or of all points ``(S, P, 1)``, in [0, 1], and their standard deviations.

        Returns:
            The files, once they are complete.
        """
        if self.output is not None and self.info.num_points is not None:
            deviations = None if std is None else std.float().cpu().numpy()
            return self.medium.predict(self.folder, values.float().cpu().numpy(), self.info, self.output, deviations)
        beside = [] if self._std is None or std is None else self._std.add(std)
        return [*self._add_rows(values), *beside]

    def _add_rows(self, values: Tensor) -> list[Path]:
        grid = self.output.grid(self.info) if self.output is not None else tuple(values.shape[1:-1])
        # choose_format refuses those of scattered points
        formats = cast(Formats, self.output.output_format if self.output is not None else "auto")
        if not self._rows:
            choose_format((*grid, self.info.channels), self.info, formats)  # raises before any work
            size = 4 * self.info.num_signals * self.info.channels * math.prod(grid)
            large = size > MAX_ASSEMBLED_BYTES and formats in ("auto", "npy")
            folder = self.folder / "x".join(map(str, grid))
            self._files = FileAssembly(folder, self.info, grid) if large else None
        if self._files is not None:
            self._files.add(values, (self._rows, *[0] * (len(grid) - 1)))
        else:
            self._blocks.append(values.float().cpu())
        self._rows += values.shape[1]
        if self._rows < grid[0]:
            return []
        blocks, self._blocks, self._rows = self._blocks, [], 0
        if self._files is not None:
            return self._files.finish()
        return self.medium.predict(self.folder, torch.cat(blocks, 1).numpy(), self.info, self.output)
