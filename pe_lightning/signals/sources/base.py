"""The base class of sources, and their registry."""

# no postponed annotations: jsonargparse evaluates those of a base in the module of the subclass
import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, ClassVar

from pe_lightning.registry import Registry
from pe_lightning.signals.raw import RawSignals
from pe_lightning.signals.sources.clips import Color
from pe_lightning.signals.sources.missing import Missing, MissingLike
from pe_lightning.signals.sources.paths import Paths, as_list
from pe_lightning.signals.validation import MAX_PIXELS, Size, as_size, choice, integer, number_range


class Source(ABC):
    """Reads one kind of input as a set of signals of one shape.

    The arguments of the constructor are the user's options, each stored as an attribute of the same name. The constructor
    checks them without reading data. ``docs/data.md`` has an example.
    """

    metric: ClassVar[str] = "psnr"
    """Name of the registered metric that scores signals of this kind."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Suffixes of the files that it reads without being named, in lower case: ``(".xyz",)``."""
    chosen_by: ClassVar[frozenset[str]] = frozenset()
    """Arguments that no other source has and that choose this source, whatever the suffix of the file."""
    datamodule: ClassVar[str] = "SignalDataModule"
    """Registered name of the DataModule with its arguments; ``SignalDataModule`` takes any source."""
    num_axes: ClassVar[int | None] = None
    """Number of axes of its signals, if it is fixed; it chooses the recipe of a kind that has none."""
    limits: ClassVar[frozenset[str]] = frozenset({"max_pixels"})
    """Arguments that can refuse input but do not change the result; :meth:`describe` omits them."""

    @abstractmethod
    def read(self) -> RawSignals:
        """Describes the signals. They are decoded later, unless the cache has them."""

    @classmethod
    def claims(cls, path: Path) -> bool:
        """Whether it reads a file, or a folder as one file, without being named: by default by :attr:`suffixes`."""
        return path.name.lower().endswith(cls.suffixes) and not path.is_dir()

    @classmethod
    def recipe_group(cls, files: Sequence[Path]) -> str | None:
        """Folder of the recipes for these files; ``None``: the registered name of the source."""
        return None

    @classmethod
    def alternative(cls, path: Path) -> str | None:
        """A notice how this source reads a table of which every column is read as a row; ``None``: it does not."""
        return None

    def files(self) -> Sequence[Path]:
        """The files that are decoded. The cache is keyed by their content; without files nothing is cached."""
        return ()

    def trained_range(self, low: float, high: float) -> tuple[float, float] | None:
        """The range of floating-point values that becomes [0, 1], from the extremes of those that are trained on.

        ``None``, the default: the range that :meth:`read` declares, which follows from arguments or from all values.
        """
        return None

    def describe(self) -> dict[str, Any]:
        """The arguments as plain values, for ``metrics.json`` and the key of the cache."""
        arguments = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: _plain(getattr(self, name)) for name in arguments if name not in self.limits}


@dataclass(eq=False)
class FileSource(Source):
    """Signals of pictures, clips, arrays or tables: the common arguments, which subclasses document, checked."""

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

    def trained_range(self, low: float, high: float) -> tuple[float, float] | None:
        """That of the trained values, unless it is an argument; values within [0, 1] are unchanged."""
        if self.value_range is not None:
            return None
        return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)

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
