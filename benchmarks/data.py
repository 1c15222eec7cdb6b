"""Signals that are read in blocks, from their file or from the cache: seconds and memory.

    python benchmarks/data.py                              # needs 4.3 GB of disk, minutes on two cores
    python benchmarks/data.py --side 128 --clip-side 128 --repeats 1       # a quick look
    python benchmarks/data.py --only cache --against ../other_checkout     # the cache of two versions, in turns

- ``file``: a cube of ``--side``^3 float32 samples in HDF5: an epoch of points and the exact fit without loading it.
- ``cache``: a clip of ``--clip-side``^3 samples of 8 bits (TIFF): decoded into the cache, then read from the entry for an
  epoch of random points, for an epoch of blocks in random order, for the exact fit, and into memory. Cold: the pages of the
  entry are dropped from the page cache of the system before.

Each line runs in processes of its own, which take turns; medians.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import tifffile
from harness import ROOT, make_parser, make_trainer, print_row, print_titles, run_sections

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


def epoch(path: Path, kind: str = "points") -> None:
    """One epoch over every sample, to a step that does nothing."""
    batching = Batching("points", BATCH) if kind == "points" else Batching("blocks", CHUNK)
    data = VideoDataModule(
        str(path),
        sampling={"name": "grid", "stride": 1},
        eval_mask="none",
        batching=batching,
        storage=Storage(in_memory=False),
    )
    data.prepare_data()
    seen = sum(batch.values[0, ..., 0].numel() for batch in data.train_dataloader())
    assert seen == data.split.num_train


def blocks(path: Path) -> None:
    """One epoch of blocks of 64^3 in random order."""
    epoch(path, "blocks")


def fit(path: Path) -> None:
    """The exact fit of every second sample of each axis with 64 features, the choice of the ridge included."""
    data = VideoDataModule(str(path), batching=Batching("blocks"), storage=Storage(in_memory=False))
    make_trainer(0).fit(ComplexLinear({"name": "gau", "num_features": 64}, solver="exact"), data)


def load(path: Path) -> None:
    """All values in memory."""
    VideoDataModule(str(path), storage=Storage(in_memory=True)).prepare_data()


WORK: dict[str, Callable[[Path], None]] = {
    "plain read": read,
    f"epoch of points, batches of {BATCH}": epoch,
    f"epoch of blocks of {CHUNK}^3": blocks,
    "exact fit, K = 64": fit,
    "loaded into memory": load,
}


def alone(name: str, path: Path, checkout: Path = ROOT, cold: bool = False) -> tuple[float, float]:
    """Seconds of a piece of work, and the highest resident memory in GB, in a process of its own."""
    if cold:
        os.sync()
        for entry in Path(os.environ["PE_LIGHTNING_CACHE"]).iterdir():
            with entry.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    program = [sys.executable, __file__, "--work", name, "--path", str(path)]
    done = subprocess.run(
        program, check=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(checkout)}
    )
    seconds, memory = json.loads(done.stdout.splitlines()[-1])
    return seconds, memory


def measure(name: str, path: Path) -> None:
    """Prints seconds and memory of a piece of work."""
    began = time.perf_counter()
    WORK[name](path)
    print(json.dumps([time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9]))


def from_file(options: Namespace) -> None:
    """A cube in the file of the user."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path, names = Path(folder) / "cube.h5", ("plain read", f"epoch of points, batches of {BATCH}", "exact fit, K = 64")
        write(path, options.side)
        alone("plain read", path)  # fills the page cache
        turns = [{name: alone(name, path) for name in names} for _ in range(options.repeats)]
    print_titles(f"cube of {options.side}^3", "seconds", "memory, GB")
    for name in names:
        seconds, memory = zip(*(turn[name] for turn in turns), strict=True)
        print_row(name, statistics.median(seconds), max(memory))


def from_cache(options: Namespace) -> None:
    """A clip that is decoded into the cache."""
    side = options.clip_side
    checkouts = {"this": ROOT} | ({"against": Path(options.against).resolve()} if options.against else {})
    found: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "clip.tif"
        z, y, x = (np.arange(side, dtype=np.float32).reshape(shape) for shape in ((-1, 1, 1), (-1, 1), (-1,)))
        noise = np.random.default_rng(0).random((side, side), dtype=np.float32)
        frames = (127 + 80 * np.sin(frame / 37) * np.sin(y / 29) * np.sin(x / 31) + 40 * noise for frame in z[:, 0, 0])
        tifffile.imwrite(path, (frame.astype(np.uint8) for frame in frames), shape=(side, side, side), dtype="uint8")
        for turn in range(options.repeats):
            for label, checkout in checkouts.items():
                os.environ["PE_LIGHTNING_CACHE"] = str(Path(folder, f"{label}{turn}"))
                decoded = "decoded into the cache, and loaded"
                found.setdefault((decoded, label), []).append(alone("loaded into memory", path, checkout)[0])
                for name in list(WORK)[1:]:
                    for state in ("cold", "warm"):
                        seconds = alone(name, path, checkout, state == "cold")[0]
                        found.setdefault((f"{name}, {state}", label), []).append(seconds)
    print_titles(f"clip of {side}^3, seconds", *checkouts, *(["ratio"] if options.against else []))
    for row in dict.fromkeys(row for row, _ in found):
        medians = [statistics.median(found[row, label]) for label in checkouts]
        print_row(row, *medians, *([medians[0] / medians[1]] if options.against else []))


def main() -> None:
    """Prints the tables."""
    parser = make_parser(__doc__)
    parser.add_argument("--side", type=int, default=1024, help="of the cube, in samples")
    parser.add_argument("--clip-side", type=int, default=512, help="of the clip, in samples")
    parser.add_argument("--folder", help="for the files, which are deleted afterwards; default: for temporary files")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--against", help="a checkout of another version, whose cache is timed in turns with this one")
    parser.add_argument("--work", choices=WORK, help="measure one piece of work, of the file --path")
    parser.add_argument("--path", type=Path)
    if "--work" in sys.argv:
        options = parser.parse_args()
        return measure(options.work, options.path)
    return run_sections(parser, {"file": from_file, "cache": from_cache})


if __name__ == "__main__":
    main()
