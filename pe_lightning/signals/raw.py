"""Descriptions of signals before they are loaded, and the scaling between the source's range and [0, 1]."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from pe_lightning.errors import InputError
from pe_lightning.signals.axes import Axis

Media: TypeAlias = Literal["image", "video", "audio", "array"]
"""Medium of a signal. It decides the format of reconstructions: PNG, MP4, WAV or an array file."""

AnyArray: TypeAlias = npt.NDArray[Any]

BLOCK_VALUES = 1 << 22
"""Number of values per block of signals in memory."""


def unmasked(values: npt.ArrayLike) -> AnyArray:
    """An array as it is, and of a NumPy masked array a copy with NaN, or NaT, where it is masked."""
    if not isinstance(values, np.ma.MaskedArray):
        return np.asarray(values)
    if values.dtype.kind == "M":
        return np.ma.filled(values, np.datetime64("NaT"))
    return np.ma.filled(values if values.dtype.kind == "f" else values.astype(float), np.nan)


class ArrayLike(Protocol):
    """An array that is read by slices without loading all of it: a memory map, an HDF5 dataset."""

    @property
    def shape(self) -> tuple[int, ...]:
        """``(S, N_1, ..., N_D, C)``."""

    def __getitem__(self, index: tuple[slice, ...]) -> AnyArray:
        """The values of a block, in any dtype."""


@dataclass(frozen=True)
class ValueRange:
    """Range and dtype of a source, mapped linearly to [0, 1].

    Args:
        dtype: NumPy name of the source's dtype, such as ``uint8``.
        low: The value that becomes 0, one per signal or one for all.
        high: The value that becomes 1, same length.

    >>> scaling = ValueRange("uint8", (0.0,), (255.0,))
    >>> scaling.to_unit(np.array([[51]], dtype=np.uint8), 0)
    array([[0.2]], dtype=float32)
    >>> scaling.restore(np.array([0.2, 1.7], dtype=np.float32), 0)
    array([ 51, 255], dtype=uint8)
    """

    dtype: str
    low: tuple[float, ...] = (0.0,)
    high: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if len(self.low) != len(self.high) or not self.low:
            raise InputError(
                f"ValueRange: low and high must hold one number per signal each; got {self.low} and {self.high}"
            )
        for low, high in zip(self.low, self.high, strict=True):
            if not (np.isfinite([low, high, high - low]).all() and low < high):
                raise InputError(
                    f"a range must be two finite numbers, the lower one first, of finite width; got [{low}, {high}]"
                )

    @classmethod
    def of_integers(cls, dtype: npt.DTypeLike) -> ValueRange:
        """The full range of an integer dtype."""
        info = np.iinfo(np.dtype(dtype))
        return cls(np.dtype(dtype).name, (float(info.min),), (float(info.max),))

    def of(self, signal: int) -> tuple[float, float]:
        place = 0 if len(self.low) == 1 else signal
        return self.low[place], self.high[place]

    def to_unit(self, values: AnyArray, signal: int) -> npt.NDArray[np.float32]:
        """Values of one signal of the source as float32 in [0, 1]."""
        low, high = self.of(signal)
        if low == 0 and values.dtype.itemsize <= 2:  # exact in float32, with half the memory of float64
            result: npt.NDArray[np.float32] = values.astype(np.float32)
            if high != 1:
                result /= np.float32(high)
            return result
        if low == 0 and high == 1:
            return values.astype(np.float32)
        return ((values.astype(np.float64) - low) / (high - low)).astype(np.float32)

    def restore(self, values: AnyArray, signal: int) -> AnyArray:
        """Values of one signal, nominally in [0, 1], in the source's range and dtype.

        Integers are rounded and clipped to the source's range; NaN becomes its lowest value. Floating point is not clipped.
        """
        low, high = self.of(signal)
        dtype = np.dtype(self.dtype)
        scaled: AnyArray = values.astype(np.float64)
        scaled *= high - low
        scaled += low
        if dtype.kind in "biu":
            np.nan_to_num(scaled, copy=False, nan=low, posinf=high, neginf=low)
            np.rint(np.clip(scaled, low, high, out=scaled), out=scaled)
        return scaled.astype(dtype)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for checkpoints and caches."""
        return {"dtype": self.dtype, "low": list(self.low), "high": list(self.high)}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> ValueRange:
        return cls(plain["dtype"], tuple(plain["low"]), tuple(plain["high"]))


@dataclass(frozen=True)
class RawSignals:
    """Description of a set of signals of one shape that are not loaded yet.

    Args:
        names: One name per signal, distinct.
        grid: Number of samples per axis, ``(N_1, ..., N_D)``.
        channels: Number of channels ``C``.
        stored: NumPy name of the dtype of ``blocks`` and ``array``, in which they are cached.
        scaling: Range and dtype of the source.
        unit: Whether ``blocks`` and ``array`` are in [0, 1] already; otherwise ``scaling`` maps them to it.
        blocks: Decodes all signals in order, each in consecutive blocks along its first axis, ``(n, N_2, ..., N_D, C)``.
            Raises :class:`InputError` for damaged input.
        array: Opens the values for reading by slices, ``(S, N_1, ..., N_D, C)``; ``None`` if they must be decoded.
        rate: Samples per second along the first axis, if it is time.
        media: Medium of the signals.
        axes: The axes in the user's units, if they are known.
        points: Coordinates of scattered samples, ``(P, D)`` float64 in [0, 1); ``grid`` is then ``(P,)``, and ``axes`` are
            known. ``None``: the samples are on a grid.
    """

    names: tuple[str, ...]
    grid: tuple[int, ...]
    channels: int
    stored: str
    scaling: ValueRange
    unit: bool
    blocks: Callable[[], Iterator[AnyArray]]
    array: Callable[[], ArrayLike] | None = None
    rate: float | None = None
    media: Media = "array"
    axes: tuple[Axis, ...] = ()
    points: npt.NDArray[np.float64] | None = None

    @classmethod
    def in_memory(cls, values: AnyArray, names: Sequence[str], scaling: ValueRange, media: Media = "array") -> RawSignals:
        """Signals in memory, ``(S, N_1, ..., N_D, C)``: float32 in [0, 1], or the source's integers."""
        rows = max(1, BLOCK_VALUES // math.prod(values.shape[2:]))
        return cls(
            tuple(names),
            tuple(values.shape[1:-1]),
            values.shape[-1],
            values.dtype.name,
            scaling,
            unit=values.dtype.kind == "f",
            blocks=lambda: (signal[top : top + rows] for signal in values for top in range(0, len(signal), rows)),
            array=lambda: values,
            media=media,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.names), *self.grid, self.channels)

    @property
    def nbytes(self) -> int:
        """Size of all values as float32, in bytes."""
        return 4 * math.prod(self.shape)
