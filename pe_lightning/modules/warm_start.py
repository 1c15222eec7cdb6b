"""The exact fit that a ComplexLinear starts from, and how a head starts without changing it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
from pe_lightning.solvers import Solution, choose_grid, choose_points, solve_blocks, solve_grid, solve_points

__all__ = ["PASSING", "pass_through", "solve_data", "wants_width"]

PASSING = ("relu", "gelu", "silu")
"""Activations with f(z) - f(-z) = z, through which a pair of units hands a number on unchanged."""


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
) -> Solution:
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
    began = time.perf_counter()
    if not isinstance(data.split, GridSplit) and not isinstance(data.values, FileValues):
        return _solve_points(data, process, encoders, ridge, sigma, center, device, chosen_by)
    looked_at = to_device((chosen_by or data).choice_batch(), device)
    assert isinstance(looked_at, GridBatch)
    assert isinstance(data.split, GridSplit)
    sizes = [len(index) for index in data.split.index]
    choice = choose_grid(looked_at.values, looked_at.axes, encoders, ridge, sigma, sizes)
    if process.world_size == 1 and not isinstance(data.values, FileValues):
        own = to_device(data.choice_batch(), device)
        solution = solve_grid(own.values, choice.encoders, looked_at.axes, ridge=choice.ridge, center=center)
    else:
        axes = [x[index].to(device) for x, index in zip(data.axes, data.split.index, strict=True)]
        solution = solve_blocks(_blocks(data, process, device), choice.encoders, axes, ridge=choice.ridge, center=center)
    return replace(solution, choice=choice, seconds=time.perf_counter() - began)


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
    data: SignalDataset,
    process: Process,
    encoders: Sequence[Encoder],
    ridge: float | Literal["auto"],
    sigma: Literal["auto", "given"],
    center: bool,
    device: torch.device,
    chosen_by: SignalDataset | None,
) -> Solution:
    began = time.perf_counter()
    batch = to_device(data.train_batch, device)
    assert isinstance(batch, PointBatch)
    part = process.share(batch.values.shape[1])
    own: dict[str, Any] = {
        "coords": batch.coords[:, part],
        "axes": batch.axes,
        "index": None if batch.index is None else batch.index[:, part],
        "center": center,
        "distributed": process.world_size > 1,
    }
    values = batch.values[:, part]
    if chosen_by is None or chosen_by is data:
        return solve_points(values, encoders, ridge=ridge, sigma=sigma, **own)
    all_points = to_device(chosen_by.train_batch, device)
    assert isinstance(all_points, PointBatch)
    where: dict[str, Any] = {"coords": all_points.coords, "axes": all_points.axes, "index": all_points.index}
    choice = choose_points(all_points.values, encoders, ridge=ridge, sigma=sigma, center=center, **where)
    solution = solve_points(values, choice.encoders, ridge=choice.ridge, **own)
    return replace(solution, choice=choice, seconds=time.perf_counter() - began)


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
