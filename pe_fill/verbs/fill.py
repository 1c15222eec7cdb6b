"""The verb ``fill``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from PIL import Image

from pe_fill.request import FillRequest
from pe_fill.verbs.fill_scores import print_fold_scores, say_periods
from pe_lightning.errors import InputError, console, say
from pe_lightning.results.runs import portable
from pe_lightning.signals.files import PICTURES, check_outputs, check_readable, format_of_suffix, replacing, stem_of

if TYPE_CHECKING:
    from pe_fill.formats.editable import EditableFile
    from pe_fill.results.filled import Filled

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
    spacing: str | None = None,
    region: str | None = None,
    like: str | None = None,
    at: str | None = None,
    periodic: str | None = None,
    duplicates: Literal["average", "keep", "error"] = "average",
    missing: list[str] | None = None,
    smooth: bool = False,
    noise: float | None = None,
    noise_sample: str | None = None,
    upscale: Literal[1, 2, 3, 4, 6, 8] = 1,
    samples: Literal["auto", "points", "cells"] = "auto",
    pretrained: str = "pictures",
    model: Literal["auto", "adaptive", "exact"] = "auto",
    encoder: str | None = None,
    members: str | None = None,
    folds: Literal["auto", "random", "blocks", "none"] = "auto",
    block: int | None = None,
    axes: int | None = None,
    grow: int | None = None,
    max_gap: str | None = None,
    max_distance: str | None = None,
    no_std: bool = False,
    key: str | None = None,
    variable: str | None = None,
    dims: str | None = None,
    force: bool = False,
    verbose: bool = False,
    seed: int = 0,
) -> int:
    """Predicts the missing samples of a file, or enlarges it.

    All known samples are trained on, and the others predicted. The result has the format, dtype and metadata of the file,
    with known samples unchanged to the bit (pictures also as .png, .tif, .webp, or as .jpg, which changes all samples);
    beside it are a picture before and after and, as float32 in the same shape, the standard deviations of missing samples.
    The table scores known samples that are held out in turn, beside interpolation of the same samples.

    Missing are NaN, empty cells, values that the file declares, frames that a folder of frames or the times of a video
    leave out, and samples that --missing marks.

    With --coordinates the files are tables of scattered points, and the result is a map (--grid 400,600) as NetCDF, GeoTIFF,
    CSV or NPY, or the table of places --at FILE with values and their standard deviations.

    Args:
        paths: Pictures, TIFF, .npy, HDF5, NIfTI, sound, tables, videos, samples://NAME, or folders: of the frames of a
            clip, or of pictures of different sizes, each filled by itself.
        out: The file to write, or a folder for the results of several files.
        coordinates: Points: the columns of coordinates, such as lon,lat or time; numbers in any unit, or dates.
        values: Points: the columns of values, such as temperature,humidity.
        grid: Points: samples of the map per coordinate, in their order, such as 400,600.
        spacing: Points: distance of the samples of the map, such as 0.05, of dates 1h (s, min, h, d, y), or one for each
            coordinate, in place of --grid. A table with one column of times needs no --coordinates and --values.
        region: Points: the map from west to east and south to north, W,E,S,N, such as -20,40,30,60, or along dates
            2024-01-01,2024-02-01 (default: the range of the points).
        like: Points: a GeoTIFF whose pixels and coordinate reference system the map has, in place of --grid.
        at: Points: a table with the columns of coordinates, at whose rows values are predicted.
        periodic: Periods, hour=24 in the unit of a coordinate, of dates time=24h or time=1y,time=7d (s, min, h, d, y), of a
            row without coordinates row=24 (samples); or lon, degrees, which repeat after 360. auto, the default: periods of
            a series are found in its values; none: not.
        duplicates: Points: rows at one place are averaged, kept, or refused if they differ (error).
        missing: alpha (opacity 0), a colour '#rrggbb', a number or several (-9999,-999), lost frames of a clip
            frames:10-14,30 (from 0), or a mask file that is not zero at missing samples; one mask for all files, one for
            each, or a folder of masks that are named as the files.
        smooth: Denoise known samples too.
        noise: With --smooth, of pictures: the standard deviation of the noise in the units of the file, such as 10 of 255
            (default: it is found).
        noise_sample: With --smooth, in place of --noise: rows and columns of a flat region, such as 0:32,100:160, whose
            variation is noise, which may be correlated.
        upscale: Samples per axis relative to the file: 1, 2, 3, 4, 6 or 8; of clips, pixels of their frames.
        samples: With --upscale: cells if the samples of the file are means, as the pixels of a camera; the means of the
            result over each of them are then the known values. Known points are unchanged. auto: points on one axis and in
            rasters that declare them, else cells.
        pretrained: With --upscale: pictures, a network that saw other pictures; none; or a checkpoint of one that
            was trained on your own (datasets/make_priors.py of the repository). Mixed with a fit of the file as held-out
            samples support it.
        model: adaptive, exact (a linear layer solved for, width and ridge by held-out samples), or auto: a mixture of
            members where it applies.
        encoder: Encoder of the exact fit (default: laplace).
        members: Methods that are mixed to fill gaps, such as fourier,patches (default: the ones that suit the signal; see
            pe_fill.fill).
        folds: Held-out samples of the score: random, blocks as wide as gaps, none; auto: moved copies of the gaps.
        block: Samples per axis of a block, at least 1.
        axes: Number of axes of a signal, where the shape of an array leaves it open.
        grow: Pixels by which missing samples of pictures grow; 3 by default where the file is a JPEG, else 0.
        max_gap: Longest gap that is filled, in samples, or along dates such as 3h; longer ones stay missing.
        max_distance: Largest distance from a known sample that is filled, in samples, or along dates such as 3h; of a map of
            points in the unit of the coordinates, or one for each. Other samples stay missing.
        no_std: Leave out the file of standard deviations of the missing samples, which takes further fits.
        key: HDF5: name of the array, where the file has several.
        variable: NetCDF and Zarr: the variable; the only one by default.
        dims: NetCDF and Zarr: 1 to 3 dimensions that are the axes, such as lat,lon (all by default); others count signals.
        force: Replace results that exist; files that are read are never replaced.
        verbose: Print why methods of comparison have no score, too.
        seed: Seed of the folds and of the encoder.
    """
    options, written = dict(locals()), [out]
    of_command = {"paths", "out", "missing", "no_std", "force", "verbose"}
    options = {name: value for name, value in options.items() if name not in of_command}
    options |= {"members": None if members is None else members.split(","), "std": False if no_std else None}
    request = FillRequest(**options)
    if request.is_of_points:
        written = [out] if at is not None else [out, out.with_name(f"{out.stem}_map.png")]
        check_outputs(written, map(Path, [*paths, *filter(None, (at, like))]), force)
        from pe_fill.verbs.fill_points import fill_points  # imports torch, which refusals and --help do not need

        return fill_points(paths, out, request, ",".join(missing or ["nan"]), force, verbose)
    for path in [*paths, *(mark for mark in missing or () if format_of_suffix(Path(mark)) is not None)]:
        if not path.startswith("samples://"):
            check_readable(path)
    files = [file for path in paths for file in _files_in(path)]
    marks = _marks_of(files, missing or ["nan"])
    several = len(files) > 1 or files != paths or (out.is_dir() and not Path(paths[0]).is_dir())
    targets = _targets(files, out, several)
    written = []
    for target in targets:
        std, picture = _outputs_beside(target)
        in_result = axes is None and target.suffix.lower() in (".nc", ".nc4")  # deviations are a variable of NetCDF
        written += [target, std, picture] if request.has_std and not in_result else [target, picture]
    check_outputs(written, map(Path, {*paths, *files, *marks, pretrained}), force)
    from pe_fill.filling import fill_file, read_file
    from pe_fill.results.before_after import draw_before_after
    from pe_fill.results.filled import check_suffix, write_std

    for path, target, mark in zip(files, targets, marks, strict=True):
        if Path(path).suffix.lower() in (".nc", ".nc4", ".zarr") and axes is None:
            request.refuse_unread("NetCDF and Zarr, which --axes reads as plain arrays")
            if request.enlarges:
                raise InputError(
                    f"{path!r} has coordinates of its samples: leave out --upscale, or read it as plain arrays with --axes"
                )
            from pe_fill.formats.netcdf import edit_labelled
            from pe_fill.formats.points import names_of

            original = edit_labelled(path, variable, None if dims is None else names_of("dims", dims, 3), mark)
        elif variable is not None or dims is not None:
            raise InputError(f"--variable and --dims are for NetCDF and Zarr (.nc, .zarr), and {path!r} is none")
        else:
            original = read_file(path, mark, axes, grow, key)
            _check_table(path, target, original, smooth)
        check_suffix(target, original)
        if len(files) > 1 and not (original.missing.any() or smooth or upscale > 1):
            say(f"{path}: no sample is missing, and no result is written")
            continue
        if original.grown:
            why = ", because JPEG spreads damage around it: --grow 0 to leave it out" if grow is None else ""
            say(f"{path}: missing samples were grown by {original.grown} pixels{why}")
        if target.suffix.lower() in (".jpg", ".jpeg"):
            say(f"JPEG changes known pixels too: {target.with_suffix('.png')} would keep them")
        with _bar(f"{target.name}: enlarging" if upscale > 1 else None):
            filled = fill_file(original, request)
        _report(filled, path, "denoised" if smooth else "this fit", verbose)
        std, picture = _outputs_beside(target)
        left = filled.left.reshape(filled.stack.shape)
        shown = np.where(left, np.nan, filled.stack) if left.any() else filled.stack
        drawn, writes_std = draw_before_after(original, shown), filled.std is not None and not original.holds_std
        with ExitStack() as stack:  # all are written before the first gets its name; the result is the last
            filled.write_to(stack.enter_context(replacing(target, force=force)))
            if writes_std:
                write_std(stack.enter_context(replacing(std, force=force)), filled)
            if drawn is not None:
                drawn.save(stack.enter_context(replacing(picture, force=force)))
        say(f"wrote {target}")
        if writes_std:
            say(f"standard deviations of missing samples, 0 elsewhere: {std}")
        if drawn is not None:
            say(f"before and after: {picture}")
    return 0


@contextmanager
def _bar(title: str | None) -> Iterator[None]:
    """A progress bar where an enlargement is computed at a terminal."""
    output = console()
    if title is None or not output.is_terminal:
        yield
        return
    from rich.progress import Progress

    from pe_fill.plans.enlarging import reporting

    with Progress(console=output, transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        with reporting(lambda share: bar.update(task, completed=share)):
            yield


def _check_table(path: str, target: Path, original: EditableFile, smooth: bool) -> None:
    """Says how a table of scattered points is read: a map needs coordinates; a series with places is noticed."""
    from pe_fill.formats.points import place_columns, points_options
    from pe_fill.results.maps import MAP_SUFFIXES
    from pe_lightning.signals.sources.paths import SourceFile, format_of
    from pe_lightning.signals.sources.tables import header_of

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
    say(f"{path!r} is read as a series of rows in their order; if they are scattered points, add {points}")


def _outputs_beside(target: Path) -> tuple[Path, Path]:
    stem, is_picture = stem_of(target), format_of_suffix(target) in PICTURES
    return target.with_name(f"{stem}_std.{'tif' if is_picture else 'npy'}"), target.with_name(f"{stem}_before_after.png")


def _files_in(path: str) -> list[str]:
    """The pictures of a folder if they are not the frames of a clip (of different sizes, or not numbered), else the path."""
    if not Path(path).is_dir() or Path(path).suffix.lower() == ".zarr":
        return [path]
    pictures = sorted(file for file in Path(path).iterdir() if file.is_file() and not file.name.startswith("."))
    pictures = [file for file in pictures if format_of_suffix(file) in PICTURES]
    sizes = set()
    for file in pictures:
        with suppress(OSError), Image.open(file) as image:  # a file that cannot be read is refused when it is read
            sizes.add(image.size)
    if not pictures or (len(sizes) < 2 and all(re.search(r"\d", file.stem) for file in pictures)):
        return [path]
    say(f"{path!r} holds {len(pictures)} pictures of {len(sizes)} size(s): each is filled by itself")
    return [str(file) for file in pictures]


def _marks_of(files: list[str], marks: list[str]) -> list[str]:
    if len(files) > 1 and len(marks) == 1 and Path(marks[0]).is_dir():
        masks = {stem_of(mask): str(mask) for mask in sorted(Path(marks[0]).iterdir())}
        if lacking := [file for file in files if stem_of(Path(file)) not in masks]:
            raise InputError(f"--missing {marks[0]} holds no mask that is named as {lacking[0]!r}")
        return [masks[stem_of(Path(file))] for file in files]
    if len(marks) not in (1, len(files)):
        raise InputError(f"--missing has {len(marks)} values for {len(files)} file(s): give one, or one for each")
    return marks if len(marks) > 1 else marks * len(files)


def _targets(paths: list[str], out: Path, several: bool) -> list[Path]:
    if not several:
        return [out]
    if out.is_file() or (not out.is_dir() and out.suffix.lower() in {Path(path).suffix.lower() for path in paths}):
        raise InputError(
            f"--out {str(out)!r} is a file: {len(paths)} results need a folder, such as --out {out.with_suffix('')}/"
        )
    names = [Path(portable(Path(path).name)) for path in paths]
    return [out / (name.with_suffix(".png") if format_of_suffix(name) == "picture" else name) for name in names]


def _report(filled: Filled, path: str, own: str, verbose: bool) -> None:
    """Prints how much was missing, the members of mixtures, and a table of scores for each signal."""
    from pe_fill.formats.point_axes import ROW
    from pe_fill.mixture.mixture import GapMixture
    from pe_fill.plans.enlarging import Enlargement

    for signal in filled.signals[:MAX_TABLES]:
        share = 100 * signal.num_missing / signal.num_samples
        left = f", {signal.num_left} stay missing, beyond the limit" if signal.num_left else ""
        say(f"{path}, {signal.name}: {signal.num_missing} of {signal.num_samples} samples missing ({share:.3g} %){left}")
        if signal.periods:
            axis = filled.original.axes[0] if filled.original.axes else None
            say_periods(axis.name if axis else ROW, signal.periods, axis is not None and axis.time)
        if isinstance(signal.model, GapMixture):
            weights = signal.model.weights.items()
            say("members and their mean weights: " + ", ".join(f"{name} {share:.2f}" for name, share in weights))
        elif isinstance(signal.model, Enlargement) or (signal.model and "trained on other" in signal.model.label):
            say(signal.model.label)
        if signal.noise == 0:
            say("no noise was found, and known samples are unchanged: --noise 5 removes noise of a known standard deviation")
        elif signal.noise is not None and signal.model is not None and not isinstance(signal.model, GapMixture):
            say(f"noise of a standard deviation of {signal.noise:.3g} was removed by {signal.model.label}")
        if signal.score is None:
            say(f"no score: {signal.protocol}")
            continue
        rows = {own: signal.score, **signal.baselines}
        print_fold_scores(f"held-out known samples: {signal.protocol}", rows, signal.unit, signal.left_out, verbose)
    if len(filled.signals) > MAX_TABLES:
        say(f"and {len(filled.signals) - MAX_TABLES} more signals")
