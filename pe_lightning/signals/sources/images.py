"""Pictures, and folders of pictures as the frames of a clip."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import ARRAYS, PICTURES, suffixes_of
from pe_lightning.signals.raw import AnyArray, Decoded, RawSignals, ValueRange, full_value, to_unit, value_scaling
from pe_lightning.signals.sources.arrays import array_clips, read_arrays
from pe_lightning.signals.sources.base import FileSource, sources
from pe_lightning.signals.sources.clips import Clip, Limits, alike, as_signals, held, in_parts
from pe_lightning.signals.sources.missing import Missing, with_missing
from pe_lightning.signals.sources.paths import SourceFile, as_list, expand, format_of
from pe_lightning.signals.sources.pictures import decode_image, header_of, over_white
from pe_lightning.signals.sources.tiff import declared_missing, declares_missing, is_stack
from pe_lightning.signals.validation import Size, choice, in_common

Alpha: TypeAlias = Literal["composite", "keep"]


@sources.register("images")
@dataclass(eq=False)
class ImageSource(FileSource):
    """Image files, or arrays ``(H, W)``, ``(H, W, C)`` or ``(S, H, W, C)``, cropped, then resized, as signals of two axes.

    Args:
        alpha: ``"composite"``: transparent images are composited over white. ``"keep"``: if any file has transparency,
            every image gets opacity as its last channel.
    """

    suffixes = tuple(suffixes_of(PICTURES))
    datamodule = "ImageDataModule"

    alpha: Alpha = "composite"

    @classmethod
    def claims(cls, path: Path) -> bool:
        return super().claims(path) and not is_stack(SourceFile(path, str(path)))

    @classmethod
    def recipe_group(cls, files: Sequence[Path]) -> str:
        return "image"

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
            return with_missing(read_arrays(files, 2, self.key, self.value_range, fills=missing.values), missing)
        clips: list[Clip] = []
        for file in files:
            if self._are_arrays:
                clips += array_clips(file, self.key, self._limits, num_axes=2, fills=missing.values)
            else:
                clips.append(read_picture(file, self.max_pixels, self._limits, missing, self.alpha == "keep"))
        clips = [edited(clip, self._crop, self.resize) for clip in clips]
        common = [min(clip.grid[axis] for clip in clips) for axis in (1, 2)]
        size = in_common(
            "sizes (height x width)",
            [(clip.file.given, clip.grid[1:]) for clip in clips],
            f"Set center_crop (the largest that all of them have is {common}) or resize: [height, width]; or "
            "fit each alone: pe-lightning sweep --vary data.paths=A,B --vary model.encoder=gau,tri",
        )
        return with_missing(as_signals(alike(clips, self.color), size, notify=self._limits is None), missing)

    def _expanded(self) -> list[SourceFile]:
        return expand(self.paths, ARRAYS, "array") if self._are_arrays else expand(self.paths, PICTURES, "image")


def edited(clip: Clip, crop: tuple[int | None, ...] | None, resize: Size | None) -> Clip:
    """A clip of one frame, cropped, then resized; only the result of a picture stays in memory."""
    clip = clip if crop is None else clip.cropped((None, *crop))
    clip = clip if resize is None else clip.resized(resize)
    return clip.loaded() if clip.media == "image" else clip


def read_picture(
    file: SourceFile, max_pixels: int | None, limits: Limits, missing: Missing, keep_alpha: bool = False
) -> Clip:
    """One picture as a clip of one frame."""
    image = missing.in_picture(decode_image(file, max_pixels), file.given, declared_missing(file))
    range_dtype = header_of(file).dtype
    opacity = image.shape[-1] in (2, 4)
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
    return Clip(
        values=held(image[None]), names=(file.stem,), scaling=scaling, media="image", unit=unit, file=file, opacity=opacity
    )


def _scaling(file: SourceFile, range_dtype: str, dtype: np.dtype[Any], blocks: Any, limits: Limits) -> ValueRange:
    """Scaling of pictures: the full range of integers, else the range of the values."""
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

    paths = [path for path in folder.content() if format_of(path, by_content=False) in PICTURES]
    return [SourceFile(path, str(path)) for path in sorted(paths, key=key)]


def read_frames(folder: SourceFile, max_pixels: int | None, limits: Limits, missing: Missing, fps: float | None) -> Clip:
    """Describes the pictures of a folder as frames, composited over white, in the widest of their dtypes.

    Floating point beyond [0, 1] is scaled by the minimum and maximum of all frames, or by ``limits``.
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
    if missing.kind in ("alpha", "colour", "value") or any(map(declares_missing, files)):
        stored = "float32"
    shape = (*size, 1 if all(header.grey for header in headers) else 3)

    def decode(frames: Sequence[int]) -> Iterator[AnyArray]:
        for part in in_parts(frames, 4 * shape[0] * shape[1] * shape[2]):
            some = [files[number] for number in part]
            decoded = [(file, decode_image(file, max_pixels)) for file in some]
            images = [over_white(missing.in_picture(image, file.given, declared_missing(file))) for file, image in decoded]
            values = np.stack([np.broadcast_to(to_unit(image), shape) for image in images])  # grey pictures among RGB ones
            yield values if stored == "float32" else np.rint(values * np.float32(full_value(stored))).astype(stored)

    frames, scaling = Decoded((1, len(files), *shape), np.dtype(stored), decode), ValueRange(stored)
    if range_dtype != "float32" or 32 in bits or limits is not None:
        scaling = _scaling(folder, range_dtype, frames.dtype, frames.blocks, limits)
    unit = stored == "float32" and (range_dtype != "float32" or not scaling.found_in_data)
    return Clip(values=frames, names=(folder.stem,), scaling=scaling, unit=unit, rate=fps, media="video", file=folder)
