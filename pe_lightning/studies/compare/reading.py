"""Finds, reads and checks run directories; values at dotted keys."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pe_lightning.errors import paragraph, printable, show_metric
from pe_lightning.results import runs
from pe_lightning.results.config_files import read_config
from pe_lightning.results.metrics_file import read_metrics
from pe_lightning.signals.files import real_path

NOT_SEARCHED = frozenset({runs.CHECKPOINTS, runs.RECONSTRUCTIONS, "logs", "wandb"})
"""Folders of a run directory that cannot contain runs."""
WITHOUT_EFFECT = ("trainer.logger", "trainer.enable_", "trainer.default_root_dir", "trainer.log_every_n_steps")
"""Settings that change no weights."""
TRAINING_OPTIONS = ("data.batching", "data.validation")
"""Settings of the data that change how a model is trained, and not what it is trained on."""
MISSING = "–"
"""Text of a missing value."""


class Metric(NamedTuple):
    """The metric of a run: its name in the keys of ``metrics.json``, its unit and its direction."""

    name: str
    unit: str
    higher_is_better: bool

    @classmethod
    def of(cls, name: str) -> Metric:
        """The metric with this name; raises InputError if it is not registered."""
        if name == "psnr":  # known without importing torch
            return cls("psnr", "dB", True)
        from pe_lightning.evaluation.metrics import metrics as registered

        found = registered.get(name)
        return cls(name, found.unit, found.higher_is_better)

    @property
    def title(self) -> str:
        return f"{show_metric(self.name)} ({self.unit})" if self.unit else show_metric(self.name)

    def text(self, value: float, sign: str = "", unit: bool = False) -> str:
        """A value as text, with or without the unit."""
        text = format(value, f"{sign}.2f" if self.unit == "dB" else f"{sign}.4f")
        return MISSING if math.isnan(value) else f"{text} {self.unit if unit else ''}".rstrip()


@dataclass(frozen=True, eq=False)
class Run:
    """A run directory.

    Args:
        path: The directory, resolved.
        label: End of the path by which the run differs from others: ``3-signals-ComplexLinear-gau/2``.
        metrics: The content of ``metrics.json``, checked.
        config: The content of ``config.yaml``; ``None`` if it cannot be read.
        varied: The settings that a sweep varied, as typed.
    """

    path: Path
    label: str
    metrics: dict[str, Any]
    config: dict[str, Any] | None = None
    varied: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def metric(self) -> Metric:
        return Metric.of(self.metrics["metric"])

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(self.metrics.get("grid") or ())

    @cached_property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals, in the order of all lists in ``metrics``; equal names are numbered: ``x``, ``x (2)``."""
        seen: Counter[str] = Counter()
        found = []
        for name in map(printable, self.metrics["signals"]):
            seen[name] += 1
            found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
        return tuple(found)

    @cached_property
    def test(self) -> dict[str, float]:
        return self.scores(f"test/{self.metric.name}")

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings of the configuration that the result depends on, with the value that the fit chose for ``auto``."""
        found = {}
        for key, value in runs.result_settings(self.config or {}).items():
            if value in (None, "auto") and key.startswith(("model.encoder.", "model.ridge")):
                resolved = look_up(self.metrics, key.removeprefix("model."))
                each = resolved if isinstance(resolved, list) else [resolved]  # one per axis
                if not {None, MISSING} & {*each}:
                    value = as_text([f"{entry:.4g}" if isinstance(entry, float) else entry for entry in each])
            if key.endswith(".class_path"):
                key, value = key.removesuffix(".class_path"), str(value).rpartition(".")[2]
            found["model.encoder.name" if key == "model.encoder" and isinstance(value, str) else key] = value
        return found

    @property
    def seed(self) -> int | None:
        """The seed of the fit; ``None`` if it is not recorded."""
        return seed if isinstance(seed := self.metrics.get("seed"), int) else None

    @property
    def described(self) -> dict[str, Any]:
        """The description of the fit in ``metrics.json``, by dotted keys."""
        names = ("model", "encoding", "encoder", "network", "optimizer", "steps", "seed")
        return dict(runs.flatten({name: self.metrics.get(name) for name in names}))

    @property
    def conditions(self) -> dict[str, Any]:
        """The settings that decide the result besides data and sampling."""
        ignored = (*WITHOUT_EFFECT, "data")
        return {
            key: value
            for key, value in self.settings.items()
            if not key.startswith(ignored) or key.startswith(TRAINING_OPTIONS)
        }

    def metrics_key(self, key: str) -> str:
        """The key in ``metrics.json`` of a setting, such as ``encoder.name``; the setting itself if it has none."""
        short = "seed" if key == "seed_everything" else key.removeprefix("model.")
        return key if look_up(self.metrics, short) is MISSING else short

    def value(self, key: str) -> Any:
        """The value of a setting that a sweep varied, at a dotted key of ``metrics.json``, or of a setting of the run."""
        if key in self.varied:
            return self.varied[key]
        found = look_up(self.metrics, key)
        return found if found is not MISSING else self.settings.get(key, MISSING)

    def scores(self, key: str) -> dict[str, float]:
        """A metric per signal; NaN where it is not finite or was not recorded."""
        values = self.metrics.get(f"{key}_per_signal") or [None] * len(self.signals)
        return {s: math.nan if value is None else float(value) for s, value in zip(self.signals, values, strict=True)}


class Found(NamedTuple):
    """The result of a search: the runs, and one line per directory that could not be read."""

    runs: tuple[Run, ...]
    problems: tuple[str, ...]


def find_runs(paths: Sequence[str | Path]) -> Found:
    """Reads the run directories at or below the given paths, each once, and does not search below a ``metrics.json``.

    A run without a ``metrics.json``, which was stopped before its end, is listed as a problem.
    """
    problems: list[str] = []
    folders: dict[Path, None] = {}
    for given in paths:
        candidates = dict.fromkeys(_candidates(real_path(given)))
        if not Path(given).is_dir():
            problems.append(f"{printable(given)} is not a directory")
        elif not candidates:
            problems.append(f"{printable(given)} holds no run: no {runs.METRICS} in it or below it")
        folders |= candidates
    metrics, configs = {}, {}
    for folder in folders:
        try:
            metrics[folder] = _read(folder)
            if (folder / runs.CONFIG).is_file():
                configs[folder] = read_config(folder / runs.CONFIG)
        except ValueError as error:
            ending = "; compared without its configuration" if folder in metrics else ""
            problems.append(f"{printable(folder)}: {error}{ending}")
    sweeps: dict[Path, dict[str, dict[str, str]]] = {}
    for folder in dict.fromkeys(folder.parent for folder in metrics):
        try:
            sweeps[folder] = _varied(folder)
        except (OSError, ValueError, LookupError, TypeError) as error:
            sweeps[folder] = {}
            problems.append(f"{printable(folder / runs.SWEEP)} cannot be read as the record of a sweep: {error!r}")
    found = [
        Run(
            folder, _label(folder, metrics), metrics[folder], configs.get(folder), sweeps[folder.parent].get(folder.name, {})
        )
        for folder in metrics
    ]
    return Found(tuple(found), tuple(problems))


def _varied(folder: Path) -> dict[str, dict[str, str]]:
    """The varied settings of the cells of a sweep by name, from its record; empty for other folders."""
    if not (folder / runs.SWEEP).is_file():
        return {}
    cells = json.loads((folder / runs.SWEEP).read_text("utf-8"))["cells"]
    return {cell["name"]: dict(cell["settings"]) for cell in cells}


def _candidates(root: Path) -> Iterator[Path]:
    for folder, below, files in os.walk(root):
        is_run = runs.METRICS in files
        if is_run or (runs.CONFIG in files and not NOT_SEARCHED.isdisjoint(below)):
            yield Path(folder)
        below[:] = [] if is_run else sorted(name for name in below if name not in NOT_SEARCHED and name[0] != ".")


def _label(path: Path, all_paths: Iterable[Path]) -> str:
    length = 2
    while sum(other.parts[-length:] == path.parts[-length:] for other in all_paths) > 1:
        length += 1
    return printable(Path(*path.parts[-length:]))


def _read(folder: Path) -> dict[str, Any]:
    try:
        metrics = {"metric": "psnr"} | read_metrics(folder / runs.METRICS)
    except FileNotFoundError:
        raise ValueError(f"no {runs.METRICS}: the run did not reach its end") from None
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise ValueError(f"{runs.METRICS} cannot be read: {paragraph(reason, 300)}") from error
    test = f"test/{Metric.of(metrics['metric']).name}_per_signal"
    if "signals" not in metrics or metrics.get(test) is None:
        raise ValueError(f"{runs.METRICS} has no {test!r}, one per signal; compare reads the scores of a fit or a test")
    return metrics


def mean(values: Iterable[float | None]) -> float:
    """The mean; NaN if a value is missing or there are no values."""
    found = [math.nan if value is None else value for value in values]
    return statistics.fmean(found) if found else math.nan


def look_up(tree: Any, key: str) -> Any:
    """The value at a dotted key, or :data:`MISSING`; a list if it goes through a list, such as an encoder per axis."""
    if isinstance(tree, list):
        found = [look_up(entry, key) for entry in tree]
        return MISSING if all(value is MISSING for value in found) else found
    name, _, rest = key.partition(".")
    if not isinstance(tree, Mapping) or name not in tree:
        return MISSING
    return look_up(tree[name], rest) if rest else tree[name]


def as_text(value: Any) -> str:
    """A value as text in a table: strings unchanged, lists joined by ``+`` without duplicates, all else as JSON."""
    if isinstance(value, list) and value and not any(isinstance(entry, (list, Mapping)) for entry in value):
        return "+".join(dict.fromkeys(map(as_text, value)))
    return printable(value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str))
