"""Coordinates to predict at, of any size; needs no data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor

from pe_lightning.data.batches import SignalInfo
from pe_lightning.data.coordinates import grid_axes
from pe_lightning.errors import InputError

__all__ = ["OutputGrid"]

SLAB_BYTES = 1 << 28
"""How much is predicted at once."""


class Slabs:
    """Grids, one after another; a plain list would be taken for several loaders."""

    def __init__(self, grids: Sequence[tuple[Tensor, ...]]) -> None:
        self.grids = grids

    def __len__(self) -> int:
        return len(self.grids)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        return iter(self.grids)


class OutputGrid(LightningDataModule):
    """The coordinates of a grid for ``predict``: sample j of M lies at j/M, as in the data the model was fitted to.

    A large grid comes in slabs along its first axis, in order.

    Args:
        output_shape: Number of samples per axis; ``None`` is the size that the model was fitted at.
        output_format: What is written: ``auto`` suits the source (PNG, MP4, WAV, else NPY), or ``png``, ``mp4``, ``gif``,
            ``wav``, ``npy``, ``h5``.

    Raises:
        InputError: If a size is less than 1, or (at predict) the number of sizes is not the signal's number of axes.
    """

    def __init__(
        self,
        output_shape: list[int] | None = None,
        output_format: Literal["auto", "png", "mp4", "gif", "wav", "npy", "h5"] = "auto",
    ) -> None:
        super().__init__()
        if output_shape is not None and (not output_shape or min(output_shape) < 1):
            raise InputError(f"output_shape needs a size >= 1 per axis, got {output_shape}")
        self.output_shape = output_shape
        self.output_format = output_format

    def grid(self, info: SignalInfo) -> tuple[int, ...]:
        """The number of samples per axis, for signals of this shape.

        Raises:
            InputError: If the number of sizes is not the signal's number of axes.
        """
        shape = tuple(self.output_shape or info.grid)
        if len(shape) != info.num_axes:
            raise InputError(
                f"output_shape {list(shape)} has {len(shape)} size(s), the signals have {info.num_axes} axes: "
                f"give {info.num_axes}, such as {' '.join(str(2 * n) for n in info.grid)}"
            )
        return shape

    def predict_dataloader(self) -> Slabs:
        """The grid, or its slabs: a coordinate vector per axis."""
        module = self.trainer.lightning_module if self.trainer is not None else None
        info = getattr(module, "info", None)
        if not isinstance(info, SignalInfo):
            return Slabs([grid_axes(tuple(self.output_shape or ()))])
        first, *others = grid_axes(self.grid(info))
        row = 4 * info.num_signals * info.channels * math.prod(len(x) for x in others)
        return Slabs([(rows, *others) for rows in torch.split(first, max(1, SLAB_BYTES // row))])
