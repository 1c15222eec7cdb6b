"""Rows as series with periods: a member of the mixture, and :func:`~pe_fill.fit_points` where times are uneven."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pe_fill.estimators.point_fit import PointFit, fit_source
from pe_fill.estimators.samples import TrainedSamples
from pe_fill.formats.points import PointArrays
from pe_fill.solvers.gap_members import Gaps
from pe_fill.solvers.matern import learn_matern
from pe_fill.solvers.seasons import SeasonalKriging, SeasonalMean, with_phases
from pe_lightning.estimators import FitReport, FittedField
from pe_lightning.signals import Signals

SEASONAL = "seasonal"
"""Name of the member of a mixture that predicts by the season of a row."""
MAX_SEASONAL = 20_000
"""Most samples of a row whose periods are searched."""


def fit_series(times: Tensor, values: Tensor, periods: Sequence[float]) -> PointFit:
    """Fits samples ``(P, C)`` in [0, 1] at times ``(P,)``, with seasons of these periods."""
    columns = {f"channel {number}": column for number, column in enumerate(values.double().numpy().T)}
    source = PointArrays({"time": times.double().numpy()}, columns, extents=[1.0] * len(columns))
    return fit_source(source, periods=periods)


class SeasonalMember:
    """The member of a mixture that predicts a row by harmonics of its periods, and their rest by kriging in time and phases.

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
        self.covariance = learn_matern(torch.from_numpy(rest), with_phases(times, periods))

    def __call__(self, gaps: Gaps) -> Tensor:
        times, wanted = (mask.nonzero()[:, 0].double().numpy() * gaps.step for mask in (gaps.known, gaps.wanted))
        values = gaps.values[gaps.known].double().numpy()
        mean = SeasonalMean(times, values, self.periods)
        rest = SeasonalKriging(times, torch.from_numpy(values - mean(times)), self.periods, self.covariance)
        found = gaps.values.clone()
        found[gaps.wanted] = (rest(wanted) + torch.from_numpy(mean(wanted))).to(found)
        return found


@dataclass(frozen=True)
class SeriesFit:
    """Fits the row of signals by :func:`fit_series`.

    Args:
        periods: Relative to the length of [0, 1).
    """

    periods: Sequence[float]

    def fit(self, train: Signals) -> SeriesField:
        samples = TrainedSamples.of(train, "fit_points", torch.device("cpu"))
        assert samples.coords is not None  # times are at unequal distances
        return SeriesField(fit_series(samples.coords[0, :, 0], samples.values[0], self.periods))


class SeriesField(FittedField):
    """One row as a function of its coordinate in [0, 1)."""

    prefers_points = True

    def __init__(self, series: PointFit) -> None:
        super().__init__("fit_points", FitReport("adaptive"), torch.device("cpu"), 1)
        self.series = series

    def evaluate(self, points: Tensor) -> Tensor:
        return _at(self.series, points[:, 0])[None]

    def grid(self, axes: Sequence[Tensor]) -> Tensor:
        return _at(self.series, axes[0])[None]

    @property
    def has_std(self) -> bool:
        return self.series.has_std

    def std(self, coords: Tensor, level: float | None = None) -> Tensor:
        times = coords.reshape(-1).double().numpy()
        if level is None:
            found = self.series.std(times)
        else:
            low, high = self.series.interval(times, level)
            found = (high - low) / 2
        return torch.from_numpy(found).reshape(*coords.shape[:-1], -1)

    def state_dict(self) -> dict[str, Any]:
        times, values = self.series.points
        columns = np.stack(list(values.values()), -1)
        return {"values": torch.from_numpy(columns)[None], "times": torch.from_numpy(times["time"])}


def _at(series: PointFit, times: Tensor) -> Tensor:
    return torch.from_numpy(series.predict(times.double().numpy()))
