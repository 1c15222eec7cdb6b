"""Arrays in several files as one array of signals, ``(S, N_1, ..., N_D, C)``: which axis is what, reading by slices."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Literal, TypeAlias

import numpy as np

from pe_lightning.data.signals import AnyArray
from pe_lightning.data.sources.array_files import StoredArray, close, reading
from pe_lightning.data.values import file_blocks
from pe_lightning.errors import InputError

__all__ = ["Channels", "FileArrays", "Part", "slabs"]

Channels: TypeAlias = Literal["auto", "last", "none"]
"""What the last axis of an array of D + 1 axes is, see :func:`pe_lightning.data.sources.arrays.read_arrays`."""

_BYTES = 1 << 25  # what is read at once
_MOST_CHANNELS = 4  # of an axis that channels: auto takes for channels
_MOST_OPEN = 64  # files; systems allow a process some 1000


@dataclass(frozen=True)
class Part:
    """The signals of one file.

    Args:
        stored: The array.
        counted: Whether its first axis counts signals.
        with_channels: Whether its last axis is channels.
        used: The shape that is used: the array's, or less of the first axis of the grid.
    """

    stored: StoredArray
    counted: bool
    with_channels: bool
    used: tuple[int, ...]

    @classmethod
    def of(cls, stored: StoredArray, num_axes: int, channels: Channels) -> Part:
        """Says which axis is what.

        Raises:
            InputError: If the array has a number of axes that is not allowed.
        """
        shape = stored.shape
        extra = len(shape) - num_axes
        last = channels == "last" or (channels == "auto" and shape[-1] <= _MOST_CHANNELS)
        allowed = {"auto": (0, 1, 2), "last": (1, 2), "none": (0, 1)}[channels]
        if extra not in allowed:
            raise InputError(_wrong_axes(stored, num_axes, channels, extra, allowed))
        return cls(stored, extra == 2 or (extra == 1 and not last), extra == 2 or (extra == 1 and last), shape)

    @property
    def signals(self) -> int:
        """Number of signals."""
        return self.used[0] if self.counted else 1

    @property
    def grid(self) -> tuple[int, ...]:
        """``(N_1, ..., N_D)``."""
        return self.used[self.counted : len(self.used) - self.with_channels]

    @property
    def channels(self) -> int:
        """``C``."""
        return self.used[-1] if self.with_channels else 1

    def first(self, length: int) -> Part:
        """The first samples along the first axis of the grid."""
        return replace(self, used=tuple(length if axis == self.counted else n for axis, n in enumerate(self.used)))

    def boxes(self) -> Iterator[tuple[slice, ...]]:
        """Boxes that make up the array, in an order in which it is fast to read."""
        turn = -1 if self.stored.fortran else 1
        chunks = self.stored.chunks or [1] * len(self.used)
        for box in file_blocks(self.used[::turn], chunks[::turn], self.stored.dtype.itemsize, _BYTES):
            yield box[::turn]


def _wrong_axes(stored: StoredArray, num_axes: int, channels: Channels, extra: int, allowed: Sequence[int]) -> str:
    grid = ", ".join(f"N{axis + 1}" for axis in range(num_axes))
    middle = {"last": [f"({grid}, channels)"], "none": [f"(signals, {grid})"]}
    layouts = [
        [f"({grid},)" if num_axes == 1 else f"({grid})"],
        middle.get(channels) or [layout for pair in middle.values() for layout in pair],
        [f"(signals, {grid}, channels)"],
    ]
    listed = " or ".join(layout for axes in allowed for layout in layouts[axes])
    other = f"Set channels: {'none' if extra == 0 else 'last'}, or save" if extra in (0, 2) else "Save"
    return (
        f"{stored.label} has shape {stored.shape}, but signals of {num_axes} axes with channels: {channels} are {listed}. "
        f"{other} it in one of these shapes (numpy.squeeze removes axes of length 1), or fit it as signals of another "
        "number of axes"
    )


class FileArrays:
    """The arrays of files as one, ``(S, N_1, ..., N_D, C)``, read by slices. Each process opens the files for itself.

    It can be pickled, and used by several threads.

    Args:
        parts: What the files hold.
        most_open: How many files are kept open.
    """

    def __init__(self, parts: Sequence[Part], most_open: int = _MOST_OPEN) -> None:
        self.parts = tuple(parts)
        self._most_open = most_open
        self.shape = (sum(part.signals for part in parts), *parts[0].grid, parts[0].channels)
        self.dtype = parts[0].stored.dtype
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._handles: dict[int, Any] = {}
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_process", "_handles", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """The pieces in which the first file is stored, laid out as ``shape``; ``None`` if it is stored in one."""
        part = self.parts[0]
        stored = part.stored.chunks
        if part.stored.fortran:
            stored = (*part.used[:-1], 1)
        if stored is None:
            return None
        inner = stored[part.counted : len(stored) - part.with_channels]
        return (1, *(min(size, n) for size, n in zip(inner, part.grid, strict=True)), part.channels)

    def __getitem__(self, index: tuple[slice, ...]) -> AnyArray:
        """A contiguous copy of a box, in the byte order of this machine.

        Raises:
            InputError: If the file is damaged there.
        """
        index = (*index, *[slice(None)] * (len(self.shape) - len(index)))
        wanted = range(*index[0].indices(self.shape[0]))
        pieces, first = [], 0
        for place, part in enumerate(self.parts):
            here = [signal - first for signal in wanted if first <= signal < first + part.signals]
            first += part.signals
            if here:
                pieces.append(self._read(place, (slice(here[0], here[-1] + 1, wanted.step), *index[1:])))
        if not pieces:
            return np.empty(
                (0, *(len(range(*s.indices(n))) for s, n in zip(index[1:], self.shape[1:], strict=True))), self.dtype
            )
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _read(self, place: int, index: tuple[slice, ...]) -> AnyArray:
        """A box of one part, ``(s, n_1, ..., n_D, c)``."""
        part = self.parts[place]
        # negative and open ends are resolved here, because part.used may be shorter than the file's axis
        sizes = (part.signals, *part.grid, part.channels)
        index = tuple(slice(*axis.indices(size)) for axis, size in zip(index, sizes, strict=True))
        values = self.box(place, index[0 if part.counted else 1 : len(index) if part.with_channels else -1])
        if not part.counted:
            values = values[None][index[0]]
        return np.ascontiguousarray(values if part.with_channels else values[..., None][..., index[-1]])

    def box(self, place: int, index: tuple[slice, ...]) -> AnyArray:
        """A box of the array of file number ``place``, as the file lays it out."""
        if self._process != os.getpid():  # a forked process must not use its parent's HDF5 files
            self._reset()
        part = self.parts[place]
        with self._lock, reading(part.stored.given):
            if place not in self._handles:
                while len(self._handles) >= self._most_open:
                    close(self._handles.pop(next(iter(self._handles))))
                self._handles[place] = part.stored.open()
            return np.array(self._handles[place][index], dtype=part.stored.dtype)


def slabs(parts: Sequence[Part]) -> Iterator[AnyArray]:
    """All values, signal after signal, each cut along its first axis: ``(n, N_2, ..., N_D, C)``."""
    array = FileArrays(parts, most_open=1)  # one at a time: an .npz file is held decoded while it is open
    per_row = array.dtype.itemsize * math.prod(array.shape[2:])
    thick = max(1, _BYTES // per_row)
    if parts[0].stored.chunks is not None and array.chunks is not None:
        thick = max(thick - thick % array.chunks[1], array.chunks[1])
    for signal in range(array.shape[0]):
        for first in range(0, array.shape[1], thick):
            yield array[slice(signal, signal + 1), slice(first, first + thick)][0]
