"""Training samples that the user marks in a file: sensor layouts, inpainting masks, the drawings of others."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pe_lightning.data.sampling import Sampling, samplings
from pe_lightning.data.sources.arrays import find_array
from pe_lightning.data.sources.paths import ARRAYS, PICTURES, SourceFile, expand, format_of, reading
from pe_lightning.data.sources.pictures import decode_image
from pe_lightning.data.splits import PointSplit
from pe_lightning.errors import InputError

__all__ = ["MaskSampling"]

Mask = NDArray[np.bool_]

_JPEG = b"\xff\xd8"


@samplings.register("mask")
class MaskSampling(Sampling):
    """The samples that are not zero in a mask file, of the shape of the signals' grid.

    Args:
        path: An image (for signals of 2 axes; a pixel is marked if a colour channel is not zero and it is not
            transparent) or a ``.npy`` file of booleans or numbers. One file for all signals; or a list of one per signal,
            in their order, which all mark equally many samples.
        invert: Whether the samples that are zero are trained on instead.

    Raises:
        InputError: If no path is given; at :meth:`split`, if a file is missing or damaged, its shape is not that of the
            grid, it marks nothing, or the masks of several signals mark different numbers of samples.
    """

    def __init__(self, path: str | list[str] = "", invert: bool = False) -> None:
        given = [path] if isinstance(path, (str, PathLike)) else list(path) if isinstance(path, (list, tuple)) else []
        if not given or not all(isinstance(one, (str, PathLike)) and fspath(one) for one in given):
            raise InputError(
                f"MaskSampling: path is the mask file, or a list of one per signal; got {path!r}. Set "
                "sampling: {name: mask, path: FILE}"
            )
        if not isinstance(invert, bool):
            raise InputError(f"MaskSampling: invert must be true or false, got {invert!r}")
        plain = [fspath(one) for one in given]
        self.path: str | list[str] = plain[0] if isinstance(path, (str, PathLike)) else plain
        self.invert = invert

    def split(self, grid: Sequence[int], num_signals: int) -> PointSplit:
        """The marked samples, per signal or shared."""
        sources = expand(self.path, PICTURES | {"npy"}, "mask")
        if len(sources) not in (1, num_signals):
            raise InputError(
                f"MaskSampling: {len(sources)} masks for {num_signals} signal(s); give one for all, or one for each"
            )
        indices = [self._marked(source, tuple(grid)) for source in sources]
        counts = [len(index) for index in indices]
        if len(set(counts)) > 1:
            listed = ", ".join(f"{source.given}: {count}" for source, count in list(zip(sources, counts, strict=True))[:8])
            raise InputError(
                f"MaskSampling: the masks mark different numbers of samples ({listed}{', ...' if len(counts) > 8 else ''}), "
                "but signals that are fitted together are trained on equally many. Fit these signals in runs of their own"
            )
        return PointSplit(tuple(grid), torch.from_numpy(np.stack(indices)))

    def _marked(self, source: SourceFile, grid: tuple[int, ...]) -> NDArray[np.int64]:
        """Row-major positions that are trained on, ascending, ``(P,)``."""
        mask = _read_mask(source, len(grid))
        if mask.shape != grid:
            turned = ": it is transposed" if mask.shape == grid[::-1] else ""
            raise InputError(
                f"the mask {source.given!r} has {_by(mask.shape)} samples, but the signals have {_by(grid)}{turned}. A mask "
                "has the shape of the signals after crop and resize"
            )
        index = np.flatnonzero(~mask if self.invert else mask).astype(np.int64, copy=False)
        if not len(index):
            wrong = "marks every sample, and invert is on" if self.invert else "marks no sample: all of it is zero"
            raise InputError(
                f"the mask {source.given!r} {wrong}, so nothing would be trained on; set invert: "
                f"{str(not self.invert).lower()}, or give another mask"
            )
        return index


def _read_mask(source: SourceFile, num_axes: int) -> Mask:
    kind = format_of(source.path)
    if kind == "npy":
        values: NDArray[Any] = find_array(source).load()
        if values.dtype.kind == "f" and np.isnan(values).any():
            raise InputError(f"the mask {source.given!r} holds NaN; save it as booleans: numpy.save(path, mask)")
        return np.asarray(values != 0)
    if kind in ARRAYS:
        raise InputError(f"the mask {source.given!r} is an {kind} file; a mask is an image or a .npy file")
    if num_axes != 2:
        raise InputError(
            f"the mask {source.given!r} is taken for an image, but the signals have {num_axes} axes; save it as a .npy file "
            "of their shape: numpy.save(path, mask)"
        )
    with reading(source.given), source.path.open("rb") as file:
        lossy = file.read(2) == _JPEG
    if lossy:
        raise InputError(
            f"the mask {source.given!r} is a JPEG, which does not keep zeros as zeros; save it as PNG, as drawn originally"
        )
    image = decode_image(source)
    if image.shape[-1] in (2, 4):
        return np.asarray(image[..., :-1].any(axis=-1) & (image[..., -1] > 0))
    return np.asarray(image.any(axis=-1))


def _by(numbers: Sequence[int]) -> str:
    return "x".join(map(str, numbers))
