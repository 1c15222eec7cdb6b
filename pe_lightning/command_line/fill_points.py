"""The verb ``fill`` for scattered points: a map, or values at places."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pe_lightning.checks import free_memory
from pe_lightning.command_line.score_table import print_scores
from pe_lightning.errors import InputError, show_bytes

if TYPE_CHECKING:
    from pe_lightning.point_fit import PointFit

__all__ = ["fill_points", "grid_of"]

MAP_SAMPLE_BYTES = 64
"""Memory that a sample of a map takes: coordinates, value and standard deviation, and copies of them."""


def grid_of(text: str) -> list[int]:
    """Samples per axis from ``400,600`` or ``400x600``.

    Raises:
        InputError: If a size is not a positive integer.

    >>> grid_of("400,600")
    [400, 600]
    """
    parts = text.replace("x", ",").split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise InputError(f"--grid is one number of samples per coordinate, in their order, such as 400,600; got {text!r}")
    return [int(part) for part in parts]


def fill_points(
    paths: list[str],
    out: Path,
    coordinates: str | None,
    values: str | None,
    grid: str | None,
    at: str | None,
    periodic: str | None,
    duplicates: Literal["average", "keep", "error"],
    model: Literal["auto", "adaptive", "exact"],
    encoder: str | None,
    folds: Literal["auto", "random", "blocks", "none"],
    seed: int,
    force: bool,
    verbose: bool,
) -> int:
    """Predicts values between scattered points on a grid or at places, in one file; see :func:`fill_files`.

    Raises:
        InputError: If a file or an option cannot be used; nothing is written then.
    """
    from pe_lightning.data.sources.paths import SourceFile, format_of
    from pe_lightning.data.sources.points import (  # imports torch, which --help does not need
        PointSource,
        names_of,
        points_options,
        read_places,
    )
    from pe_lightning.data.sources.tables import header_of
    from pe_lightning.media.maps import check_map, plot_map, write_places
    from pe_lightning.point_fit import fit_source

    if coordinates is None or values is None:
        lacking = " and ".join(
            f"--{name}" for name, given in (("coordinates", coordinates), ("values", values)) if given is None
        )
        options = "--coordinates lon,lat --values temperature"
        if format_of(Path(paths[0]), by_content=False) == "table" and Path(paths[0]).is_file():
            options = points_options(header_of(SourceFile(Path(paths[0]), paths[0])))
        raise InputError(f"scattered points need {lacking}: {options} --grid 400,600")
    if (grid is None) == (at is None):
        raise InputError("give either --grid 400,600 for a map, or --at FILE for values at the places of a table")
    if folds == "blocks":
        raise InputError("--folds blocks is for samples of a grid; those of points are random: set random or none")
    names = names_of("coordinates", coordinates)
    sizes = None if grid is None else grid_of(grid)
    if sizes is not None and len(sizes) != len(names):
        raise InputError(
            f"--grid {grid} has {len(sizes)} sizes for {len(names)} coordinates ({', '.join(names)}): give one each"
        )
    if sizes is not None:
        check_map(out)
        if (needed := math.prod(sizes) * MAP_SAMPLE_BYTES) > (free := free_memory()):
            raise InputError(
                f"--grid {grid} takes {show_bytes(needed)}, and {show_bytes(free)} of memory are free: set fewer"
            )
    elif out.suffix not in (".csv", ".npy"):
        raise InputError(f"values at places are written as .csv or .npy; got --out {str(out)!r}")
    places = None if at is None else read_places(at, names)  # before the fit, so that bad input costs no time
    fit = fit_source(PointSource(paths, coordinates, values, periodic, duplicates), model, encoder, seed)
    print(f"{fit.info.num_points} points, {', '.join(fit.info.names)} at ({', '.join(axis.name for axis in fit.axes)})")
    if folds != "none":
        _print_scores(fit, verbose)
    if not fit.has_std:
        print("no standard deviations: the points are too few for them")
    if sizes is not None:
        found = fit.grid(sizes)
        if out.suffix in (".tif", ".tiff"):
            check_map(out, found.axes)
        print(f"wrote {found.write(out)}")
        caption = f"{fit.info.num_points} points and their {'x'.join(map(str, sizes))} map"
        print(f"picture: {plot_map(out.with_name(f'{out.stem}_map.png'), found, *fit.points, caption)}")
        return 0
    assert places is not None
    coords, columns = places
    known = fit.known(coords)
    wanted = {name: column[known] for name, column in coords.items()}
    if not known.all():
        print(f"{int((~known).sum())} of {len(known)} places have a missing coordinate, and no value")
    if outside := fit.num_outside(wanted):
        print(f"{outside} of {len(known)} places are outside of the range of the points, where values are extrapolated")
    predicted = dict(zip(fit.info.names, fit.predict(wanted).T, strict=True))
    std = dict(zip(fit.info.names, fit.std(wanted).T, strict=True)) if fit.has_std else {}
    print(f"wrote {write_places(out, columns, known, predicted, std)}")
    return 0


def _print_scores(fit: PointFit, verbose: bool) -> None:
    """Prints a table of the errors of held-out points, by method, for every column."""
    each = zip(fit.info.names, fit.scores, fit.interpolation, fit.extents, strict=True)
    for name, score, (baselines, left_out), extent in each:
        print_scores(f"{name}, held-out points", {"this fit": score, **baselines}, extent, left_out, verbose)
