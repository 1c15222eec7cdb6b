"""A network that was trained on other pictures, applied to the samples of a picture."""

from __future__ import annotations

from typing import Any

import torch

from pe_lightning.estimators.local import PretrainedInterpolator, check_even, interpolator_field
from pe_lightning.estimators.priors import PRIOR_KEY, prior_from, read_prior
from pe_lightning.estimators.report import FitReport
from pe_lightning.networks.local import DEFAULT_ENCODER, LocalFrames, LocalGrid, LocalPrior
from pe_lightning.networks.samples import SampleNetwork
from pe_lightning.signals.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.training.adaptive import NonparametricModule
from pe_lightning.training.base import models
from pe_lightning.training.datamodule import SignalDataModule


@models.register("Local")
class Local(NonparametricModule):
    """A coordinate network of every cell of the trained grid, whose weights a network predicts that saw other pictures.

    The value at a point is Keys' bicubic interpolation plus features of the place within its cell, by a registered encoder,
    times coefficients that a perceptron predicts from the 6 x 6 samples around the cell. The perceptron was trained on other
    pictures; nothing is trained here: fit it with ``max_steps: 0``. Trained samples are reproduced. ``Adaptive`` with a
    prior mixes it with a fit to the picture alone, and is never far below either.

    Of three axes one must be sampled completely, as of a clip of which every frame is known at fewer pixels: each frame is
    predicted by itself, and interpolated by cubic convolution between frames.

    Its parameters are the trained samples, which ``num_params`` counts; the perceptron is in checkpoints too.

    Args:
        pretrained: The trained network: ``pictures``, which is part of the package, or a checkpoint of
            ``pe-lightning fit --config prior/pictures``.

    Reference: after Chen, Liu, Wang, *Learning Continuous Image Representation with Local Implicit Image Function*, CVPR
    2021. Different are the linear head on an encoder by name, exact samples and continuous derivatives.
    """

    def __init__(self, pretrained: str = "pictures") -> None:
        super().__init__(DEFAULT_ENCODER)  # the prior's, once it is read
        self.pretrained = pretrained
        self._read: tuple[LocalPrior, ...] = ()  # in a tuple, so that it is no submodule: the network has it
        self.save_arguments(pretrained=pretrained)

    def choose(self, data: SignalDataModule, device: torch.device) -> None:
        super().choose(data, device)
        self._read = (PretrainedInterpolator(self.pretrained).read_prior(data.signals),)

    def make_network(self, info: SignalInfo) -> SampleNetwork:
        if not self._read:
            self._read = (read_prior(self.pretrained),)
        return SampleNetwork(self._read[0].for_axes(info.num_axes))

    def calibrate(self, batch: GridBatch | PointBatch) -> None:
        check_even(batch, self.require_info())
        super().calibrate(batch)

    def solve(self) -> None:
        self.solution = FitReport("local", None, 0.0)

    def make_field(self, place: int) -> LocalGrid | LocalFrames:
        prior = self.network.encoding
        assert isinstance(prior, LocalPrior)
        return interpolator_field(prior, self.samples(place), self.require_info().grid)

    def describe(self) -> dict[str, Any]:
        described = super().describe()
        return {**described, "prior": {"name": self.pretrained, "num_params": self._read[0].num_params}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        if self._read:
            checkpoint[PRIOR_KEY] = self._read[0].spec()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if checkpoint.get(PRIOR_KEY) is not None:
            self._read = (prior_from(checkpoint[PRIOR_KEY]),)
        super().on_load_checkpoint(checkpoint)
