"""The exact fit that a ComplexLinear starts from, and how a head starts without changing it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pe_lightning.data.batches import GridBatch, PointBatch
from pe_lightning.data.dataset import SignalDataset, to_device
from pe_lightning.data.splits import GridSplit
from pe_lightning.data.values import FileValues
from pe_lightning.distributed import Process
from pe_lightning.encoders import Encoder
from pe_lightning.errors import InputError
from pe_lightning.modules.mlp import SignalMLP
from pe_lightning.solvers import solve_blocks, solve_grid
from pe_lightning.solvers.choose import choose_grid
from pe_lightning.solvers.scattered import solve_points
from pe_lightning.solvers.scattered_choice import choose_points

__all__ = ["PASSING", "ExactFit", "pass_through", "solve_data", "wants_width"]

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


def solve_data(
    data: SignalDataset,
    process: Process,
    encoders: Sequence[Encoder],
    ridge: float | Literal["auto"],
    center: bool,
    device: torch.device,
    chosen_by: SignalDataset | None = None,
) -> ExactFit:
    """Fits the linear layer exactly to the training samples; several processes do it together.

    Args:
        data: The training samples, in memory or in a file.
        process: This process; it passes its part of the samples to the solver.
        encoders: One per axis; a width given as ``auto`` is chosen.
        ridge: Relative ridge, or ``auto``.
        center: Whether means are taken out.
        device: Where to compute.
        chosen_by: The signals that width and ridge are chosen by; by default those of ``data``.
    """
    sigma: Literal["auto", "given"] = "auto" if wants_width(encoders) else "given"
    if not isinstance(data.split, GridSplit) and not isinstance(data.values, FileValues):
        batch = to_device(data.train_batch, device)
        assert isinstance(batch, PointBatch)
        everything = to_device((chosen_by or data).train_batch, device)
        assert isinstance(everything, PointBatch)
        return _solve_points(batch, process, encoders, ridge, sigma == "auto", center, everything)
    looked_at = to_device((chosen_by or data).choice_batch(), device)
    assert isinstance(looked_at, GridBatch)
    assert isinstance(data.split, GridSplit)
    began = time.perf_counter()
    sizes = [len(index) for index in data.split.index]
    choice = choose_grid(looked_at.values, looked_at.axes, encoders, ridge, sigma, sizes)
    if process.world_size == 1 and not isinstance(data.values, FileValues):
        own = to_device(data.choice_batch(), device)
        solution = solve_grid(own.values, choice.encoders, looked_at.axes, ridge=choice.ridge, center=center)
    else:
        axes = [x[index].to(device) for x, index in zip(data.axes, data.split.index, strict=True)]
        solution = solve_blocks(_blocks(data, process, device), choice.encoders, axes, ridge=choice.ridge, center=center)
    report = {**replace(solution, choice=choice).report(), "solve_seconds": time.perf_counter() - began}
    return ExactFit(solution.weight, solution.mean, choice.encoders, {"solver": "grid", **report})


def _blocks(data: SignalDataset, process: Process, device: torch.device) -> Iterator[tuple[Sequence[int], Tensor]]:
    """This process's blocks, or one without samples, which the solver needs for the shapes."""
    none = True
    for block in data.train_blocks(process):
        none = False
        yield block.start or (0,) * len(block.axes), block.values.to(device)
    if none:
        signals, *grid, channels = data.values.shape
        yield [0] * len(grid), torch.zeros(signals, *[0] * len(grid), channels, device=device)


def _solve_points(
    batch: PointBatch,
    process: Process,
    encoders: Sequence[Encoder],
    ridge: float | Literal["auto"],
    choose_width: bool,
    center: bool,
    chosen_by: PointBatch,
) -> ExactFit:
    began = time.perf_counter()
    part = process.share(batch.values.shape[1])
    values = batch.values[:, part]
    where: dict[str, Any] = {
        "coords": batch.coords[:, part],
        "axes": batch.axes,
        "index": None if batch.index is None else batch.index[:, part],
        "center": center,
        "distributed": process.world_size > 1,
    }
    made, choice = tuple(encoders), None
    if chosen_by is not batch and (choose_width or ridge == "auto"):
        everything: dict[str, Any] = {"coords": chosen_by.coords, "axes": chosen_by.axes, "index": chosen_by.index}
        choice = choose_points(chosen_by.values, made, ridge=ridge, width=choose_width, center=center, **everything)
        made, ridge = choice.encoders, choice.ridge
    elif choose_width:
        choice = choose_points(values, made, ridge=ridge, **where)
        made, ridge = choice.encoders, choice.ridge
    solution = solve_points(values, made, ridge=ridge, **where)
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
