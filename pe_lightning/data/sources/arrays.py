"""Array files (``.npy``, ``.npz``, HDF5) as signals: which axis is what, which numbers are 0 and 1, reading by slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from pe_lightning.data.signals import RawSignals, Scaling
from pe_lightning.data.sources.array_files import ARRAY_SUFFIXES, file_kind, find_array
from pe_lightning.data.sources.array_view import Channels, FileArrays, Part, slabs
from pe_lightning.data.sources.images import check_choice
from pe_lightning.data.sources.lengths import check_length, one_length
from pe_lightning.data.sources.sources import Source, distinct_names, expand
from pe_lightning.errors import InputError

__all__ = ["ARRAY_SUFFIXES", "Channels", "direct", "numbered", "read_arrays", "value_limits"]

Paths: TypeAlias = "str | PathLike[str] | Sequence[str | PathLike[str]]"


def read_arrays(
    paths: Paths,
    num_axes: int,
    key: str | None = None,
    value_range: Sequence[float] | None = None,
    channels: Channels = "auto",
    length: int | None = None,
) -> RawSignals:
    """Describes array files as signals of D = ``num_axes`` axes; nothing is loaded.

    Floating-point files, and all of a given ``value_range``, are read once in pieces to find what they hold.

    Args:
        paths: One or more files, or folders of them: one signal, or one set of signals, each. All have one shape and one
            dtype. ``.npy`` and HDF5 files are read by slices, ``.npz`` files are decoded.
        num_axes: D, 1 to 3.
        key: Which array of an ``.npz`` file, or dataset of an HDF5 file such as ``volumes/ct``; not needed where there is
            only one.
        value_range: ``[low, high]``, the numbers that become 0 and 1. By default the full range of the dtype for booleans
            and for integers of 8 and 16 bits. Floating point within [0, 1] is left as it is; otherwise the least and the
            greatest number of each file, with a notice. Wider integers need it.
        channels: What the last axis of an array of D + 1 axes is. ``last``: channels. ``none``: a grid axis like the
            others; the first axis counts signals. ``auto``: channels if there are at most 4, so that an array
            ``(1000, 3)`` read with D = 1 is one signal of 3 channels, and ``(3, 1000)`` is 3 signals. An array of D axes
            is one signal of one channel; D + 2 axes are signals, grid and channels.
        length: Keep only the first n samples of the first axis.

    Raises:
        InputError: If a file is missing, damaged or no array of real numbers, a number is not finite or outside
            ``value_range``, or the files do not fit together.
    """
    if num_axes not in (1, 2, 3):
        raise InputError(f"num_axes is the number of axes of a signal, 1, 2 or 3; got {num_axes!r}")
    check_choice("channels", channels, Channels)
    check_length(length)
    limits = value_limits(value_range)
    sources = expand(paths, ARRAY_SUFFIXES, kind="array file")
    parts = [Part.of(find_array(source, key), num_axes, channels) for source in sources]
    for part in parts:
        if min(part.grid) < 2:
            raise InputError(
                f"{part.stored.label} has shape {part.stored.shape}, taken as {part.signals} signal(s) of "
                f"{'x'.join(map(str, part.grid))} samples and {part.channels} channel(s); a signal needs at least 2 samples "
                "on each axis. If the axes mean something else, set channels: last or none"
            )
    _check_alike(parts, "dtypes", lambda part: part.stored.dtype.name)
    compared = slice(0 if num_axes > 1 and length is None else 1, None)  # length, or its message, is for the first axis
    _check_alike(
        parts, "shapes of a signal (samples per axis, then channels)", lambda part: (*part.grid[compared], part.channels)
    )
    kept = one_length([(part.stored.given, part.grid[0]) for part in parts], length)
    parts = [part.first(kept) for part in parts]
    dtype = parts[0].stored.dtype
    labels = [[str(n) for n in range(part.signals)] if part.signals > 1 else [""] for part in parts]
    return RawSignals(
        names=numbered(list(zip(sources, labels, strict=True))),
        grid=parts[0].grid,
        channels=parts[0].channels,
        stored=dtype.name,
        scaling=_scaling(parts, limits),
        unit=False,
        blocks=partial(slabs, parts),
        array=partial(FileArrays, parts) if all(part.stored.kind != "npz" for part in parts) else None,
    )


def direct(paths: Paths) -> bool:
    """Whether all are ``.npy`` or HDF5 files, by their content: read by slices, with no decoding.

    Raises:
        InputError: If a path is missing.
    """
    return all(file_kind(source.path) in ("npy", "h5") for source in expand(paths, ARRAY_SUFFIXES, kind="array file"))


def value_limits(value_range: Sequence[float] | None) -> tuple[float, float] | None:
    """``(low, high)`` of a ``value_range`` argument.

    Raises:
        InputError: If it is not two finite numbers, the lower one first.
    """
    if value_range is None:
        return None
    given = list(value_range) if isinstance(value_range, (list, tuple)) else []
    plain = [number for number in given if isinstance(number, (int, float)) and not isinstance(number, bool)]
    if len(given) != 2 or len(plain) != 2 or not np.isfinite(plain).all() or plain[0] >= plain[1]:
        raise InputError(f"value_range must be [low, high], two finite numbers, the lower one first; got {value_range!r}")
    return float(plain[0]), float(plain[1])


def numbered(sources: Sequence[tuple[Source, Sequence[str]]]) -> tuple[str, ...]:
    """Distinct names of the signals of each file: ``stem-LABEL``, or the stem where the label is empty.

    >>> from pathlib import Path
    >>> numbered([(Source(Path("a.npy"), "a.npy"), ["0", "1"]), (Source(Path("b.npy"), "b.npy"), [""])])
    ('a-0', 'a-1', 'b')
    """
    # a suffix of its own: what follows the last dot of a label must not be taken for one
    files = [
        source.path.with_name(f"{source.path.stem}-{label}.x" if label else f"{source.path.stem}.x")
        for source, labels in sources
        for label in labels
    ]
    return distinct_names([Source(file, str(file)) for file in files])


def _check_alike(parts: Sequence[Part], what: str, of: Callable[[Part], Any]) -> None:
    groups: dict[Any, list[str]] = {}
    for part in parts:
        groups.setdefault(of(part), []).append(part.stored.given)
    if len(groups) > 1:
        listed = "; ".join(
            f"{value}: {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
            for value, names in list(groups.items())[:8]
        )
        raise InputError(
            f"the {len(parts)} files have {len(groups)} different {what}, but signals that are fitted together share one. "
            f"{listed}{'; and more' if len(groups) > 8 else ''}. Save them alike, or fit them in runs of their own"
        )


def _scaling(parts: Sequence[Part], limits: tuple[float, float] | None) -> Scaling:
    dtype = parts[0].stored.dtype
    if limits is None and dtype.kind == "b":
        return Scaling(dtype.name)
    if limits is None and dtype.kind in "iu" and dtype.itemsize <= 2:
        return Scaling.of_integers(dtype)
    ranges: list[tuple[float, float]] = []
    rescaled: list[str] = []
    for place, part in enumerate(parts):
        least, greatest = _extent(FileArrays(parts, most_open=1), place)
        held = f"{part.stored.label} holds values from {least} to {greatest}"
        if limits is not None and (least < limits[0] or greatest > limits[1]):
            raise InputError(
                f"{held}, outside of value_range {list(limits)}; set value_range: [{min(least, limits[0])}, "
                f"{max(greatest, limits[1])}], or a wider one"
            )
        if limits is None and dtype.kind in "iu":
            raise InputError(
                f"{held} as {dtype}, whose own range is so wide that next to nothing would be left of them; set "
                f"value_range: [{least}, {greatest}], or what the least and the greatest possible value are"
            )
        own = limits or (0.0, 1.0)
        if limits is None and (least < 0 or greatest > 1):
            if least == greatest:
                raise InputError(f"{part.stored.label} holds the value {least} alone; set value_range: [low, high]")
            own = (float(least), float(greatest))
            rescaled.append(held)
        ranges += [own] * part.signals
    if rescaled:
        rank_zero_info(
            f"{rescaled[0]}{f', and {len(rescaled) - 1} more files leave [0, 1]' if len(rescaled) > 1 else ''}: the least "
            "and the greatest value of a file become 0 and 1, and PSNR takes 1 as the peak. Set value_range: [low, high] "
            "for another range."
        )
    alike = ranges[:1] if len(set(ranges)) == 1 else ranges
    return Scaling(dtype.name, tuple(low for low, _ in alike), tuple(high for _, high in alike))


def _extent(array: FileArrays, place: int) -> tuple[Any, Any]:
    """The least and the greatest value of one file, as Python numbers, found piece by piece."""
    part = array.parts[place]
    found: list[tuple[Any, Any]] = []
    wrong = 0
    first: tuple[int, ...] | None = None
    for box in part.boxes():
        values = array.box(place, box)
        with np.errstate(invalid="ignore"):
            low, high = values.min().item(), values.max().item()
        if not np.isfinite([low, high]).all():  # both are NaN if any value is
            bad = ~np.isfinite(values)
            wrong += int(np.count_nonzero(bad))
            where = np.unravel_index(int(np.argmax(bad)), bad.shape)
            position = tuple(axis.start + int(offset) for axis, offset in zip(box, where, strict=True))
            first = min(first or position, position)
            continue
        found.append((low, high))
    if wrong:
        raise InputError(
            f"{part.stored.label} holds {wrong} value(s) that are not finite (NaN or infinite), the first at {first} of its "
            f"shape {part.stored.shape}. Repair them first, for example with numpy.nan_to_num"
        )
    return min(low for low, _ in found), max(high for _, high in found)
