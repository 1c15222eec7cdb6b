"""Models that hold the trained samples and take no training steps: local fits, and a network that saw other pictures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, EncoderLike
from pe_lightning.encodings.bank import AnisotropicKernels
from pe_lightning.errors import InputError
from pe_lightning.estimators.adaptive import AdaptiveFit, prior_weights
from pe_lightning.estimators.local import PretrainedInterpolator, check_even, interpolated
from pe_lightning.estimators.priors import NO_PRIOR, PRIOR_KEY, SHIPPED, prior_from, read_prior
from pe_lightning.estimators.samples import SampledField, TrainedSamples, check_in_memory
from pe_lightning.networks.local import DEFAULT_ENCODER, LocalPrior
from pe_lightning.networks.samples import SampleNetwork
from pe_lightning.registry import Described
from pe_lightning.signals.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.training.base import models, trainer_of
from pe_lightning.training.coordinate import CoordinateModule
from pe_lightning.training.datamodule import SignalDataModule


class NonparametricModule(CoordinateModule):
    """Signals as functions of their trained samples, which are the parameters: fitted with ``max_steps: 0``.

    A subclass defines :meth:`make_network`, which returns a :class:`~pe_lightning.networks.samples.SampleNetwork`, and
    :meth:`make_field`, which asks an estimator.
    """

    solves = True

    def __init__(self, encoder: EncoderLike) -> None:
        super().__init__(encoder, False, None, None, partial(torch.optim.SGD, lr=0.1), None)
        self._field: SampledField | None = None

    @abstractmethod
    def make_field(self, samples: TrainedSamples, ridges: list[float] | None) -> SampledField:
        """The fit of samples, with the ridges of an earlier fit if they are given."""

    @property
    def network(self) -> SampleNetwork:
        network = self.networks.network
        assert isinstance(network, SampleNetwork)
        return network

    @property
    def num_params(self) -> int:
        """Parameters of one signal: its samples, and their coordinates if they are scattered."""
        return super().num_params + (self.network.coords[0].numel() if self.info is not None else 0)

    @property
    def samples(self) -> TrainedSamples:
        """The stored samples."""
        values, coords = self.network.samples.detach(), self.network.coords
        if coords.numel():
            return TrainedSamples(values, coords)
        first, step = self.network.first[0], self.network.step[0]  # all signals have one grid
        return TrainedSamples(values, None, first.tolist(), step.tolist())

    @property
    def field(self) -> SampledField:
        """The fit of the stored samples, on their device."""
        self.require_info()
        found = self._field
        if found is None or len(found.signals) != self.networks.num_signals or found.device != self.device:
            with torch.inference_mode(False):
                found = self._field = self.make_field(self.samples, self.network.ridge.tolist())
        return found

    # -- the fit --------------------------------------------------------------------------------------------------------

    def configure_model(self) -> None:
        trainer = trainer_of(self)
        if trainer is not None and self.is_fitting and trainer.max_steps != 0:
            raise InputError(f"{type(self).__name__} is solved for, not trained: set --trainer.max_steps 0")
        super().configure_model()

    def choose(self, data: SignalDataModule, device: torch.device) -> None:
        check_in_memory(data.signals, type(self).__name__)

    @torch.no_grad()
    def calibrate(self, batch: GridBatch | PointBatch) -> None:
        found, network = TrainedSamples.of(batch, self.require_info(), type(self).__name__), self.network
        network.samples.data = found.values.clone()
        if found.coords is not None:
            network.coords.data = found.coords.clone()
        else:
            network.first.copy_(torch.tensor(found.first))
            network.step.copy_(torch.tensor(found.step))

    def on_fit_start(self) -> None:
        self._field = field = self.make_field(self.samples, None)
        self.solution = field.solution
        for place, ridge in enumerate(field.ridges):
            self.network.ridge[place] = ridge

    def describe(self) -> dict[str, Any]:
        described = super().describe()
        described["encoder"].pop("num_features", None)  # one entry: all axes have one encoder
        return described

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self._field = None
        for name in ("samples", "coords"):
            getattr(self.network, name).data = torch.empty_like(
                checkpoint["state_dict"][f"networks.network.{name}"], device=self.device
            )

    # -- use ------------------------------------------------------------------------------------------------------------

    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        raise NotImplementedError("nothing is trained")

    def evaluate(self, points: Tensor) -> Tensor:
        return self.field.evaluate(points)

    def predict_grid(self, axes: Sequence[Tensor]) -> Tensor:
        self.encoding.check_axes(axes)
        return self.field.grid(axes)


@models.register("Adaptive")
class Adaptive(NonparametricModule):
    r"""Exact local fits by a bank of rotated and stretched encoders, weighted by how well each predicts nearby samples.

    The members of the bank are the encoder itself, and rotated and stretched copies. Each member fits the samples around a
    point exactly, with a ridge and a free mean. The error of each member's prediction of every trained sample from the other
    samples is computed, and the weights of the members at a point follow from these errors nearby. Nothing is trained: fit
    it with ``max_steps: 0``.

    Samples on a grid of one axis are interpolated instead, unless ``noise`` is ``auto``: by splines of many degrees,
    weighted by their leave-one-out errors (:mod:`pe_lightning.solvers.adaptive_line`). ``encoder``, ``angles``,
    ``aspects`` and ``window`` then have no effect. Axes of pictures, clips and volumes that such splines predict far better
    than linear interpolation, or of clips and volumes better than the bank does, are interpolated by them first.

    Its parameters are the trained samples: ``num_params`` counts them (and the coordinates of scattered samples), and its
    checkpoint is as large as they are.

    Args:
        encoder: The encoder of the bank, with a closed form of its similarity ``D``. Its width follows the distance of the
            trained samples unless it is given, in units of the longest axis; ``num_features`` is not used.
        angles: Number of directions in 2-D; in 3-D there are 13, to the neighbours of a voxel. 0: the encoder alone.
        aspects: Ratios of length to width of the stretched encoders, each above 1. ``None``: 2 and 6, or 6 on grids of three
            axes.
        window: Standard deviation of the local mean of errors, in trained samples.
        noise: ``none`` interpolates, with a ridge of 0.001 on grids and 0.06 at scattered samples. ``auto`` chooses the
            ridge, which is the variance of the noise relative to that of the signal nearby, by the held-out error, so that
            noisy samples are smoothed; it takes six fits.
        pretrained: ``none``; or a network that was trained on other pictures (:class:`~pe_lightning.training.Local`):
            ``pictures``, which is part of the package, or a checkpoint of ``pe-lightning fit --config prior/pictures``.
            It is mixed with the fit by one weight per signal, from trained samples that are held out at twice and at four
            times the spacing; the weight is zero where they do not support it. Of signals of three axes of which one is
            sampled completely, it predicts every frame by itself. It has no effect on other signals of more or fewer than
            two axes, on scattered samples, and where ``noise: auto`` smooths.

    Reference: Li and Orchard, *New Edge-Directed Interpolation*, IEEE Trans. Image Processing 10, 2001, for statistics at
    twice the spacing; docs/adaptive.md has the derivation.
    """

    takes_periodic = True
    prefers_points = True

    def __init__(
        self,
        encoder: Described[Encoder] = "laplace",
        angles: int = 12,
        aspects: list[float] | None = None,
        window: float = 0.8,
        noise: Literal["none", "auto"] = "none",
        pretrained: str = SHIPPED[0],
    ) -> None:
        super().__init__(encoder)
        if not self.configured.one_for_all:
            raise InputError("Adaptive takes one encoder for all axes, since it rotates them into each other")
        self.estimator = AdaptiveFit(self.configured.entries[0], angles, aspects, window, noise, pretrained)
        self.angles, self.aspects, self.window, self.noise = angles, self.estimator.aspects, self.estimator.window, noise
        self.pretrained = pretrained
        self.local_prior: LocalPrior | None = None
        """The prior, read when the model is built; ``None`` without one, or where it has no effect."""
        self.save_arguments(angles=angles, aspects=self.aspects, window=self.window, noise=noise, pretrained=pretrained)

    def make_network(self, info: SignalInfo) -> SampleNetwork:
        return SampleNetwork(self.estimator.bank(info.num_axes, info.num_points is not None))

    def choose(self, data: SignalDataModule, device: torch.device) -> None:
        super().choose(data, device)
        self.local_prior = self.estimator.read_prior(data.split)

    def make_field(self, samples: TrainedSamples, ridges: list[float] | None) -> SampledField:
        bank = self.network.encoding
        assert isinstance(bank, AnisotropicKernels)
        return self.estimator.fit_samples(samples, self.require_info(), bank, self.local_prior, ridges)

    def describe(self) -> dict[str, Any]:
        described = super().describe()
        if self.pretrained != NO_PRIOR:
            weights = [] if self._field is None else prior_weights(self._field.signals)
            described["prior"] = {"name": self.pretrained, "weight": weights or None}
        return described

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        if self.local_prior is not None:
            checkpoint[PRIOR_KEY] = self.local_prior.spec()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        spec = checkpoint.get(PRIOR_KEY)
        self.local_prior = None if spec is None else prior_from(spec).to(self.device)

    @property
    def has_std(self) -> bool:
        return self.info is not None and self.info.num_signals == 1

    def std(self, coords: Tensor, level: float | None = None) -> Tensor:
        """Standard deviations of values about the predictions, of one signal: ``(*batch, D)`` in [0, 1) -> ``(*batch, C)``.

        They are those of the fit without a prior. The unit is that of the values. Of values that were not seen, about 90 %
        are within 1.645 standard deviations. With a ``level``, half the widths of intervals that hold this share of them.
        """
        return self.field.std(coords.to(next(self.parameters()).dtype), level)


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

    def make_field(self, samples: TrainedSamples, ridges: list[float] | None) -> SampledField:
        prior = self.network.encoding
        assert isinstance(prior, LocalPrior)
        return interpolated(prior, samples, self.require_info().grid)

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
