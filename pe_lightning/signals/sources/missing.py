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

from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import ARRAYS, PICTURES, Format
from pe_lightning.signals.raw import AnyArray, Mask, RawSignals, float_for, is_one_of, to_unit, with_nan
from pe_lightning.signals.sources.arrays import find_array
from pe_lightning.signals.sources.declared import exact_number
from pe_lightning.signals.sources.paths import SourceFile, expand, format_of, reading
from pe_lightning.signals.sources.pictures import decode_image, upright

MissingLike: TypeAlias = str | float | list[str]
"""``nan``, ``alpha``, a colour ``#rrggbb``, a number, ``frames:10-14,30``, a mask file, or one mask file per signal."""

FRAMES = "frames:"
"""Beginning of a list of lost frames."""
SIMILAR_LEVELS = 48
"""Largest difference of a channel, of 255, between a colour and almost the same."""
MAX_SIMILAR_SHARE = 0.1
"""Pixels of almost the colour of missing ones, as a share of these, from which a notice is printed."""
JPEG_START = b"\xff\xd8"
MASK_FORMATS: frozenset[Format] = frozenset({*PICTURES, *ARRAYS, "nifti"})
ALLOWED = "nan, alpha, a colour such as '#ff00ff', a number, frames:10-14,30, or a mask file"
COLOUR = re.compile(r"#[0-9a-fA-F]{6}")


@dataclass(frozen=True)
class Missing:
    """What marks missing samples, besides NaN, infinite values and fill values that a file declares.

    Args:
        given: ``nan``: nothing else. ``alpha``: pixels of opacity 0. A colour ``#rrggbb`` of pictures. A number: this value;
            several with commas: ``-9999,-999``. ``frames:10-14,30``: frames of a clip or slices of a volume, from 0, both
            ends included. Otherwise a mask file
            that is not zero at missing samples, or a list of one per signal (a list of one entry is that entry): a picture,
            an array file (``.npy``, ``.npz``, HDF5 of one array) or a NIfTI volume, of the shape of the signals after crop
            and resize, or of their leading axes (frames of a clip), or of the last ones (the same in every frame).
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
        if isinstance(self.given, str) and self.given.startswith(FRAMES):
            return "frames"
        if self.given in ("nan", "alpha"):
            return self.given  # type: ignore[return-value]
        if isinstance(self.given, str) and COLOUR.fullmatch(self.given):
            return "colour"
        return "value" if self.values else "mask"

    @cached_property
    def values(self) -> tuple[float, ...]:
        """The numbers that mark them; integers as ``int``, of any size."""
        entries = self.given if isinstance(self.given, list) else str(self.given).split(",")
        found = [exact_number(str(entry)) for entry in entries]
        return () if None in found else tuple(number for number in found if number is not None)

    @cached_property
    def masks(self) -> list[SourceFile]:
        is_word = self.kind == "mask" and isinstance(self.given, str) and re.fullmatch(r"\w+", self.given)
        if is_word and not Path(str(self.given)).exists():  # such as the name of a colour
            raise InputError(f"missing must be {ALLOWED}; there is no file {self.given!r}")
        return expand(self.given, MASK_FORMATS, "mask") if self.kind == "mask" else []  # type: ignore[arg-type]

    def _ranges(self) -> list[tuple[int, int]]:
        found = [re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part) for part in str(self.given)[len(FRAMES) :].split(",")]
        ranges = [(int(part[1]), int(part[2] or part[1])) for part in found if part is not None]
        if len(ranges) < len(found) or any(first > last for first, last in ranges):
            raise InputError(f"missing: lost frames are given by their numbers from 0, frames:10-14,30; got {self.given!r}")
        return ranges

    def marks(self, grid: Sequence[int], count: int, orientation: int = 1, xyz: bool = False) -> list[Mask]:
        """Where the mask files are not zero, or frames are lost: one mask ``(N_1, ..., N_D)`` for all signals or each.

        A mask of the stored size of a picture is turned as the picture is, by its EXIF ``orientation``. ``xyz``: the axes of
        the signals are in the order of a NIfTI file, x first, as those of a NIfTI mask then are.
        """
        if self.kind == "frames":
            if len(grid) != 3 or max(last for _, last in self._ranges()) >= grid[0]:
                has = f"have {grid[0]} frames" if len(grid) == 3 else f"have {len(grid)} axes and no frames"
                raise InputError(f"missing: {self.given} counts frames from 0, and the signals {has}")
            lost = np.zeros(grid[0], bool)
            for first, last in self._ranges():
                lost[first : last + 1] = True
            return [np.broadcast_to(lost[:, None, None], tuple(grid))]
        masks = zip(self.masks, read_masks(self.masks, count), strict=True)
        ordered = ((file, mask.T if xyz and format_of(file.path) == "nifti" else mask) for file, mask in masks)
        return [spread_mask(self._turned(mask, grid, orientation), grid, file.given) for file, mask in ordered]

    @staticmethod
    def _turned(mask: Mask, grid: Sequence[int], orientation: int) -> Mask:
        if orientation < 5 or mask.shape == tuple(grid) or mask.shape != tuple(grid)[::-1]:
            return mask
        return np.asarray(upright(mask[..., None].astype(np.uint8), orientation)[..., 0] > 0)

    def paths(self) -> list[Path]:
        return [file.path for file in self.masks]

    def check(self, what: str, *kinds: str) -> None:
        """Refuses what does not apply to ``what``, a plural; of ``alpha`` and ``colour`` apply those in ``kinds``."""
        if self.kind in ("alpha", "colour") and self.kind not in kinds:
            raise InputError(f"missing: {self.given} is for pictures, not for {what}; give nan, a number, or a mask file")

    def only_values(self, what: str) -> tuple[float, ...]:
        """The numbers that mark missing values; other marks are refused for ``what``."""
        if self.kind not in ("nan", "value"):
            raise InputError(
                f"missing values of {what} are marked by numbers, such as -9999 or -9999,-999; got {self.given!r}"
            )
        return self.values

    def in_picture(self, image: AnyArray, file: str, declared: Mask | None = None) -> AnyArray:
        """A decoded picture ``(H, W, C)`` with NaN at missing samples, in [0, 1] where integers have some.

        Opacity that marks missing pixels is removed; it stays where it is partial somewhere else. ``declared`` ``(H, W)``:
        pixels that the file declares missing.
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
            colour = np.array([int(str(self.given)[place : place + 2], 16) for place in (1, 3, 5)])
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

    def in_signals(self, raw: RawSignals) -> RawSignals:
        """The signals with NaN where the masks are not zero, and in lost frames."""
        if self.kind not in ("mask", "frames"):
            return raw
        marked = self.marks(raw.grid, len(raw.names))

        def blocks() -> Iterator[AnyArray]:
            row = 0
            for block in raw.blocks():
                signal, first = divmod(row, raw.grid[0])
                mask = marked[signal if len(marked) > 1 else 0][first : first + len(block)]
                row += len(block)
                yield with_nan(block, mask[..., None])

        stored = float_for(raw.stored).name
        return replace(raw, blocks=blocks, array=None, stored=stored)


def spread_mask(mask: Mask, grid: Sequence[int], file: str) -> Mask:
    """A mask for the whole grid from one of its shape, of its leading or of its last axes."""
    grid, axes = tuple(grid), mask.ndim
    if mask.shape == grid[:axes]:
        return np.broadcast_to(mask.reshape(*mask.shape, *[1] * (len(grid) - axes)), grid)
    if mask.shape == grid[len(grid) - axes :]:
        return np.broadcast_to(mask, grid)
    raise InputError(
        f"the mask {file!r} has {'x'.join(map(str, mask.shape))} samples, but the signals have {'x'.join(map(str, grid))}. "
        "A mask has the shape of the signals after crop and resize, or that of its leading or last axes"
    )


def read_masks(files: Sequence[SourceFile], count: int) -> list[Mask]:
    """One mask for all of ``count`` signals, or one for each."""
    if len(files) not in (1, count):
        raise InputError(f"{len(files)} masks for {count} signal(s); give one for all, or one for each")
    return [read_mask(file) for file in files]


def read_mask(file: SourceFile) -> Mask:
    """Where a mask file is not zero: an array file of any shape, a NIfTI volume ``(Z, Y, X)``, or a picture ``(H, W)``.

    A pixel of a picture is not zero if a colour channel is not, and it is not transparent; of a JPEG, if a channel is above
    half of its range.
    """
    kind = format_of(file.path)
    if kind in ARRAYS:
        image: AnyArray = find_array(file).load()
    elif kind == "nifti":
        from pe_lightning.signals.sources.volumes import open_nifti  # which imports this module

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
    with reading(file.given), file.path.open("rb") as opened:
        if opened.read(2) == JPEG_START:  # which does not preserve zeros
            rank_zero_info(f"the mask {file.given!r} is a JPEG: its pixels above half of the range are missing samples")
            image = image > 127
    if image.shape[-1] in (2, 4):
        return np.asarray(image[..., :-1].any(axis=-1) & (image[..., -1] > 0))
    return np.asarray(image.any(axis=-1))
