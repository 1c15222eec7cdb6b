"""Estimators that hold the trained samples: fields of one signal from its samples, and what they are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pe_fill.adaptive.points import AdaptivePoints
from pe_fill.adaptive.prior_weight import SignalField
from pe_fill.estimators.priors import prior_state
from pe_fill.networks.local import LocalPrior
from pe_lightning.encoders import Encoder
from pe_lightning.errors import InputError
from pe_lightning.estimators import FittedField
from pe_lightning.estimators.base import finite_points
from pe_lightning.signals import PointBatch, Signals
from pe_lightning.signals.batches import to_device


class TrainedSamples(NamedTuple):
    """Trained samples of all signals, on a grid of even distances or scattered; or of one, without the axis of signals.

    Args:
        values: ``(S, n_1, ..., n_D, C)``, of scattered samples ``(S, P, C)``.
        coords: Coordinates of scattered samples, ``(S, P, D)``; ``None`` on a grid.
        first: Position of the first sample of a grid along each axis, in samples of the signal.
        step: Distance of the samples of a grid along each axis.
    """

    values: Tensor
    coords: Tensor | None = None
    first: Sequence[float] = ()
    step: Sequence[float] = ()

    @classmethod
    def from_signals(cls, train: Signals, model: str, device: torch.device) -> TrainedSamples:
        """All trained samples on a device, for a model of this name in errors."""
        if train.streamed:
            raise InputError(
                f"{model} holds all trained samples, and these signals stay in their file: set "
                "--data.storage.in_memory true, fit a part of the signals, or fit a linear layer block by block with "
                "--encoder tri"
            )
        batch, info = to_device(train.train_batch(), device), train.info
        if isinstance(batch, PointBatch):
            return cls(batch.values, batch.coords.expand(info.num_signals, -1, -1))
        if any(axis.samples is not None for axis in info.axes):  # a grid of uneven distances is scattered samples
            points = torch.cartesian_prod(*batch.axes).reshape(-1, info.num_axes)
            return cls(batch.values.flatten(1, -2), points.expand(info.num_signals, -1, -1))
        positions = [(x.double() * n).round() for x, n in zip(batch.axes, info.grid, strict=True)]
        if not all(bool((along.diff() == along[1] - along[0]).all()) for along in positions):
            raise InputError(
                f"{model} needs trained samples at equal distances along each axis; with sampling: random or "
                "mask, Adaptive takes any others"
            )
        steps = [float(along[1] - along[0]) for along in positions]
        return cls(batch.values, None, [float(along[0]) for along in positions], steps)

    @classmethod
    def restored(cls, state: Mapping[str, Any], device: torch.device) -> TrainedSamples:
        """From the state of a :class:`SampledField`."""
        values = state["values"].to(device)
        if "coords" in state:
            return cls(values, state["coords"].to(device))
        return cls(values, None, state["first"].tolist(), state["step"].tolist())

    @property
    def sizes(self) -> torch.Size:
        """Samples per axis of all signals, ``(n_1, ..., n_D)``."""
        return self.values.shape[1:-1]

    def signal(self, place: int) -> TrainedSamples:
        return self._replace(values=self.values[place], coords=None if self.coords is None else self.coords[place])


class SampledField(FittedField):
    """Signals as functions of their trained samples; local fits have a ridge of each, and may have a prior."""

    prefers_points = True

    def __init__(
        self,
        signals: Sequence[SignalField],
        samples: TrainedSamples,
        *,
        ridges: Sequence[float] = (),
        prior: LocalPrior | None = None,
        spread: Callable[[], AdaptivePoints] | None = None,
        **fit: Any,
    ) -> None:
        super().__init__(device=samples.values.device, spread=spread, **fit)
        self.signals, self.samples, self.ridges, self.prior = list(signals), samples, ridges, prior

    @property
    def num_params(self) -> int:
        """The samples of one signal, and their coordinates if they are scattered."""
        return sum(tensor[0].numel() for tensor in (self.samples.values, self.samples.coords) if tensor is not None)

    def evaluate(self, points: Tensor) -> Tensor:
        points, unknown = finite_points(points)
        return torch.stack([signal.at(points) for signal in self.signals]).masked_fill(unknown[:, None], torch.nan)

    def grid(self, axes: Sequence[Tensor]) -> Tensor:
        axes = [x.to(self.device) for x in axes]
        return torch.stack([signal.predict(axes) for signal in self.signals])

    def state_dict(self) -> dict[str, Any]:
        values, coords, first, step = self.samples
        state: dict[str, Any] = {"values": values, "ridges": torch.tensor(self.ridges, dtype=torch.float64)}
        if coords is not None:
            state["coords"] = coords
        else:
            state |= {"first": torch.tensor(first).double(), "step": torch.tensor(step).double()}
        return state if self.prior is None else {**state, "prior": prior_state(self.prior)}


def described_encoder(encoder: Encoder) -> dict[str, Any]:
    """An encoder for ``metrics.json``, without its number of features, which local fits do not use."""
    return {"name": encoder.name, **{name: value for name, value in encoder.resolved().items() if name != "num_features"}}
