"""The verb ``fill`` for scattered points: a map, or values at places."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from pe_fill.verbs.fill_scores import print_fold_scores, say_periods
from pe_lightning.errors import InputError, refuse, say, show_bytes
from pe_lightning.signals.validation import free_memory

if TYPE_CHECKING:
    from pe_fill.estimators.point_fit import PointFit
    from pe_lightning.signals.raw import AnyArray

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


def region_of(text: str, names: list[str]) -> dict[str, tuple[float, float]]:
    """First and last coordinate per axis from ``W,E,S,N``; of one or three axes in the order of the coordinates.

    A region of longitudes goes across the date line where its west is larger than its east.

    >>> region_of("-20,40,30,60", ["lat", "lon"]), region_of("175,-175,-20,0", ["lon", "lat"])
    ({'lon': (-20.0, 40.0), 'lat': (30.0, 60.0)}, {'lon': (175.0, 185.0), 'lat': (-20.0, 0.0)})
    """
    from pe_fill.results.maps import LONGITUDES, east_and_north

    form = "W,E,S,N in the unit of the coordinates" if len(names) == 2 else "first and last number of each coordinate"
    form = f"{form}, the lower one first, such as -20,40,30,60"
    found = _numbers("region", text, {2 * len(names)}, form)
    pairs = list(zip(found[::2], found[1::2], strict=True))
    east = list(east_and_north(names) if len(names) == 2 else names)
    pairs = [
        (low, high + TURN if name.lower() in LONGITUDES and low > high > low - TURN else high)
        for name, (low, high) in zip(east, pairs, strict=True)
    ]
    if any(low >= high for low, high in pairs):
        raise InputError(f"--region is {form}; got {text!r}")
    return dict(zip(east, pairs, strict=True))


def _ends(name: str, columns: Sequence[AnyArray]) -> tuple[float, float]:
    """Least and largest coordinate; infinity and -infinity if all are missing."""
    from pe_lightning.signals.axes import as_numbers

    numbers = np.concatenate([as_numbers(name, column, column.dtype.kind == "M") for column in columns])
    return float(np.fmin.reduce(numbers, initial=np.inf)), float(np.fmax.reduce(numbers, initial=-np.inf))


def _turned(paths: list[str], wanted: Mapping[str, Sequence[float] | AnyArray], periodic: str | None) -> str | None:
    """The option ``periodic``, with longitudes whose wanted coordinates are a turn of 360 degrees away from the points."""
    from pe_fill.formats.points import POINT_FORMATS, read_columns
    from pe_fill.results.maps import LONGITUDES
    from pe_lightning.signals.sources.paths import expand

    for name, column in wanted.items():
        if name.lower() not in LONGITUDES or name in re.split("[,=]", periodic or ""):
            continue
        tables = [read_columns(file, [name], 1)[name] for file in expand(paths, POINT_FORMATS, "tables of points")]
        (low, high), (west, east) = _ends(name, [np.asarray(column)]), _ends(name, tables)
        if low < west < low + TURN < east or west < high - TURN < east < high:
            say(f"{name} of the result is {low:g} to {high:g}, and of the points {west:g} to {east:g}: taken as periodic")
            periodic = name if periodic in (None, "auto", "none") else f"{periodic},{name}"
    return periodic


def like_raster(path: str, names: list[str]) -> tuple[dict[str, AnyArray], str | None]:
    """The coordinates of the pixels of a GeoTIFF per axis, and its coordinate reference system."""
    from pe_fill.formats.labelled import pixel_centres
    from pe_fill.results.maps import east_and_north
    from pe_lightning.errors import require
    from pe_lightning.signals.files import check_readable
    from pe_lightning.signals.sources.paths import reading

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
    if dated := [axis.name for axis in fit.axes if axis.time]:
        raise InputError(f"--region and --spacing are numbers, and {', '.join(dated)} holds dates: give --grid alone")
    ends = {axis.name: limits.get(axis.name) or (axis.low, axis.high) for axis in fit.axes}
    if sizes:
        return {name: np.linspace(ends[name][0], ends[name][1], size) for name, size in zip(ends, sizes, strict=True)}
    counts = {name: int((high - low) / steps[name] + 1e-9) + 1 for name, (low, high) in ends.items()}
    _check_size("--spacing", math.prod(counts.values()))
    return {name: ends[name][0] + steps[name] * np.arange(count) for name, count in counts.items()}


def _check_overlap(fit: PointFit, axes: dict[str, AnyArray]) -> None:
    """Refuses a map beside the points, as in another coordinate reference system."""
    for axis in fit.axes:
        low, high = axes[axis.name].min(), axes[axis.name].max()
        if not axis.periodic and (low > axis.high or high < axis.low):
            raise InputError(
                f"{axis.name} of the map is {low:.6g} to {high:.6g}, and of the points {axis.low:.6g} to {axis.high:.6g}: "
                "both need one coordinate reference system"
            )


def fill_points(
    paths: list[str],
    out: Path,
    coordinates: str | None,
    values: str | None,
    grid: str | None,
    spacing: str | None,
    region: str | None,
    like: str | None,
    at: str | None,
    missing: str,
    periodic: str | None,
    duplicates: Literal["average", "keep", "error"],
    model: Literal["auto", "adaptive", "exact"],
    encoder: str | None,
    folds: Literal["auto", "random", "blocks", "none"],
    seed: int,
    force: bool,
    verbose: bool,
) -> int:
    """Predicts values between scattered points on a grid or at places, in one file; see :func:`fill_files`."""
    from pe_fill.estimators.point_fit import fit_source
    from pe_fill.formats.point_axes import SECONDS
    from pe_fill.formats.points import PointSource, names_of, points_options, read_places
    from pe_fill.results.maps import check_map, plot_map, write_places
    from pe_lightning.signals.files import replacing
    from pe_lightning.signals.sources.paths import SourceFile, format_of
    from pe_lightning.signals.sources.tables import header_of

    if coordinates is None or values is None:
        given = {"--coordinates": coordinates, "--values": values}
        options = "--coordinates lon,lat --values temperature"
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
        (folds == "blocks", "--folds blocks is for samples of a grid; folds of points are random: set random or none"),
        (
            at is not None and out.suffix not in (".csv", ".npy"),
            f"values at places are written as .csv or .npy; got --out {str(out)!r}",
        ),
    )
    # before the fit, so that bad input costs no time
    places = None if at is None else read_places(at, names)
    sizes, steps = [], dict[str, float]()
    if grid is not None:
        form = f"one number of samples for each of {', '.join(names)}, such as 400,600"
        sizes = [int(number) for number in _numbers("grid", grid.replace("x", ","), {len(names)}, form, 0)]
        _check_size(f"--grid {grid}", math.prod(sizes))
    if spacing is not None:
        form = "a positive distance of samples in the unit of the coordinates, such as 0.05, or one for each coordinate"
        found_steps = _numbers("spacing", spacing, {1, len(names)}, form, 0)
        steps = dict(zip(names, found_steps * (len(names) // len(found_steps)), strict=True))
    limits = {} if region is None else region_of(region, names)
    raster, crs = (None, None) if like is None else like_raster(like, names)
    if at is None:
        check_map(out)
    periodic = _turned(paths, limits or raster or ({} if places is None else places[0]), periodic)
    source = PointSource(paths, coordinates, values, periodic, duplicates, missing=missing)
    fit = fit_source(source, model, encoder, seed)
    say(f"{fit.info.num_points} points, {', '.join(fit.info.names)} at ({', '.join(axis.name for axis in fit.axes)})")
    for name, periods in fit.seasons.items():
        say_periods(name, periods, any(axis.time for axis in fit.axes if axis.name == name))
    # fits of folds, which are made when they are asked for
    each = () if folds == "none" else zip(fit.info.names, fit.scores, fit.interpolation, fit.extents, strict=True)
    for name, score, (baselines, left_out), extent in each:
        print_fold_scores(f"{name}, held-out points", {"this fit": score, **baselines}, extent, left_out, verbose)
    if not fit.has_std:
        say("no standard deviations: the points are too few for them")
    if at is None:
        axes = raster or (sizes if sizes and not limits else _axes(fit, sizes, limits, steps))
        if isinstance(axes, dict):
            _check_overlap(fit, axes)
        found = fit.grid(axes)
        found.crs = crs
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
    predicted = dict(zip(fit.info.names, fit.predict(wanted).T, strict=True))
    std = dict(zip(fit.info.names, fit.std(wanted).T, strict=True)) if fit.has_std else {}
    say(f"wrote {write_places(out, columns, known, predicted, std, force)}")
    return 0
