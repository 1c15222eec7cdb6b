"""Encoders: one axis, ``psi: R -> R^K``.

>>> from pe_lightning import encoders
>>> encoders.create("gau", num_features=256, sigma=0.0025).num_features
256

- :mod:`~pe_lightning.encoders.fourier`: ``linf``, ``logf``, ``rff``, ``basic``.
- :mod:`~pe_lightning.encoders.shifted`: ``gau``, ``tri``, ``laplace``, ``rect``, ``impulse``, ``keys``, ``bspline``.
- :mod:`~pe_lightning.encoders.control`: ``identity``, ``noise``, ``sine``, ``square``.
- :mod:`~pe_lightning.encoders.learned_fourier`: ``lff``.
- :mod:`~pe_lightning.encoders.tables`: ``hash``, ``grid``, ``lines``, ``planes``.

The last two have parameters, which are trained with the network; ``gau``, ``tri``, ``laplace``, ``linf``, ``logf`` and
``rff`` have some with ``trainable=True``.
"""

from fnmatch import fnmatchcase

from pe_lightning.encoders.arguments import Samples, Width, sample_value, set_width
from pe_lightning.encoders.base import Configurable, Encoder, EncoderLike, Traits, registry
from pe_lightning.encoders.cells import cell_means
from pe_lightning.encoders.configured import ConfiguredEncoders, per_axis
from pe_lightning.encoders.control import Identity, Noise, Sine, Square
from pe_lightning.encoders.fourier import Basic, LinearFourier, LogFourier, RandomFourier
from pe_lightning.encoders.learned_fourier import Grouped, GroupedWaves, LearnableFourier
from pe_lightning.encoders.local import bandwidth, interpolates, is_local, local_features
from pe_lightning.encoders.lookups import TableEncoder
from pe_lightning.encoders.resolution import (
    automatic,
    automatic_width,
    for_data,
    samples_per_unit,
    sized,
    widened,
    with_seed,
)
from pe_lightning.encoders.shifted import BSpline, Gaussian, Impulse, Keys, Laplace, Rectangle, Shifted, Triangle
from pe_lightning.encoders.tables import Grids, HashGrid, Lines, Planes

__all__ = [
    "BSpline",
    "Basic",
    "Configurable",
    "ConfiguredEncoders",
    "Encoder",
    "EncoderLike",
    "Gaussian",
    "Grids",
    "Grouped",
    "GroupedWaves",
    "HashGrid",
    "Identity",
    "Impulse",
    "Keys",
    "Laplace",
    "LearnableFourier",
    "LinearFourier",
    "Lines",
    "LogFourier",
    "Noise",
    "Planes",
    "RandomFourier",
    "Rectangle",
    "Samples",
    "Shifted",
    "Sine",
    "Square",
    "TableEncoder",
    "Traits",
    "Triangle",
    "Width",
    "automatic",
    "automatic_width",
    "bandwidth",
    "cell_means",
    "create",
    "create_encoder",
    "for_data",
    "interpolates",
    "is_local",
    "list_encoders",
    "local_features",
    "names",
    "per_axis",
    "register",
    "registry",
    "resolve",
    "sample_value",
    "samples_per_unit",
    "set_width",
    "sized",
    "widened",
    "with_seed",
]

register = registry.register
create = create_encoder = registry.create
names = registry.names
resolve = registry.resolve


def list_encoders(pattern: str = "*") -> list[str]:
    """The names of the registered encoders, plug-ins included, that match a pattern of the shell.

    Example:
        >>> list_encoders("l*")
        ['laplace', 'lff', 'lines', 'linf', 'logf']
    """
    return [name for name in registry.names() if fnmatchcase(name, pattern)]
