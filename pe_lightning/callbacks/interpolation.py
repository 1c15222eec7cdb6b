"""Comparison of a fit with interpolation of the same samples: the scores of the baselines, and advice."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from pe_lightning import runs
from pe_lightning.baselines import baselines, interpolate
from pe_lightning.data.batches import GridBatch
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.errors import InputError, last_resort
from pe_lightning.metrics import create, metrics, summary

__all__ = ["advice", "score_baselines"]

Array = npt.NDArray[np.float32]

TIE_DB = 0.05
"""Differences below this, in dB, are not reported."""
TIE = 0.005
"""Differences below this are not reported, for metrics without a unit."""

Baselines = tuple[dict[str, dict[str, Any]], "tuple[str, Array] | None"]
_BASELINES: WeakKeyDictionary[SignalDataModule, dict[str, Baselines]] = WeakKeyDictionary()


def score_baselines(data: SignalDataModule | None, metric: str = "psnr") -> Baselines:
    """Scores of all baselines that apply, on the held-out samples.

    Computed once per DataModule and metric: the fits of a sweep share a DataModule. Empty without a DataModule of this
    package, if nothing is held out, or if ``metric`` is not registered in :data:`pe_lightning.metrics.metrics`.

    Returns:
        The scores per baseline; and the name of the best one with its prediction ``(S, *grid, C)``.
    """
    if data is None or data.effective_protocol == "none" or metric not in metrics:
        return {}, None
    key, sign = f"test/{metric}", 1 if metrics.get(metric).higher_is_better else -1
    if data.streamed:
        return {"linear": {key: None, f"{key}_reason": "interpolation needs the signals in memory"}}, None
    known = _BASELINES.setdefault(data, {})
    if metric in known:
        return known[metric]
    train, evaluation = data.train_batch(), data.evaluation_batch()
    found: dict[str, dict[str, Any]] = {}
    best: tuple[str, Array] | None = None
    for name in baselines:
        scores = create(metric, data.info.num_signals, sync_on_compute=False)  # only rank 0 computes baselines
        try:
            if not baselines.create(name).applies_to(data.info, data.split):
                continue
            wanted = evaluation.axes if isinstance(evaluation, GridBatch) else evaluation.coords[0]
            prediction = interpolate(name, train, wanted)
            scores.update(prediction, evaluation.values, evaluation.mask)
        except Exception as error:  # an error in a baseline must not end a fit that has succeeded
            reason = str(error) if isinstance(error, InputError) else last_resort(error)[0]
            found[name] = {key: None, f"{key}_reason": f"left out: {reason}"}
            continue
        found[name] = summary(scores.per_signal(), key, "nothing is held out")
        mean = found[name][key]
        if mean is not None and (best is None or sign * mean > sign * found[best[0]][key]):
            best = name, prediction.float().numpy()
    known[metric] = found, best
    return known[metric]


def advice(report: Mapping[str, Any], folder: Path, can_solve_exactly: bool = False) -> str:
    """A message with what to try if the result is below the best baseline, else an empty string.

    Args:
        report: The content of ``metrics.json``.
        folder: The run directory.
        can_solve_exactly: Whether the model has an exact fit.
    """
    test = f"test/{report['metric']}"
    scores = {name: row[test] for name, row in report["baselines"].items() if row[test] is not None}
    if report[test] is None or not scores:  # there are baselines for registered metrics only
        return ""
    metric = metrics.get(report["metric"])
    sign = 1 if metric.higher_is_better else -1
    name = max(scores, key=lambda baseline: sign * scores[baseline])
    gap = sign * (scores[name] - report[test])
    if gap < (TIE_DB if metric.unit == "dB" else TIE):
        return ""
    exact = "the exact fit (--model.warm_start true --trainer.max_steps 0), or "
    is_trained = can_solve_exactly and report.get("solve_seconds") is None
    config = folder / runs.CONFIG
    other = f"pe-lightning suggest --config {shlex.quote(str(config))}" if config.is_file() else "another encoder or width"
    return f"{f'{gap:.2f} {metric.unit}'.rstrip()} below {name} interpolation. Try {exact * is_trained}{other}."
