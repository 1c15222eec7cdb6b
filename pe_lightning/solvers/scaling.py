"""The encoders of the axes, and the same features for fewer samples, wider or narrower ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, EncoderLike
from pe_lightning.encodings.complex import per_axis
from pe_lightning.errors import InputError

__all__ = ["axis_encoders", "each", "shrunk", "spaced", "tunable"]


def axis_encoders(encoder: EncoderLike | Sequence[EncoderLike], num_axes: int, device: torch.device) -> tuple[Encoder, ...]:
    """One encoder per axis on a device, from what a solver takes; the caller's own are not moved.

    Raises:
        InputError: If the number of encoders is another, or an encoder is joint over several axes.
    """
    encoders = per_axis(encoder, num_axes)
    for axis, entry in enumerate(encoders):
        if entry.num_axes != 1:
            raise InputError(f"axis {axis}: the solvers take encoders of one axis, {entry.name!r} has {entry.num_axes}")

    def moved(entry: Encoder, _: float) -> Encoder:
        elsewhere = any(part.device != device for part in (*entry.parameters(), *entry.buffers()))
        return copy.deepcopy(entry).to(device) if elsewhere else entry

    return each(encoders, [0] * num_axes, moved)


def tunable(encoder: Encoder) -> str | None:
    """The argument that ``sigma: auto`` chooses: the width that the encoder declares, if it does."""
    return None if encoder.width is None else encoder.width.argument


def spaced(encoder: Encoder, num_samples: float, factor: float) -> Encoder:
    """The encoder with its width at ``factor`` times the default, in units of the sample spacing.

    The default follows K. Where there are fewer samples than features, their spacing is what counts: a Gaussian narrower
    than it leaves holes.

    Args:
        encoder: Any encoder; one without a width is returned as it is.
        num_samples: Training samples ``N`` of the axis.
        factor: More than 1 is smoother.
    """
    width = encoder.width
    if width is None:
        return encoder
    features = encoder.resolved()["num_features"]
    value = width.scaled(width.rule(features), max(features / num_samples, 1.0) * factor)
    return encoder.copy(**{width.argument: value})


def shrunk(encoder: Encoder, ratio: float) -> Callable[[Tensor], Tensor]:
    """The features for an axis with ``1 / ratio`` of the samples: the same picture, seen with fewer, larger pixels.

    Features per sample, and widths in units of the sample spacing, stay what they are. An encoder that declares neither
    width nor support, or that has parameters of its own, sees its coordinates closer together instead, which keeps
    everything in units of the spacing but for the number of features per sample.

    Args:
        encoder: The encoder of the whole axis.
        ratio: At least 1.

    Returns:
        Coordinates in [0, 1] to features, ``(n,)`` -> ``(n, K')``.
    """
    width = encoder.width
    if (width is None and encoder.support is None) or any(True for _ in encoder.parameters()):
        return lambda x: encoder(x / ratio)
    arguments, changes = encoder.resolved(), dict[str, Any]()
    if width is not None:
        changes[width.argument] = width.scaled(arguments[width.argument], ratio)
    if "num_features" in arguments:  # even numbers: the Fourier encoders take no others
        changes["num_features"] = max(2 * round(arguments["num_features"] / ratio / 2), 2)
    return encoder.copy(**changes)


def each(
    encoders: Sequence[Encoder], sizes: Sequence[float], change: Callable[[Encoder, float], Encoder]
) -> tuple[Encoder, ...]:
    """Changed encoders; axes of one size that share an encoder go on sharing it, so that it is factorised once.

    Args:
        encoders: One per axis.
        sizes: Samples per axis.
        change: The new encoder for an encoder and a size.
    """
    made: dict[tuple[int, float], Encoder] = {}
    for encoder, size in zip(encoders, sizes, strict=True):
        if (id(encoder), size) not in made:
            made[id(encoder), size] = change(encoder, size)
    return tuple(made[id(encoder), size] for encoder, size in zip(encoders, sizes, strict=True))
