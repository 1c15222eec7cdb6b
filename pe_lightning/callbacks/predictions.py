"""Predicted signals as files, in the size and format that were asked for."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from pe_lightning.callbacks.outputs import Formats, choose_format, write_signal
from pe_lightning.callbacks.pieces import FilePieces, MemoryPieces
from pe_lightning.data.batches import SignalInfo
from pe_lightning.data.output import OutputGrid
from pe_lightning.runs import file_names

__all__ = ["Predictions"]

MEMORY_LIMIT = 1 << 30
"""Bytes up to which a prediction is put together in memory; larger ones grow in an NPY file."""


class Predictions:
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
        self._pieces: FilePieces | MemoryPieces | None = None
        self._rows = 0

    def add(self, values: Tensor) -> list[Path]:
        """Takes values ``(S, n_1, ..., n_D, C)`` and returns the paths of what was written, if anything was.

        Raises:
            InputError: If the format cannot hold signals of this size.
        """
        if self.output is None:
            return self._write(values.float().cpu().numpy(), "auto")
        grid = self.output.grid(self.info)
        if self._pieces is None:
            self._pieces, self._rows = self._begin(grid, self.output.output_format), 0
        self._pieces.add(values, (self._rows, *[0] * (len(grid) - 1)))
        self._rows += values.shape[1]
        if self._rows < grid[0]:
            return []
        pieces, self._pieces = self._pieces, None
        if isinstance(pieces, MemoryPieces):
            return self._write(pieces.values, self.output.output_format)
        return list(pieces.finish())

    def _begin(self, grid: tuple[int, ...], formats: Formats) -> FilePieces | MemoryPieces:
        signals, channels = self.info.num_signals, self.info.channels
        choose_format((*grid, channels), self.info, formats)  # refuses before any work
        if 4 * signals * channels * math.prod(grid) > MEMORY_LIMIT and formats in ("auto", "npy"):
            return FilePieces(self.folder / "x".join(map(str, grid)), self.info, grid)
        return MemoryPieces((signals, *grid, channels))

    def _write(self, values: npt.NDArray[np.float32], formats: Formats) -> list[Path]:
        folder = self.folder / "x".join(map(str, values.shape[1:-1]))
        stems = file_names(self.info.names)
        return [write_signal(folder / stem, values[n], self.info, n, formats) for n, stem in enumerate(stems)]
