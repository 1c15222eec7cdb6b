"""Photographs, drawings, scans and arrays as signals of two axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, TypeAlias

from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import ARRAYS, PICTURES
from pe_lightning.signals.raw import AnyArray, RawSignals, ValueRange
from pe_lightning.signals.sources.arrays import in_place, read_arrays
from pe_lightning.signals.sources.base import Source, sources
from pe_lightning.signals.sources.checks import MAX_PIXELS, Size, as_size, in_common, number_range, resized, value_scaling
from pe_lightning.signals.sources.clips import Clip, Color, alike, as_signals
from pe_lightning.signals.sources.missing import Missing, MissingLike
from pe_lightning.signals.sources.paths import Paths, SourceFile, as_list, expand, format_of
from pe_lightning.signals.sources.pictures import decode_image, full_value, header_of, over_white, range_of_integers
from pe_lightning.signals.sources.stacks import read_stack_arrays
from pe_lightning.signals.validation import choice, integer

Alpha: TypeAlias = Literal["composite", "keep"]


@sources.register("images")
@dataclass(eq=False)
class ImageSource(Source):
    """Image files, or arrays ``(H, W)``, ``(H, W, C)`` or ``(S, H, W, C)``, as signals of two axes.

    Args:
        paths: One or more files, folders (sorted, not recursive) or ``samples://NAME``.
        center_crop: ``n`` or ``[height, width]`` of the central part to take.
        resize: ``[height, width]`` to resample to, after the crop; or ``n`` for the shorter side, the aspect ratio kept.
            Bicubic, anti-aliased, in the dtype of the source.
        color: ``"auto"``: one channel if every image is grey, else RGB. ``"rgb"``: always three. ``"grey"``: always
            one, the luma 0.299 R + 0.587 G + 0.114 B, in the dtype of the source.
        alpha: ``"composite"``: transparent image files are composited over white. ``"keep"``: if any file has transparency,
            every image gets an opacity channel, the last one.
        max_pixels: Largest number of pixels in the header of a file, checked before decoding; ``None``: no limit.
        key: Array files: the dataset of an ``.h5`` or the array of an ``.npz`` file that has several.
        value_range: Arrays and floating-point image files: ``[low, high]``, the values that become 0 and 1.
        missing: Which samples are missing besides NaN: ``nan``, ``alpha`` (opacity 0), a colour ``#rrggbb``, a number, or a
            mask file that is not zero there, one for all or a list
            (:class:`pe_lightning.signals.sources.missing.Missing`).
    """

    paths: Paths
    center_crop: Size | None = None
    resize: Size | None = None
    color: Color = "auto"
    alpha: Alpha = "composite"
    max_pixels: int | None = MAX_PIXELS
    key: str | None = None
    value_range: list[float] | None = None
    missing: MissingLike = "nan"

    def __post_init__(self) -> None:
        self.paths = as_list(self.paths)
        self._crop = as_size("center_crop", self.center_crop)
        as_size("resize", self.resize)
        choice("color", self.color, Color)
        choice("alpha", self.alpha, Alpha)
        if self.max_pixels is not None:
            integer("max_pixels", self.max_pixels, 1)
        self._limits = number_range("value_range", self.value_range)
        self._missing = Missing(self.missing)
        self._are_arrays = all(format_of(Path(path), by_content=False) in ARRAYS for path in self.paths)
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
                arrays = read_stack_arrays(file, self.key, self._limits, num_axes=2, fills=missing.values)
                clips += [edited(clip, self._crop, self.resize) for clip in arrays]
            else:
                keep = self.alpha == "keep"
                clips.append(read_picture(file, self._crop, self.resize, keep, self.max_pixels, self._limits, missing))
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


def read_picture(
    file: SourceFile,
    crop: tuple[int, int] | None,
    resize: Size | None,
    keep_alpha: bool,
    max_pixels: int | None,
    limits: tuple[float, float] | None = None,
    missing: Missing = Missing(),  # noqa: B008  (frozen)
) -> Clip:
    """One picture as a clip of one frame in memory, cropped, then resized."""
    image, range_dtype = missing.in_picture(decode_image(file, max_pixels), file.given), header_of(file).dtype
    opacity = image.shape[-1] in (2, 4)
    scaling, stored = ValueRange(range_dtype), image.dtype.name
    if range_dtype != "float32":
        scaling = ValueRange.of_integers(range_dtype)
        if limits is not None:
            raise range_of_integers(file)
    else:
        scaling = value_scaling(repr(file.given), image.dtype, lambda: iter([image]), limits)
        if opacity and scaling != ValueRange(range_dtype):
            raise InputError(
                f"{file.given!r} is transparent and holds floating-point values outside [0, 1]; save it without opacity"
            )
    if opacity and not keep_alpha:
        if not (image[..., -1] == full_value(image.dtype)).all():
            rank_zero_info(
                f"{file.given!r} is transparent and composited over white. Set alpha: keep for its opacity as a channel."
            )
        image, opacity = over_white(image), False
    height, width, channels = image.shape
    clip = Clip(
        file=file,
        frames=range(1),
        size=(height, width),
        channels=channels,
        stored=stored,
        scaling=scaling,
        media="image",
        read=partial(_one_frame, image),
        unit=image.dtype.kind == "f" and (range_dtype != "float32" or scaling == ValueRange(range_dtype)),
        opacity=opacity,
    )
    return edited(clip, crop, resize).decoded()


def edited(clip: Clip, crop: tuple[int, int] | None, resize: Size | None) -> Clip:
    """Crops a clip of one frame, then resizes it."""
    clip = clip if crop is None else clip.cropped((None, *crop))
    return clip if resize is None else clip.resized(resized(resize, clip.size))


def _one_frame(image: AnyArray, frames: range) -> Iterator[AnyArray]:
    yield image[None]
