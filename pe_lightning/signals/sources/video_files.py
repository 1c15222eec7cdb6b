"""Video files, decoded by PyAV a few frames at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import av
import numpy as np
import numpy.typing as npt
from av.sidedata.sidedata import Type as SideDataType
from av.stream import Disposition

from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray, Decoded, ValueRange
from pe_lightning.signals.sources.clips import Clip, frames_at_once
from pe_lightning.signals.sources.paths import SourceFile, reading
from pe_lightning.signals.validation import check_area

Turn: TypeAlias = Callable[[AnyArray], AnyArray]

SWSCALE_FLAGS = 0x4 | 0x2000 | 0x40000 | 0x80000  # bicubic chroma, full chroma, exact rounding, same on all machines


def even_frames(
    times: npt.NDArray[np.float64], tick: float, stated: float, fps: float | None
) -> tuple[npt.NDArray[np.int64], float, bool]:
    """Chooses the frames shown at equidistant times: their indices, the rate, and whether the video has a constant rate.

    Args:
        times: Presentation times of the frames in seconds, ascending, at least two. The last frame lasts for the mean
            interval.
        tick: Resolution of ``times`` in seconds.
        stated: Rate in the header of the file, or 0; used if it agrees with ``times`` to 1 %.
        fps: Rate to resample to; ``None``: all frames at a constant rate, else the mean rate.

    >>> even_frames(np.array([0, 0.04, 0.08, 0.12]), 0.001, 25, 12.5)[0]
    array([0, 2])
    """
    count = len(times)
    gap = float(times[-1] - times[0]) / (count - 1)
    # allows for jitter, and for times rounded to a tick (a millisecond in Matroska)
    drift = np.abs(times - np.linspace(times[0], times[-1], count)).max()
    even = bool(np.diff(times).max() <= 1.5 * gap + 2 * tick and drift <= 0.5 * gap + tick)
    own = stated if even and abs(stated * gap - 1) < 0.01 else 1 / gap
    if even and fps is None:
        return np.arange(count), own, even
    shown = np.arange(count) / own if even else times - times[0]
    rate = float(fps or own)
    wanted = np.arange(max(1, math.ceil(count / own * rate - 1e-6))) / rate
    slack = 1e-6 / own if even else max(tick, 1e-6 / own)
    return np.searchsorted(shown, wanted + slack, side="right") - 1, rate, even


def read_video(file: SourceFile, fps: float | None, max_pixels: int | None) -> Clip:
    """Describes a video, whose frames are decoded later, in presentation order.

    Frames are 8-bit RGB, or 16-bit RGB for sources of more bits; grey frames have one channel. The colour matrix and range
    of the file are applied (BT.601 and limited range by default), and its rotation. Pixel aspect ratio, sound and
    transparency are ignored. Without ``fps``, a video of variable frame rate is resampled to its mean rate, with a notice.
    """
    clip, times, tick, stated = describe_video(file, max_pixels)
    numbers, rate, even = even_frames(times, tick, stated, fps)
    if not even and fps is None:
        rank_zero_info(
            f"{file.given!r} has a variable frame rate and is resampled to its mean, {rate:.6g} frames per second. Set fps "
            "for another rate."
        )
    return replace(clip, values=clip.values.picked(numbers.tolist()), rate=rate)


def describe_video(file: SourceFile, max_pixels: int | None) -> tuple[Clip, npt.NDArray[np.float64], float, float]:
    """The clip of all frames, their times, the resolution of the times, and the rate in the header or 0."""
    with _opened(file) as (container, stream):
        check_area(file.given, stream.codec_context.height, stream.codec_context.width, max_pixels)
        tick, stated = float(stream.time_base), float(stream.average_rate or stream.guessed_rate or 0)
        stamps = _presentation_times(container, stream)
    times = np.zeros(0)
    if None not in stamps:
        times = np.sort(np.array(stamps, dtype=np.float64)) * tick
    elif stated:
        times = np.arange(len(stamps)) / stated
    if len(times) < 2 or times[-1] <= times[0]:
        raise InputError(
            f"{file.given!r} has {len(stamps)} frame(s), and a video signal needs at least 2 at different times; if it has "
            "more, convert it to MP4"
        )
    with _opened(file) as (container, stream):
        first = next(container.decode(stream))
        check_area(file.given, first.height, first.width, max_pixels)
        pixels, turn = _pixels_of(first.format), _turn_of(first, file)
        opacity = stream.codec_context.name != "gif" and any(component.is_alpha for component in first.format.components)
        if opacity or stream.metadata.get("alpha_mode") == "1":  # of WebM
            rank_zero_info(f"{file.given!r} has an opacity channel, which is not read: the colours alone are the signal")
        height, width = turn(np.empty((first.height, first.width, 1), dtype=np.uint8)).shape[:2]
    dtype = "uint16" if pixels.endswith("le") else "uint8"
    shape = (1, len(times), height, width, 1 if pixels.startswith("gray") else 3)
    frames = Decoded(shape, np.dtype(dtype), partial(_decode, file, pixels, turn))
    scaling = ValueRange.of_integers(dtype)
    return Clip(values=frames, names=(file.stem,), scaling=scaling, media="video", file=file), times, tick, stated


@contextmanager
def _opened(file: SourceFile) -> Iterator[tuple[Any, Any]]:
    """The container and its first video stream that is not a cover picture."""
    # "file:" because a name may have a colon; the whitelist, because a playlist could access the network
    options = {"protocol_whitelist": "file"}
    with reading(file.given), av.open(f"file:{file.path}", options=options) as container:
        streams = [each for each in container.streams.video if not each.disposition & Disposition.attached_pic]
        if not streams or streams[0].codec_context is None:
            raise InputError(f"{file.given!r} has no video stream that can be decoded; convert it to MP4")
        streams[0].thread_type = "AUTO"
        yield container, streams[0]


def _presentation_times(container: Any, stream: Any) -> list[int | None]:
    """Presentation times in ticks; only VP8, where some packets are not shown, is decoded."""
    if stream.codec_context.name == "vp8":
        return [frame.pts for frame in container.decode(stream)]
    corrupt, found = False, []  # numbers only: a packet holds its data
    for packet in container.demux(stream):
        corrupt = corrupt or bool(packet.size and packet.is_corrupt)
        if packet.size and not packet.is_discard:
            found.append((packet.pts, packet.duration or 0))
    ends = [pts + duration for pts, duration in found if pts is not None]
    if ends and any(name in container.format.name for name in ("mp4", "matroska")):  # other formats estimate their duration
        hours, minutes, seconds = stream.metadata.get("DURATION", "0:0:0").split(":")  # Matroska
        end = (int(hours) * 3600 + int(minutes) * 60 + float(seconds)) / float(stream.time_base)
        if stream.duration is not None:
            end = float(stream.duration + (stream.start_time or 0))
        corrupt = corrupt or end - max(ends) > 1.5 * (max(ends) - min(ends)) / len(ends)
    if corrupt:
        raise ValueError("frames are missing or incomplete")
    return [pts for pts, _ in found]


def _decode(file: SourceFile, pixels: str, turn: Turn, wanted: Sequence[int]) -> Iterator[AnyArray]:
    """Decodes frames, some of them more than once, into arrays ``(n, H, W, C)``."""
    block: list[AnyArray] = []
    place = 0
    with _opened(file) as (container, stream):
        for number, frame in enumerate(container.decode(stream)):
            if place == len(wanted):
                break
            if number < wanted[place]:
                continue
            if frame.is_corrupt:
                raise ValueError(f"frame {number} is damaged: set frames to a part without it")
            array = frame.reformat(format=pixels, interpolation=SWSCALE_FLAGS).to_ndarray()
            array = turn(array.reshape(*array.shape[:2], -1))
            while place < len(wanted) and wanted[place] == number:
                block.append(array)
                place += 1
                if len(block) == frames_at_once(array.nbytes * 2):
                    yield np.stack(block)
                    block = []
        if place < len(wanted):
            raise ValueError(f"only {place} of {len(wanted)} frames can be decoded: set frames to a part of them")
        if block:
            yield np.stack(block)


def _pixels_of(pixel_format: Any) -> str:
    """PyAV's pixel format for a conversion without loss of bits."""
    grey = not pixel_format.is_rgb and not pixel_format.has_palette and len(pixel_format.components) <= 2
    deep = max(component.bits for component in pixel_format.components) > 8
    return ("gray16le" if deep else "gray") if grey else ("rgb48le" if deep else "rgb24")


def _turn_of(frame: Any, file: SourceFile) -> Turn:
    """The rotation or flip by the display matrix, which maps ``(x, y)`` to ``(a x + c y, b x + d y)``."""
    if (matrix := frame.side_data.get(SideDataType.DISPLAYMATRIX)) is None:
        return lambda array: array
    a, b, _, c, d = np.frombuffer(bytes(matrix), dtype=np.int32)[:5]
    if not (b or c) and a and d:
        return lambda array: array[..., :: 1 if d > 0 else -1, :: 1 if a > 0 else -1, :]
    if not (a or d) and b and c:
        return lambda array: array.swapaxes(-3, -2)[..., :: 1 if b > 0 else -1, :: 1 if c > 0 else -1, :]
    raise InputError(
        f"{file.given!r} has a rotation of {frame.rotation} degrees; only multiples of 90 are supported. Convert it with "
        "the rotation applied"
    )
