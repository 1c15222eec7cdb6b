"""The option ``compile``: :func:`torch.compile` of the errors of a training step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from types import FunctionType
from typing import Protocol

import torch
from torch import Tensor

from pe_lightning.errors import InputError, paragraph
from pe_lightning.signals.batches import GridBatch, PointBatch


class Errors(Protocol):
    """What computes the errors of a batch."""

    @property
    def device(self) -> torch.device: ...

    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        """Prediction minus truth."""


class CompiledErrors:
    """The method ``errors`` of a step and its gradient, compiled once for each shape of a batch.

    A shape has the same program whatever batches came before, so that a resumed fit reaches the same weights.
    """

    @cached_property
    def _compute(self) -> Callable[..., Tensor]:
        # torch.compile counts the programs of a code object over all modules of a process, and allows 8
        own = FunctionType(_errors.__code__.replace(), globals(), _errors.__name__)
        compute: Callable[..., Tensor] = torch.compile(own, fullgraph=True, dynamic=False)
        return compute

    def __init__(self) -> None:
        self._is_filled = False

    def __call__(self, step: Errors, batch: GridBatch | PointBatch) -> Tensor:
        """The errors of a training batch; arguments as of ``step.errors``."""
        if not self._is_filled:
            # a program that also computes what the step holds would be another one, with other rounding errors
            with torch.no_grad(), torch.random.fork_rng([] if step.device.index is None else [step.device]):
                step.errors(batch)
            self._is_filled = True
        with _explained("torch.compile does not take this model as a whole, or its batches have more than 8 shapes"):
            return self._compute(step, batch)


def _errors(step: Errors, batch: GridBatch | PointBatch) -> Tensor:
    return step.errors(batch)


def check_compiler(device: torch.device) -> None:
    """Compiles a trivial function for a device, before the work of a fit."""
    with _explained(
        "torch.compile needs a C++ compiler, such as of apt install g++, or the one that the variable CXX names"
    ):
        torch.compile(lambda x: x + 1, fullgraph=True, dynamic=False)(torch.ones(2, device=device))


@contextmanager
def _explained(reason: str) -> Iterator[None]:
    """Turns exceptions of the compiler into an :class:`InputError`."""
    try:
        yield
    except RuntimeError as error:
        if not type(error).__module__.startswith("torch._"):
            raise
        text = paragraph(str(error).partition("Set TORCHDYNAMO_VERBOSE")[0], 500).rstrip(". ")
        raise InputError(f"compile: {reason} ({text}); fix that, or leave out --model.compile") from error
