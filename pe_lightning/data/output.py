"""Coordinates to predict at, of any size; needs no data."""

from __future__ import annotations

import math
import shutil
from typing import Literal

import numpy as np
from lightning.pytorch import LightningDataModule
from torch import Tensor

from pe_lightning.blocks import grid_blocks
from pe_lightning.data.batches import SignalInfo
from pe_lightning.data.coordinates import grid_axes
from pe_lightning.data.loaders import GridLoader
from pe_lightning.errors import InputError, show_bytes

__all__ = ["OutputGrid"]

BLOCK_BYTES = 1 << 28
"""Bytes of values that are predicted at once."""
MAX_SCALE = 1e6


class OutputGrid(LightningDataModule):
    """The coordinates of a grid for ``predict``: sample j of M lies at j/M, as in the data the model was fitted to.

    A large grid comes in blocks of whole rows, in order.

    Args:
        output_shape: Number of samples per axis; ``None`` is the size that the model was fitted at, times ``scale``.
        output_format: What is written: ``auto`` suits the source (PNG, MP4, WAV, else NPY), or ``png``, ``mp4``, ``gif``,
            ``wav``, ``npy``, ``h5``.
        scale: Number of samples per axis relative to the size that the model was fitted at, rounded.

    Raises:
        InputError: If a size is less than 1, ``scale`` is not positive or given with ``output_shape``, or (at predict) the
            number of sizes is not the signal's number of axes.
    """

    def __init__(
        self,
        output_shape: list[int] | None = None,
        output_format: Literal["auto", "png", "mp4", "gif", "wav", "npy", "h5"] = "auto",
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        if output_shape is not None and (not output_shape or min(output_shape) < 1):
            raise InputError(f"output_shape needs a size >= 1 per axis, got {output_shape}")
        if not 0 < scale <= MAX_SCALE:
            raise InputError(f"scale must be a number above 0, 2 for twice as many samples per axis; got {scale:g}")
        if output_shape is not None and scale != 1:
            raise InputError(f"give output_shape or scale, not both; got {output_shape} and {scale:g}")
        self.output_shape = output_shape
        self.scale = scale
        self.output_format = output_format

    def grid(self, info: SignalInfo) -> tuple[int, ...]:
        """The number of samples per axis, for signals of this shape; refused if that has another number of axes."""
        shape = tuple(self.output_shape or (max(1, round(self.scale * n)) for n in info.grid))
        if len(shape) != info.num_axes:
            raise InputError(f"output_shape {list(shape)} must have one size per axis of the signals, {info.num_axes}")
        return shape

    def predict_dataloader(self) -> GridLoader[tuple[Tensor, ...]]:
        """The grid, or its blocks: a coordinate vector per axis."""
        info = getattr(self.trainer.lightning_module, "info", None) if self.trainer is not None else None
        shape, values = tuple(self.output_shape or ()), 1
        if isinstance(info, SignalInfo):
            shape, values = self.grid(info), info.num_signals * info.channels
            needed = values * math.prod(shape) * np.dtype(info.scaling.dtype).itemsize
            free = shutil.disk_usage(self.trainer.default_root_dir).free  # type: ignore[union-attr]
            if needed > free:
                raise InputError(
                    f"output_shape {list(shape)} takes {show_bytes(needed)}; the disk has {show_bytes(free)} free"
                )
        rows = max(1, BLOCK_BYTES // (4 * values * math.prod(shape[1:])))
        axes = grid_axes(shape)
        return GridLoader(
            list(grid_blocks(shape, (rows, *shape[1:])[: len(shape)])),
            lambda part: tuple(x[along] for x, along in zip(axes, part, strict=True)),
        )
