"""Text tables (``.csv``, ``.tsv``, ``.txt``): columns of numbers, dates and texts."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import dropwhile

import numpy as np
from numpy.typing import NDArray

from pe_lightning.errors import InputError, did_you_mean
from pe_lightning.signals.axes import EQUAL_DISTANCE, Axis, as_numbers, origin_of
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray, RawSignals, is_one_of, join_scalings, value_scaling
from pe_lightning.signals.sources.paths import SourceFile, distinct_names, reading
from pe_lightning.signals.validation import one_length

DELIMITERS = "\t;, "
"""Delimiters in order of preference, if several fit equally well."""
MIN_AXIS_ROWS = 8
"""Fewest rows from which numbers at equal distances are taken for an axis."""
MAX_COLUMNS = 10_000
"""Largest number of columns that are all taken by default."""
SAMPLE_LINES = 50
"""Number of lines from which the delimiter is found."""
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
MISSING_VALUES = frozenset({"", "?", "inf", "infinity", "n/a", "na", "nan", "nil", "none", "null", "#n/a", "#na", "<na>"})
"""Cells without a value, which are not names of columns."""
BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
COMMENTS = ". Lines that begin with # are comments only above the header: remove the others"


@dataclass(frozen=True)
class Column:
    """A column of numbers, NaN where one is missing.

    Args:
        name: Header or index; empty for the only column of a table without header.
        label: Name in messages.
        values: The numbers.
        place: Index of the column in the table.
    """

    name: str
    label: str
    values: NDArray[np.float64]
    place: int


def read_tables(
    files: Sequence[SourceFile],
    columns: Sequence[str | int] | None = None,
    limits: tuple[float, float] | None = None,
    length: int | None = None,
    fills: Sequence[float] = (),
) -> RawSignals:
    """Reads text tables. Each column is a float64 signal; its minimum and maximum, or ``limits``, become 0 and 1.

    ``fills`` are numbers in place of missing ones, besides empty cells and words such as ``NA``. Dates at equal distances in
    a column of one table are its axis; else, where no ``columns`` are named, numbers at equal distances in its first one.
    """
    tables = [Table.open(file) for file in files]
    alone = tables[0] if len(tables) == 1 else None
    place, along = (-1, None) if alone is None else _times_of(alone)
    if alone is not None and along is None and columns is None:
        place, along = _numbers_of(alone)
    every = [(table.file, column) for table in tables for column in table.columns(columns, fills, place)]
    rows = one_length([(file.given, len(column.values)) for file, column in every], length)
    values = np.stack([column.values[:rows] for _, column in every])[..., None]
    scalings = [
        (column.label, value_scaling(column.label, signal.dtype, partial(iter, [signal]), limits, unit=False))
        for (_, column), signal in zip(every, values, strict=True)
    ]
    names = [(file, f"{file.stem}-{file_name_of(column.name)}" if column.name else file.stem) for file, column in every]
    return RawSignals(
        values,
        names=distinct_names(names),
        scaling=join_scalings(scalings, notify=False),
        axes=() if along is None else (Axis.from_values(tables[0].names[place] or str(place), along[:rows]),),
    )


def _times_of(table: Table) -> tuple[int, AnyArray | None]:
    """Index and dates of the only column of dates, if all have equal distances; else -1."""
    dates = table.dates()
    if len(dates) != 1 or len(table.lines) < 2:
        return -1, None
    ((place, found),) = dates.items()
    numbers = as_numbers(table.names[place], found, True, origin_of(found))
    return (place, found) if _at_equal_distances(numbers) else (-1, None)


def _numbers_of(table: Table) -> tuple[int, AnyArray | None]:
    """Index 0 and numbers of the first column, if all have equal distances and another column holds numbers; else -1."""
    numbers = [place for place, cells in enumerate(table.cells) if any(np.isfinite(number_in(cell)) for cell in cells)]
    if numbers[:1] != [0] or len(numbers) == 1 or len(table.lines) < MIN_AXIS_ROWS:
        return -1, None
    found = np.array([number_in(cell) for cell in table.cells[0]])
    if not _at_equal_distances(found):
        return -1, None
    names = ",".join(name or str(place) for place, name in enumerate(table.names) if place in numbers)
    rank_zero_info(
        f"{table.label(0)} holds numbers at equal distances, and is taken for the axis of the others; if it is a signal, "
        f"name all: --data.select {names}"
    )
    return 0, found


def _at_equal_distances(numbers: NDArray[np.float64]) -> bool:
    """Whether numbers ascend or descend by equal steps, and none is missing."""
    step = (numbers[-1] - numbers[0]) / (len(numbers) - 1)
    return bool(step != 0 and (abs(np.diff(numbers) - step) < EQUAL_DISTANCE * abs(step)).all())


@dataclass(frozen=True)
class Table:
    """A text table, whose columns of numbers are read.

    Args:
        file: The file.
        names: Names in the header; empty texts without one.
        lines: Number of the line of each row below the header, from 1; 0 for an added row.
        cells: Texts of each column, with decimal points.
        delimiter: The delimiter.
        mark: Name of the decimal mark, ``point`` or ``comma``.
    """

    file: SourceFile
    names: Sequence[str]
    lines: Sequence[int]
    cells: Sequence[Sequence[str]]
    delimiter: str
    mark: str

    @classmethod
    def open(cls, file: SourceFile, most: int | None = None) -> Table:
        """Reads a table, or its first ``most`` lines.

        The delimiter (tab, semicolon, comma or spaces) gives most of the first lines the same number of cells, and then the
        largest share of numbers. The first line is a header if none of its cells is a number, or if a cell is none and the
        cell below it is. Lines above it that begin with ``#`` are comments. An empty line in a single column is a missing
        value. The decimal mark is a comma, with a notice, if some cell has a decimal comma and none a decimal point.
        """
        lines, rows, delimiter = _rows(file, most)
        rows, mark = _with_decimal_points(file, rows)
        header = _has_header(rows)
        names = [cell.strip() for cell in rows[0]] if header else [""] * len(rows[0])
        cells = list(zip(*rows[header:], strict=True)) or [()] * len(names)
        return cls(file, names, lines[header:], cells, delimiter, mark)

    def columns(
        self, columns: Sequence[str | int] | None = None, fills: Sequence[float] = (), axis: int = -1
    ) -> list[Column]:
        """Columns of numbers, by default every column with a number but ``axis``; a notice names the others.

        Empty cells, the words of :data:`MISSING_VALUES` and the numbers ``fills`` are NaN.
        """
        given = self.file.given
        if columns is None and len(self.names) > MAX_COLUMNS:
            raise InputError(f"{given!r} has {len(self.names)} columns, more than {MAX_COLUMNS}: choose columns by select")
        if columns is None:
            others = [place for place in range(len(self.names)) if place != axis]
            chosen = [place for place in others if any(np.isfinite(number_in(cell)) for cell in self.cells[place])]
            if not chosen:
                held = f"no column of numbers (the decimal mark is taken to be a {self.mark})" if self.lines else "no rows"
                raise InputError(f"{given!r} holds {held}; its columns: {', '.join(self.names) or 'without names'}")
            if left_out := [self.label(place) for place in others if place not in chosen]:
                rank_zero_info(f"{', '.join(left_out)} left out, because no cell is a number")
        else:
            chosen = [self.find(column) for column in columns]
            if not self.lines or len(set(chosen)) < len(chosen):
                raise InputError(f"the selected columns of {given!r} must be distinct and hold numbers; got {columns!r}")
        alone, found = not any(self.names) and len(chosen) == 1, []
        for place in chosen:
            values = self.values(place)
            values[~np.isfinite(values) | is_one_of(values, fills)] = np.nan
            found.append(Column("" if alone else self.names[place] or str(place), self.label(place), values, place))
        return found

    def dates(self) -> dict[int, NDArray[np.datetime64]]:
        """The columns of dates by index, ``NaT`` where one is missing."""
        found = {}
        for place, cells in enumerate(self.cells):
            first = next((cell for cell in cells if not is_missing(cell)), "")
            if np.isnan(number_in(first)) and not np.isnat(date_in(first)):
                dates = np.array([date_in(cell) for cell in cells])
                if all(is_missing(cells[row]) for row in np.flatnonzero(np.isnat(dates)).tolist()):
                    found[place] = dates
        return found

    def label(self, place: int) -> str:
        return f"column {self.names[place] or place!r} of {self.file.given!r}"

    def find(self, column: str | int) -> int:
        places = [place for place, name in enumerate(self.names) if column in (place, name)]
        if len(places) == 1:
            return places[0]
        listed = ", ".join(name or str(place) for place, name in enumerate(self.names))
        found = f"{len(places)} columns of {self.file.given!r} are" if places else f"no column of {self.file.given!r} is"
        near = did_you_mean(str(column), self.names)
        raise InputError(f"{found} named {column!r}{near}; give a name or an index from 0. Columns: {listed}")

    def values(self, place: int, dates: bool = False) -> AnyArray:
        """A column as float64, NaN where a value is missing; ``dates``: ``datetime64`` if its first value is no number."""
        cells = self.cells[place]
        if not any("_" in cell for cell in cells):  # which NumPy takes for a part of a number
            try:
                return np.array(cells, np.float64)  # fast, where no cell is missing
            except ValueError:
                pass
        missing = np.array([is_missing(cell) for cell in cells], bool)
        first = next((cell for cell, absent in zip(cells, missing, strict=True) if not absent), "0")
        as_dates = dates and np.isnan(number_in(first))
        found = np.array([date_in(cell) for cell in cells] if as_dates else [number_in(cell) for cell in cells])
        for row in np.flatnonzero(~missing & (np.isnat(found) if as_dates else np.isnan(found)))[:1].tolist():
            wanted = "a number or a date in ISO 8601, such as 2024-01-31T12:00"
            wanted = wanted if dates else f"a number (the decimal mark is taken to be a {self.mark})"
            hint = COMMENTS if cells[row].strip().startswith("#") else ""
            raise InputError(
                f"{self.label(place)}, line {self.lines[row]}: {cells[row]!r} is not {wanted}; correct it, or leave the "
                f"cell empty where the value is missing{hint}"
            )
        return found


def header_of(file: SourceFile) -> list[str]:
    """Names of the columns of a text table, from its first lines; empty without a header."""
    names = Table.open(file, SAMPLE_LINES).names
    return list(names) if any(names) else []


def is_missing(cell: str) -> bool:
    """Whether a cell says that its value is missing."""
    return cell.strip(" +-").lower() in MISSING_VALUES


def _rows(file: SourceFile, most: int | None = None) -> tuple[list[int], list[list[str]], str]:
    """Line numbers, cells and delimiter of all rows, or of ``most``, without comments and empty lines at both ends."""
    with reading(file.given):
        text = decode_text(file, notify=most is None)[2]
        lines = list(dropwhile(lambda line: not line[1].strip() or _is_comment(line[1]), enumerate(text.splitlines(), 1)))
        while lines and not lines[-1][1].strip():
            lines.pop()
        if "\0" in text or not lines:
            raise ValueError("it holds zero bytes" if "\0" in text else "it holds no numbers")
        lines = lines[:most]
        numbers, texts = zip(*lines, strict=True)
        delimiter = max(DELIMITERS, key=lambda one: _fitness(split_cells(texts[:SAMPLE_LINES], one)))  # the first of several
        rows = split_cells(texts, delimiter)
        if max(map(len, rows)) == 1:
            rows = [row or [""] for row in rows]
    uneven = next((place for place, row in enumerate(rows) if len(row) != len(rows[0])), None)
    if uneven is not None or len(rows) != len(lines):
        hint = COMMENTS if "#" in text else ""
        where = "" if uneven is None else f", line {numbers[uneven]}: {len(rows[uneven])} cell(s)"
        raise InputError(
            f"{file.given!r}{where}, but line {numbers[0]} has {len(rows[0])} (the delimiter is taken to be {delimiter!r}). "
            f"All rows need the same number of cells, and quotes must be closed on their line{hint}"
        )
    return list(numbers), rows, delimiter


def _is_comment(line: str) -> bool:
    """Whether a line above the first row is a comment, and no missing value such as ``#N/A``."""
    return line.lstrip().startswith("#") and not is_missing(re.split(f"[{DELIMITERS}]", line.strip())[0])


def decode_text(file: SourceFile, notify: bool = False) -> tuple[bytes, str, str]:
    """The byte-order mark of a text, its encoding, and the text; ``notify``: prints a guessed encoding."""
    content = file.path.read_bytes()
    mark, encoding = next(((mark, name) for mark, name in BYTE_ORDER_MARKS if content.startswith(mark)), (b"", "utf-8"))
    for first, name in enumerate(("utf-16-be", "utf-16-le")):  # most characters of a table are of one byte
        if not mark and content[first::2].count(0) > len(content) / 4:
            encoding = name
    try:
        text = content[len(mark) :].decode(encoding)
    except UnicodeDecodeError:
        if mark or b"\0" in content:
            raise
        encoding, text = "cp1252", content.decode("cp1252")
    if notify and not mark and encoding != "utf-8":
        rank_zero_info(f"{file.given!r} is not UTF-8, and is read as {encoding}; if its texts are wrong, save it as UTF-8")
    return mark, encoding, text


def split_cells(lines: Iterable[str], delimiter: str) -> list[list[str]]:
    """The cells of each line."""
    if delimiter == " ":
        lines = (" ".join(line.split()) for line in lines)
    return list(csv.reader(lines, delimiter=delimiter, skipinitialspace=True))


def _fitness(rows: Sequence[Sequence[str]]) -> tuple[int, float]:
    """Number of rows with the most frequent number of cells (above 1), and the share of cells that are numbers."""
    even = max((times for cells, times in Counter(map(len, rows)).items() if cells > 1), default=0)
    cells = [cell for row in rows for cell in row]
    numbers = sum(bool(np.isfinite(number_in(cell)) or DECIMAL_COMMA.fullmatch(cell.strip())) for cell in cells)
    return even, numbers / max(len(cells), 1)


def _with_decimal_points(file: SourceFile, rows: list[list[str]]) -> tuple[list[list[str]], str]:
    with_comma = any(DECIMAL_COMMA.fullmatch(cell.strip()) for row in rows for cell in row)
    if not with_comma or any("." in cell and np.isfinite(number_in(cell)) for row in rows for cell in row):
        return rows, "point"
    rank_zero_info(f"{file.given!r} is read with a comma as decimal mark")
    return [
        [cell.replace(",", ".") if DECIMAL_COMMA.fullmatch(cell.strip()) else cell for cell in row] for row in rows
    ], "comma"


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    first, second = ([np.isfinite(number_in(cell)) for cell in row] for row in (rows[0], rows[min(1, len(rows) - 1)]))
    text = [not known and not is_missing(cell) for known, cell in zip(first, rows[0], strict=True)]
    return any(text) and (not any(first) or any(above and below for above, below in zip(text, second, strict=True)))


def number_in(cell: str) -> float:
    """The number in a cell, NaN if there is none."""
    try:
        return float(cell) if "_" not in cell else np.nan  # float() accepts 1_000
    except ValueError:
        return np.nan


def date_in(cell: str) -> np.datetime64:
    """The date in a cell, ``NaT`` if there is none; in nanoseconds if it has more digits than microseconds have."""
    text = cell.strip().removesuffix("Z").replace("/", "-")
    try:
        return np.datetime64(text, "ns" if len(text.rpartition(".")[2]) > 6 and "." in text else "us")
    except ValueError:
        return np.datetime64("NaT", "us")


def file_name_of(name: str) -> str:
    """A name with underscores in place of characters that file names may not have."""
    return "".join("_" if char in '/\\:*?"<>|' or not char.isprintable() else char for char in name)
