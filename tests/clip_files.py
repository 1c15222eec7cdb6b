"""Makes small video files whose frames are known."""

import struct
from fractions import Fraction

import av
import numpy as np

TURNS = {  # a, b, c, d of the display matrix -> what is shown
    "clockwise": ((0, 1, -1, 0), lambda frames: np.rot90(frames, -1, axes=(1, 2))),
    "upside down": ((-1, 0, 0, -1), lambda frames: np.rot90(frames, 2, axes=(1, 2))),
    "counterclockwise": ((0, -1, 1, 0), lambda frames: np.rot90(frames, 1, axes=(1, 2))),
    "mirrored": ((-1, 0, 0, 1), lambda frames: frames[:, :, ::-1]),
}


def pictures(count=12, height=24, width=32, channels=3, dtype=np.uint8, seed=0):
    """``(count, height, width, channels)``, blocky, so that codecs have something to predict."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, np.iinfo(dtype).max, (count, -(-height // 4), -(-width // 4), channels), endpoint=True)
    return blocks.repeat(4, 1).repeat(4, 2)[:, :height, :width].astype(dtype)


def write_video(
    path, frames, codec="libx264rgb", stored="rgb24", given="rgb24", rate=25, pts=None, audio=False, options=None
):
    """Writes frames; the default codec is lossless, with frames that are predicted from later ones."""
    flags = {"movflags": "faststart"} if str(path).endswith(".mp4") else {}
    with av.open(str(path), "w", options=flags) as container:
        stream = container.add_stream(codec, rate=rate, options=options or ({"qp": "0"} if "264" in codec else {}))
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = stored
        if pts is not None:
            stream.codec_context.time_base = stream.time_base = Fraction(1, 1000)
        sound = container.add_stream("aac", rate=8000) if audio else None
        for number, pixels in enumerate(frames):
            array = np.ascontiguousarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
            frame = av.VideoFrame.from_ndarray(array, format=given)
            if stored != given:
                frame = frame.reformat(format=stored)
            frame.pts = number if pts is None else pts[number]
            frame.time_base = 1 / Fraction(rate) if pts is None else Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
        if sound is not None:
            container.mux(sound.encode(silence()))
            container.mux(sound.encode())
    return frames


def silence():
    frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), dtype=np.float32), format="fltp", layout="mono")
    frame.sample_rate = 8000
    return frame


def write_audio(path):
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=8000)
        container.mux(stream.encode(silence()))
        container.mux(stream.encode())


def set_display_matrix(path, matrix):
    """Overwrites the matrix in the track header of an MP4 file."""
    content = bytearray(path.read_bytes())
    start = content.index(b"tkhd") + 4 + 40
    a, b, c, d = (number << 16 for number in matrix)
    content[start : start + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path.write_bytes(content)
