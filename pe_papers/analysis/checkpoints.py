"""What a fit has learned: the encodings of a checkpoint, and the stable rank of its layers."""

from __future__ import annotations

import copy

import torch
from lightning.pytorch import LightningModule

from pe_lightning.encodings import AnisotropicKernels, Encoding
from pe_lightning.errors import InputError
from pe_lightning.signals import GridBatch, grid_axes, sample_coordinates
from pe_lightning.training import CoordinateModule
from pe_lightning.training.callbacks import encoding_rank, layer_ranks

POINTS = 2048
"""Positions of the grid that ranks of a checkpoint are measured at, at most."""


def encoding_of(module: LightningModule, signal: int = 0) -> Encoding:
    """A copy of the encoding of positions, with its learned parameters.

    Args:
        module: A model of signals, or any that holds an encoding, such as an attention task.
        signal: Of a model of signals: which signal's, where each has its own.
    """
    if not isinstance(module, CoordinateModule):
        found = next((part for part in module.modules() if isinstance(part, Encoding)), None)
        if found is None:
            raise InputError(f"this {type(module).__name__} holds no encoder of positions")
        return copy.deepcopy(found)
    if not 0 <= signal < module.networks.num_signals:
        raise InputError(f"signal must be from 0 to {module.networks.num_signals - 1}, got {signal}")
    encoding: Encoding = module.networks.network_of(signal).encoding  # type: ignore[assignment]
    if isinstance(encoding, AnisotropicKernels):
        raise InputError(
            f"{type(module).__name__} is solved by the similarity of its encoder, whose features it does not have; "
            f"analyze the encoder: pe-lightning analyze --encoder {encoding.encoders[0].name}"
        )
    return encoding


def checkpoint_ranks(module: CoordinateModule, points: int = POINTS) -> dict[str, float]:
    """Stable rank of the ``features`` and of every hidden layer on the grid of the signals, or ``points`` samples of it."""
    info, like = module.require_info(), next(module.parameters())
    axes = grid_axes(info.grid, like.dtype)
    batch = GridBatch(axes, torch.empty(()).expand(1, *info.grid, 1))
    coords = sample_coordinates(batch, points)
    return {"features": encoding_rank(module, batch, coords), **layer_ranks(module, coords)}
