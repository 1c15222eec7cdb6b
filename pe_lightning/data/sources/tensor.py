"""Values that are in memory already as signals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pe_lightning.data.signals import RawSignals, Scaling
from pe_lightning.data.sources.base import Source, sources
from pe_lightning.errors import InputError

__all__ = ["TensorSource"]

_PEAKS = {torch.uint8: 255, torch.uint16: 65535}
_LAYOUT = "(signals, *samples per axis, channels)"


@sources.register("tensor")
class TensorSource(Source):
    """An array in memory as signals, with any number of axes.

    Args:
        values: ``(S, N_1, ..., N_D, C)``: signals, samples along each axis, channels. Floating point in [0, 1], which
            becomes float32; or uint8 or uint16, divided by 255 or 65535. It is copied.
        names: One name per signal, distinct and usable as file names; ``signal0``, ``signal1``, ... by default.

    Raises:
        InputError: If the array has another layout or dtype, values that are not finite or outside [0, 1], or the
            names do not fit.
    """

    def __init__(self, values: Tensor | np.ndarray[Any, Any], names: Sequence[str] | None = None) -> None:
        self.values = _as_values(values)  # checked here, not when read: the mistake is in the line that calls us
        dtype = str(values.dtype).removeprefix("torch.")
        self._scaling = Scaling.of_integers(dtype) if dtype in ("uint8", "uint16") else Scaling("float32")
        self.names = _checked_names(names, len(self.values))

    def read(self) -> RawSignals:
        """The array and the names; nothing is decoded."""
        picture = self.values.ndim == 4 and self.values.shape[-1] <= 4
        return RawSignals.in_memory(self.values.numpy(), self.names, self._scaling, "image" if picture else "array")

    def describe(self) -> dict[str, Any]:
        """There is no file."""
        return {"paths": []}


def _as_values(values: Tensor | np.ndarray[Any, Any]) -> Tensor:
    """A contiguous float32 copy on the CPU, checked."""
    if not isinstance(values, (Tensor, np.ndarray)):
        raise InputError(f"values must be a torch tensor or a NumPy array, got {type(values).__name__}")
    shape, dtype = tuple(values.shape), str(values.dtype).removeprefix("torch.")
    if len(shape) < 3:
        raise InputError(
            f"values has shape {shape}, but its axes must be {_LAYOUT}, at least three; for one signal of one channel "
            f"pass values[None, ..., None], of shape {(1, *shape, 1)}"
        )
    if 0 in shape or min(shape[1:-1]) < 2:
        raise InputError(f"values has shape {shape}: an empty axis, or fewer than 2 samples on one; its axes are {_LAYOUT}")
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "biuf":
            raise InputError(f"values has dtype {dtype}; pass uint8, uint16, or real floating point in [0, 1]")
        wide = values.dtype.kind == "f" and values.dtype.itemsize > 8
        # np.array copies, so that a read-only or foreign-endian array is welcome too
        tensor = torch.from_numpy(np.array(values, np.float64 if wide else values.dtype.newbyteorder("="), order="C"))
    else:
        tensor = values.detach().cpu()
    if tensor.dtype in _PEAKS:
        return tensor.contiguous().to(torch.float32) / _PEAKS[tensor.dtype]
    if not tensor.is_floating_point():
        raise InputError(
            f"values has dtype {dtype}, whose largest value is unknown; pass uint8, uint16, or floating point in [0, 1], "
            "such as values.astype('float32') / values.max()"
        )
    bad = (~torch.isfinite(tensor)).nonzero()
    if len(bad):
        raise InputError(
            f"values has {len(bad)} entries that are not finite; the first is {tensor[tuple(bad[0])].item()} at "
            f"{tuple(bad[0].tolist())}. Repair or mask them first, for example with torch.nan_to_num(values, nan=0.5)"
        )
    low, high = float(tensor.min()), float(tensor.max())
    if low < 0 or high > 1:
        raise InputError(
            f"values lies in [{low:g}, {high:g}], but must lie in [0, 1], because PSNR takes 1 as the peak; "
            "pass (values - values.min()) / (values.max() - values.min())"
        )
    return tensor.to(torch.float32, copy=True).contiguous()


def _checked_names(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"signal{index}" for index in range(count))
    if isinstance(names, str) or len(names) != count:
        raise InputError(f"names must be a list of {count} names, one per signal; got {names!r}")
    for name in names:
        if not isinstance(name, str) or not name or any(char in name for char in "/\\\0"):
            raise InputError(f"a name of a signal becomes a file name: a non-empty string without slashes, got {name!r}")
    if len({name.casefold() for name in names}) < count:
        raise InputError(f"names must be distinct, upper and lower case taken as equal; got {list(names)!r}")
    return tuple(names)
