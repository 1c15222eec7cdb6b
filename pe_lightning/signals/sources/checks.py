"""Checks of sizes and ranges, of files that are fitted together, and the scaling of arrays to [0, 1]."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray, ValueRange
from pe_lightning.signals.validation import check_dataset, integers

MAX_PIXELS = 178_956_970
"""Default limit of pixels, that of Pillow: the header of a small file can claim any number."""

Size: TypeAlias = int | list[int]
T = TypeVar("T", bound=Hashable)


def as_size(name: str, value: Size | None) -> tuple[int, int] | None:
    """``(height, width)`` from ``n`` or ``[height, width]``; :class:`InputError` if it is neither, or less than 2."""
    if value is None:
        return None
    size = integers(name, value, 2, hint=", or [height, width] of two such integers")
    if isinstance(size, int):
        return size, size
    if len(size) != 2:
        raise InputError(f"{name} must be an integer >= 2, or [height, width] of two such integers; got {value!r}")
    return size[0], size[1]


def resized(resize: Size, size: tuple[int, int]) -> tuple[int, int]:
    """Target size: ``[height, width]``, or from ``n`` for the shorter side, with the same aspect ratio."""
    if not isinstance(resize, int):
        return resize[0], resize[1]
    height, width = (max(2, round(resize * side / min(size))) for side in size)
    return height, width


def number_range(name: str, value: Sequence[float] | None, least: float = -np.inf) -> tuple[float, float] | None:
    """``(low, high)`` of an argument such as ``value_range``; :class:`InputError` unless ``least <= low < high``."""
    if value is None:
        return None
    pair = value if isinstance(value, (list, tuple)) and len(value) == 2 else (np.nan, np.nan)
    numbers = all(type(one) is not bool and isinstance(one, (int, float)) and abs(one) < np.inf for one in pair)
    if not numbers or not least <= pair[0] < pair[1]:
        bound = "" if least == -np.inf else f" of at least {least:g}"
        raise InputError(f"{name} must be [low, high], two finite numbers{bound}, the lower one first; got {value!r}")
    return float(pair[0]), float(pair[1])


def check_area(given: str, height: int, width: int, max_pixels: int | None) -> None:
    """Raises :class:`InputError` if the header of a file claims more than ``max_pixels``."""
    if max_pixels is not None and height * width > max_pixels:
        raise InputError(
            f"{given!r} claims {height}x{width} (height x width), {height * width} pixels, more than max_pixels, "
            f"{max_pixels}; nothing was decoded. If the file is genuine, set max_pixels: {height * width}"
        )


def one_length(lengths: Sequence[tuple[str, int]], length: int | None) -> int:
    """Number of leading samples taken of each signal: ``length``, or the common number of samples.

    Args:
        lengths: Label of each signal in messages, and its number of samples.
        length: Requested number, at most that of the shortest signal.
    """
    name, shortest = min(lengths, key=lambda entry: entry[1])
    if shortest < 2:
        raise InputError(f"{name!r} has {shortest} sample(s); a signal needs at least 2. Remove it from the paths")
    if length is None:
        return in_common("lengths (in samples)", lengths, f"Set length: {shortest} to take the first samples")
    if length > shortest:
        raise InputError(f"length {length} is more than the {shortest} samples of {name!r}; set length: {shortest}")
    return length


def in_common(what: str, values: Sequence[tuple[str, T]], remedy: str) -> T:
    """The common value of all files; :class:`InputError` if they differ.

    Args:
        what: Name of the property, in the plural.
        values: Label of each file in messages, and its value.
        remedy: What to do if they differ, a sentence without a full stop.
    """
    groups: dict[T, list[str]] = {}
    for given, value in values:
        groups.setdefault(value, []).append(given)
    if len(groups) > 1:
        shown = {"x".join(map(str, key)) if isinstance(key, tuple) else str(key): names for key, names in groups.items()}
        listed = [f"{value}: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}" for value, names in shown.items()]
        raise InputError(
            f"there are {len(groups)} different {what}, but signals that are fitted together need the same. "
            f"{'; '.join(listed[:8])}{'; ...' if len(listed) > 8 else ''}. {remedy}"
        )
    return next(iter(groups))


def value_scaling(
    label: str,
    dtype: np.dtype[Any],
    blocks: Callable[[], Iterator[AnyArray]],
    limits: tuple[float, float] | None = None,
    full_range: bool = True,
    unit: bool = True,
) -> ValueRange:
    """ValueRange of an array or a volume to [0, 1].

    Booleans and integers of 8 and 16 bits use the full range of their dtype; wider integers need ``limits``. Floating point
    within [0, 1] is unchanged; otherwise the minimum and the maximum become 0 and 1.

    Args:
        label: Label in messages.
        dtype: Dtype of the values.
        blocks: Reads all values in blocks along the first axis; not called if the dtype decides. Values that are not finite
            are missing, and left out.
        limits: ``(low, high)``, the values that become 0 and 1; values outside are an error.
        full_range: Whether integers use the range of their dtype, instead of their minimum and maximum.
        unit: Whether values within [0, 1] are unchanged.
    """
    if limits is None and full_range and dtype.kind in "biu" and dtype.itemsize <= 2:
        return ValueRange(dtype.name) if dtype.kind == "b" else ValueRange.of_integers(dtype)
    low, high = _extent(label, blocks())
    held = f"{label} holds values from {low} to {high}"
    if limits is not None and (low < limits[0] or high > limits[1]):
        raise InputError(f"{held}, outside of value_range {list(limits)}; set a wider value_range")
    if limits is None and full_range and dtype.kind in "iu":
        raise InputError(f"{held} as {dtype}, whose range is far wider; set value_range: [{low}, {high}]")
    if limits is None and unit and low >= 0 and high <= 1:
        limits = (0.0, 1.0)
    if limits is None and low == high:
        raise InputError(f"{label} holds the single value {low}; set value_range: [low, high]")
    low, high = limits or (float(low), float(high))
    return ValueRange(dtype.name, (low,), (high,))


def float_for(dtype: np.dtype[Any] | str) -> np.dtype[Any]:
    """The floating-point dtype that represents the values of ``dtype``, and NaN."""
    dtype = np.dtype(dtype)
    return dtype if dtype.kind == "f" else np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


def exact_number(text: str) -> float | None:
    """The finite number that a text stands for, an integer as ``int`` of any size; ``None`` if it is none.

    >>> exact_number("9007199254740993"), exact_number("-9999.0"), exact_number("a.png")
    (9007199254740993, -9999.0, None)
    """
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if abs(number) < np.inf else None
    return None


def is_one_of(values: AnyArray, numbers: Sequence[float]) -> NDArray[np.bool_]:
    """Which values equal one of the numbers; integers are compared exactly, beyond 2^53 too."""
    found = np.zeros(values.shape, bool)
    for number in numbers:
        if values.dtype.kind in "iu":
            if np.iinfo(values.dtype).min <= number <= np.iinfo(values.dtype).max and number == int(number):
                found |= values == int(number)
        else:
            found |= values == number
    return found


def with_nan(values: AnyArray, marked: NDArray[np.bool_]) -> AnyArray:
    """A floating-point copy with NaN where ``marked``, which is broadcast."""
    return np.where(marked, np.nan, values).astype(float_for(values.dtype))


def join_scalings(scalings: Sequence[tuple[str, ValueRange]], notify: bool) -> ValueRange:
    """One scaling for several signals, given with the labels of their files; ``notify``: prints ranges found in the data."""
    found = [
        f"{label} holds values from {scaling.low[0]:g} to {scaling.high[0]:g}"
        for label, scaling in dict(scalings).items()
        if scaling != ValueRange(scaling.dtype)
        and (np.dtype(scaling.dtype).kind not in "iu" or scaling != ValueRange.of_integers(scaling.dtype))
    ]
    if notify and found:
        others = f", and {len(found) - 1} more files exceed [0, 1]" if len(found) > 1 else ""
        rank_zero_info(
            f"{found[0]}{others}: minimum and maximum of a file become 0 and 1, and PSNR takes 1 as the peak. Set "
            "value_range: [low, high] for another range."
        )
    ranges = [scaling for _, scaling in scalings]
    if len(set(ranges)) == 1:
        return ranges[0]
    return ValueRange(ranges[0].dtype, tuple(each.low[0] for each in ranges), tuple(each.high[0] for each in ranges))


def _extent(label: str, blocks: Iterator[AnyArray]) -> tuple[Any, Any]:
    """Minimum and maximum of the finite values, as Python numbers."""
    low, high = np.inf, -np.inf
    for block in blocks:
        with np.errstate(invalid="ignore"):
            least, greatest = block.min().item(), block.max().item()
        if not np.isfinite([least, greatest]).all():  # both are NaN if any value is
            finite = block[np.isfinite(block)]
            if not finite.size:
                continue
            least, greatest = finite.min().item(), finite.max().item()
        low, high = min(low, least), max(high, greatest)
    if low > high:
        raise InputError(f"{label} holds no value that is finite: all samples are missing. Leave it out")
    return low, high


def check_file(path: Path, given: str) -> None:
    """Refuses an HDF5 file that has links to other files, or a dataset that :func:`check_dataset` refuses.

    Args:
        path: The file.
        given: What messages call it.
    """
    import h5py

    def check(name: str, item: Any) -> None:
        dict(item.attrs)  # damaged ones raise here, where the file is closed properly
        if isinstance(item, h5py.Dataset):
            check_dataset(item, path, given)
        elif any(isinstance(item.get(child, getlink=True), h5py.ExternalLink) for child in item):
            raise InputError(f"{item.name!r} of {given!r} has links to other files, which are not read")

    with h5py.File(path, locking=False) as file:
        check("/", file)
        file.visititems(check)
