"""Pictures and folders of frames, written back with other samples."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageOps

from pe_fill.formats.editable import EditableFile
from pe_lightning.errors import InputError, refuse
from pe_lightning.signals.raw import AnyArray, Mask, full_value
from pe_lightning.signals.sources.images import frame_files
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile, reading
from pe_lightning.signals.sources.pictures import SAVED_FORMATS, declared_missing, decode_image, write_picture

LAST_NUMBER = re.compile(r"(\d+)(?=\D*$)")
"""The last number in the name of a frame."""


def edit_picture(file: SourceFile, missing: Missing, axes: int | None = None) -> EditableFile:
    """A picture of 8 or 16 bits. Opacity is copied, and full at samples that alpha marked."""
    image = decode_image(file)
    if image.dtype.kind == "f":
        raise InputError(
            f"fill writes pictures of 8 or 16 bits, and {file.given!r} has another number; save it as TIFF or .npy"
        )
    opacity = image[..., -1:] if image.shape[-1] in (2, 4) else None
    marked: Mask = np.asarray(np.isnan(missing.in_picture(image, file.given, declared_missing(file))).any(-1))
    colours = image if opacity is None else image[..., :-1]
    with reading(file.given), Image.open(file.path) as opened:
        jpeg, orientation = opened.format in ("JPEG", "MPO"), int(opened.getexif().get(ExifTags.Base.Orientation, 1))
        ImageOps.exif_transpose(opened, in_place=True)  # also takes the orientation out of EXIF and XMP data
        info = dict(opened.info)

    refused = {"JPEG", "WEBP"} if image.dtype == np.uint16 else {"JPEG"} if opacity is not None else set()
    return EditableFile(
        (file.stem,),
        np.ascontiguousarray(colours)[None],
        np.broadcast_to(marked[..., None], colours.shape).copy()[None],
        tuple(suffix for suffix, form in SAVED_FORMATS.items() if form not in refused),
        partial(_write_pixels, opacity, marked if missing.kind == "alpha" else None, info),
        "image",
        resizes=True,
        jpeg=jpeg,
        orientation=orientation,
    )


def _write_pixels(opacity: AnyArray | None, opaque: Mask | None, info: dict[str, Any], path: Path, values: AnyArray) -> None:
    """A picture; its opacity is full where pixels are ``opaque``."""
    pixels = values[0]
    if opacity is not None:
        alpha = opacity if opaque is None else np.where(opaque[..., None], full_value(opacity.dtype), opacity)
        pixels = np.concatenate([pixels, _resized_opacity(alpha[..., 0], pixels.shape).astype(opacity.dtype)], -1)
    write_picture(path, pixels, info)


def _resized_opacity(opacity: AnyArray, shape: tuple[int, ...]) -> AnyArray:
    """Opacity ``(h, w)`` of as many pixels as a picture ``(H, W, C)`` has: ``(H, W, 1)``."""
    if opacity.shape != shape[:2]:
        enlarged = Image.fromarray(opacity.astype(np.float32)).resize((shape[1], shape[0]), Image.Resampling.BICUBIC)
        opacity = np.rint(np.asarray(enlarged).clip(0, full_value(opacity.dtype)))
    return opacity[..., None]


def edit_frames(file: SourceFile, missing: Missing, axes: int | None = None) -> EditableFile:
    """A folder of frames as pictures with numbers in their names; missing numbers are lost frames.

    Frames that are not changed are copied; others are written as PNG.
    """
    files, numbered = frame_files(file), dict[int, SourceFile]()
    for frame in files:
        found = LAST_NUMBER.search(frame.path.stem)
        if found is None:
            raise InputError(
                f"a folder is read as the frames of a clip, with a number in each name; {frame.path.name!r} in "
                f"{file.given!r} has none. To fill each picture: pe-lightning fill {file.given}/* --out FOLDER"
            )
        numbered[int(found[1])] = frame
    frames = {number: edit_picture(frame, missing) for number, frame in numbered.items()}
    kinds = {(frame.values.shape, frame.values.dtype) for frame in frames.values()}
    refuse(
        (len(frames) < max(2, len(files)), f"{file.given!r} needs two frames, each with a number of its own in its name"),
        (len(kinds) > 1, f"the frames in {file.given!r} differ in size, channels or dtype; save them alike"),
    )
    every, some = range(min(frames), max(frames) + 1), next(iter(frames.values()))
    values = np.zeros((1, len(every), *some.values.shape[1:]), some.values.dtype)
    marked = np.ones(values.shape, bool)
    for number, frame_of_file in frames.items():
        values[:, number - every[0]], marked[:, number - every[0]] = frame_of_file.values, frame_of_file.missing

    jpeg = any(frame.jpeg for frame in frames.values())
    write = partial(_write_frames, numbered, frames, values, marked)
    return EditableFile((file.stem,), values, marked, ("",), write, "video", resizes=True, jpeg=jpeg)


def _write_frames(
    numbered: Mapping[int, SourceFile],
    frames: Mapping[int, EditableFile],
    values: AnyArray,
    marked: Mask,
    path: Path,
    changed: AnyArray,
) -> None:
    """A folder of frames, of which those between the first and the last number are all there."""

    def name_of(number: int) -> str:
        near = numbered[min(numbered, key=lambda other: abs(other - number))].path
        return LAST_NUMBER.sub(lambda digits: f"{number:0{len(digits[1])}d}", near.stem) + ".png"

    path.mkdir()
    for place, number in enumerate(range(min(frames), max(frames) + 1)):
        same = changed.shape == values.shape and (changed[0, place] == values[0, place]).all()
        if number in frames and not marked[0, place].any() and same:
            shutil.copy2(numbered[number].path, path)
        elif number in frames:
            frames[number].write(path / name_of(number), changed[:, place])
        else:
            write_picture(path / name_of(number), changed[0, place], {})
