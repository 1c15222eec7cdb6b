"""Signals that are read from their file in blocks: seconds and memory, against a plain read of the file.

    python benchmarks/data.py                              # needs 4.3 GB of disk, minutes on two cores
    python benchmarks/data.py --side 128 --repeats 1       # a quick look

A cube of ``--side``^3 float32 samples in HDF5: an epoch of points and the exact fit without loading it. Each line runs in
processes of its own, which take turns; medians. Nothing is dropped from the page cache of the system.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from harness import machine, make_parser, make_trainer, print_row, print_titles

from pe_lightning.signals import Batching, Storage
from pe_lightning.training import ComplexLinear, VideoDataModule

BATCH, CHUNK = 65536, 64


def write(path: Path, side: int) -> None:
    """Writes waves and noise in [0, 1], a layer of chunks at a time."""
    generator = np.random.default_rng(0)
    wave = np.sin(np.arange(side, dtype=np.float32) / 37)
    with h5py.File(path, "w") as file:
        values = file.create_dataset("values", (side,) * 3, "f4", chunks=(min(CHUNK, side),) * 3)
        for first in range(0, side, CHUNK):
            along = wave[first : first + CHUNK]
            noise = generator.random((len(along), side, side), dtype=np.float32)
            values[first : first + CHUNK] = 0.4 + 0.3 * along[:, None, None] * wave[:, None] * wave + 0.2 * noise


def read(path: Path) -> None:
    """All of the file in order."""
    with h5py.File(path) as file:
        for first in range(0, len(file["values"]), CHUNK):
            file["values"][first : first + CHUNK]


def epoch(path: Path) -> None:
    """One epoch over every sample of the cube, to a step that does nothing."""
    options = {"batching": Batching("points", BATCH), "storage": Storage(in_memory=False)}
    data = VideoDataModule(str(path), sampling={"name": "grid", "stride": 1}, eval_mask="none", **options)
    data.prepare_data()
    assert sum(batch.values.shape[1] for batch in data.train_dataloader()) == data.split.num_train


def fit(path: Path) -> None:
    """The exact fit of every second sample of each axis with 64 features, the choice of the ridge included."""
    data = VideoDataModule(str(path), batching=Batching("blocks"), storage=Storage(in_memory=False))
    make_trainer(0).fit(ComplexLinear({"name": "gau", "num_features": 64}, solver="exact"), data)


def measured(work: Callable[[Path], None], path: Path) -> tuple[float, float]:
    """Seconds, and the highest resident memory of the process in GB."""
    began = time.perf_counter()
    work(path)
    return time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def alone(work: Callable[..., object], *arguments: object) -> tuple[float, float]:
    """The result of a function in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def main() -> None:
    """Prints the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--side", type=int, default=1024, help="of the cube, in samples")
    parser.add_argument("--folder", help="for the cube, which is deleted afterwards; default: for temporary files")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(machine())
    sides = {"plain read": read, f"epoch of points, batches of {BATCH}": epoch, "exact fit, K = 64": fit}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "cube.h5"
        alone(write, path, options.side)
        alone(measured, read, path)  # fills the page cache
        turns = [{name: alone(measured, work, path) for name, work in sides.items()} for _ in range(options.repeats)]
    print_titles(f"cube of {options.side}^3", "seconds", "memory, GB")
    for name in sides:
        seconds, memory = zip(*(turn[name] for turn in turns), strict=True)
        print_row(name, statistics.median(seconds), max(memory))


if __name__ == "__main__":
    main()
