"""Clips without loss: H.264 of RGB in MP4, FFV1 in Matroska; with the sound of another file."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.frame import VideoFrame

from pe_lightning.signals.raw import AnyArray

MP4_LIKE = ("mp4", "mov", "m4v")
"""Formats whose sound MP4 can hold."""


def lossless_suffixes(source: Path, dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Suffixes of the files that can hold the frames and the sound of a clip without loss.

    Args:
        source: The clip.
        dtype: That of its frames; MP4 holds 8 bits.
    """
    with av.open(f"file:{source}") as container:
        fits = not container.streams.audio or any(name in container.format.name for name in MP4_LIKE)
    mp4 = dtype == np.uint8 and fits and "libx264rgb" in av.codecs_available
    return (".mp4", ".mkv") if mp4 else (".mkv",)


def write_lossless(path: Path, frames: AnyArray, rate: float, source: Path) -> None:
    """Writes frames that decode to the same values.

    Args:
        path: The file, by whose suffix MP4 or Matroska is written.
        frames: ``(T, H, W, C)`` of 1 or 3 channels, uint8 or uint16.
        rate: Frames per second.
        source: A clip whose sound and tags are copied.
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
        sounds = {sound.index: new.add_stream_from_template(sound) for sound in old.streams.audio}
        for number, values in enumerate(frames):
            if grey and mp4:
                values = np.broadcast_to(values, (*values.shape[:2], 3))
            array = np.ascontiguousarray(values[..., 0] if grey and not mp4 else values)
            frame = VideoFrame.from_ndarray(array, format=given)
            frame = frame if stored == given else frame.reformat(format=stored)
            frame.pts, frame.time_base = number, 1 / every
            new.mux(stream.encode(frame))
        new.mux(stream.encode(None))
        for packet in old.demux(*old.streams.audio) if sounds else ():
            if packet.dts is not None:
                packet.stream = sounds[packet.stream.index]
                new.mux(packet)
