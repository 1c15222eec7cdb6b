"""DataModules of scattered points and of labelled arrays."""

from __future__ import annotations

from typing import Any

from pe_fill.formats.labelled import LabelledSource
from pe_fill.formats.points import PointSource
from pe_lightning.registry import Described
from pe_lightning.signals import Batching, EvalMask, GridSampling, RandomSampling, Sampling, Storage, samplings
from pe_lightning.signals.sampling import FoldsLike
from pe_lightning.signals.splits import ValidationShare
from pe_lightning.training import FileDataModule, SignalDataModule


class PointsDataModule(SignalDataModule):
    """Scattered points as signals of one to three axes, one signal per column of values, all at the same places.

    Coordinates are mapped to [0, 1) by an affine map per axis, which checkpoints hold (``info.axes``).

    Args:
        paths: One or more files of rows: ``.csv``, ``.tsv``, ``.parquet``, ``.npz``, HDF5.
        coordinates: Names of 1 to 3 columns, such as ``lon,lat``.
        values: Names of the columns of values, such as ``temperature,humidity``.
        sampling: Which rows are trained on: ``random`` (a ``fraction``), or ``grid`` (every ``stride``-th row). ``None``: a
            random 80 %, the same for all signals.
        eval_mask: Which rows are scored: ``rest`` (all not trained on), ``all`` or ``none``.
        batching: Batches of training: all trained rows, or random ones.
        storage: Storage of the values; rows are always loaded, and not cached.
        folds: ``random``: every row is trained on, and scored by fits of all folds but one.
        **source: Arguments of :class:`~pe_fill.formats.points.PointSource`.
    """

    def __init__(
        self,
        paths: str | list[str],
        coordinates: str | list[str],
        values: str | list[str],
        *,
        sampling: Described[Sampling] | None = None,
        eval_mask: EvalMask = "rest",
        batching: Batching = Batching(),
        storage: Storage = Storage(),
        folds: FoldsLike | None = None,
        validation: ValidationShare | None = None,
        added_noise: float = 0.0,
        **source: Any,
    ) -> None:
        usual = RandomSampling(0.8, shared=True)
        if isinstance(sampling, dict) and sampling.keys().isdisjoint({"name", "class_path"}):
            sampling = {"name": "random", "fraction": 0.8, "shared": True, **sampling}
        chosen = usual if sampling is None else samplings.resolve(sampling)
        if folds is not None and chosen == usual:
            chosen = GridSampling(1)  # folds are of all rows
        points = PointSource(paths, coordinates, values, **source)
        super().__init__(points, chosen, eval_mask, batching, storage, folds, validation, added_noise=added_noise)


class LabelledDataModule(FileDataModule):
    """A variable of a NetCDF, Zarr or GeoTIFF file as signals of one to three axes, at the coordinates of the file.

    Args:
        paths: The file, or the folder of a Zarr store.
        **source: The other arguments of :class:`~pe_fill.formats.labelled.LabelledSource`.
    """

    @staticmethod
    def make_source(paths: str | list[str], **source: Any) -> LabelledSource:
        return LabelledSource(paths, **source)
