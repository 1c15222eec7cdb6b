"""One attempt: an encoder solved for and scored as ``pe-lightning fit`` would, or an interpolation."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch

from pe_lightning.baselines import interpolate
from pe_lightning.callbacks.ranks import feature_rank, sample_coordinates
from pe_lightning.data.dataset import to_device
from pe_lightning.data.splits import GridSplit
from pe_lightning.distributed import Process
from pe_lightning.encoders import Encoder
from pe_lightning.experiments.suggest.candidates import Candidate
from pe_lightning.experiments.suggest.parts import Part
from pe_lightning.metrics import SignalPSNR
from pe_lightning.modules import ComplexLinear
from pe_lightning.modules.warm_start import solve_data

__all__ = ["Interpolation", "Score", "attempt", "cost"]

NOTES = {"LowRankWarning": "low rank", "ConvergenceWarning": "not converged", "ChoiceWarning": "ridge by rule"}
RANK_POINTS = 1024
"""Scattered points whose features' stable rank is shown."""


@dataclass(frozen=True)
class Interpolation:
    """A method of :mod:`pe_lightning.baselines`."""

    name: str


@dataclass(frozen=True)
class Score:
    """How an attempt went.

    Args:
        psnr: Held-out PSNR per signal, in dB.
        seconds: From training samples to weights, the choice of sigma and ridge included.
        params: Parameters of one signal.
        stable_rank: Of the features of the training samples.
        encoders: With the values that were chosen, one per axis.
        ridge: The relative ridge.
        notes: What the solver warned of.
    """

    psnr: tuple[float, ...]
    seconds: float
    params: int | None = None
    stable_rank: float | None = None
    encoders: tuple[Encoder, ...] = ()
    ridge: float | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def mean(self) -> float:
        """Mean over signals; minus infinity where a prediction is not finite."""
        return math.fsum(self.psnr) / len(self.psnr) if all(map(math.isfinite, self.psnr)) else _limit(self.psnr)


def _limit(values: tuple[float, ...]) -> float:
    return -math.inf if any(math.isnan(v) or v == -math.inf for v in values) else math.inf


def attempt(part: Part, what: Candidate | Interpolation, device: torch.device) -> Score:
    """Fits and scores; the solver's warnings become notes.

    Raises:
        Exception: Whatever an encoder or a solver raises.
    """
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        score = _interpolate(part, what, device) if isinstance(what, Interpolation) else _fit(part, what, device)
    names = dict.fromkeys(type(entry.message).__name__ for entry in caught)
    notes = tuple(NOTES[name] for name in names if name in NOTES)
    return Score(**{**vars(score), "notes": notes})


def _fit(part: Part, candidate: Candidate, device: torch.device) -> Score:
    described: Any = candidate.describe(part)
    module = ComplexLinear(described, warm_start=True)
    module.build(part.info)
    module.to(device)
    given = [encoder for encoder in module.encoding.encoders if isinstance(encoder, Encoder)]
    began = time.perf_counter()
    fit = solve_data(part.dataset, Process(), given, "auto", True, device)
    batch = to_device(part.dataset.calibration_batch(), device)
    module.adopt(fit, batch)
    seconds = time.perf_counter() - began
    truth = to_device(part.dataset.evaluation_batch, device)
    metric = SignalPSNR(part.info.num_signals).to(device)
    metric.update(module.predict_grid(truth.axes or ()), truth.values, part.scored.to(device))
    rank = float(feature_rank(module, batch, sample_coordinates(batch, RANK_POINTS).to(torch.float32)).mean())
    return Score(tuple(metric.per_signal().tolist()), seconds, module.num_params, rank, fit.encoders, fit.ridge)


def _interpolate(part: Part, method: Interpolation, device: torch.device) -> Score:
    truth = part.dataset.evaluation_batch
    began = time.perf_counter()
    prediction = interpolate(method.name, part.dataset.train_batch, truth.axes)
    seconds = time.perf_counter() - began
    metric = SignalPSNR(part.info.num_signals)
    metric.update(prediction, truth.values, part.scored)
    return Score(tuple(metric.per_signal().tolist()), seconds)


def cost(part: Part, what: Candidate | Interpolation) -> float:
    """Work of an attempt in arbitrary units, for comparing parts: multiplications, roughly."""
    samples = part.info.num_signals * part.info.channels * math.prod(part.info.grid)
    if isinstance(what, Interpolation):
        return float(samples)
    sizes = [len(x) for x in part.dataset.axes]
    counts = [count or 16 for count in what.features(part)]
    widths = 5 if what.width is not None else 1
    if not isinstance(part.dataset.split, GridSplit):
        return float(200 * widths * samples * sum(counts))
    spread = part.spread
    # the choice looks at windows of the grid that are thinned out
    seen = [min(n, {1: 4096, 2: 256, 3: 64}.get(len(sizes), 16)) for n in spread]
    thinned = [(n / 2, k * n / m / 2) for n, k, m in zip(seen, counts, spread, strict=True)]
    choice = (1 + widths) * sum(10 * n * k * min(n, k) for n, k in thinned)
    choice += (15 + 6 * widths) * min(part.info.num_signals, 16) * part.info.channels * math.prod(seen) * max(counts)
    whole = (
        0 if what.local and max(counts) >= 512 else sum(10 * n * k * min(n, k) for n, k in zip(spread, counts, strict=True))
    )
    return float(choice + whole + 3 * samples * sum(counts))
