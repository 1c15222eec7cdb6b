"""Text tables (``.csv``, ``.tsv``, ``.txt``) as 1-D signals: one per column."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import numpy as np
from lightning.pytorch.utilities import rank_zero_info
from numpy.typing import NDArray

from pe_lightning.data.signals import RawSignals, Scaling
from pe_lightning.data.sources.array_files import reading
from pe_lightning.data.sources.arrays import numbered, value_limits
from pe_lightning.data.sources.lengths import one_length
from pe_lightning.data.sources.sources import expand
from pe_lightning.errors import InputError, did_you_mean

__all__ = ["TABLE_SUFFIXES", "Column", "read_table", "read_tables"]

TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".txt"})
"""What counts as a table inside a folder."""

Columns: TypeAlias = "str | int | Sequence[str | int]"

_DELIMITERS = ("\t", ";", ",", " ")  # in this order, where several fit equally well: commas may be decimal
_SAMPLE = 50  # lines that the delimiter is found from
_NO_NUMBER = frozenset({"", "?", "inf", "infinity", "n/a", "na", "nan", "nil", "none", "null"})


@dataclass(frozen=True)
class Column:
    """A column of numbers.

    Args:
        name: Its header; ``None`` where the table has none.
        index: Its position, from 0.
        values: ``(N,)``, finite.
    """

    name: str | None
    index: int
    values: NDArray[np.float64]


def read_tables(
    paths: str | PathLike[str] | Sequence[str | PathLike[str]],
    columns: Columns | None = None,
    value_range: Sequence[float] | None = None,
    length: int | None = None,
) -> RawSignals:
    """Reads text tables: each column is a signal, float64, whose least and greatest number become 0 and 1.

    Args:
        paths: One or more files, or folders of them.
        columns: Names or positions (from 0) of the columns to take from each file; by default all that hold numbers.
        value_range: ``[low, high]``, the numbers that become 0 and 1, of all columns.
        length: Keep only the first n rows.

    Raises:
        InputError: As :func:`read_table`; also if columns differ in length, a column is constant, or a number is outside
            ``value_range``.
    """
    limits = value_limits(value_range)
    sources = expand(paths, TABLE_SUFFIXES, kind="table")
    tables = [read_table(source.path, columns, source.given) for source in sources]
    kept = one_length([(source.given, len(table[0].values)) for source, table in zip(sources, tables, strict=True)], length)
    ranges: list[tuple[float, float]] = []
    labels: list[list[str]] = []
    for source, table in zip(sources, tables, strict=True):
        ranges += [_limits(column, column.values[:kept], limits, source.given) for column in table]
        alone = len(table) == 1 and table[0].name is None
        labels.append([""] if alone else [_label(column) for column in table])
    values = np.stack([column.values[:kept] for table in tables for column in table])[..., None]
    return RawSignals(
        names=numbered(list(zip(sources, labels, strict=True))),
        grid=(kept,),
        channels=1,
        stored="float64",
        scaling=Scaling("float64", tuple(low for low, _ in ranges), tuple(high for _, high in ranges)),
        unit=False,
        blocks=partial(iter, values),
    )


def _limits(
    column: Column, values: NDArray[np.float64], limits: tuple[float, float] | None, given: str
) -> tuple[float, float]:
    least, greatest = float(values.min()), float(values.max())
    held = f"{_title(column.name, column.index)} of {given!r} holds"
    if limits is not None and (least < limits[0] or greatest > limits[1]):
        raise InputError(
            f"{held} values from {least} to {greatest}, outside of value_range {list(limits)}; set value_range: "
            f"[{min(least, limits[0])}, {max(greatest, limits[1])}], or a wider one"
        )
    if limits is None and least == greatest:
        raise InputError(f"{held} the value {least} alone; choose other columns, or set value_range: [low, high]")
    return limits or (least, greatest)


def read_table(path: Path, columns: Columns | None = None, given: str | None = None) -> list[Column]:
    """Reads columns of one text table.

    The delimiter is a tab, a semicolon, a comma or spaces, whichever cuts the first lines most evenly. The first line is
    a header if none of its cells is a number, or if one is not where the next line has a number. Lines that begin with
    ``#`` are comments. The decimal mark is a point.

    Args:
        path: The file, UTF-8.
        columns: Names or positions (from 0); by default every column with a number in it; a notice names the others.
        given: How messages call the file.

    Raises:
        InputError: If the file is no text, a row has more or fewer cells than the first, there is no such column, or a cell
            is missing or not a finite number; the message has its line.
    """
    given = given or str(path)
    numbers, rows = _rows(path, given)
    header = _header(rows)
    names = [cell.strip() for cell in rows[0]] if header else []
    if header:
        del numbers[0], rows[0]
    if not rows:
        raise InputError(f"{given!r} holds no numbers, only {'a header' if header else 'empty lines'}")
    cells = list(zip(*rows, strict=True))
    if columns is None:
        chosen = [index for index, column in enumerate(cells) if any(_number(cell) is not None for cell in column)]
        left_out = [_title(names[i] if names else None, i) for i in range(len(cells)) if i not in chosen]
        if not chosen:
            raise InputError(f"{given!r} holds no column of numbers{_comma_hint(rows[0])}")
        if left_out:
            rank_zero_info(f"{given!r}: {', '.join(left_out)} left out, because no cell is a number")
    else:
        wanted = [columns] if isinstance(columns, (str, int)) else list(columns)
        chosen = [_find(column, names, len(cells), given) for column in wanted]
        if not chosen or len(set(chosen)) < len(chosen):
            raise InputError(f"the columns to take of {given!r} must be distinct, and at least one; got {columns!r}")
    return [
        Column(names[i] or None if names else None, i, _numbers(cells[i], numbers, names[i] if names else "", i, given))
        for i in chosen
    ]


def _rows(path: Path, given: str) -> tuple[list[int], list[list[str]]]:
    """Line numbers and cells of every row but comments and empty lines at either end."""
    with reading(given):
        data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{given!r} is not UTF-8 text (byte {error.start}); save it as CSV in UTF-8, or give an array file"
        ) from error
    if "\0" in text:
        raise InputError(f"{given!r} is not text: it holds zero bytes; save it as CSV in UTF-8, or give an array file")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    kept = [(place + 1, line) for place, line in enumerate(lines) if not line.lstrip().startswith("#")]
    while kept and not kept[-1][1].strip():
        kept.pop()
    while kept and not kept[0][1].strip():
        kept.pop(0)
    if not kept:
        raise InputError(f"{given!r} holds no numbers: it is empty")
    delimiter = _delimiter([line for _, line in kept[:_SAMPLE]])
    numbers: list[int] = []
    rows: list[list[str]] = []
    for place, line in kept:
        cells = _cells(line, delimiter)
        if cells is None:
            raise InputError(f"{given!r}, line {place}: a quote is not closed; a cell must end on the line it begins on")
        if rows and len(cells) != len(rows[0]):
            raise InputError(
                f"{given!r}, line {place}: {len(cells)} cell(s), but line {numbers[0]} has {len(rows[0])} (the delimiter is "
                f"taken to be {_NAMES[delimiter]}). Every row needs the same number of cells"
            )
        numbers.append(place)
        rows.append(cells)
    return numbers, rows


_NAMES = {"\t": "a tab", ";": "a semicolon", ",": "a comma", " ": "spaces"}


def _cells(line: str, delimiter: str) -> list[str] | None:
    """The cells of one line; ``None`` if a quote stays open."""
    if '"' not in line:  # as the csv module, but several times as fast
        return line.split() if delimiter == " " else line.split(delimiter)
    try:
        return next(
            csv.reader([line.strip() if delimiter == " " else line], delimiter=delimiter, skipinitialspace=True, strict=True)
        )
    except csv.Error:
        return None


def _delimiter(lines: Sequence[str]) -> str:
    """What cuts most of the lines into one same number of cells, more than one."""

    def evenness(delimiter: str) -> int:
        counts = Counter(len(_cells(line, delimiter) or ()) for line in lines)
        return max((times for cells, times in counts.items() if cells > 1), default=0)

    return max(_DELIMITERS, key=evenness)  # the first one of several


def _header(rows: Sequence[Sequence[str]]) -> bool:
    first = [_number(cell) is not None or _is_missing(cell) for cell in rows[0]]
    if not any(_number(cell) is not None for cell in rows[0]):
        return not all(map(_is_missing, rows[0]))
    return len(rows) > 1 and any(
        not known and _number(below) is not None for known, below in zip(first, rows[1], strict=True)
    )


def _number(cell: str) -> float | None:
    """The finite number that a cell holds."""
    if "_" in cell:  # Python would read 1_000 as a number
        return None
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _is_missing(cell: str) -> bool:
    return cell.strip().lower().lstrip("+-") in _NO_NUMBER


def _numbers(cells: Sequence[str], lines: Sequence[int], name: str, index: int, given: str) -> NDArray[np.float64]:
    values = np.empty(len(cells))
    for place, cell in enumerate(cells):
        number = _number(cell)
        if number is None:
            where = f"{given!r}, line {lines[place]}, {_title(name, index)}"
            if _is_missing(cell):
                raise InputError(
                    f"{where}: the value is missing or not finite ({cell!r}); fill it in, or leave the row or the column out"
                )
            raise InputError(
                f"{where}: {cell!r} is not a number{_comma_hint([cell])}; correct it, or leave the row or the column out"
            )
        values[place] = number
    return values


def _comma_hint(cells: Sequence[str]) -> str:
    if any(_number(cell) is None and _number(cell.replace(",", ".", 1)) is not None for cell in cells):
        return " (decimals are written with a point, not a comma)"
    return ""


def _find(column: str | int, names: Sequence[str], count: int, given: str) -> int:
    listed = ", ".join(names) if names else f"0 to {count - 1}"
    if isinstance(column, str) and names:
        places = [place for place, name in enumerate(names) if name == column]
        if len(places) > 1:
            raise InputError(f"{given!r} has {len(places)} columns {column!r}; give the position instead: one of {places}")
        if places:
            return places[0]
        raise InputError(f"no column {column!r} in {given!r}{did_you_mean(column, names) or '.'} Columns: {listed}")
    if isinstance(column, str):
        raise InputError(f"no column {column!r} in {given!r}, which has no header; give positions: {listed}")
    if isinstance(column, bool) or not isinstance(column, int):
        raise InputError(f"a column is a name or a position, got {column!r}. Columns of {given!r}: {listed}")
    if not 0 <= column < count:
        raise InputError(f"no column {column} in {given!r}, which has {count}: 0 to {count - 1}. Columns: {listed}")
    return column


def _title(name: str | None, index: int) -> str:
    return f"column {name!r}" if name else f"column {index}"


def _label(column: Column) -> str:
    """The column as a part of a file name."""
    text = column.name or str(column.index)
    return "".join("_" if char in '/\\:*?"<>|' or not char.isprintable() else char for char in text)
