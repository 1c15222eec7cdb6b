"""PSNR per signal, from sums and counts, so that it is exact over any split into batches and processes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

__all__ = ["SignalPSNR", "psnr", "summary"]


def psnr(squared_error: Tensor, count: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB for values in [0, 1]: ``-10 log10(squared_error / count)``.

    Args:
        squared_error: Sum of squared errors, ``(S,)``.
        count: Number of values summed, ``(S,)``.

    Returns:
        ``(S,)``: infinite where the error is zero, minus infinite where it is infinite or NaN (a diverged fit), NaN
        where nothing was counted.
    """
    error = torch.nan_to_num(squared_error, nan=torch.inf, posinf=torch.inf)
    return torch.where(count > 0, -10 * torch.log10(error / count), torch.nan)


class SignalPSNR(Metric):
    """PSNR of each signal of a set, of unclamped predictions, peak 1.

    States are the sums of squared errors and the counts, in float64; processes add theirs. Only samples under the mask
    enter, never a padded or repeated one.

    Args:
        num_signals: Number of signals ``S``.
        sync_on_compute: Whether the sums of several processes are added before the score is taken.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    squared_error: Tensor
    count: Tensor

    def __init__(self, num_signals: int, sync_on_compute: bool = True) -> None:
        super().__init__(sync_on_compute=sync_on_compute)
        self.add_state("squared_error", torch.zeros(num_signals, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros(num_signals, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, prediction: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Adds a batch.

        Args:
            prediction: ``(S, *samples, C)``.
            target: The same shape.
            mask: ``(S or 1, *samples)``; True where a sample is scored. ``None``: everywhere.

        Raises:
            ValueError: If the shapes do not fit; sums must not be taken over broadcast values.
        """
        signals, samples = len(self.count), target.shape[1:-1]
        if prediction.shape != target.shape or len(target) != signals:
            raise ValueError(
                f"prediction and target have the shape ({signals}, *samples, C); "
                f"got {tuple(prediction.shape)} and {tuple(target.shape)}"
            )
        if mask is not None and (mask.shape[1:] != samples or len(mask) not in (1, signals)):
            raise ValueError(
                f"a mask has the shape (1 or {signals}, {', '.join(map(str, samples))}); got {tuple(mask.shape)}"
            )
        # the half precisions are widened; float64 stays what it is
        precise = torch.promote_types(prediction.dtype, torch.float32)
        error = (prediction.to(precise) - target.to(precise)).square().sum(-1).flatten(1)
        channels = target.shape[-1]
        if mask is None:
            self.squared_error += error.sum(1, dtype=torch.float64)
            self.count += error.shape[1] * channels
        else:
            flat = mask.flatten(1)
            self.squared_error += torch.where(flat, error, 0.0).sum(1, dtype=torch.float64)
            self.count += flat.sum(1) * channels

    def compute(self) -> Tensor:
        """PSNR per signal, ``(S,)``; infinite for a perfect fit, NaN where no sample was scored (see :func:`psnr`)."""
        return psnr(self.squared_error, self.count)

    def per_signal(self) -> Tensor:
        """As :meth:`compute`, always of shape ``(S,)``: torchmetrics takes the dimension off a single value."""
        values: Tensor = self.compute()
        return values.reshape(-1)


def summary(values: Tensor, prefix: str, nothing: str) -> dict[str, Any]:
    """Mean, standard deviation and list of a per-signal metric as plain JSON values.

    What is not finite becomes ``None``, with the reason under ``<prefix>_reason``.

    Args:
        values: One value per signal, ``(S,)``.
        prefix: Key of the mean: ``"test/psnr"``.
        nothing: The reason to give for NaN.
    """
    finite = torch.isfinite(values)
    plain: dict[str, Any] = {prefix: None, f"{prefix}_std": None}
    if finite.all():
        plain[prefix] = values.mean().item()
        # over the signals at hand, not an estimate for others: one signal has deviation 0
        plain[f"{prefix}_std"] = values.std(correction=0).item()
    plain[f"{prefix}_per_signal"] = [v.item() if ok else None for v, ok in zip(values, finite, strict=True)]
    reasons = {
        nothing: values.isnan(),
        "infinite: a signal is reproduced exactly": values.isposinf(),
        "minus infinite: a prediction is not finite": values.isneginf(),
    }
    if not finite.all():
        plain[f"{prefix}_reason"] = "; ".join(reason for reason, where in reasons.items() if where.any())
    return plain

def create(name, n, sync_on_compute=True): return SignalPSNR(n, sync_on_compute)  # SHIM
