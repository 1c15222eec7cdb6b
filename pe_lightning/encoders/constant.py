"""How well the features of an axis represent a constant.

Features of drawn frequencies hold a constant only if one of the frequencies is low, or many cancel. A linear layer on a
draw without one fits the mean of a signal last, or never.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pe_lightning.encoders.base import Encoder

MAX_CONSTANT_ERROR = 0.1
"""Error above which a draw is said not to represent a constant."""
DRAWN_ARGUMENT = "seed"
"""Encoders with a value of this argument draw their frequencies."""
RIDGE = 0.01
"""Of the fit of a constant, relative to the largest squared singular value: what some hundred steps of training reach."""


@torch.no_grad()
def constant_error(encoder: Encoder, x: Tensor) -> float:
    r"""The relative error of a ridge fit of the constant 1: 0 if the features hold it, 1 if they are orthogonal to it.

    Args:
        encoder: An encoder of one axis.
        x: Coordinates, ``(N,)``.

    Returns:
        :math:`\|1 - A w\| / \|1\|` with ``A`` the features and ``w`` the ridge solution, computed in float64.
    """
    features = encoder(x).double()
    left, values, _ = torch.linalg.svd(features, full_matrices=False)
    if not bool(values[0] > 0):
        return 1.0
    one = torch.full((len(x),), len(x) ** -0.5, dtype=torch.float64, device=features.device)
    along = left.T @ one
    squares = values.square()
    missed = along * (RIDGE * squares[0] / (squares + RIDGE * squares[0]))
    outside = (one - left @ along).square().sum()
    return float((missed.square().sum() + outside).sqrt())


def misses_constant(encoder: Encoder, x: Tensor) -> bool:
    """Whether the frequencies of an encoder were drawn, and the draw does not represent a constant at ``x`` ``(N,)``."""
    drawn = encoder.resolved().get(DRAWN_ARGUMENT) is not None and encoder.num_axes == 1
    return drawn and constant_error(encoder, x) > MAX_CONSTANT_ERROR
