"""The search of ``suggest``: scores every candidate on windows of the signals, then the best ones on all samples."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from pe_lightning import encoders
from pe_lightning.encoders import per_axis
from pe_lightning.encodings import Complex, feature_rank
from pe_lightning.errors import InputError, paragraph
from pe_lightning.estimators.base import Estimator, Variant, estimators, suggested_estimators
from pe_lightning.estimators.linear import LinearRidge, size_encoders
from pe_lightning.evaluation.baselines import baselines, interpolate
from pe_lightning.evaluation.totals import totals
from pe_lightning.signals import GridBatch, sample_coordinates
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.blocks import Block, FileValues, known_samples
from pe_lightning.signals.dataset import SignalDataset, to_device
from pe_lightning.signals.split_signals import Signals
from pe_lightning.signals.splits import GridSplit, PointSplit, Split
from pe_lightning.signals.validation import free_memory
from pe_lightning.training.datamodule import SignalDataModule

FEATURE_SHARES: tuple[dict[str, Any], ...] = ({"share": 1.0}, {"share": 0.5})
"""Numbers of features that are tried, relative to ``num_features: auto``."""
MAX_DENSE = 1024
"""Most features of an axis without local support: the decomposition takes seconds, its time grows with the cube."""
MAX_DENSE_WORK = 1 << 33
"""Largest number of samples of an axis times the square of its features, without local support."""
MAX_MEMORY_SHARE = 0.25
"""Largest share of the free memory for weights and features."""
MAX_GAP_DB = 1.0
"""Encoders whose score on windows is further below the best one are not tried on all samples."""
WARNING_NOTES = {"LowRankWarning": "low rank", "ConvergenceWarning": "not converged", "ChoiceWarning": "ridge by rule"}
"""Notes on a trial, by the name of the warning of the solver."""
WINDOW_SIZES = {1: 512, 2: 64, 3: 24}
"""Trained samples per axis of a window, by number of axes; 16 for more axes."""
MAX_WINDOWS = 4
"""Largest number of windows, over all signals."""


@dataclass(frozen=True)
class ScoredSignals:
    """Signals, with the samples that are trained on and those that are scored; ``text`` describes them in messages."""

    dataset: SignalDataset
    info: SignalInfo
    text: str
    sizes: tuple[int, ...]
    """Trained samples per axis; for scattered samples, those of a grid of the same density."""
    full_sizes: tuple[int, ...]
    """The same for the whole signals, if these are windows."""
    train: Signals
    """The same signals, for estimators."""

    def auto_features(self) -> list[tuple[int, int]]:
        """``num_features: auto`` per axis, for these signals and the whole ones; of scattered samples the grid's size."""
        if isinstance(self.dataset.split, GridSplit):
            return list(zip(self.sizes, self.full_sizes, strict=True))
        per_axis = zip(self.info.grid, self.sizes, self.full_sizes, strict=True)
        return [(n, n if size == whole else round(n * whole / size)) for n, size, whole in per_axis]


def _sizes(split: Split) -> tuple[int, ...]:
    """Trained samples per axis; for scattered samples, those of a grid of the same density."""
    if isinstance(split, GridSplit):
        return split.sizes
    share = (split.num_train / math.prod(split.grid)) ** (1 / len(split.grid))
    return tuple(max(1, round(n * share)) for n in split.grid)


def all_signals(data: SignalDataModule) -> ScoredSignals | None:
    """All signals; ``None`` if they are streamed from their file."""
    if data.streamed:
        return None
    sizes = _sizes(data.split)
    return ScoredSignals(data.dataset, data.info, "all samples", sizes, sizes, data.signals)


def make_windows(data: SignalDataModule) -> ScoredSignals | None:
    """Windows of some signals, whose corners are trained samples; ``None`` if they would contain most of the data."""
    split, info, num_axes = data.split, data.info, data.info.num_axes
    size: float = WINDOW_SIZES.get(num_axes, 16)
    if isinstance(split, GridSplit):
        positions, stride = split.index, split.stride
    elif data.streamed:
        raise InputError(
            "the exact fit of random samples needs the signals in memory: set --data.storage.in_memory true, or "
            "--data.sampling grid"
        )
    else:
        positions, stride = tuple(torch.arange(n) for n in info.grid), (1,) * num_axes
        size /= (split.num_train / math.prod(info.grid)) ** (1 / num_axes)
    count = min(info.num_signals, MAX_WINDOWS)
    signals = [number * info.num_signals // count for number in range(count)]
    axes = [(len(along), min(len(along), round(size))) for along in positions]  # trained samples of the signal, of a window
    # windows of a signal are evenly spaced along its diagonal, without overlap
    per_signal = max(1, min(MAX_WINDOWS // count, max(n // w for n, w in axes)))
    starts = [
        [min(max((2 * number + 1) * n // (2 * per_signal) - w // 2, 0), n - w) for n, w in axes]
        for number in range(per_signal)
    ]
    in_windows = count * per_signal * math.prod(w for _, w in axes)
    in_signals = info.num_signals * math.prod(n for n, _ in axes)
    if not data.streamed and in_signals <= 1.5 * in_windows:
        return None
    grid = tuple((w - 1) * step + 1 for (_, w), step in zip(axes, stride, strict=True))
    corners = [[int(along[i]) for along, i in zip(positions, start, strict=True)] for start in starts]
    blocks = [tuple(slice(i, i + n) for i, n in zip(corner, grid, strict=True)) for corner in corners]
    values = data.dataset.values
    if isinstance(values, FileValues):
        read = [values.read(block) for block in blocks]
    else:
        read = [values[index] for index in [(slice(None), *block) for block in blocks]]
    windowed = _split_of_windows(split, grid, blocks, signals, info.num_signals)
    names = tuple(f"{info.names[signal]} {number}" for number in range(per_signal) for signal in signals)
    windows = torch.cat([window[signals] for window in read])
    if (known := known_samples(windows)) is not None:
        windowed = replace(windowed, known=known)
    dataset = SignalDataset(windows, windowed, data.effective_eval_mask)
    # as in the signal, trained samples are at multiples of 1/w, which are the shifts of w features
    dataset.axes = tuple(torch.arange(n) / (w * step) for n, (_, w), step in zip(grid, axes, stride, strict=True))
    info = replace(info, names=names, grid=grid)
    return ScoredSignals(
        dataset,
        info,
        f"{len(names)} windows of {'x'.join(map(str, grid))} samples from {count} of {data.info.num_signals} signal(s)",
        _sizes(windowed),
        _sizes(split),
        replace(data.signals, info=info, dataset=dataset),
    )


def _split_of_windows(
    split: Split, grid: tuple[int, ...], blocks: Sequence[Block], signals: Sequence[int], num_signals: int
) -> Split:
    if isinstance(split, GridSplit):
        index = tuple(torch.arange(0, n, step) for n, step in zip(grid, split.stride, strict=True))
        return GridSplit(grid, index, split.stride)
    masks = torch.cat([split.train_mask(block).expand(num_signals, *grid)[signals] for block in blocks])
    points = [row.nonzero()[:, 0] for row in masks.flatten(1)]
    fewest = min(map(len, points))
    if fewest < 1:
        raise InputError("a window of the signals has no trained sample; set a larger --data.sampling.fraction")
    # windows that are fitted together need the same number of points: evenly spaced ones are left out of the others
    return PointSplit(grid, torch.stack([row[torch.arange(fewest) * len(row) // fewest] for row in points]))


@dataclass(frozen=True)
class Candidate:
    """An encoder with a number of features, an interpolation or an estimator; width and ridge are chosen from the data."""

    name: str
    interpolation: bool = False
    share: float | None = None
    """Number of features relative to ``num_features: auto``."""
    count: int | None = None
    """Number of features per axis, instead of ``share``. Both are ``None`` for encoders without ``num_features``."""
    width: str | None = None
    """The argument that sets the width, if there is one."""
    local: bool = False
    """Whether only a few neighbouring features are nonzero at a sample."""
    estimator: type[Estimator] | None = None
    """The class of an estimator, whose variant has the label ``name``."""

    @property
    def variant(self) -> Variant | None:
        """The variant of an estimator."""
        variants = () if self.estimator is None else self.estimator.variants
        return next((variant for variant in variants if variant.label == self.name), None)

    def features(self, signals: ScoredSignals, full: bool = False) -> tuple[int | None, ...]:
        """Features per axis, for the whole signals if ``full``; ``None`` for encoders without ``num_features``."""
        if self.share is None and self.count is None:
            return (None,) * len(signals.sizes)
        found = []
        for n, whole in signals.auto_features():
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
            auto = self.share == 1 and count == sizes[full]
            counted = {} if count is None else {"num_features": "auto" if auto else count}
            made.append({"name": self.name, **counted, **rest})
        return made[0] if all(entry == made[0] for entry in made) else made

    def label(self, signals: ScoredSignals) -> str:
        """Name and number of features for the whole signals, such as ``gau, K = 256``."""
        if self.interpolation:
            return f"{self.name} interpolation"
        counts = [str(count) for count in self.features(signals, full=True) if count is not None]
        shown = "x".join(counts if len(set(counts)) > 1 else counts[:1])
        return f"{self.name}, K = {shown}" if shown else self.name

    def check_memory(self, signals: ScoredSignals) -> None:
        """Raises InputError if weights and features need more than :data:`MAX_MEMORY_SHARE` of the free memory."""
        info, counts = signals.info, [count or 0 for count in self.features(signals)]
        weights = info.num_signals * info.channels * math.prod(counts)
        dense = 0 if self.local else max(n * k for n, k in zip(info.grid, counts, strict=True))
        needed, free = 16 * weights + 24 * dense, MAX_MEMORY_SHARE * free_memory()
        if needed > free:
            raise InputError(f"needs about {needed / 1e9:.1f} GB of memory; {free / 1e9:.1f} GB may be used")


def encoder_candidates(names: Sequence[str], counts: Sequence[int]) -> tuple[list[Candidate], dict[str, str]]:
    """The candidates in the order in which they are tried, and reasons for the encoders that have no exact fit.

    Args:
        names: Encoders to try, and labels of estimators such as ``Adaptive``, whose variants are all tried; empty: all
            registered encoders, and all estimators unless there are ``counts``.
        counts: Features per axis to try; those of :data:`FEATURE_SHARES` if empty.
    """
    skipped = {} if names else {**encoders.registry.broken(), **estimators.broken()}
    labelled = suggested_estimators()
    chosen = [label for label in labelled if label in names or not (names or counts)]
    found = [Candidate(variant.label, estimator=labelled[label]) for label in chosen for variant in labelled[label].variants]
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
        variants = [{"count": count} for count in counts] or FEATURE_SHARES
        if "num_features" not in encoders.registry.parameters(type(encoder)):
            variants = [{}]
        width = None if encoder.width is None else encoder.width.argument
        candidate = Candidate(name, width=width, local=_is_local(encoder))
        found += [replace(candidate, **variant) for variant in variants]
    return sorted(found, key=lambda c: (-(c.share or 1), c.count or 0)), skipped  # first every encoder once


def _is_local(encoder: encoders.Encoder) -> bool:
    try:
        return encoder.copy(num_features=1024).support is not None
    except (InputError, RuntimeError):
        return False


def reason(error: Exception) -> str:
    """The message of an error, in one line."""
    return f"{'' if isinstance(error, InputError) else f'failed: {type(error).__name__}: '}{paragraph(str(error), 500)}"


@dataclass(frozen=True)
class TrialScore:
    """The result of a trial on some signals: held-out scores, by the metric of the data, and seconds with all choices."""

    per_signal: tuple[float, ...]
    seconds: float
    params: int | None = None
    """Parameters of one signal."""
    stable_rank: float | None = None
    encoders: tuple[encoders.Encoder, ...] = ()
    """One per axis, with the chosen values."""
    ridge: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def mean(self) -> float:
        """Mean over signals; minus infinity if a prediction is not finite."""
        if any(math.isnan(value) or value == -math.inf for value in self.per_signal):
            return -math.inf
        return math.fsum(self.per_signal) / len(self.per_signal)


@dataclass
class Trial:
    """A candidate with its scores on windows and on all samples, as far as there are windows and there was time."""

    candidate: Candidate
    windows: TrialScore | None = None
    whole: TrialScore | None = None

    @property
    def best(self) -> TrialScore:
        found = self.whole or self.windows
        assert found is not None
        return found


@dataclass
class SearchResult:
    """The trials, best first, and the candidates that were skipped, with the reasons."""

    signals: ScoredSignals | None
    """All signals; ``None`` if they are streamed from their file."""
    windows: ScoredSignals | None
    """Windows of them; ``None`` if all samples are few."""
    trials: list[Trial] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> ScoredSignals:
        """The signals for which numbers of features are reported: all of them, else the windows."""
        shown = self.signals or self.windows
        assert shown is not None
        return shown

    def of(self, interpolation: bool) -> list[Trial]:
        return [trial for trial in self.trials if trial.candidate.interpolation == interpolation]

    def sort(self) -> None:
        """Sorts by score, best first; trials on all samples precede those on windows alone."""
        self.trials.sort(key=lambda trial: (trial.whole is None, -trial.best.mean))


def search(
    candidates: Sequence[Candidate],
    signals: ScoredSignals | None,
    windows: ScoredSignals | None,
    deadline: float,
    device: torch.device,
    progress: Callable[[str], None],
) -> SearchResult:
    """Scores interpolation, then candidates; starts no trial after the deadline but that of the first candidate.

    Args:
        candidates: Encoders.
        signals: All signals; ``None`` if they are streamed from their file.
        windows: Windows of them; ``None`` if all samples are few.
        deadline: In seconds of :func:`time.perf_counter`.
        device: Where to compute.
        progress: Called before each trial, with its description.
    """
    result = SearchResult(signals, windows)
    first, began = windows or result.shown, time.perf_counter()

    def attempt(candidate: Candidate, on: ScoredSignals) -> TrialScore | None:
        label = candidate.label(result.shown)
        progress(f"{label}, {on.text}")
        try:
            return score(candidate, on, device)
        except Exception as error:  # an encoder that fails does not end the search
            result.skipped[label] = reason(error)
        return None

    methods = []
    for name in baselines:
        candidate = Candidate(name, interpolation=True)
        try:
            if baselines.create(name).applies_to(first.info, first.dataset.split):
                methods.append(candidate)
        except Exception as error:  # a plug-in can raise any exception
            result.skipped[candidate.label(first)] = reason(error)
    until = began + (0.5 if windows is not None and signals is not None else 1.0) * (deadline - began)
    labels: set[str] = set()
    for candidate in [*methods, *candidates]:
        variant = candidate.variant
        if variant is not None and candidate.estimator is not None:
            try:
                if not candidate.estimator(**variant.arguments).applies_to(first.dataset.split):
                    continue
            except Exception as error:  # a plug-in can raise any exception
                result.skipped[candidate.name] = reason(error)
                continue
        label = candidate.label(result.shown)
        if label in labels:  # the limits on the number of features can make both shares equal
            continue
        labels.add(label)
        share = 0.3 if candidate.interpolation else 1.0
        is_first = [candidate] == list(candidates[:1])  # it is tried whatever the budget is
        if not is_first and time.perf_counter() > began + share * (until - began):
            result.skipped[candidate.label(result.shown)] = "no time left; give a larger --budget"
            continue
        found = attempt(candidate, first)
        if found is not None:
            result.trials.append(Trial(candidate, found) if first is windows else Trial(candidate, whole=found))
    result.sort()
    if windows is not None and signals is not None:
        ranked = result.of(interpolation=False)
        close = [trial for trial in ranked if trial.best.mean >= ranked[0].best.mean - MAX_GAP_DB]
        for trial in [*close[:1], *result.of(interpolation=True), *close[1:]]:
            if time.perf_counter() < deadline:
                trial.whole = attempt(trial.candidate, signals)
        result.sort()
    return result


def score(candidate: Candidate, signals: ScoredSignals, device: torch.device) -> TrialScore:
    """Fits a candidate to the trained samples and scores the held-out ones; warnings of the solver become notes."""
    candidate.check_memory(signals)
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        fit = _interpolate if candidate.interpolation else _estimate if candidate.variant is not None else _solve
        found, prediction = fit(candidate, signals, device)
    truth, metric = signals.dataset.evaluation_batch, totals(signals.info.metric, signals.info.num_signals)
    metric.update(prediction.cpu(), truth.values, truth.mask)
    notes = dict.fromkeys([*found.notes, *(WARNING_NOTES.get(type(entry.message).__name__, "") for entry in caught)])
    return replace(found, per_signal=tuple(metric.per_signal().tolist()), notes=tuple(filter(None, notes)))


def _interpolate(candidate: Candidate, signals: ScoredSignals, device: torch.device) -> tuple[TrialScore, Tensor]:
    baselines.create(candidate.name).applies_to(signals.info, signals.dataset.split)  # an error for too many samples
    began = time.perf_counter()
    prediction = interpolate(candidate.name, signals.dataset.train_batch, signals.dataset.axes)
    return TrialScore((), time.perf_counter() - began), prediction


def _solve(candidate: Candidate, signals: ScoredSignals, device: torch.device) -> tuple[TrialScore, Tensor]:
    """The exact fit, with width and ridge chosen as by ``pe-lightning fit``."""
    began = time.perf_counter()
    per = size_encoders(signals.dataset, per_axis(candidate.describe(signals), signals.info.num_axes))
    solution = LinearRidge(per).solve(signals.dataset, per, device)
    seconds = time.perf_counter() - began
    batch = to_device(signals.dataset.train_batch, device)
    encoding = Complex(solution.encoders, signals.info.num_axes, normalize=False)
    axes = batch.axes if isinstance(batch, GridBatch) else None
    rank = float(feature_rank(encoding, sample_coordinates(batch, 1024).to(torch.float32), axes).mean())
    found = TrialScore((), seconds, solution.weight[0].numel(), rank, solution.encoders, solution.ridge)
    return found, solution.predict([axis.to(device) for axis in signals.dataset.axes])


def _estimate(candidate: Candidate, signals: ScoredSignals, device: torch.device) -> tuple[TrialScore, Tensor]:
    """A variant of an estimator."""
    assert candidate.estimator is not None
    assert candidate.variant is not None
    estimator, began = candidate.estimator(**candidate.variant.arguments), time.perf_counter()
    # the spacing of the coordinates of a window is not one over its number of samples
    grid = tuple(round(1 / float(x[1] - x[0])) if len(x) > 1 else 1 for x in signals.dataset.axes)
    field = estimator.fit(replace(signals.train, info=replace(signals.info, grid=grid)), device)
    found = TrialScore((), time.perf_counter() - began, field.num_params, notes=field.notes)
    return found, field.grid(signals.dataset.axes)
