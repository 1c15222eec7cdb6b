"""The verb ``fill``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pe_lightning.command_line.fill_points import fill_points
from pe_lightning.command_line.score_table import print_scores
from pe_lightning.errors import InputError

if TYPE_CHECKING:
    from pe_lightning.filling import Filled
    from pe_lightning.media.originals import Original

__all__ = ["fill_files"]

MAX_TABLES = 8
"""Of more signals than this only the mean is shown."""


def fill_files(
    paths: list[str],
    /,
    *,
    out: Path,
    coordinates: str | None = None,
    values: str | None = None,
    grid: str | None = None,
    at: str | None = None,
    periodic: str | None = None,
    duplicates: Literal["average", "keep", "error"] = "average",
    missing: list[str] | None = None,
    smooth: bool = False,
    upscale: Literal[1, 2, 3, 4] = 1,
    prior: str = "none",
    model: Literal["auto", "adaptive", "exact"] = "auto",
    encoder: str | None = None,
    folds: Literal["auto", "random", "blocks", "none"] = "auto",
    block: int | None = None,
    axes: int | None = None,
    no_std: bool = False,
    variable: str | None = None,
    dims: str | None = None,
    force: bool = False,
    seed: int = 0,
) -> int:
    """Predicts the missing samples of a file, or enlarges it.

    All known samples are trained on, and the others predicted. The result has the format, dtype and metadata of the file,
    with known samples unchanged to the bit; beside it are a picture before and after and, as float32 in the same shape, the
    standard deviations of what was missing. The table scores known samples that are held out in turn, beside interpolation
    of the same samples.

    Missing are NaN, empty cells, values that the file declares, frames that a folder of frames or the times of a video
    leave out, and what --missing marks.

    With --coordinates the files are tables of scattered points, and the result is a map (--grid 400,600) as NetCDF, GeoTIFF,
    CSV or NPY, or the table of places --at FILE with values and their standard deviations.

    Args:
        paths: Pictures, TIFF, .npy, HDF5, NIfTI, sound, tables, videos, folders of frames, or samples://NAME.
        out: The file to write, or a folder for the results of several files.
        coordinates: Points: the columns of coordinates, such as lon,lat or time; numbers in any unit, or dates.
        values: Points: the columns of values, such as temperature,humidity.
        grid: Points: samples of the map per coordinate, in their order, such as 400,600.
        at: Points: a table with the columns of coordinates, at whose rows values are predicted.
        periodic: Points: coordinates that repeat, such as lon (a period of 360) or hour=24.
        duplicates: Points: rows at one place are averaged, kept, or refused if they differ (error).
        missing: alpha (opacity 0), a colour '#rrggbb', a number, lost frames of a clip frames:10-14,30 (from 0), or a mask
            file that is not zero at missing samples; one mask for all files, or one for each.
        smooth: Denoise known samples too.
        upscale: Samples per axis relative to the file, 1 to 4; all known samples are trained on.
        prior: With --upscale: pictures, a network that saw other pictures, or a checkpoint of fit --config prior/pictures;
            mixed in as far as known samples that are held out support it.
        model: adaptive, exact (a linear layer solved for, width and ridge by held-out samples), or auto: adaptive where it
            applies.
        encoder: Encoder of the exact fit (default: laplace).
        folds: Held-out samples of the score: random, blocks as wide as gaps, none; auto chooses by the gaps.
        block: Samples per axis of a block, at least 1.
        axes: Number of axes of a signal, where the shape of an array leaves it open.
        no_std: Leave out the file of standard deviations of the missing samples, which takes further fits.
        variable: NetCDF and Zarr: the variable; the only one by default.
        dims: NetCDF and Zarr: 1 to 3 dimensions that are the axes, such as lat,lon (all by default); others count signals.
        force: Overwrite the result if it exists.
        seed: Seed of the folds.

    Raises:
        InputError: If a file, a mask or an option cannot be used; nothing is written then.
    """
    if coordinates or values or grid or at:
        _targets(paths[:1], out, force)
        if missing or smooth or upscale > 1 or block is not None or axes is not None:
            raise InputError("--missing, --smooth, --upscale, --block and --axes are for samples of a grid: leave them out")
        common = (model, encoder, folds, seed)
        return fill_points(paths, out, coordinates, values, grid, at, periodic, duplicates, *common)
    targets = _targets(paths, out, force)
    marks = missing or ["nan"]
    if len(marks) not in (1, len(paths)):
        raise InputError(f"--missing has {len(marks)} values for {len(paths)} file(s): give one, or one for each")
    # imports torch, which --help does not need
    from pe_lightning.filling import check_suffix, fill, read_file, write_original, write_std
    from pe_lightning.media.fill_pictures import write_before_after

    for number, (path, target) in enumerate(targets.items()):
        mark = marks[number if len(marks) > 1 else 0]
        if Path(path).suffix.lower() in (".nc", ".nc4", ".zarr") and axes is None:
            original = _labelled(path, variable, dims, mark, upscale)
        elif variable is not None or dims is not None:
            raise InputError(f"--variable and --dims are for NetCDF and Zarr (.nc, .zarr), and {path!r} is none")
        else:
            original = read_file(path, mark, axes)
            _check_table(path, target, original, smooth)
        check_suffix(target, original)
        filled = fill(
            original,
            model=model,
            encoder=encoder,
            smooth=smooth,
            upscale=upscale,
            prior=prior,
            folds=folds,
            block=block,
            seed=seed,
            std=not (no_std or smooth) and upscale == 1,
        )
        _print_scores(filled, path)
        write_original(target, original, filled.stack)
        print(f"wrote {target}")
        if filled.std is not None:
            print(f"standard deviations of missing samples, 0 elsewhere: {write_std(target, filled)}")
        if (picture := write_before_after(target, original, filled.stack)) is not None:
            print(f"before and after: {picture}")
    return 0


def _labelled(path: str, variable: str | None, dims: str | None, mark: str, upscale: int) -> Original:
    """A NetCDF or Zarr file as signals to fill."""
    from pe_lightning.data.sources.points import names_of
    from pe_lightning.xarray import read_file

    if mark != "nan" or upscale > 1:
        raise InputError(
            f"{path!r} declares its missing values and its coordinates: leave out --missing and --upscale, or read it as "
            "plain arrays with --axes"
        )
    return read_file(path, variable, None if dims is None else names_of("dims", dims, 3))


def _check_table(path: str, target: Path, original: Original, smooth: bool) -> None:
    """Says how a table of scattered points is read: a map needs coordinates; a series with places is noticed.

    Raises:
        InputError: If the result is a map, or nothing is missing in a table of places.
    """
    from pe_lightning.data.sources.paths import SourceFile, format_of
    from pe_lightning.data.sources.points import place_columns, points_options
    from pe_lightning.data.sources.tables import header_of
    from pe_lightning.media.maps import MAP_SUFFIXES

    file = SourceFile(Path(path), path)
    if path.startswith("samples://") or file.path.is_dir() or format_of(file.path) != "table":
        return
    is_map, names = target.suffix.lower() in MAP_SUFFIXES and target.suffix not in original.suffixes, header_of(file)
    if not is_map and not place_columns(names):
        return
    points = f"{points_options(names)} --grid 400,600 for a map, or --at FILE for values at the places of a table"
    if is_map or not (smooth or original.missing.any()):
        why = f"{str(target)!r} is a map" if is_map else "no cell is empty"
        raise InputError(f"{path!r} is read as a series of rows, and {why}: if its rows are scattered points, add {points}")
    print(f"{path!r} is read as a series of rows in their order; if they are scattered points, add {points}")


def _targets(paths: list[str], out: Path, force: bool) -> dict[str, Path]:
    """The file to write for each file that is read.

    Raises:
        InputError: If one exists already, or is the file that is read.
    """
    several = len(paths) > 1 or (out.is_dir() and not Path(paths[0]).is_dir())
    if len({Path(path).name for path in paths}) < len(paths):
        raise InputError("two files have the same name, and the results are named as them: fill them one by one")
    targets = {path: out / _result_name(path) if several else out for path in paths}
    is_file = out.is_file() or (not out.is_dir() and out.suffix.lower() in {Path(path).suffix.lower() for path in targets})
    if several and is_file:
        raise InputError(
            f"--out {str(out)!r} is a file: {len(paths)} results need a folder, such as --out {out.with_suffix('')}/"
        )
    for path, target in targets.items():
        if target.exists() and target.resolve() == Path(path).resolve():
            raise InputError(f"--out {str(target)!r} is the file that is read; give another")
        if target.exists() and (target.is_dir() or not force):
            raise InputError(f"--out {str(target)!r} exists; choose another name, or replace a file with --force")
    return targets


def _result_name(path: str) -> str:
    """The name of the result for a file among several; pictures are written as PNG."""
    from pe_lightning.data.sources.paths import format_of

    name = Path(path).name
    return Path(name).with_suffix(".png").name if format_of(Path(path), by_content=False) == "picture" else name


def _print_scores(filled: Filled, path: str) -> None:
    """Prints how much was missing, and a table of scores for each signal."""
    for signal in filled.signals[:MAX_TABLES]:
        share = 100 * signal.num_missing / signal.num_samples
        print(f"{path}, {signal.name}: {signal.num_missing} of {signal.num_samples} samples missing ({share:.3g} %)")
        if signal.score is None:
            print(f"no score: {signal.protocol}")
            continue
        rows = {type(signal.model).__name__: signal.score, **signal.baselines}
        print_scores(f"held-out known samples: {signal.protocol}", rows, signal.unit, signal.left_out)
    if len(filled.signals) > MAX_TABLES:
        print(f"and {len(filled.signals) - MAX_TABLES} more signals")
