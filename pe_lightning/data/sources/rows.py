"""1-D signals: rows and columns of images, arrays, columns of tables, sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from pe_lightning.data.random_keys import chosen_positions
from pe_lightning.data.signals import AnyArray, RawSignals, Scaling
from pe_lightning.data.sources.arrays import Channels, in_place, read_arrays
from pe_lightning.data.sources.base import Source, sources
from pe_lightning.data.sources.checks import (
    MAX_PIXELS,
    Size,
    as_size,
    check_choice,
    check_count,
    is_count,
    is_list,
    number_range,
    one_length,
)
from pe_lightning.data.sources.images import Color, read_picture, same_channels
from pe_lightning.data.sources.paths import (
    ARRAYS,
    PICTURES,
    Format,
    Paths,
    SourceFile,
    as_list,
    distinct_names,
    expand,
    format_of,
)
from pe_lightning.data.sources.sound import read_sound
from pe_lightning.data.sources.tables import read_tables
from pe_lightning.errors import InputError

__all__ = ["RowSource"]

Kind: TypeAlias = Literal["images", "arrays", "sound files", "tables"]

_FORMATS: frozenset[Format] = frozenset({*PICTURES, *ARRAYS, "sound", "table"})
_DEFAULT_NUMBER = 16  # rows, and columns, of an image: the papers'
_LINES = ("rows", "columns", "num_rows", "num_columns")
_ARGUMENTS: dict[Kind, tuple[str, ...]] = {
    "images": (*_LINES, "seed", "center_crop", "resize", "color", "max_pixels"),
    "arrays": ("key", "value_range", "channels"),
    "sound files": ("seconds",),
    "tables": ("select", "value_range"),
}
"""Which arguments are for which kind of files; paths and length are for all."""


@sources.register("rows")
@dataclass(eq=False)
class RowSource(Source):
    """Signals of one axis, all of one kind of files: images, arrays, sound or tables, by their content.

    Args:
        paths: One or more files, folders or ``samples://NAME``.
        rows: Images: positions of the rows to take, from 0 at the top.
        columns: Images: positions of the columns to take, from 0 at the left.
        num_rows: Images: how many rows to choose at random, each image its own. If none of these four is given, 16 rows and,
            if all images are square, 16 columns.
        num_columns: Images: how many columns to choose at random.
        seed: Images: of the random rows and columns, a non-negative integer. They depend on it, the image's position and
            its size alone.
        center_crop: Images: the central part to take first, ``n`` or ``[height, width]``.
        resize: Images: the size to resample to first, after the crop, ``n`` or ``[height, width]``.
        color: Images: ``auto``, ``rgb`` or ``grey``.
        max_pixels: Images: refuse a file whose header claims more; ``None`` for no limit.
        select: Tables: names or positions (from 0) of the columns to take; by default all that hold numbers.
        key: Arrays: which one of an ``.npz`` or HDF5 file; not needed where there is only one.
        channels: Arrays: what the last axis of an array of 2 axes is, ``auto``, ``last`` or ``none``
            (:func:`pe_lightning.data.sources.arrays.read_arrays`).
        value_range: Arrays and tables: ``[low, high]``, the numbers that become 0 and 1.
        seconds: Sound: ``[start, stop]`` of the part to take.
        length: Take only the first n samples of each signal.

    Raises:
        InputError: If an argument is malformed; at :meth:`read`, if a file cannot be read, an argument is for another kind
            of files, they are of several kinds, or the signals differ in length.
    """

    paths: Paths
    rows: Sequence[int] | None = None
    columns: Sequence[int] | None = None
    num_rows: int | None = None
    num_columns: int | None = None
    seed: int = 0
    center_crop: Size | None = None
    resize: Size | None = None
    color: Color = "auto"
    max_pixels: int | None = MAX_PIXELS
    select: Sequence[str | int] | None = None
    key: str | None = None
    channels: Channels = "auto"
    value_range: Sequence[float] | None = None
    seconds: Sequence[float] | None = None
    length: int | None = None

    def __post_init__(self) -> None:
        self.paths = as_list(self.paths)
        for name in ("rows", "columns"):
            places, number = getattr(self, name), getattr(self, f"num_{name}")
            check_count(f"num_{name}", number, 0)
            if places is not None and number is not None:
                raise InputError(f"{name} and num_{name} exclude each other: give positions, or how many to choose")
            if places is not None and (not is_list(places, is_count) or not places or len(set(places)) < len(places)):
                raise InputError(f"{name} must be a list of distinct positions, integers >= 0; got {places!r}")
        check_count("seed", self.seed, 0)
        wanted = [getattr(self, name) for name in _LINES if getattr(self, name) is not None]
        if wanted and not any(wanted):
            raise InputError("no row and no column is asked for; set rows, columns, num_rows or num_columns")
        if self.select is not None and not (is_list(self.select, _is_column) and self.select):
            raise InputError(f"select is a list of names or positions of columns; got {self.select!r}")
        as_size("center_crop", self.center_crop)
        as_size("resize", self.resize)
        check_choice("color", self.color, Color)
        check_choice("channels", self.channels, Channels)
        check_count("max_pixels", self.max_pixels, 1)
        check_count("length", self.length, 2)
        self._limits = number_range("value_range", self.value_range)
        self._seconds = number_range("seconds", self.seconds, 0)

    def read(self) -> RawSignals:
        """Describes the signals, ``(S, N, C)``."""
        files = self._files()
        kinds = {_kind(file): file for file in reversed(files)}
        if len(kinds) > 1:
            listed = ", ".join(f"{kind}: {file.given}" for kind, file in sorted(kinds.items()))
            raise InputError(
                f"the paths are of {len(kinds)} kinds ({listed}), but signals that are fitted together come from one kind. "
                "Give the files of one kind, by name or in a folder of their own"
            )
        kind = next(iter(kinds))
        self._check_arguments(kind, files[0])
        if kind == "arrays":
            return read_arrays(files, 1, self.key, self.value_range, self.channels, self.length)
        if kind == "sound files":
            return read_sound(files, self._seconds, self.length)
        if kind == "tables":
            return read_tables(files, self.select, self._limits, self.length)
        return self._read_images(files)

    def files(self) -> list[Path]:
        """The files; none where arrays are read in place."""
        files = self._files()
        return [] if in_place(files) else [file.path for file in files]

    def _files(self) -> list[SourceFile]:
        return expand(self.paths, _FORMATS, "image, array, sound file or table")

    def _check_arguments(self, kind: Kind, file: SourceFile) -> None:
        """Raises :class:`InputError` if an argument has been set that is for another kind of files."""
        defaults = RowSource.__dataclass_fields__
        for name in sorted({name for names in _ARGUMENTS.values() for name in names}):
            if name not in _ARGUMENTS[kind] and getattr(self, name) != defaults[name].default:
                meant = " and ".join(other for other, names in _ARGUMENTS.items() if name in names)
                raise InputError(
                    f"{name} is for {meant}, but {file.given!r} is one of {kind}; leave {name} out. For {kind} there are: "
                    f"{', '.join(_ARGUMENTS[kind])}, length"
                )

    def _read_images(self, files: Sequence[SourceFile]) -> RawSignals:
        by_default = all(getattr(self, name) is None for name in _LINES)
        found: list[tuple[SourceFile, str, list[int], AnyArray]] = []
        square = True
        for number, file in enumerate(files):
            image = read_picture(file, self.center_crop, self.resize, False, self.max_pixels)
            image = same_channels([image], self.color)[0]
            square = square and image.shape[0] == image.shape[1]
            for axis, name in enumerate(("rows", "columns")):
                count = _DEFAULT_NUMBER if by_default else getattr(self, f"num_{name}")
                places = self._places(file, number, axis, name, image.shape[axis], count)
                if places:
                    found.append((file, name, places, np.moveaxis(image, axis, 0)[places]))
        if by_default and not square:
            rank_zero_info(
                f"Rows and columns of images that are not square differ in length: only {_DEFAULT_NUMBER} random rows of "
                "each are taken. Set center_crop or resize for columns too."
            )
            found = [entry for entry in found if entry[1] == "rows"]
        samples = one_length(
            [(f"{file.given} ({name})", lines.shape[1]) for file, name, _, lines in found],
            self.length,
            ", or center_crop or resize to make the images square and of one size",
        )
        channels = max(lines.shape[2] for *_, lines in found)
        # one channel of a grey image among coloured ones becomes three
        values = np.concatenate([np.broadcast_to(v[:, :samples], (len(v), samples, channels)) for *_, v in found])
        names = [(file, f"{file.stem}-{name[:3]}{place}") for file, name, places, _ in found for place in places]
        return RawSignals(
            names=distinct_names(names),
            grid=(samples,),
            channels=channels,
            stored="float32",
            scaling=Scaling("float32"),
            unit=True,
            blocks=partial(iter, values),
        )

    def _places(self, file: SourceFile, number: int, axis: int, name: str, size: int, count: int | None) -> list[int]:
        """Which rows, or which columns, of an image are taken."""
        if count is not None and count > size:
            raise InputError(
                f"{file.given!r} has {size} {name}, fewer than num_{name}: {count}; set num_{name}: {size} or less"
            )
        places = list(getattr(self, name) or [])
        if beyond := [place for place in places if place >= size]:
            raise InputError(f"{file.given!r} has no place {beyond[0]} among its {name}: they are 0 to {size - 1}")
        # rows and columns of every image are drawn for themselves
        return [int(place) for place in chosen_positions(self.seed, 2 * number + axis, size, count)] if count else places


def _is_column(column: object) -> bool:
    return isinstance(column, str) or is_count(column)


def _kind(file: SourceFile) -> Kind:
    """By its content, or by its suffix where that says nothing."""
    format = format_of(file.path)
    if format in PICTURES:
        return "images"
    if format in ARRAYS:
        return "arrays"
    if format == "sound":
        return "sound files"
    if format == "table":
        return "tables"
    raise InputError(f"{file.given!r} is no source of 1-D signals: those are images, arrays, sound files and tables")
