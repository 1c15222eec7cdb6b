"""The base class of sources, and their registry."""

# no postponed annotations: jsonargparse evaluates those of a base in the module of the subclass
import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pe_lightning.registry import Registry
from pe_lightning.signals.raw import AnyArray, RawSignals

if TYPE_CHECKING:
    from pe_lightning.signals.batches import SignalInfo


class Source(ABC):
    """Reads one kind of input as a set of signals of one shape.

    The arguments of the constructor are the user's options, each stored as an attribute of the same name. The constructor
    checks them without reading data. ``docs/data.md`` has an example.
    """

    metric: ClassVar[str] = "psnr"
    """Name of the registered metric that scores signals of this kind."""
    limits: ClassVar[frozenset[str]] = frozenset({"max_pixels"})
    """Arguments that can refuse input but do not change the result; :meth:`describe` omits them."""

    @abstractmethod
    def read(self) -> RawSignals:
        """Describes the signals. They are decoded later, unless the cache has them."""

    def files(self) -> Sequence[Path]:
        """The files that are decoded. The cache is keyed by their content; without files nothing is cached."""
        return ()

    def describe(self) -> dict[str, Any]:
        """The arguments as plain values, for ``metrics.json`` and the key of the cache."""
        arguments = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: _plain(getattr(self, name)) for name in arguments if name not in self.limits}

    def write(self, path: Path, values: AnyArray, info: "SignalInfo", index: int) -> Path | None:
        """Writes one reconstruction in a format specific to the source.

        Args:
            path: Path without a suffix.
            values: ``(N_1, ..., N_D, C)``, nominally in [0, 1].
            info: Shape and origin of the signals.
            index: Index of the signal.

        Returns:
            The file; ``None`` if the source has no such format, so that the signal's ``media`` decides.
        """
        return None


sources: Registry[Source] = Registry(
    "source",
    Source,  # type: ignore[type-abstract]
    "pe_lightning.sources",
    modules=("pe_lightning.signals.sources.labelled", "pe_lightning.signals.sources.points"),
)
"""All sources by name; other packages add theirs in the entry-point group ``pe_lightning.sources``."""


def _plain(value: Any) -> Any:
    if isinstance(value, PathLike):
        return fspath(value)
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
