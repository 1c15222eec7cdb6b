"""A folder of pictures as one signal: its frames, sorted by name as a person would (``2.png`` before ``10.png``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pe_lightning.data.signals import AnyArray, Scaling
from pe_lightning.data.sources.checks import in_common
from pe_lightning.data.sources.clips import Clip, frames_at_once
from pe_lightning.data.sources.paths import PICTURES, SourceFile, format_of, visible_files
from pe_lightning.data.sources.pictures import decode_image, header_of, over_white
from pe_lightning.errors import InputError

__all__ = ["read_frames"]


def read_frames(folder: SourceFile, fps: float | None, max_pixels: int | None) -> Clip:
    """Describes the pictures of a folder; transparent ones are laid over white.

    They are stored with 8 bits if all have 8, with 16 if the others have 16, else as float32 in [0, 1].

    Raises:
        InputError: If there are fewer than 2 pictures, or they differ in size.
    """
    paths = [path for path in visible_files(folder.path) if format_of(path, by_content=False) in PICTURES]
    if len(paths) < 2:
        raise InputError(
            f"the frame folder {folder.given!r} holds {len(paths)} picture(s), and a signal needs at least 2 frames; for "
            "pictures that are signals by themselves use ImageDataModule"
        )
    files = [SourceFile(path, str(path)) for path in sorted(paths, key=_natural_key)]
    headers = [header_of(file) for file in files]
    sizes = [(file.path.name, (header.height, header.width)) for file, header in zip(files, headers, strict=True)]
    remedy = "Move the other frames out of the folder, or use ImageDataModule if each picture is a signal"
    size = in_common("sizes (height x width) of frames", sizes, remedy, "{0[0]}x{0[1]}".format, few=1)
    bits = {max(header.bits, 8) for header in headers}
    stored = "uint8" if bits == {8} else "uint16" if bits <= {8, 16} else "float32"
    channels = 1 if all(header.grey for header in headers) else 3
    return Clip(
        file=folder,
        frames=range(len(files)),
        size=size,
        channels=channels,
        stored=stored,
        scaling=Scaling(stored) if stored == "float32" else Scaling.of_integers(stored),
        media="video",
        read=partial(_decode, files, (*size, channels), stored, max_pixels),
        rate=fps,
        unit=stored == "float32",
    )


def _natural_key(path: Path) -> tuple[Any, ...]:
    """Sorts numbers in names by their value."""
    parts = re.split(r"([0-9]+)", path.name.casefold())
    return (*((int(part), part) if part.isdecimal() else (0, part) for part in parts), path.name)


def _decode(
    files: Sequence[SourceFile], shape: tuple[int, int, int], stored: str, max_pixels: int | None, frames: range
) -> Iterator[AnyArray]:
    limit = frames_at_once(4 * shape[0] * shape[1] * shape[2])
    for start in range(0, len(frames), limit):
        chosen = [files[number] for number in frames[start : start + limit]]
        yield np.stack([_frame(file, shape, stored, max_pixels) for file in chosen])


def _frame(file: SourceFile, shape: tuple[int, int, int], stored: str, max_pixels: int | None) -> AnyArray:
    array = over_white(decode_image(file, max_pixels))
    if array.shape[-1] == 1 and shape[2] == 3:
        array = np.repeat(array, 3, axis=-1)
    if array.shape != shape:
        raise InputError(f"{file.given!r} decodes to {array.shape}, but its header says {shape} (height, width, channels)")
    return array if stored == "float32" else np.rint(array * np.float32(np.iinfo(stored).max)).astype(stored)
