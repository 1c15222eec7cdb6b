"""Signals that each process fits alone, under ``--trainer.strategy signals``."""

from __future__ import annotations

from lightning.pytorch import Trainer
from torch import Tensor

from pe_lightning.distributed import SignalsStrategy
from pe_lightning.errors import InputError
from pe_lightning.networks import Stack

__all__ = ["SignalShard"]


class SignalShard:
    """The share of the signals that this process fits.

    Args:
        strategy: The strategy of the Trainer.
        num_signals: Number of signals of all processes.

    Raises:
        InputError: If there are fewer signals than processes.
    """

    def __init__(self, strategy: SignalsStrategy, num_signals: int) -> None:
        if num_signals < strategy.world_size:
            raise InputError(
                f"strategy signals gives each process signals of its own, but there are {num_signals} for "
                f"{strategy.world_size} processes; set --trainer.devices {num_signals} or less, or --trainer.strategy ddp, "
                "which shares each signal"
            )
        self.strategy = strategy
        self.num_signals = num_signals
        self.own = strategy.shard(num_signals)

    @classmethod
    def of(cls, trainer: Trainer, networks: Stack) -> SignalShard | None:
        """Removes the signals of other processes from the networks, if the strategy gives each process its own.

        Returns:
            The share of this process; ``None`` under another strategy.

        Raises:
            InputError: If all signals train one encoder, or there are fewer signals than processes.
        """
        if not isinstance(trainer.strategy, SignalsStrategy):
            return None
        shard = cls(trainer.strategy, networks.num_signals)
        if networks.features_are_trained and networks.features_are_shared:
            raise InputError("strategy signals exchanges no gradients, but all signals train one encoder; set strategy ddp")
        networks.replace_signals(lambda tensor: tensor[shard.own].clone())
        return shard

    def gather(self, networks: Stack) -> None:
        """Restores the signals of all processes, as fitted, on every process."""
        networks.replace_signals(lambda tensor: self.strategy.gather(tensor, self.num_signals))

    def sum(self, value: Tensor) -> Tensor:
        """The sum of a value over all processes."""
        total: Tensor = self.strategy.reduce(value, reduce_op="sum")
        return total
