"""Sound files as signals of one axis, read by soundfile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pe_lightning.errors import InputError
from pe_lightning.signals.raw import AnyArray, RawSignals, Scaling
from pe_lightning.signals.sources.checks import in_common, one_length
from pe_lightning.signals.sources.paths import SourceFile, distinct_names, reading

__all__ = ["read_sound", "sound_info"]

DTYPE_OF_SUBTYPE = {
    "PCM_U8": "uint8",
    "PCM_S8": "int8",
    "PCM_16": "int16",
    "PCM_24": "int32",
    "PCM_32": "int32",
    "DOUBLE": "float64",
}
"""Dtypes that represent the samples exactly; other subtypes are decoded to float32."""


@dataclass(frozen=True)
class _Sound:
    """An excerpt of a sound file."""

    file: SourceFile
    rate: int
    channels: int
    dtype: str
    start: int
    samples: int

    def read(self, count: int) -> AnyArray:
        """The first samples, ``(count, channels)``."""
        import soundfile  # imported late, because it loads a shared library

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

    def peak(self) -> float:
        """The maximum of 1 and the largest finite magnitude."""
        values = self.read(self.samples)
        return float(np.abs(values).max(initial=1, where=np.isfinite(values)))


def read_sound(
    files: Sequence[SourceFile], seconds: tuple[float, float] | None = None, length: int | None = None
) -> RawSignals:
    """Describes sound files as signals ``(N, channels)``. Files are read one at a time.

    Integers (PCM of 8, 16, 24 and 32 bits) are scaled by the full range of their dtype; 24 bits are the upper bits of 32.
    Floating point is scaled from [-1, 1], or from [-peak, peak] for a file that exceeds it, so that silence is 0.5.

    Args:
        files: Files of one sample rate, dtype and number of channels.
        seconds: ``(start, stop)`` of the excerpt to take; by default the whole file.
        length: Number of leading samples to take of the excerpt.
    """
    sounds = [_describe(file, seconds) for file in files]
    formats = [(sound.file.given, (f"{sound.rate} Hz ", sound.channels, f" {sound.dtype}")) for sound in sounds]
    in_common("formats (sample rate x channels x dtype)", formats, "Convert them, or fit them in separate runs")
    samples = one_length([(sound.file.given, sound.samples) for sound in sounds], length)
    dtype = sounds[0].dtype
    if dtype.startswith("float"):
        peaks = tuple(sound.peak() for sound in sounds)
        scaling = Scaling(dtype, tuple(-peak for peak in peaks), peaks)
    else:
        scaling = Scaling.of_integers(dtype)
    return RawSignals(
        names=distinct_names([(sound.file, sound.file.stem) for sound in sounds]),
        grid=(samples,),
        channels=sounds[0].channels,
        stored=dtype,
        scaling=scaling,
        unit=False,
        blocks=partial(_blocks, sounds, samples),
        rate=float(sounds[0].rate),
        media="audio",
    )


def _blocks(sounds: Sequence[_Sound], samples: int) -> Iterator[AnyArray]:
    for sound in sounds:
        yield sound.read(samples)


def _describe(file: SourceFile, seconds: tuple[float, float] | None) -> _Sound:
    info = sound_info(file)
    start, stop = (0, info.frames) if seconds is None else (round(second * info.samplerate) for second in seconds)
    if stop > info.frames:
        raise InputError(f"seconds: {seconds} exceeds {file.given!r}, which lasts {info.frames / info.samplerate:g} s")
    return _Sound(file, info.samplerate, info.channels, DTYPE_OF_SUBTYPE.get(info.subtype, "float32"), start, stop - start)


def sound_info(file: SourceFile) -> Any:
    """What :func:`soundfile.info` reads of a file.

    Raises:
        InputError: If it cannot be read, or its header claims another size than it has.
    """
    import soundfile

    with reading(file.given):
        info = soundfile.info(file.path, verbose=True)
        # libsndfile reads truncated files with a note; headers written to a pipe have no size
        notes = [line for line in info.extra_info.splitlines() if "(should be" in line and "4294967295" not in line]
        if notes and info.format.startswith(("WAV", "RF64")):
            raise ValueError(notes[0].strip())
    return info
