"""Coordinates for ``predict``, on a grid of any size."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor

from pe_lightning.errors import InputError, show_bytes
from pe_lightning.results.reconstructions import Output
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.blocks import grid_axes, grid_blocks
from pe_lightning.signals.loaders import GridLoader

BLOCK_BYTES = 1 << 28
"""Bytes of values predicted at a time."""


class OutputGrid(Output, LightningDataModule):
    """The coordinates of the samples to predict. Large grids are divided into blocks of whole rows, in order."""

    @staticmethod
    def flat(batch: Sequence[Tensor] | Tensor) -> Tensor:
        """The points of a batch, ``(P, D)``."""
        return batch if isinstance(batch, Tensor) else torch.cartesian_prod(*batch).reshape(-1, len(batch))

    def predict_dataloader(self) -> GridLoader[Any]:
        """Coordinate vectors of the grid, or of its blocks; for models of scattered points also places ``(P, D)``."""
        info = getattr(self.trainer.lightning_module, "info", None) if self.trainer is not None else None
        shape, values = tuple(self.output_shape or ()), 1
        if self.at is not None:
            unit = torch.from_numpy(self.places(info.axes if isinstance(info, SignalInfo) else ())[1])
            return GridLoader([()], lambda _: unit[unit.isfinite().all(1)].float())
        if isinstance(info, SignalInfo):
            shape, values = self.grid(info), info.num_signals * info.channels
            needed = values * math.prod(shape) * np.dtype(info.scaling.dtype).itemsize
            free = shutil.disk_usage(self.trainer.default_root_dir).free  # type: ignore[union-attr]
            if needed > free:
                raise InputError(
                    f"output_shape {list(shape)} takes {show_bytes(needed)}; the disk has {show_bytes(free)} free"
                )
        rows = max(1, BLOCK_BYTES // (4 * values * math.prod(shape[1:])))
        axes = grid_axes(shape, cells=info.cells if isinstance(info, SignalInfo) else ())
        if isinstance(info, SignalInfo) and info.num_points is not None:
            spread = tuple(torch.from_numpy(axis.spread(n)).float() for axis, n in zip(info.axes, shape, strict=True))
            return GridLoader([()], lambda _: spread)
        return GridLoader(
            list(grid_blocks(shape, (rows, *shape[1:])[: len(shape)])),
            lambda part: tuple(x[along] for x, along in zip(axes, part, strict=True)),
        )
