"""Rows, columns, time series and sound as 1-D signals."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.dataset import BatchKind
from pe_lightning.data.sampling import Sampling
from pe_lightning.data.signals import RawSignals
from pe_lightning.data.sources.arrays import Channels
from pe_lightning.data.sources.checks import MAX_PIXELS
from pe_lightning.data.sources.images import Color
from pe_lightning.data.sources.rows import RowSource
from pe_lightning.data.splits import Protocol

__all__ = ["RowDataModule"]


class RowDataModule(SignalDataModule):
    """1-D signals, fitted together: rows and columns of images, arrays, columns of tables, sound.

    Args:
        paths: One or more files, folders or ``samples://NAME``, all of one kind: images, arrays (``.npy``, ``.npz``,
            HDF5), sound (``.wav``) or tables (``.csv``, ``.tsv``, ``.txt``).
        rows: Images: positions of the rows to take, from 0 at the top.
        columns: Images: positions of the columns to take, from 0 at the left.
        num_rows: Images: how many rows to draw at random, each image its own. If none of these four is given, 16 rows
            and, if all images are square, 16 columns (the papers' protocol).
        num_columns: Images: how many columns to draw at random.
        seed: Images: of the draw, a non-negative integer.
        center_crop: Images: the central part to keep first, n or [height, width].
        resize: Images: the size to resample to first, after the crop, n or [height, width].
        color: Images: ``auto``, ``rgb`` or ``grey``.
        max_pixels: Images: refuse a file whose header claims more; null for no limit.
        select: Tables: names or positions (from 0) of the columns to take; by default all that hold numbers.
        key: Arrays: which one of an ``.npz`` or HDF5 file (``volumes/ct``); not needed where there is only one.
        channels: Arrays of 2 axes: ``last``: (samples, channels); ``none``: (signals, samples); ``auto``: channels if
            there are at most 4.
        value_range: Arrays and tables: [low, high], the numbers that become 0 and 1.
        seconds: Sound: [start, stop] of the part to keep.
        length: Keep only the first n samples of each signal.
        sampling: Which samples are trained on: ``grid`` (every ``stride``-th), ``random`` (a ``fraction``) or ``mask``.
        protocol: Which samples are scored: ``rest`` (all that are not trained on), ``odd`` (those whose index is odd on
            every axis; grid of stride 2 only), ``all``, or ``none``.
        batch: What one step sees: ``full`` (all trained samples), ``points`` (``batch_size`` random ones) or ``blocks``
            (a part of the trained grid).
        batch_size: For ``points``, how many per signal; for ``blocks``, trained samples per axis.
        shuffle: Whether blocks come in random order.
        steps_per_epoch: Optimiser steps that make one epoch; by default 100 of full batches, else one pass.
        in_memory: Whether signals are loaded, or stay in their file; ``auto`` loads what fits in a quarter of the free
            memory.
        cache: ``auto`` keeps decoded signals for the next run, ``off`` does not.
        cache_dir: Where; by default ``PE_LIGHTNING_CACHE`` or ``~/.cache/pe_lightning``.

    Example:
        >>> data = RowDataModule("samples://astronaut", rows=[100, 200])
        >>> tuple(data.values.shape)
        (2, 512, 3)
    """

    def __init__(
        self,
        paths: str | list[str],
        rows: list[int] | None = None,
        columns: list[int] | None = None,
        num_rows: int | None = None,
        num_columns: int | None = None,
        seed: int = 0,
        center_crop: int | list[int] | None = None,
        resize: int | list[int] | None = None,
        color: Color = "auto",
        max_pixels: int | None = MAX_PIXELS,
        select: list[str | int] | None = None,
        key: str | None = None,
        channels: Channels = "auto",
        value_range: list[float] | None = None,
        seconds: list[float] | None = None,
        length: int | None = None,
        sampling: Sampling | str = "grid",
        protocol: Protocol = "rest",
        batch: BatchKind = "full",
        batch_size: int | list[int] | None = None,
        shuffle: bool = True,
        steps_per_epoch: int | None = None,
        in_memory: bool | Literal["auto"] = "auto",
        cache: Literal["auto", "off"] = "auto",
        cache_dir: str | None = None,
    ) -> None:
        super().__init__(sampling, protocol, batch, batch_size, shuffle, steps_per_epoch, in_memory, cache, cache_dir)
        self.paths = paths
        self._source = RowSource(
            paths,
            rows,
            columns,
            num_rows,
            num_columns,
            seed,
            center_crop,
            resize,
            color,
            max_pixels,
            select,
            key,
            channels,
            value_range,
            seconds,
            length,
        )

    def read(self) -> RawSignals:
        """Describes the signals, ``(S, N, C)``, and their names."""
        return self._source.read()

    def source_files(self) -> list[Path]:
        """The files; none where arrays are read in place."""
        return self._source.files()

    def describe_source(self) -> dict[str, Any]:
        """The arguments, as given."""
        return self._source.describe()
