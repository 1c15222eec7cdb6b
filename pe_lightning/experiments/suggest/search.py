"""One search: every candidate is scored on windows of the signals, the best again on all samples, within a deadline."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pe_lightning.analysis.ranks import feature_rank, sample_coordinates
from pe_lightning.baselines import interpolate
from pe_lightning.data.dataset import to_device
from pe_lightning.distributed import Process
from pe_lightning.encoders import Encoder
from pe_lightning.encodings import Complex, per_axis
from pe_lightning.errors import InputError
from pe_lightning.experiments.suggest.candidates import Candidate, interpolations
from pe_lightning.experiments.suggest.windows import ScoredSignals
from pe_lightning.metrics import SignalPSNR
from pe_lightning.modules.exact_fit import solve_data

__all__ = ["SearchResult", "Trial", "TrialScore", "score", "search"]

FIRST_SHARE = 0.5
"""Share of the time for the windows; the rest is for all samples."""
CLOSE = 1.0
"""Encoders that are further behind, in dB, are not tried on all samples, nor with padding."""
SAFETY = 1.3
"""A trial is expected to take this much longer than the slowest of the last few rates suggests."""
RECENT = 5
"""How many rates are remembered, as other work on the machine comes and goes."""
RANK_POINTS = 1024
"""Scattered points whose features' stable rank is shown."""
NOTES = {"LowRankWarning": "low rank", "ConvergenceWarning": "not converged", "ChoiceWarning": "ridge by rule"}


@dataclass(frozen=True)
class TrialScore:
    """The result of a trial on some signals.

    Args:
        psnr: Held-out PSNR per signal, in dB.
        seconds: From training samples to weights, the choice of width and ridge included.
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
    notes: tuple[str, ...] = ()

    @property
    def mean(self) -> float:
        """Mean over signals; minus infinity where a prediction is not finite."""
        if any(math.isnan(value) or value == -math.inf for value in self.psnr):
            return -math.inf
        return math.fsum(self.psnr) / len(self.psnr)


@dataclass
class Trial:
    """A candidate that was tried.

    Args:
        candidate: The encoder or the interpolation.
        windows: On windows of the signals, if there are any.
        whole: On all samples, if there was time.
    """

    candidate: Candidate
    windows: TrialScore | None = None
    whole: TrialScore | None = None

    @property
    def best(self) -> TrialScore:
        """On all samples, else on the windows."""
        found = self.whole or self.windows
        assert found is not None
        return found

    @property
    def order(self) -> tuple[bool, float]:
        """The key that trials are sorted by, the best first."""
        return self.whole is None, -self.best.mean


@dataclass
class SearchResult:
    """Everything that was tried, the best first, and what was not.

    Args:
        signals: All signals; ``None`` if they stay in their file.
        windows: Windows of them; ``None`` if all are few.
        trials: What was tried.
        skipped: What was not tried, and why.
    """

    signals: ScoredSignals | None
    windows: ScoredSignals | None
    trials: list[Trial] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> ScoredSignals:
        """The signals whose numbers of features are shown."""
        shown = self.signals or self.windows
        assert shown is not None
        return shown

    def encoders(self) -> list[Trial]:
        """The trials of encoders."""
        return [trial for trial in self.trials if not trial.candidate.interpolation]

    def interpolations(self) -> list[Trial]:
        """The trials of interpolation."""
        return [trial for trial in self.trials if trial.candidate.interpolation]

    def measured(self, trial: Trial) -> bool:
        """Whether seconds and parameters of a trial hold for the signals that are shown."""
        return trial.whole is not None or self.signals is None


def search(
    candidates: Sequence[Candidate],
    signals: ScoredSignals | None,
    windows: ScoredSignals | None,
    deadline: float,
    device: torch.device,
    progress: Callable[[str], None],
) -> SearchResult:
    """Tries candidates and interpolation.

    Args:
        candidates: In the order to try them.
        signals: All samples; ``None`` if they stay in their file.
        windows: Windows of them; ``None`` if all of them are few.
        deadline: In seconds of :func:`time.perf_counter`.
        device: Where to compute.
        progress: Called with what is tried next.
    """
    result = SearchResult(signals, windows)
    first, began = windows or result.shown, time.perf_counter()
    rates: dict[tuple[bool, bool, bool], list[float]] = {}

    def attempt(candidate: Candidate, on: ScoredSignals, until: float, guess: float = 0.0) -> TrialScore | None:
        """Scores a candidate if that is expected to end in time; ``guess`` is for the first of its kind."""
        label, work = candidate.label(result.shown), candidate.work(on)
        known = rates.setdefault((on is first, candidate.interpolation, candidate.width is not None), [])
        started = time.perf_counter()
        try:
            candidate.check_memory(on)
            if started + (SAFETY * max(known[-RECENT:]) * work if known else guess) > until:
                if on is first:
                    raise InputError("no time left; give a larger --budget")
                return None
            progress(f"{label}, {on.text}")
            found = score(candidate, on, device)
            known.append((time.perf_counter() - started) / work)
            return found
        except InputError as error:
            result.skipped[label] = str(error)
        except Exception as error:  # whatever fails with one encoder, the others are tried
            result.skipped[label] = f"failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return None

    baselines, result.skipped = interpolations(first)
    until = began + (FIRST_SHARE if windows is not None and signals is not None else 1.0) * (deadline - began)
    for candidate in [*baselines, *candidates]:
        if candidate.padding and not _worth_padding(result, candidate):
            continue
        found = attempt(candidate, first, until)
        if found is not None:
            result.trials.append(Trial(candidate, found) if first is windows else Trial(candidate, None, found))
    if windows is not None and signals is not None:
        for trial in _shortlist(result):
            assert trial.windows is not None
            larger = trial.candidate.work(signals) / trial.candidate.work(windows)
            trial.whole = attempt(trial.candidate, signals, deadline, SAFETY * trial.windows.seconds * larger)
    result.trials.sort(key=lambda trial: trial.order)
    return result


def _worth_padding(result: SearchResult, padded: Candidate) -> bool:
    """Whether the same encoder without padding came close to the best."""
    tried = result.encoders()
    same = [trial.best.mean for trial in tried if trial.candidate == replace(padded, padding=0)]
    return bool(same) and same[0] >= max(trial.best.mean for trial in tried) - CLOSE


def _shortlist(result: SearchResult) -> list[Trial]:
    """What is tried on all samples: the best encoder, the interpolations, then each encoder's best, then the rest."""
    ranked = sorted(result.encoders(), key=lambda trial: trial.order)
    close = [trial for trial in ranked if trial.best.mean >= ranked[0].best.mean - CLOSE]
    leading = list({trial.candidate.name: trial for trial in reversed(close)}.values())[::-1]
    following = [trial for trial in close if not any(trial is one for one in leading)]
    return [*leading[:1], *result.interpolations(), *leading[1:], *following]


def score(candidate: Candidate, signals: ScoredSignals, device: torch.device) -> TrialScore:
    """Fits a candidate to the trained samples and scores it on the held-out ones; the solver's warnings become notes.

    Raises:
        Exception: Any error of an encoder or a solver.
    """
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        found, prediction = (_interpolate if candidate.interpolation else _solve)(candidate, signals, device)
    truth = signals.dataset.evaluation_batch
    metric = SignalPSNR(signals.info.num_signals).to(prediction.device)
    metric.update(prediction, truth.values.to(prediction.device), signals.scored.to(prediction.device))
    notes = dict.fromkeys(NOTES.get(type(entry.message).__name__, "") for entry in caught)
    return replace(found, psnr=tuple(metric.per_signal().tolist()), notes=tuple(filter(None, notes)))


def _interpolate(candidate: Candidate, signals: ScoredSignals, device: torch.device) -> tuple[TrialScore, Tensor]:
    began = time.perf_counter()
    prediction = interpolate(candidate.name, signals.dataset.train_batch, signals.dataset.evaluation_batch.axes)
    return TrialScore((), time.perf_counter() - began), prediction


def _solve(candidate: Candidate, signals: ScoredSignals, device: torch.device) -> tuple[TrialScore, Tensor]:
    """The exact fit with width and ridge chosen, as ``pe-lightning fit`` does it."""
    encoders = per_axis(candidate.describe(signals), signals.info.num_axes)
    began = time.perf_counter()
    solution = solve_data(signals.dataset, Process(), encoders, "auto", True, device)
    seconds = time.perf_counter() - began
    batch = to_device(signals.dataset.calibration_batch(), device)
    encoding = Complex(solution.encoders, signals.info.num_axes, normalize=False)
    rank = float(feature_rank(encoding, batch, sample_coordinates(batch, RANK_POINTS).to(torch.float32)).mean())
    found = TrialScore((), seconds, solution.weight[0].numel(), rank, solution.encoders, solution.ridge)
    return found, solution.predict([axis.to(device) for axis in signals.dataset.axes])
