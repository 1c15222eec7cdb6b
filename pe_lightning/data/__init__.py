"""Signals from files and arrays: sources, samplings, batches and LightningDataModules.

>>> import torch
>>> from pe_lightning.data import RandomSampling, TensorDataModule
>>> data = TensorDataModule(torch.rand(2, 32, 32, 1), sampling=RandomSampling(fraction=0.5))
>>> data.info.grid, data.train_batch().index.shape
((32, 32), torch.Size([2, 512]))
"""

import importlib
from typing import TYPE_CHECKING, Any

from pe_lightning.blocks import grid_axes, point_coordinates
from pe_lightning.data.axes import Axis
from pe_lightning.data.batches import GridBatch, PointBatch, SignalInfo, sample_coordinates
from pe_lightning.data.options import Batching, Storage
from pe_lightning.data.sampling import FoldSampling, GridSampling, MaskSampling, RandomSampling, Sampling, samplings
from pe_lightning.data.signals import RawSignals, Scaling
from pe_lightning.data.sources.base import Source
from pe_lightning.data.splits import GridSplit, PointSplit, Protocol, Split

if TYPE_CHECKING:
    from pe_lightning.data.datamodule import SignalDataModule
    from pe_lightning.data.datamodules import (
        ImageDataModule,
        LabelledDataModule,
        PointsDataModule,
        RowDataModule,
        TensorDataModule,
        VideoDataModule,
        make_datamodule,
    )

__all__ = [
    "Axis",
    "Batching",
    "FoldSampling",
    "GridBatch",
    "GridSampling",
    "GridSplit",
    "ImageDataModule",
    "LabelledDataModule",
    "MaskSampling",
    "PointBatch",
    "PointSplit",
    "PointsDataModule",
    "Protocol",
    "RandomSampling",
    "RawSignals",
    "RowDataModule",
    "Sampling",
    "Scaling",
    "SignalDataModule",
    "SignalInfo",
    "Source",
    "Split",
    "Storage",
    "TensorDataModule",
    "VideoDataModule",
    "grid_axes",
    "make_datamodule",
    "point_coordinates",
    "sample_coordinates",
    "samplings",
]


def __getattr__(name: str) -> Any:
    """DataModules are imported when they are used, and Lightning with them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.datamodules"), name)
    return value
