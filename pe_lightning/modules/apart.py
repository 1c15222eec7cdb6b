"""A module that holds some of its signals only, while several processes fit different ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from pe_lightning.distributed import SHARED, Process, SignalsStrategy, gather_signals
from pe_lightning.errors import InputError
from pe_lightning.metrics import SignalPSNR

if TYPE_CHECKING:
    from pe_lightning.modules.base import CoordinateModule

__all__ = ["clip_norm", "hold_own", "hold_together", "per_signal"]


def hold_own(module: CoordinateModule, strategy: object) -> None:
    """Lets go of the signals of other processes, if the strategy gives each process its own; not twice.

    Raises:
        InputError: If there are fewer signals than processes, or the signals share something that is trained.
    """
    if not isinstance(strategy, SignalsStrategy) or module.own is not None:
        return
    signals = module.require_info().num_signals
    if signals < strategy.world_size:
        raise InputError(
            f"strategy signals gives each process signals of its own, but there are {signals} for {strategy.world_size} "
            f"processes; set --trainer.devices {signals} or less, or --trainer.strategy ddp, which shares each signal"
        )
    if any(parameter.requires_grad for parameter in module.encoding.parameters()):
        raise InputError("strategy signals exchanges no gradients, but all signals train one encoder; set strategy ddp")
    module.own = Process(strategy.global_rank, strategy.world_size).share(signals)
    for _, tensor in per_signal(module):
        tensor.data = tensor.data[module.own].clone()
    _count(module, module.own.stop - module.own.start, together=False)


def hold_together(module: CoordinateModule, world_size: int) -> None:
    """Gathers all signals on every process; nothing where they are there."""
    if module.own is None:
        return
    signals = module.require_info().num_signals
    shares = [Process(rank, world_size).share(signals) for rank in range(world_size)]
    sizes = [share.stop - share.start for share in shares]
    for _, tensor in per_signal(module):
        tensor.data = gather_signals(tensor.data, sizes)
    module.own = None
    _count(module, signals, together=True)


def clip_norm(module: CoordinateModule, optimizer: torch.optim.Optimizer, value: float) -> None:
    """Scales all gradients so that their norm, over the signals of all processes, is ``value`` at most."""
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    squared = get_total_norm([p.grad for p in parameters]).square()
    norm = module.trainer.strategy.reduce(squared, reduce_op="sum").sqrt()
    clip_grads_with_norm_(parameters, value, norm)


def per_signal(module: CoordinateModule) -> Iterator[tuple[str, Tensor]]:
    """The parameters and buffers that hold one entry per signal, by name."""
    named = [*module.named_parameters(), *module.named_buffers()]
    yield from ((name, tensor) for name, tensor in named if not name.startswith((SHARED, "train_psnr", "test_psnr")))


def _count(module: CoordinateModule, signals: int, together: bool) -> None:
    device = next(module.parameters()).device
    # scores of different signals are not summed over processes
    module.train_psnr, module.test_psnr = (SignalPSNR(signals, sync_on_compute=together).to(device) for _ in range(2))
