"""Common parts of the encodings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pe_lightning.encoders import Encoder
from pe_lightning.encoders.arguments import plain
from pe_lightning.errors import InputError

POINTS_AT_ONCE = 1 << 16
"""Points whose features or values are computed at a time; more are not faster."""
MAX_LISTED_VALUES = 64
"""Numbers of a learned parameter that a description lists one by one."""


class EncoderList(nn.Module):
    """One encoder per axis or direction.

    A shared encoder is registered and saved once: ``torch.func.functional_call`` does not restore the parameters of a module
    that is registered twice.
    """

    def __init__(self, encoders: Iterable[Encoder]) -> None:
        super().__init__()
        encoders = list(encoders)
        self.first = [encoders.index(encoder) for encoder in encoders]
        for axis in dict.fromkeys(self.first):
            self.add_module(str(axis), encoders[axis])

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, axis: int) -> Encoder:
        encoder: Encoder = getattr(self, str(self.first[axis]))
        return encoder

    def __iter__(self) -> Iterator[Encoder]:
        return (self[axis] for axis in range(len(self)))


class Encoding(nn.Module):
    """An encoding of ``num_axes`` coordinate axes."""

    name: ClassVar[str]
    encoders: EncoderList
    cells: tuple[float, ...] = ()
    """Lengths of the cells that features are averaged over, one per axis; none: features at points."""

    def __init__(self, num_axes: int) -> None:
        super().__init__()
        self.num_axes = num_axes

    def learned(self) -> dict[str, Any]:
        """Trained parameters as plain values by name, ``<axis>.<parameter>``; a long one as shape, mean and deviation."""
        trained = ((name, p.detach()) for name, p in self.named_parameters() if p.requires_grad)
        return {name.removeprefix("encoders."): _summary(values) for name, values in trained}


def check_axes(axes: Sequence[Tensor], num_axes: int) -> None:
    """Raises :class:`InputError` unless there is one coordinate vector per axis."""
    if len(axes) != num_axes:
        raise InputError(f"the encoding has {num_axes} axes, got {len(axes)} coordinate vectors")
    for a, x in enumerate(axes):
        if x.ndim != 1 or not x.is_floating_point():
            raise InputError(f"axis {a}: coordinates are floating-point numbers (N,); got {tuple(x.shape)}, {x.dtype}")


def check_points(coords: Tensor, num_axes: int) -> None:
    """Raises :class:`InputError` unless these are points ``(*batch, num_axes)``."""
    if coords.ndim < 1 or coords.shape[-1] != num_axes or not coords.is_floating_point():
        wanted = f"coordinates are floating-point numbers of shape (*batch, {num_axes})"
        raise InputError(f"{wanted}; got {tuple(coords.shape)}, {coords.dtype}")


def _summary(values: Tensor) -> Any:
    if values.numel() <= MAX_LISTED_VALUES:
        return plain(values.nan_to_num())
    numbers = values.double().nan_to_num()
    return {"shape": list(values.shape), "mean": float(numbers.mean()), "std": float(numbers.std())}


def largest_row_norm(encode: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    """The largest Euclidean norm of the features of points; 1 if all are zero."""
    norms = [torch.linalg.vector_norm(encode(some), dim=-1).amax() for some in torch.split(points, POINTS_AT_ONCE)]
    largest = torch.stack(norms).amax()
    return torch.where(largest > 0, largest, torch.ones_like(largest))
