r"""The squared error of a linear layer at samples of a grid, and its gradient, without autograd.

With :math:`G_a = \Psi_a^T \Psi_a` the gradient of :math:`\|W \times_1 \Psi_1 \dots \times_D \Psi_D - Y\|^2` is
:math:`2(W \times_1 G_1 \dots \times_D G_D - Y \times_1 \Psi_1^T \dots \times_D \Psi_D^T)`, whose last term is computed once.
A step then takes half of the multiplications through the samples if there are as many features as samples, and fewer if
there are more samples. Features that overlap with a few neighbours have a banded Gram matrix, multiplied in blocks, and
features that interpolate a diagonal one. Cosines and sines, rotated in pairs to be even and odd about the centre of the
grid, have a Gram matrix of two blocks. Axes with more features than samples, and all axes if only some samples of the grid
are known, are multiplied by their features and by the transposed features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from pe_lightning.linalg import (
    Band,
    Banded,
    Call,
    PairRotation,
    contraction_order,
    full_precision,
    mode_product,
    mode_product_calls,
    mode_products,
)
from pe_lightning.signals.blocks import grid_blocks

Factor: TypeAlias = Tensor | Banded | PairRotation
"""A matrix that multiplies an axis, or its diagonal."""

MIN_BANDED_FEATURES_CPU = 128
"""Features of an axis from which matrices are stored in blocks on a CPU."""
MIN_BANDED_FEATURES = 1024
"""The same on other devices, where starting a small product takes longer than computing it."""
MAX_BLOCK_DENSITY = 0.5
"""Largest share of entries in blocks; matrices with more are stored densely."""
MAX_ASYMMETRY = 1024
"""Largest difference of features from even and odd ones, in units of their rounding: phases of 1000 have that error."""


class Gram(NamedTuple):
    """The Gram matrix of an axis by its factors, the first of which is multiplied first, and its features in float64."""

    factors: tuple[Factor, ...]
    features: Tensor


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
        self.rows = [_compact(rows) for rows in features]
        self.grams: dict[int, Gram] = {}
        if mask is None:
            with full_precision(target.device):
                operators = zip(features, self.rows, strict=True)
                grams = {axis: _gram_if_cheaper(dense, rows) for axis, (dense, rows) in enumerate(operators)}
            self.grams = {axis: gram for axis, gram in grams.items() if gram is not None}
        self.target = target
        self.axes = tuple(self.grams)
        with full_precision(target.device):
            # sums over the samples in float64: rounding errors here would last for the whole fit
            adjoints = {axis: gram.features.T for axis, gram in self.grams.items()}
            self.projected = torch.stack([_project(y.double(), adjoints).to(target.dtype) for y in target])
        sizes = [rows.shape for rows in features]
        order = contraction_order([k for _, k in sizes], [n for n, _ in sizes])
        self.sampled = [axis for axis in order if axis not in self.axes]
        self.columns = {axis: _compact(features[axis].T) for axis in self.sampled}
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
            return torch.cat(parts) if parts else self.through_samples(weight), self._half.clone()

    def through_samples(self, weight: Tensor) -> Tensor:
        """The squared errors on a whole grid as they are defined, ``(S,)``."""
        errors = mode_products(weight, self.rows).sub_(self.target)
        return _total(errors.square_())

    def _bind(self, weight: Tensor) -> list[Group]:
        """The groups, whose calls read these weights: allocating or slicing memory takes longer than small products."""
        if self._address != weight.data_ptr():
            self._half = torch.empty_like(weight, requires_grad=False)
            self._groups, memory = [], _Memory(weight)
            for (signals,) in grid_blocks([len(weight)], [_signals_at_once(weight)]):
                self._groups.append(self._group(weight[signals], signals, self._half[signals], memory))
            self._address = weight.data_ptr()
        return self._groups

    def _group(self, x: Tensor, signals: slice, out: Tensor, memory: _Memory) -> Group:
        before: list[tuple[Factor, int]] = [(self.rows[axis], 2 + axis) for axis in self.sampled]
        # the last axis first: one large product into contiguous memory
        before += [(factor, 2 + axis) for axis in reversed(self.axes) for factor in self.grams[axis].factors]
        products = [*before, *((self.columns[axis], 2 + axis) for axis in reversed(self.sampled))]
        calls: list[Call] = []
        errors = None
        for number, (matrix, axis) in enumerate(products, 1):
            shape = (*x.shape[:axis], matrix.shape[0], *x.shape[axis + 1 :])
            are_errors = number == len(before) and not self.axes
            result = out if number == len(products) else memory.like(-1 if are_errors else number % 2, shape)
            calls += mode_product_calls(x, matrix, axis, result)
            x = result
            if number == len(before):
                calls.append((torch.sub, (x, self.projected[signals]), x))
                if self.mask is not None:
                    calls.append((torch.mul, (x, self.mask if len(self.mask) == 1 else self.mask[signals]), x))
                errors = x if are_errors else None
        return Group(signals, calls, errors)


class _Memory:
    """Memory of intermediate results by number, the same for all groups of signals."""

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._held: dict[tuple[int, ...], Tensor] = {}

    def like(self, number: int, shape: Sequence[int]) -> Tensor:
        key = (number, *shape)
        if key not in self._held:
            self._held[key] = torch.empty(tuple(shape), dtype=self._like.dtype, device=self._like.device)
        return self._held[key]


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


def _signals_at_once(weight: Tensor) -> int:
    bytes_per_signal = weight.element_size() * math.prod(weight.shape[1:])
    # bytes of the weights of signals that are processed together on a CPU, so that they stay in its cache
    return max(1, (1 << 20) // max(bytes_per_signal, 1)) if weight.device.type == "cpu" else len(weight)


def _min_banded(device: torch.device) -> int:
    return MIN_BANDED_FEATURES_CPU if device.type == "cpu" else MIN_BANDED_FEATURES


def _compact(features: Tensor) -> Tensor | Banded:
    """The features in blocks, if most entries are zero to rounding."""
    enough = features.shape[1] >= _min_banded(features.device)
    return (enough and Banded.from_dense(features, _negligible(features), MAX_BLOCK_DENSITY)) or features


def _gram(features: Tensor, rows: Tensor | Banded) -> Gram:
    """The Gram matrix ``(K, K)``, whose factors are in the dtype of the features, from sums in float64."""
    precise, dtype = features.double(), features.dtype
    if not isinstance(rows, Banded) and (gram := _even_and_odd(precise, dtype)) is not None:
        return gram
    matrix = rows.to(torch.float64).gram() if isinstance(rows, Banded) else precise.T @ precise
    diagonal = matrix.diagonal()
    if bool(((matrix - diagonal.diag()).abs() <= _negligible(features) * diagonal.amax()).all()):
        return Gram((diagonal.to(dtype),), precise)
    banded = None
    if isinstance(rows, Banded):
        banded = Banded.from_dense(matrix.to(dtype), _negligible(features), MAX_BLOCK_DENSITY, width=16)
    return Gram((banded or matrix.to(dtype),), precise)


def _even_and_odd(features: Tensor, dtype: torch.dtype) -> Gram | None:
    """The Gram matrix of cosines and sines in pairs, rotated to be even and odd about the centre of the samples.

    Even and odd features are orthogonal. ``None`` if the features ``(N, K)`` are too few, or not such pairs.
    """
    half, rest = divmod(features.shape[1], 2)
    if rest or features.shape[1] < _min_banded(features.device):
        return None
    first, second = torch.split(features, half, 1)
    mirrored_first, mirrored_second = (values.flip(0) for values in (first, second))
    # the angle with the smallest odd part of the even feature and even part of the odd feature, in least squares
    mixed = (first * mirrored_second + second * mirrored_first).sum(0)
    angles = torch.atan2(mixed, (first * mirrored_first - second * mirrored_second).sum(0)) / 2
    cosines, sines = angles.cos(), angles.sin()
    rotated = cosines * first + sines * second, cosines * second - sines * first
    even, odd = rotated[0] + rotated[0].flip(0), rotated[1] - rotated[1].flip(0)
    even, odd = even / 2, odd / 2
    rounding = MAX_ASYMMETRY * torch.finfo(dtype).eps * features.abs().amax()
    if any(bool((x - y).abs().amax() > rounding) for x, y in zip((even, odd), rotated, strict=True)):
        return None
    blocks = [(values.T @ values).to(dtype) for values in (even, odd)]
    matrix = Banded([Band(0, 0, blocks[0]), Band(half, half, blocks[1])], (2 * half, 2 * half))
    rotation = PairRotation(cosines.to(dtype), sines.to(dtype))
    precise = torch.cat([cosines * even - sines * odd, sines * even + cosines * odd], 1)
    return Gram((rotation, matrix, rotation.transposed), precise)


def _gram_if_cheaper(features: Tensor, rows: Tensor | Banded) -> Gram | None:
    samples, count = features.shape
    if not isinstance(rows, Banded) and count >= 2 * samples:
        return None
    gram = _gram(features, rows)
    return None if sum(_operations(factor) for factor in gram.factors) >= 2 * samples * count else gram


def _operations(factor: Factor) -> float:
    """Multiplications per entry of the other axes."""
    if isinstance(factor, PairRotation):
        return 2.0 * factor.shape[0]
    return factor.density * math.prod(factor.shape) if isinstance(factor, Banded) else factor.numel()


def _negligible(values: Tensor) -> float:
    return torch.finfo(values.dtype).eps / 128


def _project(target: Tensor, adjoints: dict[int, Tensor]) -> Tensor:
    for axis, adjoint in adjoints.items():
        target = mode_product(target, adjoint, 1 + axis)
    return target


def _total(x: Tensor) -> Tensor:
    """The sum per signal, ``(S, ...)`` -> ``(S,)``: rows of the last axis in its dtype, sums of rows in float64."""
    return x.sum(-1).flatten(1).sum(1, dtype=torch.float64).to(x.dtype)
