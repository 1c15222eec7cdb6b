"""The exact fit that a ComplexLinear starts from, and how a head starts without changing it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pe_lightning.data.batches import GridBatch, PointBatch
from pe_lightning.encoders import Encoder
from pe_lightning.errors import InputError
from pe_lightning.modules.mlp import SignalMLP
from pe_lightning.solvers import solve_grid
from pe_lightning.solvers.scattered import solve_points
from pe_lightning.solvers.scattered_choice import choose_points

__all__ = ["PASSING", "ExactFit", "pass_through", "solve_batch", "wants_width"]

PASSING = ("relu", "gelu", "silu")
"""Activations with f(z) - f(-z) = z, through which a pair of units hands a number on unchanged."""


@dataclass(frozen=True)
class ExactFit:
    """What a solver found for a training batch."""

    weight: Tensor
    """``(S, C, K_1, ..., K_D)``, for raw features."""
    mean: Tensor
    """``(S, C)``."""
    encoders: tuple[Encoder, ...]
    """One per axis, with the width in force."""
    report: dict[str, Any]
    """Ridge, ranks or iterations, seconds and how sigma and ridge were chosen, as plain values."""


def wants_width(encoders: Sequence[Encoder]) -> bool:
    """Whether the width of the encoders is to be chosen.

    Raises:
        InputError: If it is for some axes and not for others.
    """
    wanted = [encoder.automatic() is not None for encoder in encoders]
    if any(wanted) and not all(wanted):
        raise InputError("sigma: auto is chosen for all axes together; give it to every axis's encoder, or to none")
    return all(wanted)


def solve_batch(
    batch: GridBatch | PointBatch, encoders: Sequence[Encoder], ridge: float | Literal["auto"], center: bool
) -> ExactFit:
    """Fits the linear layer exactly to a training batch.

    Args:
        batch: The training samples, a sub-grid or points.
        encoders: One per axis; a width given as ``auto`` is chosen.
        ridge: Relative ridge, or ``auto``.
        center: Whether means are taken out.
    """
    sigma: Literal["auto", "given"] = "auto" if wants_width(encoders) else "given"
    if isinstance(batch, GridBatch):
        on_grid = solve_grid(batch.values, encoders, batch.axes, ridge=ridge, sigma=sigma, center=center)
        return ExactFit(on_grid.weight, on_grid.mean, on_grid.encoders, {"solver": "grid", **on_grid.report()})
    return _solve_points(batch, encoders, ridge, sigma == "auto", center)


def _solve_points(
    batch: PointBatch, encoders: Sequence[Encoder], ridge: float | Literal["auto"], choose_width: bool, center: bool
) -> ExactFit:
    began = time.perf_counter()
    where = {"coords": batch.coords, "axes": batch.axes, "index": batch.index}
    made, choice = tuple(encoders), None
    if choose_width:
        choice = choose_points(batch.values, made, **where)  # type: ignore[arg-type]
        made, ridge = choice.encoders, choice.ridge if ridge == "auto" else ridge
    solution = solve_points(batch.values, made, ridge=ridge, center=center, **where)  # type: ignore[arg-type]
    choice = choice or solution.choice
    report: dict[str, Any] = {
        "solver": "points",
        "ridge": solution.ridge,
        "iterations": solution.iterations.tolist(),
        "converged": bool(solution.converged.all()),
        "relative_residual": float(solution.relative_residual.max()),
        "solve_seconds": time.perf_counter() - began,
    }
    if choice is not None:
        widths = [row.get("width") for row in choice.curve]
        found = max(choice.curve, key=lambda row: row["psnr"])["width"] if choice.curve and any(widths) else None
        curve = sorted([row["ridge"], row["psnr"]] for row in choice.curve if row.get("width") == found)
        report["choice"] = {"rule": choice.rule, "ridge": choice.ridge, "curve": curve, "tried": choice.curve}
    return ExactFit(solution.weight, solution.mean, made, report)


@torch.no_grad()
def pass_through(weight: nn.Parameter, head: SignalMLP, linear: Tensor) -> None:
    """Makes a linear layer with a head compute ``linear`` exactly, leaving the other units free to learn.

    The first C units of each hidden layer carry the solution, the next C its negative: f(z) - f(-z) = z for the
    activations in :data:`PASSING`. The other units keep their random weights; what they add starts at zero.

    Args:
        weight: The layer's weights, ``(S, width, K_1, ..., K_D)``.
        head: The perceptron after it.
        linear: The solution, ``(S, C, K_1, ..., K_D)``, for the features that the layer sees.
    """
    channels = linear.shape[1]
    weight[:, :channels] = linear
    weight[:, channels : 2 * channels] = -linear
    identity = torch.eye(channels, dtype=weight.dtype, device=weight.device)
    *hidden, last = zip(head.weights, head.biases, strict=True)
    for matrix, bias in hidden:
        matrix[:, 2 * channels :, : 2 * channels] = 0
        matrix[:, : 2 * channels, : 2 * channels] = torch.cat(
            [torch.cat([identity, -identity], 1), torch.cat([-identity, identity], 1)]
        )
        bias[..., : 2 * channels] = 0
    matrix, bias = last
    matrix.zero_()
    matrix[:, : 2 * channels] = torch.cat([identity, -identity])
    bias.zero_()
