"""Encoders: one axis, ``psi: R -> R^K``.

>>> from pe_lightning import encoders
>>> encoders.create("gau", num_features=256, sigma=0.0025).num_features
256
"""

from pe_lightning.encoders.base import Encoder, EncoderLike, registry, resolve

__all__ = ["Encoder", "EncoderLike", "create", "names", "register", "registry", "resolve"]

register = registry.register
create = registry.create
names = registry.names
