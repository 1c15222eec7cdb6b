"""Encoders in units of the sample spacing: the same features for fewer samples, wider or narrower ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from pe_lightning.encoders import Encoder

__all__ = ["shrunk", "spaced", "tunable"]


def tunable(encoder: Encoder) -> str | None:
    """The argument that ``sigma: auto`` chooses: the one whose default follows K, if there is exactly one.

    ``sigma`` of gau, rect, rff, linf and logf, ``half_width`` of tri, ``scale`` of laplace; none of the others.
    """
    return None if encoder.width is None or "num_features" not in encoder.resolved() else encoder.width.argument


def _scaled(encoder: Encoder, name: str, value: float, factor: float) -> float:
    """``value`` of the argument ``name`` for features that are ``factor`` times as wide."""
    assert encoder.width is not None
    return encoder.width.scaled(value, factor)


def spaced(encoder: Encoder, num_samples: int, factor: float) -> Encoder:
    """The encoder with its argument (see :func:`tunable`) at ``factor`` times the default, in units of the spacing.

    The default follows K. Where there are fewer samples than features, their spacing is what counts: a Gaussian narrower
    than it leaves holes.

    Args:
        encoder: Any encoder; one without such an argument is returned as it is.
        num_samples: Training samples ``N`` of the axis.
        factor: More than 1 is smoother.
    """
    name = tunable(encoder)
    if name is None:
        return encoder
    plain = encoder.copy(**{name: None})
    features = plain.resolved()["num_features"]
    value = _scaled(encoder, name, getattr(plain, name), max(features / num_samples, 1.0) * factor)
    return encoder.copy(**{name: value})


KNOWN = frozenset({"num_features", "padding", "seed", "num_axes", "frequency", "num_positions"})


def shrunk(encoder: Encoder, ratio: float) -> Callable[[Tensor], Tensor]:
    """The features for an axis with ``1 / ratio`` of the samples: the same picture, seen with fewer, larger pixels.

    Shifts and frequencies per sample, and widths in units of the spacing, stay what they are. An encoder with other
    arguments than those known here keeps its features and sees its coordinates closer together, which keeps everything
    in units of the spacing too, but for the number of features per sample.

    Args:
        encoder: The encoder of the whole axis.
        ratio: At least 1.

    Returns:
        Coordinates in [0, 1] to features, ``(n,)`` -> ``(n, K')``.
    """
    arguments, name = encoder.resolved(), tunable(encoder)
    if not set(arguments) <= KNOWN | {name}:
        return lambda x: encoder(x / ratio)
    changes: dict[str, Any] = {}
    if name is not None:
        changes[name] = _scaled(encoder, name, arguments[name], ratio)
    if "frequency" in arguments:
        changes["frequency"] = arguments["frequency"] / ratio
    for count in {"num_features", "num_positions"} & set(arguments):
        # even numbers: the Fourier encoders take no others
        changes[count] = max(2 * round(arguments[count] / ratio / 2), 2)
    return encoder.copy(**changes).to(_device(encoder))


def _device(encoder: Encoder) -> Any:
    return next((buffer.device for buffer in encoder.buffers()), None)
