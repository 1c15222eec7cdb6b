"""Reconstructions that arrive in pieces: put together in memory, or in NPY files where they are too large for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from pe_lightning.data.batches import SignalInfo
from pe_lightning.runs import file_names

__all__ = ["FilePieces", "MemoryPieces"]


class MemoryPieces:
    """Puts pieces together in memory.

    Args:
        shape: ``(S, N_1, ..., N_D, C)`` of the whole.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self.values: npt.NDArray[np.float32] = np.zeros(shape, dtype=np.float32)

    def add(self, piece: Tensor, start: Sequence[int] | None) -> None:
        """Takes a piece ``(S, n_1, ..., n_D, C)``, whose first sample is ``start``; the first of all by default."""
        self.values[_where(piece, start)] = piece.float().cpu().numpy()


class FilePieces:
    """Puts pieces together in one NPY file per signal, ``(*grid, C)`` in the source's dtype and range.

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
        self.first = first
        self.shape = (*(grid or info.grid), info.channels)
        self.paths = [folder / f"{stem}.npy" for stem in file_names(info.names)]
        self._dtype = np.dtype(info.scaling.dtype)
        if first:
            folder.mkdir(parents=True, exist_ok=True)
            for path in self.paths:
                np.lib.format.open_memmap(_part(path), "w+", self._dtype, self.shape).flush()

    def add(self, piece: Tensor, start: Sequence[int] | None) -> None:
        """Takes a piece ``(S, n_1, ..., n_D, C)``, whose first sample is ``start``; the first of all by default."""
        where = _where(piece, start)[1:]
        for place, path in enumerate(self.paths):
            # opened anew for each piece: pages that were written do not stay in this process's memory
            file = np.lib.format.open_memmap(_part(path), "r+")
            file[where] = self.info.scaling.restore(piece[place].float().cpu().numpy(), place)
            del file

    def finish(self) -> list[Path]:
        """Gives the files their names, when all processes are done."""
        if self.first:
            for path in self.paths:
                _part(path).replace(path)
        return self.paths


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _where(piece: Tensor, start: Sequence[int] | None) -> tuple[slice, ...]:
    origin = start or [0] * (piece.ndim - 2)
    along = tuple(slice(first, first + n) for first, n in zip(origin, piece.shape[1:-1], strict=True))
    return (slice(None), *along, slice(None))
