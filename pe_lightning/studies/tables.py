"""Frames of texts as tables: in the terminal, as Markdown and as LaTeX. Their index, of tuples, is the first columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pe_lightning.results.run import MISSING


def print_table(console: Console, frame: pd.DataFrame, styles: Sequence[str] = (), words: Collection[str] = ()) -> None:
    """Prints a table; columns of ``words`` are on the left, and wrapped."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in frame.index.names:
        table.add_column(Text(name), overflow="fold")
    for heading in frame.columns:
        title = Text(heading if "\n" in heading else heading.replace(" ", "\n", 1))
        is_text = heading in words
        table.add_column(title, justify="left" if is_text else "right", no_wrap=not is_text, vertical="bottom")
    for names, cells, style in zip(frame.index, frame.to_numpy(), styles or [""] * len(frame), strict=True):
        table.add_row(*map(Text, [*names, *cells]), style=style)
    console.print(table)


def markdown_table(frame: pd.DataFrame, marks: Sequence[str] = ()) -> str:
    """A table as Markdown; the names of a row are between its mark, such as ``*``."""
    lines = [[*map(in_markdown, frame.index.names), *frame.columns]]
    lines.append(["---"] * frame.index.nlevels + ["---:"] * frame.shape[1])
    for names, cells, mark in zip(frame.index, frame.to_numpy(), marks or [""] * len(frame), strict=True):
        lines.append([*(f"{mark}{in_markdown(name)}{mark}" if name else "" for name in names), *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def latex_table(frame: pd.DataFrame) -> str:
    r"""A table for LaTeX's ``booktabs``, with ``$\pm$``."""
    flat = frame.reset_index(allow_duplicates=True).map(_in_latex).rename(columns=_in_latex)
    return str(flat.to_latex(index=False, column_format="l" * frame.index.nlevels + "r" * frame.shape[1]))


def in_markdown(text: str) -> str:
    """Text with the marks of Markdown escaped."""
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def _in_latex(text: str) -> str:
    words = re.sub(r"([%&#_{}$])", r"\\\1", text.replace("\\", "/"))
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", words).replace("±", r"$\pm$").replace(MISSING, "--")
