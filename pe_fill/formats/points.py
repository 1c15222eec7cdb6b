"""Scattered points: tables and arrays with columns of coordinates and of values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from pe_fill.formats.point_axes import EAST_NAMES, NORTH_NAMES, axes_of_points, in_period, periods_of_points
from pe_fill.formats.times import clock_of
from pe_lightning.errors import InputError, check_known, refuse, require
from pe_lightning.signals import RawSignals, ValueRange
from pe_lightning.signals.axes import as_numbers, origin_of
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import Format
from pe_lightning.signals.raw import AnyArray, is_one_of
from pe_lightning.signals.repeated import note_repeated
from pe_lightning.signals.sources import Source
from pe_lightning.signals.sources.arrays import find_array
from pe_lightning.signals.sources.missing import Missing, MissingLike
from pe_lightning.signals.sources.paths import Paths, SourceFile, as_list, expand, format_of, reading
from pe_lightning.signals.sources.tables import Table, file_name_of
from pe_lightning.signals.validation import check_numbers, choice

Duplicates: TypeAlias = Literal["average", "keep", "error"]
"""Treatment of rows at one place, see :class:`PointSource`."""
Floats: TypeAlias = npt.NDArray[np.float64]
POINT_FORMATS: frozenset[Format] = frozenset({"table", "parquet", "npz", "hdf5"})
MAX_AXES = 3
NOTICED_LINES = 10_000
"""Lines of a table that are read for a notice."""


@dataclass(eq=False)
class PointSource(Source):
    """Scattered points from files of rows: each row has a place, its coordinates, and one or more values there.

    Each column of values is a signal. Rows in which a coordinate or a value is missing are left out and counted.

    Args:
        paths: One or more files, whose rows are joined: text tables (``.csv``, ``.tsv``), ``.parquet``, ``.npz``, HDF5.
        coordinates: Names (or indices from 0) of 1 to 3 columns, as a list or with commas: ``lon,lat``. Numbers in any unit
            and order, or dates and times in ISO 8601. Arrays of ``.npz`` and HDF5 files are ``(P,)``, or ``(P, D)`` if one
            is named.
        values: Names (or indices) of the columns of values: ``temperature,humidity``.
        periodic: Periods: ``hour=24`` in the unit of a coordinate, of dates ``time=24h`` (s, min, h, d, y). Numbers that
            cover no more than a period repeat after it, and ``lon`` (degrees) after 360. Others, and dates, have a season:
            the phase is a further axis, with the name of the coordinate.
        duplicates: Rows at one place: ``average`` takes their mean, ``keep`` leaves them as they are, ``error`` refuses
            rows with different values.
        same_unit: Whether the coordinates have one unit of length. ``None``: if none is a date, and the longest extent is
            at most 10 times the shortest.
        missing: Numbers that mark missing values besides NaN: ``-9999,-999``.
    """

    trained_range = "measured"
    chosen_by = frozenset({"coordinates"})
    datamodule = "PointsDataModule"

    paths: Paths
    coordinates: str | list[str]
    values: str | list[str]
    periodic: str | list[str] | None = None
    duplicates: Duplicates = "average"
    same_unit: bool | None = None
    missing: MissingLike = "nan"

    @classmethod
    def alternative(cls, path: Path) -> str | None:
        table = Table.open(SourceFile(path, str(path)), NOTICED_LINES)
        if places := place_columns(table.names):
            return (
                f"{str(path)!r} has the columns {' and '.join(places)}, and every column is read as a signal along its "
                f"rows: if the rows are scattered points, add {points_options(table.names, '--data.')}"
            )
        place, clock = clock_of(table)
        if place < 0 or (clock is not None and clock.axis is None and not clock.absent.size):
            return None
        return (
            f"{table.label(place)}: the times are at unequal distances, and the rows are taken at equal ones. To take the "
            f"times: --config points/closed_form --data.coordinates {table.names[place] or place}"
        )

    def __post_init__(self) -> None:
        self.paths = as_list(self.paths)
        self._fills = Missing(self.missing).only_values("points")
        self.coordinates = names_of("coordinates", self.coordinates, MAX_AXES)
        self.values = names_of("values", self.values)
        _check_distinct(self.coordinates, self.values)
        choice("duplicates", self.duplicates, Duplicates)

    def read(self) -> RawSignals:
        files = expand(self.paths, POINT_FORMATS, "tables of points")
        tables = [read_columns(file, [*self.coordinates, *self.values], len(self.coordinates)) for file in files]
        columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
        axes, values = list(columns)[: -len(self.values)], list(columns)[-len(self.values) :]
        for name in values:
            columns[name] = np.where(is_one_of(columns[name], self._fills), np.nan, columns[name])
            note_repeated(f"column {name!r}", [columns[name]])
        coordinates, label = {name: columns[name] for name in axes}, " and ".join(repr(file.given) for file in files[:3])
        return _as_signals(self, coordinates, {name: columns[name] for name in values}, label)


@dataclass(eq=False)
class PointArrays(Source):
    """Scattered points in memory; as :class:`PointSource` but for the arrays.

    Args:
        coordinates: Coordinates ``(P,)`` per axis, by name.
        values: Values ``(P,)`` per signal, by name.
        periodic, duplicates, same_unit: As for :class:`PointSource`.
        extents: What 1 in [0, 1] is for each signal; by default its range.
        seasons: Periods of the values by coordinate, besides those of ``periodic``.
    """

    coordinates: dict[str, AnyArray] = field(repr=False)
    values: dict[str, AnyArray] = field(repr=False)
    periodic: str | list[str] | None = None
    duplicates: Duplicates = "average"
    same_unit: bool | None = None
    extents: Sequence[float] | None = None
    seasons: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_distinct(self.coordinates, self.values)
        choice("duplicates", self.duplicates, Duplicates)

    @property
    def trained_range(self) -> Literal["measured", "declared"]:
        return "measured" if self.extents is None else "declared"

    def read(self) -> RawSignals:
        values = {name: _numbers(f"value {name!r}", column) for name, column in self.values.items()}
        for name, column in values.items():
            note_repeated(f"value {name!r}", [column], "put NaN in its place, or mask it (numpy.ma.masked_values)")
        return _as_signals(self, self.coordinates, values, "the points", self.extents, self.seasons)

    def describe(self) -> dict[str, Any]:
        names = {"coordinates": list(self.coordinates), "values": list(self.values)}
        options = {"periodic": self.periodic, "duplicates": self.duplicates, "same_unit": self.same_unit}
        return {"paths": [], **names, **options}


def names_of(what: str, given: str | Sequence[str | int], most: int | None = None) -> list[str]:
    """Names from a list, or from text with commas."""
    entries = given.split(",") if isinstance(given, str) else list(given)
    names = [str(entry).strip() for entry in entries]
    distinct = names and all(names) and len({*names}) == len(names)
    refuse(
        (not distinct, f"{what} must be distinct names of columns, such as lon,lat; got {given!r}"),
        (most is not None and len(names) > most, f"{what} names {len(names)} columns; points have 1 to {most} axes"),
    )
    return names


def _check_distinct(coordinates: Collection[str], values: Collection[str]) -> None:
    if both := [name for name in values if name in coordinates]:
        raise InputError(
            f"{', '.join(map(repr, both))} is named as a coordinate and as a value: name other columns for the values"
        )


def _as_signals(
    source: PointSource | PointArrays,
    coordinates: dict[str, AnyArray],
    values: dict[str, Floats],
    label: str,
    extents: Sequence[float] | None = None,
    seasons: Mapping[str, Sequence[float]] | None = None,
) -> RawSignals:
    """Rows of points without missing numbers: coordinates, numbers or ``datetime64``, and values, ``(P,)`` each."""
    names, dated = list(coordinates), [column.dtype.kind == "M" for column in coordinates.values()]
    origins = {name: origin_of(column) for name, column in coordinates.items()}
    places = np.stack(
        [as_numbers(name, coordinates[name], time, origins[name]) for name, time in zip(names, dated, strict=True)]
    )
    rows = np.stack(list(values.values()))
    finite = np.isfinite(np.concatenate([places, rows]))
    known: npt.NDArray[np.bool_] = finite.all(0)
    every = [*names, *values]
    empty = [name for name, column in zip(every, finite, strict=True) if not column.any()]
    nowhere = f"; {', '.join(empty)} has none at all" if empty else ""
    refuse(
        (not len(known), f"{label} has no rows of numbers below its header: nothing can be fitted"),
        (not known.any(), f"{label}: none of {len(known)} rows has a number in all of {', '.join(every)}{nowhere}"),
    )
    if not known.all():
        rank_zero_info(
            f"{label}: {(~known).sum()} of {len(known)} rows have a missing number in {', '.join((*names, *values))} and "
            "are left out"
        )
        places, rows = places[:, known], rows[:, known]
    by_name = dict(zip(names, places, strict=True))
    periods, found = periods_of_points(source.periodic, by_name, dict(zip(names, dated, strict=True)))
    seasons = {**found, **(seasons or {})}
    if (count := len(names) + sum(map(len, seasons.values()))) > MAX_AXES:
        raise InputError(f"coordinates and periods are {count} together, and at most {MAX_AXES}: give fewer periods")
    for name in by_name.keys() & periods.keys():
        by_name[name][:] = in_period(by_name[name], periods[name])
    if source.duplicates != "keep":
        places, rows = _without_duplicates(places, rows, names, list(values), label, source.duplicates)
    axes = axes_of_points(names, list(places), dated, periods, source.same_unit, seasons, origins)
    by_name = dict(zip(names, places, strict=True))
    if places.shape[1] < 2:
        raise InputError(f"{label}: one place is left; a fit needs at least 2")
    return RawSignals(
        rows[..., None],
        names=tuple(file_name_of(name) for name in values),
        scaling=_scaling(list(values), rows, label, extents),
        media="points",
        axes=axes,
        points=np.stack([axis.to_unit(by_name[axis.name]) for axis in axes], 1),
    )


def _without_duplicates(
    places: Floats, rows: Floats, names: Sequence[str], values: Sequence[str], label: str, duplicates: Duplicates
) -> tuple[Floats, Floats]:
    """Places ``(D, P)`` and values ``(S, P)``; rows at one place become their mean, where the first of them was."""
    order = np.lexsort(places)
    ordered = places[:, order]
    starts = np.flatnonzero(np.r_[True, (ordered[:, 1:] != ordered[:, :-1]).any(0)])
    if len(starts) == len(order):
        return places, rows
    counts = np.diff(np.r_[starts, len(order)])
    sorted_rows = rows[:, order]
    ranges = np.maximum.reduceat(sorted_rows, starts, 1) - np.minimum.reduceat(sorted_rows, starts, 1)
    worst = int(ranges.max(0).argmax())
    shown = ", ".join(f"{name} {value:.10g}" for name, value in zip(names, ordered[:, starts[worst]], strict=True))
    largest = ", ".join(f"{name!r} by {value:.6g}" for name, value in zip(values, ranges[:, worst], strict=True))
    about = f"{label}: {counts[counts > 1].sum()} rows share {(counts > 1).sum()} place(s) with others"
    if ranges.any():
        about += f"; their values differ, most of all at {shown}, {largest}"
    if duplicates == "error" and ranges.any():
        raise InputError(f"{about}. Correct them, or set duplicates: average or keep")
    rank_zero_info(f"{about}. Rows at one place are replaced by their mean (duplicates: keep leaves them as they are)")
    means = np.add.reduceat(sorted_rows, starts, 1) / counts
    means = np.where(counts == 1, sorted_rows[:, starts], means)
    first = np.minimum.reduceat(order, starts)
    again = np.argsort(first)
    return places[:, first[again]], means[:, again]


def _scaling(values: Sequence[str], rows: Floats, label: str, extents: Sequence[float] | None) -> ValueRange:
    low, high = rows.min(1), rows.max(1) if extents is None else rows.min(1) + extents
    for name, least, most in zip(values, low, high, strict=True):
        if least == most:
            raise InputError(f"{label}: value {name!r} is {least:g} in every row, so that there is nothing to fit")
    return ValueRange("float64", tuple(low.tolist()), tuple(high.tolist()))


def read_columns(file: SourceFile, names: Sequence[str], num_axes: int) -> dict[str, AnyArray]:
    """Columns of a file by name, coordinates first: float64 with NaN where a number is missing, or ``datetime64``."""
    format = format_of(file.path)
    if format == "parquet":
        found = _parquet_columns(file, names)
    elif format in ("npz", "hdf5"):
        found = _array_columns(file, names, num_axes)
    elif format in ("table", None):
        table, found = Table.open(file), {}
        for number, name in enumerate(names):  # an index from 0 is the name of a column where no header is
            place = table.find(int(name) if name.isdecimal() and name not in table.names else name)
            found[table.names[place] or str(place)] = table.values(place, dates=number < num_axes)
    else:
        raise InputError(f"{file.given!r} is no table of points; tables are .csv, .tsv, .parquet, .npz and HDF5 files")
    lengths = {name: len(column) for name, column in found.items()}
    if len({*lengths.values()}) > 1:
        raise InputError(f"the columns of {file.given!r} differ in length: {lengths}")
    return found


def place_columns(names: Sequence[str]) -> list[str]:
    """The columns of a table that are probably places, such as ``lon`` and ``lat``; empty if there are no two."""
    found = [next((name for name in names if name.lower() in known), None) for known in (EAST_NAMES, NORTH_NAMES)]
    return [name for name in found if name is not None] if None not in found else []


def points_options(names: Sequence[str], prefix: str = "--") -> str:
    """The options that read a table with these columns as scattered points: ``--coordinates lon,lat --values temp``."""
    places = place_columns(names)
    others = [name for name in names if name not in places]
    coordinates = ",".join(places or names[:2]) or "0,1"
    return f"{prefix}coordinates {coordinates} {prefix}values {(others if places else names[2:] or ['2'])[-1]}"


def read_places(path: str, names: Sequence[str]) -> tuple[dict[str, AnyArray], dict[str, AnyArray]]:
    """The coordinates of a file of places by name, ``(P,)``, and the columns that a table of results repeats.

    These are all columns of a text table, as text, else the coordinates.
    """
    (file,) = expand(path, POINT_FORMATS, "tables of places")
    columns = read_columns(file, names, len(names))
    if format_of(file.path) not in ("table", None):
        return columns, columns
    table = Table.open(file)
    names = [name or str(place) for place, name in enumerate(table.names)]
    return columns, {name: np.array(cells, dtype=object) for name, cells in zip(names, table.cells, strict=True)}


def _numbers(label: str, column: npt.ArrayLike) -> Floats:
    array = np.asarray(column)
    check_numbers(label, array.dtype, kinds="biuf")
    return array.astype(np.float64)


def _parquet_columns(file: SourceFile, names: Sequence[str]) -> dict[str, AnyArray]:
    parquet = require("pyarrow.parquet", f"reading {file.given!r}")
    with reading(file.given):
        known = parquet.read_schema(file.path).names
        for name in names:
            check_known(f"{file.given!r} has no column", name, known, "Columns")
        table = parquet.read_table(file.path, columns=list(names))
        columns = {name: table.column(name).to_numpy() for name in names}
    return {name: _plain(f"column {name!r} of {file.given!r}", column) for name, column in columns.items()}


def _array_columns(file: SourceFile, names: Sequence[str], num_axes: int) -> dict[str, AnyArray]:
    found: dict[str, AnyArray] = {}
    for place, name in enumerate(names):
        found_array = find_array(file, name)
        array = found_array.declared.with_nan(found_array.load())
        label = f"{name!r} in {file.given!r}"
        if array.ndim == 2 and place == 0 and num_axes == 1 and 1 <= array.shape[1] <= MAX_AXES:
            found |= {f"{name}_{axis}": _plain(label, column) for axis, column in enumerate(array.T)}
        elif array.ndim == 1:
            found[name] = _plain(label, array)
        else:
            raise InputError(
                f"{label} has shape {array.shape}; columns of points have the shape (P,), or (P, 1 to {MAX_AXES}) where it "
                "is the only one of coordinates"
            )
    return found


def _plain(label: str, column: AnyArray) -> AnyArray:
    if column.dtype.kind == "M":
        return column
    if column.dtype.kind == "O":  # a column with missing entries
        column = np.array([np.nan if entry is None else entry for entry in column])
    return _numbers(label, column)
