"""Exact fits without Lightning: an estimator fits signals, and returns a field that answers at any coordinates.

>>> import torch
>>> from pe_lightning.estimators import LinearRidge
>>> from pe_lightning.signals import GridSampling, Signals, Splitting
>>> from pe_lightning.signals.sources import TensorSource
>>> signals = Signals.read(TensorSource(torch.rand(1, 16, 16, 3)), Splitting(GridSampling(2)))
>>> LinearRidge({"name": "gau", "num_features": 8}).fit(signals).at(torch.rand(5, 2)).shape
torch.Size([1, 5, 3])
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from pe_lightning.estimators.base import Estimator, Field, Fits, FittedField, Spread, Variant, estimators
    from pe_lightning.estimators.linear import LinearRidge
    from pe_lightning.solvers.solution import FitReport

__all__ = [
    "Estimator",
    "Field",
    "FitReport",
    "Fits",
    "FittedField",
    "LinearRidge",
    "Spread",
    "Variant",
    "estimators",
]

__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "base": ["Estimator", "Field", "FitReport", "Fits", "FittedField", "Spread", "Variant", "estimators"],
        "linear": ["LinearRidge"],
    },
)
