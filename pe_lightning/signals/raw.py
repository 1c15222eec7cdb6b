"""Signals as their source describes them, before they are loaded, and the scaling of their values to [0, 1]."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from pe_lightning.errors import InputError, refuse
from pe_lightning.signals.axes import Axis
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.repeated import note_repeated

Media: TypeAlias = str
"""Registered name of a medium, such as ``image``: the format of reconstructions."""

AnyArray: TypeAlias = npt.NDArray[Any]
Mask: TypeAlias = npt.NDArray[np.bool_]

BLOCK_BYTES = 1 << 24
"""Approximate bytes of a block of samples that is read, decoded or converted at a time; larger blocks are not faster."""
BLOCK_VALUES = BLOCK_BYTES // 4
"""Number of float32 values of a block."""


def unmasked(values: npt.ArrayLike) -> AnyArray:
    """An array unchanged; a copy of a NumPy masked array, with NaN or NaT where it is masked."""
    if not isinstance(values, np.ma.MaskedArray):
        return np.asarray(values)
    if values.dtype.kind == "M":
        return np.ma.filled(values, np.datetime64("NaT"))
    return np.ma.filled(values if values.dtype.kind == "f" else values.astype(float), np.nan)


def float_for(dtype: np.dtype[Any] | str) -> np.dtype[Any]:
    """The floating-point dtype that represents the values of ``dtype``, and NaN."""
    dtype = np.dtype(dtype)
    return dtype if dtype.kind == "f" else np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


def is_one_of(values: AnyArray, numbers: Sequence[float]) -> Mask:
    """Mask of the values that equal one of the numbers; integers are compared exactly."""
    if values.dtype.kind in "iu":
        info = np.iinfo(values.dtype)
        numbers = [int(number) for number in numbers if info.min <= number <= info.max and number == int(number)]
    with np.errstate(over="ignore"):  # beyond the range of the dtype
        return np.isin(values, np.array(numbers, values.dtype if values.dtype.kind in "fiu" else None), kind="sort")


def with_nan(values: AnyArray, marked: Mask) -> AnyArray:
    """A floating-point copy with NaN where ``marked``, which is broadcast."""
    return np.where(marked, np.nan, values).astype(float_for(values.dtype))


def full_value(dtype: np.dtype[Any] | str) -> int:
    """The value that becomes 1: the largest integer of the dtype, or 1."""
    return int(np.iinfo(dtype).max) if np.dtype(dtype).kind in "iu" else 1


def to_unit(image: AnyArray) -> AnyArray:
    """Integers divided by the largest value of their dtype, as float32; floating point unchanged."""
    return image if image.dtype.kind == "f" else image.astype(np.float32) / np.float32(full_value(image.dtype))


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

    def limits(self, signal: int) -> tuple[float, float]:
        index = 0 if len(self.low) == 1 else signal
        return self.low[index], self.high[index]

    @property
    def found_in_data(self) -> bool:
        """Whether it is neither [0, 1] nor the full range of an integer dtype."""
        integers = np.dtype(self.dtype).kind in "iu"
        return self != ValueRange(self.dtype) and not (integers and self == ValueRange.of_integers(self.dtype))

    def to_unit(self, values: AnyArray, signal: int) -> npt.NDArray[np.float32]:
        """Values of one signal of the source as float32 in [0, 1]."""
        low, high = self.limits(signal)
        if low == 0 and values.dtype.itemsize <= 2:  # exact in float32, with half the memory of float64
            result: npt.NDArray[np.float32] = values.astype(np.float32)
            if high != 1:
                result /= np.float32(high)
            return result
        if low == 0 and high == 1:
            return values.astype(np.float32, copy=False)
        return ((values.astype(np.float64) - low) / (high - low)).astype(np.float32)

    def restore(self, values: AnyArray, signal: int) -> AnyArray:
        """Values of one signal, nominally in [0, 1], in the source's range and dtype.

        Integers are rounded and clipped to the source's range; NaN becomes its lowest value. Floating point is not clipped.
        """
        low, high = self.limits(signal)
        dtype = np.dtype(self.dtype)
        scaled: AnyArray = values.astype(np.float64)
        scaled *= high - low
        scaled += low
        if dtype.kind in "biu":
            np.nan_to_num(scaled, copy=False, nan=low, posinf=high, neginf=low)
            np.rint(np.clip(scaled, low, high, out=scaled), out=scaled)
        return scaled.astype(dtype)

    def to_dict(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "low": list(self.low), "high": list(self.high)}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> ValueRange:
        return cls(plain["dtype"], tuple(plain["low"]), tuple(plain["high"]))


def value_scaling(
    label: str,
    dtype: np.dtype[Any],
    blocks: Callable[[], Iterator[AnyArray]],
    limits: tuple[float, float] | None = None,
    full_range: bool = True,
    unit: bool = True,
) -> ValueRange:
    """Scaling of values to [0, 1].

    Booleans and integers of 8 and 16 bits use the range of their dtype; wider integers need ``limits``. Floating point
    within [0, 1] is unchanged; otherwise the minimum and the maximum become 0 and 1.

    Args:
        label: Name in messages.
        dtype: Dtype of the values.
        blocks: Reads all values in blocks, unless the dtype decides. Values that are not finite are missing.
        limits: ``(low, high)``, the values that become 0 and 1; values outside are an error.
        full_range: Whether integers use the range of their dtype, instead of their minimum and maximum.
        unit: Whether values within [0, 1] are unchanged.
    """
    if limits is None and full_range and dtype.kind in "biu" and dtype.itemsize <= 2:
        if dtype.itemsize == 2:
            note_repeated(label, islice(blocks(), 1))
        return ValueRange(dtype.name) if dtype.kind == "b" else ValueRange.of_integers(dtype)
    extents = []

    def finite() -> Iterator[AnyArray]:
        for block in blocks():
            with np.errstate(all="ignore"):  # the sum is not finite if one value is not
                values = block if np.isfinite(block.min() + block.max()) else block[np.isfinite(block)]
            if values.size:
                extents.append((values.min().item(), values.max().item()))
            yield values

    note_repeated(label, finite())
    if not extents:
        raise InputError(f"{label} holds no value that is finite: all samples are missing. Leave it out")
    low, high = min(least for least, _ in extents), max(most for _, most in extents)
    least, most = limits or ((0.0, 1.0) if unit and low >= 0 and high <= 1 else (float(low), float(high)))
    held = f"{label} holds values from {low} to {high}"
    refuse(
        (
            limits and (low < least or high > most),
            f"{held}, outside of value_range [{least}, {most}]; set a wider value_range",
        ),
        (
            not limits and full_range and dtype.kind in "iu",
            f"{held} as {dtype}, whose range is far wider; set value_range: [{low}, {high}]",
        ),
        (least == most, f"{label} holds the single value {low}; set value_range: [low, high]"),
    )
    return ValueRange(dtype.name, (least,), (most,))


def join_scalings(scalings: Sequence[tuple[str, ValueRange]], notify: bool) -> ValueRange:
    """One scaling for several signals, given with the names of their files; ``notify``: prints ranges found in the data."""
    found = [
        f"{label} holds values from {scaling.low[0]:g} to {scaling.high[0]:g}"
        for label, scaling in dict(scalings).items()
        if scaling.found_in_data
    ]
    if notify and found:
        others = f", and {len(found) - 1} more files exceed [0, 1]" if len(found) > 1 else ""
        rank_zero_info(
            f"{found[0]}{others}: minimum and maximum of its trained samples become 0 and 1, and PSNR takes 1 as the "
            "peak. Set value_range: [low, high] for another range."
        )
    ranges = [scaling for _, scaling in scalings]
    if len(set(ranges)) == 1:
        return ranges[0]
    return ValueRange(ranges[0].dtype, tuple(own.low[0] for own in ranges), tuple(own.high[0] for own in ranges))


class ArrayLike(Protocol):
    """An array ``(S, N_1, ..., N_D, C)`` that is read by slices: in memory, a memory map, an HDF5 dataset.

    It can be pickled, and used after a fork. It may have ``chunks``, the shape of the chunks of its file, and ``blocks()``,
    a faster way to all values in the order of :meth:`RawSignals.blocks`.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __getitem__(self, index: tuple[slice, ...], /) -> AnyArray: ...


@dataclass(frozen=True)
class Decoded:
    """Values that are decoded when they are read, in order.

    Args:
        shape: ``(S, N_1, ..., N_D, C)``.
        dtype: Dtype of the decoded values, in which they are cached.
        decode: Decodes all signals in order, of each the samples along its first axis with these ascending indices, in
            consecutive arrays ``(n, N_2, ..., N_D, C)``. Raises :class:`InputError` for damaged input.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    decode: Callable[[Sequence[int]], Iterator[AnyArray]]

    def picked(self, rows: Sequence[int]) -> Decoded:
        """Some samples along the first axis, by their ascending indices."""

        def decode(some: Sequence[int]) -> Iterator[AnyArray]:
            return self.decode(rows if len(some) == len(rows) else [rows[place] for place in some])

        return Decoded((self.shape[0], len(rows), *self.shape[2:]), self.dtype, decode)

    def edited(
        self, edit: Callable[[AnyArray], AnyArray], shape: tuple[int, ...] | None = None, dtype: str | None = None
    ) -> Decoded:
        """Every decoded array after ``edit``, by which samples have the ``shape`` ``(N_2, ..., N_D, C)``, and the dtype."""

        def decode(rows: Sequence[int]) -> Iterator[AnyArray]:
            return map(edit, self.decode(rows))

        return Decoded((*self.shape[:2], *(shape or self.shape[2:])), np.dtype(dtype or self.dtype), decode)

    def blocks(self) -> Iterator[AnyArray]:
        """All values in order."""
        return self.decode(range(self.shape[1]))


@dataclass(frozen=True)
class RawSignals:
    """Signals of one shape as their source describes them; their values are read when they are needed.

    Args:
        values: The values ``(S, N_1, ..., N_D, C)``, read by slices or in order.
        names: One name per signal, distinct.
        scaling: Range and dtype of the source.
        unit: Whether ``values`` are in [0, 1] already; otherwise ``scaling`` maps them to it.
        rate: Samples per second along the first axis, if it is time.
        media: Medium of the signals.
        axes: The axes in the user's units, if they are known.
        points: Coordinates of scattered samples, ``(P, D)`` float64 in [0, 1); the values are then ``(S, P, C)``.
        note: Text that an entry of the cache has beside the values.
    """

    values: ArrayLike | Decoded
    names: tuple[str, ...]
    scaling: ValueRange
    unit: bool = False
    rate: float | None = None
    media: Media = "array"
    axes: tuple[Axis, ...] = ()
    points: npt.NDArray[np.float64] | None = None
    note: str = ""

    @classmethod
    def in_memory(cls, values: AnyArray, names: Sequence[str], scaling: ValueRange, media: Media = "array") -> RawSignals:
        """Signals in memory, ``(S, N_1, ..., N_D, C)``: float32 in [0, 1], or the source's integers."""
        return cls(values, tuple(names), scaling, unit=values.dtype.kind == "f", media=media)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of samples per axis, ``(N_1, ..., N_D)``; of scattered samples ``(P,)``."""
        return self.shape[1:-1]

    @property
    def channels(self) -> int:
        return self.shape[-1]

    @property
    def stored(self) -> str:
        """NumPy name of the dtype of ``values``, in which they are cached."""
        return str(self.values.dtype.name)

    @property
    def is_loaded(self) -> bool:
        """Whether the values are in memory as they are fitted: float32 in [0, 1]."""
        return self.unit and isinstance(self.values, np.ndarray) and self.values.dtype == np.float32

    @property
    def nbytes(self) -> int:
        return 4 * math.prod(self.shape)

    @property
    def chunks(self) -> tuple[int, ...]:
        """Chunk size of the file in samples per axis, ``(D,)``; one row if it has no chunks."""
        stored = getattr(self.values, "chunks", None)
        return tuple(stored[1:-1]) if stored else (1, *self.grid[1:])

    def read(self, block: tuple[slice, ...], stride: Sequence[int] | None = None) -> npt.NDArray[np.float32]:
        """A block of the grid, or every ``stride``-th sample of it per axis: ``(S, n_1, ..., n_D, C)`` in [0, 1]."""
        assert not isinstance(self.values, Decoded)
        index = (slice(None), *block, slice(None))
        part = self.values[index]
        if stride is not None:  # after reading: strided reads of chunked files are slow
            every = (slice(None), *(slice(None, None, step) for step in stride))
            part = part[every]
        if len(self.scaling.low) == 1 or self.unit:
            values = self._in_unit(part, 0)
        else:
            values = np.stack([self._in_unit(own, signal) for signal, own in enumerate(part)])
        # the sum is cheaper than a test of each value, and not finite if one value is not
        if part.dtype.kind == "f" and not np.isfinite(values.sum()) and not np.isfinite(values).all():
            raise InputError(
                f"the block that starts at sample {[along.start for along in block]} holds missing samples (NaN or "
                "infinite), which signals that are read from their file cannot have: set --data.storage.in_memory true, or "
                "fit a part of the signals"
            )
        # a copy of a memory-mapped file, since a tensor may be written to
        return np.require(values, requirements=["C", "W"])

    def blocks(self) -> Iterator[AnyArray]:
        """All values in order, each signal in consecutive blocks along its first axis, ``(n, N_2, ..., N_D, C)``."""
        if isinstance(self.values, Decoded) or hasattr(self.values, "blocks"):
            return self.values.blocks()
        rows = max(1, BLOCK_VALUES // math.prod(self.shape[2:]))
        firsts = itertools.product(range(self.shape[0]), range(0, self.shape[1], rows))
        return (self.values[slice(s, s + 1), slice(first, first + rows)][0] for s, first in firsts)

    def decoded(self) -> Iterator[tuple[int, AnyArray]]:
        """All values in order, checked: the index of the signal, and stored values ``(n, N_2, ..., N_D, C)``."""
        signals, rows, *rest = self.shape
        row, read = 0, "no more values"
        for block in self.blocks():
            fits = block.shape[1:] == tuple(rest) and row % rows + len(block) <= rows and row < signals * rows
            if not fits or block.dtype != self.stored:
                read = f"{block.dtype} of shape {block.shape}"
                break
            yield row // rows, block
            row += len(block)
        else:
            if row == signals * rows:
                return
        raise InputError(
            f"expected {self.stored} signals of shape {self.shape}, but read {read} at row {row}. A file is damaged, or "
            "was changed while it was read; check it and run again"
        )

    def unit_blocks(self) -> Iterator[npt.NDArray[np.float32]]:
        """All values in order, in blocks ``(n, N_2, ..., N_D, C)`` float32 in [0, 1]."""
        for signal, block in self.decoded():
            yield self._in_unit(block, signal)

    def _in_unit(self, values: AnyArray, signal: int) -> npt.NDArray[np.float32]:
        return np.asarray(values, dtype=np.float32) if self.unit else self.scaling.to_unit(values, signal)
