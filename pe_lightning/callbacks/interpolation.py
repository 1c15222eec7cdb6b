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
from pe_lightning.baselines import interpolate
from pe_lightning.data.batches import GridBatch
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.errors import InputError, last_resort
from pe_lightning.metrics import create, metrics, summary

__all__ = ["DELAUNAY_LIMIT", "advice", "score_baselines"]

Array = npt.NDArray[np.float32]

DELAUNAY_LIMIT = 1 << 21
"""Points of all signals together up to which the Delaunay baseline is computed: a minute on two cores."""

Baselines = tuple[dict[str, dict[str, Any]], "tuple[str, Array] | None"]
_BASELINES: WeakKeyDictionary[SignalDataModule, dict[str, Baselines]] = WeakKeyDictionary()


def score_baselines(data: SignalDataModule | None, metric: str = "psnr") -> Baselines:
    """What interpolation of the same training samples reaches on the same held-out samples.

    Computed once per DataModule: the fits of a sweep share one. Nothing without a DataModule of ours, where nothing is held
    out, or for a metric that is not one of :data:`pe_lightning.metrics.metrics`.

    Returns:
        The scores per method; and the name of the best one with its prediction ``(S, *grid, C)``.
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
    on_grid = isinstance(train, GridBatch)
    found: dict[str, dict[str, Any]] = {}
    best: tuple[str, Array] | None = None
    for name in ("nearest", "linear", "bicubic", "spline") if on_grid else ("nearest", "delaunay"):
        if name == "delaunay" and (data.info.num_axes > 2 or train.values[..., 0].numel() > DELAUNAY_LIMIT):
            reason = f"left out: triangulating more than {DELAUNAY_LIMIT} points, or in more than 2 axes, takes minutes"
            found[name] = {key: None, f"{key}_reason": reason}
            continue
        scores = create(metric, data.info.num_signals, sync_on_compute=False)  # the other processes are not here
        try:
            prediction = interpolate(name, train, evaluation.axes)
            scores.update(prediction, evaluation.values, evaluation.mask)
        except Exception as error:  # a fit that has succeeded does not end with what it is compared with
            reason = str(error) if isinstance(error, InputError) else last_resort(error)[0]
            found[name] = {key: None, f"{key}_reason": f"left out: {reason}"}
            continue
        found[name] = summary(scores.per_signal(), key, "nothing is held out")
        mean = found[name][key]
        if mean is not None and (best is None or sign * mean > sign * found[best[0]][key]):
            best = name, prediction.float().numpy()
    known[metric] = found, best
    return known[metric]


def advice(report: Mapping[str, Any], folder: Path) -> str:
    """A line where a result is below simple interpolation, with what to try; else nothing.

    Args:
        report: The content of ``metrics.json``.
        folder: The run directory.
    """
    test, baselines = f"test/{report['metric']}", report["baselines"]
    if report[test] is None or not baselines:  # which are there for registered metrics only
        return ""
    metric = metrics.get(report["metric"])
    sign = 1 if metric.higher_is_better else -1
    rivals = {name: baselines[name][test] for name in ("nearest", "linear", "delaunay") if name in baselines}
    ahead = {name: sign * (score - report[test]) for name, score in rivals.items() if score is not None}
    name = next((name for name in ahead if ahead[name] > 0), None)
    if name is None:
        return ""
    exact = "the exact fit (--model.warm_start true --trainer.max_steps 0), or "
    trained = report.get("solve_seconds") is None and report["model"] == "ComplexLinear"
    config = folder / runs.CONFIG
    other = f"pe-lightning suggest --config {shlex.quote(str(config))}" if config.is_file() else "another encoder or width"
    return f"{f'{ahead[name]:.2f} {metric.unit}'.rstrip()} below {name} interpolation. Try {exact * trained}{other}."
