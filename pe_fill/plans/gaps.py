"""Gaps filled by a mixture of members, which imitated gaps weigh and score."""

from __future__ import annotations

from itertools import islice

import numpy as np
import torch

from pe_fill.members.member import Member
from pe_fill.members.seasonal import SEASONAL, SeasonalMember
from pe_fill.members.table import MEMBERS, default_members
from pe_fill.memory import check_fit_memory
from pe_fill.mixture.copies import Hidden, imitated_gaps
from pe_fill.mixture.interpolation_scores import interpolated_gaps
from pe_fill.mixture.mixture import fill_gaps
from pe_fill.plans.signal import NO_FOLDS, Outcome, Signal
from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import rank_zero_info, without_notices


def applies(signal: Signal) -> bool:
    """To signals of enough samples at equal distances."""
    return signal.fills and signal.is_even


def run(signal: Signal) -> Outcome:
    """Members predict the gaps; moved copies of the gaps, or else folds, are held out."""
    check_fit_memory(signal.num_known)
    request, known = signal.request, torch.from_numpy(~signal.unknown)
    periodic = [axis.periodic for axis in signal.frame.axes]
    wanted = torch.from_numpy(signal.unknown & ~signal.left)
    hidden, protocol = _held_out(signal, known, wanted, periodic)
    names, others, periods = _members(signal)
    with without_notices():
        found = fill_gaps(signal.unit, known, names, hidden, periodic, others, wanted)
    for name, why in found.failed.items():
        rank_zero_info(f"{signal.name!r}: the member {name!r} is left out, as it cannot be computed ({why})")
    about = signal.about(found, periods)
    if not found.held_out:
        about.protocol = NO_FOLDS
    elif request.folds != "none":
        factors = torch.cat([some.carried for some in found.held_out]).flatten().tolist()
        low, high = f"{min(factors):.2f}", f"{max(factors):.2f}"
        times = low if low == high else f"{low} to {high}"
        about.protocol = protocol if times == "1.00" else f"{protocol}, errors times {times}"
        about.score, about.baselines, about.left_out = interpolated_gaps(signal.unit, names, found.held_out, request.seed)
    values = np.where(signal.filled, signal.scaling.restore(found.values.numpy(), 0), signal.values)
    deviations = np.where(signal.filled, found.std.double().numpy() * about.unit, 0) if request.has_std else None
    return Outcome(values, about, deviations)


def _held_out(signal: Signal, known: torch.Tensor, wanted: torch.Tensor, periodic: list[bool]) -> tuple[list[Hidden], str]:
    """Known samples that are hidden, and how they are chosen in words."""
    request, hidden = signal.request, list[Hidden]()
    if request.folds in ("auto", "none") and request.block is None:
        hidden = imitated_gaps(~wanted, request.seed, periodic)
    if signal.left.any():  # the copies are of gaps that are filled
        hidden = [some._replace(mask=some.mask & known, scored=some.scored & known) for some in hidden]
        hidden = [some for some in hidden if bool(some.scored.any())]
    if hidden:
        return hidden, f"{len(hidden)} {hidden[0].words}"
    if (scored := signal.make_folds()) is None:
        return [], ""
    sampling, count, protocol = scored
    return [Hidden(mask, mask) for mask in map(torch.from_numpy, islice(signal.held_out(sampling), count))], protocol


def _members(signal: Signal) -> tuple[list[str], dict[str, Member], tuple[float, ...]]:
    """The names of the members, those that are made for this row, and its periods."""
    given, axes = signal.request.members, len(signal.grid)
    for name in given or ():
        if name in MEMBERS and axes not in (allowed := MEMBERS[name].axes):
            raise InputError(
                f"the member {name!r} fills signals of {' or '.join(map(str, allowed))} axes; {signal.name!r} has {axes}: "
                "leave it out"
            )
    names = list(given or default_members(torch.from_numpy(~signal.unknown)))
    periods, others = tuple[float, ...](), dict[str, Member]()
    if axes == 1 and (given is None or SEASONAL in names):
        periods = signal.periods
        in_samples = [period * signal.grid[0] for period in periods]
        if periods:
            seasonal = SeasonalMember(signal.unit, torch.from_numpy(~signal.unknown), in_samples)
            others = {SEASONAL: Member(seasonal, (1,))}
        names += [] if SEASONAL in names else [*others]
    if SEASONAL in names and not others:
        raise InputError(f"{signal.name!r} has no period for the member {SEASONAL!r}: leave it out, or give periodic")
    return names, others, periods
