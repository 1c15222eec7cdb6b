"""1-D signals of any source: rows and columns of images, arrays, sound, columns of tables."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from lightning.pytorch.utilities import rank_zero_info
from PIL import Image, UnidentifiedImageError

from pe_lightning.data.draws import draw
from pe_lightning.data.signals import RawSignals, Scaling
from pe_lightning.data.sources.array_files import ARRAY_SUFFIXES, file_kind, reading
from pe_lightning.data.sources.arrays import Channels, numbered, read_arrays
from pe_lightning.data.sources.audio import AUDIO_SUFFIXES, is_wav, read_audio
from pe_lightning.data.sources.decode import MAX_PIXELS, SUFFIXES, FloatArray
from pe_lightning.data.sources.images import Color, Size, read_images
from pe_lightning.data.sources.lengths import one_length
from pe_lightning.data.sources.sources import Source, expand
from pe_lightning.data.sources.tables import TABLE_SUFFIXES, Columns, read_tables
from pe_lightning.errors import InputError

__all__ = ["ROW_SUFFIXES", "direct_rows", "read_rows"]

ROW_SUFFIXES = SUFFIXES | ARRAY_SUFFIXES | AUDIO_SUFFIXES | TABLE_SUFFIXES
"""What counts as a source of 1-D signals inside a folder."""

Kind: TypeAlias = Literal["image", "array", "sound", "table"]
Paths: TypeAlias = "str | PathLike[str] | Sequence[str | PathLike[str]]"

_DEFAULT_NUMBER = 16  # rows, and columns, of an image: the papers'
_USES: dict[Kind, frozenset[str]] = {
    "image": frozenset(
        {"rows", "columns", "num_rows", "num_columns", "seed", "center_crop", "resize", "color", "max_pixels"}
    ),
    "array": frozenset({"key", "value_range", "channels"}),
    "sound": frozenset({"seconds"}),
    "table": frozenset({"select", "value_range"}),
}
_PLURAL: dict[Kind, str] = {"image": "images", "array": "arrays", "sound": "sound files", "table": "tables"}


def read_rows(
    paths: Paths,
    rows: Sequence[int] | None = None,
    columns: Sequence[int] | None = None,
    num_rows: int | None = None,
    num_columns: int | None = None,
    seed: int = 0,
    center_crop: Size | None = None,
    resize: Size | None = None,
    color: Color = "auto",
    max_pixels: int | None = MAX_PIXELS,
    select: Columns | None = None,
    key: str | None = None,
    channels: Channels = "auto",
    value_range: Sequence[float] | None = None,
    seconds: Sequence[float] | None = None,
    length: int | None = None,
) -> RawSignals:
    """Describes 1-D signals, all of one kind of source: images, arrays, sound files or tables, by their content.

    Args:
        paths: One or more files, folders or ``samples://NAME``.
        rows: Images: positions of the rows to take, from 0 at the top.
        columns: Images: positions of the columns to take, from 0 at the left.
        num_rows: Images: how many rows to draw at random, each image its own. If none of these four is given, 16 rows and,
            if all images are square, 16 columns.
        num_columns: Images: how many columns to draw at random.
        seed: Images: of the draw, a non-negative integer. The draw depends on it, the image's position and its size alone.
        center_crop: Images: the central part to keep first, ``n`` or ``[height, width]``.
        resize: Images: the size to resample to first, after the crop, ``n`` or ``[height, width]``.
        color: Images: ``auto``, ``rgb`` or ``grey``.
        max_pixels: Images: refuse a file whose header claims more; ``None`` for no limit.
        select: Tables: names or positions (from 0) of the columns to take; by default all that hold numbers.
        key: Arrays: which one of an ``.npz`` or HDF5 file; not needed where there is only one.
        channels: Arrays: what the last axis of an array of 2 axes is, ``auto``, ``last`` or ``none``
            (:func:`pe_lightning.data.sources.arrays.read_arrays`).
        value_range: Arrays and tables: ``[low, high]``, the numbers that become 0 and 1.
        seconds: Sound: ``[start, stop]`` of the part to keep.
        length: Keep only the first n samples of each signal.

    Raises:
        InputError: If a source cannot be read, an argument is for another kind of source or out of range, the sources are
            of several kinds, or the signals differ in length.
    """
    sources = expand(paths, ROW_SUFFIXES, kind="image, array, sound file or table")
    kind = _one_kind(sources)
    given: dict[str, Any] = {
        **{"rows": rows, "columns": columns, "num_rows": num_rows, "num_columns": num_columns, "seed": seed},
        **{"center_crop": center_crop, "resize": resize, "color": color, "max_pixels": max_pixels},
        **{"select": select, "key": key, "channels": channels, "value_range": value_range, "seconds": seconds},
    }
    _refuse_irrelevant(kind, given, sources[0])
    files = [source.given for source in sources]
    if kind == "array":
        return read_arrays(files, 1, key, value_range, channels, length)
    if kind == "sound":
        return read_audio(files, seconds, length)
    if kind == "table":
        return read_tables(files, select, value_range, length)
    by_default = rows is None and columns is None and num_rows is None and num_columns is None
    if by_default:
        num_rows = num_columns = _DEFAULT_NUMBER
    lines = (_Lines("row", rows, num_rows, seed), _Lines("column", columns, num_columns, seed))
    if not any(line.wanted for line in lines):
        raise InputError("no row and no column is asked for; set rows, columns, num_rows or num_columns")
    images = (read_images(file, center_crop, resize, color, max_pixels=max_pixels)[0][0] for file in files)
    return _lines_of(images, sources, lines, by_default, length)


def direct_rows(paths: Paths) -> bool:
    """Whether all are ``.npy`` or HDF5 files, by their content: read by slices, with no decoding.

    Raises:
        InputError: If a path is missing.
    """
    sources = expand(paths, ROW_SUFFIXES, kind="image, array, sound file or table")
    return all(file_kind(source.path) in ("npy", "h5") for source in sources)


def _one_kind(sources: Sequence[Source]) -> Kind:
    kinds = {_kind(source): source.given for source in reversed(sources)}
    if len(kinds) > 1:
        listed = ", ".join(f"{kind}: {given}" for kind, given in sorted(kinds.items()))
        raise InputError(
            f"the paths are of {len(kinds)} kinds ({listed}), but signals that are fitted together come from one kind of "
            "source. Give the files of one kind, by name or in a folder of their own"
        )
    return next(iter(kinds))


def _kind(source: Source) -> Kind:
    """By its content, or by its suffix where that says nothing."""
    suffix = source.path.suffix.lower()
    if file_kind(source.path) is not None:
        return "array"
    with reading(source.given), source.path.open("rb") as file:
        header = file.read(12)
    if is_wav(header) or suffix in AUDIO_SUFFIXES:
        return "sound"
    if suffix in SUFFIXES:
        return "image"
    if _is_image(source.path):
        return "image"
    if suffix in TABLE_SUFFIXES:
        return "table"
    raise InputError(
        f"{source.given!r} is no source of 1-D signals: those are images, arrays ({', '.join(sorted(ARRAY_SUFFIXES))}), "
        f"sound ({', '.join(sorted(AUDIO_SUFFIXES))}) and tables ({', '.join(sorted(TABLE_SUFFIXES))})"
    )


def _is_image(path: Path) -> bool:
    try:
        with Image.open(path):
            return True
    except UnidentifiedImageError:
        return False
    except Exception:  # an image, but a damaged or an oversized one: decoding it says what is wrong
        return True


def _refuse_irrelevant(kind: Kind, given: Mapping[str, Any], source: Source) -> None:
    parameters = inspect.signature(read_rows).parameters
    for name, value in given.items():
        if name not in _USES[kind] and value != parameters[name].default:
            meant = " and ".join(_PLURAL[other] for other, names in _USES.items() if name in names)
            raise InputError(
                f"{name} is for {meant}, but {source.given!r} is read as {_PLURAL[kind]}; leave {name} out. For "
                f"{_PLURAL[kind]} there are: {', '.join(sorted(_USES[kind]))}, length"
            )


class _Lines:
    """Which rows, or which columns, of every image are taken.

    Args:
        name: ``row`` or ``column``.
        places: Their positions.
        number: How many are drawn instead.
        seed: Of the draw.
    """

    def __init__(self, name: Literal["row", "column"], places: Sequence[int] | None, number: int | None, seed: int) -> None:
        if places is not None and number is not None:
            raise InputError(f"{name}s and num_{name}s exclude each other: give positions, or how many to draw")
        if number is not None and not _is_whole(number):
            raise InputError(f"num_{name}s must be an integer >= 0, got {number!r}")
        if not _is_whole(seed):
            raise InputError(f"seed must be an integer >= 0, got {seed!r}")
        listed = list(places) if isinstance(places, (list, tuple)) else []
        if places is not None and (not listed or not all(map(_is_whole, listed)) or len(set(listed)) < len(listed)):
            raise InputError(f"{name}s must be a list of distinct positions, integers >= 0; got {places!r}")
        self.name, self.seed, self.axis = name, seed, int(name == "column")
        self.places, self.number = listed, number
        self.wanted = bool(listed) or bool(number)

    def of(self, image: FloatArray, position: int, given: str) -> tuple[list[int], FloatArray]:
        """Positions, and the lines of one image, ``(n, L, C)``."""
        size = image.shape[self.axis]
        if self.number is not None and self.number > size:
            raise InputError(
                f"{given!r} has {size} {self.name}s, fewer than num_{self.name}s: {self.number}; set num_{self.name}s: "
                f"{size} or less"
            )
        beyond = [place for place in self.places if place >= size]
        if beyond:
            raise InputError(f"{given!r} has no {self.name} {beyond[0]}: its {self.name}s are 0 to {size - 1}")
        # rows and columns of every image are drawn for themselves
        places = draw(self.seed, 2 * position + self.axis, size, self.number).tolist() if self.number else self.places
        return places, np.moveaxis(image, self.axis, 0)[places]


def _lines_of(
    images: Iterable[FloatArray],
    sources: Sequence[Source],
    lines: tuple[_Lines, _Lines],
    by_default: bool,
    length: int | None,
) -> RawSignals:
    square = True
    found: list[tuple[Source, _Lines, list[int], FloatArray]] = []
    for position, (source, image) in enumerate(zip(sources, images, strict=True)):
        square = square and image.shape[0] == image.shape[1]
        found += [(source, line, *line.of(image, position, source.given)) for line in lines if line.wanted]
    if by_default and not square:
        rank_zero_info(
            f"Rows and columns of images that are not square differ in length: only {_DEFAULT_NUMBER} random rows of each "
            "are taken. Set center_crop or resize for columns too."
        )
        found = [entry for entry in found if entry[1].name == "row"]
    kept = one_length(
        [(f"{source.given} ({line.name}s)", values.shape[1]) for source, line, _, values in found],
        length,
        ", or center_crop or resize to make the images square and of one size",
    )
    most = max(values.shape[2] for *_, values in found)
    # a grey image among coloured ones
    values = np.concatenate([np.broadcast_to(v[:, :kept], (len(v), kept, most)) for *_, v in found])
    return RawSignals(
        names=numbered([(source, [f"{line.name[:3]}{place}" for place in places]) for source, line, places, _ in found]),
        grid=(kept,),
        channels=most,
        stored="float32",
        scaling=Scaling("float32"),
        unit=True,
        blocks=partial(iter, values),
    )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
