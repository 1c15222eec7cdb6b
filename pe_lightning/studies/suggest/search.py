"""The search of ``suggest``: fits every candidate to the trained samples, and scores it by the others."""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from pe_lightning import encoders
from pe_lightning.encodings import Complex, feature_rank
from pe_lightning.errors import InputError, paragraph, show_interpolation
from pe_lightning.estimators.base import Estimator, FittedField, Variant, estimators, suggested_estimators
from pe_lightning.estimators.linear import LinearField, LinearRidge
from pe_lightning.evaluation.baselines import baselines, interpolate, refuse_slow
from pe_lightning.evaluation.totals import totals
from pe_lightning.signals import GridBatch, sample_coordinates
from pe_lightning.signals.batches import to_device
from pe_lightning.signals.validation import free_memory
from pe_lightning.studies.suggest.crop import ScoredSignals

FEATURE_SHARES: tuple[dict[str, Any], ...] = ({"share": 1.0}, {"share": 0.5})
"""Numbers of features that are tried, relative to ``num_features: auto``."""
MAX_DENSE = 1024
"""Most features of an axis without local support: the decomposition takes seconds, its time grows with the cube."""
MAX_DENSE_WORK = 1 << 33
"""Largest number of samples of an axis times the square of its features, without local support."""
MAX_MEMORY_SHARE = 0.25
"""Largest share of the free memory for weights and features."""
WARNING_NOTES = {"LowRankWarning": "low rank", "ConvergenceWarning": "not converged", "ChoiceWarning": "ridge by rule"}
"""Notes on a trial, by the name of the warning of the solver."""


@dataclass(frozen=True)
class TrialScore:
    """The result of a trial on some signals, with the seconds of the fit and all choices."""

    seconds: float
    params: int | None = None
    """Parameters of one signal."""
    stable_rank: float | None = None
    encoders: tuple[encoders.Encoder, ...] = ()
    """One per axis, with the chosen values."""
    ridge: float | None = None
    notes: tuple[str, ...] = ()
    per_signal: tuple[float, ...] = ()
    """Held-out scores, by the metric of the data."""

    @property
    def mean(self) -> float:
        """Mean over signals; minus infinity if a prediction is not finite."""
        if any(math.isnan(value) or value == -math.inf for value in self.per_signal):
            return -math.inf
        return math.fsum(self.per_signal) / len(self.per_signal)


@dataclass(frozen=True)
class Candidate(ABC):
    """A way to predict held-out samples, by its registered name or the label of a variant."""

    interpolation: ClassVar[bool] = False
    name: str

    @property
    def remark(self) -> str:
        """A line below the table."""
        return ""

    def label(self, signals: ScoredSignals) -> str:
        """The name in the table."""
        return self.name

    def applies_to(self, signals: ScoredSignals) -> bool:
        """Whether it is tried; raises InputError with the reason if it cannot be."""
        return True

    @abstractmethod
    def predict(self, signals: ScoredSignals, device: torch.device) -> tuple[TrialScore, Tensor]:
        """Fits the trained samples. Returns the score, still without ``per_signal``, and the values on the grid."""


class InterpolationCandidate(Candidate):
    """A registered baseline."""

    interpolation = True

    def label(self, signals: ScoredSignals) -> str:
        return f"{show_interpolation(self.name, signals.data.info.num_axes)} interpolation"

    def applies_to(self, signals: ScoredSignals) -> bool:
        applies = baselines.create(self.name).applies_to(signals.data.info, signals.data.split)
        if applies:
            refuse_slow(self.name, signals.data.info, signals.data.split)
        return applies

    def predict(self, signals: ScoredSignals, device: torch.device) -> tuple[TrialScore, Tensor]:
        began, dataset = time.perf_counter(), signals.data
        prediction = interpolate(self.name, dataset.train_batch(), dataset.axes)
        return TrialScore(time.perf_counter() - began), prediction


@dataclass(frozen=True)
class EstimatorCandidate(Candidate):
    """A variant of an estimator."""

    estimator: type[Estimator]
    variant: Variant

    @property
    def remark(self) -> str:
        return self.variant.remark

    def applies_to(self, signals: ScoredSignals) -> bool:
        return self.estimator(**self.variant.arguments).applies_to(signals.data.split)

    def predict(self, signals: ScoredSignals, device: torch.device) -> tuple[TrialScore, Tensor]:
        field, seconds = _fit(self.estimator(**self.variant.arguments), signals, device)
        return TrialScore(seconds, params=field.num_params, notes=field.notes), field.grid(signals.data.axes)


@dataclass(frozen=True)
class EncoderCandidate(Candidate):
    """The exact fit of an encoder with a number of features; width and ridge are chosen as by ``pe-lightning fit``."""

    share: float | None = None
    """Number of features relative to ``num_features: auto``."""
    count: int | None = None
    """Number of features per axis, instead of ``share``. Both are ``None`` for encoders without ``num_features``."""
    width: str | None = None
    """The argument that sets the width, if there is one."""
    is_open: bool = True
    """Whether ``num_features`` is ``auto`` by default; other classes may take numbers only."""
    local: bool = False
    """Whether only a few neighbouring features are nonzero at a sample."""

    def features(self, signals: ScoredSignals, full: bool = False) -> tuple[int | None, ...]:
        """Features per axis, for the whole signals if ``full``; ``None`` for encoders without ``num_features``."""
        sizes = signals.auto_features()
        if self.share is None and self.count is None:
            return (None,) * len(sizes)
        found = []
        for n, whole in sizes:
            most = math.inf if self.local else min(MAX_DENSE, math.sqrt(MAX_DENSE_WORK / whole))
            wanted = self.count or min(whole * (self.share or 1), most)
            count = wanted if full else wanted * n / whole
            # a number that is not given is even, as Fourier encoders require
            found.append(round(count) if count in (self.count, n, whole) else max(2, 2 * round(count / 2)))
        return tuple(found)

    def describe(self, signals: ScoredSignals, full: bool = False) -> dict[str, Any] | list[dict[str, Any]]:
        """The encoder as in a configuration: one for all axes, or one per axis where their sizes differ."""
        rest: dict[str, Any] = {self.width: "auto"} if self.width is not None else {}
        made = []
        for count, sizes in zip(self.features(signals, full), signals.auto_features(), strict=True):
            auto = self.is_open and self.share == 1 and count == sizes[full]
            counted = {} if count is None else {"num_features": "auto" if auto else count}
            made.append({"name": self.name, **counted, **rest})
        return made[0] if all(entry == made[0] for entry in made) else made

    def label(self, signals: ScoredSignals) -> str:
        """Name and number of features for the whole signals, such as ``gau, K = 256``."""
        counts = [str(count) for count in self.features(signals, full=True) if count is not None]
        shown = "x".join(counts if len(set(counts)) > 1 else counts[:1])
        return f"{self.name}, K = {shown}" if shown else self.name

    def predict(self, signals: ScoredSignals, device: torch.device) -> tuple[TrialScore, Tensor]:
        self._check_memory(signals)
        field, seconds = _fit(LinearRidge(self.describe(signals)), signals, device)
        assert isinstance(field, LinearField)
        (solution,), dataset = field.solutions, signals.data
        batch = to_device(dataset.train_batch(), device)
        encoding = Complex(solution.encoders, signals.data.info.num_axes, normalize=False)
        axes = batch.axes if isinstance(batch, GridBatch) else None
        rank = float(feature_rank(encoding, sample_coordinates(batch, 1024).to(torch.float32), axes).mean())
        found = TrialScore(seconds, solution.weight[0].numel(), rank, solution.encoders, solution.ridge)
        return found, field.grid(dataset.axes)

    def _check_memory(self, signals: ScoredSignals) -> None:
        info, counts = signals.data.info, [count or 0 for count in self.features(signals)]
        weights = info.num_signals * info.channels * math.prod(counts)
        dense = 0 if self.local else max(n * k for n, k in zip(info.grid, counts, strict=True))
        needed, free = 16 * weights + 24 * dense, MAX_MEMORY_SHARE * free_memory()
        if needed > free:
            raise InputError(f"needs about {needed / 1e9:.1f} GB of memory; {free / 1e9:.1f} GB may be used")


def _fit(estimator: Estimator, signals: ScoredSignals, device: torch.device) -> tuple[FittedField, float]:
    """The field, and the seconds of the fit."""
    began, dataset = time.perf_counter(), signals.data
    # the spacing of the coordinates of a crop is not one over its number of samples
    grid = tuple(round(1 / float(x[1] - x[0])) if len(x) > 1 else 1 for x in dataset.axes)
    field = estimator.fit(replace(signals.data, info=replace(signals.data.info, grid=grid)), device)
    return field, time.perf_counter() - began


def encoder_candidates(names: Sequence[str], counts: Sequence[int]) -> tuple[list[Candidate], dict[str, str]]:
    """The candidates in the order in which they are tried, and reasons for the encoders that have no exact fit.

    ``names`` are encoders and labels of estimators, by default all; estimators only without ``counts`` of features.
    """
    skipped = {} if names else {**encoders.registry.broken(), **estimators.broken()}
    labelled = suggested_estimators()
    chosen = [cls for label, cls in labelled.items() if label in names or not (names or counts)]
    found: list[EncoderCandidate] = []
    for name in [name for name in names if name not in labelled] if names else encoders.names():
        try:
            encoder = encoders.create(name)
        except Exception as error:  # the constructor of a plug-in can raise any exception
            skipped[name] = reason(error)
            continue
        if any(parameter.requires_grad for parameter in encoder.parameters()):
            skipped[name] = "its features are trained, and the solvers fit only the linear layer; use pe-lightning fit"
            continue
        if encoder.num_axes != 1 or not encoder.axiswise:
            skipped[name] = "it encodes several axes together; the solvers take encoders of one axis"
            continue
        sizes = [{"count": count} for count in counts] or FEATURE_SHARES
        if "num_features" not in encoders.registry.parameters(type(encoder)):
            sizes = [{}]
        width = None if encoder.width is None else encoder.width.argument
        found += [
            EncoderCandidate(name, width=width, is_open=encoder.is_open, local=_is_local(encoder), **size) for size in sizes
        ]
    # first all estimators and every encoder once
    ordered = sorted(found, key=lambda c: (-(c.share or 1), c.count or 0))
    return [*(EstimatorCandidate(v.label, cls, v) for cls in chosen for v in cls.variants), *ordered], skipped


def _is_local(encoder: encoders.Encoder) -> bool:
    try:
        return encoder.copy(num_features=1024).support is not None
    except (InputError, RuntimeError):
        return False


def reason(error: Exception) -> str:
    """The message of an error, in one line."""
    return f"{'' if isinstance(error, InputError) else f'failed: {type(error).__name__}: '}{paragraph(str(error), 500)}"


@dataclass(frozen=True)
class Trial:
    """A candidate with its score."""

    candidate: Candidate
    found: TrialScore


@dataclass
class SearchResult:
    """The trials, best first, and the candidates that were skipped, with the reasons."""

    signals: ScoredSignals
    trials: list[Trial] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def of(self, interpolation: bool) -> list[Trial]:
        return [trial for trial in self.trials if trial.candidate.interpolation == interpolation]


def search(
    candidates: Sequence[Candidate],
    signals: ScoredSignals,
    deadline: float,
    device: torch.device,
    progress: Callable[[str], None],
) -> SearchResult:
    """Scores candidates and interpolation; starts no trial but the first after the deadline.

    Args:
        candidates: Encoders and estimators.
        signals: The signals.
        deadline: In seconds of :func:`time.perf_counter`.
        device: Where to compute.
        progress: Called before each trial, with its description.
    """
    result = SearchResult(signals)
    # the limits on the number of features can make both shares equal
    labelled = {candidate.label(signals): candidate for candidate in reversed(candidates)}.values()
    ordered = [candidate for candidate in candidates if candidate in labelled]
    for candidate in [*ordered[:1], *map(InterpolationCandidate, baselines), *ordered[1:]]:
        label = candidate.label(signals)
        try:
            if not candidate.applies_to(signals):
                continue
            if time.perf_counter() > deadline and candidate not in ordered[:1]:
                raise InputError("no time left; give a larger --budget")
            progress(label)
            result.trials.append(Trial(candidate, score(candidate, signals, device)))
        except Exception as error:  # an encoder or a plug-in that fails does not end the search
            result.skipped[label] = reason(error)
    result.trials.sort(key=lambda trial: -trial.found.mean)
    return result


def score(candidate: Candidate, signals: ScoredSignals, device: torch.device) -> TrialScore:
    """Fits a candidate to the trained samples and scores the held-out ones; warnings of the solver become notes."""
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        found, prediction = candidate.predict(signals, device)
    info, truth = signals.data.info, signals.data.evaluation_batch()
    metric = totals(info.metric, info.num_signals)
    metric.update(prediction.cpu(), truth.values, truth.mask)
    notes = dict.fromkeys([*found.notes, *(WARNING_NOTES.get(type(entry.message).__name__, "") for entry in caught)])
    return replace(found, per_signal=tuple(metric.per_signal().tolist()), notes=tuple(filter(None, notes)))
