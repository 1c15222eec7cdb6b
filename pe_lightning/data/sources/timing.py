"""Which frame of a video is shown when: even and uneven presentation times, and resampling to another rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pe_lightning.errors import InputError

__all__ = ["Timing", "check_fps", "is_even", "plan"]

Seconds = npt.NDArray[np.float64]

_HIGHEST_FPS = 10_000


@dataclass(frozen=True)
class Timing:
    """The frames of a clip at even times.

    Args:
        index: For each time, the number of the decoded frame that is shown; ascending, with repeats where the clip is
            slower.
        rate: Times per second.
        even: Whether the clip's own times were even.
    """

    index: npt.NDArray[np.int64]
    rate: float
    even: bool


def check_fps(fps: float | None) -> None:
    """Raises :class:`InputError` unless ``fps`` is ``None`` or a positive number."""
    if fps is None:
        return
    if isinstance(fps, bool) or not isinstance(fps, (int, float)) or not 0 < fps <= _HIGHEST_FPS:
        raise InputError(f"fps must be a number of frames per second above 0 and at most {_HIGHEST_FPS}; got {fps!r}")


def is_even(times: Seconds, tick: float) -> bool:
    """Whether ascending ``times``, in seconds, are equally spaced but for jitter.

    They are where no gap is longer than 1.5 mean gaps, and no time is further than half of one from where it would be
    with equal gaps. Containers round times to a ``tick`` (a millisecond in Matroska), which is allowed for.

    >>> is_even(np.array([0, 0.033, 0.067, 0.1]), 0.001), is_even(np.array([0, 0.04, 0.16, 0.2]), 0.001)
    (True, False)
    """
    if len(times) < 2:
        return True
    gap = (times[-1] - times[0]) / (len(times) - 1)
    drift = np.abs(times - np.linspace(times[0], times[-1], len(times))).max()
    return bool(np.diff(times).max() <= 1.5 * gap + 2 * tick and drift <= 0.5 * gap + tick)


def plan(times: Seconds, tick: float, nominal: float | None, fps: float | None) -> Timing:
    """Chooses the frames of a clip at even times, beginning with the first one.

    At each time the latest frame that has been shown by then is taken. Even clips are taken frame by frame unless
    ``fps`` is given; uneven ones are resampled to their mean rate. The last frame is shown for one mean gap.

    Args:
        times: Presentation times of the frames in seconds, ascending, at least two.
        tick: Resolution of ``times`` in seconds.
        nominal: The rate that the file states, which is taken where it agrees with ``times`` to 1 %.
        fps: The rate to resample to.

    >>> plan(np.array([0, 0.04, 0.08, 0.12]), 0.001, 25, 12.5).index
    array([0, 2])
    """
    count = len(times)
    span = float(times[-1] - times[0])
    mean = (count - 1) / span
    even = is_even(times, tick)
    own = nominal if nominal and even and abs(nominal / mean - 1) < 0.01 else mean
    if even and fps is None:
        return Timing(np.arange(count), own, even)
    shown = np.arange(count) / own if even else times - times[0]
    rate = fps or own
    number = max(1, math.ceil(count / own * rate - 1e-6))
    slack = 1e-6 / own if even else max(tick, 1e-6 / own)
    index = np.searchsorted(shown, np.arange(number) / rate + slack, side="right") - 1
    return Timing(index.astype(np.int64), float(rate), even)
