r"""The squared error of a linear layer on a fixed grid, and its gradient, through the Gram matrices of the axes.

With :math:`G_a = \Psi_a^T \Psi_a` the gradient of :math:`\|W \times_1 \Psi_1 \dots \times_D \Psi_D - Y\|^2` is
:math:`2(W \times_1 G_1 \dots \times_D G_D - Y \times_1 \Psi_1^T \dots \times_D \Psi_D^T)`, whose last term is computed once.
A step then takes half of the multiplications through the samples if there are as many features as samples, and fewer if
there are more samples. Features that overlap with a few neighbours have a banded Gram matrix, multiplied in blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from pe_lightning.linalg import Banded, contraction_order, full_precision, mode_product, mode_products
from pe_lightning.signals.blocks import grid_blocks

MIN_BANDED_FEATURES_CPU = 128
"""Features of an axis from which matrices are stored in blocks on a CPU."""
MIN_BANDED_FEATURES = 1024
"""The same on other devices, where starting a small product takes longer than computing it."""
MAX_BLOCK_DENSITY = 0.5
"""Largest share of entries in blocks; matrices with more are stored densely."""
MAX_STEPS_BETWEEN_EVALUATIONS = 50
"""Steps after which the error is evaluated through the samples again; the first intervals are 1, 2, 4, ..."""


class GramErrors:
    r"""The squared error per signal as a function of the weights, differentiable once.

    The gradient equals the gradient through the samples to rounding. The error itself cannot be computed from Gram matrices
    in float32, as :math:`\|Y\|^2` and the terms that are subtracted from it nearly cancel. It is evaluated through the
    samples from time to time, at weights :math:`W_0`, and in between as

    .. math:: E(W) = E(W_0) + \langle W - W_0, g_0 + g \rangle, \qquad g = \tfrac12 \nabla E(W),

    which is exact for a quadratic function and sums only differences, down to float32's rounding of the last evaluation.

    Args:
        features: Features of each axis, ``(N_a, K_a)``.
        target: ``(S, C, N_1, ..., N_D)``.
    """

    def __init__(self, features: Sequence[Tensor], target: Tensor) -> None:
        self.features = list(features)
        self.rows = [_compact(rows) for rows in features]
        self.target = target
        with full_precision(target.device):
            # sums over the samples in float64: rounding errors here would last for the whole fit
            operators = zip(self.features, self.rows, strict=True)
            grams = {axis: _gram_if_cheaper(dense, rows) for axis, (dense, rows) in enumerate(operators)}
            self.grams = {axis: gram for axis, gram in grams.items() if gram is not None}
            self.axes = tuple(self.grams)
            adjoints = {axis: features[axis].double().T for axis in self.axes}
            self.projected = torch.stack([_project(y.double(), adjoints).to(target.dtype) for y in target])
        sizes = [rows.shape for rows in features]
        order = contraction_order([k for _, k in sizes], [n for n, _ in sizes])
        self.sampled = [axis for axis in order if axis not in self.axes]
        self._at: tuple[Tensor, Tensor, Tensor] | None = None
        self._since, self._period = 0, 1
        self._scratch: list[Tensor] = []

    def __call__(self, weight: Tensor, exact: bool = False) -> Tensor:
        """The squared error of each signal, ``(S,)``, for weights ``(S, C, K_1, ..., K_D)``, autocast or not.

        Evaluated through the samples if ``exact``, else at every 50th call.
        """
        squared: Tensor = _SquaredErrors.apply(weight, self, exact)  # type: ignore[no-untyped-call]
        return squared

    def evaluate(self, weight: Tensor, exact: bool) -> tuple[Tensor, Tensor]:
        """The squared errors, ``(S,)``, and half their gradient."""
        with full_precision(weight.device):
            half, changes = torch.empty_like(weight), []
            anew = self._at is None or exact or self._since >= self._period
            for some in _groups(weight):
                self._half_gradient(weight[some], some, half[some])
                if not anew:
                    changes.append(self._change(weight[some], some, half[some]))
            if anew:
                squared = self.through_samples(weight)
                self._at = (weight.clone(), half, squared.clone())  # autograd marks its inputs
                self._since, self._period = 0, min(2 * self._period, MAX_STEPS_BETWEEN_EVALUATIONS)
            else:
                assert self._at is not None
                start = self._at[2]  # smaller than its rounding error is not known before the next evaluation
                squared = torch.maximum(start + torch.cat(changes), torch.finfo(start.dtype).eps * start)
            self._since += 1
        return squared, half

    def _half_gradient(self, weight: Tensor, some: slice, out: Tensor) -> None:
        x = weight
        for axis in self.sampled:
            x = mode_product(x, self.features[axis], 2 + axis)
        for axis in reversed(self.axes):  # the last axis first: one large product into contiguous memory
            x = mode_product(x, self.grams[axis], 2 + axis)
        if not self.sampled:
            torch.sub(x, self.projected[some], out=out)
            return
        x -= self.projected[some]
        for axis in reversed(self.sampled):
            x = mode_product(x, self.features[axis].T, 2 + axis)
        out.copy_(x)

    def _change(self, weight: Tensor, some: slice, half: Tensor) -> Tensor:
        """Change of the errors of some signals since the weights where they were evaluated last, ``(s,)``."""
        assert self._at is not None
        start, slope, _ = self._at
        if not self._scratch:  # allocating memory in every step would take longer than the sums
            self._scratch = [torch.empty_like(weight) for _ in range(2)]
        one, two = (scratch[: len(weight)] for scratch in self._scratch)
        torch.sub(weight, start[some], out=one)
        return _total(one.mul_(torch.add(slope[some], half, out=two)))

    def through_samples(self, weight: Tensor) -> Tensor:
        """The squared errors as they are defined, ``(S,)``."""
        errors = mode_products(weight, self.rows).sub_(self.target)
        return _total(errors.square_())


class _SquaredErrors(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, weight: Tensor, errors: GramErrors, exact: bool) -> Tensor:
        squared, half = errors.evaluate(weight, exact)
        ctx.save_for_backward(half)
        return squared

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (half,) = ctx.saved_tensors
        return half * (2 * gradient).reshape(-1, *[1] * (half.ndim - 1)), None, None


def _groups(weight: Tensor) -> list[slice]:
    signals = len(weight)
    bytes_per_signal = weight.element_size() * math.prod(weight.shape[1:])
    # bytes of the weights of signals that are processed together on a CPU, so that they stay in its cache
    count = max(1, (1 << 20) // max(bytes_per_signal, 1)) if weight.device.type == "cpu" else signals
    return [some for (some,) in grid_blocks([signals], [count])]


def _compact(features: Tensor) -> Tensor | Banded:
    """The features in blocks, if most entries are zero to rounding."""
    least = MIN_BANDED_FEATURES_CPU if features.device.type == "cpu" else MIN_BANDED_FEATURES
    return (features.shape[1] >= least and Banded.from_dense(features, _negligible(features), MAX_BLOCK_DENSITY)) or features


def _gram(features: Tensor, rows: Tensor | Banded) -> Tensor | Banded:
    """The Gram matrix ``(K, K)`` in the dtype of the features, from sums in float64; banded where possible."""
    if not isinstance(rows, Banded):
        precise = features.double()
        return (precise.T @ precise).to(features.dtype)
    gram = rows.to(torch.float64).gram().to(features.dtype)
    return Banded.from_dense(gram, _negligible(features), MAX_BLOCK_DENSITY, width=32) or gram


def _gram_if_cheaper(features: Tensor, rows: Tensor | Banded) -> Tensor | Banded | None:
    samples, count = features.shape
    gram = _gram(features, rows) if isinstance(rows, Banded) else None
    entries = count**2 * (gram.density if isinstance(gram, Banded) else 1)
    if entries >= 2 * samples * count:
        return None
    return _gram(features, rows) if gram is None else gram


def _negligible(values: Tensor) -> float:
    return torch.finfo(values.dtype).eps / 128


def _project(target: Tensor, adjoints: dict[int, Tensor]) -> Tensor:
    for axis, adjoint in adjoints.items():
        target = mode_product(target, adjoint, 1 + axis)
    return target


def _total(x: Tensor) -> Tensor:
    """The sum per signal, ``(S, ...)`` -> ``(S,)``: rows of the last axis in its dtype, sums of rows in float64.

    The rounding error of one long float32 sum would be too large for the differences of :meth:`GramErrors.evaluate`.
    """
    return x.sum(-1).flatten(1).sum(1, dtype=torch.float64).to(x.dtype)
