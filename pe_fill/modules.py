"""Models that hold the trained samples and take no training steps: local fits, and a network that saw other pictures."""

from __future__ import annotations

from typing import Literal

from pe_fill.estimators.adaptive import AdaptiveFit
from pe_fill.estimators.local import PretrainedInterpolator
from pe_fill.request import SHIPPED
from pe_lightning.encoders import Encoder
from pe_lightning.registry import Described
from pe_lightning.training import EstimatorModule


class Adaptive(EstimatorModule):
    r"""Exact local fits by a bank of rotated and stretched encoders, weighted by how well each predicts nearby samples.

    The members of the bank are the encoder itself, and rotated and stretched copies. Each member fits the samples around a
    point exactly, with a ridge and a free mean. Its weight at a point follows from the errors of its predictions of trained
    samples nearby from the other samples. Nothing is trained: fit it with ``max_steps: 0``.

    Samples on a grid of one axis are interpolated instead, unless ``noise`` is ``auto``: by splines of many degrees,
    weighted by their leave-one-out errors (:mod:`pe_fill.adaptive.line`); only ``noise`` then has an effect. Such
    splines first interpolate axes of larger grids that they predict far better than linear interpolation, or than the bank
    in three axes.

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
            ridge, which is the variance of the noise relative to the signal nearby, by the held-out error, so that
            noisy samples are smoothed; it takes six fits.
        pretrained: ``none``; or a network that was trained on other pictures (:class:`~pe_fill.Local`):
            ``pictures``, which is part of the package, or a checkpoint of ``datasets/make_priors.py``.
            It is mixed with the fit by one weight per signal, from trained samples that are held out at twice and at four
            times the spacing; the weight is zero where they do not support it. Of three axes one must be sampled completely,
            and every frame is predicted by itself. It has no effect on signals of other numbers of axes, on scattered
            samples, and where ``noise: auto`` smooths.

    Reference: Li and Orchard, *New Edge-Directed Interpolation*, IEEE Trans. Image Processing 10, 2001, for statistics at
    twice the spacing; docs/adaptive.md has the derivation.
    """

    def __init__(
        self,
        encoder: Described[Encoder] = "laplace",
        angles: int = 12,
        aspects: list[float] | None = None,
        window: float = 0.8,
        noise: Literal["none", "auto"] = "none",
        pretrained: str = SHIPPED,
    ) -> None:
        super().__init__(AdaptiveFit(encoder, angles, aspects, window, noise, pretrained))


class Local(EstimatorModule):
    """A coordinate network of every cell of the trained grid, whose weights a network predicts that saw other pictures.

    The value at a point is Keys' bicubic interpolation plus features of the place within its cell, by a registered encoder,
    times coefficients that a perceptron predicts from the 6 x 6 samples around the cell. The perceptron was trained on other
    pictures; nothing is trained here: fit it with ``max_steps: 0``. Trained samples are reproduced. ``Adaptive`` with a
    prior mixes it with a fit to the picture alone, and is never far below either.

    Of three axes one must be sampled completely, as in a clip whose frames are all known at fewer pixels: each frame is
    predicted by itself, and interpolated by cubic convolution between frames.

    Its parameters are the trained samples, which ``num_params`` counts; the perceptron is in checkpoints too.

    Args:
        pretrained: The trained network: ``pictures``, which is part of the package, or a checkpoint of
            ``datasets/make_priors.py``.

    Reference: after Chen, Liu, Wang, *Learning Continuous Image Representation with Local Implicit Image Function*, CVPR
    2021. Different are the linear head on an encoder by name, exact samples and continuous derivatives.
    """

    def __init__(self, pretrained: str = "pictures") -> None:
        super().__init__(PretrainedInterpolator(pretrained))
