"""Arguments of encoders that are left to the data: widths, numbers of features, and the encoders of a coarser grid."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from pe_lightning.encoders.arguments import Samples
from pe_lightning.encoders.base import Encoder, EncoderLike, registry
from pe_lightning.encoders.cells import resized
from pe_lightning.encoders.configured import changed
from pe_lightning.encoders.shifted import Shifted

MAX_WEIGHTS = 1 << 26
"""Most weights of a signal with ``num_features: auto``: 1 GB with gradients and moments of Adam."""
MAX_DENSE_FEATURES = 4096
"""Most features per axis with ``num_features: auto`` without compact support: their matrix is dense."""


def features_per_unit(encoder: Encoder) -> float:
    """Features per unit length of the axis, without those beyond its ends."""
    return encoder.resolution if isinstance(encoder, Shifted) else float(encoder.num_features)


def widened(encoder: Encoder, samples: float, factor: float) -> Encoder:
    """The encoder with ``factor`` times the default width for ``samples`` per unit length; more is smoother.

    The default follows the features, or the samples where they are fewer: narrower features would leave points without any.
    """
    width = encoder.width
    if width is None:
        return encoder
    default = width.rule(min(features_per_unit(encoder), samples))
    return encoder.copy(**{width.argument: width.scaled(default, factor)})


def has_default_width(encoder: Encoder) -> bool:
    """Whether the encoder has a width and none is given."""
    width = encoder.width
    return width is not None and encoder.arguments[width.argument] is None


def automatic(encoder: Encoder) -> str | None:
    """Name of the argument of the width, if it was given as ``"auto"``, which leaves it to a solver; else ``None``."""
    argument = None if encoder.width is None else encoder.width.argument
    return argument if encoder.arguments.get(argument or "") == "auto" else None


def automatic_width(encoder: EncoderLike | Sequence[EncoderLike]) -> EncoderLike | Sequence[EncoderLike]:
    """The encoder, or one per axis, with the width ``auto`` where all have a width and none is given."""
    many = isinstance(encoder, Sequence) and not isinstance(encoder, str)
    entries = [registry.resolve(entry) for entry in (encoder if many else [encoder])]  # type: ignore[arg-type, union-attr]
    if all(has_default_width(entry) for entry in entries):
        entries = [entry.copy(width="auto") for entry in entries]
    return entries if many else entries[0]


def with_seed(encoder: EncoderLike, seed: int) -> Encoder:
    """The encoder; by name or arguments without a seed it gets ``seed`` in place of the seed of the run."""
    if isinstance(encoder, Encoder):
        return encoder
    name, arguments = registry.read(encoder)
    takes = registry.parameters(registry.get(name)).get("seed")
    if takes is not None and takes.default is None and arguments.get("seed") is None:
        arguments["seed"] = seed
    return registry.create(name, **arguments)


def for_data(encoder: Encoder, samples: Samples) -> Encoder:
    """The encoder with every argument resolved that was left to the data.

    - The arguments of :attr:`Traits.from_samples` that are ``auto``. An encoder of one axis becomes one of as many as
      ``samples`` has.
    - For a linear layer: ``num_features: auto`` becomes one feature per ``spacing``, and ``spacing`` and ``padding`` follow.
      Below a perceptron and for tokens the encoding divides a number of features among directions.
    - The width, if none was given: by :attr:`Width.below_mlp` below a perceptron and for tokens; else by the rule, for the
      samples where they are fewer than the features. Widths given as ``auto`` are left to a solver.
    """
    num_axes, linear, width = len(samples.per_unit), samples.use == "linear", encoder.width
    if encoder.num_axes not in (1, num_axes):
        return encoder  # for the encoding to refuse
    rules = encoder.from_samples.items()
    if changes := {key: rule(samples) for key, rule in rules if encoder.arguments.get(key) == "auto"}:
        encoder = encoder.copy(num_axes=num_axes, **changes)
    if linear and encoder.is_open:
        encoder = encoder.copy(**_one_feature_per(encoder, samples.spacing or 1 / samples.mean, samples.mean))
    elif not linear and width is not None and width.below_mlp is not None and has_default_width(encoder):
        encoder = encoder.copy(width=width.below_mlp(samples.mean))
    follows_samples = linear or (samples.use == "tokens" and num_axes == 1)
    if follows_samples and has_default_width(encoder) and samples.mean < features_per_unit(encoder) - 1e-6:
        encoder = widened(encoder, samples.mean, 1.0)
    return encoder


def _one_feature_per(encoder: Encoder, spacing: float, samples: float) -> dict[str, Any]:
    multiple = encoder.multiple
    if encoder.width is None and encoder.support is not None:
        spacing = max(spacing, 1 / samples)  # narrower features would leave some points without any
    count = multiple * math.ceil(1 / (multiple * spacing) - 1e-6)
    changes: dict[str, Any] = {"num_features": count}
    padding = encoder.arguments.get("padding")
    if "spacing" in encoder.arguments and padding != "wrap" and abs(count * spacing - 1) > 1e-9:
        changes["spacing"] = spacing
    if padding == "auto":
        changes["padding"] = "edge"
    return changes


def samples_per_unit(x: Tensor) -> float:
    """Number of evenly spaced coordinates ``(N,)`` per unit length, such as 512/3 for coordinates of stride 3."""
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
    """Whether a coarser grid has the features of closer coordinates: without width and support, or with parameters."""
    return (encoder.width is None and encoder.support is None) or any(True for _ in encoder.parameters())


def without_parameters(encoder: Encoder) -> Encoder:
    """A registered encoder with the same features that learns nothing, if there is one: choices follow its rules."""
    learns = [name for name in ("trainable", "per_feature") if encoder.arguments.get(name)]
    if not learns:
        return encoder
    fixed = encoder.copy(**dict.fromkeys(learns, False))
    x = torch.linspace(0, 1, 64, device=next(encoder.parameters()).device)
    return fixed if torch.allclose(fixed.to(x.device)(x), encoder(x), atol=1e-5) else encoder


def shrunk(encoder: Encoder, ratio: float) -> Callable[[Tensor], Tensor]:
    """The features for an axis with ``1 / ratio`` of the samples.

    Features per sample, and widths in units of the sample spacing, are unchanged. For encoders of
    :func:`keeps_its_arguments` the coordinates are divided by ``ratio`` instead, which changes the features per sample.
    """
    if keeps_its_arguments(encoder):
        near = leading_features(resized(encoder, 1 / ratio), ratio)
        return lambda x: near(x / ratio)
    return encoder.copy(**shrunk_arguments(encoder, ratio))


def shrunk_arguments(encoder: Encoder, ratio: float) -> dict[str, Any]:
    """The arguments that :func:`shrunk` changes."""
    width, multiple = encoder.width, encoder.multiple
    arguments, changes = encoder.resolved(), dict[str, Any]()
    if width is not None:
        changes[width.argument] = width.scaled(arguments[width.argument], ratio)
    if "num_features" in arguments:
        changes["num_features"] = multiple * math.ceil(arguments["num_features"] / (multiple * ratio) - 1e-6)
    if "spacing" in arguments:
        changes["spacing"] = min(arguments["spacing"] * ratio, 1.0)
    return changes


def leading_features(encoder: Encoder, ratio: float) -> Encoder:
    """The encoder for coordinates up to ``1 / ratio``: of shifted features of one width only the first ones."""
    if not isinstance(encoder, Shifted) or ratio == 1:
        return encoder
    return encoder.leading(math.ceil(encoder.num_shifts / ratio - 1e-6) + 2 * encoder.outside)
