"""Checks of the arguments of :func:`pe_fill.fill`, and of the memory that its fits take."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from pe_fill.formats.point_axes import Limit, length_of
from pe_lightning.errors import InputError, refuse, show_bytes
from pe_lightning.signals import Axis
from pe_lightning.signals.validation import choice, free_memory, integer

SHIPPED = "pictures"
"""The network that is shipped, for ``pretrained``."""
ADAPTIVE_SAMPLE_BYTES = 600
"""Memory of the adaptive fit for each known sample."""


def check_fill_options(
    model: object,
    encoder: str | None,
    smooth: bool,
    upscale: int | Sequence[int],
    std: bool,
    folds: str,
    block: int | None,
    grow: int | None,
    noise: float | None,
    noise_sample: str | None,
    max_gap: Limit | None = None,
    max_distance: Limit | None = None,
    pretrained: str = SHIPPED,
) -> None:
    """Refuses arguments of :func:`pe_fill.fill` that do not go together."""
    for factor in [upscale] if isinstance(upscale, int) else upscale:
        choice("upscale", factor, (1, 2, 3, 4, 6, 8))
    choice("folds", folds, ("auto", "random", "blocks", "none"))
    for name, value, least in (("block", block, 1), ("grow", grow, 0)):
        if value is not None:
            integer(name, value, least)
    if isinstance(model, str):
        choice("model", model, ("auto", "adaptive", "exact"))
    enlarges, limited = upscale != 1, max_gap is not None or max_distance is not None
    check_limits(max_gap, max_distance)
    refuse(
        (encoder is not None and model == "adaptive", "encoder is for the exact fit: set model to exact, or leave it out"),
        (std and (smooth or enlarges), "std is of missing samples that are filled: leave out smooth and upscale"),
        (noise is not None and not 0 < noise < math.inf, f"noise is a standard deviation above 0; got {noise}"),
        (
            (noise is not None or noise_sample is not None) and (not smooth or model != "auto" or encoder is not None),
            "noise and noise_sample are for smooth: add it, without model and encoder",
        ),
        (noise is not None and noise_sample is not None, "noise and noise_sample are two ways to say it: leave one out"),
        (limited and (smooth or enlarges), "max_gap and max_distance are limits of filling: leave out smooth and upscale"),
        (pretrained != SHIPPED and not enlarges, "pretrained is for enlarging: add upscale (such as 2), or leave it out"),
        (smooth and enlarges, "smooth and upscale are two steps: fill with smooth first, then enlarge the result"),
    )


def noise_region(text: str, grid: Sequence[int]) -> tuple[slice, slice]:
    """The rows and columns of a sample of noise in a picture.

    >>> noise_region("0:32,100:160", (200, 200))
    (slice(0, 32, None), slice(100, 160, None))
    """
    found = re.fullmatch(r"\s*(\d+):(\d+)\s*,\s*(\d+):(\d+)\s*", text)
    ends = [int(number) for number in found.groups()] if found else [0] * 4
    rows, columns = slice(*ends[:2]), slice(*ends[2:])
    if any(some.stop - some.start < 16 for some in (rows, columns)):
        raise InputError(
            f"noise_sample is the rows and columns of a flat region, at least 16 of each, such as 0:32,100:160; got {text!r}"
        )
    if rows.stop > grid[0] or columns.stop > grid[1]:
        raise InputError(f"noise_sample {text!r} is outside the picture of {grid[0]} rows and {grid[1]} columns")
    return rows, columns


def check_limits(max_gap: Limit | None, max_distance: Limit | None, axes: Sequence[Axis] | None = None) -> None:
    """Refuses limits that are no lengths, or, of these axes, lengths of time without one axis of dates."""
    for name, given in (("max_gap", max_gap), ("max_distance", max_distance)):
        if given is None:
            continue
        length, of_time = length_of(name, given)
        if name == "max_gap" and not of_time and length != int(length):
            raise InputError(f"max_gap is a whole number of samples, or a length of time, such as 3h; got {given!r}")
        if of_time and axes is not None and sum(axis.time for axis in axes) != 1:
            raise InputError(f"{name} {given!r} is for files with one axis of dates: give a number of samples")


def check_fit_memory(known: int) -> None:
    """Refuses more known samples than the adaptive fit holds in the free memory."""
    needed, free = known * ADAPTIVE_SAMPLE_BYTES, free_memory()
    if needed > free:
        raise InputError(
            f"the adaptive fit of {known:,} known samples takes about {show_bytes(needed)}, and {show_bytes(free)} are "
            "free: fill a part of the file, such as a crop or the frames around the lost ones"
        )
