"""The member that predicts rows by their periods."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pe_fill.kriging.matern import learn_matern
from pe_fill.kriging.seasons import SERIES_SUBSET, SeasonalKriging, SeasonalMean, with_phases
from pe_fill.members.member import Gaps

SEASONAL = "seasonal"
"""Name of the member of a mixture that predicts by the season of a row."""
MAX_SEASONAL = 20_000
"""Most samples of a row whose periods are searched."""


class SeasonalMember:
    """Predicts a row by harmonics of its periods, and their rest by kriging in time and phases.

    The covariance is learned once, from all known samples, and the fits of imitated gaps have it too.

    Args:
        values: The row ``(N, C)``.
        known: Which samples are known, ``(N,)``.
        periods: In samples.
    """

    def __init__(self, values: Tensor, known: Tensor, periods: Sequence[float]) -> None:
        self.periods, times = periods, known.nonzero()[:, 0].double().numpy()
        rest = values[known].double().numpy()
        rest = rest - SeasonalMean(times, rest, periods)(times)
        self.covariance = learn_matern(torch.from_numpy(rest), with_phases(times, periods), subset=SERIES_SUBSET)

    def __call__(self, gaps: Gaps) -> Tensor:
        times, wanted = (mask.nonzero()[:, 0].double().numpy() * gaps.step for mask in (gaps.known, gaps.wanted))
        values = gaps.values[gaps.known].double().numpy()
        mean = SeasonalMean(times, values, self.periods)
        rest = SeasonalKriging(times, torch.from_numpy(values - mean(times)), self.periods, self.covariance)
        found = gaps.values.clone()
        found[gaps.wanted] = (rest(wanted) + torch.from_numpy(mean(wanted))).to(found)
        return found
