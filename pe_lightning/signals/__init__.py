"""Signals: samples of files and arrays, their axes, which of them are known and trained on, and how they are written back.

>>> import torch
>>> from pe_lightning.signals import RandomSampling
>>> from pe_lightning.training import TensorDataModule
>>> data = TensorDataModule(torch.rand(2, 32, 32, 1), sampling=RandomSampling(fraction=0.5))
>>> data.info.grid, data.train_batch().index.shape
((32, 32), torch.Size([2, 512]))

Modules that need no torch, such as :mod:`~pe_lightning.signals.files`, are imported without it.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from pe_lightning.signals.axes import Axis
    from pe_lightning.signals.batches import GridBatch, PointBatch, SignalInfo, sample_coordinates
    from pe_lightning.signals.blocks import grid_axes, point_coordinates
    from pe_lightning.signals.cache import Storage
    from pe_lightning.signals.distributed import Process, run_seed
    from pe_lightning.signals.loaders import Batching, TrainLoader, permutation
    from pe_lightning.signals.raw import RawSignals, ValueRange
    from pe_lightning.signals.sampling import (
        FoldSampling,
        GridSampling,
        MaskSampling,
        RandomSampling,
        Sampling,
        Splitting,
        samplings,
    )
    from pe_lightning.signals.sources.base import Source
    from pe_lightning.signals.split_signals import Signals
    from pe_lightning.signals.splits import EvalMask, GridSplit, PointSplit, Split

__all__ = [
    "Axis",
    "Batching",
    "EvalMask",
    "FoldSampling",
    "GridBatch",
    "GridSampling",
    "GridSplit",
    "MaskSampling",
    "PointBatch",
    "PointSplit",
    "Process",
    "RandomSampling",
    "RawSignals",
    "Sampling",
    "SignalInfo",
    "Signals",
    "Source",
    "Split",
    "Splitting",
    "Storage",
    "TrainLoader",
    "ValueRange",
    "grid_axes",
    "permutation",
    "point_coordinates",
    "run_seed",
    "sample_coordinates",
    "samplings",
]

__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "axes": ["Axis"],
        "batches": ["GridBatch", "PointBatch", "SignalInfo", "sample_coordinates"],
        "blocks": ["grid_axes", "point_coordinates"],
        "cache": ["Storage"],
        "distributed": ["Process", "run_seed"],
        "loaders": ["Batching", "TrainLoader", "permutation"],
        "raw": ["RawSignals", "ValueRange"],
        "sampling": ["FoldSampling", "GridSampling", "MaskSampling", "RandomSampling", "Sampling", "Splitting", "samplings"],
        "sources.base": ["Source"],
        "split_signals": ["Signals"],
        "splits": ["GridSplit", "PointSplit", "EvalMask", "Split"],
    },
)
