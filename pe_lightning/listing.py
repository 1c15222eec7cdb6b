"""The verb ``encoders``."""

from __future__ import annotations

import inspect

from rich.console import Console
from rich.table import Table

__all__ = ["list_encoders"]


def list_encoders() -> int:
    """Lists the registered encoders, those of installed plugins included: name, feature, arguments, reference.

    Exit status: 0, or 1 if a plugin could not be imported.
    """
    from pe_lightning.encoders import registry  # imports torch, which --help does not need

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
        reference = " ".join((inspect.getdoc(cls) or "").partition("Reference: ")[2].replace("*", "").split())
        table.add_row(name, cls.formula, "\n".join(arguments), reference)
    console = Console() if Console().is_terminal else Console(width=160)  # a pipe has no width of its own
    console.print(table)
    broken = registry.broken()
    for _, message in sorted(broken.items()):
        console.print(message, style="red", highlight=False, markup=False)
    return 1 if broken else 0
