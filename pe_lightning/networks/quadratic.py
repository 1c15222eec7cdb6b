r"""The squared error of a linear layer at samples of a grid, and its gradient, without autograd.

With :math:`G_a = \Psi_a^T \Psi_a` the gradient of :math:`\|W \times_1 \Psi_1 \dots \times_D \Psi_D - Y\|^2` is
:math:`2(W \times_1 G_1 \dots \times_D G_D - Y \times_1 \Psi_1^T \dots \times_D \Psi_D^T)`, whose last term is computed once.
A step then takes half of the multiplications through the samples if there are as many features as samples, and fewer if
there are more samples. Features that interpolate have a diagonal Gram matrix. Axes with more features than samples, and all
axes if only some samples of the grid are known, are multiplied by their features and by the transposed features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from pe_lightning.linalg import Call, contraction_order, full_precision, mode_product, mode_product_calls, mode_products
from pe_lightning.signals.blocks import grid_blocks


class Group(NamedTuple):
    """Signals that are processed together: the calls for half their gradient, and their errors if these are computed."""

    signals: slice
    calls: list[Call]
    errors: Tensor | None


class QuadraticErrors:
    """The squared error per signal as a function of the weights, differentiable once.

    The gradient equals the gradient through the samples to rounding. The error itself is computed through the samples: from
    Gram matrices in float32 it would be a difference of terms that nearly cancel.

    Args:
        features: Features of each axis, ``(N_a, K_a)``.
        target: ``(S, C, N_1, ..., N_D)``; any finite values where the ``mask`` is false.
        mask: True for known samples, ``(S or 1, N_1, ..., N_D)``; ``None``: all.
    """

    def __init__(self, features: Sequence[Tensor], target: Tensor, mask: Tensor | None = None) -> None:
        self.mask = None if mask is None else mask.unsqueeze(1).to(target.dtype)
        self.features, self.target = list(features), target
        with full_precision(target.device):
            grams = {} if mask is not None else {axis: _gram_if_cheaper(rows) for axis, rows in enumerate(features)}
            self.grams = {axis: gram for axis, gram in grams.items() if gram is not None}
            self.axes = tuple(self.grams)
            # sums over the samples in float64: rounding errors here would last for the whole fit
            adjoints = {axis: features[axis].double().T for axis in self.axes}
            self.projected = torch.stack([_project(y.double(), adjoints).to(target.dtype) for y in target])
        sizes = [rows.shape for rows in features]
        order = contraction_order([k for _, k in sizes], [n for n, _ in sizes])
        self.sampled = [axis for axis in order if axis not in self.axes]
        self._groups: list[Group] = []
        self._address: int | None = None  # of the weights that the calls of the groups read
        self._half = torch.empty(0, device=target.device)

    def __call__(self, weight: Tensor) -> Tensor:
        """The squared error of each signal, ``(S,)``, for weights ``(S, C, K_1, ..., K_D)``, autocast or not."""
        squared: Tensor = _SquaredErrors.apply(weight, self)  # type: ignore[no-untyped-call]
        return squared

    def scaled_gradient(self, weight: Tensor, factor: float) -> Tensor:
        """A factor times half the gradient of the sum of the errors, bit for bit as by autograd, without the errors.

        Its memory is overwritten by the next call.
        """
        with full_precision(weight.device):
            for group in self._bind(weight):
                for function, inputs, out in group.calls:
                    function(*inputs, out=out)
            return torch.mul(self._half, factor, out=self._half)

    def evaluate(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The squared errors, ``(S,)``, and half their gradient."""
        parts = []
        with full_precision(weight.device):
            for _, calls, errors in self._bind(weight):
                for function, inputs, out in calls:
                    function(*inputs, out=out)
                if errors is not None:
                    parts.append(_total(errors.square()))
            if not parts:  # Gram matrices of all axes: the errors themselves are not formed
                parts.append(_total(mode_products(weight, self.features).sub_(self.target).square_()))
            return torch.cat(parts), self._half.clone()

    def _bind(self, weight: Tensor) -> list[Group]:
        """The groups, whose calls read these weights: allocating or slicing memory takes longer than small products."""
        if self._address != weight.data_ptr():
            self._half = torch.empty_like(weight, requires_grad=False)
            self._groups, count = [], len(weight)
            memory: dict[tuple[int, ...], Tensor] = {}  # of intermediate results, the same for all groups
            if weight.device.type == "cpu":  # groups whose weights stay in its cache
                count = max(1, (1 << 20) // max(weight.element_size() * math.prod(weight.shape[1:]), 1))
            for (signals,) in grid_blocks([len(weight)], [count]):
                self._groups.append(self._group(weight[signals], signals, self._half[signals], memory))
            self._address = weight.data_ptr()
        return self._groups

    def _group(self, x: Tensor, signals: slice, out: Tensor, memory: dict[tuple[int, ...], Tensor]) -> Group:
        before = [(self.features[axis], 2 + axis) for axis in self.sampled]
        # the last axis first: one large product into contiguous memory
        before += [(self.grams[axis], 2 + axis) for axis in reversed(self.axes)]
        products = [*before, *((self.features[axis].T, 2 + axis) for axis in reversed(self.sampled))]
        calls: list[Call] = []
        errors = None
        for number, (matrix, axis) in enumerate(products, 1):
            shape = (*x.shape[:axis], matrix.shape[0], *x.shape[axis + 1 :])
            are_errors = number == len(before) and not self.axes
            key = (-1 if are_errors else number % 2, *shape)
            if number < len(products) and key not in memory:
                memory[key] = torch.empty(shape, dtype=out.dtype, device=out.device)
            result = out if number == len(products) else memory[key]
            calls += mode_product_calls(x, matrix, axis, result)
            x = result
            if number == len(before):
                calls.append((torch.sub, (x, self.projected[signals]), x))
                if self.mask is not None:
                    calls.append((torch.mul, (x, self.mask if len(self.mask) == 1 else self.mask[signals]), x))
                errors = x if are_errors else None
        return Group(signals, calls, errors)


class _SquaredErrors(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, weight: Tensor, errors: QuadraticErrors) -> Tensor:
        squared, half = errors.evaluate(weight)
        ctx.save_for_backward(half)
        return squared

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (half,) = ctx.saved_tensors
        return half * (2 * gradient).reshape(-1, *[1] * (half.ndim - 1)), None


def _gram_if_cheaper(features: Tensor) -> Tensor | None:
    """The Gram matrix ``(K, K)`` of features ``(N, K)``, its diagonal ``(K,)`` if that is all; or ``None``.

    Sums are in float64, and the result in the dtype of the features.
    """
    samples, count = features.shape
    if count >= 2 * samples:
        return None
    matrix = features.double().T @ features.double()
    diagonal = matrix.diagonal()
    negligible = torch.finfo(features.dtype).eps / 128 * diagonal.amax()
    if bool(((matrix - diagonal.diag()).abs() <= negligible).all()):
        return diagonal.to(features.dtype)
    return matrix.to(features.dtype)


def _project(target: Tensor, adjoints: dict[int, Tensor]) -> Tensor:
    for axis, adjoint in adjoints.items():
        target = mode_product(target, adjoint, 1 + axis)
    return target


def _total(x: Tensor) -> Tensor:
    """The sum per signal, ``(S, ...)`` -> ``(S,)``: rows of the last axis in its dtype, sums of rows in float64."""
    return x.sum(-1).flatten(1).sum(1, dtype=torch.float64).to(x.dtype)
