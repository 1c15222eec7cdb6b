"""What a page embeds, each distinct thing once: pictures, and the values of rows."""

from __future__ import annotations

import base64
import hashlib
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from pe_lightning.experiments.compare.reading import Run, Signal

__all__ = ["Entry", "Shelf", "as_picture"]


@dataclass(frozen=True)
class Entry:
    """A signal of a run.

    Args:
        run: The run.
        signal: The signal.
        stem: What its files are called.
        grid: Samples per axis; empty if ``metrics.json`` does not tell.
    """

    run: Run
    signal: Signal
    stem: str
    grid: tuple[int, ...]

    @property
    def subject(self) -> tuple[str, Signal, tuple[int, ...]]:
        """What the reconstruction is of: equal for two runs that were fitted to the same signal."""
        return self.run.metrics.get("data_fingerprint") or str(self.run.path), self.signal, self.grid


class Shelf:
    """Keeps texts by the digest of what they encode; several threads may add at a time."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._keys: dict[str, str] = {}

    def add_picture(self, image: Image.Image, size: tuple[int, int]) -> str:
        """Encodes an image at this size unless it is there already, as most truths are. Returns its digest.

        Lossless, as the artefacts one looks for must not be the codec's. Smaller than PNG, in a third of the time.
        """
        if image.size != size:
            image = image.resize(size, Image.Resampling.BOX)
        digest = hashlib.sha256(f"{size}".encode() + image.tobytes()).hexdigest()
        if digest not in self._texts:
            buffer = io.BytesIO()
            image.save(buffer, "WEBP", lossless=True, method=2, quality=20)
            self._texts[digest] = f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        return digest

    def add_array(self, values: npt.NDArray[Any]) -> str:
        """Encodes an array as base64 of its bytes, row-major, little-endian. Returns its digest."""
        content = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        digest = hashlib.sha256(f"{values.dtype.name}{values.shape}".encode() + content).hexdigest()
        if digest not in self._texts:
            self._texts[digest] = base64.b64encode(content).decode()
        return digest

    def key(self, digest: str) -> str:
        """The name on the page of what has this digest: ``p0``, ``p1``, … in the order in which they are asked for."""
        return self._keys.setdefault(digest, f"p{len(self._keys)}")

    @property
    def contents(self) -> dict[str, str]:
        """Name -> text, of everything that has a name."""
        return {key: self._texts[digest] for digest, key in self._keys.items()}


def as_picture(levels: npt.NDArray[np.uint8]) -> Image.Image:
    """``(H, W, C)`` of 1 to 4 channels in RGB: grey, grey + alpha, RGB, RGB + alpha, without the alpha."""
    return Image.fromarray(levels[..., 0] if levels.shape[-1] < 3 else levels[..., :3]).convert("RGB")
