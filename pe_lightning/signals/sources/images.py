"""Pictures, and folders of them as the frames of a clip: as signals, and as files that are written back."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from PIL import ExifTags, Image, ImageOps

from pe_lightning.errors import InputError, refuse
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import ARRAYS, PICTURES
from pe_lightning.signals.raw import AnyArray, EditableFile, Mask, RawSignals, ValueRange, full_value, to_unit, value_scaling
from pe_lightning.signals.sources.arrays import array_clips, in_place, read_arrays
from pe_lightning.signals.sources.base import FileSource, sources
from pe_lightning.signals.sources.clips import Clip, alike, as_signals, in_parts
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile, as_list, expand, format_of, reading, visible_files
from pe_lightning.signals.sources.pictures import (
    SAVED_FORMATS,
    declared_by_tiff,
    declared_missing,
    decode_image,
    header_of,
    over_white,
    write_picture,
)
from pe_lightning.signals.validation import Size, choice, in_common

Alpha: TypeAlias = Literal["composite", "keep"]
Limits: TypeAlias = "tuple[float, float] | None"

LAST_NUMBER = re.compile(r"(\d+)(?=\D*$)")
"""The last number in the name of a frame."""


@sources.register("images")
@dataclass(eq=False)
class ImageSource(FileSource):
    """Image files, or arrays ``(H, W)``, ``(H, W, C)`` or ``(S, H, W, C)``, as signals of two axes.

    Args:
        paths: One or more files, folders (sorted, not recursive) or ``samples://NAME``.
        center_crop: ``n`` or ``[height, width]`` of the central part to take.
        resize: ``[height, width]`` to resample to, after the crop; or ``n`` for the shorter side, the aspect ratio kept.
            Bicubic, anti-aliased, in the dtype of the source.
        color: ``"auto"``: one channel if every image is grey, else RGB. ``"rgb"``: always three. ``"grey"``: always
            one, the luma 0.299 R + 0.587 G + 0.114 B, in the dtype of the source.
        max_pixels: Largest number of pixels in the header of a file, checked before decoding; ``None``: no limit.
        key: Array files: the dataset of an ``.h5`` or the array of an ``.npz`` file that has several.
        value_range: Arrays and floating-point image files: ``[low, high]``, the values that become 0 and 1.
        missing: Which samples are missing besides NaN: ``nan``, ``alpha`` (opacity 0), a colour ``#rrggbb``, a number, or a
            mask file that is not zero there, one for all or a list
            (:class:`pe_lightning.signals.sources.missing.Missing`).
        alpha: ``"composite"``: transparent image files are composited over white. ``"keep"``: if any file has transparency,
            every image gets an opacity channel, the last one.
    """

    alpha: Alpha = "composite"

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("alpha", self.alpha, Alpha)
        self._are_arrays = all(format_of(Path(path), by_content=False) in ARRAYS for path in as_list(self.paths))
        if not self._are_arrays and self.key is not None:
            raise InputError("key is for array files (.npz, .h5); leave it out for images")

    def read(self) -> RawSignals:
        """Reads the images, or describes the arrays, as signals ``(S, H, W, C)``."""
        files, missing = self._found, self._missing
        missing.check("arrays" if self._are_arrays else "pictures", *([] if self._are_arrays else ["alpha", "colour"]))
        if self._are_arrays and self._unedited:
            return missing.in_signals(read_arrays(files, 2, self.key, self.value_range, fills=missing.values))
        clips: list[Clip] = []
        for file in files:
            if self._are_arrays:
                clips += array_clips(file, self.key, self._limits, num_axes=2, fills=missing.values)
            else:
                clips.append(read_picture(file, self.max_pixels, self._limits, missing, self.alpha == "keep"))
        clips = [edited(clip, self._crop, self.resize) for clip in clips]
        common = [min(clip.size[axis] for clip in clips) for axis in (0, 1)]
        size = in_common(
            "sizes (height x width)",
            [(clip.file.given, clip.size) for clip in clips],
            f"Set center_crop (the largest that all of them have is {common}) or resize: [height, width]",
        )
        return missing.in_signals(as_signals(alike(clips, self.color), size, notify=self._limits is None))

    def files(self) -> list[Path]:
        """The files that are decoded, and masks, which excludes arrays that are read in place."""
        if self._are_arrays and self._unedited and in_place(self._found):
            return []
        return [*(file.path for file in self._found), *self._missing.paths()]

    @property
    def _unedited(self) -> bool:
        return (self._crop, self.resize, self.color) == (None, None, "auto")

    @cached_property
    def _found(self) -> list[SourceFile]:
        return expand(self.paths, ARRAYS, "array") if self._are_arrays else expand(self.paths, PICTURES, "image")


def edited(clip: Clip, crop: tuple[int | None, ...] | None, resize: Size | None) -> Clip:
    """Crops a clip of one frame, then resizes it; only the result of a picture stays in memory."""
    clip = clip if crop is None else clip.cropped((None, *crop))
    clip = clip if resize is None else clip.resized(resize)
    return clip.decoded() if clip.media == "image" else clip


def read_picture(
    file: SourceFile, max_pixels: int | None, limits: Limits, missing: Missing, keep_alpha: bool = False
) -> Clip:
    """One picture as a clip of one frame."""
    image = missing.in_picture(decode_image(file, max_pixels), file.given, declared_missing(file))
    range_dtype = header_of(file).dtype
    opacity, stored = image.shape[-1] in (2, 4), image.dtype.name
    scaling = _scaling(file, range_dtype, image.dtype, partial(iter, [image]), limits)
    if opacity and range_dtype == "float32" and scaling.found_in_data:
        raise InputError(
            f"{file.given!r} is transparent and holds floating-point values outside [0, 1]; save it without opacity"
        )
    if opacity and not keep_alpha:
        if not (image[..., -1] == full_value(image.dtype)).all():
            rank_zero_info(
                f"{file.given!r} is transparent and composited over white. Set alpha: keep for its opacity as a channel."
            )
        image, opacity = over_white(image), False
    unit = image.dtype.kind == "f" and (range_dtype != "float32" or not scaling.found_in_data)

    def one_frame(_: range) -> Iterator[AnyArray]:
        yield image[None]

    size, channels = (image.shape[0], image.shape[1]), image.shape[2]
    return Clip(file, range(1), size, channels, stored, scaling, "image", one_frame, unit=unit, opacity=opacity)


def _scaling(file: SourceFile, range_dtype: str, dtype: np.dtype[Any], blocks: Any, limits: Limits) -> ValueRange:
    """Scaling of pictures by the dtype of their range: the full range of integers, else that of their values."""
    if range_dtype == "float32":
        return value_scaling(repr(file.given), dtype, blocks, limits)
    if limits is not None:
        raise InputError(
            f"value_range is not for images of integers such as {file.given!r}, which have the range of their format; leave "
            "it out"
        )
    return ValueRange.of_integers(range_dtype)


def frame_files(folder: SourceFile) -> list[SourceFile]:
    """The pictures of a folder, numbers in their names sorted by value: ``2.png`` before ``10.png``."""

    def key(path: Path) -> list[Any]:
        return [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", path.name.casefold())]

    paths = [path for path in visible_files(folder.path) if format_of(path, by_content=False) in PICTURES]
    return [SourceFile(path, str(path)) for path in sorted(paths, key=key)]


def read_frames(folder: SourceFile, max_pixels: int | None, limits: Limits, missing: Missing, fps: float | None) -> Clip:
    """Describes the pictures of a folder as frames composited over white.

    The dtype is uint8 if all pictures have 8 bits, uint16 if all have 8 or 16, else float32. Floating point beyond [0, 1] is
    scaled by the minimum and maximum of all frames, or by ``limits``.
    """
    files = frame_files(folder)
    if len(files) < 2:
        raise InputError(
            f"the frame folder {folder.given!r} holds {len(files)} picture(s), but a signal needs at least 2 frames; use "
            "ImageDataModule for a single picture"
        )
    headers = [header_of(file) for file in files]
    sizes = [(file.path.name, (header.height, header.width)) for file, header in zip(files, headers, strict=True)]
    size = in_common("sizes (height x width) of frames", sizes, "Use ImageDataModule if each picture is a signal")
    bits = {max(header.bits, 8) for header in headers}
    stored = range_dtype = "uint8" if bits == {8} else "uint16" if bits <= {8, 16} else "float32"
    if missing.kind in ("alpha", "colour", "value") or not all(declared_by_tiff(file).is_empty for file in files):
        stored = "float32"
    shape, every = (*size, 1 if all(header.grey for header in headers) else 3), range(len(files))

    def read(frames: range) -> Iterator[AnyArray]:
        for part in in_parts(frames, 4 * shape[0] * shape[1] * shape[2]):
            some = [files[number] for number in part]
            decoded = [(file, decode_image(file, max_pixels)) for file in some]
            images = [over_white(missing.in_picture(image, file.given, declared_missing(file))) for file, image in decoded]
            values = np.stack([np.broadcast_to(to_unit(image), shape) for image in images])  # grey pictures among RGB ones
            yield values if stored == "float32" else np.rint(values * np.float32(full_value(stored))).astype(stored)

    scaling = ValueRange(stored)
    if range_dtype != "float32" or 32 in bits or limits is not None:
        scaling = _scaling(folder, range_dtype, np.dtype(stored), partial(read, every), limits)
    unit = stored == "float32" and (range_dtype != "float32" or not scaling.found_in_data)
    return Clip(folder, every, size, shape[2], stored, scaling, "video", read, fps, unit)


# -- written back ---------------------------------------------------------------------------------------------------------


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
