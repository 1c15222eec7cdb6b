"""A run in plain values, for ``metrics.json``: its description, and its scores beside interpolation of the same samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch import Trainer
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.evaluation.scores import summary
from pe_lightning.results.runs import SCHEMA, flatten
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.sources.paths import SourceFile, numbered
from pe_lightning.training.checkpoints import callbacks_of
from pe_lightning.training.datamodule import SignalDataModule

Array = npt.NDArray[np.float32]


@runtime_checkable
class Describes(Protocol):
    """A LightningModule that can be recorded.

    After a test it also has ``scores``, values per signal ``(S,)`` by name, such as ``test/psnr``. If it has ``info``, a
    ``test_step`` that returns a dictionary with ``prediction`` gives the run's reconstructions.
    """

    monitor: str
    """Logged value by which fits are compared: ``val/<metric>``."""
    monitor_mode: Literal["max", "min"]

    def describe(self) -> dict[str, Any]:
        """Plain values for ``metrics.json``: at least ``model``, ``num_params`` and ``encoder`` (with ``name``, or None).

        ``data_name`` names run directories. Without a DataModule of signals, ``data_fingerprint``, ``protocol`` and
        ``sampling`` say which runs can be compared.
        """
        ...


def metric_of(module: Describes) -> str:
    """The metric by which fits of a module are compared."""
    return module.monitor.rpartition("/")[2]


def check_describes(module: object) -> Describes:
    """The module, if it can be recorded."""
    if not isinstance(module, Describes):
        name = type(module).__name__
        raise InputError(
            f"{name} is a LightningModule with steps of its own, which any Trainer of Lightning fits; for RunRecorder, "
            f"and so for pe-lightning fit, which gives it the batches of --data, {name} needs describe() -> dict "
            "with 'model', 'num_params' and 'encoder', the attributes monitor ('val/<metric>') and monitor_mode ('max' "
            "or 'min'), and after a test scores ('test/<metric>' -> values per signal)"
        )
    return module


def goals_of(module: Describes) -> dict[str, str]:
    """``max`` or ``min`` for each logged value; of a module that does not declare all, the values that all modules log."""
    usual = {f"train/{metric_of(module)}": module.monitor_mode, "train/loss": "min"}
    return getattr(module, "logged_values", None) or {module.monitor: module.monitor_mode, **usual}


def reports(trainer: Trainer) -> dict[str, Any]:
    """Entries that callbacks with a method ``report()`` add to ``metrics.json``: plain values by name, none before a fit."""
    found: dict[str, Any] = {}
    for callback in callbacks_of(trainer):
        if hasattr(callback, "report"):
            found |= callback.report()
    return found


def encoder_names(described: Mapping[str, Any]) -> str:
    """The distinct encoders of a description, joined by ``+``; empty for none."""
    entries = described["encoder"] if isinstance(described["encoder"], list) else [described["encoder"]]
    return "+".join(dict.fromkeys(entry["name"].rpartition(".")[2] for entry in entries if entry))


def run_name(described: Mapping[str, Any], data: SignalDataModule | None) -> str:
    """Data, model, network and encoder, joined by dashes: ``camera-SimpleMLP-sine-identity``."""
    first = described.get("data_name") or data_name(described.get("signals", ["data"]), data)
    network = (described.get("network") or {}).get("name", "")
    return "-".join(filter(None, [first, described["model"], network, encoder_names(described)]))


def data_name(signals: Sequence[str], data: SignalDataModule | None) -> str:
    """The name of the file, array or folder that holds all signals, or of the only signal, else their number."""
    paths = [] if data is None else data.source.describe().get("paths") or []
    if len(signals) > 1 and len(paths) == 1:
        stem, first = SourceFile(Path(paths[0]), paths[0]).stem, signals[0].removesuffix("-0")
        return first if first.startswith(stem) and tuple(signals) == numbered(first, len(signals)) else stem
    return signals[0] if len(signals) == 1 else f"{len(signals)}-signals"


def describe(module: Describes, data: SignalDataModule | None) -> dict[str, Any]:
    """Data and module as plain values; a module that names no signals has one, called ``data``."""
    about = data.describe() if data is not None else {}
    known = {key: about.get(key) for key in ("protocol", "sampling", "paths")}
    known["data_fingerprint"] = about.get("fingerprint")
    known |= {key: about[key] for key in ("num_missing", "num_validation") if key in about}
    described = {"signals": ["data"], "solution": None, **known, **module.describe()}
    return {**described, "num_signals": len(described["signals"])}


COMPARED = ("solver", "effective_rank", "relative_residual", "excess_error", "optimality", "converged")
"""Values of an exact solution that loggers get, besides ``ridge`` and ``solve_seconds``; ``metrics.json`` has all."""


def settings(described: Mapping[str, Any]) -> dict[str, Any]:
    """A description for loggers: nested, as W&B's filters and groups miss keys with dots; of the solution a few values."""
    solution = described["solution"] or {}
    few = {key: solution[key] for key in COMPARED if key in solution}
    if choice := solution.get("choice"):
        few |= {"choice": choice["rule"], "width_factor": choice["factor"]}
    found: dict[str, Any] = {}
    for key, value in flatten({**described, "solution": few}, entries=True):
        *path, name = key.split(".")
        reduce(lambda tree, part: tree.setdefault(part, {}), path, found)[name] = value
    return found


def score(module: Describes, described: Mapping[str, Any]) -> dict[str, Any]:
    """The scores of a tested module, per signal and on average, as plain values."""
    metric, scores, signals = metric_of(module), getattr(module, "scores", {}), len(described["signals"])
    shapes = {key: tuple(values.shape) for key, values in scores.items()}
    if f"test/{metric}" not in shapes or set(shapes.values()) != {(signals,)}:
        raise InputError(
            f"{type(module).__name__}: a test must leave scores['test/{metric}'], and every score has the shape "
            f"({signals},), as describe()['signals'] names {signals}; got {shapes}"
        )
    found: dict[str, Any] = {"schema": SCHEMA, "metric": metric}
    for key, per_signal in scores.items():
        nothing = "no sample was trained on" if key.startswith("train/") else "nothing is held out (protocol none)"
        found |= summary(per_signal, key, nothing)
    return found


def rmse_in_units(scores: Mapping[str, Tensor], info: SignalInfo) -> dict[str, Any]:
    """The root mean squared error of held-out samples in the units of the source, as plain values."""
    psnr = scores["test/psnr"].double()
    ranges = [info.scaling.limits(signal) for signal in range(info.num_signals)]
    extents = torch.tensor([high - low for low, high in ranges], dtype=torch.float64)
    return summary(extents * 10 ** (-psnr / 20), "test/rmse", "nothing is held out (protocol none)")
