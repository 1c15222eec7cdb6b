"""Arguments of encoders that are left to the data: numbers of features, widths, and the encoders of a coarser grid."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from torch import Tensor

from pe_lightning.encoders.arguments import DEFAULT_NUM_FEATURES, Samples
from pe_lightning.encoders.base import Encoder
from pe_lightning.encoders.cells import resized
from pe_lightning.encoders.configured import changed
from pe_lightning.encoders.widths import features_per_unit, has_default_width, widened

MAX_WEIGHTS = 1 << 26
"""Most weights of a signal with ``num_features: auto``: 1 GB with gradients and moments of Adam."""
MAX_DENSE_FEATURES = 4096
"""Most features per axis with ``num_features: auto`` without compact support, which are factorised as a dense matrix."""


def sample_value(encoder: Encoder, name: str, value: Any) -> Any:
    """The value of an argument of :attr:`Encoder.from_samples`; for ``"auto"`` the value until samples are known."""
    if not (isinstance(value, str) and value == "auto"):
        return value
    return encoder.from_samples[name](Samples((DEFAULT_NUM_FEATURES,) * encoder.num_axes))


def for_data(encoder: Encoder, samples: Samples) -> Encoder:
    """The encoder with every argument resolved that was left to the data.

    - The arguments of :attr:`Encoder.from_samples` that are ``auto``. An encoder of one axis becomes one of as many as
      ``samples`` has.
    - For a linear layer: ``num_features: auto`` becomes one feature per ``spacing``, and ``spacing`` and ``padding`` follow.
      Below a perceptron and for tokens the encoding divides a number of features among directions.
    - The width, if none was given: by :attr:`Width.below_mlp` below a perceptron and for tokens; else by the rule, for the
      samples where they are fewer than the features.

    Widths given as ``auto`` are left to a solver.
    """
    num_axes, linear = len(samples.per_unit), samples.use == "linear"
    if encoder.num_axes not in (1, num_axes):
        return encoder  # for the encoding to refuse
    rules = encoder.from_samples.items()
    if changes := {key: rule(samples) for key, rule in rules if encoder.arguments.get(key) == "auto"}:
        encoder = encoder.copy(num_axes=num_axes, **changes)
    if linear and encoder.is_open:
        encoder = encoder.copy(**_one_feature_per(encoder, samples.spacing or 1 / samples.mean, samples.mean))
    elif not linear and encoder.width is not None and encoder.width.below_mlp is not None and has_default_width(encoder):
        encoder = encoder.copy(width=encoder.width.below_mlp(samples.mean))
    follows_samples = linear or (samples.use == "tokens" and num_axes == 1)
    if follows_samples and has_default_width(encoder) and samples.mean < features_per_unit(encoder) - 1e-6:
        encoder = widened(encoder, samples.mean, 1.0)
    return encoder


def _one_feature_per(encoder: Encoder, spacing: float, samples: float) -> dict[str, Any]:
    """The number of features that is left to the data, and ``spacing`` and ``padding`` with it."""
    if encoder.width is None and encoder.support is not None:
        spacing = max(spacing, 1 / samples)  # narrower features would leave some points without any
    count = encoder.multiple * math.ceil(1 / (encoder.multiple * spacing) - 1e-6)
    changes: dict[str, Any] = {"num_features": count}
    padding = encoder.arguments.get("padding")
    if "spacing" in encoder.arguments and padding != "wrap" and abs(count * spacing - 1) > 1e-9:
        changes["spacing"] = spacing
    if padding == "auto":
        changes["padding"] = "edge"
    return changes


def samples_per_unit(x: Tensor) -> float:
    """Number of evenly spaced coordinates ``(N,)`` per unit length; 512/3 for 171 coordinates of stride 3, for example."""
    if len(x) < 2:
        return 1.0
    count = (len(x) - 1) / max(float(x[-1]) - float(x[0]), 1e-12)
    exact = float(Fraction(count).limit_denominator(64))  # removes the rounding of the coordinates
    return exact if abs(exact - count) < 1e-5 * count else count


def sized(
    encoders: Sequence[Encoder],
    spacing: Sequence[float],
    samples: Sequence[float],
    channels: int = 1,
    max_weights: int = MAX_WEIGHTS,
) -> list[Encoder]:
    """The encoders of the axes resolved for samples (:func:`for_data`), with as many features as memory allows.

    Args:
        encoders: One per axis.
        spacing: Distance of neighbouring features per axis, in units of the [0, 1] domain, if memory allows it.
        samples: Trained samples per unit length of each axis, or as many as a grid of their density has.
        channels: Number of channels, each with weights of its own.
        max_weights: Most weights of a signal.

    Warns:
        UserWarning: If memory limits the features to fewer than the samples.
    """
    wanted = [1 / h for h in spacing]
    counts = [
        # most entries of such a matrix
        min(n, MAX_DENSE_FEATURES, max(2.0, (1 << 28) / m)) if encoder.support is None else n
        for encoder, n, m in zip(encoders, wanted, samples, strict=True)
    ]
    share = (max_weights / (channels * math.prod(counts))) ** (1 / len(counts))
    counts = [n * min(share, 1.0) for n in counts]
    if any(encoder.is_open and n < whole for encoder, n, whole in zip(encoders, counts, wanted, strict=True)):
        shown, asked = ("x".join(f"{math.ceil(n - 1e-6)}" for n in numbers) for numbers in (counts, wanted))
        warnings.warn(
            f"num_features: auto uses {shown} features for {asked} samples, to limit memory and time; set num_features for "
            "more",
            stacklevel=2,
        )

    def resolved(encoder: Encoder, distance: float, density: float) -> Encoder:
        return for_data(encoder, Samples((density,), distance))

    return changed(encoders, resolved, [1 / n for n in counts], samples)


# -- features of a coarser grid -----------------------------------------------------------------------------------------


def keeps_its_arguments(encoder: Encoder) -> bool:
    """Whether the features of a coarser grid are those of closer coordinates, and not of other arguments.

    True of encoders that declare neither width nor support, and of encoders with parameters.
    """
    return (encoder.width is None and encoder.support is None) or any(True for _ in encoder.parameters())


def shrunk(encoder: Encoder, ratio: float) -> Callable[[Tensor], Tensor]:
    """The features for an axis with ``1 / ratio`` of the samples.

    Features per sample, and widths in units of the sample spacing, are unchanged. For encoders of
    :func:`keeps_its_arguments` the coordinates are divided by ``ratio`` instead, which changes the features per sample.
    """
    if keeps_its_arguments(encoder):
        near = squeezed(resized(encoder, 1 / ratio), ratio)
        return lambda x: near(x / ratio)
    return encoder.copy(**shrunk_arguments(encoder, ratio))


def shrunk_arguments(encoder: Encoder, ratio: float) -> dict[str, Any]:
    """The arguments of :func:`shrunk` that change, for encoders that do not keep theirs."""
    width = encoder.width
    arguments, changes = encoder.resolved(), dict[str, Any]()
    if width is not None:
        changes[width.argument] = width.scaled(arguments[width.argument], ratio)
    if "num_features" in arguments:
        changes["num_features"] = encoder.multiple * math.ceil(arguments["num_features"] / (encoder.multiple * ratio) - 1e-6)
    if "spacing" in arguments:
        changes["spacing"] = min(arguments["spacing"] * ratio, 1.0)
    return changes


def squeezed(encoder: Encoder, ratio: float) -> Encoder:
    """The encoder for coordinates up to ``1 / ratio``: of shifted features of one width only the first ones."""
    if encoder.resolution is None or encoder.per_feature or ratio == 1:
        return encoder
    shifts = int(encoder.resolved().get("num_features", encoder.num_features))
    return encoder.leading(math.ceil(shifts / ratio - 1e-6) + encoder.num_features - shifts)
