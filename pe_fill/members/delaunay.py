"""The member that interpolates linearly on triangles of known samples."""

from __future__ import annotations

import torch
from scipy.interpolate import LinearNDInterpolator
from scipy.spatial import Delaunay, QhullError
from torch import Tensor

from pe_fill.members.fourier import smooth_continuation
from pe_fill.members.member import Gaps, distance_to


def triangulated(gaps: Gaps) -> Tensor:
    """Linear interpolation on the triangulation of the known samples next to gaps; outside of their hull a continuation."""
    border, found = gaps.known & (distance_to(~gaps.known) <= 2), smooth_continuation(gaps.values, gaps.known)
    places, wanted = border.nonzero().cpu().numpy(), gaps.wanted.nonzero().cpu().numpy()
    try:
        triangles = Delaunay(places)
    except QhullError as error:
        raise ValueError("the known samples next to gaps are on one line") from error
    made = torch.from_numpy(LinearNDInterpolator(triangles, gaps.values[border].double().cpu().numpy())(wanted)).to(found)
    found[gaps.wanted] = torch.where(made.isnan(), found[gaps.wanted], made)
    return found
