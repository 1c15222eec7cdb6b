"""Comparisons of signals with their reconstructions, read from a run directory. This needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py

ALL_SIGNALS = "reconstructions.h5"
"""File of more than :data:`~pe_lightning.results.runs.MAX_FILES` signals."""
COMPARED = ("truth", "reconstruction", "interpolation", "trained")
"""Datasets of a comparison."""


class Comparison(Mapping[str, Any]):
    """The datasets by name of the comparison of one signal.

    Args:
        file: The open file of the signal, or of all signals.
        index: Index of the signal in the file of all.

    Attributes:
        attrs: Attributes of the file.
        datasets: The datasets of the file, of all signals where it has all.
    """

    def __init__(self, file: h5py.File, index: int | None = None) -> None:
        self.attrs = file.attrs
        self.datasets: dict[str, h5py.Dataset] = {name: file[name] for name in COMPARED if name in file}
        self._index = index

    def __getitem__(self, name: str) -> Any:
        dataset = self.datasets[name]
        return dataset if self._index is None else dataset[min(self._index, len(dataset) - 1)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.datasets)

    def __len__(self) -> int:
        return len(self.datasets)


@contextmanager
def open_comparison(folder: Path, stem: str, index: int) -> Iterator[Comparison]:
    """The comparison of a signal, from the file of all signals or from its own; FileNotFoundError without either.

    Args:
        folder: Folder of the reconstructions.
        stem: Stem of the files of the signal, of :func:`~pe_lightning.results.runs.file_names`.
        index: Index of the signal.
    """
    whole = (folder / ALL_SIGNALS).is_file()
    with h5py.File(folder / (ALL_SIGNALS if whole else f"{stem}_comparison.h5")) as file:
        yield Comparison(file, index if whole else None)
