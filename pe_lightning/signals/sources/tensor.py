"""Arrays in memory as signals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.signals.axes import MAX_CHANNELS, Axis, channels_first, describe_layouts, plausible_layouts
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray, Mask, RawSignals, ValueRange, is_one_of
from pe_lightning.signals.sources.base import Source, sources
from pe_lightning.signals.sources.missing import Missing, MissingLike, spread_mask
from pe_lightning.signals.validation import number_range

Array: TypeAlias = np.ndarray  # the parser of configurations knows classes, not their parameters


@sources.register("tensor")
class TensorSource(Source):
    """An array in memory as signals, with any number of axes.

    Args:
        values: ``(S, N_1, ..., N_D, C)``: signals, samples along each axis, channels. With a notice also one row ``(N,)``,
            one picture ``(H, W)`` or ``(H, W, 3)``, or pictures ``(3, H, W)`` or ``(S, 3, H, W)``. Floating point in
            [0, 1], and NaN at missing samples; or uint8 or uint16, divided by 255 or 65535; or any numbers with a
            ``value_range``. Samples where a NumPy masked array is masked are missing. It is copied, as float32.
        names: One name per signal, distinct and usable as file names; ``signal0``, ``signal1``, ... by default. With a name
            for each of its ``S`` entries, ``(S, N, 3)`` is rows of three channels, and no picture.
        axes: The axes in the user's units, if samples are not at equal distances or have coordinates.
        missing: Missing samples besides NaN: an array that is not zero there, of the shape of the grid, of its leading or
            last axes, or ``(S, N_1, ..., N_D)``; or a number, frames or mask files, as for files
            (:class:`~pe_lightning.signals.sources.missing.Missing`).
        value_range: ``(low, high)``, the values that become 0 and 1.
    """

    def __init__(
        self,
        values: Tensor | Array,
        names: Sequence[str] | None = None,
        axes: Sequence[Axis] = (),
        missing: MissingLike | Tensor | Array = "nan",
        value_range: Sequence[float] | None = None,
    ) -> None:
        count = 0 if names is None or isinstance(names, str) else len(names)
        limits = number_range("value_range", value_range)
        # checked here rather than in read(), so that the traceback shows the caller
        self.values, self._scaling = _as_values(values, count, missing, limits)
        self.names = _checked_names(names, len(self.values))
        self.axes = tuple(axes)

    def read(self) -> RawSignals:
        picture = self.values.ndim == 4 and self.values.shape[-1] <= 4
        raw = RawSignals.in_memory(self.values.numpy(), self.names, self._scaling, "image" if picture else "array")
        return replace(raw, axes=self.axes)

    def describe(self) -> dict[str, Any]:
        return {"paths": []}


def _as_values(
    given: Tensor | AnyArray, num_names: int, missing: MissingLike | Tensor | AnyArray, limits: tuple[float, float] | None
) -> tuple[Tensor, ValueRange]:
    """A contiguous float32 copy on the CPU, ``(S, N_1, ..., N_D, C)`` in [0, 1] and NaN, checked, and its scaling."""
    if not isinstance(given, (Tensor, np.ndarray)):
        raise InputError(f"values must be a torch tensor or a NumPy array, got {type(given).__name__}")
    dtype, values = str(given.dtype).removeprefix("torch."), given
    if isinstance(values, Tensor):
        tensor = values.detach().cpu()
        values = (tensor.float() if tensor.is_floating_point() else tensor).numpy()  # NumPy has no bfloat16
    if channels_first(values.shape) and (values.ndim == 4 or num_names != values.shape[0]):
        moved = np.moveaxis(values, -3, -1)
        values = moved if values.ndim == 4 else moved[None]
        rank_zero_info(f"values with their channels first, as in torch, are read as {tuple(values.shape)}")
    values = values.reshape(_full_shape(tuple(values.shape), num_names))
    if values.dtype.kind not in ("biuf" if limits else "f") and values.dtype.name not in ("uint8", "uint16"):
        raise InputError(
            f"values has dtype {dtype}; pass uint8, uint16, real floating point in [0, 1], or value_range=(low, high) and "
            "real numbers within it"
        )
    name = "float32" if values.dtype.kind == "f" else values.dtype.name
    if limits is not None:
        scaling = ValueRange(name, limits[:1], limits[1:])
    else:
        scaling = ValueRange(name) if name == "float32" else ValueRange.of_integers(name)
    numbers, missing_samples = np.ma.getdata(values), _missing(missing, np.ma.getdata(values))
    marked = np.ma.getmaskarray(values) | missing_samples[..., None]
    known = numbers[np.isfinite(numbers) & ~marked]
    low, high = scaling.limits(0)
    if known.size and (known.min() < low or known.max() > high):
        held = f"values from {known.min():g} to {known.max():g}"
        raise InputError(
            f"values must be in [0, 1], because PSNR takes 1 as the peak; got {held}: pass "
            "value_range=(low, high), or rescale them; where a number marks missing samples, pass "
            "missing=NUMBER, or write NaN"
            if limits is None
            else f"value_range is ({low:g}, {high:g}), and values holds {held}; set a wider value_range"
        )
    unit = np.array(scaling.to_unit(numbers, 0), np.float32, order="C")
    unit[marked] = np.nan
    return torch.from_numpy(unit), scaling


def _missing(given: MissingLike | Tensor | AnyArray, values: AnyArray) -> Mask:
    """The missing samples of values ``(S, N_1, ..., N_D, C)`` besides NaN, ``(S, N_1, ..., N_D)``."""
    count, *grid = values.shape[:-1]
    if isinstance(given, (Tensor, np.ndarray)):
        marked = np.asarray(given.cpu() if isinstance(given, Tensor) else given) != 0
        masks = marked if marked.shape == values.shape[:-1] else spread_mask(marked, grid, "missing")
        return np.broadcast_to(masks, values.shape[:-1])
    rule = Missing(given)
    rule.check("arrays", "nan")
    masks = np.stack(rule.in_grid(grid, count) or [np.zeros(grid, bool)])
    return masks | is_one_of(values, rule.values).any(-1)


def _full_shape(shape: tuple[int, ...], num_names: int) -> tuple[int, ...]:
    """``(S, N_1, ..., N_D, C)``; prints how the shape is read if it has other plausible readings."""
    declared = len(shape) >= 3 and not (len(shape) == 3 and shape[-1] in (3, 4) and num_names != shape[0])
    layouts = plausible_layouts(shape)
    if declared and 0 not in shape and min(shape[1:-1]) >= 2:
        read_as = f"{shape[0]} signal(s) of {'x'.join(map(str, shape[1:-1]))} samples with {shape[-1]} channel(s)"
        alone = len(shape) == 3 and shape[0] > 1 and len(layouts) == 1 and layouts[0].kind != "rows"
        if num_names == 0 and (alone or shape[-1] > MAX_CHANNELS):
            missing = "values[None]" if shape[-1] <= MAX_CHANNELS else "values[None, ..., None]"
            rank_zero_info(f"values of shape {shape} is read as {read_as}. Pass {missing} if it is one signal.")
        return shape
    if declared or len(layouts) != 1:
        what = "values has an axis of fewer than 2 samples" if declared else describe_layouts("values", shape)
        raise InputError(
            f"{what}. Name its axes, (signals, *samples per axis, channels), of at least 2 samples on each: for one signal "
            "of one channel pass values[None, ..., None], for rows of one channel values[..., None]"
        )
    rank_zero_info(
        f"values of shape {shape} is read as {layouts[0]}. Give it all axes, (signals, *samples per axis, channels), or a "
        "name for each signal, for another reading."
    )
    return layouts[0].shape


def _checked_names(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"signal{index}" for index in range(count))
    distinct = not isinstance(names, str) and len(names) == count == len({str(name).casefold() for name in names})
    if not distinct or not all(isinstance(name, str) and name and not set(name) & set("/\\\0") for name in names):
        raise InputError(
            f"names become file names: they must be {count} non-empty strings without slashes, one per signal, that differ "
            f"in more than case; got {names!r}"
        )
    return tuple(names)
