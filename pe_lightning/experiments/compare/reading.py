"""Run directories found on disk, read and checked."""

from __future__ import annotations

import json
import math
import os
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pe_lightning import runs

__all__ = ["MISSING", "Found", "Metric", "Run", "find_runs", "mean", "printable"]

SCHEMA = 1
NOT_SEARCHED = frozenset({runs.CHECKPOINTS, runs.RECONSTRUCTIONS, "logs", "wandb"})
"""Folders of a run directory that hold no runs."""
MISSING = "–"
"""What is shown for a value that is not there."""


class Metric(NamedTuple):
    """What a run is scored with: its name in the keys of ``metrics.json``, its unit, and what is better."""

    name: str
    unit: str
    higher_is_better: bool

    @classmethod
    def of(cls, name: Any) -> Metric:
        """The metric of this name; raises InputError if there is none."""
        if name == "psnr":  # known without importing torch
            return cls("psnr", "dB", True)
        from pe_lightning.metrics import metrics

        found = metrics.get(name)
        return cls(name, found.unit, found.higher_is_better)

    @property
    def title(self) -> str:
        """Its name and unit as a heading."""
        return f"{self.name.upper()} ({self.unit})" if self.unit else self.name.upper()

    def text(self, value: float, sign: str = "", unit: bool = False) -> str:
        """A value as it is shown, with or without the unit."""
        text = format(value, f"{sign}.2f" if self.unit == "dB" else f"{sign}.4f")
        return MISSING if math.isnan(value) else f"{text} {self.unit if unit else ''}".rstrip()


@dataclass(frozen=True, eq=False)
class Run:
    """A run directory.

    Args:
        path: The directory, resolved.
        label: The end of the path that tells it from the other runs: ``3-signals-ComplexLinear-gau/2``.
        metrics: The content of ``metrics.json``, checked.
        config: The content of ``config.yaml``; ``None`` if there is none to read.
    """

    path: Path
    label: str
    metrics: dict[str, Any]
    config: dict[str, Any] | None = None

    @cached_property
    def metric(self) -> Metric:
        """What the run is scored with."""
        return Metric.of(self.metrics.get("metric", "psnr"))

    @property
    def grid(self) -> tuple[int, ...]:
        """Samples per axis; empty if they are not known."""
        grid: Any = self.metrics.get("grid")
        known = isinstance(grid, list) and all(type(count) is int and count > 0 for count in grid)
        return tuple(grid) if known else ()

    @cached_property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals, in the order of every list in ``metrics``; equal ones are numbered: ``x``, ``x (2)``."""
        seen: Counter[str] = Counter()
        found = []
        for name in map(printable, self.metrics["signals"]):
            seen[name] += 1
            found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
        return tuple(found)

    @cached_property
    def test(self) -> dict[str, float]:
        """The held-out score per signal."""
        return self.scores(f"test/{self.metric.name}")

    def scores(self, key: str) -> dict[str, float]:
        """A metric per signal; NaN where it is not finite, or all of it where it was not recorded."""
        values = self.metrics.get(f"{key}_per_signal") or [None] * len(self.signals)
        return {s: math.nan if value is None else float(value) for s, value in zip(self.signals, values, strict=True)}

    @property
    def reason(self) -> str:
        """Why a signal has no held-out score; empty if all have one."""
        missing = any(map(math.isnan, self.test.values()))
        return printable(self.metrics.get(f"test/{self.metric.name}_reason") or "no reason recorded") if missing else ""

    @property
    def interpolations(self) -> list[Run]:
        """What interpolation of the same training samples reaches, as runs without parameters and seconds."""
        shared = {key: self.metrics[key] for key in ("signals", "metric") if key in self.metrics}
        entries = self.metrics.get("baselines", {}).items()
        return [Run(self.path, f"{printable(name)} interpolation", shared | entry) for name, entry in entries]


@dataclass(frozen=True)
class Found:
    """What a search found: runs, and a line for everything that could not be read."""

    runs: tuple[Run, ...]
    problems: tuple[str, ...]


def find_runs(paths: Sequence[str | Path]) -> Found:
    """Reads the run directories at or below the given paths, each once, in natural order of their paths within a path.

    A search ends at a ``metrics.json``: what lies below is of the same run. A run that was stopped before its end has a
    ``config.yaml`` and no ``metrics.json``; it is among the problems.
    """
    problems: list[str] = []
    folders: dict[Path, None] = {}
    for given in paths:
        path = Path(given)
        path = path.parent if path.name == runs.METRICS and path.is_file() else path
        candidates = list(_candidates(path.resolve())) if path.is_dir() else []
        if not path.is_dir():
            problems.append(f"{printable(given)} is not a directory")
        elif not candidates:
            problems.append(f"{printable(given)} holds no run: no {runs.METRICS} in it or below it")
        folders |= dict.fromkeys(candidates)
    metrics, configs = {}, {}
    for folder in folders:
        try:
            metrics[folder] = _read_metrics(folder)
            configs[folder] = _read_config(folder)
        except ValueError as error:
            ending = "; compared without its configuration" if folder in metrics else ""
            problems.append(f"{printable(folder)}: {error}{ending}")
    labels = _labels(list(metrics))
    found = tuple(Run(folder, labels[folder], metrics[folder], configs.get(folder)) for folder in metrics)
    return Found(found, tuple(problems))


def mean(values: Iterable[float | None]) -> float:
    """The mean; NaN if a value is missing, or all are."""
    found = [math.nan if value is None else value for value in values]
    return statistics.fmean(found) if found else math.nan


def printable(text: str | Path) -> str:
    """``text`` with a mark in place of every character that moves a cursor, breaks a line or is not UTF-8."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in str(text))


def _candidates(root: Path) -> Iterator[Path]:
    for folder, below, files in os.walk(root):
        is_run = runs.METRICS in files
        if is_run or (runs.CONFIG in files and not NOT_SEARCHED.isdisjoint(below)):
            yield Path(folder)
        below[:] = [] if is_run else sorted((b for b in below if b not in NOT_SEARCHED and b[0] != "."), key=_natural)


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


def _labels(paths: list[Path]) -> dict[Path, str]:
    """The last two parts of each path, more of them where that does not tell two runs apart."""
    labels: dict[Path, str] = {}
    length = 2
    while len(labels) < len(paths):
        ends = {path: printable(Path(*path.parts[-length:])) for path in paths if path not in labels}
        count = Counter([*ends.values(), *labels.values()])
        labels |= {path: end for path, end in ends.items() if count[end] == 1 or length >= len(path.parts)}
        length += 1
    return labels


def _read_metrics(folder: Path) -> dict[str, Any]:
    try:
        metrics = json.loads((folder / runs.METRICS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"no {runs.METRICS}: the run did not reach its end") from None
    except OSError as error:
        raise ValueError(f"{runs.METRICS} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{runs.METRICS} is not JSON: {error}") from error
    problem = _problem(metrics)
    if problem:
        raise ValueError(f"{runs.METRICS}{problem}")
    Metric.of(metrics.get("metric", "psnr"))
    return dict(metrics)


def _problem(metrics: Any) -> str:
    """What is wrong with the metrics of a run; empty for those of a test, in the schema that is read here."""
    if not isinstance(metrics, dict) or "schema" not in metrics:
        return " is not one of a pe-lightning run: no 'schema'"
    if metrics["schema"] != SCHEMA or isinstance(metrics["schema"], bool):
        return f" has the schema {metrics['schema']!r}; this version reads {SCHEMA}"
    names, metric = metrics.get("signals"), metrics.get("metric", "psnr")
    if names is None and f"val/{metric}" in metrics:
        return " holds the scores of a validate; compare reads those of a fit or a test"
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        return ": 'signals' is not a list of names"
    if f"test/{metric}_per_signal" not in metrics:
        return f": no 'test/{metric}_per_signal'"
    for key in ("num_params", "fit_seconds", "steps"):
        if not _is_number(metrics.get(key)) or (metrics.get(key) or 0) < 0:
            return f": {key!r} is not a number of at least 0"
    baselines = metrics.get("baselines", {})
    if not isinstance(baselines, dict) or not all(isinstance(entry, Mapping) for entry in baselines.values()):
        return ": 'baselines' is not an object of objects"
    lists = {key: metrics.get(f"{key}_per_signal") for key in (f"test/{metric}", "test/ssim", f"train/{metric}")}
    lists |= {f"baselines.{name}": entry.get(f"test/{metric}_per_signal") for name, entry in baselines.items()}
    for key, values in lists.items():
        if values is not None and not (
            isinstance(values, list) and len(values) == len(names) and all(map(_is_number, values))
        ):
            return f": {key!r} is not {len(names)} finite numbers or null, one per signal"
    return ""


def _is_number(value: Any) -> bool:
    """Whether ``value`` is ``None`` or a finite number."""
    try:
        return value is None or (type(value) in (int, float) and math.isfinite(value))
    except OverflowError:
        return False


def _read_config(folder: Path) -> dict[str, Any] | None:
    try:
        config = yaml.safe_load((folder / runs.CONFIG).read_text(encoding="utf-8"))
        json.dumps(config, default=str)  # a mapping that contains itself has no end
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"{runs.CONFIG} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{runs.CONFIG} is not YAML of plain values: {str(error).splitlines()[0]}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{runs.CONFIG} is not a mapping")
    return config
