"""The cache under faults: kills, changed bytes, full disks, several processes, files that are replaced."""

from __future__ import annotations

import concurrent.futures
import os
import random
import resource
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import tifffile
from attempts import BROKEN, HELD, REFUSED, Row, Work, folder, forked, killed, seconds_of

from pe_lightning.errors import InputError
from pe_lightning.signals import Batching, Storage
from pe_lightning.signals.cache import SignalCache
from pe_lightning.training import VideoDataModule

FRAMES = (64, 96, 96, 3)


def write_clip(path: str, seed: int = 0) -> np.ndarray:
    """Writes noise, which is slow to decode."""
    values = np.random.default_rng(seed).integers(0, 255, FRAMES, dtype=np.uint8)
    tifffile.imwrite(path, values, photometric="rgb", compression="deflate")
    return values


def entry() -> Path:
    """The only entry of the cache."""
    return next(Path(os.environ["PE_LIGHTNING_CACHE"]).glob("*.h5"))


def read(expected: np.ndarray, in_memory: bool = True, cache: str = "", before: Callable[[], object] = lambda: None) -> int:
    """Loads or streams the clip, and compares; ``before`` runs when the entry is open."""
    os.environ["PE_LIGHTNING_CACHE"] = str(Path(cache).absolute()) if cache else os.environ["PE_LIGHTNING_CACHE"]
    data = VideoDataModule("frames.tif", batching=Batching("points"), storage=Storage(in_memory=in_memory))
    try:
        data.prepare()
        before()
        if in_memory:
            found = data.values.numpy()[0]
        else:
            found = np.concatenate([batch.values.numpy()[0] for batch in data.test_dataloader()])
    except InputError:
        return REFUSED
    return HELD if np.array_equal((found * 255).round(), expected) else BROKEN


def rows(kills: int, mutations: int, rng: random.Random) -> Iterable[Row]:
    """The section ``caches``."""
    with folder():
        values = write_clip("frames.tif")
        row, few = Row("cache writes killed, read again"), -(-kills // 6)
        yield killed(row, few, rng, lambda name: partial(read, values, cache=name), lambda _: None)
        yield changed_bytes(values, mutations // 10, rng)
        yield several_processes(values, few, rng)
        yield full_disks(values, few, rng)
        yield replaced_files(few, rng)


def changed_bytes(values: np.ndarray, mutations: int, rng: random.Random) -> Row:
    """Entries of which some bytes are changed or the end is cut."""
    row = Row("bytes of cache entries changed, read again")
    for number in range(mutations):
        forked(partial(read, values))
        path, in_memory, opened = entry(), rng.random() < 0.5, rng.random() < 0.5
        size = path.stat().st_size

        def change(path: Path = path, place: int = rng.randrange(size), cut: bool = rng.random() < 0.3) -> None:
            with path.open("r+b") as file:
                if cut:
                    file.truncate(place)
                else:
                    file.seek(place)
                    byte = file.read(1)
                    file.seek(place)
                    file.write(bytes([byte[0] ^ rng.randrange(1, 256)]))

        if not opened:
            change()
        status, errors = forked(partial(read, values, in_memory, before=change if opened else lambda: None))
        row.add(status == HELD, f"change {number}, in memory {in_memory}, open {opened}: status {status}, {errors[-250:]}")
    return row


def together(works: Sequence[Work]) -> list[tuple[int, str]]:
    """Several functions at the same time, each in a process of its own."""
    with concurrent.futures.ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(forked, works))


def after(seconds: float, work: Work) -> int:
    """Waits, and runs a function."""
    time.sleep(seconds)
    return work()


def several_processes(values: np.ndarray, few: int, rng: random.Random) -> Row:
    """Two processes that stream an entry, which a third removes and writes again."""
    row = Row("two readers beside a writer")

    def reader() -> int:
        return max(read(values, False) for _ in range(3))

    def writer() -> int:
        for _ in range(4):
            SignalCache().clear()
            if status := read(values):
                return status
        return HELD

    for number in range(few):
        delays = [rng.uniform(0, 0.5) for _ in range(3)]
        found = together([partial(after, delay, work) for delay, work in zip(delays, (reader, reader, writer), strict=True)])
        row.add([status for status, _ in found] == [HELD] * 3, f"attempt {number}: {found}")
    return row


def full_disks(values: np.ndarray, few: int, rng: random.Random) -> Row:
    """Entries that do not fit on the disk: the clip is read without them."""
    row = Row("full disks while the cache is written")
    for _ in range(few):
        shutil.rmtree(os.environ["PE_LIGHTNING_CACHE"], ignore_errors=True)
        size = rng.randrange(values.nbytes)

        def work(size: int = size) -> int:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            return read(values)

        status, errors = forked(work)
        row.add(
            status == HELD and not list(Path(os.environ["PE_LIGHTNING_CACHE"]).glob("*.h5")), f"{size}: {status}, {errors}"
        )
    return row


def replaced_files(few: int, rng: random.Random) -> Row:
    """A clip that is replaced at a random moment while it is decoded: the cache never holds values under a wrong key."""
    row = Row("clips replaced while they are decoded")
    shutil.rmtree(os.environ["PE_LIGHTNING_CACHE"], ignore_errors=True)
    seconds = seconds_of(partial(read, write_clip("frames.tif")))
    for number in range(few):
        shutil.rmtree(os.environ["PE_LIGHTNING_CACHE"], ignore_errors=True)
        values, other = write_clip("frames.tif"), write_clip("other.tif", 1)
        replace = partial(after, rng.uniform(0, seconds), lambda: int(Path("other.tif").rename("frames.tif") is None))
        together([partial(read, values), replace])  # the first one reads either file, or refuses
        status, errors = forked(partial(read, other))
        write_clip("frames.tif")
        first, more = forked(partial(read, values))
        row.add(status == first == HELD, f"attempt {number}: {status}, {first}: {errors[-150:]}{more[-150:]}")
    return row
