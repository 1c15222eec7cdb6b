"""Many independent signals on several devices: each process fits its own, and none waits for another.

    pe-lightning fit --config ... --trainer.devices 4 --trainer.strategy signals

The parameters are gathered where they leave the processes: in checkpoints and at the end of a fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy, StrategyRegistry
from torch import Tensor
from torch.optim import Optimizer

from pe_lightning.blocks import Block

__all__ = ["Process", "SignalsStrategy", "gather_signals", "own_signals"]

SHARED = "encoding."
"""Where a module keeps what all signals share."""


@dataclass(frozen=True)
class Process:
    """Which of several processes this is.

    Args:
        rank: Its number, from 0.
        world_size: How many there are.
    """

    rank: int = 0
    world_size: int = 1

    def share(self, count: int) -> slice:
        """This process's part of ``count`` things in a row; parts differ by at most one, and may be empty.

        >>> [Process(rank, 3).share(7) for rank in range(3)]
        [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
        """
        return slice(self.rank * count // self.world_size, (self.rank + 1) * count // self.world_size)

    def rows(self, box: Block) -> Block:
        """This process's part of a box: its share of the first axis.

        >>> Process(1, 2).rows((slice(4, 10), slice(0, 5)))
        (slice(7, 10, None), slice(0, 5, None))
        """
        own = self.share(box[0].stop - box[0].start)
        return (slice(box[0].start + own.start, box[0].start + own.stop), *box[1:])


class SignalsStrategy(DDPStrategy):
    """Processes as in DDP, but no gradient is exchanged: each holds the parameters of its own signals only.

    Its results are those of one process, for any number of signals from the number of processes on.
    """

    strategy_name = "signals"

    def configure_ddp(self) -> None:
        """Leaves the module as it is."""

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """The parameters of all signals, on every process."""
        state = super().lightning_module_state_dict()
        sizes = self._sizes()
        if sizes is None:
            return state
        return {name: value if name.startswith(SHARED) else gather_signals(value, sizes) for name, value in state.items()}

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Takes the parameters of this process's signals from a checkpoint of all."""
        sizes = self._sizes()
        if sizes is not None:
            own = self._own(sizes)
            state = checkpoint["state_dict"]
            part = {name: value if name.startswith(SHARED) else value[own] for name, value in state.items()}
            checkpoint = {**checkpoint, "state_dict": part}
        super().load_model_state_dict(checkpoint, strict)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """The state of the optimiser for all signals, on every process."""
        state = super().optimizer_state(optimizer)
        sizes = self._sizes()
        if sizes is None:
            return state
        gathered: dict[str, Any] = dict(state)
        gathered["state"] = {
            key: {name: gather_signals(value, sizes) if _is_per_signal(value) else value for name, value in entry.items()}
            for key, entry in gathered["state"].items()
        }
        return gathered

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Takes the state of this process's signals from a checkpoint of all."""
        sizes = self._sizes()
        if sizes is not None:
            own = self._own(sizes)
            states = []
            for state in checkpoint["optimizer_states"]:
                entries = {
                    key: {name: value[own] if _is_per_signal(value) else value for name, value in entry.items()}
                    for key, entry in state["state"].items()
                }
                states.append({**state, "state": entries})
            checkpoint = {**checkpoint, "optimizer_states": states}
        super().load_optimizer_state_dict(checkpoint)

    def _sizes(self) -> list[int] | None:
        """How many signals each process holds; ``None`` where each holds all of them."""
        own: slice | None = getattr(self.lightning_module, "own", None)
        if own is None:
            return None
        total = self.lightning_module.require_info().num_signals  # type: ignore[union-attr, operator]
        shares = (Process(rank, self.world_size).share(total) for rank in range(self.world_size))
        return [share.stop - share.start for share in shares]

    def _own(self, sizes: list[int]) -> slice:
        first = sum(sizes[: self.global_rank])
        return slice(first, first + sizes[self.global_rank])


def own_signals(strategy: object, num_signals: int) -> slice | None:
    """The signals of this process, or ``None`` where every process has all of them."""
    if not isinstance(strategy, SignalsStrategy):
        return None
    return Process(strategy.global_rank, strategy.world_size).share(num_signals)


def gather_signals(part: Tensor, sizes: list[int]) -> Tensor:
    """Joins what the processes hold along the first axis, in the order of their ranks; on all of them.

    Args:
        part: ``(sizes[rank], ...)``.
        sizes: How many each process holds.
    """
    widest = max(sizes)
    padded = part.new_zeros(widest, *part.shape[1:])
    padded[: len(part)] = part.detach()
    every = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(every, padded)
    return torch.cat([other[:size] for other, size in zip(every, sizes, strict=True)])


def _is_per_signal(value: object) -> bool:
    """Whether an entry of an optimiser's state belongs to a parameter; the others are counters."""
    return isinstance(value, Tensor) and value.ndim > 0


if SignalsStrategy.strategy_name not in StrategyRegistry.available_strategies():
    StrategyRegistry.register(
        SignalsStrategy.strategy_name, SignalsStrategy, description="each process fits signals of its own"
    )
