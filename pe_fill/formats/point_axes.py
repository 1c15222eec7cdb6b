"""Axes of scattered points, and periods of axes and of values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from pe_lightning.errors import InputError
from pe_lightning.signals import Axis
from pe_lightning.signals.axes import EQUAL_DISTANCE, Floats

Periods = dict[str, float]
"""Period of each periodic axis, by name."""

ROW = "row"
"""Name of the axis of a row without coordinates."""
MAX_SEASONS = 2
"""Most periods of the values of a row."""
DEGREES = 360.0
"""Default period of a periodic axis."""
MAX_EXTENT_RATIO = 10.0
"""Largest ratio of the extents of numeric axes that are taken to have one unit of length."""
EAST_NAMES = ("x", "lon", "long", "longitude", "easting", "east")
NORTH_NAMES = ("y", "lat", "latitude", "northing", "north")
"""Usual names of coordinates to the east and to the north, in lower case."""

SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "y": 365.2425 * 86_400}
"""Units of a period of dates, in seconds."""
LENGTH = rf"([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)({'|'.join(SECONDS)})?"
"""A length, with a unit of time or without one."""
Limit: TypeAlias = int | float | str
"""A number of samples, or a length of time, such as ``3h``."""
PERIOD_OF_DATES = rf"(.+)=([0-9]*\.?[0-9]+)({'|'.join(SECONDS)})"


def length_of(name: str, given: Limit) -> tuple[float, bool]:
    """A positive number, and whether it is a length of time, in seconds.

    >>> length_of("max_gap", "3h"), length_of("max_gap", 12)
    ((10800.0, True), (12.0, False))
    """
    found = re.fullmatch(LENGTH, str(given).strip())
    if found is None or not 0 < float(found[1]) < math.inf:
        raise InputError(
            f"{name} is a positive number, or a length of time along dates, such as 3h ({', '.join(SECONDS)}); got {given!r}"
        )
    return float(found[1]) * SECONDS.get(found[2] or "", 1.0), found[2] is not None


def periods_of(periodic: Sequence[str] | str | None, names: Sequence[str]) -> Periods:
    """The period of each periodic axis from ``NAME`` (a period of 360) or ``NAME=PERIOD``.

    >>> periods_of("lon,hour=24", ["lon", "lat", "hour"])
    {'lon': 360.0, 'hour': 24.0}
    """
    entries = periodic.split(",") if isinstance(periodic, str) else list(periodic or ())
    found: Periods = {}
    if entries == ["none"]:
        return found
    for entry in entries:
        name, given, text = str(entry).strip().partition("=")
        try:
            period = float(text) if given else DEGREES
        except ValueError:
            period = math.nan
        if entry == "auto" or re.fullmatch(PERIOD_OF_DATES, entry):
            raise InputError(
                f"periodic {entry!r} is a season of values, which fit_points and pe-lightning fill --coordinates NAME "
                "--values NAME take; here a coordinate of numbers repeats: NAME for a period of 360, or NAME=PERIOD"
            )
        if name not in names or not 0 < period < math.inf:
            raise InputError(
                "periodic is NAME for a period of 360, or NAME=PERIOD with a positive number, of a coordinate, "
                f"{', '.join(names)}; got {entry!r}"
            )
        found[name] = period
    return found


def seasons_of(periodic: str | Sequence[str] | None) -> tuple[list[str], dict[str, list[float]] | None]:
    """Separates periods of the values along axes of dates, ``time=24h`` or ``time=1y,time=7d``, from periodic axes.

    Returns the other entries, for :func:`periods_of`, and the periods in seconds by axis; ``None`` for ``auto``: they are
    found in the values.

    >>> seasons_of("time=24h,lon")
    (['lon'], {'time': [86400.0]})
    """
    entries = [str(e).strip() for e in (periodic.split(",") if isinstance(periodic, str) else periodic or ["auto"])]
    if entries in (["auto"], ["none"]):
        return [], None if entries == ["auto"] else {}
    others: list[str] = []
    found: dict[str, list[float]] = {}
    for entry in entries:
        matched = re.fullmatch(PERIOD_OF_DATES, entry)
        if matched is None or not 0 < float(matched[2]) < math.inf:
            others.append(entry)
        else:
            found.setdefault(matched[1], []).append(float(matched[2]) * SECONDS[matched[3]])
    return others, found


def periods_of_grid(
    periodic: str | Sequence[str] | None, axes: Sequence[Axis], num_axes: int
) -> tuple[tuple[float, ...] | None, tuple[Axis, ...]]:
    """What ``periodic`` says of samples on a grid: the periods of the values of a row, and the axes.

    A period as long as an axis makes the axis repeat, as longitudes of the whole globe do. Another period of a row is a
    season of its values: in the unit of the axis, of dates in seconds, or of a row without coordinates (``row``) in samples.
    The periods are ``None`` for ``auto``: they are found in the values.

    >>> periods_of_grid("row=12", (), 1)
    ((12.0,), ())
    """
    entries = [str(e).strip() for e in (periodic.split(",") if isinstance(periodic, str) else periodic or ["auto"])]
    if entries in (["auto"], ["none"]):
        return None if entries == ["auto"] else (), tuple(axes)
    dated = {axis.name: axis.time for axis in axes} or ({ROW: False} if num_axes == 1 else {})
    if not dated:
        raise InputError("periodic is for rows, and for arrays whose axes have names, as in NetCDF files: leave it out")
    found, seasons = list(axes), list[float]()
    for entry in entries:
        matched = re.fullmatch(PERIOD_OF_DATES, entry)
        name = entry.partition("=")[0]
        if name not in dated or bool(matched) != dated[name]:
            form = "of dates NAME=24h (s, min, h, d, y), else NAME for a period of 360 or NAME=PERIOD"
            named = ", ".join(
                f"{key} ({'dates' if time else 'numbers' if axes else 'samples'})" for key, time in dated.items()
            )
            raise InputError(f"periodic is {form}, and the axes are {named}; got {entry!r}")
        period = float(matched[2]) * SECONDS[matched[3]] if matched else periods_of([entry], list(dated))[name]
        place = list(dated).index(name)
        if axes and math.isclose(period, abs(axes[place].length), rel_tol=EQUAL_DISTANCE / axes[place].size):
            high = axes[place].low + math.copysign(period, axes[place].length)
            found[place] = replace(axes[place], high=high, periodic=True)
        elif num_axes == 1:
            seasons.append(period)
        else:
            raise InputError(
                f"the samples of {name} cover {abs(axes[place].length):.6g}, and an axis of a grid repeats if they cover "
                f"the period; got {entry!r}"
            )
    if len(seasons) > MAX_SEASONS:
        raise InputError(f"a row has at most {MAX_SEASONS} periods; got {', '.join(entries)}")
    return tuple(seasons), tuple(found)


def period_start(column: Floats, period: float) -> float:
    """Where a period begins: at zero, or half a period below it if a coordinate is negative, as longitudes are."""
    return -period / 2 if column.min() < 0 else 0.0


def in_period(column: Floats, period: float) -> Floats:
    """Coordinates modulo a period, from :func:`period_start` on."""
    start = period_start(column, period)
    found: Floats = start + (column - start) % period
    return found


def axes_of_points(
    names: Sequence[str], columns: Sequence[Floats], time: Sequence[bool], periods: Periods, same_unit: bool | None
) -> tuple[Axis, ...]:
    """The axes of scattered points, from coordinates ``(P,)`` per axis; sized as a grid of equal density.

    The cells of the grid are cubes if all axes have the ``same_unit``, else it has equally many samples along each axis.
    """
    limits = []
    for name, column in zip(names, columns, strict=True):
        low, high = float(column.min()), float(column.max())
        if name in periods:
            low = period_start(column, periods[name])
            high = low + periods[name]
        if low == high or not math.isfinite(high - low):
            what = f"is {low:g} in every row" if low == high else f"goes from {low:g} to {high:g}, too far for float64"
            raise InputError(f"coordinate {name!r} {what}: leave it out, or give it in another unit")
        limits.append((low, high))
    extents = [high - low for low, high in limits]
    if same_unit is None:
        same_unit = not any(time) and max(extents) <= MAX_EXTENT_RATIO * min(extents)
    shares = [extent / max(extents) if same_unit else 1.0 for extent in extents]
    unit = (len(columns[0]) / math.prod(shares)) ** (1 / len(shares))
    sizes = [max(2, math.ceil(share * unit - 1e-9)) for share in shares]  # at least as many cells as points
    each = zip(names, limits, sizes, time, strict=True)
    return tuple(Axis(name, low, high, size, dated, name in periods) for name, (low, high), size, dated in each)
