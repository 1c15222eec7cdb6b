"""Exact local fits by a bank of encoders, adapted to the signal at every point; at scattered samples local kriging."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from pe_fill.adaptive.bank import AnisotropicKernels
from pe_fill.adaptive.grid import RIDGES, AdaptiveGrid
from pe_fill.adaptive.line import AdaptiveLine, spline_predictable_axes
from pe_fill.adaptive.linear_spread import uncertainty_of_grid
from pe_fill.adaptive.points import NOISE_RIDGES, RIDGE, AdaptivePoints
from pe_fill.adaptive.prior_weight import MixedGrid, SignalField, held_out_weight
from pe_fill.estimators.priors import NO_PRIOR, prior_of, read_prior
from pe_fill.estimators.samples import SampledField, TrainedSamples, described_encoder
from pe_fill.kriging.matern import Matern, learn_matern
from pe_fill.networks.frames import LocalFrames, local_field, spaced_axes
from pe_fill.networks.local import LocalGrid, LocalPrior
from pe_fill.request import SHIPPED
from pe_lightning.encoders import EncoderLike, resolve
from pe_lightning.errors import InputError
from pe_lightning.estimators import Estimator, FitReport, FittedField, Variant
from pe_lightning.estimators.base import default_device
from pe_lightning.linalg.threads import sized_threads, solve_operations
from pe_lightning.signals import GridSplit, SignalInfo, Signals, Split, validation

Fit: TypeAlias = AdaptiveGrid | AdaptiveLine | AdaptivePoints
"""A signal fitted by itself, as a function of coordinates."""
Noise: TypeAlias = Literal["none", "auto"]
EXACT_RIDGE = 1e-9
"""Ridge between samples that splines have interpolated."""
FIELD_PASSES = 20
"""Work of one signal, in passes over its samples (:func:`~pe_lightning.linalg.threads.solve_operations`)."""


def _takes_prior(split: Split) -> bool:
    """Whether a prior can have an effect: on samples on a grid of two axes, or of three with one sampled completely."""
    return isinstance(split, GridSplit) and spaced_axes(split.sizes, split.grid) is not None


def _prior_weights(fields: Sequence[SignalField]) -> list[float]:
    return [field.weight if isinstance(field, MixedGrid) else 0.0 for field in fields]


class LocalFits(NamedTuple):
    """Makes functions of coordinates from the samples of single signals.

    Args:
        grid: Samples of the whole signal per axis.
        window: Standard deviation of the local mean of errors, in trained samples.
        noise: ``none`` interpolates, ``auto`` chooses the ridge by the held-out error.
        prior: A network that was trained on other pictures, to mix in.
        scattered: Whether samples are points, and not samples of a grid.
    """

    bank: AnisotropicKernels
    grid: tuple[int, ...]
    window: float
    noise: Noise
    prior: LocalPrior | None
    periodic: tuple[bool, ...]
    scattered: bool

    def fit(self, samples: TrainedSamples, ridge: float | None = None) -> tuple[SignalField, Fit]:
        """Fits with a ridge, by default with the least held-out error; the field, and the fit without the prior."""
        choices, without_noise = (RIDGES, RIDGES[0]) if samples.coords is None else (NOISE_RIDGES, RIDGE)
        tried = (ridge,) if ridge is not None else choices if self.noise == "auto" else (without_noise,)
        covariances = self._covariances(samples)
        fits = (self._fit(samples, ridge, covariances) for ridge in tried)
        best = min(fits, key=lambda fit: float(fit.error)) if len(tried) > 1 else next(fits)
        return self._with_prior(best), best

    def spread(self, samples: TrainedSamples, field: SignalField, ridge: float) -> AdaptivePoints:
        """Local fits with the standard deviations of a field; on a grid they follow from predictions at larger distances."""
        if isinstance(field, AdaptivePoints):
            return field
        values, device = samples.values, samples.values.device
        axes = [
            (start + distance * torch.arange(n, dtype=torch.float64, device=device)) / size
            for start, distance, n, size in zip(samples.first, samples.step, values.shape, self.grid, strict=False)
        ]
        coords = torch.cartesian_prod(*axes).reshape(-1, len(axes))
        refit = partial(self._refit, samples, coords, ridge)
        with sized_threads(solve_operations((1, *values.shape), passes=FIELD_PASSES)):
            return uncertainty_of_grid(values, coords, self.grid, refit, self.noise == "none")

    def _refit(self, samples: TrainedSamples, coords: Tensor, ridge: float, every: Sequence[int], held: Tensor) -> Tensor:
        """Predictions of held-out samples by the fit of every so many samples per axis."""
        fitted = samples.values[tuple(slice(None, None, s) for s in every)]
        wide = [distance * s for distance, s in zip(samples.step, every, strict=True)]
        return self._fit(TrainedSamples(fitted, None, samples.first, wide), ridge).at(coords[held])

    def _with_prior(self, fit: Fit) -> SignalField:
        """The fit, mixed with the prior if this improves it."""
        if self.prior is None or not isinstance(fit, AdaptiveGrid) or fit.ridge != RIDGES[0]:
            return fit
        prior, bank, grid, first, step = self.prior, self.bank, self.grid, fit.first, fit.step
        spaced = spaced_axes(fit.sizes, grid)
        if spaced is None:
            return fit

        def alone(values: Tensor, step: Sequence[float]) -> AdaptiveGrid:
            return AdaptiveGrid(bank, values, grid, first, step, self.window, fit.ridge)

        def local(values: Tensor, step: Sequence[float]) -> LocalGrid | LocalFrames:
            return local_field(prior, values, grid, first, step, spaced)

        with sized_threads(solve_operations((1, *fit.values.shape), passes=FIELD_PASSES)):
            prediction = local(fit.values, step)
            weight = held_out_weight(alone, local, (fit, prediction), fit.values, grid, first, step, spaced)
        return MixedGrid(fit, prediction, weight) if weight else fit

    def _error_at_twice(self, values: Tensor, step: Sequence[float], axis: int) -> float:
        """Mean squared error at every second sample along an axis, predicted from the other samples."""
        wide = [distance * (1 + (a == axis)) for a, distance in enumerate(step)]
        fitted, held = (values[(slice(None),) * axis + (slice(start, None, 2),)] for start in (0, 1))
        held = held.narrow(axis, 0, (values.shape[axis] - 1) // 2)
        fit = AdaptiveGrid(self.bank, fitted.contiguous(), self.grid, (0,) * len(step), wide, self.window, RIDGES[0])
        axes = []
        for a, size in enumerate(self.grid):
            index = torch.arange(held.shape[a], dtype=torch.float64, device=values.device)
            axes.append(((a == axis) * step[a] + wide[a] * index) / size)
        return float((fit.predict(axes) - held).double().square().mean())

    def _covariances(self, samples: TrainedSamples) -> list[Matern]:
        """Covariances of points, whose axes have different units; samples of a grid have its distances."""
        if samples.coords is None or not self.scattered:
            return []
        return [learn_matern(samples.values, samples.coords, linear) for linear in (False, True)]

    def _fit(self, samples: TrainedSamples, ridge: float, covariances: Sequence[Matern] = ()) -> Fit:
        values, grid, bank = samples.values, self.grid, self.bank
        with sized_threads(solve_operations((1, *values.shape), passes=FIELD_PASSES)):
            if samples.coords is not None:
                keeps = self.noise == "none"
                return AdaptivePoints(
                    bank, values, samples.coords, grid, self.window, ridge, keeps, self.periodic, covariances=covariances
                )
            first, step, ridge = samples.first, samples.step, max(ridge, RIDGES[0])
            if len(grid) == 1 and self.noise == "none":
                return AdaptiveLine(values, grid[0], first[0], step[0], ridge)
            if self.noise == "none":
                # at pictures the error of local fits would take longer than they do
                local = self._error_at_twice if len(grid) == 3 else None
                values, first, step = spline_predictable_axes(values, grid, first, step, local)
                if max(step) == 1 < max(samples.step):  # only points between samples of the signal are left
                    alone = AnisotropicKernels(bank.encoders[0], len(grid), 0, ())
                    return AdaptiveGrid(alone, values, grid, first, step, self.window, EXACT_RIDGE)
            return AdaptiveGrid(bank, values, grid, first, step, self.window, ridge)


class AdaptiveFit(Estimator):
    """Exact local fits, weighted by how well each predicts nearby samples; :class:`~pe_fill.Adaptive` has the arguments."""

    variants = (
        Variant("Adaptive", {"pretrained": NO_PRIOR}),
        Variant(
            "Adaptive, prior *",
            {"pretrained": SHIPPED},
            "* A network that has seen other pictures, mixed in by the weight that held-out samples support.",
        ),
    )
    model = "pe_fill.Adaptive"
    takes_periodic = True
    label = "Adaptive"

    def __init__(
        self,
        encoder: EncoderLike = "laplace",
        angles: int = 12,
        aspects: Sequence[float] | None = None,
        window: float = 0.8,
        noise: Noise = "none",
        pretrained: str = SHIPPED,
    ) -> None:
        validation.integer("angles", angles, hint=", such as 12")
        for aspect in aspects or ():
            validation.number("each of aspects", aspect, "(1, 100]", hint=", such as [2, 6] together")
        validation.number("window", window, "[0.1, 100]", hint=" of trained samples, such as 0.8")
        validation.choice("noise", noise, ("none", "auto"))
        if isinstance(encoder, Sequence) and not isinstance(encoder, str):
            raise InputError("Adaptive takes one encoder for all axes, since it rotates them into each other")
        self.encoder, self.angles = resolve(encoder), angles
        self.aspects = None if aspects is None else [float(aspect) for aspect in aspects]
        self.window, self.noise, self.pretrained = float(window), noise, pretrained

    def bank(self, num_axes: int, scattered: bool) -> AnisotropicKernels:
        usual = [6.0] if num_axes == 3 and not scattered else [2.0, 6.0]
        return AnisotropicKernels(
            copy.deepcopy(self.encoder), num_axes, self.angles, usual if self.aspects is None else self.aspects
        )

    def read_prior(self, split: Split) -> LocalPrior | None:
        """The prior, if one is named and can have an effect."""
        prior = None if self.pretrained == NO_PRIOR else read_prior(self.pretrained)
        return prior if _takes_prior(split) else None

    def check(self, train: Signals) -> None:
        self.read_prior(train.split)
        self.bank(train.info.num_axes, train.info.num_points is not None)
        TrainedSamples.from_signals(train, self.label, torch.device("cpu"))

    def applies_to(self, split: Split) -> bool:
        return self.pretrained == NO_PRIOR or _takes_prior(split)

    def fit(self, train: Signals, device: torch.device | None = None) -> SampledField:
        device, prior = default_device(device), self.read_prior(train.split)
        samples = TrainedSamples.from_signals(train, self.label, device)
        return self._fit_samples(samples, train.info, None if prior is None else prior.to(device))

    def restore(self, state: Mapping[str, Any], info: SignalInfo, device: torch.device) -> SampledField:
        samples, ridges = TrainedSamples.restored(state, device), state["ridges"].tolist()
        return self._fit_samples(samples, info, prior_of(state, device), ridges)

    def describe(self, info: SignalInfo, fields: Sequence[FittedField]) -> dict[str, Any]:
        bank = self.bank(info.num_axes, info.num_points is not None)
        described = {"encoding": bank.name, "encoder": described_encoder(bank.encoders[0])}
        if self.pretrained == NO_PRIOR:
            return described
        weights = _prior_weights([signal for field in fields if isinstance(field, SampledField) for signal in field.signals])
        return {**described, "prior": {"name": self.pretrained, "weight": weights or None}}

    @torch.no_grad()
    def _fit_samples(
        self, samples: TrainedSamples, info: SignalInfo, prior: LocalPrior | None, ridges: Sequence[float] | None = None
    ) -> SampledField:
        """Fits samples on their device, with the ridges of an earlier fit of them, or with chosen ones."""
        began, periodic = time.perf_counter(), tuple(axis.periodic for axis in info.axes)
        bank = self.bank(info.num_axes, info.num_points is not None).to(samples.values.device)
        fits = LocalFits(bank, info.grid, self.window, self.noise, prior, periodic, info.num_points is not None)
        given: Sequence[float | None] = ridges or [None] * len(samples.values)
        fitted = [fits.fit(samples.signal(place), ridge) for place, ridge in enumerate(given)]
        fields, found = zip(*fitted, strict=True)
        if samples.values.is_cuda:
            torch.cuda.synchronize()
        found_ridges, weights, label = [fit.ridge for fit in found], _prior_weights(fields), "Adaptive"
        ridge = found_ridges[0] if len(set(found_ridges)) == 1 else None
        report = FitReport("adaptive", ridge, time.perf_counter() - began, members=found[-1].num_members)
        if any(weights):
            label += f", mixed with the network {self.pretrained!r} trained on other pictures (weight {max(weights):.2f})"
        field = SampledField(
            fields,
            samples,
            label=label,
            solution=report,
            num_axes=info.num_axes,
            ridges=found_ridges,
            prior=prior if any(weights) else None,  # without a weight it has no effect
            spread=partial(fits.spread, samples.signal(0), fields[0], found_ridges[0]) if info.num_signals == 1 else None,
        )
        if prior is not None:
            field.notes = (f"weight {math.fsum(weights) / len(weights):.2f}",)
        return field
