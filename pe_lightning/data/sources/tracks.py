"""What a video file holds, found by one pass over its packets and a look at its first frame."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import av
import av.error
import numpy as np
import numpy.typing as npt
from av.sidedata.sidedata import Type as SideDataType

from pe_lightning.data.signals import AnyArray
from pe_lightning.data.sources.clips import check_area
from pe_lightning.data.sources.sources import Source
from pe_lightning.errors import InputError

__all__ = ["Track", "decoding", "opened", "survey"]

_HIDDEN_FRAMES = frozenset({"vp8"})  # here some packets hold frames that are never shown, so frames are counted by decoding

Turn: TypeAlias = Callable[[AnyArray], AnyArray]
Stamp: TypeAlias = "tuple[int | None, int | None, int]"
"""When a frame is shown and decoded, and for how long, in ticks."""


@dataclass(frozen=True)
class Track:
    """What a video file holds."""

    times: npt.NDArray[np.float64]  # seconds, of the complete frames
    tick: float  # seconds
    nominal: float | None  # frames per second
    missing: str  # how the file shows that it was cut short; empty if it does not
    height: int  # after turning
    width: int
    coded: tuple[int, int]  # before turning
    pixels: str  # PyAV's pixel format to convert to
    turn: Turn


@contextmanager
def opened(source: Source) -> Iterator[tuple[Any, Any]]:
    """The container and its first video stream that is not a cover picture."""
    # "file:" so that a colon in a name is no protocol; the whitelist so that a playlist cannot reach the network
    with _as_input_error(source), av.open(f"file:{Path(source.path)}", options={"protocol_whitelist": "file"}) as container:
        streams = [stream for stream in container.streams.video if not _is_cover(stream)]
        if not streams:
            kinds = sorted({stream.type for stream in container.streams})
            raise InputError(
                f"{source.given!r} holds no video, only {', '.join(kinds) or 'nothing'}; remove it from the paths"
            )
        stream = streams[0]
        if stream.codec_context is None:
            raise InputError(f"{source.given!r} is coded in a way that PyAV does not decode; convert it to MP4 (H.264)")
        stream.thread_type = "AUTO"
        yield container, stream


def decoding(container: Any, stream: Any) -> Iterator[Any]:
    """The frames of the complete packets, in presentation order."""
    for packet in container.demux(stream):
        if not (packet.size and packet.is_corrupt):  # decoding half a packet loses the frames before it
            yield from packet.decode()


@contextmanager
def _as_input_error(source: Source) -> Iterator[None]:
    try:
        yield
    except av.error.InvalidDataError as error:
        raise InputError(
            f"{source.given!r} is not a video, or it is truncated or damaged ({_reason(error)}). An MP4 that was cut short "
            "often misses its index, which is at the end: copy or download it again, or remove it from the paths"
        ) from error
    except av.error.FFmpegError as error:
        raise InputError(f"cannot read the video {source.given!r}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _is_cover(stream: Any) -> bool:
    return "attached_pic" in str(getattr(stream.disposition, "name", stream.disposition) or "")


def survey(source: Source, max_pixels: int | None) -> Track:
    """What a video file holds; its frames are not decoded, save the first.

    Raises:
        InputError: If it is not a video, is damaged, or claims frames of more than ``max_pixels``.
    """
    whole: list[Stamp]
    with opened(source) as (container, stream):
        check_area(source.given, stream.codec_context.height, stream.codec_context.width, max_pixels)
        tick = float(stream.time_base)
        rate = stream.average_rate or stream.guessed_rate
        if stream.codec_context.name in _HIDDEN_FRAMES:
            whole, incomplete = [(frame.pts, None, 0) for frame in decoding(container, stream)], 0
        else:
            whole, incomplete = _demux(container, stream)
        missing = _cut_off(stream, whole, incomplete)
    stamps = [pts for pts, _, _ in whole]
    order = [dts for _, dts, _ in whole if dts is not None]
    if missing and order:  # a frame that was cut off has a later decoding time, and is shown no earlier than that
        stamps = [pts for pts in stamps if pts is None or pts <= order[-1]]
    if any(stamp is None for stamp in stamps):
        if not rate:
            raise InputError(f"{source.given!r} states neither the times of its frames nor their rate; convert it to MP4")
        times = np.arange(len(stamps)) / float(rate)
    else:
        times = np.sort(np.array(stamps, dtype=np.float64)) * tick
    if not len(times):
        raise InputError(f"{source.given!r} has a video stream without any complete frame: it is empty or cut short")
    if len(times) > 1 and times[-1] <= times[0]:
        raise InputError(f"{source.given!r} gives all its {len(times)} frames the same time; convert it to MP4")
    with opened(source) as (container, stream):
        first = next(decoding(container, stream), None)
        if first is None:
            raise InputError(f"{source.given!r} has a video stream of which no frame can be decoded")
        check_area(source.given, first.height, first.width, max_pixels)
        turn = _turn_of(first, source)
        height, width = turn(np.empty((first.height, first.width, 1), dtype=np.uint8)).shape[:2]
        coded, pixels = (first.height, first.width), _pixels_of(first.format)
    if min(height, width) < 2:
        raise InputError(f"{source.given!r} has frames of {height}x{width}; a signal needs at least 2 samples on each axis")
    return Track(times, tick, float(rate) if rate else None, missing, height, width, coded, pixels, turn)


def _demux(container: Any, stream: Any) -> tuple[list[Stamp], int]:
    """The complete frames by their packets, and the number of incomplete ones."""
    whole: list[Stamp] = []
    incomplete = 0
    for packet in container.demux(stream):  # only numbers are kept: packets hold the file's data
        if packet.size and packet.is_corrupt:
            incomplete += 1
        elif packet.size and not packet.is_discard:
            whole.append((packet.pts, packet.dts, packet.duration or 0))
    return whole, incomplete


def _cut_off(stream: Any, whole: list[Stamp], incomplete: int) -> str:
    """How a file shows that it was cut short; empty if it does not."""
    if incomplete:
        return f"{incomplete} of its frames are incomplete"
    times = [(pts, pts + duration) for pts, _, duration in whole if pts is not None]
    end = _announced_end(stream)
    if end is None or len(times) < max(1, len(whole)):
        return ""
    first, last = min(times)[0], max(stop for _, stop in times)
    if (end - last) * len(times) <= 1.5 * (last - first):
        return ""
    announced, found = (float(ticks * stream.time_base) for ticks in (end, last))
    return f"its header announces {announced:.2f} s, and its last frame ends at {found:.2f} s"


def _announced_end(stream: Any) -> float | None:
    """When the header says that the stream ends, in ticks."""
    if stream.duration is not None:
        return float(stream.duration + (stream.start_time or 0))
    stated = re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d+)?)", stream.metadata.get("DURATION", ""))  # Matroska
    if stated is None:
        return None
    hours, minutes, seconds = (float(part) for part in stated.groups())
    return (hours * 3600 + minutes * 60 + seconds) / float(stream.time_base)


def _pixels_of(pixel_format: Any) -> str:
    """What a format is converted to without loss of bits."""
    grey = not pixel_format.is_rgb and not pixel_format.has_palette and len(pixel_format.components) <= 2
    deep = max(component.bits for component in pixel_format.components) > 8
    return ("gray16le" if deep else "gray") if grey else ("rgb48le" if deep else "rgb24")


def _turn_of(frame: Any, source: Source) -> Turn:
    """How rows and columns are turned so that the picture is upright: the display matrix of phone clips.

    The matrix is nine 32-bit integers ``a b u, c d v, x y w``: a sample at ``(x, y)`` is shown at
    ``(a x + c y, b x + d y)`` / 65536, up to a shift.
    """
    found = [side for side in frame.side_data if side.type == SideDataType.DISPLAYMATRIX]
    if not found:
        return lambda array: array
    a, b, _, c, d = struct.unpack_from("=5i", bytes(found[0]))
    if (b, c) == (0, 0) and a and d:
        return lambda array: array[..., :: 1 if d > 0 else -1, :: 1 if a > 0 else -1, :]
    if (a, d) == (0, 0) and b and c:
        return lambda array: array.swapaxes(-3, -2)[..., :: 1 if b > 0 else -1, :: 1 if c > 0 else -1, :]
    raise InputError(
        f"{source.given!r} asks to be shown turned by {frame.rotation} degrees; only multiples of 90 are read. Convert it "
        "with the rotation applied"
    )
