"""Encodings: from one axis to D, by concatenation (``Simple``) or by a Kronecker product (``Complex``)."""

from pe_lightning.encodings.base import Encoding
from pe_lightning.encodings.complex import Complex
from pe_lightning.encodings.simple import Simple

__all__ = ["Complex", "Encoding", "Simple"]
