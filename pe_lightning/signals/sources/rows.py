"""Signals of one axis: rows and columns of images, arrays, columns of tables, sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import ARRAYS, PICTURES, Format, suffixes_of
from pe_lightning.signals.raw import AnyArray, RawSignals, ValueRange, join_scalings, to_unit
from pe_lightning.signals.sources.arrays import Channels, read_arrays
from pe_lightning.signals.sources.base import FileSource, TrainedRange, sources
from pe_lightning.signals.sources.clips import alike
from pe_lightning.signals.sources.images import edited, read_picture
from pe_lightning.signals.sources.missing import with_missing
from pe_lightning.signals.sources.paths import SourceFile, distinct_names, expand, format_of
from pe_lightning.signals.sources.sound import read_sound
from pe_lightning.signals.sources.tables import read_tables
from pe_lightning.signals.splits import chosen_positions
from pe_lightning.signals.validation import choice, integer, is_integer, number_range, one_length

DEFAULT_LINES = 16
"""Default number of rows and of columns of an image, as in the papers."""
LINE_ARGUMENTS = ("rows", "columns", "num_rows", "num_columns")
KIND_OF_FORMAT: dict[Format | None, str] = {
    **dict.fromkeys(PICTURES, "images"),
    **dict.fromkeys(ARRAYS, "arrays"),
    "sound": "sound files",
    "table": "tables",
}
ARGUMENTS_OF_KIND = {
    "images": (*LINE_ARGUMENTS, "seed", "center_crop", "resize", "color", "max_pixels", "value_range"),
    "arrays": ("key", "value_range", "channels"),
    "sound files": ("seconds",),
    "tables": ("select", "value_range"),
}
"""Arguments that apply to each kind of files; ``paths``, ``length`` and ``missing`` apply to all."""


@sources.register("rows")
@dataclass(eq=False)
class RowSource(FileSource):
    """Signals of one axis from files of one kind, found by content: images, arrays, sound or tables.

    Args:
        rows: Images: indices of the rows to take, from 0 at the top.
        columns: Images: indices of the columns to take, from 0 at the left.
        num_rows: Images: number of random rows of each image. Without ``rows``, ``columns``, ``num_rows`` and
            ``num_columns``: 16 rows and, if all images are square, 16 columns.
        num_columns: Images: number of random columns of each image.
        seed: Images: seed of the random rows and columns, which depend on it and on the index and size of the image alone.
        select: Tables: names or indices (from 0) of the columns to take; by default all columns of numbers.
        channels: Arrays: meaning of the last axis of an array of 2 axes, ``auto``, ``last`` or ``none``
            (:func:`pe_lightning.signals.sources.arrays.read_arrays`).
        seconds: Sound: ``[start, stop]`` of the excerpt to take.
        length: Number of leading samples to take of each signal.
    """

    suffixes = tuple(suffixes_of({"sound", "table"}))
    datamodule = "RowDataModule"

    rows: list[int] | None = None
    columns: list[int] | None = None
    num_rows: int | None = None
    num_columns: int | None = None
    seed: int = 0
    select: list[str | int] | None = None
    channels: Channels = "auto"
    seconds: list[float] | None = None
    length: int | None = None

    @classmethod
    def recipe_group(cls, files: Sequence[Path]) -> str:
        return "row"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rows", "columns"):
            places = getattr(self, name)
            if places is not None and getattr(self, f"num_{name}") is not None:
                raise InputError(f"{name} and num_{name} exclude each other: give indices, or the number to choose")
            distinct = isinstance(places, (list, tuple)) and all(map(is_integer, places)) and len({*places}) == len(places)
            if places is not None and not (places and distinct):
                raise InputError(f"{name} must be a list of distinct integers >= 0; got {places!r}")
        for name, minimum in (("num_rows", 0), ("num_columns", 0), ("seed", 0), ("length", 2)):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name), minimum)
        columns = self.select if isinstance(self.select, (list, tuple)) else []
        if self.select is not None and not (columns and all(isinstance(one, str) or is_integer(one) for one in columns)):
            raise InputError(f"select must be a list of names or indices of columns; got {self.select!r}")
        choice("channels", self.channels, Channels)
        self._seconds = number_range("seconds", self.seconds, 0)

    def read(self) -> RawSignals:
        files = self._found
        kinds = {str(KIND_OF_FORMAT.get(format_of(file.path))): file.given for file in reversed(files)}
        kind = next(iter(kinds))
        if len(kinds) > 1 or kind not in ARGUMENTS_OF_KIND:
            listed = ", ".join(f"{kind}: {given}" for kind, given in kinds.items())
            raise InputError(
                f"signals of one axis are read from files of one kind, {', '.join(ARGUMENTS_OF_KIND)}; got {listed}"
            )
        self._missing.check(kind, *(["alpha", "colour"] if kind == "images" else []))
        allowed = ("paths", "length", "missing", *ARGUMENTS_OF_KIND[kind])
        for field in fields(self):
            if field.name not in allowed and getattr(self, field.name) != field.default:
                raise InputError(
                    f"{field.name} is not for {kind} such as {files[0].given!r}; leave it out. Arguments for {kind}: "
                    f"{', '.join(allowed)}"
                )
        return with_missing(self._read(kind, files), self._missing)

    @property
    def trained_range(self) -> TrainedRange:
        """As for other files; but columns of tables always take their own range, and sound never."""
        kind = KIND_OF_FORMAT.get(format_of(self._found[0].path))
        if kind == "sound files" or self.value_range is not None:
            return "declared"
        return "measured" if kind == "tables" else "unit"

    def _read(self, kind: str, files: Sequence[SourceFile]) -> RawSignals:
        fills = self._missing.values
        if kind == "arrays":
            return read_arrays(files, 1, self.key, self.value_range, self.channels, self.length, fills)
        if kind == "sound files":
            return read_sound(files, self._seconds, self.length)
        if kind == "tables":
            return read_tables(files, self.select, self._limits, self.length, fills)
        return self._read_images(files)

    def _expanded(self) -> list[SourceFile]:
        return expand(self.paths, {*PICTURES, *ARRAYS, "sound", "table"}, "image, array, sound file or table")

    def _read_images(self, files: Sequence[SourceFile]) -> RawSignals:
        by_default = all(getattr(self, name) is None for name in LINE_ARGUMENTS)
        found: list[tuple[SourceFile, str, list[int], AnyArray, ValueRange]] = []
        square = True
        for number, file in enumerate(files):
            picture = read_picture(file, self.max_pixels, self._limits, self._missing)
            (clip,) = alike([edited(picture, self._crop, self.resize)], self.color)
            scaling = clip.scaling if clip.scaling.dtype == "float32" else ValueRange("float32")
            image = to_unit(next(clip.blocks())[0])
            square = square and image.shape[0] == image.shape[1]
            for axis, name in enumerate(("rows", "columns")):
                count = DEFAULT_LINES if by_default else getattr(self, f"num_{name}")
                size, places = image.shape[axis], list(getattr(self, name) or [])
                if max(count or 0, *(place + 1 for place in places), 0) > size:
                    raise InputError(f"{file.given!r} has {size} {name}, fewer than {name} or num_{name} asks for")
                if count:  # independent choices for rows and columns of every image
                    places = [int(place) for place in chosen_positions(self.seed, 2 * number + axis, size, count)]
                if places:
                    found.append((file, name, places, np.moveaxis(image, axis, 0)[places], scaling))
        if by_default and not square:
            rank_zero_info(
                f"Rows and columns of images that are not square differ in length: only {DEFAULT_LINES} random rows of "
                "each image are taken. Set center_crop or resize to take columns too."
            )
            found = [entry for entry in found if entry[1] == "rows"]
        if not found:
            raise InputError("no row and no column is requested; set rows, columns, num_rows or num_columns")
        lengths = [(f"{file.given} ({name})", lines.shape[1]) for file, name, _, lines, _ in found]
        samples = one_length(lengths, self.length)
        channels = max(lines.shape[2] for *_, lines, _ in found)
        # grey images among coloured ones get three equal channels
        values = np.concatenate([np.broadcast_to(v[:, :samples], (len(v), samples, channels)) for *_, v, _ in found])
        names = [(file, f"{file.stem}-{name[:3]}{place}") for file, name, places, *_ in found for place in places]
        scalings = [(repr(file.given), scaling) for file, _, places, _, scaling in found for _ in places]
        scaling = join_scalings(scalings, notify=self._limits is None)
        return RawSignals(values, distinct_names(names), scaling, unit=scaling == ValueRange("float32"))
