"""A network that was trained on other pictures, applied to the samples of a picture."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pe_fill.estimators.priors import prior_of, read_prior
from pe_fill.estimators.samples import SampledField, TrainedSamples, described_encoder
from pe_fill.networks.frames import local_field, spaced_axes
from pe_fill.networks.local import LocalPrior
from pe_fill.request import SHIPPED
from pe_lightning.errors import InputError
from pe_lightning.estimators import Estimator, FitReport, FittedField
from pe_lightning.estimators.base import default_device
from pe_lightning.signals import GridSplit, SignalInfo, Signals


class PretrainedInterpolator(Estimator):
    """A coordinate network of every cell, predicted by a trained network; :class:`~pe_fill.Local` has the argument."""

    model = "pe_fill.Local"
    label = "Local"

    def __init__(self, pretrained: str = SHIPPED) -> None:
        self.pretrained = pretrained

    def check(self, train: Signals) -> None:
        self._prepared(train, torch.device("cpu"))

    def fit(self, train: Signals, device: torch.device | None = None) -> SampledField:
        return self._field(*self._prepared(train, default_device(device)), train.info)

    def restore(self, state: Mapping[str, Any], info: SignalInfo, device: torch.device) -> SampledField:
        prior = prior_of(state, device)
        assert prior is not None
        return self._field(prior, TrainedSamples.restored(state, device), info)

    def _prepared(self, train: Signals, device: torch.device) -> tuple[LocalPrior, TrainedSamples]:
        axes, split = train.info.num_axes, train.split
        if axes not in (2, 3):
            raise InputError(
                f"Local was trained on pictures, and these signals have {axes} axes: use Adaptive, or ComplexLinear"
            )
        if axes == 3 and not (isinstance(split, GridSplit) and spaced_axes(split.sizes, train.info.grid)):
            raise InputError(
                "Local predicts frame by frame: of three axes, exactly one must be sampled completely, as by "
                "--data.sampling.stride '[1, 2, 2]'; use Adaptive otherwise"
            )
        prior, samples = read_prior(self.pretrained), TrainedSamples.from_signals(train, self.label, device)
        if samples.coords is not None:
            raise InputError(
                "Local needs trained samples at equal distances along each axis; use Adaptive for scattered or missing "
                "samples"
            )
        return prior.to(device), samples

    @torch.no_grad()
    def _field(self, prior: LocalPrior, samples: TrainedSamples, info: SignalInfo) -> SampledField:
        began, net, spaced = time.perf_counter(), prior.for_axes(info.num_axes), spaced_axes(samples.sizes, info.grid)
        assert spaced is not None
        every = [samples.signal(place) for place in range(len(samples.values))]
        fields = [local_field(net, one.values, info.grid, one.first, one.step, spaced) for one in every]
        report = FitReport("local", None, time.perf_counter() - began)
        return SampledField(fields, samples, label="Local", solution=report, num_axes=info.num_axes, prior=prior)

    def describe(self, info: SignalInfo, fields: Sequence[FittedField]) -> dict[str, Any]:
        held = [field.prior for field in fields if isinstance(field, SampledField) and field.prior is not None]
        prior = held[0] if held else read_prior(self.pretrained)
        about = {"name": self.pretrained, "num_params": prior.num_params}
        return {"encoding": prior.name, "encoder": described_encoder(prior.encoders[0]), "prior": about}
