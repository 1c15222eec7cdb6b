"""Encoders: one axis, ``psi: R -> R^K``.

>>> from pe_lightning import encoders
>>> encoders.create("gau", num_features=256, sigma=0.0025).num_features
256

- :mod:`~pe_lightning.encoders.fourier`: ``linf``, ``logf``, ``rff``, ``basic``.
- :mod:`~pe_lightning.encoders.shifted`: ``gau``, ``tri``, ``laplace``.
- :mod:`~pe_lightning.encoders.local`: ``rect``, ``impulse``, ``keys``, ``bspline``.
- :mod:`~pe_lightning.encoders.control`: ``identity``, ``noise``, ``sine``, ``square``.
"""

from pe_lightning.encoders.base import Encoder, EncoderLike, EncoderRow, Width, encoder_table, registry, resolve
from pe_lightning.encoders.control import Identity, Noise, Sine, Square
from pe_lightning.encoders.fourier import Basic, LinearFourier, LogFourier, RandomFourier
from pe_lightning.encoders.local import BSpline, Impulse, Keys, Rectangle
from pe_lightning.encoders.shifted import Gaussian, Laplace, Triangle

__all__ = [
    "BSpline",
    "Basic",
    "Encoder",
    "EncoderLike",
    "EncoderRow",
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
    "create",
    "encoder_table",
    "names",
    "register",
    "registry",
    "resolve",
]

register = registry.register
create = registry.create
names = registry.names
