"""The member that interpolates linearly along the first axis."""

from __future__ import annotations

import torch
from torch import Tensor

from pe_fill.members.member import Gaps


def between_neighbours(gaps: Gaps) -> Tensor:
    """Linear interpolation along the first axis, between frames."""
    values, known = gaps.values, gaps.known
    number = torch.arange(len(known), device=known.device).reshape(-1, *[1] * (known.ndim - 1)).expand(known.shape)
    before = torch.where(known, number, -1).cummax(0).values
    after = torch.where(known, number, len(known)).flip(0).cummin(0).values.flip(0)
    left = torch.where(before < 0, after, before).clamp(0, len(known) - 1)
    right = torch.where(after >= len(known), before, after).clamp(0, len(known) - 1)
    share = ((number - left) / (right - left).clamp_min(1)).clamp(0, 1).to(values)[..., None]
    low, high = (values.gather(0, at[..., None].expand_as(values)) for at in (left, right))
    found = low.lerp(high, share)
    never = (before < 0) & (after >= len(known))
    return torch.where(never[..., None], values[known].mean(0), found)
