r"""Stable ranks :math:`\|A\|_F^2 / \|A\|_2^2` of the features and hidden layers of a module, over training coordinates.

Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, §4 and Fig. 8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from pe_lightning.data.batches import GridBatch, PointBatch
from pe_lightning.data.coordinates import point_coordinates
from pe_lightning.errors import InputError
from pe_lightning.modules import ComplexLinear, CoordinateModule, SimpleMLP
from pe_lightning.modules.mlp import ACTIVATIONS, SignalMLP

__all__ = ["feature_rank", "hidden_layers", "layer_ranks", "sample_coordinates", "stable_rank"]

HELD = 1 << 24
"""Numbers of a hidden layer that are held at once: signals are taken in turns of that size."""


def stable_rank(matrix: Tensor) -> Tensor:
    """Stable ranks of matrices, in float64: ``(*batch, P, K)`` -> ``(*batch,)``.

    That of zero is 0; NaN where a number is not finite.
    """
    wide = matrix.cpu() if matrix.device.type == "mps" else matrix  # which has no float64
    wide = wide.double()
    return _of_gram(wide.mT @ wide if wide.shape[-1] <= wide.shape[-2] else wide @ wide.mT)


def _of_gram(gram: Tensor) -> Tensor:
    """Trace by largest eigenvalue, ``(*batch, n, n)`` -> ``(*batch,)``."""
    finite = gram.isfinite().flatten(-2).all(-1)
    largest = torch.linalg.eigvalsh(torch.where(finite[..., None, None], gram, 0.0))[..., -1]
    ranks = torch.where(largest > 0, gram.diagonal(dim1=-2, dim2=-1).sum(-1) / largest, 0.0)
    return torch.where(finite, ranks, torch.nan)


def sample_coordinates(batch: GridBatch | PointBatch, points: int) -> Tensor:
    """Coordinates of all samples of a batch, or of ``points`` of them, always the same: ``(S or 1, P, D)``."""
    grid = batch.axes if isinstance(batch, GridBatch) else None
    count = math.prod(len(x) for x in grid) if grid is not None else batch.values.shape[1]
    chosen = np.arange(count) if count <= points else np.sort(np.random.default_rng(0).choice(count, points, replace=False))
    index = torch.from_numpy(chosen).to(batch.values.device)
    return batch.coords[:, index] if isinstance(batch, PointBatch) else point_coordinates(batch.axes, index)[None]


@torch.no_grad()
def feature_rank(module: CoordinateModule, batch: GridBatch | PointBatch, coords: Tensor) -> Tensor:
    """Stable rank of the encoded coordinates, ``(S or 1,)``.

    That of a Kronecker product is the product of those of its factors: of a complex encoding on a training grid it is
    computed over the whole grid, from the axes. At scattered points it is that of the sample.

    Args:
        module: A built module.
        batch: All training samples.
        coords: Some of their coordinates, ``(S or 1, P, D)``.
    """
    if isinstance(module, SimpleMLP):
        return stable_rank(module.encoding(coords))
    encoding = _linear(module).encoding
    if isinstance(batch, GridBatch):
        ranks = [stable_rank(features) for features in encoding.axis_features(batch.axes)]
        return torch.stack(ranks).prod(0, keepdim=True)
    if math.prod(encoding.num_features) <= coords.shape[1]:
        return stable_rank(encoding(coords))
    # the Gram matrix of rows of a Kronecker product is the elementwise product of those of the factors
    factors = [f.cpu().double() if f.device.type == "mps" else f.double() for f in encoding.point_features(coords)]
    return _of_gram(torch.stack([f @ f.mT for f in factors]).prod(0))


@torch.no_grad()
def layer_ranks(module: CoordinateModule, coords: Tensor) -> list[Tensor]:
    """Stable rank of the activations of each hidden layer: one ``(S,)`` per layer.

    Args:
        module: A built module.
        coords: ``(S or 1, P, D)``.
    """
    signals = module.require_info().num_signals
    known = module if isinstance(module, SimpleMLP) else _linear(module)
    if not known.depth:
        return []
    at_once = max(1, HELD // (coords.shape[1] * known.width))
    parts = [slice(first, first + at_once) for first in range(0, signals, at_once)]
    found = [[stable_rank(layer) for layer in hidden_layers(module, coords, part)] for part in parts]
    return [torch.cat(layer) for layer in zip(*found, strict=True)]


def hidden_layers(module: CoordinateModule, coords: Tensor, signals: slice = slice(None)) -> list[Tensor]:
    """Activations of the hidden layers, after the non-linearity, ``(S, P, width)`` each.

    The layer that a :class:`ComplexLinear` has before its head is the first of them.

    Args:
        module: A built module.
        coords: ``(S or 1, P, D)``.
        signals: Which signals.
    """
    own = coords if len(coords) == 1 else coords[signals]
    if isinstance(module, SimpleMLP):
        return _of_mlp(module.mlp, module.encoding(own), signals)
    linear = _linear(module)
    if linear.head is None:
        return []
    weight = linear.weight[signals]
    if len(own) == 1:
        outputs = linear.encoding.points(weight, own[0])
    else:
        outputs = torch.stack([linear.encoding.points(w, x) for w, x in zip(weight, own, strict=True)])
    first = ACTIVATIONS[linear.activation](outputs.mT)
    return [first, *_of_mlp(linear.head, first, signals)]


def _of_mlp(mlp: SignalMLP, inputs: Tensor, signals: slice) -> list[Tensor]:
    x, found = inputs, []
    for weight, bias in zip(_hidden(mlp.weights), _hidden(mlp.biases), strict=True):
        own = weight[signals]
        x = mlp.activation(torch.baddbmm(bias[signals], x.expand(len(own), -1, -1), own))
        found.append(x)
    return found


def _hidden(parameters: nn.ParameterList) -> Sequence[Tensor]:
    """All but those of the last layer."""
    return list(parameters)[:-1]


def _linear(module: CoordinateModule) -> ComplexLinear:
    if isinstance(module, ComplexLinear):
        return module
    raise InputError(f"stable ranks are those of SimpleMLP and ComplexLinear, got a {type(module).__name__}")
