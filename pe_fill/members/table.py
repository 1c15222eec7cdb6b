"""The members of mixtures by name."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from pe_fill.members.autoregressive import autoregressive
from pe_fill.members.continuation import continuation
from pe_fill.members.delaunay import triangulated
from pe_fill.members.fourier import DENSE, local_fourier
from pe_fill.members.kriging import kriged
from pe_fill.members.member import NEAR, Gaps, Member, distance_to
from pe_fill.members.motion import along_motion
from pe_fill.members.neighbours import between_neighbours
from pe_fill.members.patch_mixture import SIDE, fill_patches, shipped_patches


def _fourier(gaps: Gaps) -> Tensor:
    options: dict[str, Any] = {"wanted": gaps.wanted, "periodic": gaps.periodic, "settings": DENSE if gaps.dense else None}
    return gaps.once("fourier", lambda gaps: local_fourier(gaps.values, gaps.known, **options))


def _patches(gaps: Gaps) -> Tensor:
    return fill_patches(_fourier(gaps), gaps.known, gaps.wanted, shipped_patches(), 3 if gaps.dense else 2)


def _has_wide_gaps(known: Tensor) -> bool:
    return bool((distance_to(known) > NEAR).any())


def _has_lost_frames(known: Tensor) -> bool:
    return bool((~known).flatten(1).all(1).any())


MEMBERS: dict[str, Member] = {
    "autoregressive": Member(lambda gaps: autoregressive(gaps.values, gaps.known), (1,)),
    "biharmonic": Member(lambda gaps: continuation(gaps.values, gaps.known, 2, 1), (2,), order=0, suits=_has_wide_gaps),
    "cubic": Member(partial(kriged, "cubic"), order=2, suits=lambda known: known.ndim == 2),
    "delaunay": Member(
        triangulated, (2, 3), least_known=4, order=0, suits=lambda known: known.ndim == 2 and _has_wide_gaps(known)
    ),
    "fourier": Member(_fourier),
    "kriging": Member(partial(kriged, "kriging"), suits=lambda known: known.ndim > 1),
    "motion": Member(
        lambda gaps: along_motion(between_neighbours(gaps), gaps.known, gaps.wanted),
        (3,),
        least_slabs=2,
        suits=_has_lost_frames,
    ),
    "neighbours": Member(between_neighbours, suits=lambda known: known.ndim != 2),
    "patches": Member(_patches, (2,), least_side=SIDE, suits=lambda known: min(known.shape) >= SIDE),
}
"""Members by name; a row with a period has :class:`~pe_fill.members.seasonal.SeasonalMember` besides."""
REMOVED = ("adaptive", "pchip", "thin_plate")
"""Former members, without which no mixture is worse by more than 0.1 dB."""


def default_members(known: Tensor) -> list[str]:
    """Members that suit a signal, by its axes and known samples."""
    return [name for name, member in MEMBERS.items() if known.ndim in member.axes and member.suits(known)]


def is_dense(known: Tensor) -> bool:
    """Whether so much of a picture is missing that most blocks have missing samples."""
    return known.ndim == 2 and float(known.float().mean()) < 0.65
