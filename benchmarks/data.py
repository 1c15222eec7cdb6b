"""Signals: what the cache saves, what streaming costs, how fast points arrive. Prints one table per section.

    python benchmarks/data.py                              # everything; needs 4.3 GB of disk, minutes on two cores
    python benchmarks/data.py --only cube --side 256       # a quick look
    python benchmarks/data.py --only cube --folder /data   # where the cube is written, and deleted afterwards

- ``cache``: time to the first batch of a video, on the first run and on the second.
- ``points``: points per second to a step that does nothing, against indexing one tensor.
- ``cube``: ``--side``^3 float32 samples in HDF5: an epoch of points and exact fits without loading them, with the peak of
  the resident memory, against a plain read of the file. Each line runs in a process of its own.

Sides take turns, medians of ``--repeats``. Nothing is dropped from the page cache of the system.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import h5py
import numpy as np
import torch
from quiet import machine, make_trainer
from torch import Tensor

from pe_lightning.signals import Batching, Storage
from pe_lightning.training import ComplexLinear, TensorDataModule, VideoDataModule

SECTIONS = ("cache", "points", "cube")
BATCH = 65536

CLIP = "samples://bigbuckbunny"


def cache(repeats: int) -> None:
    """Prints the table; each turn starts with an empty cache."""
    until_first_batch(None)  # imports, and the clip's own pages
    firsts, seconds_ = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            firsts.append(until_first_batch(folder))
            seconds_.append(until_first_batch(folder))
    first, second = statistics.median(firsts), statistics.median(seconds_)
    ratio = statistics.median(a / b for a, b in zip(firsts, seconds_, strict=True))
    print(f"\n{CLIP}, preset papers: from VideoDataModule(...) to the first training batch, medians of {repeats}")
    print(f"first run {first:.2f} s, second run {second:.3f} s: {ratio:.0f} times faster", flush=True)


def until_first_batch(folder: str | None) -> float:
    """Seconds to the first batch; without a cache if there is no folder."""
    began = time.perf_counter()
    data = VideoDataModule(CLIP, preset="papers", storage=Storage(cache="auto" if folder else "off", cache_dir=folder))
    data.prepare_data()
    data.setup("fit")
    next(iter(data.train_dataloader()))
    return time.perf_counter() - began


SIDE, CHANNELS = 128, 3


def points(repeats: int) -> None:
    """Prints the table; all sides in one process, in turn."""
    values = torch.rand(SIDE**3, CHANNELS, generator=torch.Generator().manual_seed(0))
    cube = values.view(1, *[SIDE] * 3, CHANNELS)
    everything = {"sampling": {"name": "grid", "stride": 1}, "eval_mask": "none", "batching": Batching("points", BATCH)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cube.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("values", data=cube[0].numpy(), chunks=(32, 32, 32, CHANNELS))
        sides = {
            "values[order], one tensor": lambda: indexed(values),
            "in memory, PointLoader": TensorDataModule(cube, **everything).train_dataloader,
            "from a file, FilePointLoader": VideoDataModule(
                str(path), storage=Storage(in_memory=False), **everything
            ).train_dataloader,
        }
        turns = [{name: seconds_of(make()) for name, make in sides.items()} for _ in range(repeats + 1)][
            1:
        ]  # the first warms up
    print(f"\nan epoch of {SIDE}^3 samples of {CHANNELS} channels in batches of {BATCH}, medians of {repeats}")
    print(f"{'':28}{'million points a second':>24}{'of indexing':>13}   what a batch holds")
    for name, holds in zip(sides, ("values", *["values, coordinates, positions"] * 2), strict=True):
        speed = SIDE**3 / statistics.median(turn[name] for turn in turns) / 1e6
        ratio = statistics.median(next(iter(turn.values())) / turn[name] for turn in turns)
        print(f"{name:28}{speed:24.1f}{ratio:13.2f}   {holds}", flush=True)


def indexed(values: Tensor) -> Iterable[Tensor]:
    """The least that random batches cost: a permutation, and the values at it."""
    for chosen in torch.randperm(len(values)).split(BATCH):
        yield values[chosen]


def seconds_of(loader: Iterable[object]) -> float:
    """Seconds of one epoch."""
    began = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - began


CHUNK = 64
Found = dict[str, float]


def cube(side: int, folder: str | None, repeats: int) -> None:
    """Prints the table; every line of it comes from a process of its own, for its peak of memory."""
    needed, free = 4 * side**3, shutil.disk_usage(folder or tempfile.gettempdir()).free
    if needed > 0.9 * free:
        raise SystemExit(f"the cube takes {needed / 1e9:.1f} GB, {free / 1e9:.1f} free; set --folder or a smaller --side")
    print(f"\ncube of {side}^3 float32 ({needed / 1e9:.2f} GB) in HDF5, chunks of {CHUNK}^3; medians of {repeats}, in turn")
    print("after one read of the file; nothing is dropped from the page cache; GB/s: bytes of the whole file")
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        path = Path(temporary) / "cube.h5"
        _alone(write, path, side)  # not here: a new process counts the memory of its parent as its own at first
        _alone(read, path)
        routes: dict[str, tuple[Callable[..., Found], tuple[object, ...]]] = {
            "read slab by slab, h5py": (read, ()),
            f"epoch of points, batch {BATCH}": (epoch, ()),
            "exact fit, K = 64, stride 1": (fit, (1,)),
            "exact fit, K = 64, stride 2": (fit, (2,)),
        }
        turns = [{name: _alone(run, path, *more) for name, (run, more) in routes.items()} for _ in range(repeats)]
    print(f"{'':32}{'open s':>8}{'seconds':>9}{'GB/s':>7}{'of read':>9}{'peak MB':>9}{'imports':>9}")
    for name in routes:
        seconds, opened, ratio = (
            float(np.median([kind(turn) for turn in turns]))
            for kind in (
                lambda turn, name=name: turn[name]["seconds"],
                lambda turn, name=name: turn[name]["open"],
                lambda turn, name=name: next(iter(turn.values()))["seconds"] / turn[name]["seconds"],
            )
        )
        peak, before = (max(turn[name][key] for turn in turns) for key in ("peak", "before"))
        speed = needed / 1e9 / seconds
        print(f"{name:32}{opened:8.1f}{seconds:9.1f}{speed:7.2f}{ratio:9.2f}{peak:9.0f}{before:9.0f}", flush=True)


def write(path: Path, side: int) -> Found:
    """Writes waves and noise in [0, 1], a layer of chunks at a time."""
    generator = np.random.default_rng(0)
    wave = np.sin(np.arange(side, dtype=np.float32) / 37)
    with h5py.File(path, "w") as file:
        chunks = (min(CHUNK, side),) * 3
        values = file.create_dataset("values", (side,) * 3, "f4", chunks=chunks)
        for first in range(0, side, CHUNK):
            along = wave[first : first + CHUNK]
            layer = generator.random((len(along), side, side), dtype=np.float32)
            layer *= np.float32(0.2)
            layer += 0.4 + 0.3 * along[:, None, None] * wave[:, None] * wave
            values[first : first + CHUNK] = layer
    return {}


def read(path: Path) -> Found:
    """All of the file in order, into one buffer."""
    with h5py.File(path) as file:
        values = file["values"]
        buffer = np.empty((min(CHUNK, len(values)), *values.shape[1:]), "f4")
        began = time.perf_counter()
        for first in range(0, len(values), CHUNK):
            part = slice(first, min(first + CHUNK, len(values)))
            values.read_direct(buffer, part, np.s_[: part.stop - part.start])
        return {"open": 0.0, "seconds": time.perf_counter() - began}


def epoch(path: Path) -> Found:
    """One epoch over every sample of the cube, to a step that does nothing."""
    began = time.perf_counter()
    every = {"name": "grid", "stride": 1}
    random, in_file = Batching("points", BATCH), Storage(in_memory=False)
    data = VideoDataModule(str(path), sampling=every, eval_mask="none", batching=random, storage=in_file)
    data.prepare_data()
    opened = time.perf_counter()
    count = sum(batch.values.shape[1] for batch in data.train_dataloader())
    seconds = time.perf_counter() - opened
    assert count == data.split.num_train
    return {"open": opened - began, "seconds": seconds}


def fit(path: Path, stride: int) -> Found:
    """The exact fit as a Trainer makes it, the choice of the ridge included."""
    began = time.perf_counter()
    some = {"name": "grid", "stride": stride}
    in_file = Storage(in_memory=False)
    data = VideoDataModule(str(path), sampling=some, eval_mask="all", batching=Batching("blocks"), storage=in_file)
    data.prepare_data()
    model, trainer = ComplexLinear({"name": "gau", "num_features": 64}, solver="exact"), make_trainer(0)
    opened = time.perf_counter()
    trainer.fit(model, data)
    return {"open": opened - began, "seconds": time.perf_counter() - opened}


def _alone(run: Callable[..., Found], *arguments: object) -> Found:
    """What ``run`` finds in a process of its own, and the memory of that process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, (run, arguments))


def _measured(run: Callable[..., Found], arguments: tuple[object, ...]) -> Found:
    before = _peak()
    return {**run(*arguments), "before": before, "peak": _peak()}


def _peak() -> float:
    """The highest resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(arguments: list[str] | None = None) -> None:
    """Runs the sections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--side", type=int, default=1024, help="of the cube, in samples")
    parser.add_argument("--folder", help="for the cube; default: the system's for temporary files")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    chosen = options.only.split(",")
    if not set(chosen) <= set(SECTIONS):
        parser.error(f"--only takes {', '.join(SECTIONS)}; got {options.only}")
    if options.side < 8 or options.repeats < 1:
        parser.error("--side is at least 8, --repeats at least 1")
    load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{Path(__file__).name} {options.only}: {machine()}, {load}", flush=True)
    if "cube" in chosen:  # first: it measures memory
        cube(options.side, options.folder, options.repeats)
    if "cache" in chosen:
        cache(options.repeats)
    if "points" in chosen:
        points(options.repeats)


if __name__ == "__main__":
    main()
