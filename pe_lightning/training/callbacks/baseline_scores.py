"""Scores of interpolation of the trained samples, beside the scores of a fit; the cache has them for later runs."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from pe_lightning.errors import InputError, last_resort
from pe_lightning.estimators.folds import interpolated_folds
from pe_lightning.evaluation.baselines import BaselineChoice, baselines, interpolate, refuse_slow
from pe_lightning.evaluation.metrics import create, metrics
from pe_lightning.evaluation.scores import summary
from pe_lightning.signals.batches import GridBatch
from pe_lightning.signals.cache import CacheError, SignalCache
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import sha256_of
from pe_lightning.signals.raw import RawSignals, ValueRange
from pe_lightning.signals.sources.base import Source
from pe_lightning.training.datamodule import SignalDataModule

Array = npt.NDArray[np.float32]
BaselineScores = tuple[dict[str, dict[str, Any]], tuple[str, Array] | None]
_KNOWN: WeakKeyDictionary[SignalDataModule, dict[tuple[str, str], BaselineScores]] = WeakKeyDictionary()
NOTHING = "nothing is held out"


def score_baselines(data: SignalDataModule | None, metric: str = "psnr", choice: BaselineChoice = "fast") -> BaselineScores:
    """Scores by name of the baselines that apply, on the held-out samples; and the best one's name and prediction.

    Computed once per DataModule, as the fits of a sweep share one, and once per signals, samples and metric with the cache
    of the DataModule's ``storage``; of folds once per DataModule. Empty without a DataModule of this package, if nothing is
    held out, or for a metric that is not registered.
    """
    if data is None or choice == "none":
        return {}, None
    known = _KNOWN.setdefault(data, {})
    if (metric, choice) not in known:
        in_folds = data.folds is not None and metric == data.info.metric
        known[metric, choice] = (_in_folds(data, choice), None) if in_folds else _on_held_out(data, metric, choice)
    return known[metric, choice]


def _in_folds(data: SignalDataModule, choice: BaselineChoice) -> dict[str, dict[str, Any]]:
    assert data.folds is not None
    scores, left_out = interpolated_folds(data.signals, data.folds, fast=choice == "fast")
    key = f"test/{data.info.metric}"
    found = {name: summary(score.values, key, NOTHING) for name, score in scores.items()}
    return found | {name: {key: None, f"{key}_reason": reason} for name, reason in left_out.items()}


def _on_held_out(data: SignalDataModule, metric: str, choice: BaselineChoice) -> BaselineScores:
    if data.signals.eval_mask == "none" or metric not in metrics:
        return {}, None
    if data.signals.streamed:
        key = f"test/{metric}"
        return {"linear": {key: None, f"{key}_reason": "interpolation needs the signals in memory"}}, None
    source = _BestInterpolation(data, metric, choice)
    if data.storage.cache == "off":
        return source.scores()
    try:
        cache = SignalCache(data.storage.cache_dir)
        key = cache.key(source)
        raw = cache.find(key, source) or cache.store(key, source)
        if source.computed is None:
            stored = json.loads(raw.note)
            return stored["scores"], (stored["best"], raw.read(tuple(slice(0, n) for n in raw.grid)))
    except InputError as error:
        if source.computed is None or source.settled:
            rank_zero_info(f"The scores of interpolation are not cached: {error}")
    return source.computed or source.scores()


class _BestInterpolation(Source):
    """The best interpolation of signals, as signals of the cache, and the scores of all baselines, as their note.

    Attributes:
        computed: The scores and the best prediction, if this process has computed them.
        settled: Whether another run can take the scores: there are some, and no baseline failed unexpectedly.
    """

    def __init__(self, data: SignalDataModule, metric: str, choice: BaselineChoice) -> None:
        self.data, self.metric_name, self.choice = data, metric, choice
        self.computed: BaselineScores | None = None
        self.settled = True

    def describe(self) -> dict[str, Any]:
        """What the scores depend on, besides the version: signals, samples, metric, and the code of the baselines."""
        places = hashlib.sha256(np.packbits(self.data.signals.split.test_mask(self.data.signals.eval_mask)).data)
        for axis in self.data.signals.axes:
            places.update(np.ascontiguousarray(axis).data.cast("B"))
        modules = {name: sys.modules[baselines.get(name).__module__] for name in baselines}
        files = {name: getattr(module, "__file__", None) for name, module in modules.items()}
        return {
            "fingerprint": self.data.fingerprint,
            "places": places.hexdigest(),
            "metric": self.metric_name,
            "choice": self.choice,
            "baselines": {name: sha256_of(Path(file)) for name, file in files.items() if file is not None},
        }

    def read(self) -> RawSignals:
        scores, best = self.computed = self.scores()
        self.settled &= best is not None
        if best is None or not self.settled:
            raise CacheError("no baseline has a score, or one failed")
        names = [f"{name}, {best[0]} interpolation" for name in self.data.info.names]
        raw = RawSignals.in_memory(best[1], names, ValueRange("float32"))
        return replace(raw, note=json.dumps({"scores": scores, "best": best[0]}))

    def scores(self) -> BaselineScores:
        data, metric, key = self.data, self.metric_name, f"test/{self.metric_name}"
        sign = 1 if metrics.get(metric).higher_is_better else -1
        train, evaluation = data.train_batch(), data.evaluation_batch()
        found: dict[str, dict[str, Any]] = {}
        best: tuple[str, Array] | None = None
        for name in baselines:
            scores = create(metric, data.info.num_signals, sync_on_compute=False)  # only rank 0 computes baselines
            try:
                if not baselines.create(name).applies_to(data.info, data.signals.split):
                    continue
                if self.choice == "fast":
                    refuse_slow(name, data.info, data.signals.split)
                wanted = evaluation.axes if isinstance(evaluation, GridBatch) else evaluation.coords[0]
                prediction = interpolate(name, train, wanted)
                scores.update(prediction, evaluation.values, evaluation.mask)
            except Exception as error:  # an error in a baseline must not end a fit that has succeeded
                self.settled &= isinstance(error, InputError)
                reason = str(error) if isinstance(error, InputError) else last_resort(error)[0]
                found[name] = {key: None, f"{key}_reason": f"left out: {reason}"}
                continue
            found[name] = summary(scores.per_signal(), key, NOTHING)
            mean = found[name][key]
            if mean is not None and (best is None or sign * mean > sign * found[best[0]][key]):
                best = name, prediction.float().numpy()
        return found, best
