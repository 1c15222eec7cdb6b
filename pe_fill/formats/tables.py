"""Text tables, written back with other numbers in some cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pe_fill.formats.editable import EditableFile
from pe_fill.formats.times import clock_of
from pe_lightning.signals import Axis
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile
from pe_lightning.signals.sources.tables import Column, Table, decode_text, is_missing, number_in, split_cells


def edit_table(file: SourceFile, missing: Missing) -> EditableFile:
    """A text table: every column of numbers is a signal. Lines without a missing number are unchanged."""
    missing.check("tables")
    table, places_of_rows = Table.open(file), tuple[Axis, ...]()
    place, clock = clock_of(table)
    if clock is not None and clock.axis is not None:
        rank_zero_info(f"{table.label(place)}: the rows are at unequal distances, and their times are the axis")
        places_of_rows = (clock.axis,)
    elif clock is not None and (absent := clock.absent).size:
        table = _with_rows(table, clock.places.tolist(), place, clock.times)
        rank_zero_info(
            f"{table.label(place)}: {absent.size} row(s) are absent, the first at {table.cells[place][absent[0]]}: they are "
            "missing, and are inserted in the result"
        )
        places_of_rows = (clock.even_axis(table.names[place] or str(place)),)
    elif clock is None and place >= 0:
        rank_zero_info(
            f"{table.label(place)}: times are missing, or neither ascend nor descend: rows are taken in their order, at "
            f"equal distances. To take the times: --coordinates {table.names[place] or place} --values COLUMN --at FILE"
        )
    elif clock is not None and len(clock.times) > 2:
        places_of_rows = (clock.even_axis(table.names[place] or str(place)),)
    is_axis = clock is not None and (clock.axis is not None or clock.absent.size > 0)
    columns = table.columns(fills=missing.values, axis=place if is_axis else -1)
    values = np.stack([column.values for column in columns])[..., None]
    marked = ~np.isfinite(values)

    suffix = file.path.suffix.lower()
    names = tuple(column.name or file.stem for column in columns)
    write = partial(_write_table, table, columns, values, marked)
    suffixes = tuple(dict.fromkeys([suffix, ".csv", ".tsv", ".txt"]))
    return EditableFile(names, values, marked, suffixes, write, axes=places_of_rows)


def _with_rows(table: Table, places: Sequence[int], place: int, times: AnyArray) -> Table:
    """A table with further rows, empty but for a column of times ``(N,)``; ``places``: indices of its own rows."""
    rows = {number: row for row, number in enumerate(places)}
    cells = [[column[rows[n]] if n in rows else "" for n in range(len(times))] for column in table.cells]
    like, form = table.cells[place][0], _number_format(table, place)
    for number, time in enumerate(times):
        if number not in rows:
            cells[place][number] = _date_text(time, like) if times.dtype.kind == "M" else format(time, form)
    return replace(table, lines=[table.lines[rows[n]] if n in rows else 0 for n in range(len(times))], cells=cells)


def _write_table(
    table: Table, columns: Sequence[Column], values: AnyArray, marked: AnyArray, path: Path, changed: AnyArray
) -> None:
    """Writes a copy with the changed numbers, in the form of their columns; other lines are unchanged."""
    mark, encoding, content = decode_text(table.file)
    lines = content.splitlines(keepends=True)
    texts: dict[int, dict[int, str]] = {}
    for column, new, old in zip(columns, changed, np.where(marked, np.nan, values), strict=True):
        form = _number_format(table, column.place)
        for row in np.flatnonzero((new != old) & np.isfinite(new)).tolist():  # cells that stay missing are unchanged
            text = format(float(new[row, 0]), form)
            texts.setdefault(row, {})[column.place] = text.replace(".", ",") if table.mark == "comma" else text
    before = 0
    for row, number in enumerate(table.lines):
        before = number or before
        if number and row not in texts:
            continue
        line = lines[before - 1]
        cells = [_added_cell(table, column[row]) for column in table.cells]
        if number:
            cells = split_cells([line], table.delimiter)[0] or [""]
        ending = "\r\n" if "\r\n" in line else line[len(line.rstrip("\r\n")) :][:1]
        buffer = io.StringIO()
        writer = csv.writer(buffer, delimiter=table.delimiter, lineterminator=ending)
        writer.writerow([texts.get(row, {}).get(column, cell) for column, cell in enumerate(cells)])
        lines[before - 1] = buffer.getvalue() if number else line + buffer.getvalue()
    path.write_bytes(mark + "".join(lines).encode(encoding))


def _added_cell(table: Table, text: str) -> str:
    text = text.replace(".", ",") if table.mark == "comma" and np.isfinite(number_in(text)) else text
    return text or ("nan" if table.delimiter == " " else "")


def _number_format(table: Table, column: int) -> str:
    """Format of numbers with as many decimals as the known ones of a column; six digits if these have exponents."""
    known = [cell for cell in table.cells[column] if not is_missing(cell)]
    if any("e" in cell.lower() for cell in known):
        return ".6g"
    return f".{max((len(cell.strip().partition('.')[2]) for cell in known), default=0)}f"


def _date_text(time: np.datetime64, like: str) -> str:
    """A date as another one is written.

    >>> _date_text(np.datetime64("2024-01-31T12:00:00", "us"), "2024/01/02 00:00Z")
    '2024/01/31 12:00Z'
    """
    digits = like.strip().removesuffix("Z")
    units: Any = {4: "Y", 7: "M", 10: "D", 13: "h", 16: "m", 19: "s", 23: "ms", 29: "ns"}
    text = str(np.datetime_as_string(time, unit=units.get(len(digits), "us"), casting="unsafe"))
    text = text.replace("T", " ") if " " in digits else text
    return (text.replace("-", "/") if "/" in digits else text) + "Z" * like.strip().endswith("Z")
