"""Video files through PyAV, decoded a few frames at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import av.error
import numpy as np
import numpy.typing as npt
from lightning.pytorch.utilities import rank_zero_info

from pe_lightning.data.signals import AnyArray, Scaling
from pe_lightning.data.sources.clips import Clip, frames_per_slab
from pe_lightning.data.sources.decode import MAX_PIXELS
from pe_lightning.data.sources.sources import Source
from pe_lightning.data.sources.timing import plan
from pe_lightning.data.sources.tracks import Track, decoding, opened, survey
from pe_lightning.errors import InputError

__all__ = ["VIDEO_SUFFIXES", "read_video"]

VIDEO_SUFFIXES = frozenset(
    {
        ".3gp",
        ".avi",
        ".flv",
        ".m2ts",
        ".m4v",
        ".mkv",
        ".mov",
        ".mp4",
        ".mpeg",
        ".mpg",
        ".mts",
        ".ogv",
        ".ts",
        ".webm",
        ".wmv",
    }
    | {".y4m"}
)
"""What counts as a video inside a folder."""

_ACCURATE = 0x4 | 0x2000 | 0x40000 | 0x80000  # swscale: bicubic chroma, full chroma, exact rounding, same on all machines


def read_video(source: Source, fps: float | None = None, max_pixels: int | None = MAX_PIXELS) -> Clip:
    """Describes a video; frames are decoded when the clip is read, a few at a time.

    Frames come in presentation order, as 8-bit RGB, or as 16-bit RGB from sources of more bits; grey ones have one channel.
    The colour matrix and range that the file states are applied (BT.601 and limited range where it states none), as is its
    rotation. Its pixel aspect ratio is ignored: samples are the stored ones. So are its sound and its transparency.

    Args:
        source: The file; its content decides the format, not its suffix.
        fps: Frames per second to resample to: the latest frame shown at each time. ``None`` keeps the clip's frames; if
            they come at uneven times, it is resampled to its mean rate, with a notice.
        max_pixels: Refuse frames that claim more; ``None`` for no limit.

    Raises:
        InputError: If it is not a video, is damaged or cut short, has fewer than 2 frames, or claims too large ones.
    """
    track = survey(source, max_pixels)
    if len(track.times) < 2:
        raise InputError(f"{source.given!r} has {len(track.times)} frame(s); a video signal needs at least 2")
    timing = plan(track.times, track.tick, track.nominal, fps)
    if not timing.even and fps is None:
        rank_zero_info(
            f"{source.given!r} has a variable frame rate: resampled to its mean, {timing.rate:.6g} frames per second. "
            "Set fps to choose the rate"
        )
    dtype = "uint16" if track.pixels.endswith("le") else "uint8"
    return Clip(
        source=source,
        frames=range(len(timing.index)),
        height=track.height,
        width=track.width,
        channels=1 if track.pixels.startswith("gray") else 3,
        stored=dtype,
        scaling=Scaling.of_integers(dtype),
        unit=False,
        media="video",
        read=partial(_decode, source, track, timing.index),
        rate=timing.rate,
        missing=track.missing,
    )


def _decode(source: Source, track: Track, index: npt.NDArray[np.int64], frames: range) -> Iterator[AnyArray]:
    """Decodes ``index[frames]``, which ascends, from the start of the file: ``(n, H, W, C)`` arrays."""
    wanted = index[frames.start : frames.stop : frames.step]
    limit = frames_per_slab(track.height * track.width * 6)
    slab: list[AnyArray] = []
    number, place = 0, 0
    with opened(source) as (container, stream):
        decoded = decoding(container, stream)
        while place < len(wanted):
            try:
                frame = next(decoded, None)
            except av.error.InvalidDataError:
                frame = None
            if frame is None:
                raise _cut_short(source, len(wanted), number, int(np.searchsorted(index, number)))
            if wanted[place] == number:
                if frame.is_corrupt:
                    raise _spoiled(source, int(np.searchsorted(index, number)))
                array = _to_array(frame, track, source)
                while place < len(wanted) and wanted[place] == number:
                    slab.append(array)
                    place += 1
                    if len(slab) == limit:
                        yield np.stack(slab)
                        slab = []
            number += 1
    if slab:
        yield np.stack(slab)


def _to_array(frame: Any, track: Track, source: Source) -> AnyArray:
    if (frame.height, frame.width) != track.coded:
        raise InputError(
            f"{source.given!r} changes its size from {track.coded[0]}x{track.coded[1]} to {frame.height}x{frame.width} "
            "(height x width) on the way; convert it to one size, or set frames to a part of one size"
        )
    array: AnyArray = frame.reformat(format=track.pixels, interpolation=_ACCURATE).to_ndarray()
    return track.turn(array.reshape(*array.shape[:2], -1))


def _cut_short(source: Source, wanted: int, decoded: int, usable: int) -> InputError:
    advice = f"Set frames: [0, {usable}], or copy" if usable >= 2 else "Copy"
    return InputError(
        f"{source.given!r} is truncated or damaged: only its first {decoded} frames can be decoded, and {wanted} were to be "
        f"read. {advice} or download it again"
    )


def _spoiled(source: Source, frame: int) -> InputError:
    before = f", such as [0, {frame}]" if frame >= 2 else ""
    return InputError(
        f"{source.given!r}: frame {frame} is damaged, or refers to frames that were cut off. Set frames to a part without "
        f"it{before} or [{frame + 1}, null], or copy or download the file again"
    )
