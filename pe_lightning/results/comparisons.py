"""Comparisons of signals with their reconstructions, read from a run directory. This needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py

ALL_SIGNALS = "reconstructions.h5"
"""File of more than :data:`~pe_lightning.results.runs.MAX_FILES` signals."""
COMPARED = ("truth", "reconstruction", "interpolation", "trained", "range")
"""Datasets of a comparison."""


class Comparison(Mapping[str, Any]):
    """The datasets by name of the comparison of one signal, in an open file of its own or, with an index, of all signals.

    ``attrs`` and ``datasets`` are the ones of the file.
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
    """The comparison of a signal in a folder of reconstructions; FileNotFoundError if there is none.

    ``stem``: of its files, from :func:`~pe_lightning.results.runs.file_names`.
    """
    whole = (folder / ALL_SIGNALS).is_file()
    with h5py.File(folder / (ALL_SIGNALS if whole else f"{stem}_comparison.h5")) as file:
        yield Comparison(file, index if whole else None)
