"""Axes of scattered points, and periods of axes and of values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

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


def is_searched(periodic: str | Sequence[str] | None) -> bool:
    """Whether periods are found in the values: ``auto``, the default."""
    return periodic in (None, "auto", ["auto"])


def named_periods(periodic: str | Sequence[str], dated: Mapping[str, bool]) -> list[tuple[str, float | None]]:
    """Names of axes with a period each, in their unit, of dates in seconds; ``None`` for an axis of degrees that repeats.

    ``dated`` says of each axis whether its coordinates are dates.

    >>> named_periods("lon,hour=24,time=1h", {"lon": False, "hour": False, "time": True})
    [('lon', None), ('hour', 24.0), ('time', 3600.0)]
    """
    given = periodic if isinstance(periodic, list | tuple) else str(periodic).split(",")
    entries = [str(entry).strip() for entry in given]
    found: list[tuple[str, float | None]] = []
    for entry in [] if entries == ["none"] else entries:
        name, equals, text = entry.partition("=")
        matched = re.fullmatch(LENGTH, text) if equals else None
        length = None if matched is None else float(matched[1]) * SECONDS.get(matched[2] or "", 1.0)
        has_unit = matched is not None and matched[2] is not None
        is_wrong = equals and (length is None or not 0 < length < math.inf or has_unit != dated.get(name))
        if name not in dated or is_wrong or (not equals and dated[name]):
            named = ", ".join(f"{key} ({'dates' if time else 'numbers'})" for key, time in dated.items())
            raise InputError(
                "periodic is NAME=PERIOD with a positive number, of dates with a unit, NAME=24h (s, min, h, d, y), or NAME "
                f"for degrees, which repeat after 360; the axes are {named}; got {entry!r}"
            )
        found.append((name, length))
    return found


def periods_of_points(
    periodic: str | Sequence[str] | None, columns: Mapping[str, Floats], dated: Mapping[str, bool]
) -> tuple[Periods, dict[str, list[float]]]:
    """The period of each axis that repeats, and the seasons of the values along others, by axis.

    Numbers that cover no more than a period repeat after it. Others, and dates, have a season.

    >>> days = np.array([0.0, 800.0])
    >>> periods_of_points("day=365.25", {"day": days}, {"day": False})
    ({}, {'day': [365.25]})
    """
    found, seasons = Periods(), dict[str, list[float]]()
    if periodic is not None and is_searched(periodic):
        raise InputError(
            "periodic auto is for fill and fit_points, which search periods; a fit has named ones, such as time=24h"
        )
    for name, period in named_periods(periodic or "none", dated):
        if period is None or (not dated[name] and np.ptp(columns[name]) <= period * (1 + 1e-9)):
            found[name] = period or DEGREES
        else:
            seasons.setdefault(name, []).append(period)
    return found, seasons


def without_seasons(axes: Sequence[Axis]) -> list[Axis]:
    """The axes of coordinates: phases of seasons, which follow, have the names of their axes."""
    names = [axis.name for axis in axes]
    return [axis for place, axis in enumerate(axes) if axis.name not in names[:place]]


def periods_of_grid(
    periodic: str | Sequence[str] | None, axes: Sequence[Axis], num_axes: int
) -> tuple[tuple[float, ...] | None, tuple[Axis, ...]]:
    """What ``periodic`` says of samples on a grid: the seasons of a row, and the axes.

    An axis whose samples cover the period repeats, as longitudes of the whole globe do. A longer row has a season: in the
    unit of the axis, of dates in seconds, or of a row without coordinates (``row``) in samples. The seasons are ``None`` for
    ``auto``: they are found in the values.

    >>> periods_of_grid("row=12", (), 1)
    ((12.0,), ())
    """
    if periodic is None or is_searched(periodic):
        return None, tuple(axes)
    dated = {axis.name: axis.time for axis in axes} or ({ROW: False} if num_axes == 1 else {})
    if not dated and periodic not in ("none", ["none"]):
        raise InputError("periodic is for rows, and for arrays whose axes have names, as in NetCDF files: leave it out")
    found, seasons = list(axes), list[float]()
    for name, given in named_periods(periodic, dated):
        period, place = given or DEGREES, list(dated).index(name)
        if axes and math.isclose(period, abs(axes[place].length), rel_tol=EQUAL_DISTANCE / axes[place].size):
            high = axes[place].low + math.copysign(period, axes[place].length)
            found[place] = replace(axes[place], high=high, periodic=True)
        elif num_axes == 1 and given is not None:
            seasons.append(period)
        else:
            covers = f"{abs(axes[place].length):.6g}" if axes else "no degrees"
            raise InputError(
                f"periodic {name!r} repeats after {period:g}, and its samples cover {covers}: an axis of a grid repeats if "
                "they cover the period; a row has a season with NAME=PERIOD"
            )
    if len(seasons) > MAX_SEASONS:
        raise InputError(f"a row has at most {MAX_SEASONS} periods; got {periodic}")
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
    names: Sequence[str],
    columns: Sequence[Floats],
    time: Sequence[bool],
    periods: Periods,
    same_unit: bool | None,
    seasons: Mapping[str, Sequence[float]] | None = None,
    origins: Mapping[str, int] | None = None,
) -> tuple[Axis, ...]:
    """The axes of scattered points, from coordinates ``(P,)`` per axis; sized as a grid of equal density.

    After them each season has an axis with the name of its coordinate, which repeats: its coordinates are phases.

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
    phases = [(name, period) for name, some in (seasons or {}).items() for period in some]
    if phases:
        same_unit, dated = False, dict(zip(names, time, strict=True))
        limits += [(0.0, period) for _, period in phases]
        time = [*time, *(dated[name] for name, _ in phases)]
    extents = [high - low for low, high in limits]
    if same_unit is None:
        same_unit = not any(time) and max(extents) <= MAX_EXTENT_RATIO * min(extents)
    shares = [extent / max(extents) if same_unit else 1.0 for extent in extents]
    unit = (len(columns[0]) / math.prod(shares)) ** (1 / len(shares))
    sizes = [max(2, math.ceil(share * unit - 1e-9)) for share in shares]  # at least as many cells as points
    repeats = [*(name in periods for name in names), *(True for _ in phases)]
    each = zip([*names, *(name for name, _ in phases)], limits, sizes, time, repeats, strict=True)
    return tuple(
        Axis(name, low, high, size, is_time, wraps, origin=(origins or {}).get(name, 0))
        for name, (low, high), size, is_time, wraps in each
    )
