"""Signals filled, denoised or enlarged by one fit, scored by folds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pe_fill.plans.signal import NO_FOLDS, Outcome, Signal
from pe_lightning.estimators import Field
from pe_lightning.estimators.folds import interpolated_folds, predicted_at, score_folds
from pe_lightning.signals import GridBatch, Signals, grid_axes, point_coordinates
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray

POINTS_AT_ONCE = 1 << 16


def applies(signal: Signal) -> bool:
    """To every signal."""
    return True


def run(signal: Signal) -> Outcome:
    """By the chosen model."""
    make = signal.make_model(signal.num_known, signal.request.pretrained)
    return by_fit(signal, lambda part: make().fit(part))


def by_fit(signal: Signal, fitted: Callable[[Signals], Field], periods: Sequence[float] = ()) -> Outcome:
    """By a fit of all known samples, and its score by fits of some of them."""
    held_out = _scores(signal, fitted) if signal.request.folds != "none" else {}
    model = fitted(signal.data)
    about = signal.about(model, periods, **held_out)
    if signal.frame.factors:
        return Outcome(_enlarged(signal, model), about)
    smooth = signal.request.smooth
    index = torch.from_numpy(np.flatnonzero(np.ones_like(signal.unknown) if smooth else signal.filled.any(-1)))
    predicted = signal.scaling.restore(predicted_at(model, signal.data.evaluation_batch(), index)[0].numpy(), 0)
    result, channels = signal.values.copy(), signal.values.shape[-1]
    flat, where = result.reshape(-1, channels), signal.filled.reshape(-1, channels)[index]
    flat[index] = predicted if smooth else np.where(where, predicted, flat[index])
    if not signal.request.has_std:
        return Outcome(result, about)
    deviations: AnyArray = np.zeros(result.shape)
    if model.has_std:
        found = _deviations(model, signal.data, index).double().numpy() * about.unit
    else:
        rank_zero_info(f"{signal.name!r}: {signal.num_known} samples give {model.label} no deviations: they are NaN")
        found = np.full(predicted.shape, np.nan)
    deviations.reshape(-1, channels)[index] = np.where(where, found, 0)
    return Outcome(result, about, deviations)


def _scores(signal: Signal, fitted: Callable[[Signals], Field]) -> dict[str, Any]:
    """Scores of held-out samples, and how they are chosen, as arguments of :meth:`Signal.about`."""
    if signal.frame.factors:
        return {"protocol": "enlargements of values at points are not scored"}
    if (scored := signal.make_folds()) is None:
        return {"protocol": NO_FOLDS}
    sampling, count, protocol = scored
    with torch.random.fork_rng():
        score = score_folds(signal.data, fitted, sampling, count)
    baselines, left_out = interpolated_folds(signal.data, sampling, count)
    return {"protocol": protocol, "score": score, "baselines": baselines, "left_out": left_out}


def _enlarged(signal: Signal, model: Field) -> AnyArray:
    factors = signal.frame.factors
    axes = grid_axes([f * n for f, n in zip(factors, signal.grid, strict=True)])
    with torch.no_grad():
        result: AnyArray = signal.scaling.restore(model.grid(axes)[0].cpu().numpy(), 0)
    at_known = tuple(slice(None, None, factor) for factor in factors)
    result[at_known] = np.where(signal.missing, result[at_known], signal.values)
    return result


def _deviations(model: Field, data: Signals, index: Tensor) -> Tensor:
    """Standard deviations of predictions of one signal at samples of the grid, ``(P, C)``."""
    batch = data.evaluation_batch()
    assert isinstance(batch, GridBatch)
    coords = point_coordinates(batch.axes, index)
    with torch.no_grad():
        return torch.cat([model.std(some).cpu() for some in torch.split(coords, POINTS_AT_ONCE)])
