"""Video files, written back without loss, with the sound and tags of the file."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
from av.video.frame import VideoFrame

from pe_fill.formats.editable import EditableFile
from pe_fill.memory import check_fit_memory
from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile
from pe_lightning.signals.sources.video_files import describe_video

MAX_JITTER = 0.25
"""Largest difference of the time of a frame from a constant rate, in frames, for lost frames to be known by the times."""
TICKS = {True: Fraction(1, 90_000), False: Fraction(1, 1000)}
"""Unit of the times of frames at a variable rate, in MP4 or in Matroska."""
MP4_LIKE = ("mp4", "mov", "m4v")
"""Formats whose sound MP4 can hold."""


def frame_places(times: npt.NDArray[np.float64], tick: float, stated: float) -> tuple[npt.NDArray[np.int64], float] | None:
    """Ascending places, from 0, of frames at equidistant times, and the rate; ``None`` if the rate is variable.

    Other places are lost frames. Arguments: presentation times and their resolution in seconds, and the rate in the header.

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


def edit_video(file: SourceFile, missing: Missing) -> EditableFile:
    """A video; frames that its times leave out are lost. Written without loss, with the sound and tags of the file."""
    missing.check("videos", "colour")
    clip, times, tick, stated = describe_video(file, None)
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
    shape = (1, int(places[-1]) + 1, *clip.grid[1:], clip.channels)
    values, marked = np.zeros(shape, clip.values.dtype), np.ones(shape, bool)
    for place, frame in zip(places, (frame for block in clip.values.blocks() for frame in block), strict=True):
        values[0, place] = frame
        marked[0, place] = missing.kind in ("colour", "value") and np.isnan(missing.in_picture(frame, file.given))

    with av.open(f"file:{file.path}") as container:  # what can hold the frames and the sound without loss
        others = sorted({stream.type for stream in container.streams if stream.type not in ("video", "audio")})
        others += ["video"] * (len(container.streams.video) > 1)
        if others:
            rank_zero_info(f"{file.given!r} has other streams ({', '.join(others)}), which the copy has not")
        fits = not container.streams.audio or any(name in container.format.name for name in MP4_LIKE)
    mp4 = values.dtype == np.uint8 and fits and "libx264rgb" in av.codecs_available
    suffixes = (".mp4", ".mkv") if mp4 else (".mkv",)
    write = partial(_write_clip, rate, file.path, stamps)
    return EditableFile((file.stem,), values, marked, suffixes, write, "video", resizes=True)


def _write_clip(rate: float, source: Path, times: npt.NDArray[np.float64] | None, path: Path, changed: AnyArray) -> None:
    """Writes frames without loss, as MP4 or Matroska, at a constant rate or at times ``(T,)`` in seconds.

    The copy has the sound and the tags of the source.
    """
    frames = changed[0]
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
        new.set_chapters(old.chapters())
        stream, aspect = new.add_stream(codec, rate=every, options=options), old.streams.video[0].sample_aspect_ratio or 1
        if mp4:
            stream.codec_context.sample_aspect_ratio = Fraction(aspect)
        elif aspect != 1:
            rank_zero_info(f"the pixels of {source.name!r} are not square, which a copy in Matroska does not say")
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
