"""Signals that each process fits alone, and scores over the signals of all processes.

    pe-lightning fit --config ... --trainer.devices 4 --trainer.strategy independent_signals

Independent signals need no communication while they are fitted. Their parameters are gathered for checkpoints and at the end
of a fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy, StrategyRegistry
from torch import Tensor, nn
from torch.optim import Optimizer

from pe_lightning.errors import InputError
from pe_lightning.evaluation.metrics import create
from pe_lightning.evaluation.scores import psnr
from pe_lightning.networks import VmapEnsemble
from pe_lightning.signals.batches import GridBatch, PointBatch
from pe_lightning.signals.distributed import SIGNALS_STRATEGY, Process


class SignalsStrategy(DDPStrategy):
    """Like DDP without exchange of gradients: each process holds the parameters of its own signals only.

    For modules whose ``networks`` are a :class:`~pe_lightning.networks.VmapEnsemble`; their attribute ``shard`` is this
    strategy while they hold their share. One process gives the same results.
    """

    strategy_name = SIGNALS_STRATEGY
    num_signals = 0
    """Signals of all processes, once :meth:`take_share` is called."""

    def configure_ddp(self) -> None:
        """Does not wrap the module."""

    @property
    def own(self) -> slice:
        """The signals of this process."""
        return Process(self.global_rank, self.world_size).share(self.num_signals)

    @classmethod
    def shard_of(cls, trainer: Trainer, networks: VmapEnsemble) -> SignalsStrategy | None:
        """Removes the signals of other processes from the networks, if the Trainer has this strategy, and returns it."""
        strategy = trainer.strategy
        if not isinstance(strategy, SignalsStrategy):
            return None
        own = strategy.share_of(networks.num_signals)
        if networks.features_are_trained and networks.features_are_shared:
            raise InputError(
                "strategy independent_signals exchanges no gradients, but all signals train one encoder; set strategy ddp"
            )
        networks.replace_signals(lambda tensor: tensor[own].clone())
        return strategy

    def share_of(self, count: int) -> slice:
        """The signals of this process, of so many."""
        self.num_signals = count
        if count < self.world_size:
            raise InputError(
                f"strategy independent_signals gives each process signals of its own, but there are {count} for "
                f"{self.world_size} processes; set --trainer.devices {count} or less, or --trainer.strategy ddp, "
                "which shares each signal"
            )
        return self.own

    def gather_states(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        states: list[dict[str, Any]] = [{} for _ in range(self.world_size)]
        dist.all_gather_object(states, state)
        return states

    def gather(self, share: Tensor) -> Tensor:
        """Concatenates the tensors of all processes along the first axis, in order of rank, on every process."""
        # on the device of the fit: at its end Lightning has moved the module to the CPU
        shares = [Process(rank, self.world_size).share(self.num_signals) for rank in range(self.world_size)]
        rows = max(part.stop - part.start for part in shares)
        padded = share.new_zeros(rows, *share.shape[1:], device=self.root_device)
        padded[: len(share)] = share.detach()
        received = [torch.empty_like(padded) for _ in shares]
        dist.all_gather(received, padded)
        parts = [one[: part.stop - part.start] for one, part in zip(received, shares, strict=True)]
        return torch.cat(parts).to(share.device)

    def sum(self, value: Tensor) -> Tensor:
        total: Tensor = self.reduce(value, reduce_op="sum")
        return total

    # -- checkpoints, which hold the signals of all processes -----------------------------------------------------------

    def lightning_module_state_dict(self) -> dict[str, Any]:
        return self._per_signal(super().lightning_module_state_dict(), self.gather)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        state = self._per_signal(checkpoint["state_dict"], lambda value: value[self.own])
        super().load_model_state_dict({**checkpoint, "state_dict": state}, strict)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        state: dict[str, Any] = super().optimizer_state(optimizer)
        return {**state, "state": self._of_optimizer(state["state"], self.gather)}

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        saved: list[dict[str, Any]] = checkpoint["optimizer_states"]
        states = [{**one, "state": self._of_optimizer(one["state"], lambda value: value[self.own])} for one in saved]
        super().load_optimizer_state_dict({**checkpoint, "optimizer_states": states})

    def _per_signal(self, state: dict[str, Any], change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        module: Any = self.lightning_module
        if module.shard is None:
            return state
        names = {f"networks.network.{name}" for name, _ in module.networks.per_signal()}
        return {name: change(value) if name in names else value for name, value in state.items()}

    def _of_optimizer(self, state: dict[Any, Any], change: Callable[[Tensor], Tensor]) -> dict[Any, Any]:
        """Applies ``change`` to all tensors but counters, which have no axes: all parameters are per signal here."""
        module: Any = self.lightning_module
        if module.shard is None:
            return state

        def changed(value: Any) -> Any:
            return change(value) if isinstance(value, Tensor) and value.ndim else value

        return {key: {name: changed(value) for name, value in entry.items()} for key, entry in state.items()}


if SIGNALS_STRATEGY not in StrategyRegistry.available_strategies():
    StrategyRegistry.register(SIGNALS_STRATEGY, SignalsStrategy, description="each process fits its own signals")


class SignalScores(nn.Module):
    """The metric of held-out and of trained samples, of the signals of all processes.

    Args:
        metric: Name of the registered metric.
        num_signals: Number of signals of all processes.
        shard: The strategy, if each process has signals of its own.
    """

    def __init__(self, metric: str, num_signals: int, shard: SignalsStrategy | None = None) -> None:
        own = num_signals if shard is None else shard.own.stop - shard.own.start
        super().__init__()
        self.metric, self.num_signals, self.shard = metric, num_signals, shard
        self.trained = create(metric, own, sync_on_compute=shard is None)
        self.held_out = create(metric, own, sync_on_compute=shard is None)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the signals of all processes: ``(S,)`` -> ``()``."""
        total = values.sum()
        return total if self.shard is None else self.shard.sum(total)

    def of_training(self, squared: Tensor, count: int) -> dict[str, Tensor]:
        """The loss, and the mean PSNR if that is the metric, from sums of ``count`` squared errors per signal, ``(S,)``."""
        values = {"train/loss": self.sum(squared / count)}
        if self.metric == "psnr":
            values["train/psnr"] = self.sum(psnr(squared, torch.full_like(squared, count))) / self.num_signals
        return values

    def add(self, prediction: Tensor, batch: GridBatch | PointBatch, with_trained: bool = False) -> None:
        """Adds a prediction at the held-out samples, and at the trained ones if asked for."""
        self.held_out.update(prediction, batch.values, batch.mask)
        if with_trained:
            self.trained.update(prediction, batch.values, batch.train_mask)

    def validation(self) -> Tensor:
        """The score of the held-out samples, mean over signals, ``()``; NaN if there are none. Starts a new score."""
        score = self.sum(self.held_out.per_signal()) / self.num_signals
        self.held_out.reset()
        return score

    def test(self) -> dict[str, Tensor]:
        """The score of each signal ``(S,)``, by names such as ``test/psnr`` and ``train/psnr``. Starts new scores."""
        scores = {}
        for stage, metric in (("test", self.held_out), ("train", self.trained)):
            scores[f"{stage}/{self.metric}"] = metric.per_signal().cpu()
            metric.reset()
        return scores
