"""Scores of a tested module, as the plain values of ``metrics.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from skimage.metrics import structural_similarity
from torch import Tensor

from pe_lightning.blocks import row_blocks
from pe_lightning.callbacks.descriptions import Describes, metric_of
from pe_lightning.data.batches import SignalInfo
from pe_lightning.errors import InputError
from pe_lightning.metrics import summary
from pe_lightning.metrics_file import SCHEMA

__all__ = ["picture_ssim", "rmse_in_units", "score"]

Array = npt.NDArray[np.float32]

MIN_SSIM_SIDE = 7
"""Side of scikit-image's default window; smaller pictures have no SSIM."""


def score(module: Describes, described: Mapping[str, Any], tested: tuple[Array, Array] | None) -> dict[str, Any]:
    """The scores of a tested module, per signal and on average, as plain values.

    Args:
        module: A module whose test has ended.
        described: What :func:`describe` returned.
        tested: Prediction and truth, ``(S, *grid, C)`` each; ``None`` if they are not in memory.

    Raises:
        InputError: If the module has no scores, or not one per signal.
    """
    metric, scores, signals = metric_of(module), getattr(module, "scores", {}), len(described["signals"])
    shapes = {key: tuple(values.shape) for key, values in scores.items()}
    if f"test/{metric}" not in shapes or set(shapes.values()) != {(signals,)}:
        raise InputError(
            f"{type(module).__name__}: a test must leave scores['test/{metric}'], and every score has the shape "
            f"({signals},), as describe()['signals'] names {signals}; got {shapes}"
        )
    found: dict[str, Any] = {"schema": SCHEMA, "metric": metric}
    for key, per_signal in scores.items():
        nothing = "no sample was trained on" if key.startswith("train/") else "nothing is held out (protocol none)"
        found |= summary(per_signal, key, nothing)
    return found | summary(*_ssim(tested, signals)) if "grid" in described else found


def rmse_in_units(scores: Mapping[str, Tensor], info: SignalInfo) -> dict[str, Any]:
    """The root mean squared error of held-out samples in the units of the source, from their PSNR, as plain values.

    Args:
        scores: Those of a tested module, by name.
        info: Shape and range of the signals.
    """
    psnr = scores["test/psnr"].double()
    ranges = [info.scaling.of(signal) for signal in range(info.num_signals)]
    extents = torch.tensor([high - low for low, high in ranges], dtype=torch.float64)
    return summary(extents * 10 ** (-psnr / 20), "test/rmse", "nothing is held out (protocol none)")


def _ssim(tested: tuple[Array, Array] | None, signals: int) -> tuple[Tensor, str, str]:
    """SSIM of whole pictures, predictions clamped to [0, 1] as they are shown; NaN and a reason where there is none."""
    scores, why_not = torch.full((signals,), torch.nan, dtype=torch.float64), "a prediction is not finite"
    if tested is None:
        why_not = "SSIM needs the signals in memory"
    elif tested[1].ndim != 4 or min(tested[1].shape[1:3]) < MIN_SSIM_SIDE:
        why_not = f"SSIM is for pictures of at least {MIN_SSIM_SIDE} x {MIN_SSIM_SIDE} samples"
    else:
        for index, (prediction, truth) in enumerate(zip(*tested, strict=True)):
            if np.isfinite(prediction).all():
                scores[index] = picture_ssim(prediction, truth)
    return scores, "test/ssim", why_not


def picture_ssim(prediction: Array, truth: Array) -> float:
    """SSIM of a picture ``(H, W, C)``, of strips of rows that overlap by the window: equal to that of the whole picture.

    scikit-image averages over the centres of all windows inside the picture, and holds some fifteen arrays of its size.
    """
    height, width, channels = truth.shape
    overlap = MIN_SSIM_SIDE - 1
    total = 0.0
    for centres in row_blocks((height - overlap, width)):
        strip = slice(centres.start, centres.stop + overlap)
        for channel in range(channels):
            one, other = truth[strip, :, channel], prediction[strip, :, channel].clip(0, 1)
            similarity = float(structural_similarity(one, other, data_range=1.0))  # type: ignore[no-untyped-call]
            total += similarity * (centres.stop - centres.start) / channels
    return total / (height - overlap)
