"""Filled signals, and the files that they are written to."""

from __future__ import annotations

import io
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pe_fill.formats.editable import EditableFile
from pe_fill.plans.signal import FilledSignal
from pe_lightning.errors import InputError
from pe_lightning.signals.files import replacing
from pe_lightning.signals.raw import AnyArray, Mask


@dataclass(repr=False)
class Filled:
    """Filled signals.

    Args:
        values: In the shape and dtype of the given values.
        missing: Where a value was missing, of the same shape.
        signals: Each signal: its model and its scores.
        original: The file or array of the known values.
        stack: The values as ``(S, N_1, ..., N_D, C)``.
        std: Standard deviation of the values in units of the source, float32 (float64 where they exceed its range), zero at
            known samples, in the shape of ``values``; of values that were not seen, about 90 % are within 1.645 of it.
            ``None`` without ``std``.
        points: Whether the samples of an enlargement are values at points.
        left: Where a value still is missing, beyond ``max_gap`` or ``max_distance``, in the shape of ``values``.
    """

    values: AnyArray
    missing: Mask
    signals: list[FilledSignal]
    original: EditableFile
    stack: AnyArray
    std: AnyArray | None = None
    points: bool = False
    left: Mask = field(default_factory=lambda: np.zeros((), bool))

    def __repr__(self) -> str:
        score = "no score" if math.isnan(self.score) else f"{self.score:.2f} dB"
        lost = sum(signal.num_missing for signal in self.signals)
        return f"Filled({' x '.join(map(str, self.values.shape))} {self.values.dtype}, {lost} samples were missing, {score})"

    @property
    def score(self) -> float:
        """PSNR in dB of held-out known samples, mean over signals; NaN without folds."""
        found = [float(signal.score.values) for signal in self.signals if signal.score is not None]
        return float(np.mean(found)) if found else math.nan

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Writes a copy of the file with the filled values, in its format and with its metadata; not over the file."""
        if not self.original.suffixes:
            raise InputError("these values come from an array: save them with numpy.save(path, filled.values)")
        check_suffix(Path(path), self.original)
        source = self.original.path
        if source is not None and os.path.exists(path) and os.path.samefile(path, source):
            raise InputError(f"{os.fspath(path)!r} is the file that was filled, and is not replaced: choose another path")
        with replacing(Path(path)) as temporary:
            self.write_to(temporary)
        return Path(path)

    def write_to(self, path: Path) -> None:
        """Writes a new file without checks; with standard deviations where the format holds them."""
        options: dict[str, Any] = {}
        if self.original.holds_std and self.std is not None:
            options["std"] = self.std.reshape(self.stack.shape)
        if self.original.located:
            options["points"] = self.points
        if self.original.marks_left and self.left.any():
            options["left"] = self.left.reshape(self.stack.shape)
        self.original.write(path, self.stack, **options)


def check_suffix(path: Path, original: EditableFile) -> None:
    """Refuses a path with a suffix of another format."""
    name = path.name.lower()
    if not any(name.endswith(suffix) if suffix else not path.suffix for suffix in original.suffixes):
        listed = ", ".join(suffix or "a folder" for suffix in original.suffixes)
        instead = path.with_suffix(original.suffixes[0])
        raise InputError(f"cannot write {str(path)!r}: the result is written as {listed}; type --out {instead}")


def write_std(path: Path, filled: Filled) -> None:
    """Writes standard deviations as float32: ``.tif``, with the coordinates of the file if it has some, or ``.npy``."""
    import tifffile

    assert filled.std is not None
    if path.suffix != ".npy" and filled.original.located:
        filled.original.write(path, filled.std.reshape(filled.stack.shape), deviations=True)
        return
    content = io.BytesIO()  # NumPy does not report a full disk
    if path.suffix == ".npy":
        np.save(content, filled.std)
    else:
        photometric = "rgb" if filled.std.ndim == 3 and filled.std.shape[-1] == 3 else "minisblack"
        tifffile.imwrite(content, filled.std, photometric=photometric)
    path.write_bytes(content.getvalue())
