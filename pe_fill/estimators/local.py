"""A network that was trained on other pictures, applied to the samples of a picture."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pe_fill.estimators.priors import SHIPPED, prior_of, read_prior
from pe_fill.estimators.samples import SampledField, TrainedSamples, check_in_memory, described_encoder
from pe_fill.networks.local import LocalPrior, local_field, spaced_axes
from pe_lightning.errors import InputError
from pe_lightning.estimators import Estimator, FitReport, FittedField
from pe_lightning.estimators.base import default_device
from pe_lightning.signals import GridBatch, GridSplit, PointBatch, SignalInfo, Signals
from pe_lightning.signals.dataset import to_device


class PretrainedInterpolator(Estimator):
    """A coordinate network of every cell, predicted by a trained network; see :class:`~pe_fill.Local`.

    Args:
        pretrained: The trained network: ``pictures``, which is part of the package, or a checkpoint.
    """

    model = "pe_fill.Local"
    label = "Local"

    def __init__(self, pretrained: str = SHIPPED[0]) -> None:
        self.pretrained = pretrained

    def read_prior(self, train: Signals) -> LocalPrior:
        """The trained network."""
        axes, split = train.info.num_axes, train.split
        check_in_memory(train, "Local")
        if axes not in (2, 3):
            raise InputError(
                f"Local was trained on pictures, and these signals have {axes} axes: use Adaptive, or ComplexLinear"
            )
        if axes == 3 and not (isinstance(split, GridSplit) and spaced_axes(split.sizes, train.info.grid)):
            raise InputError(
                "Local predicts frame by frame: of three axes, exactly one must be sampled completely, as by "
                "--data.sampling.stride '[1, 2, 2]'; use Adaptive otherwise"
            )
        return read_prior(self.pretrained)

    def check(self, train: Signals) -> None:
        self.read_prior(train)
        check_even(train.train_batch(), train.info)

    @torch.no_grad()
    def fit(self, train: Signals, device: torch.device | None = None) -> SampledField:
        """Applies the network to the trained samples; see :class:`Estimator`."""
        device, info = default_device(device), train.info
        prior, batch = self.read_prior(train).to(device), to_device(train.train_batch(), device)
        check_even(batch, info)
        return interpolated(prior, TrainedSamples.of(batch, info, self.label), info.grid)

    def restore(self, state: Mapping[str, Any], info: SignalInfo, device: torch.device) -> SampledField:
        prior = prior_of(state, device)
        assert prior is not None
        return interpolated(prior, TrainedSamples.restored(state, device), info.grid)

    def describe(self, info: SignalInfo, fields: Sequence[FittedField]) -> dict[str, Any]:
        held = [field.prior for field in fields if isinstance(field, SampledField) and field.prior is not None]
        prior = held[0] if held else read_prior(self.pretrained)
        about = {"name": self.pretrained, "num_params": prior.num_params}
        return {"encoding": prior.name, "encoder": described_encoder(prior.encoders[0]), "prior": about}


def check_even(batch: GridBatch | PointBatch, info: SignalInfo) -> None:
    """Refuses samples that are not on a grid of even distances."""
    if isinstance(batch, PointBatch) or any(axis.samples is not None for axis in info.axes):
        raise InputError(
            "Local needs trained samples at equal distances along each axis; use Adaptive for scattered or missing samples"
        )


@torch.no_grad()
def interpolated(prior: LocalPrior, samples: TrainedSamples, grid: tuple[int, ...]) -> SampledField:
    """Signals as functions of coordinates, by a trained network."""
    net = prior.for_axes(len(grid))
    began, spaced = time.perf_counter(), spaced_axes(samples.values.shape[1:-1], grid)
    assert spaced is not None
    every = [samples.signal(place) for place in range(len(samples.values))]
    fields = [local_field(net, one.values, grid, one.first, one.step, spaced) for one in every]
    report = FitReport("local", None, time.perf_counter() - began)
    return SampledField(fields, samples, label="Local", solution=report, num_axes=len(grid), prior=prior)
