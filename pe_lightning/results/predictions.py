"""Predictions that arrive in blocks, as files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pe_lightning.results.output import Output
from pe_lightning.results.runs import file_names
from pe_lightning.results.signal_files import choose_medium, media, new_array
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.raw import ValueRange

MAX_ASSEMBLED_BYTES = 1 << 30
"""Largest prediction that is assembled in memory, in bytes."""


class FileAssembly:
    """Assembles blocks in one NPY file per signal, ``(*grid, C)`` in the source's dtype and range.

    Several processes on one machine write to the same files, which the ``first`` creates and, at the end, renames.
    """

    def __init__(self, folder: Path, info: SignalInfo, grid: Sequence[int] | None = None, first: bool = True) -> None:
        self.info, self.first, self.filled = info, first, False
        self.paths = [folder / f"{stem}.npy" for stem in file_names(info.names)]
        if first:
            folder.mkdir(parents=True, exist_ok=True)
            shape = (*(grid or info.grid), info.channels)
            for path in self.paths:
                new_array(_unfinished(path), info.scaling.dtype, shape)

    def add(self, block: Tensor, start: Sequence[int] | None = None) -> None:
        """Writes a block ``(S, n_1, ..., n_D, C)`` at position ``start``, by default 0."""
        self.filled = True
        origin = start or [0] * (block.ndim - 2)
        where = tuple(slice(a, a + n) for a, n in zip(origin, block.shape[1:-1], strict=True))
        for index, path in enumerate(self.paths):
            # reopened for each block, so that written pages do not stay in this process's memory
            file = np.lib.format.open_memmap(_unfinished(path), "r+")
            file[where] = self.info.scaling.restore(block[index].float().cpu().numpy(), index)
            del file

    def finish(self, filled: bool = True) -> list[Path]:
        """Renames the files when all processes are done, or deletes them if nothing was added."""
        for path in self.paths if self.first else ():
            if filled:
                _unfinished(path).replace(path)
            else:
                _unfinished(path).unlink()
        return self.paths


def _unfinished(path: Path) -> Path:
    return path.with_name(path.name + ".part")


class PredictionWriter:
    """Writes predictions, which arrive in blocks of rows, below ``folder`` in a folder named by their size.

    Without ``output`` each prediction is complete. Standard deviations of scattered points are written with the values; of
    signals on a grid beside them as ``<name>_std.npy``, float32 in the unit of the source, if ``output`` asks for them.
    """

    def __init__(self, folder: Path, info: SignalInfo, output: Output | None = None, has_std: bool = False) -> None:
        self.folder, self.info, self.output = folder, info, output
        self.medium = media.create(info.media)
        self.takes_std = has_std and output is not None and (info.num_points is not None or output.output_std)
        """Whether :meth:`add` takes standard deviations too."""
        self._blocks: list[Tensor] = []
        self._files: FileAssembly | None = None
        self._rows = 0
        self._std: PredictionWriter | None = None
        if self.takes_std and output is not None and info.num_points is None:
            limits = [info.scaling.limits(signal) for signal in range(info.num_signals)]
            scaling = ValueRange("float32", (0.0,) * len(limits), tuple(high - low for low, high in limits))
            names = tuple(f"{name}_std" for name in info.names)
            about = replace(info, names=names, scaling=scaling, media="array")
            self._std = PredictionWriter(folder, about, Output(output.output_shape, "npy", output.scale))

    def add(self, values: Tensor, std: Tensor | None = None) -> list[Path]:
        """Adds values ``(S, n_1, ..., n_D, C)``, or of all points ``(S, P, 1)``; returns the complete files."""
        if self.output is not None and self.info.num_points is not None:
            deviations = None if std is None else std.float().cpu().numpy()
            return self.medium.predict(self.folder, values.float().cpu().numpy(), self.info, self.output, deviations)
        paths = self._add_rows(values)
        return paths if self._std is None or std is None else [*paths, *self._std.add(std)]

    def _add_rows(self, values: Tensor) -> list[Path]:
        grid = self.output.grid(self.info) if self.output is not None else tuple(values.shape[1:-1])
        if not self._rows:
            formats = "auto" if self.output is None else self.output.output_format
            choose_medium((*grid, self.info.channels), self.info, formats)  # raises before any work
            size = 4 * self.info.num_signals * self.info.channels * math.prod(grid)
            large = size > MAX_ASSEMBLED_BYTES and formats in ("auto", "npy")
            self._files = FileAssembly(self.folder / "x".join(map(str, grid)), self.info, grid) if large else None
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
