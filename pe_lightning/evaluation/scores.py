"""Scores per signal as plain functions of sums and counts: exact fits need no torchmetrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from pe_lightning.errors import InputError

Terms: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, ...]]
"""From prediction and target, ``(S, *samples, C)`` each, the summands of every sum, of the same shape."""


def sums_of(
    terms: Terms, num_signals: int, prediction: Tensor, target: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, ...]:
    """The sums of terms over samples and channels, and the number of values, ``(S,)`` each in float64.

    Args:
        terms: The summands.
        num_signals: Number of signals ``S``.
        prediction: ``(S, *samples, C)``.
        target: The same shape.
        mask: ``(S or 1, *samples)``; True where a sample is scored. ``None``: everywhere.
    """
    samples = target.shape[1:-1]
    masked = mask is None or (mask.shape[1:] == samples and len(mask) in (1, num_signals))
    if prediction.shape != target.shape or len(target) != num_signals or not masked:
        given = [tuple(tensor.shape) for tensor in (prediction, target, mask) if tensor is not None]
        raise ValueError(
            f"prediction and target have the shape ({num_signals}, *samples, C), a mask (1 or {num_signals}, *samples); "
            f"got {given}"
        )
    # half precision becomes float32
    precise = torch.promote_types(prediction.dtype, torch.float32)
    flat = torch.ones(1, samples.numel(), dtype=torch.bool, device=target.device) if mask is None else mask.flatten(1)
    per_sample = [values.to(precise).sum(-1).flatten(1) for values in terms(prediction.to(precise), target.to(precise))]
    sums = [torch.where(flat, values, 0.0).sum(1, dtype=torch.float64) for values in per_sample]
    count = (flat.sum(1, dtype=torch.float64) * target.shape[-1]).expand(num_signals)
    return (*sums, count)


def psnr(squared_error: Tensor, count: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB for values in [0, 1]: ``-10 log10(squared_error / count)``, ``(S,)`` each.

    Infinite where the error is zero, minus infinite where it is infinite or NaN (a diverged fit), NaN where the count is
    zero.
    """
    error = torch.nan_to_num(squared_error, nan=torch.inf, posinf=torch.inf)
    return torch.where(count > 0, -10 * torch.log10(error / count), torch.nan)


def snr(squared_error: Tensor, energy: Tensor, count: Tensor) -> Tensor:
    """Signal-to-noise ratio in dB: ``10 log10(energy / squared_error)``; NaN where the count is zero, ``(S,)`` each."""
    ratio = psnr(squared_error, energy.clamp(min=torch.finfo(torch.float64).tiny))
    return torch.where(count > 0, ratio, torch.nan)


def iou(intersection: Tensor, union: Tensor, count: Tensor) -> Tensor:
    """Intersection over union; 1 where the union is empty, NaN where the count is zero, ``(S,)`` each."""
    ratio = torch.where(union > 0, intersection / union, 1.0)
    return torch.where(count > 0, ratio, torch.nan)


def _overlap(prediction: Tensor, target: Tensor) -> tuple[Tensor, ...]:
    inside, finite = target > 0.5, prediction.isfinite()  # a value that is not finite is in the union alone
    return (prediction > 0.5) & inside & finite, (prediction > 0.5) | inside | ~finite


class Formula(NamedTuple):
    """A score as a function of sums over samples."""

    sums: tuple[str, ...]
    """Names of the sums."""
    terms: Terms
    """The summands."""
    score: Callable[..., Tensor]
    """From the sums and the number of values, ``(S,)`` each, the score ``(S,)``."""


FORMULAS = {
    "psnr": Formula(("squared_error",), lambda made, true: ((made - true).square(),), psnr),
    "snr": Formula(("squared_error", "energy"), lambda made, true: ((made - true).square(), true.square()), snr),
    "iou": Formula(("intersection", "union"), _overlap, iou),
}
"""The metrics of the sources of this package, by their registered names."""


def summary(values: Tensor, prefix: str, nothing: str) -> dict[str, Any]:
    """Mean, sample standard deviation (zero of one signal) and list of a metric per signal, as plain JSON values.

    Values that are not finite become ``None``, with the reason under ``<prefix>_reason``.

    Args:
        values: One value per signal, ``(S,)``.
        prefix: Key of the mean, such as ``test/psnr``.
        nothing: The reason of a NaN.
    """
    finite = torch.isfinite(values)
    whole = bool(finite.all())
    plain: dict[str, Any] = {
        prefix: values.mean().item() if whole else None,
        f"{prefix}_std": values.std(correction=min(1, len(values) - 1)).item() if whole else None,
        f"{prefix}_per_signal": [v.item() if ok else None for v, ok in zip(values, finite, strict=True)],
    }
    reasons = {
        nothing: values.isnan(),
        "infinite: a signal is reproduced exactly": values.isposinf(),
        "minus infinite: a prediction is not finite": values.isneginf(),
    }
    if not whole:
        plain[f"{prefix}_reason"] = "; ".join(reason for reason, where in reasons.items() if where.any())
    return plain


def held_out_psnr(label: str, scores: Mapping[str, Tensor]) -> float:
    """Mean over signals of the PSNR of the held-out samples in dB.

    Args:
        label: Name of the model in messages.
        scores: Scores of each signal ``(S,)`` by name.
    """
    mean = float(scores["test/psnr"].mean()) if "test/psnr" in scores else math.nan
    if not math.isnan(mean):
        return mean
    there = f"there is {', '.join(scores)}" if scores else "Trainer.test scores it, and so does pe_lightning.fit"
    if "train/psnr" in scores:
        trained = float(scores["train/psnr"].mean())
        there = f"no sample is held out, and the PSNR of the trained samples is train_psnr, {trained:.2f} dB"
    raise InputError(f"this {label} has no PSNR: {there}")
