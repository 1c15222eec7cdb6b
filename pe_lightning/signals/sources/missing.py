"""Missing samples of a source: which values, colours, transparent pixels or masks mark them, and NaN in their place.

NaN is the only mark of a missing sample in the values of :class:`~pe_lightning.signals.raw.RawSignals`; such a sample is
neither trained nor scored. A sample is missing if a channel of it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import ARRAYS, PICTURES, Format
from pe_lightning.signals.raw import AnyArray, Mask, is_one_of, to_unit, with_nan
from pe_lightning.signals.sources.declared import exact_number
from pe_lightning.signals.sources.paths import SourceFile, expand

MissingLike: TypeAlias = str | float | list[str]
"""``nan``, ``alpha``, a colour ``#rrggbb``, a number, ``frames:10-14,30``, a mask file, or one mask file per signal."""

FRAMES = "frames:"
"""Beginning of a list of lost frames."""
SIMILAR_LEVELS = 48
"""Largest difference of a channel, of 255, between a colour and almost the same."""
MAX_SIMILAR_SHARE = 0.1
"""Pixels of almost the colour of missing ones, as a share of these, from which a notice is printed."""
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

    def lost_frames(self, grid: Sequence[int]) -> Mask:
        """The samples ``(N_1, N_2, N_3)`` of the frames that ``frames:`` names."""
        if len(grid) != 3 or max(last for _, last in self._ranges()) >= grid[0]:
            has = f"have {grid[0]} frames" if len(grid) == 3 else f"have {len(grid)} axes and no frames"
            raise InputError(f"missing: {self.given} counts frames from 0, and the signals {has}")
        lost = np.zeros(grid[0], bool)
        for first, last in self._ranges():
            lost[first : last + 1] = True
        return np.broadcast_to(lost[:, None, None], tuple(grid))

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
