"""Encoders of moving pictures and sound, one frame or block at a time: MP4, GIF and WAV files.

Each writes to the path it is given, whatever its suffix; :mod:`pe_lightning.callbacks.outputs` chooses and names files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from PIL import Image

from pe_lightning.errors import InputError

__all__ = [
    "GIF_MAX_RATE",
    "WAV_DTYPES",
    "WAV_MAX_BYTES",
    "encode_gif",
    "encode_mp4",
    "encode_wav",
    "require_h264",
    "to_levels",
]

Array = npt.NDArray[np.float32]

CRF = "15"
"""x264's constant rate factor: 17 to 18 is called visually lossless, 0 is lossless."""
GIF_MAX_RATE = 50
"""Frames per second; GIF counts in hundredths of a second, and players slow down frames of fewer than two."""
WAV_DTYPES = ("uint8", "int16", "int32", "float32", "float64")
"""NumPy's names of the dtypes that a WAV file holds."""
WAV_MAX_BYTES = 2**32 - 64
"""A WAV file states its size in 32 bits."""

_CODEC = "libx264"
_BT709, _SRGB, _LIMITED = 1, 13, 1  # ITU-T H.273: primaries and matrix, transfer characteristics; AVCOL_RANGE_MPEG
_LUMA = np.array([0.2126, 0.7152, 0.0722], dtype=np.float32)  # BT.709


def to_levels(values: Array, dtype: type[np.unsignedinteger[Any]] = np.uint8) -> npt.NDArray[Any]:
    """Values of [0, 1] as all the integers of ``dtype``, clamped; not-a-number, which has no colour, is black."""
    levels: npt.NDArray[Any] = np.rint(np.nan_to_num(np.clip(values, 0, 1)) * np.iinfo(dtype).max).astype(dtype)
    return levels


def require_h264() -> None:
    """Raises :class:`InputError` if PyAV's FFmpeg cannot encode H.264."""
    try:
        av.codec.Codec(_CODEC, "w")
    except ValueError as error:  # UnknownCodecError
        raise InputError(
            f"MP4 needs the H.264 encoder {_CODEC}, which FFmpeg behind the installed PyAV {av.__version__} lacks. "
            "output format npy has the values, gif the frames; PyAV's own wheels have the encoder: "
            "pip install --force-reinstall --only-binary av av"
        ) from error


def encode_mp4(path: Path, values: Array, rate: Fraction) -> None:
    """H.264 in MP4 that every player and browser shows: 8 bits, colour at half the resolution (yuv420p), BT.709.

    yuv420p needs an even height and width: the last row or column of an odd size is written twice, and the file's
    comment states the true size. Grey is written as equal red, green and blue.

    Args:
        path: The file to write.
        values: ``(F, H, W, C)`` in [0, 1], ``C`` 1 (grey) or 3 (RGB).
        rate: Frames per second.

    Raises:
        InputError: If PyAV has no H.264 encoder.
    """
    require_h264()
    # MP4 keeps both parts in 32 bits; of a rounded 29.97002997 this makes 30000/1001 again
    rate = rate.limit_denominator(max(1, int(2**30 / max(float(rate), 1.0))))
    height, width = values.shape[1:3]
    padding = ((0, height % 2), (0, width % 2), (0, 0))
    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as container:
        if height % 2 or width % 2:
            container.metadata["comment"] = f"{width}x{height} pixels; the rest repeats the last row or column"
        stream = container.add_stream(_CODEC, rate=rate, options={"crf": CRF})
        stream.height, stream.width, stream.pix_fmt = height + height % 2, width + width % 2, "yuv420p"
        context = stream.codec_context
        context.colorspace = context.color_primaries = _BT709
        context.color_trc, context.color_range = _SRGB, _LIMITED

        frames = (
            VideoFrame.from_ndarray(_yuv420(np.pad(frame, padding, mode="edge")), format="yuv420p") for frame in values
        )
        _encode(container, stream, frames, range(len(values)), 1 / rate)


def _yuv420(frame: Array) -> npt.NDArray[np.uint8]:
    """The planes of a frame of even size, one behind the other, ``(3 H / 2, W)``.

    Colour lies where H.264 expects it, at even columns, between two rows. FFmpeg's own conversion puts it half a pixel to
    the right, and rounds it by a level of 255 on average.
    """
    rgb = np.nan_to_num(np.clip(frame, 0, 1))
    luma = rgb @ _LUMA if rgb.shape[-1] == 3 else rgb[..., 0]
    planes = [16 + 219 * luma]
    for colour, span in ((-1, 1.8556), (0, 1.5748)):  # blue, red
        rows = (rgb[..., colour] - luma).reshape(luma.shape[0] // 2, 2, -1).mean(1)
        before = np.pad(rows, ((0, 0), (1, 0)), mode="edge")[:, :-1:2]
        planes.append(128 + 224 / span * (before + 2 * rows[:, ::2] + rows[:, 1::2]) / 4)
    stacked: npt.NDArray[np.uint8] = np.rint(np.concatenate([plane.ravel() for plane in planes])).astype(np.uint8)
    return stacked.reshape(-1, luma.shape[1])


def encode_gif(path: Path, values: Array, rate: Fraction) -> None:
    """An endless GIF, each frame with up to 256 colours of its own; grey is exact.

    A frame begins at the hundredth of a second nearest to its time, so that the whole lasts as long as it should.

    Args:
        path: The file to write.
        values: ``(F, H, W, C)`` in [0, 1], ``C`` 1 (grey) or 3 (RGB).
        rate: Frames per second, at most :data:`GIF_MAX_RATE`.
    """
    starts = [round(100 * frame / rate) for frame in range(len(values) + 1)]
    last = {"final_delay": str(starts[-1] - starts[-2])}
    with av.open(str(path), "w", format="gif", options=last) as container:
        stream = container.add_stream("gif", rate=100)
        stream.height, stream.width, stream.pix_fmt = values.shape[1], values.shape[2], "pal8"
        _encode(container, stream, map(_indexed, values), starts[:-1], Fraction(1, 100))


def _indexed(frame: Array) -> VideoFrame:
    """A frame as places in a palette."""
    levels = to_levels(frame)
    palette = np.zeros((256, 4), dtype=np.uint8)  # alpha, red, green, blue
    palette[:, 0] = 255
    if levels.shape[-1] == 1:
        places = levels[..., 0]
        palette[:, 1:] = np.arange(256)[:, None]
    else:
        image = Image.fromarray(levels).quantize(256)
        assert image.palette is not None
        places = np.asarray(image)
        colours = np.frombuffer(image.palette.tobytes(), dtype=np.uint8).reshape(-1, 3)
        palette[: len(colours), 1:] = colours
    pair: Any = (np.ascontiguousarray(places), palette)  # PyAV's annotation leaves this form out
    return VideoFrame.from_ndarray(pair, format="pal8")


def _encode(
    container: av.container.OutputContainer,
    stream: VideoStream,
    frames: Iterable[VideoFrame],
    times: Iterable[int],
    time_base: Fraction,
) -> None:
    """Encodes frames that begin at ``times``, in units of ``time_base``."""
    stream.codec_context.time_base = time_base
    for frame, time in zip(frames, times, strict=True):
        frame.pts, frame.time_base = time, time_base
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))


def encode_wav(path: Path, shape: tuple[int, int], dtype: str, rate: int, blocks: Iterable[npt.NDArray[Any]]) -> None:
    """Uncompressed sound.

    Args:
        path: The file to write.
        shape: Number of samples and of channels.
        dtype: One of :data:`WAV_DTYPES`.
        rate: Samples per second.
        blocks: The samples of that dtype in parts, ``(n, channels)`` each.
    """
    samples, channels = shape
    kind = np.dtype(dtype).newbyteorder("<")
    frame_bytes = channels * kind.itemsize
    size = samples * frame_bytes
    sound = struct.pack(
        "<HHIIHHH", 3 if kind.kind == "f" else 1, channels, rate, rate * frame_bytes, frame_bytes, 8 * kind.itemsize, 0
    )
    if kind.kind == "f":  # what is not PCM also states its length
        chunks = _chunk(b"fmt ", sound) + _chunk(b"fact", struct.pack("<I", samples))
    else:
        chunks = _chunk(b"fmt ", sound[:-2])
    with path.open("wb") as file:
        # "WAVE", the chunks so far, the header of the samples, the samples, a byte if their number is odd
        file.write(b"RIFF" + struct.pack("<I", 4 + len(chunks) + 8 + size + size % 2) + b"WAVE")
        file.write(chunks + b"data" + struct.pack("<I", size))
        for block in blocks:
            file.write(block.astype(kind, copy=False).tobytes())
        file.write(b"\0" * (size % 2))


def _chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content
