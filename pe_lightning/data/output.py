"""Coordinates to predict at, of any size; needs no data."""

from __future__ import annotations

from lightning.pytorch import LightningDataModule
from torch import Tensor

from pe_lightning.data.coordinates import grid_axes
from pe_lightning.data.datamodule import Repeat
from pe_lightning.errors import InputError

__all__ = ["OutputGrid"]


class OutputGrid(LightningDataModule):
    """The coordinates of a grid for ``predict``: sample j of M lies at j/M, as in the data the model was fitted to.

    Args:
        output_shape: Number of samples per axis; ``None`` is the size that the model was fitted at.

    Raises:
        InputError: If a size is less than 1, or (at predict) the number of sizes is not the signal's number of axes.
    """

    def __init__(self, output_shape: list[int] | None = None) -> None:
        super().__init__()
        if output_shape is not None and (not output_shape or min(output_shape) < 1):
            raise InputError(f"output_shape needs a size >= 1 per axis, got {output_shape}")
        self.output_shape = output_shape

    def predict_dataloader(self) -> Repeat[tuple[Tensor, ...]]:
        """One batch: a coordinate vector per axis."""
        module = self.trainer.lightning_module if self.trainer is not None else None
        info = getattr(module, "info", None)
        shape = tuple(self.output_shape or (info.grid if info is not None else ()))
        if info is not None and len(shape) != info.num_axes:
            raise InputError(
                f"output_shape {list(shape)} has {len(shape)} size(s), the signals have {info.num_axes} axes: "
                f"give {info.num_axes}, such as {' '.join(str(2 * n) for n in info.grid)}"
            )
        return Repeat(grid_axes(shape))
