"""The cache under faults: kills, changed bytes, readers beside a writer."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import tifffile
from attempts import BROKEN, HELD, REFUSED, Row, Size, Work, folder, forked, killed, together
from cache_entries import KINDS, replace_entry

from pe_lightning.errors import InputError
from pe_lightning.signals import Batching, Storage
from pe_lightning.signals.cache import SignalCache
from pe_lightning.training import VideoDataModule


def caches(size: Size) -> Iterable[Row]:
    """A clip of noise, which is slow to decode."""
    with folder():
        values = np.random.default_rng(0).integers(0, 255, (64, 96, 96, 3), dtype=np.uint8)
        tifffile.imwrite("frames.tif", values, photometric="rgb", compression="deflate")
        row = Row("cache writes killed, read again")
        yield killed(row, size.few, size.rng, lambda name: partial(read, values, cache=name), lambda _: None)
        yield changed_bytes(values, size.mutations // 10, size.rng)
        yield replaced(values, size.rng)
        yield several_processes(values, size.few, size.rng)


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


def changed_bytes(values: np.ndarray, mutations: int, rng: random.Random) -> Row:
    """Entries in which a byte is changed, or whose end is cut, before they are opened or while they are open."""
    row = Row("bytes of cache entries changed, read again")
    for number in range(mutations):
        forked(partial(read, values))
        path = next(Path(os.environ["PE_LIGHTNING_CACHE"]).glob("*.h5"))
        in_memory, opened, place = rng.random() < 0.5, rng.random() < 0.5, rng.randrange(path.stat().st_size)
        change = partial(change_byte, path, place, 0 if rng.random() < 0.3 else rng.randrange(1, 256))
        if not opened:
            change()
        status, errors = forked(partial(read, values, in_memory, before=change if opened else lambda: None))
        row.add(status == HELD, f"change {number}, in memory {in_memory}, open {opened}: status {status}, {errors[-250:]}")
    return row


def change_byte(path: Path, place: int, bits: int) -> None:
    """Flips bits of a byte, or cuts the file off there if none are given."""
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        if bits:
            file.write(bytes([byte[0] ^ bits]))
        else:
            file.truncate()


def replaced(values: np.ndarray, rng: random.Random) -> Row:
    """Every other file in the place of an entry, before it is opened."""
    row = Row("cache entries replaced by other files, read again")
    for kind in KINDS:
        forked(partial(read, values))
        replace_entry(next(Path(os.environ["PE_LIGHTNING_CACHE"]).glob("*.h5")), kind)
        status, errors = forked(partial(read, values, rng.random() < 0.5), kill_after=60)
        row.add(status == HELD and "were damaged" in errors, f"{kind}: status {status}, {errors[-250:]}")
    return row


def several_processes(values: np.ndarray, number: int, rng: random.Random) -> Row:
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

    def after(seconds: float, work: Work) -> int:
        time.sleep(seconds)
        return work()

    for attempt in range(number):
        found = together([partial(after, rng.uniform(0, 0.5), work) for work in (reader, reader, writer)])
        row.add([status for status, _ in found] == [HELD] * 3, f"attempt {attempt}: {found}")
    return row
