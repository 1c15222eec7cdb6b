"""Samples to predict, and the format of the files."""

from __future__ import annotations

from typing import Literal

from pe_lightning.errors import InputError
from pe_lightning.signals.batches import SignalInfo


class Output:
    """Samples to predict, on a grid: sample j of M is at j/M, as in the data of the fit.

    Where the samples of the fit are means over cells, predictions are too, and the centres are at (j + 1/2)/M.

    Args:
        output_shape: Number of samples per axis; ``None``: the number of the fit times ``scale``.
        output_format: File format: ``auto`` (PNG, MP4, WAV or NPY, by the medium of the source), ``png``, ``mp4``, ``wav``,
            ``npy`` or ``h5``; for models of scattered points ``nc``, ``tif``, ``csv`` or ``npy``.
        scale: Number of samples per axis relative to the fit, rounded.
        at: For models of scattered points: a file with columns of coordinates, at whose rows values are predicted.
        output_std: Whether standard deviations are written beside signals of a grid, ``<name>_std.npy``, float32 in the unit
            of the source; maps and places of scattered points always have them.
    """

    def __init__(
        self,
        output_shape: list[int] | None = None,
        output_format: Literal["auto", "png", "mp4", "wav", "npy", "h5", "nc", "tif", "csv"] = "auto",
        scale: float = 1.0,
        at: str | None = None,
        output_std: bool = False,
    ) -> None:
        super().__init__()
        if output_shape is not None and (not output_shape or min(output_shape) < 1):
            raise InputError(f"output_shape needs a size >= 1 per axis, got {output_shape}")
        if not 0 < scale <= 1e6:
            raise InputError(f"scale must be a number above 0, 2 for twice as many samples per axis; got {scale:g}")
        if sum([at is not None, output_shape is not None, scale != 1]) > 1:
            raise InputError("give one of output_shape, scale and at, a file of places")
        self.at, self.output_shape, self.scale = at, output_shape, scale
        self.output_format, self.output_std = output_format, output_std

    def grid(self, info: SignalInfo) -> tuple[int, ...]:
        """Number of samples per axis for signals of a given shape."""
        if info.num_points is not None and len({axis.name for axis in info.axes}) < len(info.axes):  # phases of a season
            raise InputError("a fit with a season predicts at places, not on a grid: give --at FILE")
        shape = tuple(self.output_shape or (max(1, round(self.scale * n)) for n in info.grid))
        if len(shape) != info.num_axes:
            raise InputError(f"output_shape {list(shape)} must have one size per axis of the signals, {info.num_axes}")
        return shape
