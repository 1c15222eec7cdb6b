"""Pictures and folders of frames, written back with other samples."""

from __future__ import annotations

import io
import re
import shutil
import struct
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from pe_fill.formats.editable import EditableFile
from pe_lightning.errors import InputError, refuse
from pe_lightning.results.runs import portable
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray, Mask, full_value
from pe_lightning.signals.sources.images import frame_files
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile, reading
from pe_lightning.signals.sources.pictures import decode_image, deep_png
from pe_lightning.signals.sources.tiff import declared_missing

SAVED_FORMATS = {".png": "PNG", ".tif": "TIFF", ".tiff": "TIFF", ".webp": "WEBP", ".jpg": "JPEG", ".jpeg": "JPEG"}
"""Formats of Pillow in which a picture is written, by suffix; PNG is the default."""
SAVE_OPTIONS: dict[str, dict[str, Any]] = {
    "PNG": {},
    "TIFF": {},  # libtiff, which compresses, does not take all EXIF data
    "WEBP": {"lossless": True, "exact": True},
    "JPEG": {"quality": 95, "subsampling": 0},
}
LAST_NUMBER = re.compile(r"(\d+)(?=\D*$)")
"""The last number in the name of a frame."""


def edit_picture(file: SourceFile, missing: Missing) -> EditableFile:
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
        if opened.mode in ("P", "PA", "CMYK"):
            what = "CMYK" if opened.mode == "CMYK" else "stored with a palette"
            rank_zero_info(f"{file.given!r} is {what}: its colours are filled, and the copy is RGB")

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
        marks_left=missing.kind == "alpha",
        path=file.path,
    )


def _write_pixels(
    opacity: AnyArray | None,
    opaque: Mask | None,
    info: dict[str, Any],
    path: Path,
    values: AnyArray,
    left: Mask | None = None,
) -> None:
    """Writes a picture, whose opacity is full where pixels are ``opaque`` and not ``left``."""
    if left is not None and opaque is not None:
        opaque = opaque & ~left[0].any(-1)
    pixels = values[0]
    if opacity is not None:
        full, (height, width) = full_value(opacity.dtype), pixels.shape[:2]
        alpha = opacity[..., 0] if opaque is None else np.where(opaque, full, opacity[..., 0])
        if alpha.shape != (height, width):
            plane = Image.fromarray(alpha.astype(np.float32)).resize((width, height), Image.Resampling.BICUBIC)
            alpha = np.rint(np.asarray(plane).clip(0, full))
        pixels = np.concatenate([pixels, alpha[..., None].astype(opacity.dtype)], -1)
    write_picture(path, pixels, info)


def edit_frames(file: SourceFile, missing: Missing) -> EditableFile:
    """A folder of frames with numbers in their names; missing numbers are lost frames. Changed frames are written as PNG."""
    files, numbered = frame_files(file), dict[int, SourceFile]()
    for frame in files:
        found = LAST_NUMBER.search(frame.path.stem)
        if found is None:
            raise InputError(
                f"a folder is read as the frames of a clip, with a number in each name; {frame.path.name!r} in "
                f"{file.given!r} has none. To fill each picture: pe-lightning fill {file.given}/* --out FOLDER"
            )
        numbered[int(found[1])] = frame
    frames = {number: edit_picture(numbered[number], missing) for number in numbered}
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
    write = partial(_write_frames, frames, values, marked)
    return EditableFile((file.stem,), values, marked, ("",), write, "video", resizes=True, jpeg=jpeg, marks_left=True)


def _write_frames(
    frames: Mapping[int, EditableFile],
    values: AnyArray,
    marked: Mask,
    path: Path,
    changed: AnyArray,
    left: Mask | None = None,
) -> None:
    """Writes a folder with every frame between the first and the last number, but for lost frames that are ``left`` so."""
    paths = {number: Path(str(frame.path)) for number, frame in frames.items()}

    def name_of(number: int) -> str:
        near = paths[min(paths, key=lambda other: abs(other - number))]
        return portable(LAST_NUMBER.sub(lambda digits: f"{number:0{len(digits[1])}d}", near.stem) + ".png")

    path.mkdir()
    for place, number in enumerate(range(min(frames), max(frames) + 1)):
        same = changed.shape == values.shape and (changed[0, place] == values[0, place]).all()
        if number in frames and not marked[0, place].any() and same:
            shutil.copy2(paths[number], path / portable(paths[number].name))
        elif number in frames:
            options = {"left": left[:, place]} if left is not None and frames[number].marks_left else {}
            frames[number].write(path / name_of(number), changed[:, place], **options)
        elif left is None or not left[0, place].all():
            write_picture(path / name_of(number), changed[0, place], {})


def write_picture(path: Path, pixels: AnyArray, info: dict[str, Any]) -> None:
    """Writes ``(H, W, C)`` uint8 or uint16, with EXIF and XMP data, colour profile, resolution and texts of ``info``."""
    form, squeezed = SAVED_FORMATS[path.suffix.lower()], pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    kept = {key: info[key] for key in ("exif", "icc_profile", "dpi", "xmp") if info.get(key)}
    if form == "PNG":
        kept["pnginfo"] = _png_info(info)
    simple = pixels.dtype == np.uint8 or pixels.shape[-1] == 1  # Pillow writes no colour of 16 bits
    content = io.BytesIO()  # NumPy does not report a full disk
    if simple or form == "PNG":
        shown = Image.fromarray(squeezed) if simple else Image.new("RGB", (1, 1))
        shown.save(content, form, **kept, **SAVE_OPTIONS[form])
    else:
        import tifffile

        tifffile.imwrite(
            content,
            squeezed,
            photometric="rgb" if pixels.shape[-1] > 2 else "minisblack",
            extrasamples=["unassalpha"] if pixels.shape[-1] in (2, 4) else None,
            iccprofile=info.get("icc_profile"),
            resolution=info.get("dpi"),
            compression="zlib",
        )
    path.write_bytes(content.getvalue() if simple or form != "PNG" else _deep_png(pixels, content.getvalue()))


def _png_info(info: dict[str, Any]) -> PngInfo:
    found = PngInfo()
    for key, value in info.items():
        if isinstance(value, str):
            found.add_text(key, value)
    if "xmp" in info and "XML:com.adobe.xmp" not in info:
        found.add_itxt("XML:com.adobe.xmp", info["xmp"].decode())
    if "gamma" in info:
        found.add(b"gAMA", struct.pack(">I", round(info["gamma"] * 100_000)))
    if "srgb" in info:
        found.add(b"sRGB", bytes([info["srgb"]]))
    if "chromaticity" in info:
        found.add(b"cHRM", struct.pack(">8I", *(round(value * 100_000) for value in info["chromaticity"])))
    return found


def _deep_png(pixels: AnyArray, other: bytes) -> bytes:
    """A PNG file of ``(H, W, C)`` uint16, with what another PNG file has beside its pixels."""
    import png

    header, *own = png.Reader(bytes=deep_png(pixels)).chunks()
    kept = [chunk for chunk in png.Reader(bytes=other).chunks() if bytes(chunk[0]) not in (b"IHDR", b"IDAT", b"IEND")]
    result = io.BytesIO()
    png.write_chunks(result, [header, *kept, *own])
    return result.getvalue()
