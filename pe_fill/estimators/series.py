"""Rows at uneven times, fitted with their periods by :func:`~pe_fill.fit_points`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pe_fill.estimators.fitted_points import PointFit
from pe_fill.estimators.point_fit import fit_source
from pe_fill.estimators.samples import TrainedSamples
from pe_fill.formats.points import PointArrays
from pe_lightning.estimators import FitReport, FittedField
from pe_lightning.signals import Signals


def fit_series(times: Tensor, values: Tensor, periods: Sequence[float]) -> PointFit:
    """Fits samples ``(P, C)`` in [0, 1] at times ``(P,)``, with seasons of these periods."""
    columns = {f"channel {number}": column for number, column in enumerate(values.double().numpy().T)}
    source = PointArrays({"time": times.double().numpy()}, columns, extents=[1.0] * len(columns))
    return fit_source(source, periods=periods)


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
