"""Missing samples of a source: which values, colours, transparent pixels or masks mark them, and NaN in their place.

NaN is the only mark of a missing sample in the values of :class:`~pe_lightning.signals.raw.RawSignals`; such a sample is
neither trained nor scored. A sample is missing if a channel of it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from PIL import ImageColor

from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import ARRAYS, PICTURES
from pe_lightning.signals.raw import AnyArray, Decoded, Mask, RawSignals, float_for, is_one_of, to_unit, with_nan
from pe_lightning.signals.sources.arrays import find_array
from pe_lightning.signals.sources.declared import exact_number
from pe_lightning.signals.sources.paths import SourceFile, expand, format_of, reading
from pe_lightning.signals.sources.pictures import decode_image
from pe_lightning.signals.sources.tiff import upright
from pe_lightning.signals.sources.volumes import open_nifti

MissingLike: TypeAlias = str | float | list[str]
"""``nan``, ``alpha``, a colour ``#rrggbb``, a number, ``frames:10-14,30``, a mask file, or one mask file per signal."""

FRAMES = "frames:"
SIMILAR_LEVELS = 48
"""Largest difference of a channel, of 255, between a colour and almost the same."""
MAX_SIMILAR_SHARE = 0.1
"""Pixels of almost the colour of missing ones, as a share of these, from which a notice is printed."""
ALLOWED = "nan, alpha, a colour such as '#ff00ff', a number, frames:10-14,30, or a mask file"


@dataclass(frozen=True)
class Missing:
    """What marks missing samples, besides NaN, infinite values and fill values that a file declares.

    Args:
        given: ``nan``: nothing else. ``alpha``: pixels of opacity 0. A colour ``#rrggbb`` of pictures. A number: this value;
            several with commas: ``-9999,-999``. ``frames:10-14,30``: frames of a clip or slices of a volume, from 0, both
            ends included. Otherwise a mask file, not zero at missing samples, or a list of one per signal: a picture, an
            array file (``.npy``, ``.npz``, HDF5 of one array) or a NIfTI volume, of the shape of the signals after crop and
            resize, or of their leading axes (frames of a clip), or of the last ones (the same in every frame).
    """

    given: MissingLike = "nan"

    def __post_init__(self) -> None:
        if isinstance(self.given, list) and len(self.given) == 1:
            object.__setattr__(self, "given", self.given[0])
        given = self.given
        known = isinstance(given, (str, float, int, list)) and not isinstance(given, bool) and given == given
        if not known or given in ("", []) or (str(given).startswith("#") and self.kind != "colour"):
            raise InputError(f"missing must be {ALLOWED}; got {given!r}")
        if self.kind == "frames":
            self._ranges()

    @cached_property
    def kind(self) -> Literal["nan", "alpha", "colour", "value", "frames", "mask"]:
        text = str(self.given)
        if text.startswith(FRAMES):
            return "frames"
        if text in ("nan", "alpha"):
            return text  # type: ignore[return-value]
        if re.fullmatch("#[0-9a-fA-F]{6}", text):
            return "colour"
        return "value" if self.values else "mask"

    @cached_property
    def values(self) -> tuple[float, ...]:
        """The numbers that mark missing values; integers as ``int``, of any size."""
        entries = self.given if isinstance(self.given, list) else str(self.given).split(",")
        found = [exact_number(str(entry)) for entry in entries]
        return () if None in found else tuple(number for number in found if number is not None)

    @cached_property
    def masks(self) -> list[SourceFile]:
        """The mask files."""
        if self.kind != "mask":
            return []
        if re.fullmatch(r"\w+", str(self.given)) and not Path(str(self.given)).exists():  # such as the name of a colour
            raise InputError(f"missing must be {ALLOWED}; there is no file {self.given!r}")
        return expand(self.given, {*PICTURES, *ARRAYS, "nifti"}, "mask")  # type: ignore[arg-type]

    def _ranges(self) -> list[tuple[int, int]]:
        found = [re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part) for part in str(self.given)[len(FRAMES) :].split(",")]
        ranges = [(int(part[1]), int(part[2] or part[1])) for part in found if part is not None]
        if len(ranges) < len(found) or any(first > last for first, last in ranges):
            raise InputError(f"missing: lost frames are given by their numbers from 0, frames:10-14,30; got {self.given!r}")
        return ranges

    def in_grid(self, grid: Sequence[int], count: int, orientation: int = 1, xyz: bool = False) -> list[Mask]:
        """Samples of lost frames and mask files: no mask, one for all ``count`` signals or one each, ``(N_1, ..., N_D)``.

        ``orientation`` and ``xyz`` are arguments of :func:`read_masks`.
        """
        if self.kind != "frames":
            return read_masks(self.masks, grid, count, orientation, xyz) if self.masks else []
        if len(grid) != 3 or max(last for _, last in self._ranges()) >= grid[0]:
            has = f"have {grid[0]} frames" if len(grid) == 3 else f"have {len(grid)} axes and no frames"
            raise InputError(f"missing: {self.given} counts frames from 0, and the signals {has}")
        lost = np.zeros(tuple(grid), bool)
        for first, last in self._ranges():
            lost[first : last + 1] = True
        return [lost]

    def check(self, what: str, *kinds: str) -> None:
        """Refuses ``alpha`` and ``colour`` for signals, named in the plural, unless they are in ``kinds``."""
        if self.kind in ("alpha", "colour") and self.kind not in kinds:
            raise InputError(f"missing: {self.given} is for pictures, not for {what}; give nan, a number, or a mask")

    def only_values(self, what: str) -> tuple[float, ...]:
        """The numbers that mark missing values; other marks are refused for ``what``."""
        if self.kind not in ("nan", "value"):
            raise InputError(
                f"missing values of {what} are marked by numbers, such as -9999 or -9999,-999; got {self.given!r}"
            )
        return self.values

    def in_picture(self, image: AnyArray, file: str, declared: Mask | None = None) -> AnyArray:
        """A decoded picture ``(H, W, C)`` with NaN at missing samples, in [0, 1] where integers have some.

        Opacity that only marks missing pixels is removed. ``declared`` ``(H, W)``: pixels that the file declares missing.
        """
        marked = np.zeros(image.shape[:2], dtype=bool)
        opacity = image.shape[-1] in (2, 4)
        if self.kind == "alpha":
            if not opacity:
                raise InputError(f"missing: alpha needs transparent pixels, and {file!r} has no opacity; give a mask file")
            marked = image[..., -1] == 0
            if (opaque := image[..., -1][~marked]).size and (opaque == opaque.max()).all():
                image = image[..., :-1]
        elif self.kind == "colour":
            colour = np.array(ImageColor.getrgb(str(self.given)))
            values = image[..., :-1] if opacity else image
            levels = np.rint(to_unit(values) * 255) if values.dtype != np.uint8 else values
            marked = (levels == colour).all(-1)
            almost = int((np.abs(levels.astype(np.float32) - colour).max(-1) <= SIMILAR_LEVELS).sum() - marked.sum())
            if almost > MAX_SIMILAR_SHARE * marked.sum():
                rank_zero_info(
                    f"{file!r}: {almost:,} pixels have almost the colour {self.given}, and count as known; a mark needs "
                    "hard edges and a file without losses, such as PNG"
                )
        elif self.kind == "value":
            marked = np.asarray(is_one_of(image, self.values).all(-1))
        marked = marked if declared is None else marked | declared
        return with_nan(to_unit(image), marked[..., None]) if marked.any() else image


def with_missing(raw: RawSignals, missing: Missing) -> RawSignals:
    """The signals with NaN where mask files are not zero, and in lost frames."""
    marked = missing.in_grid(raw.grid, len(raw.names))
    if not marked:
        return raw

    def decode(_: Sequence[int]) -> Iterator[AnyArray]:
        row = 0
        for block in raw.blocks():
            signal, first = divmod(row, raw.grid[0])
            mask = marked[signal if len(marked) > 1 else 0][first : first + len(block)]
            row += len(block)
            yield with_nan(block, mask[..., None])

    return replace(raw, values=Decoded(raw.shape, float_for(raw.stored), decode))


def read_masks(
    files: Sequence[SourceFile], grid: Sequence[int], count: int, orientation: int = 1, xyz: bool = False
) -> list[Mask]:
    """Where mask files are not zero, ``(N_1, ..., N_D)``: one mask for all of ``count`` signals, or one for each.

    Args:
        files: The mask files.
        grid: Number of samples per axis.
        count: Number of signals.
        orientation: EXIF orientation of a picture, which is applied to a mask of its stored size.
        xyz: Whether the axes of the signals are in the order of a NIfTI file, x first.
    """
    if len(files) not in (1, count):
        raise InputError(f"{len(files)} masks for {count} signal(s); give one for all, or one for each")
    masks = []
    for file in files:
        mask = _read_mask(file)
        mask = mask.T if xyz and format_of(file.path) == "nifti" else mask
        if orientation >= 5 and mask.shape != tuple(grid) and mask.shape == tuple(grid)[::-1]:
            mask = np.asarray(upright(mask[..., None].astype(np.uint8), orientation)[..., 0] > 0)
        masks.append(spread_mask(mask, grid, file.given))
    return masks


def spread_mask(mask: Mask, grid: Sequence[int], file: str) -> Mask:
    """A mask for the whole grid from one of its shape, of its leading or of its last axes."""
    grid, axes = tuple(grid), mask.ndim
    if mask.shape == grid[:axes]:
        return np.broadcast_to(mask.reshape(*mask.shape, *[1] * (len(grid) - axes)), grid)
    if mask.shape == grid[len(grid) - axes :]:
        return np.broadcast_to(mask, grid)
    raise InputError(
        f"the mask {file!r} has {'x'.join(map(str, mask.shape))} samples, but the signals have {'x'.join(map(str, grid))}. "
        "A mask has the shape of the signals after crop and resize, or of their leading or last axes"
    )


def _read_mask(file: SourceFile) -> Mask:
    """An array of any shape, a volume ``(Z, Y, X)``, or a picture ``(H, W)``.

    A pixel of a picture is not zero if a colour channel is not, and it is not transparent; of a JPEG, if a channel is above
    half of its range.
    """
    kind = format_of(file.path)
    if kind in ARRAYS:
        image: AnyArray = find_array(file).load()
    elif kind == "nifti":
        volume = open_nifti(file)
        with reading(file.given):
            image = np.asanyarray(volume.dataobj).squeeze().T
    elif kind in PICTURES:
        image = decode_image(file)
    else:
        raise InputError(f"the mask {file.given!r} is neither an array file, a NIfTI volume nor a picture")
    if image.dtype.kind == "f" and np.isnan(image).any():
        raise InputError(f"the mask {file.given!r} holds NaN; save it as booleans: numpy.save(path, mask)")
    if kind not in PICTURES:
        return np.asarray(image != 0)
    with file.path.open("rb") as opened:
        is_jpeg = opened.read(2) == b"\xff\xd8"
    if is_jpeg:  # which does not preserve zeros
        rank_zero_info(f"the mask {file.given!r} is a JPEG: its pixels above half of the range are missing samples")
        image = image > 127
    if image.shape[-1] in (2, 4):
        return np.asarray(image[..., :-1].any(axis=-1) & (image[..., -1] > 0))
    return np.asarray(image.any(axis=-1))
