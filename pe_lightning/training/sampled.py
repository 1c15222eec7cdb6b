"""The base of the models that hold the trained samples, and take no training steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pe_lightning.encoders import EncoderLike
from pe_lightning.errors import InputError
from pe_lightning.estimators.samples import SignalField, SignalSamples, TrainedSamples, check_in_memory
from pe_lightning.networks.samples import SampleNetwork
from pe_lightning.signals.batches import GridBatch, PointBatch
from pe_lightning.training.base import trainer_of
from pe_lightning.training.coordinate import CoordinateModule
from pe_lightning.training.datamodule import SignalDataModule


class NonparametricModule(CoordinateModule):
    """Signals as functions of their trained samples, which are the parameters: fitted with ``max_steps: 0``.

    A subclass defines :meth:`make_network`, which returns a :class:`~pe_lightning.networks.samples.SampleNetwork`,
    :meth:`solve` and :meth:`make_field`.

    Args:
        encoder: The encoder.
    """

    solves = True

    def __init__(self, encoder: EncoderLike) -> None:
        super().__init__(encoder, False, None, None, lambda params: torch.optim.SGD(params, lr=0.1), None)
        self._fields: list[SignalField] = []

    @property
    def network(self) -> SampleNetwork:
        network = self.networks.network
        assert isinstance(network, SampleNetwork)
        return network

    @property
    def num_params(self) -> int:
        """Parameters of one signal: its samples, and their coordinates if they are scattered."""
        return super().num_params + (self.network.coords[0].numel() if self.info is not None else 0)

    # -- the fit --------------------------------------------------------------------------------------------------------

    def configure_model(self) -> None:
        trainer = trainer_of(self)
        if trainer is not None and self.is_fitting and trainer.max_steps != 0:
            raise InputError(f"{type(self).__name__} is solved for, not trained: set --trainer.max_steps 0")
        super().configure_model()

    def choose(self, data: SignalDataModule, device: torch.device) -> None:
        check_in_memory(data.signals, type(self).__name__)

    @torch.no_grad()
    def calibrate(self, batch: GridBatch | PointBatch) -> None:
        found, network = TrainedSamples.of(batch, self.require_info(), type(self).__name__), self.network
        network.samples.data = found.values.clone()
        if found.coords is not None:
            network.coords.data = found.coords.clone()
            return
        assert found.first is not None
        assert found.step is not None
        network.first.copy_(found.first)
        network.step.copy_(found.step)

    def samples(self, place: int) -> SignalSamples:
        network = self.network
        coords = network.coords[place] if network.coords.numel() else None
        return SignalSamples(
            network.samples[place].detach(), coords, network.first[place].tolist(), network.step[place].tolist()
        )

    def describe(self) -> dict[str, Any]:
        described = super().describe()
        described["encoder"].pop("num_features", None)  # one entry: all axes have one encoder
        return described

    def on_fit_start(self) -> None:
        self.solve()

    @abstractmethod
    def solve(self) -> None:
        """Fits the stored samples and sets :attr:`solution`."""

    @abstractmethod
    def make_field(self, place: int) -> SignalField:
        """A signal as a function of coordinates, from its stored samples."""

    def on_fit_end(self) -> None:
        shared = self.shard is not None
        super().on_fit_end()
        if shared:
            self._fields = []

    @property
    def fields(self) -> list[SignalField]:
        """The signals as functions of coordinates, made at the first access."""
        self.require_info()
        if len(self._fields) != self.networks.num_signals or self._fields[0].values.device != self.device:
            with torch.inference_mode(False), torch.no_grad():
                self._fields = [self.make_field(place) for place in range(self.networks.num_signals)]
        return self._fields

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self._fields = []
        for name in ("samples", "coords"):
            getattr(self.network, name).data = torch.empty_like(
                checkpoint["state_dict"][f"networks.network.{name}"], device=self.device
            )

    # -- use ------------------------------------------------------------------------------------------------------------

    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        if isinstance(batch, GridBatch):
            return (self.predict_grid(batch.axes) - batch.values).flatten(1)
        each = batch.coords.expand(len(self.fields), -1, -1)
        prediction = torch.stack([field.at(points) for field, points in zip(self.fields, each, strict=True)])
        return (prediction - batch.values).flatten(1)

    def evaluate(self, name: str, points: Tensor) -> Tensor:
        if name != "forward":
            return self._derivatives(name, points)
        return torch.stack([field.at(points) for field in self.fields])

    @torch.enable_grad()
    def _derivatives(self, name: str, points: Tensor) -> Tensor:
        """Derivatives in reverse mode, as neighbours cannot be searched among the tensors of forward mode."""
        points = points if points.requires_grad else points.detach().requires_grad_()

        def slopes(values: Tensor) -> Tensor:  # (*rest, P) -> (*rest, P, D)
            each = [torch.autograd.grad(row.sum(), points, create_graph=True)[0] for row in values.flatten(0, -2)]
            return torch.stack(each).reshape(*values.shape, -1)

        first = slopes(self.evaluate("forward", points).transpose(1, 2))  # (S, C, P, D)
        if name == "gradient":
            return first.transpose(1, 2)
        return slopes(first.movedim(-1, 0)).diagonal(dim1=0, dim2=-1).sum(-1).transpose(1, 2)

    def predict_grid(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on a separable grid: ``D`` coordinate vectors ``(n_a,)`` -> ``(S, n_1, ..., n_D, C)``."""
        self.encoding.check_axes(axes)
        return torch.stack([field.predict(axes) for field in self.fields])
