"""Finds, reads and checks run directories; values at dotted keys."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    """

    path: Path
    label: str
    metrics: dict[str, Any]
    config: dict[str, Any] | None = None

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
    found = tuple(Run(folder, _label(folder, metrics), metrics[folder], configs.get(folder)) for folder in metrics)
    return Found(found, tuple(problems))


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
