"""Text tables (``.csv``, ``.tsv``, ``.txt``) as 1-D signals: one per column."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from lightning.pytorch.utilities import rank_zero_info
from numpy.typing import NDArray

from pe_lightning.data.signals import RawSignals
from pe_lightning.data.sources.checks import join_scalings, one_length, value_scaling
from pe_lightning.data.sources.paths import SourceFile, distinct_names, reading
from pe_lightning.errors import InputError, did_you_mean

__all__ = ["Column", "read_table", "read_tables"]

DELIMITERS = "\t;, "
"""In order of preference where several fit equally well."""
MAX_COLUMNS = 10_000
"""Columns of a table of which all are taken."""
SAMPLE_LINES = 50
"""Lines that the delimiter is found from."""
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
_MISSING = frozenset({"", "?", "inf", "infinity", "n/a", "na", "nan", "nil", "none", "null"})  # no names of columns


class Column(NamedTuple):
    """A column of numbers: its header or position (empty for the only column of a table without header), and values."""

    name: str
    label: str
    values: NDArray[np.float64]


def read_tables(
    files: Sequence[SourceFile],
    columns: Sequence[str | int] | None = None,
    limits: tuple[float, float] | None = None,
    length: int | None = None,
) -> RawSignals:
    """Reads text tables: each column is a signal, float64, whose least and greatest number become 0 and 1.

    Args:
        files: The files.
        columns: Names or positions (from 0) of the columns to take from each file; by default all that hold numbers.
        limits: The numbers that become 0 and 1, of all columns.
        length: Take only the first n rows.
    """
    every = [(file, column) for file in files for column in read_table(file, columns)]
    rows = one_length([(file.given, len(column.values)) for file, column in every], length)
    values = np.stack([column.values[:rows] for _, column in every])[..., None]
    scalings = [
        (column.label, value_scaling(column.label, signal.dtype, partial(iter, [signal]), limits, unit=False))
        for (_, column), signal in zip(every, values, strict=True)
    ]
    names = [(file, f"{file.stem}-{_as_file_name(column.name)}" if column.name else file.stem) for file, column in every]
    return RawSignals(
        names=distinct_names(names),
        grid=(rows,),
        channels=1,
        stored="float64",
        scaling=join_scalings(scalings, notify=False),
        unit=False,
        blocks=partial(iter, values),
    )


def read_table(file: SourceFile, columns: Sequence[str | int] | None = None) -> list[Column]:
    """Reads columns of one UTF-8 text table, by default every column with a number in it; a notice names the others.

    The delimiter is a tab, a semicolon, a comma or spaces: that which cuts the first lines most evenly, and of several the
    one that leaves the largest share of numbers. The first line is a header if none of its cells is a number, or if one is
    not where the next line has a number. Lines that begin with ``#`` are comments. The decimal mark is a point; a comma,
    with a notice, if some cell has one and no cell a point.

    Raises:
        InputError: If the file is no text, a row has more or fewer cells than the first, there is no such column, or a cell
            is missing or not a finite number; the message has its line.
    """
    lines, rows = _rows(file)
    rows, mark = _with_decimal_points(file, rows)
    if columns is None and len(rows[0]) > MAX_COLUMNS:
        raise InputError(f"{file.given!r} has {len(rows[0])} columns, more than {MAX_COLUMNS}: choose some by select")
    names = [""] * len(rows[0])
    if header := _has_header(rows):
        names = [cell.strip() for cell in rows[0]]
    cells = list(zip(*rows[header:], strict=True))
    labels = [f"column {name or place!r} of {file.given!r}" for place, name in enumerate(names)]
    if columns is None:
        chosen = [place for place, column in enumerate(cells) if any(np.isfinite(_number(cell)) for cell in column)]
        if not chosen:
            raise InputError(f"{file.given!r} holds no column of numbers (the decimal mark is taken to be a {mark})")
        if left_out := [label for place, label in enumerate(labels) if place not in chosen]:
            rank_zero_info(f"{', '.join(left_out)} left out, because no cell is a number")
    else:
        chosen = [_find(file, column, names) for column in columns]
        if not cells or len(set(chosen)) < len(chosen):
            raise InputError(f"the columns to take of {file.given!r} must be distinct and hold numbers; got {columns!r}")
    found = []
    for place in chosen:
        values = np.array([_number(cell) for cell in cells[place]])
        if len(bad := np.flatnonzero(~np.isfinite(values))):
            raise InputError(
                f"{labels[place]}, line {lines[header + bad[0]]}: {cells[place][bad[0]]!r} is no finite number (the decimal "
                f"mark is taken to be a {mark}); correct it, or leave it out"
            )
        alone = not header and len(chosen) == 1
        found.append(Column("" if alone else names[place] or str(place), labels[place], values))
    return found


def _rows(file: SourceFile) -> tuple[list[int], list[list[str]]]:
    """Line numbers and cells of every row but comments and empty lines at either end."""
    with reading(file.given):
        text = file.path.read_bytes().decode("utf-8-sig")
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if not line.lstrip().startswith("#")]
        for end in (0, -1):
            while lines and not lines[end][1].strip():
                lines.pop(end)
        if "\0" in text or not lines:
            raise ValueError("it holds zero bytes" if "\0" in text else "it holds no numbers")
        numbers, texts = zip(*lines, strict=True)
        delimiter = max(DELIMITERS, key=lambda one: _fitness(_split(texts[:SAMPLE_LINES], one)))  # the first of several
        rows = _split(texts, delimiter)
    uneven = next((place for place, row in enumerate(rows) if len(row) != len(rows[0])), None)
    if uneven is not None or len(rows) != len(lines):
        where = "" if uneven is None else f", line {numbers[uneven]}: {len(rows[uneven])} cell(s)"
        raise InputError(
            f"{file.given!r}{where}, but line {numbers[0]} has {len(rows[0])} (the delimiter is taken to be {delimiter!r}). "
            "Every row needs the same number of cells, and every quote has to be closed on its line"
        )
    return list(numbers), rows


def _split(lines: Iterable[str], delimiter: str) -> list[list[str]]:
    if delimiter == " ":
        lines = (" ".join(line.split()) for line in lines)
    return list(csv.reader(lines, delimiter=delimiter, skipinitialspace=True))


def _fitness(rows: Sequence[Sequence[str]]) -> tuple[int, float]:
    """How many rows have one same number of cells, more than one; and the share of cells that are numbers."""
    even = max((times for cells, times in Counter(map(len, rows)).items() if cells > 1), default=0)
    cells = [cell for row in rows for cell in row]
    numbers = sum(bool(np.isfinite(_number(cell)) or DECIMAL_COMMA.fullmatch(cell.strip())) for cell in cells)
    return even, numbers / max(len(cells), 1)


def _with_decimal_points(file: SourceFile, rows: list[list[str]]) -> tuple[list[list[str]], str]:
    """The rows with a point as decimal mark, and the mark that they had."""
    with_comma = any(DECIMAL_COMMA.fullmatch(cell.strip()) for row in rows for cell in row)
    if not with_comma or any("." in cell and np.isfinite(_number(cell)) for row in rows for cell in row):
        return rows, "point"
    rank_zero_info(f"{file.given!r} is read with a comma as decimal mark")
    return [
        [cell.replace(",", ".") if DECIMAL_COMMA.fullmatch(cell.strip()) else cell for cell in row] for row in rows
    ], "comma"


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    first, second = ([np.isfinite(_number(cell)) for cell in row] for row in (rows[0], rows[min(1, len(rows) - 1)]))
    text = [not known and cell.strip(" +-").lower() not in _MISSING for known, cell in zip(first, rows[0], strict=True)]
    return any(text) and (not any(first) or any(above and below for above, below in zip(text, second, strict=True)))


def _number(cell: str) -> float:
    """The number that a cell holds; NaN if it holds none."""
    try:
        return float(cell) if "_" not in cell else np.nan  # Python would read 1_000 as a number
    except ValueError:
        return np.nan


def _find(file: SourceFile, column: str | int, names: Sequence[str]) -> int:
    places = [place for place, name in enumerate(names) if column in (place, name)]
    if len(places) == 1:
        return places[0]
    listed = ", ".join(name or str(place) for place, name in enumerate(names))
    raise InputError(
        f"{len(places)} columns of {file.given!r} are called {column!r}{did_you_mean(str(column), names)}; give a name or a "
        f"position, from 0. Columns: {listed}"
    )


def _as_file_name(name: str) -> str:
    return "".join("_" if char in '/\\:*?"<>|' or not char.isprintable() else char for char in name)
