"""Cells that measure encoders, untrained or learned, with the functions of :mod:`pe_lightning.analysis`."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from torch import Tensor

from pe_lightning import analysis
from pe_lightning.analysis.checkpoints import encoding_rank
from pe_lightning.analysis.ranks import sample_coordinates
from pe_lightning.data import SignalDataModule, TensorDataModule
from pe_lightning.encoders import registry, resolve
from pe_lightning.modules import SimpleMLP

__all__ = ["displacements", "learned_frequencies", "ranks_in_training", "similarity_maps", "singular_values", "stable_ranks"]

CORNERS = ((4, 4), (4, 57), (31, 31), (57, 4), (57, 57))
"""The positions of Li et al. 2021, Figs. 5 and 6, on a grid of 64 x 64."""


def stable_ranks(
    encoder: Mapping[str, Any], samples: int | Sequence[int], widths: Sequence[float | None] = (None,)
) -> dict[str, Any]:
    """Stable ranks at numbers of positions, and for widths of the features, beside theory.

    Args:
        encoder: Name and arguments.
        samples: Numbers of positions.
        widths: Values of the argument that sets the encoder's width; ``None``: as given.
    """
    found: dict[str, list[Any]] = {"positions": [], "width": [], "stable_rank": [], "theory": [], "deviation": []}
    for count, width in itertools.product([samples] if isinstance(samples, int) else samples, widths):
        made = resolve(dict(encoder) if width is None else {**encoder, "width": width})
        measured, theory = analysis.encoder_rank(made, analysis.positions(count)), analysis.rank_theory(made, count)
        deviation = None if theory is None else abs(measured - theory) / theory
        for values, value in zip(found.values(), (count, width, measured, theory, deviation), strict=True):
            values.append(value)
    return found


def displacements(encoder: Mapping[str, Any], samples: int) -> dict[str, Any]:
    r"""The similarity of the middle position to all others, :math:`D(\Delta)/D(0)`, beside theory."""
    made = resolve(dict(encoder))
    delta, measured = analysis.distance(made, samples)
    theory = analysis.distance_theory(made, delta)
    found = {"delta": delta.tolist(), "distance": measured.tolist()}
    if theory is None:
        return found
    return {**found, "theory": theory.tolist(), "deviation": (measured - theory).abs().tolist()}


def singular_values(encoder: Mapping[str, Any], samples: int, scattered: bool = False, every: int = 1) -> dict[str, Any]:
    """Singular values relative to the largest, and how many are more than rounding.

    Args:
        encoder: Name and arguments.
        samples: Number of positions.
        scattered: Whether they are drawn from [0, 1), not evenly spaced.
        every: Of the values, every so many are returned.
    """
    made = resolve(dict(encoder))
    x = analysis.positions(samples)
    if scattered:
        x = torch.rand(samples, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    values = analysis.singular_values(made, x)
    shown = (values / values[0])[::every]
    # a logarithmic axis has no zero
    return {
        "number": list(range(1, samples + 1, every))[: len(shown)],
        "singular_value": shown.clamp_min(1e-17).tolist(),
        "numerical_rank": analysis.numerical_rank(values, max(samples, made.num_features)),
    }


class _Ranks(Callback):
    """Training PSNR and stable rank of every layer, every so many steps."""

    def __init__(self, coords: Tensor, rank: float, every: int) -> None:
        self.coords, self.rank, self.every = coords, rank, every
        self.rows: list[tuple[int, str, float, float]] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Measures after the first step, and after every so many."""
        assert isinstance(pl_module, SimpleMLP)
        step = trainer.global_step
        if step == 1 or step % self.every == 0:
            psnr = pl_module.last_train_psnr().mean().item()
            ranks = {"features": self.rank, **analysis.layer_ranks(pl_module, self.coords.to(pl_module.device))}
            self.rows += [(step, layer, rank, psnr) for layer, rank in ranks.items()]


def ranks_in_training(
    data: SignalDataModule,
    encoder: Mapping[str, Any],
    steps: int,
    learning_rate: float,
    random: bool = False,
    every: int = 100,
    depth: int = 4,
    width: int = 256,
) -> dict[str, Any]:
    """Stable rank of the features and of every hidden layer of a perceptron, and its training PSNR, over the steps.

    Args:
        data: The signals.
        encoder: Name and arguments.
        steps: Optimiser steps.
        learning_rate: Of Adam.
        random: Whether signals of the same size, drawn from a normal distribution, are fitted in their place.
        every: Steps between two measurements.
        depth: Hidden layers.
        width: Units of a hidden layer.
    """
    if random:
        shape = (data.info.num_signals, *data.info.grid, data.info.channels)
        values = (0.5 + 0.15 * torch.randn(shape, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
        data = TensorDataModule(values, list(data.info.names), sampling=data.sampling, batching=data.batching)
    module = _module(encoder, learning_rate, depth, width)
    module.build_from(data)
    batch = data.train_batch()
    coords = sample_coordinates(batch, 2048)
    callback = _Ranks(coords, encoding_rank(module, batch, coords), every)
    _fit(module, data, steps, [callback])
    return dict(
        zip(("step", "layer", "stable_rank", "train_psnr"), map(list, zip(*callback.rows, strict=True)), strict=True)
    )


def similarity_maps(
    data: SignalDataModule, encoder: Mapping[str, Any], steps: int, learning_rate: float, positions: int = 64
) -> dict[str, Any]:
    """Similarity of five positions to all others, after so many steps of fitting a picture below a perceptron.

    Args:
        data: A picture.
        encoder: Name and arguments. Of one with an MLP it is the features below the MLP, as in the paper.
        steps: Optimiser steps; 0 for the encoder as it starts.
        learning_rate: Of Adam.
        positions: Per axis.

    Returns:
        ``image``: the five maps where their positions are, each from its least (0) to its greatest value (1).
    """
    module = _module(encoder, learning_rate)
    module.build_from(data)
    _fit(module, data, steps, [])
    encoding = analysis.without_mlp(analysis.encoding_of(module))
    axes = [analysis.positions(positions)] * 2
    image = np.full((3 * positions + 4, 3 * positions + 4), None)  # nothing is drawn there
    for (row, column), place in zip(CORNERS, ((0, 0), (0, 2), (1, 1), (2, 0), (2, 2)), strict=True):
        found = analysis.similarity(encoding, (row / 64, column / 64), axes)
        scaled = (found - found.min()) / (found.max() - found.min()).clamp_min(1e-12)
        top, left = (index * (positions + 2) for index in place)
        image[top : top + positions, left : left + positions] = scaled.numpy().round(3)
    return {"image": image.tolist()}


def learned_frequencies(
    data: SignalDataModule, encoder: Mapping[str, Any], steps: int, learning_rate: float, bins: int = 40
) -> dict[str, Any]:
    """Histogram of ``W_r`` of learnable Fourier features, after so many steps of fitting a picture below a perceptron.

    Returns:
        ``weight``, the middles of the bins, in units of the standard deviation at the start; ``density``; ``mean``, ``std``.
    """
    module = _module(encoder, learning_rate)
    module.build_from(data)
    _fit(module, data, steps, [])
    (learned,) = analysis.encoding_of(module).encoders
    weights = (learned.get_parameter("frequencies").detach() * learned.resolved()["gamma"]).flatten().numpy()
    density, edges = np.histogram(weights, bins, (-4, 4), density=True)
    return {
        "weight": ((edges[1:] + edges[:-1]) / 2).tolist(),
        "density": density.tolist(),
        "mean": float(weights.mean()),
        "std": float(weights.std()),
    }


def _module(encoder: Mapping[str, Any], learning_rate: float, depth: int = 2, width: int = 128) -> SimpleMLP:
    seed_everything(0, verbose=False)
    arguments = dict(encoder)
    made = registry.create(arguments.pop("name"), **arguments)
    return SimpleMLP(made, depth, width, optimizer=lambda p: torch.optim.Adam(p, lr=learning_rate, weight_decay=1e-8))


def _fit(module: SimpleMLP, data: SignalDataModule, steps: int, callbacks: list[Callback]) -> None:
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    logging.disable(logging.INFO)  # what Lightning says about every fit
    try:
        trainer = Trainer(max_steps=steps, callbacks=callbacks, enable_model_summary=False, limit_val_batches=0, **quiet)
        trainer.fit(module, data)
    finally:
        logging.disable(logging.NOTSET)
    module.cpu()
