"""Predictions that arrive in blocks: put together, in files of their own where they are too large for memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pe_lightning.data.batches import SignalInfo
from pe_lightning.data.output import OutputGrid
from pe_lightning.media.signals import choose_format, write_signal
from pe_lightning.runs import file_names

__all__ = ["FileAssembly", "PredictionWriter"]

MEMORY_LIMIT = 1 << 30
"""Bytes up to which a prediction is put together in memory."""


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
                np.lib.format.open_memmap(_unfinished(path), "w+", np.dtype(info.scaling.dtype), shape).flush()

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

    def finish(self, filled: bool = True) -> list[Path]:
        """Gives the files their names when all processes are done, or deletes them if none of them added anything."""
        for path in self.paths if self.first else ():
            if filled:
                _unfinished(path).replace(path)
            else:
                _unfinished(path).unlink()
        return self.paths


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
