"""Sound files as signals of one axis, read by soundfile."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray, Decoded, RawSignals, ValueRange
from pe_lightning.signals.sources.paths import SourceFile, distinct_names, reading
from pe_lightning.signals.validation import in_common, one_length

DTYPE_OF_SUBTYPE = {
    "PCM_U8": "uint8",
    "PCM_S8": "int8",
    "PCM_16": "int16",
    "PCM_24": "int32",
    "PCM_32": "int32",
    "DOUBLE": "float64",
}
"""Exact dtypes of the samples; other subtypes are decoded to float32."""


@dataclass(frozen=True)
class Sound:
    """An excerpt of a sound file; ``format`` and ``subtype`` are names of libsndfile, such as ``WAV`` and ``PCM_24``."""

    file: SourceFile
    rate: int
    channels: int
    format: str
    subtype: str
    start: int
    samples: int

    @classmethod
    def open(cls, file: SourceFile, seconds: tuple[float, float] | None = None) -> Sound:
        """Reads the header of a file; ``seconds``: ``(start, stop)`` of the excerpt."""
        import soundfile  # imported late, because it loads a shared library

        with reading(file.given):
            info = soundfile.info(file.path, verbose=True)
        _check_header(file, info)
        start, stop = (0, info.frames) if seconds is None else (round(second * info.samplerate) for second in seconds)
        if stop > info.frames:
            raise InputError(f"seconds: {seconds} exceeds {file.given!r}, which lasts {info.frames / info.samplerate:g} s")
        return cls(file, info.samplerate, info.channels, info.format, info.subtype, start, stop - start)

    @property
    def dtype(self) -> str:
        return DTYPE_OF_SUBTYPE.get(self.subtype, "float32")

    def read(self, count: int | None = None) -> AnyArray:
        import soundfile

        count = self.samples if count is None else count
        narrow = self.dtype in ("uint8", "int8")  # soundfile returns these in the upper half of 16 bits
        with reading(self.file.given):
            values: AnyArray = soundfile.read(
                self.file.path, count, self.start, dtype="int16" if narrow else self.dtype, always_2d=True
            )[0]
            if len(values) < count:
                raise ValueError(f"{len(values)} of {count} samples")
        if narrow:
            values = (values >> 8).astype(np.int8)
        return (values.view(np.uint8) ^ np.uint8(128)) if self.dtype == "uint8" else values


def _check_header(file: SourceFile, info: Any) -> None:
    """Refuses a file that is shorter than its header says, and prints if it is longer, as libsndfile notes."""
    for line in info.extra_info.splitlines():
        with reading(file.given):
            if "(should be" in line and "4294967295" not in line:  # headers written to a pipe have no size
                raise ValueError(line.strip())
        if "Unknown chunk marker" in line or "Have 0 marker" in line:
            rank_zero_info(
                f"{file.given!r}: the header counts {info.frames} samples, and what follows them is no part of the format. "
                "If these are samples too, the header is damaged: repair it (ffmpeg -i), or copy the file again"
            )
            return


def write_sound(path: Path, samples: AnyArray, rate: int, subtype: str, format: str = "WAV") -> None:
    """Writes samples ``(N, channels)`` in a format and subtype of soundfile."""
    import soundfile

    if samples.dtype.itemsize == 1:  # soundfile has neither uint8 nor int8; it drops the lower bits of 16
        samples = ((samples.astype(np.int16) - (128 if samples.dtype == np.uint8 else 0)) << 8).astype(np.int16)
    buffer = io.BytesIO()  # libsndfile does not report errors of the file system
    soundfile.write(buffer, samples, rate, subtype=subtype, format=format)
    path.write_bytes(buffer.getvalue())


def _decode(sounds: Sequence[Sound], rows: Sequence[int]) -> Iterator[AnyArray]:
    return (sound.read(len(rows)) for sound in sounds)


def read_sound(
    files: Sequence[SourceFile], seconds: tuple[float, float] | None = None, length: int | None = None
) -> RawSignals:
    """Describes sound files of one sample rate, dtype and number of channels as signals ``(N, channels)``.

    Integers (PCM of 8, 16, 24 and 32 bits) are scaled by the full range of their dtype; 24 bits are the upper bits of 32.
    Floating point is scaled from [-1, 1], or from [-peak, peak] for a file that exceeds it, so that silence is 0.5.
    """
    sounds = [Sound.open(file, seconds) for file in files]
    formats = [(sound.file.given, (f"{sound.rate} Hz ", sound.channels, f" {sound.dtype}")) for sound in sounds]
    in_common("formats (sample rate x channels x dtype)", formats, "Convert them, or fit them in separate runs")
    samples = one_length([(sound.file.given, sound.samples) for sound in sounds], length)
    dtype = sounds[0].dtype
    if dtype.startswith("float"):
        samples_of = (sound.read() for sound in sounds)
        peaks = tuple(float(np.abs(found).max(initial=1, where=np.isfinite(found))) for found in samples_of)
        scaling = ValueRange(dtype, tuple(-peak for peak in peaks), peaks)
    else:
        scaling = ValueRange.of_integers(dtype)
    values = Decoded((len(sounds), samples, sounds[0].channels), np.dtype(dtype), partial(_decode, sounds))
    names = distinct_names([(sound.file, sound.file.stem) for sound in sounds])
    return RawSignals(values, names, scaling, rate=float(sounds[0].rate), media="audio")
