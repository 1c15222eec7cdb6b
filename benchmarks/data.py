"""Signals that are read in blocks, from their file or from the cache: seconds and memory.

    python benchmarks/data.py                   # needs 4.3 GB of disk, minutes on two cores
    python benchmarks/data.py --side 128        # a quick look

- ``file``: a cube of ``--side``^3 float32 samples in HDF5: an epoch of points and the exact fit without loading it.
- ``cache``: a clip of ``--side``^3 samples of 8 bits (TIFF), decoded into the cache, and read from the entry.

Each line runs in processes of its own, which take turns; the least of ``--repeats``.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path

import h5py
import numpy as np
import tifffile
from harness import make_parser, make_trainer, print_row, print_titles, run_python, run_sections

from pe_lightning.signals import Batching, Storage
from pe_lightning.training import ComplexLinear, VideoDataModule

BATCH, CHUNK = 65536, 64


def write(path: Path, side: int) -> None:
    """Writes waves and noise in [0, 1], a layer of chunks at a time; of 8 bits into a TIFF file, a frame at a time."""
    generator = np.random.default_rng(0)
    wave = np.sin(np.arange(side, dtype=np.float32) / 37)

    def layer(first: int, count: int) -> np.ndarray:
        noise = generator.random((min(count, side - first), side, side), dtype=np.float32)
        return 0.4 + 0.3 * wave[first : first + count, None, None] * wave[:, None] * wave + 0.2 * noise

    if path.suffix == ".tif":
        frames = ((255 * layer(first, 1)[0]).astype(np.uint8) for first in range(side))
        tifffile.imwrite(path, frames, shape=(side, side, side), dtype="uint8")
        return
    with h5py.File(path, "w") as file:
        values = file.create_dataset("values", (side,) * 3, "f4", chunks=(min(CHUNK, side),) * 3)
        for first in range(0, side, CHUNK):
            values[first : first + CHUNK] = layer(first, CHUNK)


def read(path: Path) -> None:
    """All of the file in order."""
    with h5py.File(path) as file:
        for first in range(0, len(file["values"]), CHUNK):
            file["values"][first : first + CHUNK]


def epoch(path: Path, kind: str, size: int) -> None:
    """One epoch over every sample, to a step that does nothing."""
    every = {"sampling": {"name": "grid", "stride": 1}, "eval_mask": "none"}
    data = VideoDataModule(str(path), **every, batching=Batching(kind, size), storage=Storage(in_memory=False))
    data.prepare_data()
    seen = sum(batch.values[0, ..., 0].numel() for batch in data.train_dataloader())
    assert seen == data.signals.split.num_train


def fit(path: Path) -> None:
    """The exact fit of every second sample of each axis with 64 features, the choice of the ridge included."""
    data = VideoDataModule(str(path), batching=Batching("blocks"), storage=Storage(in_memory=False))
    make_trainer(0).fit(ComplexLinear({"name": "gau", "num_features": 64}, solver="exact"), data)


WORK = {
    "plain read": read,
    "decoded into the cache, and loaded": lambda path: VideoDataModule(str(path), storage=Storage(in_memory=True)).prepare(),
    f"epoch of points, batches of {BATCH}": lambda path: epoch(path, "points", BATCH),
    f"epoch of blocks of {CHUNK}^3": lambda path: epoch(path, "blocks", CHUNK),
    "exact fit, K = 64": fit,
}


def table(name: str, options: Namespace) -> None:
    """A row per piece of work: seconds, and the highest resident memory, in a process of its own."""
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder, name)
        write(path, options.side)
        for turn in range(options.repeats + 1):  # the first fills the page cache
            cache = str(Path(folder, f"cache{turn}"))
            for work in list(WORK)[1:] if name == "clip.tif" else [list(WORK)[k] for k in (0, 2, 4)]:
                arguments = [__file__, "--work", work, "--path", str(path)]
                shown, *_ = run_python(arguments, Path(folder), PE_LIGHTNING_CACHE=cache)
                found.setdefault(work, []).extend([json.loads(shown.splitlines()[-1])] * bool(turn))
    print_titles(f"{name}, {options.side}^3", "seconds", "memory, GB")
    for work, turns in found.items():
        print_row(work, min(turns)[0], max(memory for _, memory in turns))


def main() -> None:
    """Prints the tables, or measures one piece of work."""
    parser = make_parser(__doc__)
    parser.add_argument("--side", type=int, default=1024, help="of the cube and the clip, in samples")
    parser.add_argument("--folder", help="for the files, which are deleted afterwards; default: for temporary files")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--work", choices=WORK, help="print seconds and GB of one piece of work, of the file --path")
    parser.add_argument("--path", type=Path)
    if "--work" not in sys.argv:
        sections = {"file": "cube.h5", "cache": "clip.tif"}
        return run_sections(parser, {key: lambda options, name=name: table(name, options) for key, name in sections.items()})
    options = parser.parse_args()
    began = time.perf_counter()
    WORK[options.work](options.path)
    return print(json.dumps([time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9]))


if __name__ == "__main__":
    main()
