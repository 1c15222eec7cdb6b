"""Encoders: one axis, ``psi: R -> R^K``.

>>> from pe_lightning import encoders
>>> encoders.create("gau", num_features=256, sigma=0.0025).num_features
256

- :mod:`~pe_lightning.encoders.fourier`: ``linf``, ``logf``, ``rff``, ``basic``.
- :mod:`~pe_lightning.encoders.shifted`: ``gau``, ``tri``, ``laplace``, ``rect``, ``impulse``, ``keys``, ``bspline``.
- :mod:`~pe_lightning.encoders.control`: ``identity``, ``noise``, ``sine``, ``square``.
"""

from pe_lightning.encoders.base import Encoder, EncoderLike, Width, registry
from pe_lightning.encoders.control import Identity, Noise, Sine, Square
from pe_lightning.encoders.fourier import Basic, LinearFourier, LogFourier, RandomFourier
from pe_lightning.encoders.local import bandwidth, is_local, local_features
from pe_lightning.encoders.shifted import BSpline, Gaussian, Impulse, Keys, Laplace, Rectangle, Triangle

__all__ = [
    "BSpline",
    "Basic",
    "Encoder",
    "EncoderLike",
    "Gaussian",
    "Identity",
    "Impulse",
    "Keys",
    "Laplace",
    "LinearFourier",
    "LogFourier",
    "Noise",
    "RandomFourier",
    "Rectangle",
    "Sine",
    "Square",
    "Triangle",
    "Width",
    "bandwidth",
    "create",
    "is_local",
    "local_features",
    "names",
    "register",
    "registry",
    "resolve",
]

register = registry.register
create = registry.create
names = registry.names
resolve = registry.resolve
