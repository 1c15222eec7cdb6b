"""The base of the models that hold the trained samples, and take no training steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from pe_lightning.data.batches import GridBatch, PointBatch
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.encoders import EncoderLike
from pe_lightning.errors import InputError
from pe_lightning.modules.base import trainer_of
from pe_lightning.modules.coordinate import CoordinateModule
from pe_lightning.networks.samples import SampleNetwork

__all__ = ["Field", "SampledModule"]


class Field(Protocol):
    """A signal as a function of coordinates."""

    values: Tensor
    """Its trained samples."""

    def at(self, points: Tensor) -> Tensor:
        """Values at points ``(P, D)`` in [0, 1), differentiable: ``(P, C)``."""

    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on the grid of one coordinate vector ``(N_a,)`` per axis: ``(N_1, ..., N_D, C)``."""


class SampledModule(CoordinateModule):
    """Signals as functions of their trained samples, which are the parameters: fitted with ``max_steps: 0``.

    A subclass defines :meth:`make_network`, which returns a :class:`~pe_lightning.networks.samples.SampleNetwork`,
    :meth:`solve` and :meth:`make_field`.

    Args:
        encoder: The encoder.
    """

    solves = True

    def __init__(self, encoder: EncoderLike) -> None:
        super().__init__(encoder, False, None, None, lambda params: torch.optim.SGD(params, lr=0.1), None)
        self._fields: list[Field] = []

    @property
    def network(self) -> SampleNetwork:
        """The samples of all signals, ``(S, n_1, ..., n_D, C)``."""
        network = self.networks.network
        assert isinstance(network, SampleNetwork)
        return network

    @property
    def num_params(self) -> int:
        """Parameters of one signal: its samples, and their coordinates if they are scattered."""
        return super().num_params + (self.network.coords[0].numel() if self.info is not None else 0)

    # -- the fit --------------------------------------------------------------------------------------------------------

    def configure_model(self) -> None:
        """Builds from the Trainer's DataModule.

        Raises:
            InputError: If there are steps to train.
        """
        trainer = trainer_of(self)
        if trainer is not None and self.is_fitting and trainer.max_steps != 0:
            raise InputError(f"{type(self).__name__} is solved for, not trained: set --trainer.max_steps 0")
        super().configure_model()

    def choose(self, data: SignalDataModule, device: torch.device) -> None:
        """Refuses signals that are not in memory."""
        if data.streamed:
            raise InputError(
                f"{type(self).__name__} holds all trained samples, and these signals stay in their file: set "
                "--data.in_memory true, fit a part of the signals, or fit a linear layer block by block with --encoder tri"
            )

    @torch.no_grad()
    def calibrate(self, batch: GridBatch | PointBatch) -> None:
        """Stores the trained samples."""
        network, info = self.network, self.require_info()
        network.samples.data = batch.values.clone()
        if isinstance(batch, PointBatch):
            network.coords.data = batch.coords.expand(info.num_signals, -1, -1).clone()
            return
        if any(axis.samples is not None for axis in info.axes):  # a grid of uneven distances is scattered samples
            points = torch.cartesian_prod(*batch.axes).reshape(-1, info.num_axes)
            network.samples.data = batch.values.flatten(1, -2).clone()
            network.coords.data = points.expand(info.num_signals, -1, -1).clone()
            return
        positions = [(x.double() * n).round() for x, n in zip(batch.axes, info.grid, strict=True)]
        if not all(bool((along.diff() == along[1] - along[0]).all()) for along in positions):
            raise InputError(
                f"{type(self).__name__} needs trained samples at equal distances along each axis; with sampling: random or "
                "mask, Adaptive takes any others"
            )
        network.first.copy_(torch.stack([along[0] for along in positions]))
        network.step.copy_(torch.stack([along[1] - along[0] for along in positions]))

    def describe(self) -> dict[str, Any]:
        """As of any module; numbers of features play no part."""
        described = super().describe()
        described["encoder"].pop("num_features", None)  # one entry: all axes have one encoder
        return described

    def on_fit_start(self) -> None:
        """Fits the stored samples."""
        self.solve()

    @abstractmethod
    def solve(self) -> None:
        """Fits the stored samples and sets :attr:`solution`."""

    @abstractmethod
    def make_field(self, place: int) -> Field:
        """A signal as a function of coordinates, from its stored samples."""

    def on_fit_end(self) -> None:
        """Gathers the signals that other processes fitted."""
        shared = self.shard is not None
        super().on_fit_end()
        if shared:
            self._fields = []

    @property
    def fields(self) -> list[Field]:
        """The signals as functions of coordinates, made at the first access."""
        self.require_info()
        if len(self._fields) != self.networks.num_signals or self._fields[0].values.device != self.device:
            with torch.inference_mode(False), torch.no_grad():
                self._fields = [self.make_field(place) for place in range(self.networks.num_signals)]
        return self._fields

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Builds from the checkpoint, with as many samples as it contains."""
        super().on_load_checkpoint(checkpoint)
        self._fields = []
        for name in ("samples", "coords"):
            getattr(self.network, name).data = torch.empty_like(
                checkpoint["state_dict"][f"networks.network.{name}"], device=self.device
            )

    # -- use ------------------------------------------------------------------------------------------------------------

    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        """Prediction minus truth, ``(S, M)``."""
        if isinstance(batch, GridBatch):
            return (self.predict_grid(batch.axes) - batch.values).flatten(1)
        each = batch.coords.expand(len(self.fields), -1, -1)
        prediction = torch.stack([field.at(points) for field, points in zip(self.fields, each, strict=True)])
        return (prediction - batch.values).flatten(1)

    def evaluate(self, name: str, points: Tensor) -> Tensor:
        """As in the base class, differentiable in the points."""
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
