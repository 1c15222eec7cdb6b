"""Interpolation: what a reader would use instead of any encoding, and a row of every table.

>>> import torch
>>> from pe_lightning.baselines import interpolate, names
>>> from pe_lightning.data import TensorDataModule
>>> names()
['bicubic', 'delaunay', 'linear', 'nearest', 'spline']
>>> data = TensorDataModule(torch.rand(2, 16, 16, 3))
>>> tuple(interpolate("bicubic", data.train_batch(), data.evaluation_batch().axes).shape)
(2, 16, 16, 3)

On grids of any number of axes: ``nearest``, ``linear``, ``bicubic``, ``spline``. At scattered points: ``nearest`` and
``delaunay``.
"""

from pe_lightning.baselines.base import Interpolation, baselines, interpolate
from pe_lightning.baselines.methods import CubicConvolution, Delaunay, Linear, Nearest, Spline

__all__ = [
    "CubicConvolution",
    "Delaunay",
    "Interpolation",
    "Linear",
    "Nearest",
    "Spline",
    "baselines",
    "interpolate",
    "names",
]

names = baselines.names
