"""Sound files without loss, written back with other samples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pe_fill.formats.editable import EditableFile, marked_values
from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray
from pe_lightning.signals.sources.declared import NOTHING
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile
from pe_lightning.signals.sources.sound import Sound, write_sound

LOSSLESS_FORMATS = ("WAV", "WAVEX", "FLAC", "AIFF", "RF64")
STREAM_INFO, SEEK_TABLE = 0, 3  # metadata blocks of FLAC
LOSSLESS_SUBTYPES = ("PCM_U8", "PCM_S8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")


def edit_sound(file: SourceFile, missing: Missing) -> EditableFile:
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
    old, new = sound.file.path.read_bytes(), path.read_bytes()
    if old[:4] == b"RIFX":  # big-endian, and the copy is not
        rank_zero_info(f"the copy of {sound.file.given!r} has its samples, and no other chunks such as LIST and cue")
        return
    path.write_bytes(_with_blocks(old, new) if old[:4] == b"fLaC" else _with_chunks(old, new))


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Names and bytes of the chunks of a WAV, RF64 or AIFF file; of the samples, the name alone."""
    order, place, long = "big" if content[:4] == b"FORM" else "little", 12, 0
    while place + 8 <= len(content):
        name, size = content[place : place + 4], int.from_bytes(content[place + 4 : place + 8], order)  # type: ignore[arg-type]
        if name == b"ds64":
            long = int.from_bytes(content[place + 16 : place + 24], "little")
        size = long if name == b"data" and size == 2**32 - 1 else size
        end = place + 8 + size + size % 2
        if end > len(content) + 1:  # not the header of a chunk, or of a file that was written to a pipe
            return
        yield name, b"" if name in (b"data", b"SSND") else content[place:end]
        place = end


def _with_chunks(old: bytes, new: bytes) -> bytes:
    """A new file with the chunks of the old one that it lacks, such as tags, cues and loops, after its samples."""
    own = {b"ds64", *(name for name, _ in _chunks(new))}
    kept = b"".join(chunk for name, chunk in _chunks(old) if name not in own)
    result = new + bytes(len(new) % 2) + kept
    if new[:4] == b"RF64":  # the size is in the first chunk, ds64
        return result[:20] + (len(result) - 8).to_bytes(8, "little") + result[28:]
    return result[:4] + (len(result) - 8).to_bytes(4, "big" if new[:4] == b"FORM" else "little") + result[8:]


def _blocks(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Types and bytes of the metadata blocks of a FLAC file, without the mark of the last, and then its frames as 127."""
    place, last = 4, False
    while not last:
        last, end = content[place] > 127, place + 4 + int.from_bytes(content[place + 1 : place + 4], "big")
        yield content[place] & 127, bytes([content[place] & 127]) + content[place + 1 : end]
        place = end
    yield 127, content[place:]


def _with_blocks(old: bytes, new: bytes) -> bytes:
    """A new FLAC file with the tags, pictures and cues of the old one."""
    (_, info), *_, (_, frames) = _blocks(new)
    kept = [block for kind, block in _blocks(old) if kind not in (STREAM_INFO, SEEK_TABLE, 127)]
    *first, last = [info, *kept]
    return b"".join([b"fLaC", *first, bytes([last[0] | 128]), last[1:], frames])
