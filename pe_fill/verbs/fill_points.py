"""The verb ``fill`` for scattered points: a map, or values at places."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from pe_fill.estimators.fitted_points import PointFit
from pe_fill.estimators.point_fit import fit_source
from pe_fill.formats.labelled import pixel_centres
from pe_fill.formats.point_axes import LENGTH, SECONDS
from pe_fill.formats.points import (
    POINT_FORMATS,
    PointSource,
    names_of,
    place_columns,
    points_options,
    read_columns,
    read_places,
)
from pe_fill.formats.times import clock_of
from pe_fill.request import FillRequest
from pe_fill.results.maps import LONGITUDES, check_map, east_and_north, plot_map, write_places
from pe_fill.verbs.fill_scores import print_fold_scores, say_periods
from pe_lightning.errors import InputError, refuse, require, say, show_bytes
from pe_lightning.signals.axes import as_numbers, origin_of
from pe_lightning.signals.distributed import without_notices
from pe_lightning.signals.files import check_readable, replacing
from pe_lightning.signals.raw import AnyArray
from pe_lightning.signals.sources.paths import SourceFile, expand, format_of, reading
from pe_lightning.signals.sources.tables import Table, date_in, header_of
from pe_lightning.signals.validation import free_memory

MAP_SAMPLE_BYTES = 64
"""Memory that a sample of a map takes: coordinates, value and standard deviation, and copies of them."""
TURN = 360.0
"""Degrees of longitude after which places repeat."""


def _numbers(option: str, text: str, counts: Collection[int], form: str, least: float = -math.inf) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) not in counts or not all(math.isfinite(number) and number > least for number in found):
        raise InputError(f"--{option} is {form}; got {text!r}")
    return found


def lengths_of(option: str, text: str, dated: Mapping[str, bool]) -> dict[str, float]:
    """Positive lengths along coordinates, one for all or one for each; of dates with a unit, in seconds.

    >>> lengths_of("spacing", "6h,0.5", {"time": True, "depth": False})
    {'time': 21600.0, 'depth': 0.5}
    """
    parts = text.split(",")
    parts = parts * len(dated) if len(parts) == 1 else parts
    found = {}
    for (name, is_dated), part in zip(dated.items(), parts, strict=False):
        matched = re.fullmatch(LENGTH, part.strip())
        if matched is not None and 0 < float(matched[1]) < math.inf and (matched[2] is not None) == is_dated:
            found[name] = float(matched[1]) * SECONDS.get(matched[2] or "", 1.0)
    if len(parts) != len(dated) or len(found) != len(dated):
        units = ", ".join(f"{name} ({'dates: such as 1h' if time else 'such as 0.05'})" for name, time in dated.items())
        raise InputError(
            f"--{option} is a positive distance in the unit of the coordinates, or one for each: {units}; got {text!r}"
        )
    return found


def region_of(text: str, origins: Mapping[str, int | None]) -> dict[str, tuple[float, float]]:
    """First and last coordinate per axis from ``W,E,S,N``; of one or three axes in the order of the coordinates.

    ``origins``: the origin of each axis of dates, since which they are in seconds; ``None`` for other axes. A region of
    longitudes goes across the date line where its west is larger than its east.

    >>> region_of("-20,40,30,60", {"lat": None, "lon": None}), region_of("175,-175,-20,0", {"lon": None, "lat": None})
    ({'lon': (-20.0, 40.0), 'lat': (30.0, 60.0)}, {'lon': (175.0, 185.0), 'lat': (-20.0, 0.0)})
    """
    names = list(origins)
    form = "W,E,S,N in the unit of the coordinates" if len(names) == 2 else "first and last number of each coordinate"
    form = f"{form}, the lower one first, such as -20,40,30,60"
    east = list(east_and_north(names) if len(names) == 2 else names)
    parts = text.split(",")
    for place, end in enumerate(parts):
        if (origin := origins[east[place // 2 % len(east)]]) is not None:
            parts[place] = repr(float(as_numbers("region", date_in(end), True, origin)))
    found = _numbers("region", ",".join(parts), {2 * len(names)}, f"{form}, of dates 2024-01-01,2024-02-01")
    pairs = list(zip(found[::2], found[1::2], strict=True))
    pairs = [
        (low, high + TURN if name.lower() in LONGITUDES and low > high > low - TURN else high)
        for name, (low, high) in zip(east, pairs, strict=True)
    ]
    if any(low >= high for low, high in pairs):
        raise InputError(f"--region is {form}; got {text!r}")
    return dict(zip(east, pairs, strict=True))


def _series_columns(path: str) -> tuple[str, str] | None:
    """The column of times of a table of series, and its other columns of numbers."""
    if not Path(path).is_file() or format_of(Path(path)) != "table":
        return None
    table = Table.open(SourceFile(Path(path), path))
    place, _ = clock_of(table)
    if place < 0 or place_columns(table.names):
        return None
    others = [column.name or str(column.place) for column in table.columns(axis=place)]
    return table.names[place] or str(place), ",".join(others)


def _coordinate_columns(paths: list[str], names: list[str]) -> dict[str, AnyArray]:
    with without_notices():
        tables = [read_columns(file, names, len(names)) for file in expand(paths, POINT_FORMATS, "tables of points")]
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _across_the_date_line(columns: Mapping[str, AnyArray], periodic: str | None) -> dict[str, tuple[float, float]]:
    """The range of longitudes of points on both sides of a seam, whose map would else go around the globe."""
    for name, column in columns.items():
        if name.lower() not in LONGITUDES or column.dtype.kind == "M" or name in re.split("[,=]", periodic or ""):
            continue
        east = np.unique(column[np.isfinite(column)] % TURN)
        gaps = np.diff(np.append(east, east[:1] + TURN))
        if len(east) < 2 or gaps.max() < TURN / 2:
            continue
        first = (gaps.argmax() + 1) % len(east)
        west = float((east[first] + TURN / 2) % TURN - TURN / 2)
        low, high = float(np.nanmin(column)), float(np.nanmax(column))
        if high - low > TURN - gaps.max() + 1e-9:
            return {name: (west, west + float(TURN - gaps.max()))}
    return {}


def _turned(
    columns: Mapping[str, AnyArray], wanted: Mapping[str, Sequence[float] | AnyArray], periodic: str | None
) -> str | None:
    """The option ``periodic``, with longitudes whose wanted coordinates are a turn of 360 degrees away from the points."""
    for name, column in wanted.items():
        if name.lower() not in LONGITUDES or name in re.split("[,=]", periodic or ""):
            continue
        (low, high), (west, east) = (
            (float(np.fmin.reduce(x, initial=np.inf)), float(np.fmax.reduce(x, initial=-np.inf)))
            for x in (as_numbers(name, np.asarray(column)), as_numbers(name, columns[name]))
        )
        if low < west < low + TURN < east or west < high - TURN < east < high:
            say(f"{name} of the result is {low:g} to {high:g}, and of the points {west:g} to {east:g}: taken as periodic")
            periodic = name if periodic in (None, "auto", "none") else f"{periodic},{name}"
    return periodic


def like_raster(path: str, names: list[str]) -> tuple[dict[str, AnyArray], str | None]:
    """The coordinates of the pixels of a GeoTIFF per axis, and its coordinate reference system."""
    if len(names) != 2:
        raise InputError(f"--like is for maps of two coordinates; there are {', '.join(names)}")
    check_readable(path)
    rasterio = require("rasterio", f"reading {path!r}")
    with reading(path), rasterio.open(path, driver="GTiff") as tiff:
        axes = dict(zip(east_and_north(names), pixel_centres(tiff, path), strict=True))
        _check_size("--like", len(axes[names[0]]) * len(axes[names[1]]))
        return axes, tiff.crs.to_wkt() if tiff.crs else None


def _check_size(option: str, samples: int) -> None:
    if (needed := samples * MAP_SAMPLE_BYTES) > (free := free_memory()):
        raise InputError(
            f"{option} takes {show_bytes(needed)}, and {show_bytes(free)} of memory are free: set fewer samples"
        )


def _axes(
    fit: PointFit, sizes: list[int], limits: dict[str, tuple[float, float]], steps: dict[str, float]
) -> dict[str, AnyArray]:
    """Coordinates per axis in a region, or in the range of the points, by number or by distance."""
    ends = {axis.name: limits.get(axis.name) or (axis.low, axis.high) for axis in fit.axes}
    found: dict[str, AnyArray]
    if sizes:
        found = {name: np.linspace(ends[name][0], ends[name][1], size) for name, size in zip(ends, sizes, strict=True)}
    else:
        counts = {name: int((high - low) / steps[name] + 1e-9) + 1 for name, (low, high) in ends.items()}
        _check_size("--spacing", math.prod(counts.values()))
        found = {name: ends[name][0] + steps[name] * np.arange(count) for name, count in counts.items()}
    return found | {axis.name: axis.dates(found[axis.name]) for axis in fit.axes if axis.time}


def _check_overlap(fit: PointFit, axes: dict[str, AnyArray]) -> None:
    """Refuses a map beside the points, as in another coordinate reference system."""
    for axis in fit.axes:
        numbers = as_numbers(axis.name, axes[axis.name], axis.time, axis.origin)
        low, high = numbers.min(), numbers.max()
        if not axis.periodic and (low > axis.high or high < axis.low):
            raise InputError(
                f"{axis.name} of the map is {low:.6g} to {high:.6g}, and of the points {axis.low:.6g} to {axis.high:.6g}: "
                "both need one coordinate reference system"
            )


def fill_points(paths: list[str], out: Path, request: FillRequest, missing: str, force: bool, verbose: bool) -> int:
    """Predicts values between scattered points on a grid or at places, in one file; see :func:`fill_files`."""
    coordinates, values, periodic = request.coordinates, request.values, request.periodic
    grid, spacing, region, like, at = request.grid, request.spacing, request.region, request.like, request.at
    assert isinstance(request.model, str)
    assert periodic is None or isinstance(periodic, str)
    if coordinates is None and values is None:
        coordinates, values = _series_columns(paths[0]) or (None, None)
    if coordinates is None or values is None:
        given = {"--coordinates": coordinates, "--values": values}
        options = "--coordinates lon,lat --values temperature"
        if format_of(Path(paths[0]), by_content=False) not in POINT_FORMATS and coordinates is None and values is None:
            raise InputError(
                f"--grid, --spacing, --region, --like and --at are for tables of points, and {paths[0]!r} is none: fill it "
                "without them; --upscale 2 makes a finer grid, gdalwarp -tr 30 30 FILLED OUT another one of a raster"
            )
        if format_of(Path(paths[0]), by_content=False) == "table" and Path(paths[0]).is_file():
            options = points_options(header_of(SourceFile(Path(paths[0]), paths[0])))
        lacking = " and ".join(name for name, value in given.items() if value is None)
        raise InputError(f"scattered points need {lacking}: {options} --grid 400,600")
    names = names_of("coordinates", coordinates)
    refuse(
        (
            sum(option is not None for option in (grid, spacing, like, at)) != 1,
            "give one of --grid 400,600, --spacing 0.05 and --like raster.tif for a map, or --at FILE for values at the "
            "places of a table",
        ),
        (
            region is not None and grid is None and spacing is None,
            "--region W,E,S,N is for a map with --grid or --spacing: leave it out",
        ),
        (
            request.folds == "blocks",
            "--folds blocks is for samples of a grid; folds of points are random: set random or none",
        ),
        (
            at is not None and out.suffix not in (".csv", ".npy"),
            f"values at places are written as .csv or .npy; got --out {str(out)!r}",
        ),
    )
    # before the fit, so that bad input costs no time
    around = any(name.lower() in LONGITUDES or name.isdecimal() for name in names)  # an index may be of longitudes
    columns = _coordinate_columns(paths, names) if around or spacing or region or request.max_distance else {}
    dated = {name: column.dtype.kind == "M" for name, column in columns.items()}
    max_distance = request.max_distance
    reach = None if max_distance is None else lengths_of("max_distance", str(max_distance), dated)
    places = None if at is None else read_places(at, names)
    sizes, steps = [], dict[str, float]()
    if grid is not None:
        form = f"one number of samples for each of {', '.join(names)}, such as 400,600"
        sizes = [int(number) for number in _numbers("grid", grid.replace("x", ","), {len(names)}, form, 0)]
        _check_size(f"--grid {grid}", math.prod(sizes))
    if spacing is not None:
        steps = lengths_of("spacing", spacing, dated)
    origins = {name: origin_of(column) if dated[name] else None for name, column in columns.items()}
    limits = {} if region is None else region_of(region, origins)
    raster, crs = (None, None) if like is None else like_raster(like, names)
    if at is None:
        check_map(out)
    if at is None and not limits and raster is None:
        limits = _across_the_date_line(columns, periodic)
    periodic = _turned(columns, limits or raster or ({} if places is None else places[0]), periodic)
    source = PointSource(paths, coordinates, values, periodic, request.duplicates, missing=missing)
    fit = fit_source(source, request.model, request.encoder, request.seed)
    say(f"{fit.info.num_points} points, {', '.join(fit.info.names)} at ({', '.join(axis.name for axis in fit.axes)})")
    for name, periods in fit.seasons.items():
        say_periods(name, periods, any(axis.time for axis in fit.axes if axis.name == name))
    if request.folds != "none" and not fit.has_scores:
        say("no score: too few points to hold some out")
    # fits of folds, which are made when they are asked for
    each = (
        ()
        if request.folds == "none" or not fit.has_scores
        else zip(fit.info.names, fit.scores, fit.interpolation, fit.extents, strict=True)
    )
    for name, score, (baselines, left_out), extent in each:
        print_fold_scores(f"{name}, held-out points", {"this fit": score, **baselines}, extent, left_out, verbose)
    if not fit.has_std:
        say("no standard deviations: the points are too few for them")
    if at is None:
        axes = raster or (sizes if sizes and not limits else _axes(fit, sizes, limits, steps))
        if isinstance(axes, dict):
            _check_overlap(fit, axes)
        found = fit.grid(axes, max_distance=reach)
        found.crs = crs
        if reach:
            left = int(np.isnan(next(iter(found.values.values()))).sum())
            say(f"{left} of {math.prod(map(len, found.axes.values()))} samples are farther than {max_distance}: left empty")
        if out.suffix in (".tif", ".tiff"):
            check_map(out, found.axes)
        caption = f"{fit.info.num_points} points and their {'x'.join(str(len(x)) for x in found.axes.values())} map"
        picture = out.with_name(f"{out.stem}_map.png")
        with replacing(picture, force=force) as temporary:
            plot_map(temporary, found, *fit.points, caption)
            found.write(out, force)
        say(f"wrote {out}")
        say(f"picture: {picture}")
        return 0
    assert places is not None
    coords, columns = places
    known = fit.known(coords)
    wanted = {name: column[known] for name, column in coords.items()}
    if not known.all():
        say(f"{int((~known).sum())} of {len(known)} places have a missing coordinate, and no value")
    if outside := fit.num_outside(wanted):
        say(f"{outside} of {len(known)} places are outside of the range of the points, where values are extrapolated")
    if reach:
        near = fit.near(wanted, reach)
        say(f"{int((~near).sum())} of {len(known)} places are farther than {max_distance}: left empty")
        known[known], wanted = near, {name: column[near] for name, column in wanted.items()}
    predicted = dict(zip(fit.info.names, fit.predict(wanted).T, strict=True))
    std = dict(zip(fit.info.names, fit.std(wanted).T, strict=True)) if fit.has_std else {}
    say(f"wrote {write_places(out, columns, known, predicted, std, force)}")
    return 0
