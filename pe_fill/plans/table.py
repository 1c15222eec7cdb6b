"""The table of plans: the first one that applies to a signal fills it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pe_fill.adaptive.point_level import NUM_NEIGHBOURS
from pe_fill.plans import cells, denoise, gaps, model, series
from pe_fill.plans.signal import Outcome, Signal
from pe_fill.sparse.patch_noise import MIN_PIXELS
from pe_lightning.errors import InputError


class Plan(NamedTuple):
    """A way to fill a signal, and the options that it alone reads."""

    applies: Callable[[Signal], bool]
    run: Callable[[Signal], Outcome]
    reads: tuple[str, ...] = ()


PLANS = (
    Plan(cells.applies, lambda signal: cells.run(signal, fill_signal)),
    Plan(gaps.applies, gaps.run, ("members",)),
    Plan(denoise.applies_to_picture, denoise.denoise_picture, ("noise", "noise_sample")),
    Plan(denoise.applies_to_other, denoise.denoise_other),
    Plan(series.applies, series.run),
    Plan(model.applies, model.run),
)


def fill_signal(signal: Signal) -> Outcome:
    """The signal filled by the first plan that applies."""
    if signal.left.any() and not signal.filled.any():
        return Outcome(signal.values, signal.about(None, protocol="no sample is filled"))
    plan = next(plan for plan in PLANS if plan.applies(signal))
    unread = [
        name for name in signal.request.changed_options(("noise", "noise_sample", "members")) if name not in plan.reads
    ]
    if unread == ["members"]:
        why = "it has too few known samples" if signal.is_even else "its samples are at unequal distances"
        raise InputError(f"{signal.name!r} is not filled by a mixture of members, because {why}: leave members out")
    if unread:
        raise InputError(
            f"noise and noise_sample are of pictures of at least {MIN_PIXELS} x {MIN_PIXELS} pixels at even distances, "
            f"{2 * NUM_NEIGHBOURS[1] + 1} of them known; {signal.name!r} has {' x '.join(map(str, signal.grid))} samples, "
            f"{signal.num_known} of them known: leave them out"
        )
    return plan.run(signal)
