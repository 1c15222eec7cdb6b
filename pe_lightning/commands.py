"""The verbs ``encoders``, ``networks`` and ``cache``."""

from __future__ import annotations

import inspect
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.table import Table
from rich.text import Text

from pe_lightning.cache_folder import CacheFolder, Entry
from pe_lightning.errors import InputError, show_bytes
from pe_lightning.verbs import console

if TYPE_CHECKING:
    from pe_lightning.encoders.base import EncoderRegistry

__all__ = ["cache", "list_encoders", "list_networks"]


def list_encoders(*, pages: str | None = None, scores: str | None = None) -> int:
    """Lists the registered encoders, those of installed plugins included: name, feature, arguments, reference.

    Exit status: 0, or 1 if a plugin could not be imported.

    Args:
        pages: A folder: instead of the list, a page in Markdown of each encoder and network, with figures, is written there.
        scores: For the pages: measured scores, a file of benchmarks/encoder_scores.py.

    Raises:
        InputError: If there are scores without pages, or they cannot be read.
    """
    from pe_lightning.encoders import registry  # imports torch, which --help does not need

    if pages is not None:
        from pe_lightning.pages import write_pages

        written = write_pages(Path(pages), None if scores is None else Path(scores))
        print(f"wrote {len(written)} pages to {pages}")
    elif scores is not None:
        raise InputError("--scores is for the pages: give --pages DIR too")
    else:
        _print(_encoder_table(registry))
    broken = registry.broken()
    for _, message in sorted(broken.items()):
        print(message)
    return 1 if broken else 0


def _encoder_table(registry: EncoderRegistry) -> Table:
    table = Table(show_lines=True)
    table.add_column("name", style="bold", no_wrap=True)
    for title in ("feature", "arguments", "reference"):
        table.add_column(title, overflow="fold")
    for name in registry:
        cls = registry.get(name)
        defaults = {key: parameter.default for key, parameter in registry.parameters(cls).items()}
        if cls.width is not None:
            defaults[cls.width.argument] = cls.width.text
        arguments = [key if value is inspect.Parameter.empty else f"{key}={value}" for key, value in defaults.items()]
        table.add_row(name, cls.formula, "\n".join(arguments), reference_of(cls))
    return table


def list_networks() -> None:
    """Lists the models, and the activations of SimpleMLP: formula, options, learning rate by default, reference."""
    from pe_lightning.networks import ACTIVATIONS, ComplexNetwork  # imports torch, which --help does not need

    table = Table(show_lines=True)
    table.add_column("--model", style="bold", no_wrap=True)
    for title in ("formula", "options", "rate", "reference"):
        table.add_column(title, overflow="fold")
    for name, kind in ACTIVATIONS.items():
        options = [] if kind.default_omega is None else [f"omega={kind.default_omega:g}"]
        options += [] if kind.default_scale is None else [f"activation_scale={kind.default_scale:g} ({kind.scale_text})"]
        table.add_row(
            f"SimpleMLP --model.activation {name}", kind.formula, "\n".join(options), f"{kind.rate:g}", kind.reference
        )
    rows = ("ComplexLinear", "W (ψ(x) ⊗ ψ(y) ⊗ ...)", "depth, ridge", "1/L; with a head 0.1", reference_of(ComplexNetwork))
    table.add_row(*rows)
    table.add_row(
        "Adaptive", "local exact fits, mixed by their errors", "angles, aspects", "not trained", "docs/adaptive.md"
    )
    _print(table)


def reference_of(cls: type) -> str:
    """The reference in the docstring of a class."""
    return " ".join((inspect.getdoc(cls) or "").partition("Reference: ")[2].replace("*", "").split())


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
    folder = CacheFolder(cache_dir)
    if cache_dir == "" or (folder.path.exists() and not folder.path.is_dir()):
        raise InputError(f"--cache_dir takes a folder; got {cache_dir or folder.path!r}")
    if action == "clear":
        cleared = folder.clear()
        print(f"removed {_count(cleared.entries)}, {show_bytes(cleared.bytes)}, from {folder.path}")
        if cleared.busy:
            print(f"left {_count(cleared.busy)} that another process is writing, or that may not be deleted")
        return
    table = Table("signals", "shape", "dtype", "size", "last used", "key")
    entries = folder.entries()
    for entry in entries:
        used = datetime.fromtimestamp(entry.used).strftime("%Y-%m-%d %H:%M")
        table.add_row(*_content(entry), show_bytes(entry.bytes), used, entry.key[:12])
    if entries:
        _print(table)
    total = show_bytes(sum(entry.bytes for entry in entries))
    print(f"{_count(len(entries))}, {total} of at most {show_bytes(folder.limit)}, in {folder.path}")


def _content(entry: Entry) -> tuple[Text, str, str]:
    """The first name and the number of the others, shape, dtype."""
    try:
        description = entry.describe()
        first, *others = description["names"]
        shape = (1 + len(others), *description["grid"], description["channels"])
        names = f"{first} and {len(others)} more" if others else first
        return Text(names), "x".join(map(str, shape)), str(description["stored"])
    except (KeyError, ValueError, TypeError):  # damaged, or of another version: replaced when it is asked for
        return Text("(not readable)"), "", ""


def _print(table: Table) -> None:
    console().print(table)


def _count(number: int) -> str:
    return f"{number} {'entry' if number == 1 else 'entries'}"
