"""Exact fits whose largest coefficients are kept: a count, a share, as many as a PSNR takes, or all above the noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from pe_fill.sparse.denoise import denoise
from pe_fill.sparse.lifting import LiftingName, lifting
from pe_fill.sparse.network import Coefficients, SparseWeight, ValueType, axis_norms, check_keep
from pe_lightning.encoders import Encoder, EncoderLike, Shifted
from pe_lightning.encoders.resolution import shrunk
from pe_lightning.errors import InputError
from pe_lightning.estimators import FitReport, LinearRidge
from pe_lightning.estimators.linear import LinearField
from pe_lightning.evaluation.scores import psnr
from pe_lightning.linalg import Operator, full_precision, mode_products
from pe_lightning.signals import GridBatch, GridSplit, Process, Signals, validation
from pe_lightning.signals.batches import to_device
from pe_lightning.solvers import Choice, Solution, solve_grid
from pe_lightning.solvers.features import encode

KeepLike = int | float | Literal["auto"] | dict[str, float]
"""Numbers to keep of a signal's layer, of all channels together: a count, a share in (0, 1], ``{"psnr": dB}`` for the fewest
numbers that reach it on the trained samples, or ``auto`` for all above the noise."""
DENOISED_COUNT = 1.5
"""With ``num_coefficients: auto``, kept numbers relative to the count of shrinkage without shifts: the average has more."""


@dataclass(frozen=True)
class SparseOptions:
    """How the layer of an exact fit is made sparse; :class:`~pe_fill.SparseLinear` has the arguments."""

    num_coefficients: KeepLike
    transform: LiftingName = "9/7"
    storage_dtype: ValueType = "float32"

    def __post_init__(self) -> None:
        given, allowed = self.num_coefficients, "a count such as 100000, a share such as 0.1, {psnr: 40}, or auto"
        lifting(self.transform)
        validation.choice("storage_dtype", self.storage_dtype, ValueType)
        if isinstance(given, dict):
            goal = given.get("psnr", 0.0) if len(given) == 1 else 0.0
            fits = type(goal) in (int, float) and 0 < goal < math.inf
        else:
            fits = given == "auto" or (type(given) is int and given >= 1) or (type(given) is float and 0 < given <= 1)
        if not fits:
            raise InputError(f"num_coefficients must be {allowed}; got {given!r}")

    def count(self, size: int) -> int | None:
        """Numbers kept of ``size``; ``None`` where the number depends on the signal."""
        if isinstance(self.num_coefficients, float):
            return max(1, round(self.num_coefficients * size))
        return self.num_coefficients if isinstance(self.num_coefficients, int) else None

    def check(self, encoders: Sequence[Encoder], dataset: Signals) -> None:
        """Refuses encoders and samples that no sparse layer can have."""
        for encoder in encoders:
            if not isinstance(encoder, Shifted):
                raise InputError(
                    f"num_coefficients needs a shifted encoder with one feature per shift, whose neighbouring weights are "
                    f"neighbours on the axis; {encoder.name} is none. Name one: --encoder keys, tri, bspline, gau, laplace"
                )
            if any(True for _ in encoder.parameters()):
                raise InputError(
                    f"num_coefficients is for encoders that are not trained; leave out trainable: true of {encoder.name}"
                )
        needs_samples = not isinstance(self.num_coefficients, (int, float))
        if needs_samples and dataset.streamed:
            raise InputError(
                f"num_coefficients: {self.num_coefficients} needs the samples in memory; set "
                "--data.storage.in_memory true, or give a number"
            )
        if self.num_coefficients == "auto" and not isinstance(dataset.split, GridSplit):
            raise InputError("num_coefficients: auto needs samples of a grid, not scattered ones; give a number or a share")


class SparseLayer(NamedTuple):
    """The kept coefficients of one signal's layer.

    Args:
        weight: The coefficients.
        noise: With ``num_coefficients: auto``, the standard deviation of the noise, and whether it was removed.
    """

    weight: SparseWeight
    noise: tuple[float, bool] | None


class SparseField(LinearField):
    """Signals as the kept coefficients of their linear layers, with their positions."""

    def __init__(self, solution: Solution, layers: Sequence[SparseLayer]) -> None:
        super().__init__([solution], label="SparseLinear", solution=sparse_report(solution, layers))
        self.layers = layers


class SparseRidge(LinearRidge):
    """Ridge regression with a shifted encoder, whose largest coefficients in a multi-resolution basis are kept."""

    max_weights = 1 << 28  # more than of a trained layer: the weights have no gradients
    features = "given"  # few numbers are stored

    def __init__(
        self,
        encoder: EncoderLike | Sequence[EncoderLike],
        options: SparseOptions,
        ridge: float | Literal["auto"] = "auto",
        center: bool = True,
    ) -> None:
        super().__init__(encoder, ridge, center)
        self.options = options

    def choose(
        self, train: Signals, encoders: Sequence[Encoder], device: torch.device
    ) -> tuple[list[Encoder], Choice | None]:
        """As in the base class, after checks of encoders, samples and the count."""
        self.options.check(encoders, train)
        sized, choice = super().choose(train, encoders, device)
        if isinstance(count := self.options.num_coefficients, int):
            check_keep(count, math.prod(encoder.num_features for encoder in sized) * train.info.channels)
        return sized, choice

    def fit_layer(
        self,
        train: Signals,
        encoders: Sequence[Encoder],
        device: torch.device,
        choice: Choice | None = None,
        shard: tuple[Signals, Process] | None = None,
        shared: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> SparseField:
        """As in the base class; then the largest coefficients are kept."""
        (solution,) = super().fit_layer(train, encoders, device, choice, shard, shared, dtype).solutions
        return SparseField(*self.sparsify(solution, train if shard is None else shard[0]))

    @torch.no_grad()
    def sparsify(self, found: Solution, dataset: Signals) -> tuple[Solution, list[SparseLayer]]:
        """Replaces the weights of an exact fit by their largest coefficients, in place."""
        options, layers = self.options, []
        counts = [options.count(found.weight.shape[1:].numel())] * len(found.weight)
        noise: list[tuple[float, bool] | None] = [None] * len(found.weight)
        if options.num_coefficients == "auto":
            found, counts, noise = denoised_fit(options, found, dataset, self.center)
        with full_precision(found.weight.device):
            axes = [x.to(found.weight.device) for x in trained_axes(dataset)]
            features = encode(found.encoders, axes, found.weight.device)
            norms = [axis_norms(options.transform, *pair) for pair in zip(found.encoders, features, strict=True)]
            for index, weight in enumerate(found.weight):
                coefficients, count = Coefficients(weight, options.transform, norms), counts[index]
                if count is None:
                    assert isinstance(options.num_coefficients, dict)
                    measure = _measure(dataset, index, features, found.mean[index])
                    kept = coefficients.fewest(options.num_coefficients["psnr"], measure, options.storage_dtype)
                else:
                    kept = coefficients.keep(count, options.storage_dtype)
                weight.copy_(kept.weight())
                layers.append(SparseLayer(kept, noise[index]))
        return found.with_weight(found.weight), layers


def sparse_report(found: Solution, layers: Sequence[SparseLayer]) -> FitReport:
    """The report on an exact fit and on the layers of all signals."""
    weights, noise = [layer.weight for layer in layers], [layer.noise for layer in layers if layer.noise is not None]
    sparse: dict[str, Any] = {
        "kept": [weight.count for weight in weights],
        "of": math.prod(weights[0].shape),
        "transform": weights[0].transform,
        "kept_as": weights[0].storage_dtype,
    }
    if noise:
        sparse |= {"noise": [deviation for deviation, _ in noise], "denoised": [denoised for _, denoised in noise]}
    return replace(found.report(), sparse=sparse)


def _measure(dataset: Signals, signal: int, features: Sequence[Operator], mean: Tensor) -> Callable[[Tensor], float]:
    """PSNR of weights of one signal on its trained samples."""
    batch = to_device(dataset.train_batch(), mean.device)
    target = batch.values[signal].movedim(-1, 0).flatten(1) - mean[:, None]
    index: Tensor | None = None
    if not isinstance(batch, GridBatch):
        if batch.index is None:
            raise InputError("num_coefficients: {psnr: ...} needs samples of a grid; give a number or a share")
        index = batch.index[signal if len(batch.index) > 1 else 0]

    def measure(weight: Tensor) -> float:
        values = mode_products(weight, [matrix.to(weight.dtype) for matrix in features]).flatten(1)
        values = values if index is None else values[:, index]
        squared = (values - target).square().sum(dtype=torch.float64)
        return float(psnr(squared, torch.tensor(float(target.numel()))))

    return measure


def trained_axes(dataset: Signals) -> list[Tensor]:
    """Coordinates of the training grid, or of the grid that scattered samples lie on, per axis ``(N_a,)``."""
    split = dataset.split
    if isinstance(split, GridSplit):
        return [x[index] for x, index in zip(dataset.axes, split.index, strict=True)]
    return list(dataset.axes)


def denoised_fit(
    options: SparseOptions, found: Solution, dataset: Signals, center: bool
) -> tuple[Solution, list[int | None], list[tuple[float, bool] | None]]:
    """The exact fit of the samples without their noise; numbers that are kept, and noise, of each signal.

    Where samples are held out, a signal is denoised if this predicts every second trained sample better from the others.
    """
    device = found.weight.device
    batch = to_device(dataset.train_batch(), device)
    assert isinstance(batch, GridBatch)
    size, values = found.weight.shape[1:].numel(), batch.values.clone()
    counts: list[int | None] = []
    noise: list[tuple[float, bool] | None] = []
    fit: dict[str, Any] = {"ridge": found.ridge, "center": center}
    held_out = math.prod(values.shape[1:-1]) < math.prod(dataset.values.shape[1:-1])
    with full_precision(device):
        for index, signal in enumerate(batch.values):
            clean = denoise(signal.movedim(-1, 0).contiguous(), options.transform)
            helps = not held_out or _predicts_better(options, signal, clean.noise, batch.axes, found.encoders, fit)
            if helps:
                values[index] = clean.values.movedim(0, -1)
            counts.append(min(size, max(1, math.ceil(DENOISED_COUNT * clean.count))) if helps else size)
            noise.append((clean.noise, helps))
    if any(entry is not None and entry[1] for entry in noise):
        found = replace(solve_grid(values, found.encoders, batch.axes, **fit), choice=found.choice)
    return found, counts, noise


def _predicts_better(
    options: SparseOptions,
    signal: Tensor,
    noise: float,
    axes: Sequence[Tensor],
    encoders: Sequence[Encoder],
    fit: dict[str, Any],
) -> bool:
    """Whether every second sample of a signal ``(n_1, ..., n_D, C)`` predicts the others better without its noise."""
    steps = [2 if len(x) >= 16 else 1 for x in axes]
    if max(steps) == 1:
        return False
    known = signal[tuple(slice(None, None, step) for step in steps)]
    fewer = [x[::step] for x, step in zip(axes, steps, strict=True)]
    ratios = [len(whole) / len(x) for x, whole in zip(fewer, axes, strict=True)]
    coarse = [new for pair in zip(encoders, ratios, strict=True) if isinstance(new := shrunk(*pair), Encoder)]
    if len(coarse) < len(encoders):
        return False
    unseen = torch.ones(signal.shape[:-1], dtype=torch.bool, device=signal.device)
    unseen[tuple(slice(None, None, step) for step in steps)] = False
    clean = denoise(known.movedim(-1, 0).contiguous(), options.transform)
    # white noise has the same level on every second sample; texture, whose removal costs held-out samples, has more
    if clean.noise > 1.25 * noise:
        return False
    noisy, smooth = (solve_grid(values[None], coarse, fewer, **fit) for values in (known, clean.values.movedim(0, -1)))
    norms = [axis_norms(options.transform, *pair) for pair in zip(coarse, encode(coarse, fewer, signal.device), strict=True)]
    coefficients = Coefficients(smooth.weight[0], options.transform, norms)
    count = min(max(1, math.ceil(DENOISED_COUNT * clean.count)), coefficients.size)
    sparse = smooth.with_weight(coefficients.keep(count, options.storage_dtype).weight()[None])

    def error(solution: Solution) -> float:
        return float((solution.predict(axes)[0] - signal)[unseen].square().sum(dtype=torch.float64))

    return error(sparse) < error(noisy)
