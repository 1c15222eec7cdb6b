"""Pictures, videos and volumes as clips, sequences of frames that are read later: crop, resize, colour and dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from PIL import Image

from pe_lightning.errors import InputError
from pe_lightning.signals.raw import (
    BLOCK_BYTES,
    AnyArray,
    Decoded,
    RawSignals,
    ValueRange,
    full_value,
    join_scalings,
    to_unit,
)
from pe_lightning.signals.sources.paths import SourceFile, distinct_names
from pe_lightning.signals.validation import Size, check_memory

Color: TypeAlias = Literal["auto", "rgb", "grey"]
Limits: TypeAlias = tuple[float, float] | None
"""The values that become 0 and 1, if they are given."""

LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601
DTYPES = ("uint8", "uint16", "float32")
"""Dtypes of pictures and videos, the narrowest first."""


def frames_at_once(frame_bytes: int) -> int:
    """Number of frames in about :data:`BLOCK_BYTES`."""
    return max(1, BLOCK_BYTES // max(1, frame_bytes))


def in_parts(frames: Sequence[int], frame_bytes: int) -> Iterator[Sequence[int]]:
    """Splits frames into parts of about :data:`BLOCK_BYTES`."""
    limit = frames_at_once(frame_bytes)
    return (frames[start : start + limit] for start in range(0, len(frames), limit))


@dataclass(frozen=True, kw_only=True)
class Clip(RawSignals):
    """A picture (one frame), a video, a frame folder or a volume: one signal, with the grid ``(T, H, W)``.

    Args:
        values: The frames, ``(1, T, H, W, C)``.
        file: The file.
        opacity: Whether the last channel is opacity.
    """

    values: Decoded
    file: SourceFile
    opacity: bool = False

    def loaded(self) -> Clip:
        """The frames in memory."""
        return replace(self, values=held(np.concatenate([np.ascontiguousarray(block) for block in self.blocks()])))

    def picked(self, frames: Sequence[int | None]) -> Clip:
        """``clip[start:stop:step]`` along the first axis."""
        total, span = self.grid[0], slice(*frames)
        if not all(edge is None or -total <= edge <= total for edge in (span.start, span.stop)):
            raise InputError(f"frames {list(frames)} exceeds {self.file.given!r}, which has {total} frames or slices")
        rate = None if self.rate is None else self.rate / (span.step or 1)
        return replace(self, values=self.values.picked(range(total)[span]), rate=rate)

    def cropped(self, size: Sequence[int | None]) -> Clip:
        """The central ``(t, h, w)``; ``None``: all of an axis."""
        wanted = tuple(whole if part is None else part for part, whole in zip(size, self.grid, strict=True))
        if any(part > whole for part, whole in zip(wanted, self.grid, strict=True)):
            flat = self.grid[0] == 1 and size[0] is None
            asked, has = ("x".join(map(str, given[flat:])) for given in (wanted, self.grid))
            raise InputError(
                f"center_crop {asked} is larger than {self.file.given!r}, which has {has} samples "
                f"({'' if flat else 'first axis x '}height x width); set a smaller center_crop"
            )
        first, top, left = ((whole - part) // 2 for part, whole in zip(wanted, self.grid, strict=True))

        def crop(block: AnyArray) -> AnyArray:
            return block[:, top : top + wanted[1], left : left + wanted[2]]

        values = self.values.picked(range(first, first + wanted[0]))
        return replace(self, values=values.edited(crop, (*wanted[1:], self.channels)))

    def resized(self, target: Size) -> Clip:
        """Every frame resampled by Pillow's bicubic filter, anti-aliased, to ``[height, width]`` or a shorter side.

        Integers are rounded. Values are clipped to the range of their frame. NaN is left out; a sample is NaN if less than
        half of the weight of the filter is on known samples.
        """
        if isinstance(target, int):
            target = [max(2, round(target * side / min(self.grid[1:]))) for side in self.grid[1:]]
        size = (target[0], target[1])
        if self.grid[1:] == size:
            return self

        def resize(block: AnyArray) -> AnyArray:
            return np.stack([_resampled(frame, size) for frame in block])

        label = f"{self.file.given!r}, resized,"
        check_memory(label, (*size, 4), 4, "Set a smaller resize")  # Pillow works in 32 bits and up to four channels
        return replace(self, values=self.values.edited(resize, (*size, self.channels)))

    def marked(self, mark: Callable[[AnyArray, str], AnyArray]) -> Clip:
        """Every frame as ``mark(frame, file)`` returns it, with NaN at missing samples, in [0, 1]."""

        def each(block: AnyArray) -> AnyArray:
            return np.stack([to_unit(mark(frame, self.file.given)) for frame in block])

        return replace(self, values=self.values.edited(each, dtype="float32"), unit=True)

    def recolored(self, channels: int, opacity: bool = False) -> Clip:
        """Grey as RGB, or RGB as luma, in the same dtype; ``channels``, 1 or 3, is without opacity.

        ``opacity``: appends a channel of full opacity if there is none.
        """

        def recolor(block: AnyArray) -> AnyArray:
            values, rest = (block[..., :-1], [block[..., -1:]]) if self.opacity else (block, [])
            if values.shape[-1] < channels:
                values = np.repeat(values, channels, axis=-1)
            elif values.shape[-1] > channels:
                luma = (values @ LUMA)[..., None]
                values = (np.rint(luma) if block.dtype.kind in "iu" else luma).astype(block.dtype)
            if opacity and not rest:
                rest = [np.full_like(values[..., :1], full_value(block.dtype))]
            return np.concatenate([values, *rest], axis=-1) if rest else values

        opacity = opacity or self.opacity
        if (self.channels, self.opacity) == (channels + opacity, opacity):
            return self
        values = self.values.edited(recolor, (*self.grid[1:], channels + opacity))
        return replace(self, values=values, opacity=opacity)

    def converted(self, dtype: str) -> Clip:
        """Converts from full range to full range, to a wider dtype of :data:`DTYPES`."""
        if self.stored == dtype:
            return self
        peak = full_value(self.stored)

        def widen(block: AnyArray) -> AnyArray:
            wide: AnyArray = block.astype(dtype) * np.uint16(257) if dtype == "uint16" else block / np.float32(peak)
            return wide

        scaling = ValueRange.of_integers(dtype) if dtype == "uint16" else self.scaling
        return replace(self, values=self.values.edited(widen, dtype=dtype), scaling=scaling, unit=dtype == "float32")


def held(frames: AnyArray) -> Decoded:
    """Frames in memory, ``(T, H, W, C)``."""
    return Decoded((1, *frames.shape), frames.dtype, lambda rows: iter([frames[rows[0] : rows[-1] + 1]]))


def _resampled(frame: AnyArray, size: tuple[int, int]) -> AnyArray:
    turned = (size[1], size[0])  # Pillow's (width, height)
    if frame.dtype == np.uint8 and frame.shape[-1] == 3:
        pixels: AnyArray = np.asarray(Image.fromarray(np.ascontiguousarray(frame)).resize(turned, Image.Resampling.BICUBIC))
    else:
        planes = [np.ascontiguousarray(plane, dtype=np.float32) for plane in np.moveaxis(frame, -1, 0)]
        pixels = np.stack([_resized_plane(plane, turned) for plane in planes], axis=-1)
    if frame.dtype.kind in "iu":
        pixels = np.rint(pixels)
    if frame.dtype.kind == "f" and not np.isfinite(frame.sum()):
        finite = frame[np.isfinite(frame)]
        return np.clip(pixels, *((finite.min(), finite.max()) if finite.size else (0, 1))).astype(frame.dtype)
    return np.clip(pixels, frame.min(), frame.max()).astype(frame.dtype)


def _resized_plane(plane: AnyArray, turned: tuple[int, int]) -> AnyArray:
    def resize(values: AnyArray) -> AnyArray:
        return np.asarray(Image.fromarray(values).resize(turned, Image.Resampling.BICUBIC))

    if np.isfinite(plane.sum()) or (known := np.isfinite(plane)).all():
        return resize(plane)
    share = resize(known.astype(np.float32))
    return np.where(share >= 0.5, resize(np.where(known, plane, 0)) / np.maximum(share, 0.5), np.nan)


def alike(clips: Sequence[Clip], color: Color) -> list[Clip]:
    """Converts clips of one medium to the same channels and, unless they are arrays, to the widest of their dtypes.

    With color ``auto``, channels change only if clips differ, to RGB.
    """
    channels = {clip.channels - clip.opacity for clip in clips}
    if color != "auto" or len(channels) > 1:
        if not channels <= {1, 3}:
            raise InputError(
                f"signals of {sorted(channels)} channels cannot be converted to color {color}: only 1 (grey) and 3 (RGB) "
                "can. Fit them in separate runs, with color auto"
            )
        channels = {1 if color == "grey" else 3}
    target = channels.pop()
    opacity = any(clip.opacity for clip in clips)
    clips = [clip.recolored(target, opacity) for clip in clips]
    if clips[0].media == "array":
        return list(clips)
    widest = max({clip.stored for clip in clips}, key=DTYPES.index)
    return [clip.converted(widest) for clip in clips]


def as_signals(clips: Sequence[Clip], grid: tuple[int, ...], notify: bool) -> RawSignals:
    """Clips that are :func:`alike` as signals with the grid ``(T, H, W)``, or ``(H, W)`` for clips of one frame.

    ``notify``: prints a range that was found in the data.
    """
    first = clips[0]
    scalings = [clip.scaling for clip in clips]
    if first.media != "array":  # the widest range; floating-point pictures may have individual ranges
        widest = max({scaling.dtype for scaling in scalings}, key=DTYPES.index)
        plain = ValueRange(widest) if widest == "float32" else ValueRange.of_integers(widest)
        scalings = [scaling if scaling.dtype == widest else plain for scaling in scalings]
    scaling = join_scalings([(repr(c.file.given), found) for c, found in zip(clips, scalings, strict=True)], notify)
    individual = scaling.dtype == "float32" and scaling != ValueRange("float32")  # which PNG and MP4 cannot hold

    def decode(_: Sequence[int]) -> Iterator[AnyArray]:
        every = (block for clip in clips for block in clip.blocks())
        return every if len(grid) == 3 else (frame for block in every for frame in block)

    return RawSignals(
        Decoded((len(clips), *grid, first.channels), first.values.dtype, decode),
        names=distinct_names([(clip.file, clip.names[0]) for clip in clips]),
        scaling=scaling,
        unit=all(clip.unit for clip in clips),
        rate=first.rate,
        media="array" if individual else first.media,
    )
