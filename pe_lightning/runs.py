"""Run directories: ``<root>/<data>-<model>-<encoder>/<n>``, and what belongs to a checkpoint in one.

A directory is claimed by creating it, which the file system allows one process only, so two runs never share one.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any
from uuid import uuid4

from pe_lightning.errors import InputError, show_bytes

__all__ = [
    "CHECKPOINTS",
    "CONFIG",
    "METRICS",
    "RECONSTRUCTIONS",
    "PatientFile",
    "check_contained",
    "claim",
    "file_names",
    "frames_of",
    "of_checkpoint",
    "replacing",
    "slug",
    "write_atomically",
]

CONFIG = "config.yaml"
METRICS = "metrics.json"
CHECKPOINTS = "checkpoints"
RECONSTRUCTIONS = "reconstructions"
MOST_CLAIMED, MOST_COMPRESSED = 1 << 30, 2000
"""Bytes that an HDF5 file of any size may claim, and how many times its own size; deflate reaches 1032."""


def slug(text: str) -> str:
    """``text`` as part of a file name: letters, digits, dot, dash and underscore; anything else becomes a dash.

    It is cut after 180 bytes: file systems take 255, and suffixes follow.
    """
    plain = re.sub(r"[^\w.-]+", "-", text).strip("-.")
    return plain.encode()[:180].decode(errors="ignore") or "unnamed"


def file_names(names: tuple[str, ...]) -> list[str]:
    """Distinct stems of files for signals of these names, also on file systems that ignore upper and lower case.

    No stem is another's with ``_comparison`` behind it: that is the name of the files that compare it with the truth.
    """
    taken: set[str] = set()
    result: list[str] = []
    for name in names:
        base = slug(name)
        candidates = (base if number == 1 else f"{base}-{number}" for number in itertools.count(1))
        stem = next(c for c in candidates if taken.isdisjoint({c.casefold(), f"{c.casefold()}_comparison"}))
        taken |= {stem.casefold(), f"{stem.casefold()}_comparison"}
        result.append(stem)
    return result


def frames_of(count: int, most: int) -> list[int]:
    """Which of ``count`` frames of a cube are shown, ascending: all, or the middles of ``most`` equal parts.

    Half of the middles are moved to the frame before, so that trained and held-out frames are both among them whatever the
    stride of the training grid: the Thue-Morse sequence says which.

    >>> frames_of(3, 4), frames_of(32, 4)
    ([0, 1, 2], [4, 11, 19, 28])
    """
    parts = min(count, most)
    shift = 1 if count >= 2 * parts else 0
    return [(2 * part + 1) * count // (2 * parts) - shift * (part.bit_count() % 2) for part in range(parts)]


def claim(root: str | Path, name: str) -> Path:
    """Creates and returns the next free ``<root>/<name>/<n>``, counting from 1.

    Raises:
        InputError: If the directory cannot be created.
    """
    parent = Path(root) / slug(name)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        taken = [int(entry.name) for entry in parent.iterdir() if entry.name.isdecimal()]
        number = max(taken, default=0) + 1
        while True:
            try:
                (parent / str(number)).mkdir()
            except FileExistsError:
                number += 1
            else:
                return (parent / str(number)).absolute()
    except OSError as error:
        raise InputError(
            f"cannot create a run directory under {str(parent)!r}: {error.strerror or error}; "
            "choose another place with --trainer.default_root_dir"
        ) from error


def of_checkpoint(path: str | Path) -> Path:
    """The run directory that a checkpoint belongs to: the parent of ``checkpoints/``, else the checkpoint's own."""
    folder = Path(path).absolute().parent
    return folder.parent if folder.name == CHECKPOINTS else folder


def write_atomically(path: str | Path, content: str | bytes | memoryview) -> None:
    """Writes a file so that a reader finds the old content or the new one, never a part of it.

    Raises:
        InputError: If it cannot be written; the old content stays.
    """
    data = content.encode() if isinstance(content, str) else content
    with replacing(Path(path), len(data)) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(path: Path, size: int | None = None) -> Iterator[Path]:
    """A temporary file beside ``path`` that replaces it on success; on an exception it is deleted.

    The caller creates the file itself, so that it has the usual permissions.

    Args:
        path: What is replaced.
        size: Bytes that are going to be written, where that is known.

    Raises:
        InputError: If the file system refuses: a full disk, a folder that may not be written to.
    """
    temporary = path.with_name(f".{uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        needed = "" if size is None else f", which takes {show_bytes(size)}"
        place = next(folder for folder in path.absolute().parents if folder.is_dir())
        raise InputError(
            f"cannot write {str(path)!r}{needed}: {error.strerror or error}; the disk has "
            f"{show_bytes(shutil.disk_usage(place).free)} free. What was written before is kept"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


class PatientFile(FileIO):
    """A new file for HDF5 to write to, which keeps its first error: :meth:`check` raises it, and so does leaving ``with``.

    HDF5 cannot close a file whose disk is full, and crashes the process when it ends. So it does not learn of the error.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")

    error: OSError | None = None

    def write(self, content: Any, /) -> int:
        """Writes all of it, if nothing failed before."""
        rest = memoryview(content).cast("B")
        size = len(rest)
        try:
            while rest and self.error is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.error = error
        return size

    def truncate(self, size: int | None = None, /) -> int:
        """Sets the size, which reserves nothing: only writes can fail for good."""
        with suppress(OSError):
            return super().truncate(size)
        return size or 0

    def check(self) -> None:
        """Raises what went wrong."""
        if self.error is not None:
            raise self.error

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self.check()


def check_contained(dataset: Any, path: Path, given: str) -> None:
    """Refuses an HDF5 dataset of a file that is stored in other files, or claims far more than its file can hold.

    Args:
        dataset: Of h5py.
        path: The file.
        given: What messages call it.
    """
    claimed, stored = dataset.size * dataset.dtype.itemsize, path.stat().st_size
    if dataset.external or dataset.is_virtual or Path(dataset.file.filename).resolve() != path.resolve():
        raise InputError(f"{dataset.name!r} of {given!r} is stored in other files, which are not read")
    if claimed > max(MOST_CLAIMED, MOST_COMPRESSED * stored):
        raise InputError(
            f"{dataset.name!r} of {given!r} claims shape {dataset.shape}, {show_bytes(claimed)}, in a file of "
            f"{show_bytes(stored)}: it is empty, or damaged"
        )
