"""Arrays in memory as the signals of a file that is not written."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pe_fill.formats.arrays import array_as_signals
from pe_fill.formats.editable import EditableFile, grown_mask
from pe_lightning.errors import InputError
from pe_lightning.signals.axes import channels_first
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray, Mask, is_one_of
from pe_lightning.signals.repeated import note_repeated
from pe_lightning.signals.sources.missing import Missing, MissingLike

AnyMask: TypeAlias = MissingLike | Mask | Image.Image


def edit_memory(values: AnyArray | Tensor, missing: AnyMask, axes: int | None, grow: int | None) -> EditableFile:
    """An array with the samples that its values, its mask or ``missing`` leave out; see :func:`pe_fill.fill`."""
    if isinstance(values, Tensor) and values.dtype == torch.bfloat16:
        raise InputError("NumPy has no bfloat16, in which the result would be: give values.float()")
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.ma.getdata(values)
    if array.dtype.kind not in "iuf":
        raise InputError(f"fill takes integers and floating point; got an array of {array.dtype}")
    hidden = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else np.zeros(array.shape, bool)
    if isinstance(missing, Image.Image):
        missing = np.asarray(missing)
    if isinstance(missing, (np.ndarray, Tensor)):
        hidden = hidden | _full_mask(np.asarray(missing), array.shape)
    if axes is None and channels_first(array.shape):
        rank_zero_info(f"values of shape {array.shape} are read with their channels first")
        array, hidden, axes = np.moveaxis(array, -3, -1), np.moveaxis(hidden, -3, -1), 2
    stack = array_as_signals(array, "values", axes)
    marked = hidden.reshape(stack.shape).copy()  # the mask may be the caller's
    if stack.dtype.kind == "f":
        stack = np.where(marked, np.nan, stack) if hidden.any() else stack  # samples that are not filled stay missing
        marked = marked | ~np.isfinite(stack)
    if not isinstance(missing, (np.ndarray, Tensor)):
        rule = Missing(missing)
        rule.check("arrays")
        if rule.kind == "mask":
            raise InputError("the mask of an array is an array of booleans")
        marked |= is_one_of(stack, rule.values)
        for lost in rule.in_grid(stack.shape[1:-1], len(stack)):
            marked |= lost[..., None]
    note_repeated("values", [stack[~marked]], "give it as missing={0}")
    if grow:
        if stack.ndim < 4:
            raise InputError("grow is for missing samples of pictures and frames")
        marked = grown_mask(marked, grow)
    names = tuple(f"signal{number}" for number in range(len(stack)))
    return EditableFile(names, stack, marked, resizes=True)


def _full_mask(mask: AnyArray, shape: tuple[int, ...]) -> Mask:
    """A mask of booleans or numbers for an array, from one of its shape, of its leading axes, or with an axis of 1 last."""
    if mask.ndim > 1 and mask.shape[-1] == 1 and shape[mask.ndim - 1 :] != (1,):
        mask = mask[..., 0]
    plane = channels_first(shape) and mask.shape == shape[-2:]
    numbers = mask.dtype.kind in "biuf" and not np.isnan(mask).any()
    if not numbers or not (plane or mask.shape in (shape, shape[: mask.ndim])):
        raise InputError(
            f"a mask is booleans, or numbers that are not 0 at missing samples, of the shape of the values, {shape}; got "
            f"{mask.dtype} {mask.shape}{'' if numbers else ' with NaN' if mask.dtype.kind == 'f' else ''}"
        )
    if plane:
        return np.broadcast_to(mask != 0, shape)
    return np.broadcast_to((mask != 0).reshape(*mask.shape, *[1] * (len(shape) - mask.ndim)), shape)
