"""The option ``compile``: :func:`torch.compile` of the errors of a training step, and what is refused in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from types import FunctionType
from typing import Protocol

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.compile import to_uncompiled
from torch import Tensor

from pe_lightning.errors import InputError, paragraph
from pe_lightning.signals.batches import GridBatch, PointBatch

WRAPPER = "_orig_mod."
"""Part of the names of parameters in a module that :func:`torch.compile` wraps."""


class ErrorsModule(Protocol):
    """A module that computes the errors of a batch."""

    @property
    def device(self) -> torch.device: ...

    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        """Prediction minus truth."""


class CompiledErrors:
    """The method ``errors`` of a module and its gradient, compiled once for each shape of a batch.

    A shape has the same program whatever batches came before, so that a resumed fit reaches the same weights. Copies, also
    in another process, compile anew.
    """

    @cached_property
    def _compute(self) -> Callable[..., Tensor]:
        # torch.compile counts the programs of a code object over all modules of a process, and allows 8
        own = FunctionType(_errors.__code__.replace(), globals(), _errors.__name__)
        compute: Callable[..., Tensor] = torch.compile(own, fullgraph=True, dynamic=False)
        return compute

    def __reduce__(self) -> tuple[type[CompiledErrors], tuple[()]]:
        return CompiledErrors, ()

    def __call__(self, module: ErrorsModule, batch: GridBatch | PointBatch) -> Tensor:
        """The errors of a training batch; arguments as of ``module.errors``."""

        def fill_caches() -> bool:
            # a program that also fills them would be another one, with other rounding errors
            with torch.no_grad(), torch.random.fork_rng([] if module.device.index is None else [module.device]):
                module.errors(batch)
            return True

        if batch.derived_from_axes is not None:
            batch.cached("compiled", fill_caches, of_axes=True)
        with _explained("torch.compile does not take this model as a whole, or its batches have more than 8 shapes"):
            return self._compute(module, batch)


def _errors(module: ErrorsModule, batch: GridBatch | PointBatch) -> Tensor:
    return module.errors(batch)


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


def refuse_compiled(module: LightningModule) -> None:
    """Refuses a module, or a part of it, that is wrapped by :func:`torch.compile`, and unwraps the module.

    A compiled LightningModule is compiled again in every step, as its steps depend on their number; a compiled part has
    other names of parameters, and is called by other methods than the compiled one.
    """
    try:
        to_uncompiled(module)  # Lightning has replaced its steps
    except ValueError:  # raised by Lightning for a module that is not compiled
        if not any(WRAPPER in name for name, _ in module.named_parameters()):
            return
    name = type(module).__name__
    option = f"; {name}(..., compile=True) compiles the function that is trained" if "compile" in module.hparams else ""
    raise InputError(f"torch.compile does not speed up {name} or a part of it under a Trainer: pass them without it{option}")
