"""Encoders of a checkpoint as learned, ranks of its layers, and similarities of one position to all others.

Reference: Li et al., *Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding*, NeurIPS 2021, App. B
and Figs. 5-12.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import TypeVar

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from pe_lightning.encoders import Encoder, resolve
from pe_lightning.encodings import Complex, Encoding, evaluating
from pe_lightning.errors import InputError
from pe_lightning.signals import GridBatch, grid_axes, sample_coordinates
from pe_lightning.training import CoordinateModule, EstimatorModule
from pe_papers.analysis.ranks import encoding_rank, layer_ranks
from pe_papers.encoders import PositionMLP

M = TypeVar("M", bound=nn.Module)


def similarity(encoding: Encoder | Encoding, position: Sequence[float], axes: Sequence[Tensor]) -> Tensor:
    r"""The products :math:`r_x \cdot r_y` of a position's features with the features of every position of a grid.

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
        inner_products: Tensor = rows @ one
        return inner_products


def without_mlp(encoding: M) -> M:
    """A copy with the MLPs after Fourier features and sinusoids left out: what the paper's maps show (Eq. 2, not Eq. 6).

    The features below ``pos_mlp`` are the coordinates, so it is left as it is.
    """
    result = copy.deepcopy(encoding)
    for module in result.modules():
        if getattr(module, "modulator", None) is not None and not isinstance(module, PositionMLP):
            module.num_features = module.groups * module.num_inputs  # type: ignore[operator]
            module.modulator = None  # type: ignore[assignment]
    return result


def as_initialised(module: M) -> M:
    """A copy in which every encoder has the parameters that it started from; all else is as it was."""
    result = copy.deepcopy(module)
    for encoder in result.modules():
        if isinstance(encoder, Encoder):
            encoder.load_state_dict(resolve(encoder.spec()).state_dict())
    return result


def encoding_of(module: LightningModule, signal: int = 0) -> Encoding:
    """A copy of the encoding of positions, with its learned parameters.

    Args:
        module: A model of signals, or any that holds an encoding, such as an attention task.
        signal: Of a model of signals: which signal's, where each has its own.
    """
    if isinstance(module, EstimatorModule):
        encoder = (module.describe()["encoder"] or {}).get("name", "NAME")
        raise InputError(
            f"{module.label} is fitted without features to measure; analyze the encoder: "
            f"pe-lightning analyze --encoder {encoder}"
        )
    if not isinstance(module, CoordinateModule):
        nested = next((part for part in module.modules() if isinstance(part, Encoding)), None)
        if nested is None:
            raise InputError(f"this {type(module).__name__} holds no encoder of positions")
        return copy.deepcopy(nested)
    if not 0 <= signal < module.networks.num_signals:
        raise InputError(f"signal must be from 0 to {module.networks.num_signals - 1}, got {signal}")
    encoding: Encoding = module.networks.network_of(signal).encoding  # type: ignore[assignment]
    return encoding


def checkpoint_ranks(module: CoordinateModule, points: int = 2048) -> dict[str, float]:
    """Stable rank of the ``features`` and of every hidden layer on the grid of the signals, or ``points`` samples of it."""
    info, like = module.require_info(), next(module.parameters())
    axes = grid_axes(info.grid, like.dtype)
    batch = GridBatch(axes, torch.empty(()).expand(1, *info.grid, 1))
    coords = sample_coordinates(batch, points)
    return {"features": encoding_rank(module, batch, coords), **layer_ranks(module, coords)}
