"""The module that hosts an estimator in a configuration: signals are fitted at the start of a fit of no steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from typing_extensions import Self

from pe_lightning.encodings.base import check_axes
from pe_lightning.errors import InputError
from pe_lightning.estimators.base import Estimator, FittedField, estimators, fits_of
from pe_lightning.registry import Described
from pe_lightning.training.base import models, signals_of, trainer_of
from pe_lightning.training.datamodule import SignalDataModule
from pe_lightning.training.function import FunctionModule
from pe_lightning.training.sharding import SignalScores, SignalsStrategy


@models.register("EstimatorModule")
class EstimatorModule(FunctionModule):
    """Signals that an estimator fits at the start of a fit; nothing is trained: fit it with ``max_steps: 0``.

    A checkpoint holds the state of the fit, from which the estimator restores it. A subclass has the arguments of its
    estimator in place of ``estimator``.

    Args:
        estimator: The estimator, its registered name or its description, such as ``{name: adaptive, angles: 8}``.
    """

    solves = True
    shard: ClassVar[None] = None
    """The state is of all signals, also while processes fit signals of their own."""

    def __init__(self, estimator: Described[Estimator]) -> None:
        super().__init__()
        self.estimator: Estimator = estimators.resolve(estimator)
        self.takes_periodic = self.estimator.takes_periodic
        cls = type(self.estimator)
        if cls.restore is Estimator.restore:
            raise InputError(f"{self.label} does not restore its fits from checkpoints: use {cls.model}")
        arguments = self.estimator.arguments()
        if type(self) is EstimatorModule:
            arguments = {"estimator": {"name": estimators.name_of(cls), **arguments}}
        self.save_arguments(**arguments)
        # several processes share no module without parameters
        self.placeholder = nn.Parameter(torch.zeros(()))
        self._fields: list[FittedField] = []
        self._states: list[dict[str, Any]] = []
        self._num_params = 0

    @property
    def label(self) -> str:
        return self.estimator.label

    @property
    def fields(self) -> list[FittedField]:
        """The fits, of consecutive signals, on the device of the module."""
        info = self.require_info()
        if not self._states:
            raise InputError(f"{self.label} is not fitted yet: fit it with a Trainer, or load a checkpoint")
        if not self._fields or self._fields[0].device != self.device:
            with torch.inference_mode(False), torch.no_grad():
                self._fields = [self.estimator.restore(state, info, self.device) for state in self._states]
        return self._fields

    # -- the fit --------------------------------------------------------------------------------------------------------

    def configure_model(self) -> None:
        trainer = trainer_of(self)
        if trainer is not None and self.is_fitting and trainer.max_steps != 0:
            raise InputError(f"{self.label} is solved for, not trained: set --trainer.max_steps 0")
        super().configure_model()

    def choose(self, data: SignalDataModule, device: torch.device) -> None:
        self.estimator.check(data.signals)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Never called, since the fit has no steps."""

    def on_fit_start(self) -> None:
        train, strategy, info = signals_of(self).signals, self.trainer.strategy, self.require_info()
        if isinstance(strategy, SignalsStrategy):
            train = train.select(strategy.share_of(info.num_signals))
            self.scorer = SignalScores(info.metric, info.num_signals, strategy).to(self.device)
        values, dtype = train.loaded, self.placeholder.dtype
        if values is not None and values.dtype != dtype:  # with precision 64-true
            train = replace(train, loaded=values.to(dtype))
        field = self.estimator.fit(train, self.device)
        # copies: a view would be saved with the whole tensor
        state = tree_map_only(Tensor, lambda value: value.detach().cpu().clone(), field.state_dict())
        self._states = strategy.gather_states(state) if isinstance(strategy, SignalsStrategy) else [state]
        self._fields, self.solution, self._num_params = [field], field.solution, field.num_params

    def gather(self) -> None:
        if len(self._fields) < len(self._states):
            self._fields, info = [], self.require_info()
            self.scorer = SignalScores(info.metric, info.num_signals).to(self.device)

    def get_extra_state(self) -> dict[str, Any]:
        return {"fits": self._states, "num_params": self._num_params}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._fields, self._states = [], fits_of({"_extra_state": state})
        self._num_params = state["num_params"]

    # -- use ------------------------------------------------------------------------------------------------------------

    @property
    def num_params(self) -> int:
        return self._num_params

    @property
    def prefers_points(self) -> bool:
        return self.fields[0].prefers_points

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), **self.estimator.describe(self.require_info(), self._fields)}

    def of_cells(self, sizes: Sequence[float]) -> Self:
        """This module: means over cells are values at their centres."""
        return self

    def evaluate(self, points: Tensor) -> Tensor:
        return torch.cat([field.evaluate(points) for field in self.fields])

    def predict_grid(self, axes: Sequence[Tensor]) -> Tensor:
        check_axes(axes, self.require_info().num_axes)
        return torch.cat([field.grid(axes) for field in self.fields])

    @property
    def has_std(self) -> bool:
        return bool(self._states) and self.require_info().num_signals == 1 and self.fields[0].has_std

    def std(self, coords: Tensor, level: float | None = None) -> Tensor:
        """See :meth:`pe_lightning.estimators.Field.std`."""
        return self.fields[0].std(coords.to(self.placeholder.dtype), level)
