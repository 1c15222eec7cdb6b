"""The verb ``cache``: what the folder of decoded signals holds, and how to empty it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pe_lightning.cache_folder import DEFAULT_GB, FOLDER, LIMIT, CacheFolder, show_bytes
from pe_lightning.errors import InputError, did_you_mean

__all__ = ["print_cache"]

ACTIONS = {"list": "what is cached, the one that was used longest ago first", "clear": "remove all of it"}

HELP = f"""\
usage: pe-lightning cache list|clear [--cache_dir DIR]

Signals are decoded once and then read from a cache. It is keyed by the content of the files and by every option that
changes what is decoded, so it never has to be cleared for being out of date.

{chr(10).join(f"  {action:<6} {text}" for action, text in ACTIONS.items())}

  --cache_dir DIR         the folder; else ${FOLDER}, else ~/.cache/pe_lightning
                          ($XDG_CACHE_HOME/pe_lightning where that is set)

Environment:
  {FOLDER}      the folder
  {LIMIT}   the limit in gigabytes, {DEFAULT_GB:g} by default: what was used longest ago is removed to stay below it

A fit takes --data.cache_dir DIR, and --data.cache off to do without a cache.
"""


def print_cache(arguments: Sequence[str]) -> int:
    """Lists or clears the cache and returns the exit status.

    Raises:
        InputError: If an argument is unknown or missing, or the folder cannot be read.
    """
    if any(argument in ("-h", "--help") for argument in arguments):
        print(HELP, end="")
        return 0
    action, given = _parse(arguments)
    folder = CacheFolder(given)
    if folder.path.exists() and not folder.path.is_dir():
        raise InputError(f"the cache is a folder, but {str(folder.path)!r} is a file; give a folder with --cache_dir DIR")
    if action == "list":
        _list(folder)
    else:
        cleared = folder.clear()
        print(f"removed {_count(cleared.entries)}, {show_bytes(cleared.bytes)}, from {folder.path}")
        if cleared.busy:
            print(f"left {_count(cleared.busy)} that another process is writing, or that may not be deleted")
    return 0


def _parse(arguments: Sequence[str]) -> tuple[str, str | None]:
    rest = list(arguments)
    folder = None
    actions = []
    while rest:
        word, is_option, value = rest.pop(0).partition("=")
        if word == "--cache_dir":
            if not is_option:
                value = rest.pop(0) if rest else ""
            if not value:
                raise InputError("--cache_dir takes a folder: pe-lightning cache list --cache_dir DIR")
            folder = value
        elif word.startswith("-"):
            hint = did_you_mean(word, ["--cache_dir", "--help"]) or "; there is --cache_dir DIR"
            raise InputError(f"cache has no option {word!r}{hint}")
        else:
            actions.append(word)
    if len(actions) != 1 or actions[0] not in ACTIONS:
        hint = did_you_mean(actions[0], ACTIONS) if len(actions) == 1 else ""
        given = repr(" ".join(actions)) if actions else "none"
        raise InputError(f"cache takes one action, list or clear; got {given}{hint}")
    return actions[0], folder


def _list(folder: CacheFolder) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

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
