"""Arrays already in memory as signals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.dataset import BatchKind
from pe_lightning.data.sampling import Sampling
from pe_lightning.data.signals import RawSignals, Scaling
from pe_lightning.data.splits import Protocol
from pe_lightning.errors import InputError

__all__ = ["TensorDataModule", "as_values"]

_PEAKS = {torch.uint8: 255, torch.uint16: 65535}


class TensorDataModule(SignalDataModule):
    """Arrays already in memory as signals, with any number of axes.

    Args:
        values: ``(S, N_1, ..., N_D, C)``: signals, samples along each axis, channels. Floating point in [0, 1], kept as
            float32; or uint8 or uint16, divided by 255 or 65535. It is copied.
        names: One name per signal, distinct and usable as file names; ``signal0``, ``signal1``, ... by default.
        sampling: Which samples are trained on: ``grid`` (every ``stride``-th) or ``random`` (a ``fraction``).
        protocol: Which samples are scored: ``rest`` (all that are not trained on), ``odd`` (those whose index is odd on
            every axis; grid of stride 2 only), ``all``, or ``none``.
        batch: What one step sees: ``full``, ``points`` or ``blocks`` (:class:`SignalDataModule`).
        batch_size: Points per signal, or trained samples of a block per axis.
        shuffle: Whether blocks come in random order.
        steps_per_epoch: Optimiser steps that make one epoch; by default 100, or one pass over points or blocks.

    Raises:
        InputError: If the array has another layout or dtype, values that are not finite or outside [0, 1], or the
            names do not fit.

    Example:
        >>> data = TensorDataModule(torch.rand(1, 64, 64, 3), sampling="random")
        >>> tuple(data.train_batch().values.shape)
        (1, 1024, 3)
    """

    def __init__(
        self,
        values: Tensor | np.ndarray[Any, Any],
        names: list[str] | None = None,
        sampling: Sampling | str = "grid",
        protocol: Protocol = "rest",
        batch: BatchKind = "full",
        batch_size: int | list[int] | None = None,
        shuffle: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__(sampling, protocol, batch, batch_size, shuffle, steps_per_epoch, in_memory=True)
        self._source = as_values(values)  # checked here, not at load: the mistake is in the line that calls us
        dtype = str(values.dtype).removeprefix("torch.")
        self._scaling = Scaling.of_integers(dtype) if dtype in ("uint8", "uint16") else Scaling("float32")
        self._names = _check_names(names, len(self._source))

    def read(self) -> RawSignals:
        """The array and the names; nothing is decoded."""
        picture = self._source.ndim == 4 and self._source.shape[-1] <= 4
        return RawSignals.in_memory(self._source.numpy(), self._names, self._scaling, "image" if picture else "array")

    def describe_source(self) -> dict[str, Any]:
        """There is no file."""
        return {"paths": []}


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
