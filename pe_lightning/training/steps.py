"""Training steps: errors of batches and gradients, with what stays the same between steps computed once.

A module makes its :class:`Step` from the first batch of a fit, and anew where an encoder has been frozen or trained since.
What a step holds goes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder
from pe_lightning.encoders.lookups import SparseLookup
from pe_lightning.errors import InputError, paragraph
from pe_lightning.linalg import without_autocast
from pe_lightning.networks import ComplexEnsemble, VmapEnsemble
from pe_lightning.networks.quadratic import QuadraticErrors
from pe_lightning.signals.batches import GridBatch, PointBatch


class Step:
    """The errors of :meth:`CoordinateModule.errors`, by autograd.

    Args:
        module: The :class:`~pe_lightning.training.CoordinateModule`, which is built.
        batch: The first batch; others are like it.
    """

    def __init__(self, module: Any, batch: GridBatch | PointBatch) -> None:
        self.module, self.networks = module, module.networks
        self.repeated = batch.repeated
        self.features_are_trained = self.networks.features_are_trained
        self._compiled = CompiledErrors() if module.compile_errors else None  # a program for each shape of a batch

    def fits(self, batch: GridBatch | PointBatch) -> bool:
        """Whether the step is one for this batch, and for the parameters that are trained now."""
        return batch.repeated == self.repeated and self.networks.features_are_trained == self.features_are_trained

    @property
    def device(self) -> torch.device:
        device: torch.device = self.module.device
        return device

    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        """Output minus target, ``(S, M)``."""
        errors: Tensor = self.module.errors(batch)
        return errors

    def squared_errors(self, batch: GridBatch | PointBatch) -> Tensor:
        """The sum of squared errors of each signal, ``(S,)`` of the networks' targets, differentiable."""
        errors = self.errors(batch) if self._compiled is None else self._compiled(self, batch)
        with without_autocast(errors.device):  # half precision overflows at 65504
            squared: Tensor = torch.linalg.vecdot(errors, errors)
        return squared

    def set_gradients(self, batch: GridBatch | PointBatch) -> None:
        """Sets the gradients of the loss, of parameters that have none, without its value."""
        with self.module.trainer.precision_plugin.train_step_context():
            loss = self.module.loss_of(self.squared_errors(batch), batch)
        loss.backward()

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # a copy of the module makes its own


class OutputStep(Step):
    """Outputs of the networks at points; points and targets of a repeated batch are computed once.

    The derivatives of the errors by the outputs are written down, and autograd begins there. The tensors of the only network
    are taken without their leading axis, which would cost an operation each, forwards and backwards.
    """

    method = "forward"
    """The method of the networks that is called."""

    def __init__(self, module: Any, batch: GridBatch | PointBatch) -> None:
        super().__init__(module, batch)
        if self.networks.scaling is not None and self.method == "forward":
            self.method = "outputs"
        self._alone = _Alone(self.networks) if self.networks.num_signals == 1 and self._compiled is None else None
        encoders = getattr(module.encoding, "encoders", ())
        self._has_penalty = self.features_are_trained and any(type(one).penalty is not Encoder.penalty for one in encoders)
        self._known = self._prepare(batch) if self.repeated else None

    def fits(self, batch: GridBatch | PointBatch) -> bool:
        return super().fits(batch) and (self._alone is None or self._alone.is_current)

    def inputs(self, batch: GridBatch | PointBatch) -> tuple[Any, bool]:
        """What the method of the networks takes, and whether each signal has its own."""
        return for_each(coordinates_of(batch))

    def outputs(self, inputs: Any, each: bool) -> Tensor:
        """Outputs of the networks, ``(S, P, C)``."""
        outputs: Tensor = self.networks.call(self.method, inputs, each=each)
        return outputs

    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        inputs, each, targets = self._known or self._prepare(batch)
        errors: Tensor = (self.outputs(inputs, each) - targets).flatten(1)
        return errors

    def set_gradients(self, batch: GridBatch | PointBatch) -> None:
        if self._compiled is not None or self._has_penalty:
            super().set_gradients(batch)
            return
        inputs, each, targets = self._known or self._prepare(batch)
        with self.module.trainer.precision_plugin.train_step_context():
            if self._alone is None:
                outputs = self.outputs(inputs, each)
            else:
                outputs, targets = self._alone(self.method, inputs), targets[0]
        slopes = torch.sub(outputs.detach(), targets).mul_(2 * self.module.derivative_of_loss(batch))
        torch.autograd.backward(outputs, slopes.to(outputs.dtype))
        if self._alone is not None:
            self._alone.hand_over()

    def _prepare(self, batch: GridBatch | PointBatch) -> tuple[Any, bool, Tensor]:
        values = self.module.targets(batch)
        return *self.inputs(batch), values.reshape(len(values), -1, values.shape[-1])


class FeatureStep(OutputStep):
    """Fixed features of a repeated batch, computed once."""

    method = "respond"

    @torch.no_grad()
    def inputs(self, batch: GridBatch | PointBatch) -> tuple[Any, bool]:
        return for_each(self.module.encoding(coordinates_of(batch)))


class LookupStep(OutputStep):
    """Trained tables at the points of a repeated batch, as products with sparse matrices.

    Args:
        module: The module.
        batch: The batch.
        lookups: Of the points of all signals together where they share their features; else of the points that they share,
            or a stack.
    """

    method = "look_up"

    def __init__(self, module: Any, batch: GridBatch | PointBatch, lookups: list[list[SparseLookup]]) -> None:
        self.lookups, self.sets = lookups, len(batch.coords) if isinstance(batch, PointBatch) else 1
        super().__init__(module, batch)

    def inputs(self, batch: GridBatch | PointBatch) -> tuple[Any, bool]:
        return self.lookups, self.sets > 1

    def outputs(self, inputs: Any, each: bool) -> Tensor:
        if not self.networks.features_are_shared:
            return super().outputs(inputs, each)
        features: Tensor = self.module.encoding.from_lookups(inputs)
        inputs, each = for_each(features.reshape(self.sets, -1, features.shape[-1]))
        outputs: Tensor = self.networks.call("respond", inputs, each=each)
        return outputs


class AxisStep(Step):
    """A linear layer, and hidden layers, on fixed features of the axes, computed once for all batches of the same grid."""

    def __init__(self, module: Any, batch: GridBatch | PointBatch) -> None:
        super().__init__(module, batch)
        self.stack = ComplexEnsemble(self.networks)
        self._axes: Sequence[Tensor] | None = None
        self._features: list[Any] = []
        self._target = self.stack.target(batch) if self.repeated else None

    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        return self.stack.errors(batch, self._features_of(batch), self._target)

    def _features_of(self, batch: GridBatch | PointBatch) -> list[Any] | None:
        axes = None if isinstance(batch, PointBatch) and batch.index is None else batch.axes
        if axes is None:
            return None
        known = self._axes is not None and (
            self.repeated
            or torch.compiler.is_compiling()
            or all(x is y or torch.equal(x, y) for x, y in zip(axes, self._axes, strict=True))
        )
        if not known:
            self._axes, self._features = axes, self.stack.axis_features(batch)
        return self._features


class QuadraticStep(Step):
    """A single linear layer on fixed features of a repeated batch: the gradient by Gram matrices, without autograd."""

    def __init__(self, module: Any, batch: GridBatch | PointBatch, quadratic: QuadraticErrors) -> None:
        super().__init__(module, batch)
        self.network = ComplexEnsemble(self.networks).network
        self.quadratic, self.factor = quadratic, 2 * module.derivative_of_loss(batch)

    def squared_errors(self, batch: GridBatch | PointBatch) -> Tensor:
        return self.quadratic(self.network.weight)

    def set_gradients(self, batch: GridBatch | PointBatch) -> None:
        weight = self.network.weight
        weight.grad = self.quadratic.scaled_gradient(weight, self.factor)


class _Alone:
    """The network of the only signal: its tensors are views without the leading axis, with gradients of their own."""

    def __init__(self, networks: VmapEnsemble) -> None:
        self._network = networks.network
        self._places = []
        for name, tensor in networks.per_signal():
            path, _, attribute = name.rpartition(".")
            view = tensor.detach().squeeze(0).requires_grad_(tensor.requires_grad)
            self._places.append((vars(networks.network.get_submodule(path)), attribute, tensor, view))

    @property
    def is_current(self) -> bool:
        """Whether the views are of the memory of the tensors, and the same ones are trained."""
        return all(
            view.data_ptr() == tensor.data_ptr() and view.requires_grad == tensor.requires_grad
            for *_, tensor, view in self._places
        )

    def __call__(self, method: str, *inputs: Any) -> Tensor:
        """The result of a method of the network, whose parameters and buffers the views hide."""
        for attributes, name, _, view in self._places:
            attributes[name] = view
        try:
            found: Tensor = getattr(self._network, method)(*inputs)
        finally:
            for attributes, name, *_ in self._places:
                attributes.pop(name, None)
        return found

    def hand_over(self) -> None:
        """Gives the gradients of the views to the parameters."""
        for *_, tensor, view in self._places:
            if view.grad is not None:
                tensor.grad, view.grad = view.grad.unsqueeze(0), None


class CompiledErrors:
    """The method ``errors`` of a step and its gradient, compiled once for each shape of a batch.

    A shape has the same program whatever batches came before, so that a resumed fit reaches the same weights.
    """

    def __init__(self) -> None:
        # torch.compile counts the programs of a code object over all modules of a process, and allows 8
        own = FunctionType(_errors.__code__.replace(), globals(), _errors.__name__)
        self._compute: Callable[..., Tensor] = torch.compile(own, fullgraph=True, dynamic=False)
        self._is_filled = False

    def __call__(self, step: Any, batch: GridBatch | PointBatch) -> Tensor:
        """The errors of a training batch; arguments as of ``step.errors``."""
        if not self._is_filled:
            # a program that also computes what the step holds would be another one, with other rounding errors
            with torch.no_grad(), torch.random.fork_rng([] if step.device.index is None else [step.device]):
                step.errors(batch)
            self._is_filled = True
        with _explained("torch.compile does not take this model as a whole, or its batches have more than 8 shapes"):
            return self._compute(step, batch)


def _errors(step: Any, batch: GridBatch | PointBatch) -> Tensor:
    errors: Tensor = step.errors(batch)
    return errors


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


def for_each(x: Tensor) -> tuple[Tensor, bool]:
    """A tensor ``(S or 1, ...)`` as input of :meth:`VmapEnsemble.call`, and whether each signal has its own."""
    return (x, True) if len(x) > 1 else (x[0], False)


def coordinates_of(batch: GridBatch | PointBatch) -> Tensor:
    """The points of a batch, ``(S or 1, P, D)``."""
    if isinstance(batch, PointBatch):
        return batch.coords.to(batch.values.dtype)
    grid = torch.meshgrid(*[x.to(batch.values.dtype) for x in batch.axes], indexing="ij")
    return torch.stack(grid, -1).reshape(1, -1, len(batch.axes))
