"""The reconstructions of a run: every signal as a file, and beside its truth as a picture and as data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pe_lightning.data.batches import SignalInfo
from pe_lightning.data.output import OutputGrid
from pe_lightning.data.values import FileValues
from pe_lightning.files import replacing
from pe_lightning.hdf5 import PatientFile
from pe_lightning.media.pictures import FRAMES, comparison, comparison_frames, row_plot, to_levels, write_png
from pe_lightning.media.signals import choose_format, new_array, write_signal
from pe_lightning.metrics import unit_of
from pe_lightning.runs import file_names, frames_of

__all__ = ["FileAssembly", "PredictionWriter", "write_comparison", "write_reconstructions"]

Array = npt.NDArray[np.float32]
Write = Callable[[Path, Array, SignalInfo, int], Path | None]

SHEETS = 64
"""How many rows, videos or volumes are compared with the truth in a picture; every image is."""
COMPARED_FRAMES = 32
"""How many frames of a cube are in the file that compares it with the truth, at most."""
COMPARED_BYTES = 1 << 27
"""About how many bytes such a file has before compression, at most: of larger frames there are fewer."""
MEMORY_LIMIT = 1 << 30
"""Bytes up to which a prediction is put together in memory."""


def write_reconstructions(
    folder: Path,
    metrics: Mapping[str, Any],
    predictions: Array,
    values: Array,
    info: SignalInfo | None = None,
    train_mask: npt.NDArray[np.bool_] | None = None,
    write: Write | None = None,
    interpolation: tuple[str, Array] | None = None,
    draw: bool = True,
) -> list[str]:
    """Writes every signal, and of signals of 1 to 3 axes ``<stem>_comparison.png`` and ``<stem>_comparison.h5``.

    The picture shows what was trained on, truth, reconstruction, interpolation and error; of many rows or cubes, it is that
    of the first :data:`SHEETS`. The HDF5 file has them as data (see :func:`write_comparison`).

    Args:
        folder: Where to.
        metrics: With ``signals``, and the scores per signal for the captions.
        predictions: ``(S, *grid, C)``.
        values: The truth, same shape.
        info: What the source is; without it images are PNG, and anything else NPY.
        train_mask: Which samples were trained on, ``(S or 1, *grid)``.
        write: Writes a signal in a format of its source's own, or returns ``None``.
        interpolation: The name of the best interpolation, one of ``metrics["baselines"]``, and what it makes of the trained
            samples, ``(S, *grid, C)``.
        draw: Whether to write the pictures.

    Returns:
        The paths of the pictures, those of the first signals.
    """
    pictures = []
    metric = metrics.get("metric", "psnr")
    for index, stem in enumerate(file_names(tuple(metrics["signals"]))):
        prediction, truth = predictions[index], values[index]
        if write is None or info is None or write(folder / stem, prediction, info, index) is None:
            write_signal(folder / stem, prediction, info, index)
        if not 2 <= truth.ndim <= 4:
            continue
        trained = None if train_mask is None else train_mask[index if len(train_mask) > 1 else 0]
        other = None if interpolation is None else interpolation[1][index]
        compared = {"reconstruction": prediction, "truth": truth} | ({} if other is None else {"interpolation": other})
        frames = [0]
        if truth.ndim == 4:
            frames = frames_of(len(truth), min(COMPARED_FRAMES, max(1, COMPARED_BYTES // (2 * truth[0].size))))
            compared = {name: cube[frames] for name, cube in compared.items()}
        write_comparison(folder / f"{stem}_comparison.h5", compared, info, frames, trained)
        if not draw or (truth.ndim != 3 and index >= SHEETS):
            continue

        def caption(what: str, scores: Mapping[str, Any], index: int = index) -> str:
            score = scores[f"test/{metric}_per_signal"][index]
            return what if score is None else f"{what}, {f'{score:.2f} {unit_of(metric)}'.rstrip()} held out"

        about, beside = caption("reconstruction", metrics), None
        if interpolation is not None and other is not None:
            method = interpolation[0]
            beside = caption(f"{method} interpolation", metrics["baselines"][method]), other
        if truth.ndim == 2:
            sheet = row_plot(prediction, truth, trained, about, info.rate if info is not None else None, beside)
        elif truth.ndim == 3:
            sheet = comparison(prediction, truth, about, trained=trained, interpolation=beside)
        else:
            shown = frames_of(len(truth), FRAMES)
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
    """Writes what is compared of a signal of 1 to 3 axes atomically, for ``pe-lightning compare`` to show.

    HDF5 with a dataset for each of the ``values``. Of a row they are float32, what was [0, 1] in training, and
    ``trained`` has one boolean per sample. Of a picture or cube they are 8-bit pictures ``(n, H, W, C)``, n = 1 for a
    picture, else frames of the cube whose numbers are the attribute ``frames``; of more than four channels the first. The
    attributes ``media`` and ``rate`` are those of the source, where it is known.

    Args:
        path: Where to.
        values: ``truth``, ``reconstruction`` and perhaps ``interpolation``: ``(*grid, C)``, of a cube some frames.
        info: What the source is.
        frames: Which frames of a cube they are.
        trained: Of a row, which samples were trained on, ``(N,)``.
    """
    with replacing(path) as temporary, PatientFile(temporary) as stream, h5py.File(stream, "w") as file:
        truth = values["truth"]
        for name, array in values.items():
            if truth.ndim == 2:
                file.create_dataset(name, data=array, dtype=np.float32, chunks=True, shuffle=True, compression=1)
                continue
            channels = truth.shape[-1] if truth.shape[-1] <= 4 else 1
            levels = to_levels(array[..., :channels]).reshape(len(frames), *truth.shape[-3:-1], channels)
            file.create_dataset(name, data=levels, chunks=(1, *levels.shape[1:]), compression=1)
            file.attrs["frames"] = list(frames)
        if truth.ndim == 2 and trained is not None:
            file.create_dataset("trained", data=trained, compression=1)
        if info is not None:
            file.attrs["media"] = info.media
            if info.rate is not None:
                file.attrs["rate"] = info.rate


class FileAssembly:
    """Puts blocks together in one NPY file per signal, ``(*grid, C)`` in the source's dtype and range.

    Several processes on one machine fill the same files; the first one makes them, under names that end in ``.part``
    until all of it is there.

    Args:
        folder: Where to.
        info: The signals.
        grid: Samples per axis; by default those of the source.
        first: Whether this process makes the files and, at the end, gives them their names.
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
        """Takes a block ``(S, n_1, ..., n_D, C)``, whose first sample is ``start``; the first of all by default."""
        self.filled = True
        origin = start or [0] * (block.ndim - 2)
        where = tuple(slice(a, a + n) for a, n in zip(origin, block.shape[1:-1], strict=True))
        for index, path in enumerate(self.paths):
            # opened anew for each block: pages that were written do not stay in this process's memory
            file = np.lib.format.open_memmap(_unfinished(path), "r+")
            file[where] = self.info.scaling.restore(block[index].float().cpu().numpy(), index)
            del file

    def finish(self, filled: bool = True, truth: FileValues | None = None) -> list[Path]:
        """Gives the files their names when all processes are done, or deletes them if none of them added anything.

        With the truth, it is compared with what was predicted (see :func:`write_comparison`).
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
        """Of a cube some frames, read one by one; nothing where a row, picture or frame is above the limit."""
        count, *frame = self.info.grid if self.info.num_axes == 3 else (1, *self.info.grid)
        size = 4 * self.info.num_signals * self.info.channels * math.prod(frame)
        if self.info.num_axes > 3 or size > COMPARED_BYTES:
            return
        frames = frames_of(count, min(COMPARED_FRAMES, COMPARED_BYTES // size))
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
    """Takes predictions as they come and writes each that is complete below ``folder``, in a folder named by its size.

    Args:
        folder: Where to.
        info: What the signals are.
        output: The size and format, whose rows come a few at a time; by default each prediction is complete.
    """

    def __init__(self, folder: Path, info: SignalInfo, output: OutputGrid | None = None) -> None:
        self.folder = folder
        self.info = info
        self.output = output
        self._blocks: list[Tensor] = []
        self._files: FileAssembly | None = None
        self._rows = 0

    def add(self, values: Tensor) -> list[Path]:
        """Takes values ``(S, n_1, ..., n_D, C)`` and returns the paths of what was written, if anything was.

        Raises:
            InputError: If the format cannot hold signals of this size.
        """
        grid = self.output.grid(self.info) if self.output is not None else tuple(values.shape[1:-1])
        formats = self.output.output_format if self.output is not None else "auto"
        folder = self.folder / "x".join(map(str, grid))
        if not self._rows:
            choose_format((*grid, self.info.channels), self.info, formats)  # refuses before any work
            size = 4 * self.info.num_signals * self.info.channels * math.prod(grid)
            large = size > MEMORY_LIMIT and formats in ("auto", "npy")
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
        signals = zip(file_names(self.info.names), torch.cat(blocks, 1).numpy(), strict=True)
        return [write_signal(folder / stem, signal, self.info, n, formats) for n, (stem, signal) in enumerate(signals)]
