"""The base class of sources, and their registry."""

# no postponed annotations: jsonargparse evaluates annotations of a base in the module of the subclass
import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from pe_lightning.registry import Registry
from pe_lightning.signals.raw import RawSignals
from pe_lightning.signals.sources.arrays import in_place
from pe_lightning.signals.sources.clips import Color
from pe_lightning.signals.sources.missing import Missing, MissingLike
from pe_lightning.signals.sources.paths import Paths, SourceFile, as_list
from pe_lightning.signals.validation import MAX_PIXELS, Size, as_size, choice, integer, number_range

TrainedRange: TypeAlias = Literal["declared", "measured", "unit"]


class Source(ABC):
    """Reads one kind of input as a set of signals of one shape.

    The constructor stores each argument as an attribute of the same name and checks it without reading data.
    ``docs/data.md`` has an example.
    """

    metric: ClassVar[str] = "psnr"
    """Name of the registered metric that scores signals of this kind."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Lower-case suffixes of the files for which it is chosen: ``(".xyz",)``."""
    chosen_by: ClassVar[frozenset[str]] = frozenset()
    """Arguments that choose this source for any file; no other source has them."""
    datamodule: ClassVar[str] = "SignalDataModule"
    """Registered name of the DataModule with its arguments; ``SignalDataModule`` takes any source."""
    num_axes: ClassVar[int | None] = None
    """Number of axes of its signals, if it is fixed; it chooses the recipe of a kind that has none."""
    limits: ClassVar[frozenset[str]] = frozenset({"max_pixels"})
    """Arguments that can refuse input but do not change the result; :meth:`describe` omits them."""

    @abstractmethod
    def read(self) -> RawSignals:
        """Describes the signals, whose values are read later."""

    @property
    def trained_range(self) -> TrainedRange:
        """The range of floating-point values that becomes [0, 1].

        ``declared``: that of :meth:`read`. ``measured``: from the least to the largest trained value. ``unit``: measured,
        but trained values within [0, 1] are unchanged.
        """
        return "declared"

    @classmethod
    def claims(cls, path: Path) -> bool:
        """Whether the source is chosen for a file, or for a folder as one file: by default by :attr:`suffixes`."""
        return path.name.lower().endswith(cls.suffixes) and not path.is_dir()

    @classmethod
    def recipe_group(cls, files: Sequence[Path]) -> str | None:
        """Folder of the recipes for these files; ``None``: the registered name of the source."""
        return None

    @classmethod
    def alternative(cls, path: Path) -> str | None:
        """A notice how this source would read a table whose columns are read as rows; ``None``: it would not."""
        return None

    def files(self) -> Sequence[Path]:
        """The decoded files, whose content is the key of the cache; without files nothing is cached."""
        return ()

    def describe(self) -> dict[str, Any]:
        """The arguments as plain values, for ``metrics.json`` and the key of the cache."""
        arguments = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: _plain(getattr(self, name)) for name in arguments if name not in self.limits}


@dataclass(eq=False)
class FileSource(Source):
    """Signals of files: the common arguments and their checks.

    Args:
        paths: One or more files, folders (sorted, not recursive) or ``samples://NAME``.
        center_crop: Central part of a picture or a frame to take, ``n`` or ``[height, width]``.
        resize: Size to resample pictures and frames to, ``[height, width]``, or ``n`` for the shorter side. Bicubic,
            anti-aliased, in the dtype of the source.
        color: ``auto``: one channel if all pictures are grey, else RGB. ``rgb``: always three. ``grey``: always one, the
            luma 0.299 R + 0.587 G + 0.114 B, in the dtype of the source.
        max_pixels: Largest number of pixels in the header of a file, checked before decoding; ``None``: no limit.
        key: Name of the array of an ``.npz`` or HDF5 file that has several.
        value_range: Arrays, tables, volumes and floating-point pictures: ``[low, high]``, the values that become 0 and 1.
        missing: What marks missing samples besides NaN and empty cells: ``nan``, ``alpha`` (opacity 0) or a colour
            ``#rrggbb`` of pictures, a number, ``frames:10-14,30`` of clips from 0, or a mask file, not zero there, one
            for all or a list (:class:`pe_lightning.signals.sources.missing.Missing`).
    """

    paths: Paths
    center_crop: Size | None = None
    resize: Size | None = None
    color: Color = "auto"
    max_pixels: int | None = MAX_PIXELS
    key: str | None = None
    value_range: list[float] | None = None
    missing: MissingLike = "nan"

    def __post_init__(self) -> None:
        self.paths = as_list(self.paths)
        self._crop = self._checked_crop()
        as_size("resize", self.resize)
        choice("color", self.color, Color)
        if self.max_pixels is not None:
            integer("max_pixels", self.max_pixels, 1)
        self._limits = number_range("value_range", self.value_range)
        self._missing = Missing(self.missing)

    @property
    def trained_range(self) -> TrainedRange:
        return "unit" if self.value_range is None else "declared"

    def files(self) -> list[Path]:
        """The decoded files and masks; none if all are arrays that are read in place."""
        if self._unedited and in_place(self._found):
            return []
        return [path for file in [*self._found, *self._missing.masks] for path in file.content()]

    @cached_property
    def _found(self) -> list[SourceFile]:
        return self._expanded()

    @abstractmethod
    def _expanded(self) -> list[SourceFile]:
        """The files of ``paths``."""

    @property
    def _unedited(self) -> bool:
        return (self._crop, self.resize, self.color) == (None, None, "auto")

    def _checked_crop(self) -> tuple[int | None, ...] | None:
        return as_size("center_crop", self.center_crop)


sources: Registry[Source] = Registry(
    "source",
    Source,  # type: ignore[type-abstract]
    "pe_lightning.sources",
    modules=[f"pe_lightning.signals.sources.{name}" for name in ("images", "rows", "tensor", "video")],
)
"""All sources by name; other packages add theirs in the entry-point group ``pe_lightning.sources``."""


def _plain(value: Any) -> Any:
    if isinstance(value, PathLike):
        return fspath(value)
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
