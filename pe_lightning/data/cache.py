"""The cache of decoded signals and of drawn samples: HDF5 files, keyed by the content of what they were made from."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from filelock import FileLock, Timeout

from pe_lightning.cache_folder import (
    LIMIT,
    CacheError,
    CacheFolder,
    Cleared,
    Entry,
    read_description,
    show_bytes,
)
from pe_lightning.data.cache_file import (
    FORMAT,
    VALUES,
    Layout,
    StoredSignals,
    damage,
    digest,
    entry_bytes,
    paths_in_use,
    write_entry,
)
from pe_lightning.data.signals import AnyArray, RawSignals, Scaling
from pe_lightning.errors import InputError

__all__ = ["CacheError", "CacheNotice", "Cleared", "Entry", "SignalCache"]

PATIENCE = 5.0
"""Seconds after which waiting for another process is worth a word."""


class CacheNotice(UserWarning):
    """What happened to the cache that costs time but nothing else: an entry is rebuilt, another process is waited for."""


class SignalCache(CacheFolder):
    """Decoded signals in a folder: written once, verified by their checksum whenever they are found.

    Whatever is damaged, cut short, foreign or of another version is deleted with a :class:`CacheNotice` and made anew.
    A process that is killed leaves nothing that is taken for an entry. Entries that were used longest ago make room for
    new ones; never those that this process still reads, nor one that is being written.

    >>> import tempfile
    >>> cache = SignalCache(tempfile.mkdtemp())
    >>> key = cache.key({"sampling": "random", "seed": 0}, [])
    >>> cache.store_arrays(key, lambda: {"index": np.arange(3)})
    {'index': array([0, 1, 2])}
    >>> cache.find_arrays(key)
    {'index': array([0, 1, 2])}
    """

    def key(self, parameters: Mapping[str, Any], files: Sequence[Path]) -> str:
        """The key of what is decoded from files: 64 hexadecimal digits.

        Args:
            parameters: Everything else that changes the result: what is decoded, and how; plain JSON values.
            files: The files in their order. Their names and their content count, not where they are nor how old.

        Raises:
            InputError: If a file cannot be read.
        """
        contents = [[path.name, _checksum(path)] for path in map(Path, files)]
        text = json.dumps({"format": FORMAT, "parameters": parameters, "files": contents}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def find(self, key: str) -> RawSignals | None:
        """The signals of a key, to be read from the cache, or ``None``; damaged ones are deleted with a notice."""
        description = self._verified(key, "signals")
        return None if description is None else self._signals(key, description)

    def find_arrays(self, key: str) -> dict[str, AnyArray] | None:
        """The arrays of a key, loaded, or ``None``; damaged ones are deleted with a notice."""
        description = self._verified(key, "arrays")
        with suppress(FileNotFoundError):  # removed meanwhile
            return None if description is None else self._arrays(key, description)
        return None

    def store(self, key: str, read: Callable[[], RawSignals]) -> RawSignals:
        """The signals of a key: those of the cache, else decoded into it slab by slab, never all in memory.

        Args:
            key: From :meth:`key`.
            read: Describes the signals; called while the lock of the key is held, if another process has not written
                them meanwhile. What it raises, and what decoding raises, is passed on.

        Raises:
            CacheError: If the folder cannot be written to, or the limit or the disk is too small.
            InputError: If the slabs are not together what was described.
        """
        with self._lock(key):
            description = self._verified(key, "signals", locked=True)
            if description is None:
                raw = read()
                if 0 in raw.shape:
                    raise InputError(f"there is nothing to store: the signals have the shape {raw.shape}")
                description = {
                    "kind": "signals",
                    "names": list(raw.names),
                    "grid": [int(size) for size in raw.grid],
                    "channels": int(raw.channels),
                    "stored": raw.stored,
                    "scaling": {
                        "dtype": raw.scaling.dtype,
                        "low": [float(low) for low in raw.scaling.low],
                        "high": [float(high) for high in raw.scaling.high],
                    },
                    "unit": bool(raw.unit),
                    "rate": None if raw.rate is None else float(raw.rate),
                    "media": raw.media,
                }
                layout = Layout.chunked(raw.shape, np.dtype(raw.stored))
                self._write(key, description, {VALUES: layout}, ((VALUES, slab) for slab in _checked_slabs(raw)))
            return self._signals(key, description)

    def store_arrays(self, key: str, compute: Callable[[], dict[str, AnyArray]]) -> dict[str, AnyArray]:
        """The arrays of a key: those of the cache, else computed and stored; as :meth:`store` otherwise."""
        with self._lock(key):
            description = self._verified(key, "arrays", locked=True)
            if description is not None:
                return self._arrays(key, description)
            arrays = compute()
            layouts = {str(place): Layout(array.shape, array.dtype) for place, array in enumerate(arrays.values())}
            description = {
                "kind": "arrays",
                "names": list(arrays),
                "shapes": [list(array.shape) for array in arrays.values()],
                "dtypes": [array.dtype.name for array in arrays.values()],
            }
            self._write(key, description, layouts, zip(layouts, arrays.values(), strict=True))
            return arrays

    def _write(
        self,
        key: str,
        description: Mapping[str, Any],
        layouts: Mapping[str, Layout],
        blocks: Iterable[tuple[str, AnyArray]],
    ) -> None:
        with self.guard():
            self.temporary(key).unlink(missing_ok=True)  # of a killed writer, since the lock is held here
        self.remove_leftovers()
        self._make_room(entry_bytes(description, layouts))
        write_entry(self, key, description, layouts, blocks)

    def _signals(self, key: str, description: Mapping[str, Any]) -> RawSignals:
        names, grid, channels = tuple(description["names"]), tuple(description["grid"]), description["channels"]
        stored = StoredSignals(self.entry(key), (len(names), *grid, channels))
        return RawSignals(
            names=names,
            grid=grid,
            channels=channels,
            stored=description["stored"],
            scaling=Scaling.from_dict(description["scaling"]),
            unit=description["unit"],
            blocks=stored.slabs,
            array=stored.array,
            rate=description["rate"],
            media=description["media"],
        )

    def _arrays(self, key: str, description: Mapping[str, Any]) -> dict[str, AnyArray]:
        with h5py.File(self.entry(key), "r", locking=False) as file:
            return {name: file[str(place)][()] for place, name in enumerate(description["names"])}

    def _verified(self, key: str, kind: str, locked: bool = False) -> dict[str, Any] | None:
        """What an entry holds, if it is intact; it is then marked as used. One that is not is removed."""
        path = self.entry(key)
        try:
            problem = damage(path, key)
            if problem is None:
                description = read_description(path)
                if description["kind"] == kind:
                    with suppress(OSError):  # a cache that may only be read serves as well
                        os.utime(path)
                    return description
                problem = f"holds {description['kind']}, not {kind}"
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            problem = f"cannot be read ({error.strerror or error})"
        if not locked:  # another process may be about to replace it: only who holds the lock removes it
            with self.try_lock(key) as free:
                return self._verified(key, kind, locked=True) if free else None
        try:
            path.unlink()
            outcome = "it is made anew"
        except OSError as error:
            outcome = f"it cannot be deleted ({error.strerror or error})"
        warnings.warn(f"the cache entry {str(path)!r} {problem}; {outcome}", CacheNotice, stacklevel=4)
        return None

    @contextmanager
    def _lock(self, key: str) -> Iterator[None]:
        """Holds the lock of a key; waits for the process that has it."""
        with self.guard():
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.lock_path(key))
            try:
                lock.acquire(timeout=PATIENCE)
            except Timeout:
                notice = f"another process is writing the same signals to the cache in {str(self.path)!r}; waiting for it"
                warnings.warn(notice, CacheNotice, stacklevel=4)
                lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def _make_room(self, needed: int) -> None:
        """Removes what was used longest ago until ``needed`` more bytes are within the limit.

        Raises:
            CacheError: Before anything is removed, if the limit or the disk is too small.
        """
        keep = paths_in_use()
        entries = self.entries()
        kept = sum(entry.bytes for entry in entries if entry.path in keep)
        if needed + kept > self.limit:
            beside = f" beside the {show_bytes(kept)} that this process reads" if kept else ""
            raise CacheError(
                f"the cache needs {show_bytes(needed)} for this{beside}, and its limit is {show_bytes(self.limit)}; "
                f"allow more with {LIMIT}={math.ceil((needed + kept) / 1e9 + 0.5)}, or do without: --data.cache off"
            )
        excess = needed + sum(entry.bytes for entry in [*entries, *self.parts()]) - self.limit
        victims: list[Entry] = []
        for entry in entries:
            if excess > 0 and entry.path not in keep:
                victims.append(entry)
                excess -= entry.bytes
        with self.guard():
            free = shutil.disk_usage(self.path).free
        freed = sum(victim.bytes for victim in victims)
        if needed > free + freed:
            raise CacheError(f"the cache in {str(self.path)!r} is too full: {self.room(needed, freed)}")
        for victim in victims:
            self.remove(victim)


def _checksum(path: Path) -> str:
    try:
        with FileIO(path) as file:
            return digest(file)
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror or error}") from error


def _checked_slabs(raw: RawSignals) -> Iterator[AnyArray]:
    """The slabs of a set of signals, which together have its shape.

    Raises:
        InputError: If they do not: a file was changed or cut short since it was described.
    """
    signals, rows, *rest = raw.shape
    signal = row = 0
    for slab in raw.blocks():
        fits = signal < signals and slab.shape[1:] == tuple(rest) and row + slab.shape[0] <= rows
        if not fits or slab.dtype != np.dtype(raw.stored):
            held = f"{_by(slab.shape)} of dtype {slab.dtype}"
            where = f"at sample {row} of {raw.names[signal]!r}" if signal < signals else f"after {raw.names[-1]!r}, the last"
            raise _changed(raw, f"{held} were read {where}")
        row += slab.shape[0]
        if row == rows:
            signal, row = signal + 1, 0
        yield slab
    if signal < signals:
        raise _changed(raw, f"{raw.names[signal]!r} ended after {row} of {rows} samples along its first axis")


def _changed(raw: RawSignals, found: str) -> InputError:
    declared = f"{len(raw.names)} signal(s) of {_by((*raw.grid, raw.channels))} of dtype {raw.stored}"
    return InputError(
        f"{declared} were announced, but {found}. A file was changed or cut short while it was read, or is damaged; "
        "check it and run again"
    )


def _by(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))
