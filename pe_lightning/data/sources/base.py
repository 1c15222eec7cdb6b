"""What reads signals: the base of all sources, and the registry that a configuration names them by."""

# no postponed annotations: jsonargparse evaluates those of a base in the module of the subclass
import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pe_lightning.data.signals import AnyArray, RawSignals
from pe_lightning.registry import Registry

if TYPE_CHECKING:
    from pe_lightning.data.batches import SignalInfo

__all__ = ["Source", "sources"]


class Source(ABC):
    """Reads one kind of input as a set of signals of one shape.

    The arguments of the constructor are what a user may set. Each is an attribute of the same name. The
    constructor checks them without reading any data. An example is in ``docs/data.md``.
    """

    metric: ClassVar[str] = "psnr"
    """The registered metric that signals of this kind are scored by."""
    limits: ClassVar[frozenset[str]] = frozenset({"max_pixels"})
    """Arguments that refuse input, but never change what is read: :meth:`describe` leaves them out."""

    @abstractmethod
    def read(self) -> RawSignals:
        """Describes the signals. They are decoded later, and only if the cache does not hold them.

        Raises:
            InputError: If the input cannot be read.
        """

    def files(self) -> Sequence[Path]:
        """The files that are decoded. The cache is keyed by their content; without any, nothing is cached."""
        return ()

    def describe(self) -> dict[str, Any]:
        """The arguments as plain values, for ``metrics.json`` and the key of the cache."""
        arguments = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: _plain(getattr(self, name)) for name in arguments if name not in self.limits}

    def write(self, path: Path, values: AnyArray, info: "SignalInfo", index: int) -> Path | None:
        """Writes one reconstruction in a format of the source's own.

        Args:
            path: Where, without a suffix.
            values: ``(N_1, ..., N_D, C)``, around [0, 1].
            info: The signals that were read.
            index: Which of them this is.

        Returns:
            The file; ``None`` if the source has no format of its own, and the signal's ``media`` decides.
        """
        return None


sources: Registry[Source] = Registry("source", Source, "pe_lightning.sources")  # type: ignore[type-abstract]
"""All sources by name; other packages add theirs in the entry-point group ``pe_lightning.sources``."""


def _plain(value: Any) -> Any:
    if isinstance(value, PathLike):
        return fspath(value)
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
