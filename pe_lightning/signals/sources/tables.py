"""Columns of text tables (``.csv``, ``.tsv``, ``.txt``) as signals of one axis."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pe_lightning.errors import InputError, did_you_mean
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import RawSignals
from pe_lightning.signals.sources.checks import is_one_of, join_scalings, one_length, value_scaling
from pe_lightning.signals.sources.paths import SourceFile, distinct_names, reading

__all__ = [
    "MISSING_VALUES",
    "Cells",
    "Column",
    "TableLayout",
    "file_name_of",
    "header_of",
    "is_missing",
    "layout_of",
    "note_repeated",
    "read_cells",
    "read_table",
    "read_tables",
]

DELIMITERS = "\t;, "
"""Delimiters in order of preference, if several fit equally well."""
MAX_COLUMNS = 10_000
"""Largest number of columns that are all taken by default."""
SAMPLE_LINES = 50
"""Number of lines from which the delimiter is found."""
MAX_MARKS, FAR, MIN_OTHERS = 3, 2.0, 5
"""Different numbers that may mark missing values, and their least distance from the others, as a share of their range."""
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
MISSING_VALUES = frozenset(
    {"", "?", "inf", "infinity", "n/a", "na", "nan", "nil", "none", "null"}
)  # cells without a value, which are not names of columns


class Column(NamedTuple):
    """A column of numbers, NaN where one is missing: name (header or index; empty for the only column without header)."""

    name: str
    label: str
    values: NDArray[np.float64]
    place: int
    """Index of the column in the table."""


@dataclass(frozen=True)
class TableLayout:
    """Where the cells of a text table are, to replace some of them and nothing else.

    Args:
        text: The whole file.
        lines: Numbers of the lines of the rows of numbers, from 1.
        delimiter: Between cells.
        decimal_comma: Whether the decimal mark is a comma.
    """

    text: str
    lines: Sequence[int]
    delimiter: str
    decimal_comma: bool

    def spans(self, line: str) -> list[tuple[int, int]]:
        """First and last character of each cell of a line, without its quotes."""
        cell = r"\S+" if self.delimiter == " " else rf'"(?:[^"]|"")*"|[^{self.delimiter}]*'
        if self.delimiter == " ":
            return [found.span() for found in re.finditer(cell, line)]
        found, start = [], 0
        while start <= len(line):
            match = re.compile(rf" *({cell})").match(line, start)
            assert match is not None
            found.append(match.span(1))
            start = match.end() + 1
        return found

    def decimals(self, column: int) -> int | None:
        """The most digits after the decimal mark in a column; ``None`` if it has exponents."""
        rows = self.text.splitlines()
        cells = [rows[number - 1][slice(*self.spans(rows[number - 1])[column])].strip(' "') for number in self.lines]
        known = [cell for cell in cells if not is_missing(cell)]
        if any("e" in cell.lower() for cell in known):
            return None
        return max((len(re.split("[.,]", cell)[1]) for cell in known if re.search("[.,]", cell)), default=0)

    def written(self, value: float, decimals: int | None) -> str:
        """A number as the cells of its column are written."""
        text = f"{value:.6g}" if decimals is None else f"{value:.{decimals}f}"
        return text.replace(".", ",") if self.decimal_comma else text

    def replaced(self, cells: Mapping[tuple[int, int], str]) -> bytes:
        """The file with other texts in some cells, by row of numbers and column, each from 0."""
        lines = self.text.splitlines(keepends=True)
        for row, column in sorted(cells, reverse=True):
            line = lines[self.lines[row] - 1]
            start, end = self.spans(line.rstrip("\r\n"))[column]
            lines[self.lines[row] - 1] = line[:start] + cells[row, column] + line[end:]
        return "".join(lines).encode()


def layout_of(file: SourceFile) -> TableLayout:
    """The layout of a text table that :func:`read_table` reads."""
    numbers, rows, delimiter = _rows(file)
    with_points, mark = _with_decimal_points(file, rows)
    header = _has_header(with_points)
    return TableLayout(file.path.read_bytes().decode("utf-8"), numbers[header:], delimiter, mark == "comma")


class Cells(NamedTuple):
    """A column of text: its name (the header, or its index), its label in messages, and per cell the line and the text."""

    name: str
    label: str
    lines: Sequence[int]
    cells: Sequence[str]


def read_tables(
    files: Sequence[SourceFile],
    columns: Sequence[str | int] | None = None,
    limits: tuple[float, float] | None = None,
    length: int | None = None,
    fills: Sequence[float] = (),
) -> RawSignals:
    """Reads text tables. Each column is a float64 signal, whose minimum and maximum become 0 and 1.

    Args:
        files: The files.
        columns: Names or indices (from 0) of the columns to take from each file; by default all columns of numbers.
        limits: The values that become 0 and 1 in all columns.
        length: Number of leading rows to take.
        fills: Numbers in place of missing ones, besides empty cells and words such as ``NA``.
    """
    every = [(file, column) for file in files for column in read_table(file, columns, fills)]
    rows = one_length([(file.given, len(column.values)) for file, column in every], length)
    values = np.stack([column.values[:rows] for _, column in every])[..., None]
    scalings = [
        (column.label, value_scaling(column.label, signal.dtype, partial(iter, [signal]), limits, unit=False))
        for (_, column), signal in zip(every, values, strict=True)
    ]
    names = [(file, f"{file.stem}-{file_name_of(column.name)}" if column.name else file.stem) for file, column in every]
    return RawSignals(
        names=distinct_names(names),
        grid=(rows,),
        channels=1,
        stored="float64",
        scaling=join_scalings(scalings, notify=False),
        unit=False,
        blocks=partial(iter, values),
    )


def read_table(file: SourceFile, columns: Sequence[str | int] | None = None, fills: Sequence[float] = ()) -> list[Column]:
    """Reads columns of one UTF-8 text table, by default every column with a number in it; a notice names the others.

    The delimiter is a tab, a semicolon, a comma or spaces: the one with which most of the first lines have the same number
    of cells, and, of several, the largest share of numbers. The first line is a header if none of its cells is a number, or
    if one is not and the cell below it is. Lines that begin with ``#`` are comments. The decimal mark is a comma, with a
    notice, if some cell has a decimal comma and none a decimal point; otherwise it is a point.
    Empty cells, the words of :data:`MISSING_VALUES` and the numbers ``fills`` are NaN. A notice names a
    number that repeats far outside the others.

    Raises:
        InputError: If the file is not text, a row has another number of cells than the first, there is no such column, or a
            cell is neither a number nor empty; the message has the line.
    """
    lines, rows, _ = _rows(file)
    rows, mark = _with_decimal_points(file, rows)
    if columns is None and len(rows[0]) > MAX_COLUMNS:
        raise InputError(f"{file.given!r} has {len(rows[0])} columns, more than {MAX_COLUMNS}: choose columns by select")
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
            raise InputError(f"the selected columns of {file.given!r} must be distinct and hold numbers; got {columns!r}")
    found = []
    for place in chosen:
        values = np.array([_number(cell) for cell in cells[place]])
        values[~np.isfinite(values)] = np.nan
        for row in np.flatnonzero(np.isnan(values)):
            if not is_missing(cells[place][row]):
                raise InputError(
                    f"{labels[place]}, line {lines[header + row]}: {cells[place][row]!r} is not a number (the decimal mark "
                    f"is taken to be a {mark}); correct it, or leave the cell empty where the value is missing"
                )
        values[is_one_of(values, fills)] = np.nan
        note_repeated(labels[place], values)
        alone = not header and len(chosen) == 1
        found.append(Column("" if alone else names[place] or str(place), labels[place], values, place))
    return found


def read_cells(file: SourceFile, columns: Sequence[str] | None = None) -> list[Cells]:
    """Reads columns of one text table as text, with decimal points; ``None``: all.

    An index from 0 is the name of a column where no header is.

    Raises:
        InputError: If the file is not text, a row has another number of cells than the first, or there is no such column.
    """
    lines, rows, _ = _rows(file)
    rows, _ = _with_decimal_points(file, rows)
    header = _has_header(rows)
    names = [cell.strip() for cell in rows[0]] if header else [""] * len(rows[0])
    found = []
    for column in map(str, range(len(names))) if columns is None and not header else columns or names:
        place = _find(file, int(column) if column.isdecimal() and column not in names else column, names)
        label = f"column {column!r} of {file.given!r}"
        found.append(Cells(names[place] or str(place), label, lines[header:], [row[place] for row in rows[header:]]))
    return found


def note_repeated(label: str, values: NDArray[np.float64]) -> None:
    """Prints a number that is in several cells of a column and far outside the others: it may mark missing values.

    Args:
        label: What messages call the column.
        values: Its values, NaN where one is missing.
    """
    numbers, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    for count in range(1, min(MAX_MARKS, len(numbers) - MIN_OTHERS) + 1):
        for outside, others in ((slice(count), numbers[count:]), (slice(-count, None), numbers[:-count])):
            distance = min(abs(numbers[outside][0] - others).min(), abs(numbers[outside][-1] - others).min())
            if counts[outside].min() > 1 and distance > FAR * np.ptp(others):
                shown = ",".join(f"{number:.10g}" for number in numbers[outside])
                rank_zero_info(
                    f"{label}: {shown} in {counts[outside].sum()} of {len(values)} rows is far outside the others, "
                    f"{others[0]:.6g} to {others[-1]:.6g}; if it marks missing values, set missing (--missing={shown})"
                )
                return


def header_of(file: SourceFile) -> list[str]:
    """Names of the columns of a text table, from its first lines; empty without a header.

    Raises:
        InputError: If the file is not text, or its first rows differ in their number of cells.
    """
    _, rows, _ = _rows(file, SAMPLE_LINES)
    rows, _ = _with_decimal_points(file, rows)
    return [cell.strip() for cell in rows[0]] if _has_header(rows) else []


def is_missing(cell: str) -> bool:
    """Whether a cell says that its value is missing."""
    return cell.strip(" +-").lower() in MISSING_VALUES


def _rows(file: SourceFile, most: int | None = None) -> tuple[list[int], list[list[str]], str]:
    """Line numbers, cells and delimiter of all rows, or of ``most``, without comments and empty lines at both ends."""
    with reading(file.given):
        text = file.path.read_bytes().decode("utf-8-sig")
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if not line.lstrip().startswith("#")]
        for end in (0, -1):
            while lines and not lines[end][1].strip():
                lines.pop(end)
        if "\0" in text or not lines:
            raise ValueError("it holds zero bytes" if "\0" in text else "it holds no numbers")
        lines = lines[:most]
        numbers, texts = zip(*lines, strict=True)
        delimiter = max(DELIMITERS, key=lambda one: _fitness(_split(texts[:SAMPLE_LINES], one)))  # the first of several
        rows = _split(texts, delimiter)
    uneven = next((place for place, row in enumerate(rows) if len(row) != len(rows[0])), None)
    if uneven is not None or len(rows) != len(lines):
        where = "" if uneven is None else f", line {numbers[uneven]}: {len(rows[uneven])} cell(s)"
        raise InputError(
            f"{file.given!r}{where}, but line {numbers[0]} has {len(rows[0])} (the delimiter is taken to be {delimiter!r}). "
            "All rows need the same number of cells, and quotes must be closed on their line"
        )
    return list(numbers), rows, delimiter


def _split(lines: Iterable[str], delimiter: str) -> list[list[str]]:
    if delimiter == " ":
        lines = (" ".join(line.split()) for line in lines)
    return list(csv.reader(lines, delimiter=delimiter, skipinitialspace=True))


def _fitness(rows: Sequence[Sequence[str]]) -> tuple[int, float]:
    """Number of rows with the most frequent number of cells (above 1), and the share of cells that are numbers."""
    even = max((times for cells, times in Counter(map(len, rows)).items() if cells > 1), default=0)
    cells = [cell for row in rows for cell in row]
    numbers = sum(bool(np.isfinite(_number(cell)) or DECIMAL_COMMA.fullmatch(cell.strip())) for cell in cells)
    return even, numbers / max(len(cells), 1)


def _with_decimal_points(file: SourceFile, rows: list[list[str]]) -> tuple[list[list[str]], str]:
    """The rows with decimal points, and the name of their decimal mark."""
    with_comma = any(DECIMAL_COMMA.fullmatch(cell.strip()) for row in rows for cell in row)
    if not with_comma or any("." in cell and np.isfinite(_number(cell)) for row in rows for cell in row):
        return rows, "point"
    rank_zero_info(f"{file.given!r} is read with a comma as decimal mark")
    return [
        [cell.replace(",", ".") if DECIMAL_COMMA.fullmatch(cell.strip()) else cell for cell in row] for row in rows
    ], "comma"


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    first, second = ([np.isfinite(_number(cell)) for cell in row] for row in (rows[0], rows[min(1, len(rows) - 1)]))
    text = [not known and not is_missing(cell) for known, cell in zip(first, rows[0], strict=True)]
    return any(text) and (not any(first) or any(above and below for above, below in zip(text, second, strict=True)))


def _number(cell: str) -> float:
    """The number in a cell; NaN if there is none."""
    try:
        return float(cell) if "_" not in cell else np.nan  # float() accepts 1_000
    except ValueError:
        return np.nan


def _find(file: SourceFile, column: str | int, names: Sequence[str]) -> int:
    places = [place for place, name in enumerate(names) if column in (place, name)]
    if len(places) == 1:
        return places[0]
    listed = ", ".join(name or str(place) for place, name in enumerate(names))
    found = f"{len(places)} columns of {file.given!r} are" if places else f"no column of {file.given!r} is"
    raise InputError(
        f"{found} named {column!r}{did_you_mean(str(column), names)}; give a name or an index from 0. Columns: {listed}"
    )


def file_name_of(name: str) -> str:
    """A name with underscores in place of characters that file names may not have."""
    return "".join("_" if char in '/\\:*?"<>|' or not char.isprintable() else char for char in name)
