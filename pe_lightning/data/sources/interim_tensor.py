"""Arrays already in memory as signals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pe_lightning.errors import InputError

__all__ = ["as_values"]

_PEAKS = {torch.uint8: 255, torch.uint16: 65535}


def as_values(values: Tensor | np.ndarray[Any, Any]) -> Tensor:
    """A contiguous float32 copy on the CPU of an array of signals, checked.

    Args:
        values: ``(S, N_1, ..., N_D, C)``, see :class:`TensorDataModule`.

    Raises:
        InputError: If the layout, the dtype or a value is not allowed.
    """
    if not isinstance(values, (Tensor, np.ndarray)):
        raise InputError(f"values must be a torch tensor or a NumPy array, got {type(values).__name__}")
    shape = tuple(values.shape)
    layout = "(signals, *samples per axis, channels)"
    if len(shape) < 3:
        raise InputError(
            f"values has shape {shape}, but its axes must be {layout}, at least three; for one signal of one channel "
            f"pass values[None, ..., None], of shape {(1, *shape, 1)}"
        )
    if 0 in shape:
        raise InputError(f"values has shape {shape}, with an empty axis; its axes are {layout}")
    if min(shape[1:-1]) < 2:
        raise InputError(f"values has shape {shape}: fewer than 2 samples on an axis; its axes are {layout}")
    given_dtype = str(values.dtype).removeprefix("torch.")
    # np.array copies, so that a read-only or foreign-endian array is welcome too
    tensor = values.detach().cpu() if isinstance(values, Tensor) else _from_numpy(values, given_dtype)
    if tensor.dtype in _PEAKS:
        return tensor.contiguous().to(torch.float32) / _PEAKS[tensor.dtype]
    if not tensor.is_floating_point():
        raise InputError(
            f"values has dtype {given_dtype}, whose largest value is unknown; pass uint8, uint16, or floating point in "
            "[0, 1], such as values.astype('float32') / values.max()"
        )
    _check_range(tensor)
    return tensor.to(torch.float32, copy=True).contiguous()


def _from_numpy(values: np.ndarray[Any, Any], dtype: str) -> Tensor:
    if values.dtype.kind not in "biuf":
        raise InputError(f"values has dtype {dtype}; pass uint8, uint16, or real floating point in [0, 1]")
    native = np.float64 if values.dtype.kind == "f" and values.dtype.itemsize > 8 else values.dtype.newbyteorder("=")
    return torch.from_numpy(np.array(values, dtype=native, order="C"))


def _check_range(values: Tensor) -> None:
    finite = torch.isfinite(values)
    if not finite.all():
        wrong = (~finite).nonzero()
        raise InputError(
            f"values has {len(wrong)} entries that are not finite; the first is {values[tuple(wrong[0])].item()} at "
            f"{tuple(wrong[0].tolist())}. Repair or mask them first, for example with torch.nan_to_num(values, nan=0.5)"
        )
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > 1:
        raise InputError(
            f"values lies in [{low:g}, {high:g}], but must lie in [0, 1], because PSNR takes 1 as the peak; "
            "pass (values - values.min()) / (values.max() - values.min())"
        )


def _check_names(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
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
