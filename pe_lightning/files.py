"""Files that are written as a whole or not at all."""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from pe_lightning.errors import InputError, show_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["append_lines", "figure_bytes", "replacing", "save_figure", "write_atomically"]


def write_atomically(path: str | Path, content: str | bytes | memoryview) -> None:
    """Writes a file atomically: a reader finds the old content or the new content, never a part of it.

    Raises:
        InputError: If it cannot be written; the old content stays.
    """
    data = content.encode() if isinstance(content, str) else content
    with replacing(Path(path), len(data)) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(path: Path, size: int | None = None) -> Iterator[Path]:
    """Yields the path of a temporary file of the same suffix, which replaces ``path`` on success; deleted on an exception.

    The caller creates the temporary file, so that it has the usual permissions.

    Args:
        path: The file to replace.
        size: Number of bytes that will be written, if known; named in the error.

    Raises:
        InputError: If the file cannot be written: a full disk, a folder without write permission.
    """
    temporary = path.with_name(f".{uuid4().hex}.part{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise _not_written(path, size, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def append_lines(path: Path, lines: str) -> None:
    """Appends whole lines to a file, or nothing.

    Args:
        path: The file, which exists.
        lines: One or more lines, each with its line end.

    Raises:
        InputError: If they cannot be written; the lines before are kept.
    """
    data = lines.encode()
    try:
        with path.open("ab", buffering=0) as file:  # one system call: a kill leaves none or all
            size = file.seek(0, os.SEEK_END)
            try:
                if file.write(data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                file.truncate(size)
                raise
    except OSError as error:
        raise _not_written(path, len(data), error) from error


def _not_written(path: Path, size: int | None, error: OSError) -> InputError:
    needed = "" if size is None else f", which takes {show_bytes(size)}"
    place = next(folder for folder in path.absolute().parents if folder.is_dir())
    return InputError(
        f"cannot write {str(path)!r}{needed}: {error.strerror or error}; the disk has "
        f"{show_bytes(shutil.disk_usage(place).free)} free. What was written before is kept"
    )


def figure_bytes(figure: Figure, form: str = "png", dpi: int = 110) -> bytes:
    """The content of a figure's file, ``png`` or ``pdf``, without a date: equal figures are equal files."""
    content = io.BytesIO()
    figure.savefig(content, format=form, dpi=dpi, metadata={"CreationDate": None} if form == "pdf" else {})
    return content.getvalue()


def save_figure(path: Path, figure: Figure, dpi: int = 110) -> Path:
    """Writes a figure of matplotlib atomically, in the format of the path's suffix, and returns the path.

    Raises:
        InputError: If it cannot be written.
    """
    write_atomically(path, figure_bytes(figure, path.suffix[1:], dpi))
    return path
