"""Video files: decoded by PyAV a few frames at a time, written without loss, with the sound of another file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import av
import numpy as np
import numpy.typing as npt
from av.sidedata.sidedata import Type as SideDataType
from av.stream import Disposition
from av.video.frame import VideoFrame

from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray, EditableFile, ValueRange
from pe_lightning.signals.sources.clips import Clip, frames_at_once
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile, reading
from pe_lightning.signals.validation import check_area, check_fit_memory

Turn: TypeAlias = Callable[[AnyArray], AnyArray]

MAX_JITTER = 0.25
"""Largest difference of the time of a frame from a constant rate, in frames, for lost frames to be known by the times."""
TICKS = {True: Fraction(1, 90_000), False: Fraction(1, 1000)}
"""Unit of the times of frames at a variable rate, in MP4 or in Matroska."""
MP4_LIKE = ("mp4", "mov", "m4v")
"""Formats whose sound MP4 can hold."""
SWSCALE_FLAGS = (
    0x4 | 0x2000 | 0x40000 | 0x80000
)  # swscale: bicubic chroma, full chroma, exact rounding, same on all machines


def even_frames(
    times: npt.NDArray[np.float64], tick: float, stated: float, fps: float | None
) -> tuple[npt.NDArray[np.int64], float, bool]:
    """Chooses the frames shown at equidistant times.

    Without ``fps``, videos of constant rate are taken frame by frame, others are resampled to their mean rate.

    Args:
        times: Presentation times of the frames in seconds, ascending, at least two. The last frame lasts for the mean
            interval.
        tick: Resolution of ``times`` in seconds.
        stated: Rate in the header of the file, or 0; used if it agrees with ``times`` to 1 %.
        fps: Rate to resample to, or ``None``.

    Returns:
        Indices of the frames, the rate, and whether the video has a constant rate.

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


def frame_places(times: npt.NDArray[np.float64], tick: float, stated: float) -> tuple[npt.NDArray[np.int64], float] | None:
    """Ascending places, from 0, of frames at equidistant times, and the rate; ``None`` if the rate is variable.

    Places between them without a frame are those of lost frames; the arguments are those of :func:`even_frames`.

    >>> frame_places(np.array([0, 0.04, 0.08, 0.16, 0.2]), 0.001, 0.0)
    (array([0, 1, 2, 4, 5]), 25.0)
    """
    gaps = np.diff(times)
    step = 1 / stated if stated and abs(stated * np.median(gaps) - 1) < 0.01 else float(np.median(gaps))
    places = np.r_[0, np.rint(gaps / step).cumsum()].astype(np.int64)
    if len(np.unique(places)) < len(places) or places[-1] >= 2 * len(places):
        return None
    if step != 1 / (stated or np.inf):
        step = float(np.polyfit(places, times, 1)[0])
    jitter = float(np.abs(times - times[0] - step * places).max())
    return (places, round(1 / step, 9)) if jitter <= MAX_JITTER * step + tick else None


def read_video(file: SourceFile, fps: float | None, max_pixels: int | None) -> Clip:
    """Describes a video; frames are decoded when the clip is read.

    Frames are in presentation order, as 8-bit RGB, or 16-bit RGB for sources of more bits; grey frames have one channel. The
    colour matrix and range of the file are applied (BT.601 and limited range by default), and its rotation. Pixel aspect
    ratio, sound and transparency are ignored. Without ``fps``, a video of variable frame rate is resampled to its mean
    rate, with a notice.
    """
    clip, times, tick, stated = _described(file, max_pixels)
    numbers, rate, even = even_frames(times, tick, stated, fps)
    if not even and fps is None:
        rank_zero_info(
            f"{file.given!r} has a variable frame rate and is resampled to its mean, {rate:.6g} frames per second. Set fps "
            "for another rate."
        )
    assert isinstance(clip.read, partial)
    read = partial(_decode, file, numbers, *clip.read.args[2:])
    return replace(clip, frames=range(len(numbers)), read=read, rate=rate)


def _described(file: SourceFile, max_pixels: int | None) -> tuple[Clip, npt.NDArray[np.float64], float, float]:
    """The clip of all stored frames, the times of the frames, the resolution of these, and the rate in the header or 0."""
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
        height, width = turn(np.empty((first.height, first.width, 1), dtype=np.uint8)).shape[:2]
    dtype = "uint16" if pixels.endswith("le") else "uint8"
    clip = Clip(
        file=file,
        frames=range(len(times)),
        size=(height, width),
        channels=1 if pixels.startswith("gray") else 3,
        stored=dtype,
        scaling=ValueRange.of_integers(dtype),
        media="video",
        read=partial(_decode, file, np.arange(len(times)), pixels, turn),
    )
    return clip, times, tick, stated


@contextmanager
def _opened(file: SourceFile) -> Iterator[tuple[Any, Any]]:
    """Opens the container and its first video stream that is not a cover picture."""
    # "file:" because a name may have a colon; the whitelist, because a playlist could access the network
    options = {"protocol_whitelist": "file"}
    with reading(file.given), av.open(f"file:{file.path}", options=options) as container:
        streams = [each for each in container.streams.video if not each.disposition & Disposition.attached_pic]
        if not streams or streams[0].codec_context is None:
            raise InputError(f"{file.given!r} has no video stream that can be decoded; convert it to MP4")
        streams[0].thread_type = "AUTO"
        yield container, streams[0]


def _presentation_times(container: Any, stream: Any) -> list[int | None]:
    """Presentation times in ticks, found without decoding, except for VP8, where some packets are not shown."""
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


def _decode(file: SourceFile, index: npt.NDArray[np.int64], pixels: str, turn: Turn, frames: range) -> Iterator[AnyArray]:
    """Decodes the frames ``index[frames]``, ascending, into arrays ``(n, H, W, C)``."""
    wanted = index[frames.start : frames.stop : frames.step]
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
    """PyAV's pixel format to convert a format to without loss of bits."""
    grey = not pixel_format.is_rgb and not pixel_format.has_palette and len(pixel_format.components) <= 2
    deep = max(component.bits for component in pixel_format.components) > 8
    return ("gray16le" if deep else "gray") if grey else ("rgb48le" if deep else "rgb24")


def _turn_of(frame: Any, file: SourceFile) -> Turn:
    """Returns the function that rotates or flips frames as the file states.

    The display matrix maps a sample at ``(x, y)`` to ``(a x + c y, b x + d y)``, up to a translation.
    """
    found = [side for side in frame.side_data if side.type == SideDataType.DISPLAYMATRIX]
    if not found:
        return lambda array: array
    a, b, _, c, d = np.frombuffer(bytes(found[0]), dtype=np.int32)[:5]
    if not (b or c) and a and d:
        return lambda array: array[..., :: 1 if d > 0 else -1, :: 1 if a > 0 else -1, :]
    if not (a or d) and b and c:
        return lambda array: array.swapaxes(-3, -2)[..., :: 1 if b > 0 else -1, :: 1 if c > 0 else -1, :]
    raise InputError(
        f"{file.given!r} has a rotation of {frame.rotation} degrees; only multiples of 90 are supported. Convert it with "
        "the rotation applied"
    )


# -- written back ---------------------------------------------------------------------------------------------------------


def edit_video(file: SourceFile, missing: Missing, axes: int | None = None) -> EditableFile:
    """A video; frames that its times leave out are lost. Written without loss, with the sound and tags of the file."""
    missing.check("videos", "colour")
    clip, times, tick, stated = _described(file, None)
    found = frame_places(times, tick, stated)
    if found is None and missing.kind == "nan":
        raise InputError(
            f"{file.given!r} has a variable frame rate, so that lost frames are not known by their times: name them "
            "(missing: frames:10-14, from 0), or save its frames as pictures with numbers in a folder (ffmpeg -i FILE "
            "-fps_mode passthrough FOLDER/%04d.png), and give that"
        )
    if found is None:
        rank_zero_info(
            f"{file.given!r} has a variable frame rate: frames are taken at equal distances, and keep their times"
        )
    stamps = None if found else times - times[0]
    places, rate = found or (np.arange(len(times)), (len(times) - 1) / float(times[-1] - times[0]))
    check_fit_memory(math.prod(clip.grid))  # before the frames are decoded
    shape = (1, int(places[-1]) + 1, *clip.size, clip.channels)
    values, marked = np.zeros(shape, clip.stored), np.ones(shape, bool)
    for place, frame in zip(places, (frame for block in clip.blocks() for frame in block), strict=True):
        values[0, place] = frame
        marked[0, place] = missing.kind in ("colour", "value") and np.isnan(missing.in_picture(frame, file.given))

    with av.open(f"file:{file.path}") as container:  # what can hold the frames and the sound without loss
        fits = not container.streams.audio or any(name in container.format.name for name in MP4_LIKE)
    mp4 = values.dtype == np.uint8 and fits and "libx264rgb" in av.codecs_available
    suffixes = (".mp4", ".mkv") if mp4 else (".mkv",)
    write = partial(_write_clip, rate, file.path, stamps)
    return EditableFile((file.stem,), values, marked, suffixes, write, "video", resizes=True)


def _write_clip(rate: float, source: Path, times: npt.NDArray[np.float64] | None, path: Path, changed: AnyArray) -> None:
    write_lossless(path, changed[0], rate, source, times)


def write_lossless(
    path: Path, frames: AnyArray, rate: float, source: Path, times: npt.NDArray[np.float64] | None = None
) -> None:
    """Writes frames that decode to the same values, as MP4 or Matroska by the suffix, with the sound and tags of a clip.

    They are ``(T, H, W, C)`` of 1 or 3 channels, uint8 or uint16, at a constant rate or at times ``(T,)`` in seconds.
    """
    deep, grey, mp4 = frames.dtype == np.uint16, frames.shape[-1] == 1, path.suffix.lower() == ".mp4"
    given = ("gray16le" if deep else "gray") if grey else ("rgb48le" if deep else "rgb24")
    stored = given if grey else "gbrp16le" if deep else "bgr0"
    codec, options = "ffv1", {"level": "3", "slicecrc": "1"}
    if mp4:
        codec, options, given, stored = "libx264rgb", {"qp": "0"}, "rgb24", "rgb24"
    every = Fraction(rate).limit_denominator(100_000)
    form = "mp4" if mp4 else "matroska"
    flags = {"movflags": "faststart", "movie_timescale": str(every.numerator)} if mp4 else {}
    with av.open(f"file:{source}") as old, av.open(str(path), "w", format=form, options=flags) as new:
        new.metadata.update(old.metadata)
        stream = new.add_stream(codec, rate=every, options=options)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = stored
        if times is not None:
            stream.codec_context.time_base = TICKS[mp4]
        sounds = {sound.index: new.add_stream_from_template(sound) for sound in old.streams.audio}
        for number, values in enumerate(frames):
            if grey and mp4:
                values = np.broadcast_to(values, (*values.shape[:2], 3))
            array = np.ascontiguousarray(values[..., 0] if grey and not mp4 else values)
            frame = VideoFrame.from_ndarray(array, format=given)
            frame = frame if stored == given else frame.reformat(format=stored)
            frame.pts, frame.time_base = number, 1 / every
            if times is not None:
                frame.pts, frame.time_base = round(times[number] / TICKS[mp4]), TICKS[mp4]
            new.mux(stream.encode(frame))
        new.mux(stream.encode(None))
        for packet in old.demux(*old.streams.audio) if sounds else ():
            if packet.dts is not None:
                packet.stream = sounds[packet.stream.index]
                new.mux(packet)
