"""Number 2: a cube larger than the memory it is given, from HDF5: an epoch of points, and an exact fit."""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from quiet import make_trainer

from pe_lightning.signals import Batching, Storage
from pe_lightning.training import ComplexLinear, VideoDataModule

CHUNK = 64
BATCH = 65536
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
            f"epoch of points, batch {BATCH}": (points, ()),
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


def points(path: Path) -> Found:
    """One epoch over every sample of the cube, to a step that does nothing."""
    began = time.perf_counter()
    every = {"name": "grid", "stride": 1}
    random, in_file = Batching("points", BATCH), Storage(in_memory=False)
    data = VideoDataModule(str(path), sampling=every, protocol="none", batching=random, storage=in_file)
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
    data = VideoDataModule(str(path), sampling=some, protocol="all", batching=Batching("blocks"), storage=in_file)
    data.prepare_data()
    model, trainer = ComplexLinear({"name": "gau", "num_features": 64}, warm_start=True), make_trainer(0)
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
