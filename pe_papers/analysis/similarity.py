"""How similar one position is to all others: maps of the inner products of features, as initialised and as learned.

Reference: Li et al., *Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding*, NeurIPS 2021, App. B
and Figs. 5-12.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from pe_lightning.encoders import Encoder, PositionMLP, resolve
from pe_lightning.encodings import Complex, Encoding, evaluating

M = TypeVar("M", bound=nn.Module)


def similarity(encoding: Encoder | Encoding, position: Sequence[float], axes: Sequence[Tensor]) -> Tensor:
    r"""The products :math:`r_x \cdot r_y` of a position's features with those of every position of a grid.

    Of a complex encoding it is the product of the similarities of its axes. Dropout is off.

    Args:
        encoding: An encoder of ``D`` axes, a simple or complex encoding.
        position: The ``D`` coordinates of ``x``, in [0, 1].
        axes: The coordinates of the positions ``y`` on each axis, ``(n_a,)``; float64 for similarities in float64.

    Returns:
        ``(n_1, ..., n_D)``.

    Example:
        >>> from pe_lightning.encoders import create
        >>> similarity(create("gau", num_features=64, sigma=0.05), [0.5], [torch.tensor([0.25, 0.5])]).argmax()
        tensor(1)
    """
    with evaluating(encoding):
        if isinstance(encoding, Complex):
            here = encoding.axis_features([x.new_tensor([value]) for value, x in zip(position, axes, strict=True)])
            products = [rows @ one[0] for rows, one in zip(encoding.axis_features(axes), here, strict=True)]
            shapes = [[-1 if a == axis else 1 for a in range(len(axes))] for axis in range(len(axes))]
            return math.prod((p.reshape(shape) for p, shape in zip(products, shapes, strict=True)), start=torch.ones(()))
        grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)
        one_axis = isinstance(encoding, Encoder) and encoding.num_axes == 1
        rows, one = (encoding(x[..., 0] if one_axis else x) for x in (grid, grid.new_tensor([*position])))
        found: Tensor = rows @ one
        return found


def without_mlp(encoding: M) -> M:
    """A copy with the MLPs after Fourier features and sinusoids left out: what the paper's maps show (Eq. 2, not Eq. 6).

    The features below ``pos_mlp`` are the coordinates, so it is left as it is.
    """
    made = copy.deepcopy(encoding)
    for module in made.modules():
        if hasattr(module, "modulator") and not isinstance(module, PositionMLP):
            module.modulator = None  # type: ignore[assignment]
    return made


def as_initialised(module: M) -> M:
    """A copy in which every encoder has the parameters that it started from; all else is as it was."""
    made = copy.deepcopy(module)
    for encoder in made.modules():
        if isinstance(encoder, Encoder):
            encoder.load_state_dict(resolve(encoder.spec()).state_dict())
    return made
