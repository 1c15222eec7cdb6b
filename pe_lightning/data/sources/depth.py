"""The dtype in which an image file holds its values, read from its header."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import tifffile

from pe_lightning.data.signals import Scaling

__all__ = ["scaling_of"]

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_BITS = 24
"""Where a PNG's header has the bits per channel."""
_TIFFS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")


def scaling_of(paths: Iterable[Path]) -> Scaling:
    """The range of readable image files: the widest dtype among them, so that nothing is lost on the way back."""
    kinds = {_dtype(path) for path in paths}
    if "float32" in kinds:
        return Scaling("float32")
    return Scaling.of_integers("uint16" if "uint16" in kinds else "uint8")


def _dtype(path: Path) -> str:
    with path.open("rb") as file:
        header = file.read(32)
    if header.startswith(_PNG):
        return "uint16" if header[_PNG_BITS] == 16 else "uint8"
    if header[:4] in _TIFFS:
        with tifffile.TiffFile(path) as tiff:
            dtype = tiff.pages[0].dtype
        if dtype is not None and dtype.kind == "f":
            return "float32"
        return "uint16" if dtype is not None and dtype.itemsize > np.dtype(np.uint8).itemsize else "uint8"
    return "uint8"  # the formats that Pillow reads keep 8 bits
