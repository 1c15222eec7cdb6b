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
from torch import Tensor
from torch.optim import Optimizer

from pe_lightning.errors import InputError
from pe_lightning.evaluation.metrics import HeldOutScores, psnr
from pe_lightning.networks import VmapEnsemble
from pe_lightning.signals.distributed import SIGNALS_STRATEGY, Process


class SignalsStrategy(DDPStrategy):
    """Like DDP without exchange of gradients: each process holds the parameters of its own signals only.

    For modules whose ``networks`` are a :class:`~pe_lightning.networks.VmapEnsemble`. The results equal those of one
    process. There must be at least as many signals as processes.
    """

    strategy_name = SIGNALS_STRATEGY

    def configure_ddp(self) -> None:
        """Does not wrap the module."""

    def shard(self, num_signals: int) -> slice:
        return Process(self.global_rank, self.world_size).share(num_signals)

    def gather(self, shard: Tensor, num_signals: int) -> Tensor:
        """Concatenates the tensors of all processes along the first axis, in order of rank, on every process.

        Processes exchange them by the devices of the fit; at its end Lightning has moved the module to the CPU.
        """
        shares = [Process(rank, self.world_size).share(num_signals) for rank in range(self.world_size)]
        rows = max(share.stop - share.start for share in shares)
        padded = shard.new_zeros(rows, *shard.shape[1:], device=self.root_device)
        padded[: len(shard)] = shard.detach()
        received = [torch.empty_like(padded) for _ in shares]
        dist.all_gather(received, padded)
        parts = [one[: share.stop - share.start] for one, share in zip(received, shares, strict=True)]
        return torch.cat(parts).to(shard.device)

    def lightning_module_state_dict(self) -> dict[str, Any]:
        return self._per_signal(super().lightning_module_state_dict(), self.gather)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        state = self._per_signal(checkpoint["state_dict"], lambda value, count: value[self.shard(count)])
        super().load_model_state_dict({**checkpoint, "state_dict": state}, strict)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        state: dict[str, Any] = super().optimizer_state(optimizer)
        return {**state, "state": self._of_optimizer(state["state"], self.gather)}

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        saved: list[dict[str, Any]] = checkpoint["optimizer_states"]
        states = [
            {**one, "state": self._of_optimizer(one["state"], lambda value, count: value[self.shard(count)])}
            for one in saved
        ]
        super().load_optimizer_state_dict({**checkpoint, "optimizer_states": states})

    def _per_signal(self, state: dict[str, Any], change: Callable[[Tensor, int], Tensor]) -> dict[str, Any]:
        module: Any = self.lightning_module
        if module.shard is None:
            return state
        names = {f"networks.network.{name}" for name, _ in module.networks.per_signal()}
        count = module.require_info().num_signals
        return {name: change(value, count) if name in names else value for name, value in state.items()}

    def _of_optimizer(self, state: dict[Any, Any], change: Callable[[Tensor, int], Tensor]) -> dict[Any, Any]:
        """Applies ``change`` to all tensors but counters, which have no axes: all parameters are per signal here."""
        module: Any = self.lightning_module
        if module.shard is None:
            return state
        count = module.require_info().num_signals

        def changed(value: Any) -> Any:
            return change(value, count) if isinstance(value, Tensor) and value.ndim else value

        return {key: {name: changed(value) for name, value in entry.items()} for key, entry in state.items()}


for name in (SIGNALS_STRATEGY, "signals"):  # the name of version 0.2
    if name not in StrategyRegistry.available_strategies():
        StrategyRegistry.register(name, SignalsStrategy, description="each process fits its own signals")


class SignalShard:
    """The share of the signals that this process fits.

    Args:
        strategy: The strategy of the Trainer.
        num_signals: Number of signals of all processes.
    """

    def __init__(self, strategy: SignalsStrategy, num_signals: int) -> None:
        if num_signals < strategy.world_size:
            raise InputError(
                f"strategy independent_signals gives each process signals of its own, but there are {num_signals} for "
                f"{strategy.world_size} processes; set --trainer.devices {num_signals} or less, or --trainer.strategy ddp, "
                "which shares each signal"
            )
        self.strategy = strategy
        self.num_signals = num_signals
        self.own = strategy.shard(num_signals)

    @classmethod
    def of(cls, trainer: Trainer, networks: VmapEnsemble) -> SignalShard | None:
        """Removes the signals of other processes from the networks, if the strategy gives each process its own.

        Returns:
            The share of this process; ``None`` under another strategy.
        """
        if not isinstance(trainer.strategy, SignalsStrategy):
            return None
        shard = cls(trainer.strategy, networks.num_signals)
        if networks.features_are_trained and networks.features_are_shared:
            raise InputError(
                "strategy independent_signals exchanges no gradients, but all signals train one encoder; set strategy ddp"
            )
        networks.replace_signals(lambda tensor: tensor[shard.own].clone())
        return shard

    def gather(self, networks: VmapEnsemble) -> None:
        """Restores the signals of all processes, as fitted, on every process."""
        networks.replace_signals(lambda tensor: self.strategy.gather(tensor, self.num_signals))

    def sum(self, value: Tensor) -> Tensor:
        total: Tensor = self.strategy.reduce(value, reduce_op="sum")
        return total


class SignalScores(HeldOutScores):
    """The metric of held-out and of trained samples, of the signals of all processes.

    Args:
        metric: Name of the registered metric.
        num_signals: Number of signals of all processes.
        shard: The signals of this process, where each has its own; scores of different signals are not added up.
    """

    def __init__(self, metric: str, num_signals: int, shard: SignalShard | None = None) -> None:
        own = num_signals if shard is None else shard.own.stop - shard.own.start
        super().__init__(metric, own, sync_on_compute=shard is None)
        self.num_signals = num_signals
        self.shard = shard

    def sum(self, values: Tensor) -> Tensor:
        """The sum of ``(S,)`` values over the signals of all processes, ``()``."""
        total = values.sum()
        return total if self.shard is None else self.shard.sum(total)

    def of_training(self, squared: Tensor, count: int) -> dict[str, Tensor]:
        """The loss, and the mean PSNR where that is the metric, of a training batch.

        Args:
            squared: Squared-error sum per signal of this process, ``(S,)``.
            count: Number of values in each sum.
        """
        values = {"train/loss": self.sum(squared / count)}
        if self.metric == "psnr":
            values["train/psnr"] = self.sum(psnr(squared, torch.full_like(squared, count))) / self.num_signals
        return values

    def validation(self) -> Tensor:
        """The score of the held-out samples, mean over signals, ``()``; NaN if there are none. Starts a new score."""
        score = self.sum(self.held_out.per_signal()) / self.num_signals
        self.held_out.reset()
        return score
