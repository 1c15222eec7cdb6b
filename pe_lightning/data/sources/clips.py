"""A stack of frames that is described, but not read: which frames, and what is done to each when it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from PIL import Image

from pe_lightning.data.signals import AnyArray, Media, Scaling
from pe_lightning.data.sources.sources import Source
from pe_lightning.errors import InputError

__all__ = [
    "Clip",
    "check_area",
    "check_frames",
    "converted",
    "cropped",
    "first_axis",
    "frames_per_slab",
    "picked",
    "recolored",
    "resized",
]

SLAB_BYTES = 2**24
"""About how much is decoded at a time."""

Edit: TypeAlias = Callable[[AnyArray], AnyArray]

_LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601, as images


@dataclass(frozen=True)
class Clip:
    """A video, a frame folder or a volume: ``T`` frames of ``H`` x ``W`` values of ``C`` channels.

    Args:
        source: Where it is read from, and its name in messages.
        frames: Which of the source's frames, ascending.
        height: ``H``, after ``edits``.
        width: ``W``, after ``edits``.
        channels: ``C``, after ``edits``.
        stored: NumPy's name of the dtype, after ``edits``.
        scaling: Range and dtype of the source.
        unit: Whether the values are in [0, 1] already.
        media: What it is.
        read: Decodes some of the source's frames: ``(n, H', W', C')`` arrays that follow one another.
        rate: Frames per second of ``frames``, if known.
        missing: How the source shows that it was cut short; empty if it does not.
        edits: What is done to every decoded array, in order; each keeps the number of frames.
    """

    source: Source
    frames: range
    height: int
    width: int
    channels: int
    stored: str
    scaling: Scaling
    unit: bool
    media: Media
    read: Callable[[range], Iterator[AnyArray]]
    rate: float | None = None
    missing: str = ""
    edits: tuple[Edit, ...] = ()

    @property
    def grid(self) -> tuple[int, int, int]:
        """``(T, H, W)``."""
        return len(self.frames), self.height, self.width

    def slabs(self) -> Iterator[AnyArray]:
        """The chosen frames, edited: ``(n, H, W, C)`` arrays that follow one another."""
        for slab in self.read(self.frames):
            yield self.edit(slab)

    def edit(self, slab: AnyArray) -> AnyArray:
        """All edits, in order."""
        for edit in self.edits:
            slab = edit(slab)
        return slab


def frames_per_slab(frame_bytes: int) -> int:
    """How many frames are decoded at a time."""
    return max(1, SLAB_BYTES // max(1, frame_bytes))


def first_axis(media: Media) -> str:
    """What one step along the first axis is called in messages."""
    return "frame" if media == "video" else "slice"


def check_area(given: str, height: int, width: int, max_pixels: int | None) -> None:
    """Raises :class:`InputError` if a frame claims more than ``max_pixels``."""
    if max_pixels is not None and height * width > max_pixels:
        raise InputError(
            f"{given!r} claims frames of {height}x{width} (height x width), {height * width} pixels, more than max_pixels, "
            f"{max_pixels}; nothing was decoded. If the file is genuine, set max_pixels: {height * width}, or shrink it"
        )


def picked(clip: Clip, frames: Sequence[int | None] | None) -> Clip:
    """``clip[start:stop:step]`` along the first axis, but what lies outside is an error.

    Args:
        clip: What to take from.
        frames: ``[start, stop]`` or ``[start, stop, step]`` as in a Python slice; negative numbers count from the end,
            ``None`` is the first, the last, or 1. The step is positive.

    Raises:
        InputError: If ``frames`` is malformed, reaches outside, or leaves fewer than 2; or the source was cut short, and
            ``frames`` does not say where to stop.
    """
    total, word = len(clip.frames), first_axis(clip.media)
    start, stop, step = check_frames(frames) or (None, None, 1)
    for name, value, highest in (("start", start, total - 1), ("stop", stop, total)):
        if value is not None and not -total <= value <= highest:
            raise InputError(
                f"frames {list(frames or ())} asks for {name} {value}, but {clip.source.given!r} has {total} {word}s; set "
                f"{name} to at most {highest}, or to null"
            )
    if clip.missing and (stop is None or stop < 0 or (start or 0) < 0):
        raise InputError(
            f"{clip.source.given!r} is truncated: {clip.missing}. Set frames: [0, {total}] for its first {total} {word}s, "
            "which are whole, or copy or download it again"
        )
    chosen = clip.frames[start:stop:step]
    if len(chosen) < 2:
        asked = f", and frames {list(frames)} leaves {len(chosen)}" if frames is not None else ""
        raise InputError(
            f"{clip.source.given!r} has {total} {word}(s){asked}: a signal needs at least 2 samples on each axis"
        )
    return replace(clip, frames=chosen, rate=None if clip.rate is None else clip.rate / step)


def check_frames(frames: Sequence[int | None] | None) -> tuple[int | None, int | None, int] | None:
    """``(start, stop, step)``.

    Raises:
        InputError: If it is not two or three integers or ``None``, or the step is not positive.
    """
    if frames is None:
        return None
    numbers = list(frames) if isinstance(frames, (list, tuple)) else []
    whole = all(number is None or (isinstance(number, int) and not isinstance(number, bool)) for number in numbers)
    if len(numbers) not in (2, 3) or not whole:
        raise InputError(f"frames must be [start, stop] or [start, stop, step] of integers or null; got {frames!r}")
    step = 1 if len(numbers) == 2 or numbers[2] is None else numbers[2]
    if step < 1:
        raise InputError(f"the step of frames must be at least 1; got {frames!r}")
    return numbers[0], numbers[1], step


def cropped(clip: Clip, size: tuple[int | None, int, int]) -> Clip:
    """The central ``(t, h, w)``; all frames where ``t`` is ``None``.

    Raises:
        InputError: If it is larger than the clip.
    """
    wanted = (len(clip.frames) if size[0] is None else size[0], size[1], size[2])
    if any(part > whole for part, whole in zip(wanted, clip.grid, strict=True)):
        fits = [min(part, whole) for part, whole in zip(wanted, clip.grid, strict=True)]
        raise InputError(
            f"a central part of {_by(wanted)} was asked of {clip.source.given!r}, which has {clip.grid[0]} "
            f"{first_axis(clip.media)}s of {_by(clip.grid[1:])} (height x width); set center_crop to at most {fits}, or "
            "leave the source out"
        )
    first, top, left = ((whole - part) // 2 for part, whole in zip(wanted, clip.grid, strict=True))
    rows, columns = slice(top, top + wanted[1]), slice(left, left + wanted[2])

    def crop(slab: AnyArray) -> AnyArray:
        return slab[:, rows, columns]

    frames = clip.frames[first : first + wanted[0]]
    return replace(clip, frames=frames, height=wanted[1], width=wanted[2], edits=(*clip.edits, crop))


def resized(clip: Clip, size: tuple[int, int]) -> Clip:
    """Every frame resampled to ``(h, w)`` by Pillow's bicubic filter, widened where it shrinks (so it is anti-aliased).

    The dtype is kept: integers are rounded. Values are clipped to the range of their frame. The aspect ratio is not kept.
    """
    if (clip.height, clip.width) == size:
        return clip

    def resize(slab: AnyArray) -> AnyArray:
        return np.stack([_resample(frame, size) for frame in slab])

    return replace(clip, height=size[0], width=size[1], edits=(*clip.edits, resize))


def _resample(frame: AnyArray, size: tuple[int, int]) -> AnyArray:
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


def recolored(clip: Clip, channels: int) -> Clip:
    """From one channel to three equal ones, or from RGB to luma (0.299 R + 0.587 G + 0.114 B)."""
    if clip.channels == channels:
        return clip

    def repeat(slab: AnyArray) -> AnyArray:
        return np.repeat(slab, 3, axis=-1)

    def luma(slab: AnyArray) -> AnyArray:
        grey: AnyArray = (slab @ _LUMA)[..., None]
        return (np.rint(grey) if slab.dtype.kind in "iu" else grey).astype(slab.dtype)

    return replace(clip, channels=channels, edits=(*clip.edits, repeat if channels == 3 else luma))


def converted(clip: Clip, dtype: str) -> Clip:
    """8-bit values as ``uint16`` or ``float32``, 16-bit ones as ``float32``; each keeps its place in the range."""
    if clip.stored == dtype:
        return clip
    peak = int(np.iinfo(clip.stored).max)

    def widen(slab: AnyArray) -> AnyArray:
        wide: AnyArray = slab.astype(dtype) * np.uint16(257) if dtype == "uint16" else slab / np.float32(peak)
        return wide

    scaling = Scaling.of_integers(dtype) if dtype == "uint16" else Scaling(dtype)
    return replace(clip, stored=dtype, scaling=scaling, unit=dtype == "float32", edits=(*clip.edits, widen))


def _by(numbers: Sequence[int]) -> str:
    return "x".join(str(number) for number in numbers)
