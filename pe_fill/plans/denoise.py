"""Noise removed: from pictures by patches and a sparse fit, and from other signals by a sparse fit."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from pe_fill.plans.model import by_fit
from pe_fill.plans.signal import Outcome, Signal, complete, read_quietly
from pe_fill.sparse.estimator import SparseOptions, SparseRidge
from pe_fill.sparse.patch_noise import MIN_PIXELS, mixed_denoising, remove_noise
from pe_lightning.errors import InputError
from pe_lightning.estimators import Field, LinearRidge
from pe_lightning.signals import Signals
from pe_lightning.signals.sources import TensorSource

ENCODER, MIN_SAMPLES = "keys", 256
"""Encoder of fits without noise, and fewest samples of a signal for the sparse one."""


def applies_to_picture(signal: Signal) -> bool:
    """To pictures, except where no noise can be measured."""
    is_picture = len(signal.grid) == 2 and min(signal.grid) >= MIN_PIXELS
    return _smooths(signal) and is_picture and _noise(signal) is not None


def denoise_picture(signal: Signal) -> Outcome:
    """By patches and a sparse fit; without noise the known samples are unchanged."""
    noise = _noise(signal)
    assert noise is not None

    def fitted(part: Signals) -> Field:
        return _without_noise(signal.complete if part is signal.data else complete(part), noise)

    values, about, _ = by_fit(signal, fitted)
    about.noise = about.unit * (noise if isinstance(noise, float) else float(noise.std((0, 1)).square().mean().sqrt()))
    return Outcome(values if about.noise else np.where(signal.missing, values, signal.values), about)


def applies_to_other(signal: Signal) -> bool:
    """To rows, clips, volumes, and pictures that are too small for patches."""
    is_picture = len(signal.grid) == 2 and min(signal.grid) >= MIN_PIXELS
    return _smooths(signal) and not is_picture and signal.unknown.size >= MIN_SAMPLES


def denoise_other(signal: Signal) -> Outcome:
    """By a sparse fit on the whole grid."""

    def fitted(part: Signals) -> Field:
        return SparseRidge(ENCODER, SparseOptions("auto"), 0.0).fit(read_quietly(TensorSource(complete(part))))

    return by_fit(signal, fitted)


def noise_region(text: str, grid: Sequence[int]) -> tuple[slice, slice]:
    """The rows and columns of a sample of noise in a picture.

    >>> noise_region("0:32,100:160", (200, 200))
    (slice(0, 32, None), slice(100, 160, None))
    """
    found = re.fullmatch(r"\s*(\d+):(\d+)\s*,\s*(\d+):(\d+)\s*", text)
    ends = [int(number) for number in found.groups()] if found else [0] * 4
    rows, columns = slice(*ends[:2]), slice(*ends[2:])
    if any(some.stop - some.start < 16 for some in (rows, columns)):
        raise InputError(
            f"noise_sample is the rows and columns of a flat region, at least 16 of each, such as 0:32,100:160; got {text!r}"
        )
    if rows.stop > grid[0] or columns.stop > grid[1]:
        raise InputError(f"noise_sample {text!r} is outside the picture of {grid[0]} rows and {grid[1]} columns")
    return rows, columns


def _smooths(signal: Signal) -> bool:
    return signal.request.smooth and signal.adapts and signal.is_even


def _noise(signal: Signal) -> float | Tensor | None:
    """The noise of a picture: its standard deviation, or a sample ``(h, w, C)``; ``None`` if it is not found."""
    request = signal.request
    if request.noise is not None:
        return request.noise / (signal.scaling.high[0] - signal.scaling.low[0])
    if request.noise_sample is None:
        return signal.noise_level
    sample = signal.unit[noise_region(request.noise_sample, signal.grid)]
    if not float(sample.std((0, 1)).sum()) > 0:
        raise InputError(f"noise_sample {request.noise_sample!r} has no noise, or missing pixels: name another region")
    return sample


def _without_noise(values: Tensor, noise: float | Tensor) -> Field:
    label = "no noise"
    if isinstance(noise, Tensor):
        values, label = remove_noise(values[0], noise)[None], "patches"
    elif noise:
        clean, weight = mixed_denoising(values[0], noise)
        values, label = clean[None], f"patches {weight:.2f}, sparse fit {1 - weight:.2f}"
    field = LinearRidge(ENCODER, 0.0).fit(read_quietly(TensorSource(values.clamp(0, 1))))
    field.label = label
    return field
