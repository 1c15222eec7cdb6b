"""Several processes: the share of each, and a strategy in which each process fits its own signals.

    pe-lightning fit --config ... --trainer.devices 4 --trainer.strategy signals

Independent signals need no communication while they are fitted. Their parameters are gathered for checkpoints and at the end
of a fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy, StrategyRegistry
from torch import Tensor
from torch.optim import Optimizer

from pe_lightning.blocks import Block

__all__ = ["Process", "SignalsStrategy"]


@dataclass(frozen=True)
class Process:
    """Rank of this process and number of processes.

    Args:
        rank: Rank of this process, from 0.
        world_size: Number of processes.
    """

    rank: int = 0
    world_size: int = 1

    def share(self, count: int) -> slice:
        """This process's slice of ``count`` consecutive items; sizes differ by at most one, and may be 0.

        >>> [Process(rank, 3).share(7) for rank in range(3)]
        [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
        """
        return slice(self.rank * count // self.world_size, (self.rank + 1) * count // self.world_size)

    def rows(self, block: Block) -> Block:
        """This process's share of a block, divided along the first axis.

        >>> Process(1, 2).rows((slice(4, 10), slice(0, 5)))
        (slice(7, 10, None), slice(0, 5, None))
        """
        share = self.share(block[0].stop - block[0].start)
        return (slice(block[0].start + share.start, block[0].start + share.stop), *block[1:])


class SignalsStrategy(DDPStrategy):
    """Like DDP without exchange of gradients: each process holds the parameters of its own signals only.

    For modules whose ``networks`` are a :class:`~pe_lightning.networks.Stack`. The results equal those of one process. There
    must be at least as many signals as processes.
    """

    strategy_name = "signals"

    def configure_ddp(self) -> None:
        """Does not wrap the module."""

    def shard(self, num_signals: int) -> slice:
        """The signals of this process."""
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
        """The parameters of all signals, on every process."""
        return self._per_signal(super().lightning_module_state_dict(), self.gather)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Loads the parameters of this process's signals from a checkpoint of all signals."""
        state = self._per_signal(checkpoint["state_dict"], lambda value, count: value[self.shard(count)])
        super().load_model_state_dict({**checkpoint, "state_dict": state}, strict)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """The state of the optimiser for all signals, on every process."""
        state: dict[str, Any] = super().optimizer_state(optimizer)
        return {**state, "state": self._of_optimizer(state["state"], self.gather)}

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Loads the state of this process's signals from a checkpoint of all signals."""
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


if SignalsStrategy.strategy_name not in StrategyRegistry.available_strategies():
    StrategyRegistry.register(
        SignalsStrategy.strategy_name, SignalsStrategy, description="each process fits its own signals"
    )
