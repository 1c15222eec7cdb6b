"""The content of ``metrics.json``, and the table of it that ends a run."""

from __future__ import annotations

import copy
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import lightning
import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from rich.table import Table
from skimage.metrics import structural_similarity
from torch import Tensor

import pe_lightning
from pe_lightning import runs
from pe_lightning.baselines import interpolate
from pe_lightning.callbacks.context import Describes, metric_of
from pe_lightning.data.batches import GridBatch
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.errors import InputError
from pe_lightning.metrics import create, metrics, summary, unit_of

__all__ = ["describe", "print_scores", "run_name", "score", "score_baselines", "versions"]

Array = npt.NDArray[np.float32]

SSIM_WINDOW = 7
"""Side of scikit-image's default window; smaller pictures have no SSIM."""
DELAUNAY_LIMIT = 1 << 21
"""Points of all signals together up to which the Delaunay baseline is computed: a minute on two cores."""
MOST_ROWS = 24
"""Of more signals than this the table has the mean only; metrics.json has them all."""


def run_name(module: Describes) -> str:
    """``<data>-<model>-<encoder>``."""
    described = _described(module)
    signals = described["signals"]
    data = signals[0] if len(signals) == 1 else f"{len(signals)}-signals"
    return "-".join(filter(None, [data, described["model"], _encoders(described)]))


def _encoders(described: Mapping[str, Any]) -> str:
    entries = described["encoder"] if isinstance(described["encoder"], list) else [described["encoder"]]
    return "+".join(dict.fromkeys(entry["name"].rpartition(".")[2] for entry in entries if entry))


def _described(module: Describes) -> dict[str, Any]:
    """A module's description; one that names no signals has one, called ``data``."""
    return {"signals": ["data"], "solution": None, **module.describe()}


def describe(module: Describes, data: SignalDataModule | None) -> dict[str, Any]:
    """What was fitted with what, as plain values."""
    about = data.describe() if data is not None else {}
    described = _described(module)
    return {
        **described,
        "num_signals": len(described["signals"]),
        "protocol": about.get("protocol"),
        "sampling": about.get("sampling"),
        "data_fingerprint": about.get("fingerprint"),
        "paths": about.get("paths"),
    }


def score(module: Describes, described: Mapping[str, Any], tested: tuple[Array, Array] | None) -> dict[str, Any]:
    """The scores of a tested module, per signal and on average, as plain values.

    Args:
        module: A module whose test has ended.
        described: What :func:`describe` returned.
        tested: Prediction and truth, ``(S, *grid, C)`` each; ``None`` if they are not in memory.

    Raises:
        InputError: If the module has no scores, or not one per signal.
    """
    metric, scores, signals = metric_of(module), getattr(module, "scores", {}), len(described["signals"])
    name = type(module).__name__
    if f"test/{metric}" not in scores:
        raise InputError(f"{name}: a test must leave scores['test/{metric}'], one value per signal; got {list(scores)}")
    found: dict[str, Any] = {"schema": 1, "metric": metric}
    for key, per_signal in scores.items():
        if per_signal.shape != (signals,):
            shape = tuple(per_signal.shape)
            raise InputError(f"{name}: scores[{key!r}] has the shape {shape}; describe()['signals'] names {signals}")
        nothing = "no sample was trained on" if key.startswith("train/") else "nothing is held out (protocol none)"
        found |= summary(per_signal, key, nothing)
    if "grid" in described:
        found |= summary(*_ssim(tested, signals))
    return found


def _ssim(tested: tuple[Array, Array] | None, signals: int) -> tuple[Tensor, str, str]:
    """SSIM of whole pictures, predictions clamped to [0, 1] as they are shown; NaN and a reason where there is none."""
    scores, why_not = torch.full((signals,), torch.nan, dtype=torch.float64), "a prediction is not finite"
    if tested is None:
        why_not = "SSIM needs the signals in memory"
    elif tested[1].ndim != 4:
        why_not = f"SSIM is for pictures, of two axes; these signals have {tested[1].ndim - 2}"
    elif min(tested[1].shape[1:3]) < SSIM_WINDOW:
        why_not = f"SSIM needs pictures of at least {SSIM_WINDOW} x {SSIM_WINDOW} samples"
    else:
        for index, (prediction, truth) in enumerate(zip(*tested, strict=True)):
            if np.isfinite(prediction).all():
                clamped = np.clip(prediction, 0, 1)
                scores[index] = float(structural_similarity(truth, clamped, channel_axis=-1, data_range=1.0))  # type: ignore[no-untyped-call]
    return scores, "test/ssim", why_not


def score_baselines(data: SignalDataModule | None, metric: str = "psnr") -> dict[str, dict[str, Any]]:
    """What interpolation of the same training samples reaches on the same held-out samples, per method.

    Computed once per DataModule: the fits of a sweep share one. Nothing without a DataModule of ours, where nothing is held
    out, or for a metric that is not one of :data:`pe_lightning.metrics.metrics`.
    """
    if data is None or data.effective_protocol == "none" or metric not in metrics:
        return {}
    known = _BASELINES.setdefault(data, {})
    if metric not in known:
        known[metric] = _interpolations(data, metric)
    return copy.deepcopy(known[metric])


_BASELINES: WeakKeyDictionary[SignalDataModule, dict[str, dict[str, dict[str, Any]]]] = WeakKeyDictionary()


def _interpolations(data: SignalDataModule, metric: str) -> dict[str, dict[str, Any]]:
    key = f"test/{metric}"
    if data.streamed:
        return {"linear": {key: None, f"{key}_reason": "interpolation needs the signals in memory"}}
    train, evaluation = data.train_batch(), data.evaluation_batch()
    on_grid = isinstance(train, GridBatch)
    found: dict[str, dict[str, Any]] = {}
    for name in ("nearest", "linear", "bicubic", "spline") if on_grid else ("nearest", "delaunay"):
        if name == "delaunay" and (data.info.num_axes > 2 or train.values[..., 0].numel() > DELAUNAY_LIMIT):
            reason = f"left out: triangulating more than {DELAUNAY_LIMIT} points, or in more than 2 axes, takes minutes"
            found[name] = {key: None, f"{key}_reason": reason}
            continue
        scores = create(metric, data.info.num_signals, sync_on_compute=False)  # the other processes are not here
        scores.update(interpolate(name, train, evaluation.axes), evaluation.values, evaluation.mask)
        found[name] = summary(scores.per_signal(), key, "nothing is held out")
    return found


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    return {
        "pe_lightning": pe_lightning.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning": lightning.__version__,
        "numpy": np.__version__,
    }


def print_scores(report: Mapping[str, Any], run_dir: Path) -> None:
    """Prints the scores per signal beside interpolation, seconds and where the files are.

    Args:
        report: The content of ``metrics.json``.
        run_dir: The run directory.
    """
    console, metric = Console(), report["metric"]
    test, unit, word = f"test/{metric}", unit_of(metric), metric.upper() if metric in metrics else metric
    titled = {test: f"test {word} ({report['protocol']})", f"train/{metric}": f"train {word}", "test/ssim": "SSIM"}
    shown = [(key, "" if key == "test/ssim" else unit) for key in titled if key in report]
    table = Table(title=f"{report['model']}, {_encoders(report)}, {report['num_params']:,} parameters per signal")
    table.add_column("signal")
    for key, _ in shown:
        table.add_column(titled[key], justify="right")
    if report["num_signals"] <= MOST_ROWS:
        for index, name in enumerate(report["signals"]):
            table.add_row(name, *[_number(report[f"{key}_per_signal"][index], unit) for key, unit in shown])
    if report["num_signals"] > 1:
        table.add_section()
        table.add_row("mean ± std", *[_mean(report, key, unit) for key, unit in shown])
    baselines = {name: row for name, row in report["baselines"].items() if row[test] is not None}
    if baselines:
        table.add_section()
        for name, row in sorted(baselines.items(), key=lambda item: item[1][test]):
            table.add_row(f"{name} interpolation", _mean(row, test, unit), style="dim")
    console.print(table)
    for key, _ in shown:
        if report.get(f"{key}_reason"):
            console.print(f"{key}: {report[f'{key}_reason']}", highlight=False)
    if report["fit_seconds"] is not None:
        console.print(f"{report['steps']} steps in {report['fit_seconds']:.1f} s", highlight=False)
    # printed without wrapping, so that the path can be copied
    if (run_dir / runs.RECONSTRUCTIONS).is_dir():
        print(f"reconstructions: {run_dir / runs.RECONSTRUCTIONS}")
    print(f"metrics:         {run_dir / runs.METRICS}")


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.{2 if unit else 4}f} {unit}".rstrip()


def _mean(entry: Mapping[str, Any], key: str, unit: str) -> str:
    mean, digits = entry[key], 2 if unit else 4
    if mean is None or len(entry[f"{key}_per_signal"]) == 1:
        return _number(mean, unit)
    return f"{mean:.{digits}f} ± {entry[f'{key}_std']:.{digits}f} {unit}".rstrip()
