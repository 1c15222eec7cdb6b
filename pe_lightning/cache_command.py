"""The verb ``cache``: what the folder of decoded signals holds, and how to empty it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pe_lightning.cache_folder import CacheFolder, show_bytes
from pe_lightning.errors import InputError

__all__ = ["cache"]


def cache(action: Literal["list", "clear"], /, *, cache_dir: str | None = None) -> None:
    """Lists or clears the cache of decoded signals.

    Signals are decoded once and then read from the cache. An entry is found by the content of the files and by every
    option that changes what is decoded, so it never has to be cleared for being out of date. A fit takes
    --data.cache_dir DIR, and --data.cache off to do without the cache.

    environment variables:
      PE_LIGHTNING_CACHE     the folder
      PE_LIGHTNING_CACHE_GB  the limit in gigabytes, 20 by default: entries that were used longest ago are removed

    Args:
        action: ``list`` shows the entries, the one that was used longest ago first; ``clear`` removes them.
        cache_dir: The folder; by default $PE_LIGHTNING_CACHE, else $XDG_CACHE_HOME/pe_lightning or ~/.cache/pe_lightning.

    Raises:
        InputError: If the folder cannot be read.
    """
    if cache_dir == "":
        raise InputError("--cache_dir takes a folder: pe-lightning cache list --cache_dir DIR")
    folder = CacheFolder(cache_dir)
    if folder.path.exists() and not folder.path.is_dir():
        raise InputError(f"the cache is a folder, but {str(folder.path)!r} is a file; give a folder with --cache_dir DIR")
    if action == "list":
        _list(folder)
        return
    cleared = folder.clear()
    print(f"removed {_count(cleared.entries)}, {show_bytes(cleared.bytes)}, from {folder.path}")
    if cleared.busy:
        print(f"left {_count(cleared.busy)} that another process is writing, or that may not be deleted")


def _list(folder: CacheFolder) -> None:
    table = Table("signals", "shape", "dtype", "size", "last used", "key")
    entries = folder.entries()
    for entry in entries:
        names, shape, dtype = _cells(entry.describe())
        used = datetime.fromtimestamp(entry.used).strftime("%Y-%m-%d %H:%M")
        table.add_row(Text(names), shape, dtype, show_bytes(entry.bytes), used, entry.key[:12])
    console = Console() if Console().is_terminal else Console(width=160)  # a pipe has no width of its own
    if entries:
        console.print(table)
    total = show_bytes(sum(entry.bytes for entry in entries))
    print(f"{_count(len(entries))}, {total} of at most {show_bytes(folder.limit)}, in {folder.path}")


def _cells(description: dict[str, Any]) -> tuple[str, str, str]:
    """The first name and the number of the others, shape, dtype."""
    try:
        names = list(description["names"])
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        shape = (len(names), *description["grid"], description["channels"])
        return f"{names[0]}{more}", _by(shape), str(description["stored"])
    except (KeyError, IndexError, TypeError):  # damaged, or of another version: replaced when it is asked for
        return "(not readable)", "", ""


def _by(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _count(number: int) -> str:
    return f"{number} {'entry' if number == 1 else 'entries'}"
