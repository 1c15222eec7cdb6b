"""Sound files (``.wav``) as 1-D signals."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike

import numpy as np

from pe_lightning.data.signals import AnyArray, RawSignals, Scaling
from pe_lightning.data.sources.array_files import reading
from pe_lightning.data.sources.lengths import one_length
from pe_lightning.data.sources.sources import Source, distinct_names, expand
from pe_lightning.errors import InputError

__all__ = ["AUDIO_SUFFIXES", "is_wav", "read_audio"]

AUDIO_SUFFIXES = frozenset({".wav"})
"""What counts as sound inside a folder."""

_RIFF = (b"RIFF", b"RIFX", b"RF64")
_UNKNOWN_SIZE = b"\xff\xff\xff\xff"  # in the header of a file that was written to a pipe


def is_wav(header: bytes) -> bool:
    """Whether a file that begins with these bytes, at least 12, is a WAV file."""
    return header[:4] in _RIFF and header[8:12] == b"WAVE"


def read_audio(
    paths: str | PathLike[str] | Sequence[str | PathLike[str]],
    seconds: Sequence[float] | None = None,
    length: int | None = None,
) -> RawSignals:
    """Describes sound files as signals ``(N, channels)``; files are read one at a time.

    Integers (PCM of 8, 16, 24 and 32 bits) become [0, 1] by the full range of their dtype; 24 bits are held in the upper
    part of 32. Floating point in [-1, 1] becomes [0, 1]; where a file goes beyond, [-peak, peak] does, so that silence
    stays at one half.

    Args:
        paths: One or more files, or folders of them, of one sample rate, dtype and number of channels.
        seconds: ``[start, stop]`` of the part to keep; by default all of it.
        length: Keep only the first n samples (of that part).

    Raises:
        InputError: If a file is missing, damaged, empty or compressed, ``seconds`` is outside of it, or the files differ.
    """
    part = _check_seconds(seconds)
    sources = expand(paths, AUDIO_SUFFIXES, kind="sound file")
    found = [_describe(_read(source, part), source.given) for source in sources]
    for what, values in (
        ("sample rates", [f"{sound.rate} Hz" for sound in found]),
        ("numbers of channels", [str(sound.channels) for sound in found]),
        ("dtypes", [sound.dtype for sound in found]),
    ):
        _check_alike(what, values, sources)
    kept = one_length(
        [(source.given, sound.samples) for source, sound in zip(sources, found, strict=True)],
        length,
        ", or seconds: [start, stop]",
    )
    peaks = [sound.peak for sound in found]
    full_range = found[0].dtype[0] != "f"
    return RawSignals(
        names=distinct_names(sources),
        grid=(kept,),
        channels=found[0].channels,
        stored=found[0].dtype,
        scaling=Scaling.of_integers(found[0].dtype)
        if full_range
        else Scaling(found[0].dtype, tuple(-peak for peak in peaks), tuple(peaks)),
        unit=False,
        blocks=partial(_slabs, sources, part, kept),
        rate=float(found[0].rate),
        media="audio",
    )


@dataclass(frozen=True)
class _Sound:
    rate: int
    samples: int
    channels: int
    dtype: str
    peak: float  # of floating point, at least 1


def _slabs(sources: Sequence[Source], part: tuple[float, float] | None, kept: int) -> Iterator[AnyArray]:
    for source in sources:
        yield _read(source, part)[1][:kept]


def _describe(read: tuple[int, AnyArray], given: str) -> _Sound:
    rate, values = read
    peak = 1.0
    if values.dtype.kind == "f":
        finite = np.isfinite(values)
        if not finite.all():
            raise InputError(
                f"{given!r} holds {np.count_nonzero(~finite)} value(s) that are not finite (NaN or infinite), the first at "
                f"sample {int(np.argmax(~finite.all(axis=1)))}; repair it first"
            )
        peak = max(peak, float(np.abs(values).max()))
    return _Sound(rate, len(values), values.shape[1], values.dtype.name, peak)


def _read(source: Source, part: tuple[float, float] | None) -> tuple[int, AnyArray]:
    """The sample rate in Hz, and ``(N, channels)`` in the byte order of this machine."""
    with reading(source.given), source.path.open("rb") as file:
        header = file.read(12)
    if not is_wav(header):
        raise InputError(f"{source.given!r} is not a WAV file, whatever its suffix says; convert it to WAV (PCM)")
    from scipy.io import wavfile  # late: SciPy takes longer to import than a file to read

    try:
        with reading(source.given), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", wavfile.WavFileWarning)
            rate, values = wavfile.read(source.path)
    except InputError as error:
        if "Unknown wave file format" in str(error):
            raise InputError(
                f"{source.given!r} is compressed or of an unusual kind ({error.__cause__}); convert it to PCM, for example "
                "with ffmpeg -i IN.wav -c:a pcm_s16le OUT.wav"
            ) from error
        raise
    # the other warnings are about chunks that are no sound
    cut_off = any("prematurely" in str(warning.message) for warning in caught) and header[4:8] != _UNKNOWN_SIZE
    if cut_off:
        raise InputError(
            f"{source.given!r} is truncated: it ends before the size that its header states. Copy or download it again, or "
            "remove it from the paths"
        )
    values = values.reshape(len(values), -1) if values.size else values.reshape(0, 1)
    if not len(values):
        raise InputError(f"{source.given!r} holds no sound: it has 0 samples. Remove it from the paths")
    if values.dtype.kind == "i" and values.dtype.itemsize > 4:
        raise InputError(f"{source.given!r} holds {8 * values.dtype.itemsize}-bit integers; convert it to at most 32 bits")
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    return int(rate), values if part is None else _cut(values, int(rate), part, source.given)


def _cut(values: AnyArray, rate: int, part: tuple[float, float], given: str) -> AnyArray:
    start, stop = (round(second * rate) for second in part)
    if stop > len(values):
        raise InputError(
            f"seconds: {list(part)} goes beyond {given!r}, which lasts {len(values) / rate:g} s ({len(values)} samples at "
            f"{rate} Hz); set seconds: [start, stop] within [0, {len(values) / rate:g}]"
        )
    if stop - start < 2:
        raise InputError(
            f"seconds: {list(part)} holds {stop - start} sample(s) of {given!r}, at {rate} Hz; at least 2 are needed"
        )
    return values[start:stop]


def _check_seconds(seconds: Sequence[float] | None) -> tuple[float, float] | None:
    if seconds is None:
        return None
    given = list(seconds) if isinstance(seconds, (list, tuple)) else []
    plain = [number for number in given if isinstance(number, (int, float)) and not isinstance(number, bool)]
    if len(given) != 2 or len(plain) != 2 or not np.isfinite(plain).all() or not 0 <= plain[0] < plain[1]:
        raise InputError(f"seconds must be [start, stop], with 0 <= start < stop; got {seconds!r}")
    return float(plain[0]), float(plain[1])


def _check_alike(what: str, values: Sequence[str], sources: Sequence[Source]) -> None:
    groups: dict[str, list[str]] = {}
    for value, source in zip(values, sources, strict=True):
        groups.setdefault(value, []).append(source.given)
    if len(groups) > 1:
        listed = "; ".join(f"{value}: {', '.join(names[:3])}" for value, names in list(groups.items())[:8])
        raise InputError(
            f"the {len(sources)} sound files have {len(groups)} different {what}, but signals that are fitted together "
            f"share one. {listed}. Convert them, or fit them in runs of their own"
        )
