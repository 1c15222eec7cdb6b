"""Encodings of D axes from encoders of one axis: by concatenation (``Simple``) or by a Kronecker product (``Complex``)."""

from pe_lightning.encodings.base import EncoderList, Encoding
from pe_lightning.encodings.complex import Complex
from pe_lightning.encodings.ranks import encoder_rank, evaluating, feature_rank, stable_rank
from pe_lightning.encodings.simple import Simple

__all__ = [
    "Complex",
    "EncoderList",
    "Encoding",
    "Simple",
    "encoder_rank",
    "evaluating",
    "feature_rank",
    "stable_rank",
]
