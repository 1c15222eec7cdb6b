"""Numbers that repeat far outside the others, and may mark missing values without a declaration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from pe_lightning.signals.distributed import rank_zero_info

MAX_MARKS, FAR, MIN_OTHERS = 3, 2.0, 5
"""Different numbers that may mark missing values, and their least distance from the others, as a share of their range."""
MAX_VALUES = 1 << 17
"""Most values that are examined, at equal distances in a larger block."""
REMEDY = "type --missing={0} for fill, --data.missing={0} for fit, missing={0} in Python"


def note_repeated(label: str, blocks: Iterable[npt.NDArray[Any]], remedy: str = REMEDY) -> None:
    """Prints a number that occurs several times, far outside the others: it may mark missing values.

    Args:
        label: Name of the values in the message.
        blocks: Values of any shape. Integers of 8 bits are not examined.
        remedy: What to do, with ``{0}`` for the number.
    """
    taken, seen, is_all = [np.zeros(0, np.float16)], 0, True
    for block in blocks:
        step = block.size // MAX_VALUES + 1
        is_all = is_all and step == 1 and seen < MAX_VALUES
        if block.dtype.itemsize > 1 and seen < MAX_VALUES:
            sample = block.ravel()[::step]
            seen += sample.size
            taken.append(sample[np.isfinite(sample)])
    values, looked = np.concatenate(taken), "" if is_all else " that were looked at"
    numbers, counts = np.unique(values, return_counts=True)
    for count in range(1, min(MAX_MARKS, len(numbers) - MIN_OTHERS) + 1):
        for outside, others in ((slice(count), numbers[count:]), (slice(-count, None), numbers[:-count])):
            distance = min(abs(numbers[outside][0] - others).min(), abs(numbers[outside][-1] - others).min())
            if counts[outside].min() > 1 and distance > FAR * np.ptp(others):
                shown = ",".join(f"{number:.10g}" for number in numbers[outside])
                rank_zero_info(
                    f"{label}: {shown} in {counts[outside].sum()} of {seen} samples{looked} is far outside the others, "
                    f"{others[0]:.6g} to {others[-1]:.6g}; if it marks missing values, {remedy.format(shown)}"
                )
                return
