"""Sound files without loss, written back with other samples."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pe_fill.formats.editable import EditableFile, marked_values
from pe_lightning.errors import InputError
from pe_lightning.signals.raw import AnyArray
from pe_lightning.signals.sources.declared import NOTHING
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile
from pe_lightning.signals.sources.sound import Sound, write_sound

LOSSLESS_FORMATS = ("WAV", "WAVEX", "FLAC", "AIFF", "RF64")
LOSSLESS_SUBTYPES = ("PCM_U8", "PCM_S8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")


def edit_sound(file: SourceFile, missing: Missing, axes: int | None = None) -> EditableFile:
    """A sound file without loss (WAV, FLAC, AIFF), in its own sample format."""
    missing.check("sound")
    sound = Sound.open(file)
    if sound.format not in LOSSLESS_FORMATS or sound.subtype not in LOSSLESS_SUBTYPES:
        raise InputError(
            f"{file.given!r} is {sound.format} {sound.subtype}; fill takes PCM and floating-point WAV, FLAC, AIFF"
        )
    values = sound.read()[None]

    marked = marked_values(values, NOTHING.plus(missing.values, values.dtype))
    suffixes = (file.path.suffix.lower(),)
    return EditableFile((file.stem,), values, marked, suffixes, partial(_write_samples, sound), "audio")


def _write_samples(sound: Sound, path: Path, changed: AnyArray) -> None:
    write_sound(path, changed[0], sound.rate, sound.subtype, sound.format)
