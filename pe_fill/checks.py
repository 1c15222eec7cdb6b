"""Checks of the arguments of :func:`pe_fill.fill`, and of the memory that its fits take."""

from __future__ import annotations

from collections.abc import Sequence

from pe_lightning.errors import InputError, refuse, show_bytes
from pe_lightning.signals.validation import choice, free_memory, integer

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
    enlarges = upscale != 1
    refuse(
        (encoder is not None and model == "adaptive", "encoder is for the exact fit: set model to exact, or leave it out"),
        (std and (smooth or enlarges), "std is of missing samples that are filled: leave out smooth and upscale"),
        (smooth and enlarges, "smooth and upscale are two steps: fill with smooth first, then enlarge the result"),
    )


def check_fit_memory(known: int) -> None:
    """Refuses more known samples than the adaptive fit holds in the free memory."""
    needed, free = known * ADAPTIVE_SAMPLE_BYTES, free_memory()
    if needed > free:
        raise InputError(
            f"the adaptive fit of {known:,} known samples takes about {show_bytes(needed)}, and {show_bytes(free)} are "
            "free: fill a part of the file, such as a crop or the frames around the lost ones"
        )
