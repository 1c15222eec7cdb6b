"""Signals: files and arrays to tensors, sampling, LightningDataModules.

>>> import torch
>>> from pe_lightning.data import RandomSampling, TensorDataModule
>>> data = TensorDataModule(torch.rand(2, 32, 32, 1), sampling=RandomSampling(fraction=0.5))
>>> data.info.grid, data.train_batch().index.shape
((32, 32), torch.Size([2, 512]))
"""

from pe_lightning.data.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.data.coordinates import grid_axes, point_coordinates
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.image_datamodule import ImageDataModule
from pe_lightning.data.mask_sampling import MaskSampling
from pe_lightning.data.row_datamodule import RowDataModule
from pe_lightning.data.sampling import GridSampling, RandomSampling, Sampling, samplings
from pe_lightning.data.splits import GridSplit, PointSplit, Protocol, Split
from pe_lightning.data.tensor_datamodule import TensorDataModule
from pe_lightning.data.video_datamodule import VideoDataModule

__all__ = [
    "GridBatch",
    "GridSampling",
    "GridSplit",
    "ImageDataModule",
    "MaskSampling",
    "PointBatch",
    "PointSplit",
    "Protocol",
    "RandomSampling",
    "RowDataModule",
    "Sampling",
    "SignalDataModule",
    "SignalInfo",
    "Split",
    "TensorDataModule",
    "VideoDataModule",
    "grid_axes",
    "point_coordinates",
    "samplings",
]
