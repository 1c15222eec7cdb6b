"""Which numbers of an array or a volume become 0 and 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from pe_lightning.data.signals import AnyArray, Scaling
from pe_lightning.errors import InputError

__all__ = ["join_scalings", "value_scaling"]


def value_scaling(
    label: str,
    dtype: np.dtype[Any],
    blocks: Callable[[], Iterator[AnyArray]],
    limits: tuple[float, float] | None = None,
    full_range: bool = True,
    unit: bool = True,
) -> Scaling:
    """Which numbers of an array or a volume become 0 and 1.

    Booleans and integers of 8 and 16 bits take the full range of their dtype; wider integers need ``limits``. Floating
    point within [0, 1] is left as it is; otherwise its least and its greatest number become 0 and 1.

    Args:
        label: What messages call it.
        dtype: Of its numbers.
        blocks: Reads all of them, in blocks along the first axis; not called where the dtype decides.
        limits: ``(low, high)``, the numbers that become 0 and 1.
        full_range: Whether integers take the range of their dtype, instead of their least and greatest number.
        unit: Whether numbers within [0, 1] are left as they are.

    Raises:
        InputError: If a number is not finite, or outside the limits; or there is no range to be found.
    """
    if limits is None and full_range and dtype.kind in "biu" and dtype.itemsize <= 2:
        return Scaling(dtype.name) if dtype.kind == "b" else Scaling.of_integers(dtype)
    low, high = _extent(label, blocks())
    held = f"{label} holds values from {low} to {high}"
    if limits is not None and (low < limits[0] or high > limits[1]):
        raise InputError(
            f"{held}, outside of value_range {list(limits)}; set value_range: [{min(low, limits[0])}, "
            f"{max(high, limits[1])}], or a wider one"
        )
    if limits is None and full_range and dtype.kind in "iu":
        raise InputError(
            f"{held} as {dtype}, whose own range is so wide that next to nothing would be left of them; set "
            f"value_range: [{low}, {high}], or what the least and the greatest possible value are"
        )
    if limits is None and unit and low >= 0 and high <= 1:
        limits = (0.0, 1.0)
    if limits is None and low == high:
        raise InputError(f"{label} holds the value {low} alone; set value_range: [low, high]")
    low, high = limits or (float(low), float(high))
    return Scaling(dtype.name, (low,), (high,))


def join_scalings(scalings: Sequence[tuple[str, Scaling]], signals: Sequence[int], notify: bool) -> Scaling:
    """The ranges of several files as one.

    Args:
        scalings: What messages call each file, and its range.
        signals: How many signals each file holds.
        notify: Whether to say so where a range was found in the data.
    """
    found = [
        f"{label} holds values from {scaling.low[0]:g} to {scaling.high[0]:g}"
        for label, scaling in scalings
        if scaling != Scaling(scaling.dtype)
        and (np.dtype(scaling.dtype).kind not in "iu" or scaling != Scaling.of_integers(scaling.dtype))
    ]
    if notify and found:
        others = f", and {len(found) - 1} more leave [0, 1]" if len(found) > 1 else ""
        rank_zero_info(
            f"{found[0]}{others}: the least and the greatest value of a file become 0 and 1, and PSNR takes 1 as the peak. "
            "Set value_range: [low, high] for another range."
        )
    if len({scaling for _, scaling in scalings}) == 1:
        return scalings[0][1]
    ranges = [scaling for (_, scaling), count in zip(scalings, signals, strict=True) for _ in range(count)]
    return Scaling(ranges[0].dtype, tuple(each.low[0] for each in ranges), tuple(each.high[0] for each in ranges))


def _extent(label: str, blocks: Iterator[AnyArray]) -> tuple[Any, Any]:
    """The least and the greatest value, as Python numbers."""
    low, high, start = np.inf, -np.inf, 0
    for block in blocks:
        with np.errstate(invalid="ignore"):
            least, greatest = block.min().item(), block.max().item()
        if not np.isfinite([least, greatest]).all():  # both are NaN if any value is
            first = np.argwhere(~np.isfinite(block))[0].tolist()
            raise InputError(
                f"{label} holds a value that is not finite (NaN or infinite): the first is sample {start + first[0]} along "
                f"the first axis, at {first[1:]} of the others (the last one is channels). Repair it first, for example "
                "with numpy.nan_to_num"
            )
        low, high, start = min(low, least), max(high, greatest), start + len(block)
    return low, high
