"""Members by kriging with power variograms, which share the neighbours of samples that are next to each other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from scipy.spatial import cKDTree
from torch import Tensor

from pe_fill.adaptive.point_level import NUM_NEIGHBOURS
from pe_fill.kriging.power import POWERS, PowerKriging
from pe_fill.members.member import Gaps, near_samples

KRIGED = {"cubic": 3.0, "kriging": 1.0}
"""Powers of the variograms of members."""
TOGETHER = 4
"""Samples per axis whose kriging takes the same known samples."""


def kriged(name: str, gaps: Gaps) -> Tensor:
    """The prediction of one member; those of a mixture are computed together."""
    names = [other for other in KRIGED if other in (gaps.members or KRIGED)]
    found = gaps.values.clone()
    found[gaps.wanted] = gaps.once("kriging", partial(_krigings, [KRIGED[other] for other in names]))[names.index(name)]
    return found


def _krigings(powers: Sequence[float], gaps: Gaps) -> Tensor:
    """At wanted samples, ``(M, P, C)``."""
    near, index = near_samples(gaps, 2 * NUM_NEIGHBOURS[gaps.known.ndim - 1]), gaps.wanted.nonzero()
    places, group = near.nonzero().double(), index.new_zeros(len(index))
    for along, size in zip((index // TOGETHER).unbind(1), near.shape, strict=True):
        group = group * (size // TOGETHER + 1) + along
    fit = PowerKriging(gaps.values[near], places, cKDTree(places.cpu().numpy()))
    return fit.at(index.double(), group, [POWERS.index(power) for power in powers])
