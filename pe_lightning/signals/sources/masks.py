"""Samples that mask files and lost frames mark as missing in signals of any shape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import ARRAYS, PICTURES
from pe_lightning.signals.raw import AnyArray, Mask, RawSignals, float_for, with_nan
from pe_lightning.signals.sources.arrays import find_array
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile, format_of, reading
from pe_lightning.signals.sources.pictures import decode_image, upright
from pe_lightning.signals.sources.volumes import open_nifti

JPEG_START = b"\xff\xd8"


def with_missing(raw: RawSignals, missing: Missing) -> RawSignals:
    """The signals with NaN where mask files are not zero, and in lost frames."""
    if missing.kind not in ("mask", "frames"):
        return raw
    marked = missing_masks(missing, raw.grid, len(raw.names))

    def blocks() -> Iterator[AnyArray]:
        row = 0
        for block in raw.blocks():
            signal, first = divmod(row, raw.grid[0])
            mask = marked[signal if len(marked) > 1 else 0][first : first + len(block)]
            row += len(block)
            yield with_nan(block, mask[..., None])

    stored = float_for(raw.stored).name
    return replace(raw, blocks=blocks, array=None, stored=stored)


def missing_masks(missing: Missing, grid: Sequence[int], count: int, orientation: int = 1, xyz: bool = False) -> list[Mask]:
    """Where the mask files are not zero, or frames are lost: one mask ``(N_1, ..., N_D)`` for all signals or each.

    A mask of the stored size of a picture is turned as the picture is, by its EXIF ``orientation``. ``xyz``: the axes of
    the signals are in the order of a NIfTI file, x first, as the axes of a NIfTI mask then are.
    """
    if missing.kind == "frames":
        return [missing.lost_frames(grid)]
    masks = zip(missing.masks, read_masks(missing.masks, count), strict=True)
    ordered = ((file, mask.T if xyz and format_of(file.path) == "nifti" else mask) for file, mask in masks)
    return [spread_mask(_turned(mask, grid, orientation), grid, file.given) for file, mask in ordered]


def _turned(mask: Mask, grid: Sequence[int], orientation: int) -> Mask:
    if orientation < 5 or mask.shape == tuple(grid) or mask.shape != tuple(grid)[::-1]:
        return mask
    return np.asarray(upright(mask[..., None].astype(np.uint8), orientation)[..., 0] > 0)


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
