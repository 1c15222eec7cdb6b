"""The verbs ``list``, ``encoders``, ``networks`` and ``cache``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.table import Table
from rich.text import Text

from pe_lightning.errors import InputError, check_known, console, say, show_bytes
from pe_lightning.registry import REGISTRIES, find_registry
from pe_lightning.signals.cache import Entry, SignalCache
from pe_lightning.signals.entries import EntryValues

if TYPE_CHECKING:
    from pe_lightning.encoders import Encoder


def list_encoders(names: list[str] | None = None, /) -> int:
    """Lists the registered encoders: name, feature, arguments, reference.

    Encoders given by name are shown with the description of every argument.

    Args:
        names: Encoders to show: gau tri.
    """
    from pe_lightning.encoders import registry  # imports torch, which --help does not need

    if names:
        say(*"\n".join([_describe_encoder(registry.get(name)) for name in names]).splitlines())
    else:
        return list_registered(["encoders"])
    return 0


def _describe_encoder(cls: type[Encoder]) -> str:
    from pe_lightning.cli.help import argument_descriptions, layout, plain_text
    from pe_lightning.encoders import registry

    name = registry.name_of(cls)
    title = re.split(r"\n|:math:", inspect.getdoc(cls) or "")[0].rstrip(" .:,")
    widths = {} if cls.width is None else {cls.width.argument: cls.width.text}
    entries = [(f"{key} = {widths.get(key, value)}", about) for key, value, about in argument_descriptions(cls)]
    example = " ".join([f"--encoder {name}", *(f"--encoder.{width} auto" for width in widths)])
    return (
        f"{name}: {plain_text(title)}\n\nfeature:   {cls.formula}\nreference: {reference_of(cls)}\n\n"
        f"arguments:\n{layout(entries)}\n  pe-lightning fit my.jpg {example}\n"
    )


def _table(first: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(show_lines=True)
    table.add_column(first, style="bold", no_wrap=True)
    for title in columns:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def list_networks() -> int:
    """Lists the models, and the activations of SimpleMLP: formula, options, learning rate, reference.

    Exit status: 0, or 1 if a plugin could not be imported.
    """
    return list_registered(["models", "activations"])


def list_registered(kinds: list[str] | None = None, /) -> int:
    """Lists all names, of encoders, models, samplings, recipes and others.

    They can be given in a command or a configuration; the classes of installed plugins are among them.

    Args:
        kinds: encoders, models, activations, datamodules, estimators, sources, samplings, metrics, baselines, callbacks,
            media, recipes; without any, the names of all.
    """
    known = [*REGISTRIES, "recipes"]
    for kind in kinds or ():
        check_known("unknown list", kind, known, "Lists")
    overview = Table("list", "names", "entry-point group", show_lines=True)
    for kind in kinds or known:
        if kind == "recipes":
            from pe_lightning.cli import recipes  # imports torch and Lightning, which other lists do not need

            registry, names = None, recipes.names()
        else:
            registry = find_registry(kind)
            names = registry.names()
        if not kinds:
            overview.add_row(kind, ", ".join(names), "" if registry is None else registry.group)
        else:
            console().print(TABLES[kind]() if kind in TABLES else _registry_table(kind))
    if not kinds:
        console().print(overview)
    return 0


def _recipe_table() -> Table:
    from pe_lightning.cli import recipes

    comments = {name: Path(recipes.find(name)).read_text(encoding="utf-8").partition("\n")[0] for name in recipes.names()}
    return _table("--config", ["what it fits"], [(name, text.removeprefix("#").strip()) for name, text in comments.items()])


def _activation_table() -> Table:
    from pe_lightning.networks import activations

    rows = []
    for name in activations:
        kind = activations.get(name)
        options = [] if kind.default_omega is None else [f"omega={kind.default_omega:g}"]
        options += [] if kind.default_scale is None else [f"activation_scale={kind.default_scale:g} ({kind.scale_text})"]
        title = f"SimpleMLP --model.activation {name}"
        rows.append((title, kind.formula, "\n".join(options), f"{kind.rate:g}", kind.reference))
    return _table("--model", ("formula", "options", "learning rate", "reference"), rows)


def _registry_table(kind: str) -> Table:
    registry, rows = find_registry(kind), []
    for name in registry:
        cls = registry.get(name)
        text = re.sub(r"(?::\w+:)?`+~?([^`]*)`+", r"\1", (inspect.getdoc(cls) or "").partition("\n")[0])
        defaults = {key: parameter.default for key, parameter in registry.parameters(cls).items()}
        if (width := getattr(cls, "width", None)) is not None:
            defaults[width.argument] = width.text
        plain = {key: f"={value}" if isinstance(value, (bool, int, float, str)) else "" for key, value in defaults.items()}
        arguments = [f"{key}{value}" for key, value in plain.items()]
        rows.append((name, getattr(cls, "formula", text), "\n".join(arguments), reference_of(cls)))
    return _table(registry.kind, ("description", "arguments", "reference"), rows)


TABLES = {"activations": _activation_table, "recipes": _recipe_table}


def reference_of(cls: type) -> str:
    """The reference in the docstring of a class."""
    return " ".join((inspect.getdoc(cls) or "").partition("Reference: ")[2].replace("*", "").split())


def cache(action: Literal["list", "clear"], /, *, cache_dir: str | None = None) -> None:
    """Lists or clears the cache of decoded signals.

    Signals are decoded once and then read from the cache. The key of an entry is computed from the content of the files and
    from all options that change the decoded values, so an entry is never out of date. Interpolation that is scored beside
    fits is an entry, too. A fit takes
    --data.storage.cache_dir DIR, or --data.storage.cache off to read the files themselves.

    environment variables:
      PE_LIGHTNING_CACHE     the folder
      PE_LIGHTNING_CACHE_GB  the limit in gigabytes (default: 20); the least recently used entries are removed

    Args:
        action: ``list`` shows the entries, least recently used first; ``clear`` removes them.
        cache_dir: The folder (default: $PE_LIGHTNING_CACHE, else $XDG_CACHE_HOME/pe_lightning or ~/.cache/pe_lightning).
    """
    folder = SignalCache(cache_dir)
    if cache_dir == "" or (folder.path.exists() and not folder.path.is_dir()):
        raise InputError(f"--cache_dir takes a folder; got {cache_dir or folder.path!r}")
    if action == "clear":
        removed = folder.clear()
        say(f"removed {_count(len(removed))}, {show_bytes(sum(entry.bytes for entry in removed))}, from {folder.path}")
        if entries := folder.entries():
            say(f"kept {_count(len(entries))} that cannot be deleted")
        return
    table = Table("signals", "shape", "dtype", "size", "last used", "key")
    entries = folder.entries()
    for entry in entries:
        used = datetime.fromtimestamp(entry.used).strftime("%Y-%m-%d %H:%M")
        table.add_row(*_content(entry), show_bytes(entry.bytes), used, entry.key[:12])
    if entries:
        console().print(table)
    total = show_bytes(sum(entry.bytes for entry in entries))
    say(f"{_count(len(entries))}, {total} of at most {show_bytes(folder.limit)}, in {folder.path}")


def _content(entry: Entry) -> tuple[Text, str, str]:
    try:
        signals = EntryValues(entry.path).signals()
        first, *others = signals.names
        names = f"{first} and {len(others)} more" if others else first
        return Text(names), "x".join(map(str, signals.shape)), signals.stored
    except OSError:  # a damaged file, which the next fit replaces
        return Text("(not readable)"), "", ""


def _count(number: int) -> str:
    return f"{number} {'entry' if number == 1 else 'entries'}"
