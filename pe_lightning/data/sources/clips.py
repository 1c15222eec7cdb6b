"""A stack of frames that is described, but not read: which frames, and what is done to each when it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from PIL import Image

from pe_lightning.data.signals import AnyArray, Media, Scaling
from pe_lightning.data.sources.paths import SourceFile
from pe_lightning.errors import InputError

__all__ = ["Clip", "check_frames", "frames_at_once"]

Edit: TypeAlias = Callable[[AnyArray], AnyArray]

BLOCK_BYTES = 2**24
"""About how much is decoded at a time."""

_LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601, as images


def frames_at_once(frame_bytes: int) -> int:
    """How many frames are decoded at a time."""
    return max(1, BLOCK_BYTES // max(1, frame_bytes))


def check_frames(frames: object) -> None:
    """Raises :class:`InputError` unless ``frames`` are the arguments of a ``slice`` with a positive step, or ``None``."""
    if frames is None or (
        isinstance(frames, (list, tuple))
        and len(frames) in (2, 3)
        and all(number is None or (isinstance(number, int) and not isinstance(number, bool)) for number in frames)
        and (len(frames) == 2 or frames[2] is None or frames[2] > 0)
    ):
        return
    raise InputError(
        f"frames must be [start, stop] or [start, stop, step] of integers or null, the step at least 1; got {frames!r}"
    )


@dataclass(frozen=True)
class Clip:
    """A video, a frame folder or a volume: ``T`` frames of ``H`` x ``W`` values of ``C`` channels.

    Args:
        file: Where it is read from.
        frames: Which of its frames, ascending.
        size: ``(H, W)``; it, ``channels`` and ``stored``, the dtype, are those after ``edits``.
        scaling: Range and dtype of the source.
        read: Decodes some of the file's frames: ``(n, H', W', C')`` arrays that follow one another.
        rate: Frames per second of ``frames``, if known.
        unit: Whether the values are in [0, 1] already.
        stem: The stem of its name; the file's by default.
        edits: What is done to every decoded array, in order; each returns as many frames.
    """

    file: SourceFile
    frames: range
    size: tuple[int, int]
    channels: int
    stored: str
    scaling: Scaling
    media: Media
    read: Callable[[range], Iterator[AnyArray]]
    rate: float | None = None
    unit: bool = False
    stem: str = ""
    edits: tuple[Edit, ...] = ()

    @property
    def grid(self) -> tuple[int, int, int]:
        """``(T, H, W)``."""
        return len(self.frames), *self.size

    def blocks(self) -> Iterator[AnyArray]:
        """The chosen frames, edited: ``(n, H, W, C)`` arrays that follow one another."""
        for block in self.read(self.frames):
            for edit in self.edits:
                block = edit(block)
            yield block

    def picked(self, frames: Sequence[int | None]) -> Clip:
        """``clip[start:stop:step]`` along the first axis; :class:`InputError` if it reaches outside."""
        total, span = len(self.frames), slice(*frames)
        if not all(edge is None or -total <= edge <= total for edge in (span.start, span.stop)):
            raise InputError(f"frames {list(frames)} is beyond {self.file.given!r}, which has {total} frames or slices")
        rate = None if self.rate is None else self.rate / (span.step or 1)
        return replace(self, frames=self.frames[span], rate=rate)

    def cropped(self, size: tuple[int | None, int, int]) -> Clip:
        """The central ``(t, h, w)``; all frames where ``t`` is ``None``; :class:`InputError` if the clip is smaller."""
        wanted = (len(self.frames) if size[0] is None else size[0], size[1], size[2])
        if any(part > whole for part, whole in zip(wanted, self.grid, strict=True)):
            raise InputError(
                f"the central {'x'.join(map(str, wanted))} was asked of {self.file.given!r}, which has "
                f"{'x'.join(map(str, self.grid))} samples (first axis x height x width); set a smaller center_crop"
            )
        first, top, left = ((whole - part) // 2 for part, whole in zip(wanted, self.grid, strict=True))

        def crop(block: AnyArray) -> AnyArray:
            return block[:, top : top + wanted[1], left : left + wanted[2]]

        frames = self.frames[first : first + wanted[0]]
        return replace(self, frames=frames, size=wanted[1:], edits=(*self.edits, crop))

    def resized(self, size: tuple[int, int]) -> Clip:
        """Every frame resampled to ``(h, w)`` by Pillow's bicubic filter, widened where it shrinks (so it is anti-aliased).

        The dtype stays: integers are rounded. Values are clipped to the range of their frame.
        """

        def resize(block: AnyArray) -> AnyArray:
            return np.stack([_resampled(frame, size) for frame in block])

        return self if self.size == size else replace(self, size=size, edits=(*self.edits, resize))

    def recolored(self, channels: int) -> Clip:
        """From one channel to three equal ones, or from RGB to luma (0.299 R + 0.587 G + 0.114 B)."""

        def repeat(block: AnyArray) -> AnyArray:
            return np.repeat(block, 3, axis=-1)

        def luma(block: AnyArray) -> AnyArray:
            grey: AnyArray = (block @ _LUMA)[..., None]
            return (np.rint(grey) if block.dtype.kind in "iu" else grey).astype(block.dtype)

        if self.channels == channels:
            return self
        return replace(self, channels=channels, edits=(*self.edits, repeat if channels == 3 else luma))

    def converted(self, dtype: str) -> Clip:
        """8-bit values as ``uint16`` or ``float32``, 16-bit ones as ``float32``; each has the same place in the range."""
        if self.stored == dtype:
            return self
        peak = np.iinfo(self.stored).max

        def widen(block: AnyArray) -> AnyArray:
            wide: AnyArray = block.astype(dtype) * np.uint16(257) if dtype == "uint16" else block / np.float32(peak)
            return wide

        scaling = Scaling.of_integers(dtype) if dtype == "uint16" else Scaling(dtype)
        return replace(self, stored=dtype, scaling=scaling, unit=dtype == "float32", edits=(*self.edits, widen))


def _resampled(frame: AnyArray, size: tuple[int, int]) -> AnyArray:
    """``(H, W, C)`` to ``(*size, C)``."""
    turned = (size[1], size[0])  # Pillow's (width, height)
    if frame.dtype == np.uint8 and frame.shape[-1] == 3:
        pixels: AnyArray = np.asarray(Image.fromarray(np.ascontiguousarray(frame)).resize(turned, Image.Resampling.BICUBIC))
    else:
        planes = [Image.fromarray(np.ascontiguousarray(plane, dtype=np.float32)) for plane in np.moveaxis(frame, -1, 0)]
        pixels = np.stack([np.asarray(plane.resize(turned, Image.Resampling.BICUBIC)) for plane in planes], axis=-1)
    if frame.dtype.kind in "iu":
        pixels = np.rint(pixels)
    return np.clip(pixels, frame.min(), frame.max()).astype(frame.dtype)
