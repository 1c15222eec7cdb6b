"""Exact local fits by a bank of encoders, adapted to the signal at every point."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from pe_lightning import checks
from pe_lightning.data.batches import SignalInfo
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.splits import GridSplit, Split
from pe_lightning.encoders import Encoder
from pe_lightning.encodings.bank import Bank
from pe_lightning.errors import InputError
from pe_lightning.modules.base import models
from pe_lightning.modules.priors import NO_PRIOR, PRIOR_KEY, prior_from, read_prior
from pe_lightning.modules.report import FitReport
from pe_lightning.modules.sampled import Field, SampledModule
from pe_lightning.networks.local import LocalFrames, LocalGrid, LocalPrior, local_field, spaced_axes
from pe_lightning.networks.samples import SampleNetwork
from pe_lightning.solvers.adaptive import RIDGES, AdaptiveGrid
from pe_lightning.solvers.adaptive_line import AdaptiveLine
from pe_lightning.solvers.adaptive_points import NOISE_RIDGES, RIDGE, AdaptivePoints
from pe_lightning.solvers.prior_weight import MixedGrid, held_out_weight
from pe_lightning.solvers.spread import spread_of_grid
from pe_lightning.threads import sized_threads, solve_operations

__all__ = ["Adaptive", "takes_prior"]

Fit: TypeAlias = AdaptiveGrid | AdaptiveLine | AdaptivePoints
"""A signal fitted by itself, as a function of coordinates."""
FIELD_PASSES = 20
"""Work of one signal, in passes over its samples (:func:`~pe_lightning.threads.solve_operations`)."""


def takes_prior(split: Split) -> bool:
    """Whether a prior can have an effect: on samples on a grid of two axes, or of three with one sampled completely."""
    return isinstance(split, GridSplit) and spaced_axes(split.sizes, split.grid) is not None


@models.register("Adaptive")
class Adaptive(SampledModule):
    r"""Exact local fits by a bank of rotated and stretched encoders, weighted by how well each predicts nearby samples.

    The members of the bank are the encoder itself, and rotated and stretched copies. Each member fits the samples around a
    point exactly, with a ridge and a free mean. The error of each member's prediction of every trained sample from the other
    samples is computed, and the weights of the members at a point follow from these errors nearby. Nothing is trained: fit
    it with ``max_steps: 0``.

    Samples on a grid of one axis are interpolated instead, unless ``noise`` is ``auto``: linearly, by cubic convolution and
    by a cubic spline, weighted by how well each predicts (:mod:`pe_lightning.solvers.adaptive_line`). ``encoder``,
    ``angles``, ``aspects`` and ``window`` then have no effect.

    Its parameters are the trained samples: ``num_params`` counts them (and the coordinates of scattered samples), and its
    checkpoint is as large as they are.

    Args:
        encoder: The encoder of the bank, with a closed form of its similarity ``D``. Its width follows the distance of the
            trained samples unless it is given, in units of the longest axis; ``num_features`` is not used.
        angles: Number of directions in 2-D; in 3-D there are 13, to the neighbours of a voxel. 0: the encoder alone.
        aspects: Ratios of length to width of the stretched encoders, each above 1.
        window: Standard deviation of the local mean of errors, in trained samples.
        noise: ``none`` interpolates, with a ridge of 0.001 on grids and 0.06 at scattered samples. ``auto`` chooses the
            ridge, which is the variance of the noise relative to that of the signal nearby, by the held-out error, so that
            noisy samples are smoothed; it takes six fits.
        prior: ``none``; or a network that was trained on other pictures (:class:`~pe_lightning.modules.Local`):
            ``pictures``, which is part of the package, or a checkpoint of ``pe-lightning fit --config prior/pictures``.
            It is mixed with the fit by one weight per signal, from trained samples that are held out at twice and at four
            times the spacing; the weight is zero where they do not support it. Of signals of three axes of which one is
            sampled completely, it predicts every frame by itself. It has no effect on other signals of more or fewer than
            two axes, on scattered samples, and where ``noise: auto`` smooths.

    Raises:
        InputError: If an argument is out of range; on a fit, if ``max_steps`` is not 0 or the signals stay in their file.

    Reference: Li and Orchard, *New Edge-Directed Interpolation*, IEEE Trans. Image Processing 10, 2001, for statistics at
    twice the spacing; docs/adaptive.md has the derivation.
    """

    takes_periodic = True

    def __init__(
        self,
        encoder: Encoder | str = "laplace",
        angles: int = 12,
        aspects: list[float] = [2.0, 6.0],  # noqa: B006  (never changed)
        window: float = 0.8,
        noise: Literal["none", "auto"] = "none",
        prior: str = NO_PRIOR,
    ) -> None:
        super().__init__(encoder)
        if not self.configured.one_for_all:
            raise InputError("Adaptive takes one encoder for all axes, since it rotates them into each other")
        checks.integer("angles", angles, hint=", such as 12")
        for aspect in aspects:
            checks.number("each of aspects", aspect, "(1, 100]", hint=", such as [2, 6] together")
        checks.number("window", window, "[0.1, 100]", hint=" of trained samples, such as 0.8")
        checks.choice("noise", noise, ("none", "auto"))
        self.angles, self.aspects, self.window, self.noise = angles, [float(rho) for rho in aspects], float(window), noise
        self.prior = prior
        self.local_prior: LocalPrior | None = None
        """The prior, read when the model is built; ``None`` without one, or where it has no effect."""
        self._spread: AdaptivePoints | None = None
        self.save_arguments(angles=angles, aspects=self.aspects, window=self.window, noise=noise, prior=prior)

    def make_network(self, info: SignalInfo) -> SampleNetwork:
        """The bank; :meth:`calibrate` sets its samples."""
        return SampleNetwork(Bank(self.configured.entries[0], info.num_axes, self.angles, self.aspects))

    @property
    def bank(self) -> Bank:
        """The bank of encoders."""
        bank = self.network.encoding
        assert isinstance(bank, Bank)
        return bank

    # -- the fit --------------------------------------------------------------------------------------------------------

    def choose(self, data: SignalDataModule, device: torch.device) -> None:
        """Reads the prior, if there is one.

        Raises:
            InputError: If there is no such prior, or signals are not in memory.
        """
        super().choose(data, device)
        if self.prior != NO_PRIOR:
            prior = read_prior(self.prior)  # a wrong name is an error for any signals
            self.local_prior = prior if takes_prior(data.split) else None

    def describe(self) -> dict[str, Any]:
        """As of any module, with the weight of the prior in each signal if there is a prior."""
        described = super().describe()
        if self.prior != NO_PRIOR:
            weights = [field.weight if isinstance(field, MixedGrid) else 0.0 for field in self._fields]
            described["prior"] = {"name": self.prior, "weight": weights or None}
        return described

    @torch.no_grad()
    def solve(self) -> None:
        """Chooses the ridge of each signal and fits the stored samples."""
        began = time.perf_counter()
        choices, without_noise = (NOISE_RIDGES, RIDGE) if self.network.coords.numel() else (RIDGES, RIDGES[0])
        tried = choices if self.noise == "auto" else (without_noise,)
        self._fields, self._spread = [], None
        for place in range(self.networks.num_signals):
            fits = (self._fit(place, ridge) for ridge in tried)
            best = min(fits, key=lambda fit: fit.error) if len(tried) > 1 else next(fits)
            self._fields.append(self._with_prior(place, best))
            self.network.ridge[place] = best.ridge
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        ridges = set(self.network.ridge.tolist())
        ridge = ridges.pop() if len(ridges) == 1 else None
        self.solution = FitReport("adaptive", ridge, seconds, members=best.num_members)

    def make_field(self, place: int) -> Field:
        """A signal as a function of coordinates, with the ridge that was chosen."""
        return self._with_prior(place, self._fit(place, float(self.network.ridge[place])))

    def _with_prior(self, place: int, fit: Fit) -> Field:
        """The fit, mixed with the prior if there is one that improves it."""
        if self.local_prior is None or not isinstance(fit, AdaptiveGrid) or fit.ridge > RIDGES[0]:
            return fit
        prior, bank, grid = self.local_prior, self.bank, self.require_info().grid
        first, step = self.network.first[place].tolist(), self.network.step[place].tolist()
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
        return MixedGrid(fit, prediction, weight, fit.values) if weight else fit

    def _fit(self, place: int, ridge: float) -> Fit:
        network, info = self.network, self.require_info()
        grid, bank, samples = info.grid, self.bank, network.samples[place].detach()
        with sized_threads(solve_operations((1, *samples.shape), passes=FIELD_PASSES)):
            if network.coords.numel():
                keeps, periodic = self.noise == "none", [axis.periodic for axis in info.axes]
                return AdaptivePoints(bank, samples, network.coords[place], grid, self.window, ridge, keeps, periodic)
            first, step = network.first[place].tolist(), network.step[place].tolist()
            if len(grid) == 1 and self.noise == "none":
                return AdaptiveLine(samples, grid[0], first[0], step[0], ridge)
            return AdaptiveGrid(bank, samples, grid, first, step, self.window, ridge)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the arguments of the prior, if there is one."""
        super().on_save_checkpoint(checkpoint)
        if self.local_prior is not None:
            checkpoint[PRIOR_KEY] = self.local_prior.spec()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Builds from the checkpoint, with as many samples as it contains, and the prior."""
        super().on_load_checkpoint(checkpoint)
        spec = checkpoint.get(PRIOR_KEY)
        self.local_prior = None if spec is None else prior_from(spec).to(self.device)
        self._spread = None

    # -- use ------------------------------------------------------------------------------------------------------------

    @property
    def has_std(self) -> bool:
        """Whether :meth:`std` is available: the model has one signal."""
        return self.info is not None and self.info.num_signals == 1

    @torch.no_grad()
    def std(self, coords: Tensor) -> Tensor:
        """Standard deviations of values about the predictions, of one signal: ``(*batch, D)`` in [0, 1) -> ``(*batch, C)``.

        They are those of the fit without a prior. The unit is that of the values. Of values that were not seen, about 90 %
        are within 1.645 standard deviations.

        Raises:
            InputError: If there are several signals.
        """
        info = self.require_info()
        if not self.has_std:
            raise InputError(f"std is of one signal, and this model has {info.num_signals}: fit them one by one")
        self.encoding.check_points(coords)
        if self._spread is None or self._spread.values.device != self.device:
            self._spread = self._spread_of(self.fields[0])
        points = coords.to(next(self.parameters()).dtype).reshape(-1, info.num_axes)
        return self._spread.std(points).reshape(*coords.shape[:-1], info.channels)

    def _spread_of(self, field: Field) -> AdaptivePoints:
        """Local fits with the standard deviations of a field; on a grid they follow from predictions at larger distances."""
        if isinstance(field, AdaptivePoints):
            return field
        network, grid = self.network, self.require_info().grid
        samples, first, step = network.samples[0].detach(), network.first[0].double(), network.step[0].double()
        axes = [
            (start + distance * torch.arange(n, device=self.device)) / size
            for start, distance, n, size in zip(first, step, samples.shape, grid, strict=False)
        ]
        coords, ridge = torch.cartesian_prod(*axes).reshape(-1, len(axes)), float(network.ridge[0])

        def refit(every: Sequence[int], held: Tensor) -> Tensor:
            fitted = samples[tuple(slice(None, None, s) for s in every)]
            wide = (step * torch.tensor(every, device=self.device)).tolist()
            if isinstance(field, AdaptiveLine):
                return AdaptiveLine(fitted, grid[0], float(first[0]), wide[0], ridge).at(coords[held])
            return AdaptiveGrid(self.bank, fitted, grid, first.tolist(), wide, self.window, ridge).at(coords[held])

        with sized_threads(solve_operations((1, *samples.shape), passes=FIELD_PASSES)):
            return spread_of_grid(samples, coords, grid, refit, self.noise == "none")
