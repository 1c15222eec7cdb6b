"""The table of ``pe-lightning encoders``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from pe_lightning.encoders import encoder_table
from pe_lightning.errors import InputError

__all__ = ["print_encoders"]

HELP = """\
usage: pe-lightning encoders

Lists the registered encoders, those of installed plugins included: name, feature, arguments with their defaults, source.
"""


def print_encoders(arguments: Sequence[str]) -> int:
    """Prints the table and returns the exit status: 1 if a plugin failed to import.

    Raises:
        InputError: If there are arguments other than ``--help``.
    """
    if any(argument in ("-h", "--help") for argument in arguments):
        print(HELP, end="")
        return 0
    if arguments:
        raise InputError(f"encoders takes no arguments, got {' '.join(arguments)!r}")
    rows = encoder_table()
    table = Table(show_lines=True)
    table.add_column("name", style="bold", no_wrap=True)
    for title in ("feature", "arguments", "reference"):
        table.add_column(title, overflow="fold")
    for row in rows:
        if row.error is None:
            table.add_row(row.name, row.formula, "\n".join(row.parameters), row.reference)
    # a pipe has no width of its own: wide enough there that no cell is broken
    console = Console() if Console().is_terminal else Console(width=160)
    console.print(table)
    broken = [row.error for row in rows if row.error is not None]
    for message in broken:
        console.print(message, style="red", highlight=False, markup=False)
    return 1 if broken else 0
