"""Files of a suffix that pe_lightning does not know: how they are read, and written."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from pe_lightning.results.signal_files import Medium
from pe_lightning.signals import SignalInfo
from pe_lightning.signals.raw import RawSignals, ValueRange
from pe_lightning.signals.sources import Source


class Scan(Source):
    """Heights as text, a line per row of one picture: ``.xyz``.

    Args:
        paths: One or more files.
        step: Every step-th row is read.
    """

    suffixes = (".xyz",)
    num_axes = 2

    def __init__(self, paths: str | list[str], step: int = 1) -> None:
        self.paths = [paths] if isinstance(paths, str) else paths
        self.step = step

    def files(self) -> list[Path]:
        """The files."""
        return [Path(path) for path in self.paths]

    def read(self) -> RawSignals:
        """A signal per file; 1 in [0, 1] is 9000 metres."""
        heights = np.stack([np.loadtxt(path, ndmin=2)[:: self.step, :, None] for path in self.paths])
        names = [path.stem for path in self.files()]
        scaling = ValueRange("float64", (0.0,), (9000.0,))
        return RawSignals.in_memory((heights / 9000).astype(np.float32), names, scaling, media="scan")


class ScanMedium(Medium):
    """Heights as text."""

    suffix = "xyz"

    def write(self, file: Path, values: npt.NDArray[np.float32], info: SignalInfo | None, index: int) -> None:
        """Writes a signal in metres."""
        assert info is not None
        np.savetxt(file, info.scaling.restore(values[..., 0], index), fmt="%.3f")
