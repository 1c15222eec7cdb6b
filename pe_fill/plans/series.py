"""Rows at unequal distances, fitted as series with seasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pe_fill.estimators.point_fit import fit_source
from pe_fill.estimators.samples import TrainedSamples
from pe_fill.formats.points import PointArrays
from pe_fill.plans.model import by_fit
from pe_fill.plans.signal import Outcome, Signal
from pe_lightning.estimators import FitReport, FittedField
from pe_lightning.signals import Signals
from pe_lightning.signals.distributed import without_notices


class SeriesField(FittedField):
    """One row as a function of its coordinate in [0, 1), fitted with seasons of periods relative to that length."""

    prefers_points = True

    def __init__(self, train: Signals, periods: Sequence[float]) -> None:
        super().__init__("fit_points", FitReport("adaptive"), torch.device("cpu"), 1)
        samples = TrainedSamples.from_signals(train, "fit_points", self.device)
        assert samples.coords is not None  # times are at unequal distances
        columns = {f"channel {number}": column for number, column in enumerate(samples.values[0].double().numpy().T)}
        times = {"time": samples.coords[0, :, 0].double().numpy()}
        self.series = fit_source(PointArrays(times, columns, extents=[1.0] * len(columns)), periods=periods)

    def evaluate(self, points: Tensor) -> Tensor:
        return torch.from_numpy(self.series.predict(points[:, 0].double().numpy()))[None]

    def grid(self, axes: Sequence[Tensor]) -> Tensor:
        return self.evaluate(axes[0][:, None])

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


def applies(signal: Signal) -> bool:
    """To rows with enough samples; those at equal distances have the mixture."""
    return signal.fills and len(signal.grid) == 1


def run(signal: Signal) -> Outcome:
    """By :func:`pe_fill.fit_points`."""
    with without_notices():
        return by_fit(signal, lambda part: SeriesField(part, signal.periods), signal.periods)
