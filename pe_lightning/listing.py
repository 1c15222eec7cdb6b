"""The verb ``encoders``."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

__all__ = ["list_encoders"]


def list_encoders() -> int:
    """Lists the registered encoders, those of installed plugins included: name, feature, arguments, reference.

    Exit status: 0, or 1 if a plugin could not be imported.
    """
    from pe_lightning.encoders import encoder_table  # imports torch, which --help does not need

    table = Table(show_lines=True)
    table.add_column("name", style="bold", no_wrap=True)
    for title in ("feature", "arguments", "reference"):
        table.add_column(title, overflow="fold")
    rows = encoder_table()
    for row in rows:
        if row.error is None:
            table.add_row(row.name, row.formula, "\n".join(row.parameters), row.reference)
    console = Console() if Console().is_terminal else Console(width=160)  # a pipe has no width of its own
    console.print(table)
    broken = [row.error for row in rows if row.error is not None]
    for message in broken:
        console.print(message, style="red", highlight=False, markup=False)
    return 1 if broken else 0
