"""Run directories found on disk, read and checked."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pe_lightning import runs

__all__ = ["PER_SIGNAL", "Found", "Run", "Signal", "find_runs", "printable"]

SCHEMA = 1
NOT_SEARCHED = frozenset({runs.CHECKPOINTS, runs.RECONSTRUCTIONS, "logs", "wandb"})
"""Folders of a run directory that hold no runs."""
MOST_VALUES = 100_000
"""A configuration with more is not one of ours."""
PER_SIGNAL = ("test/psnr", "test/ssim", "train/psnr")
"""Metrics that are kept per signal."""


class Signal(NamedTuple):
    """A signal of a data set: its name, and which one of that name it is."""

    name: str
    number: int = 1

    def __str__(self) -> str:
        return printable(self.name) if self.number == 1 else f"{printable(self.name)} ({self.number})"


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

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The signals, in the order of every list in ``metrics``."""
        seen: Counter[str] = Counter()
        found = []
        for name in self.metrics["signals"]:
            seen[name] += 1
            found.append(Signal(name, seen[name]))
        return tuple(found)

    def scores(self, key: str) -> dict[Signal, float | None]:
        """A metric per signal; ``None`` where it is not finite, or all of it where it was not recorded."""
        values = self.metrics.get(f"{key}_per_signal") or [None] * len(self.signals)
        return dict(zip(self.signals, values, strict=True))


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
    read: dict[Path, tuple[dict[str, Any], dict[str, Any] | None]] = {}
    visited: set[Path] = set()
    for given in paths:
        path = Path(given)
        path = path.parent if path.name == runs.METRICS and path.is_file() else path
        if not path.is_dir():
            problems.append(f"{printable(given)} is not a directory")
            continue
        candidates = list(_candidates(path.resolve()))
        if not candidates:
            problems.append(f"{printable(given)} holds no run: no {runs.METRICS} in it or below it")
        for folder in candidates:
            if folder in visited:
                continue
            visited.add(folder)
            try:
                metrics = _read_metrics(folder)
            except ValueError as error:
                problems.append(f"{printable(folder)}: {error}")
                continue
            try:
                config = _read_config(folder)
            except ValueError as error:
                problems.append(f"{printable(folder)}: {error}; compared without its configuration")
                config = None
            read[folder] = metrics, config
    labels = _labels(list(read))
    return Found(tuple(Run(path, labels[path], *content) for path, content in read.items()), tuple(problems))


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
    _check(metrics)
    return dict(metrics)


def _check(metrics: Any) -> None:
    """Raises ValueError unless these are the metrics of a test, in the schema that is read here."""
    if not isinstance(metrics, dict) or "schema" not in metrics:
        raise ValueError(f"{runs.METRICS} is not one of a pe-lightning run: no 'schema'")
    if metrics["schema"] != SCHEMA or isinstance(metrics["schema"], bool):
        raise ValueError(f"{runs.METRICS} has the schema {metrics['schema']!r}; this version reads {SCHEMA}")
    names = metrics.get("signals")
    if names is None and "val/psnr" in metrics:
        raise ValueError(f"{runs.METRICS} holds the scores of a validate; compare reads those of a fit or a test")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{runs.METRICS}: 'signals' is not a list of names")
    if "test/psnr_per_signal" not in metrics:
        raise ValueError(f"{runs.METRICS}: no 'test/psnr_per_signal'")
    for key in PER_SIGNAL:
        _check_scores(metrics, key, len(names), key)
    for key in ("num_params", "fit_seconds", "steps"):
        if not _is_number(metrics.get(key)) or (metrics.get(key) or 0) < 0:
            raise ValueError(f"{runs.METRICS}: {key!r} is not a number of at least 0")
    if not isinstance(metrics.get("data_fingerprint"), (str, type(None))):
        raise ValueError(f"{runs.METRICS}: 'data_fingerprint' is not text")
    baselines = metrics.get("baselines", {})
    if not isinstance(baselines, dict) or not all(isinstance(row, dict) for row in baselines.values()):
        raise ValueError(f"{runs.METRICS}: 'baselines' is not an object of objects")
    for name, row in baselines.items():
        _check_scores(row, "test/psnr", len(names), f"baselines.{name}")


def _check_scores(entry: dict[str, Any], key: str, count: int, shown: str) -> None:
    values = entry.get(f"{key}_per_signal")
    if values is None and key not in entry:
        return
    if values is not None and (not isinstance(values, list) or len(values) != count or not all(map(_is_number, values))):
        raise ValueError(f"{runs.METRICS}: {shown!r} is not {count} finite numbers or null, one per signal")
    if not isinstance(entry.get(f"{key}_reason", ""), str):
        raise ValueError(f"{runs.METRICS}: the reason of {shown!r} is not text")


def _is_number(value: Any) -> bool:
    """Whether ``value`` is ``None`` or a finite number."""
    if value is None:
        return True
    try:
        return not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:
        return False


def _read_config(folder: Path) -> dict[str, Any] | None:
    path = folder / runs.CONFIG
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"{runs.CONFIG} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"{runs.CONFIG} is not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{runs.CONFIG} is not a mapping")
    if not _is_small(config):
        raise ValueError(f"{runs.CONFIG} has more than {MOST_VALUES} values, or refers to itself")
    return config


def _is_small(tree: object) -> bool:
    """Whether a tree has at most :data:`MOST_VALUES` values; one line of YAML can name any number of them."""
    open_ends, count = [tree], 0
    while open_ends and count <= MOST_VALUES:
        item = open_ends.pop()
        count += 1
        children = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        open_ends += itertools.islice(children, MOST_VALUES)
    return count <= MOST_VALUES
