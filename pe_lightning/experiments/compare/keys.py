"""Dotted keys into ``metrics.json`` and ``config.yaml``: what runs are grouped by, and where they differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pe_lightning.errors import InputError, did_you_mean
from pe_lightning.experiments.compare.reading import Run, printable

__all__ = ["MISSING", "check_key", "differences", "flatten", "look_up", "shown"]

MISSING = "–"
"""What is shown for a key that a run does not have."""


def flatten(tree: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Pairs of dotted key and value; lists are values."""
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{key}.")
        else:
            yield key, value


def look_up(tree: Any, key: str) -> Any:
    """The value at a dotted key; :data:`MISSING` where there is none.

    A list on the way, as ``encoder`` is where every axis has its own, gives the list of the values of its entries.
    """
    if not key:
        return tree
    if isinstance(tree, list):
        found = [look_up(entry, key) for entry in tree]
        return MISSING if all(value is MISSING for value in found) else found
    if not isinstance(tree, Mapping):
        return MISSING
    if key in tree:
        return tree[key]
    name, _, rest = key.partition(".")
    return look_up(tree[name], rest) if rest and name in tree else MISSING


def check_key(runs: Sequence[Run], key: str) -> None:
    """Raises InputError if no run has ``key`` in its ``metrics.json``."""
    if all(look_up(run.metrics, key) is MISSING for run in runs):
        available = sorted({name for run in runs for name, value in _settings(run.metrics) if not isinstance(value, list)})
        raise InputError(
            f"--by {key}: no run has it in its metrics.json{did_you_mean(key, available) or '.'} "
            f"Available: {', '.join(available)}"
        )


def _settings(metrics: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The keys that describe a run, not its scores."""
    for key, value in flatten({k: v for k, v in metrics.items() if k not in ("baselines", "versions", "schema")}):
        if "/" not in key:
            yield printable(key), value
    encoders = metrics.get("encoder")
    for entry in encoders if isinstance(encoders, list) else []:
        if isinstance(entry, Mapping):
            yield from ((f"encoder.{printable(key)}", value) for key, value in flatten(entry))


def shown(value: Any) -> str:
    """A value in a table: text as it is, lists of equal values once, others joined by a plus, the rest as JSON."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list) and value and not any(isinstance(entry, (list, Mapping)) for entry in value):
        return "+".join(dict.fromkeys(map(shown, value)))
    return printable(json.dumps(value, sort_keys=True, ensure_ascii=False, default=str))


def differences(runs: Sequence[Run]) -> dict[str, list[str]]:
    """The configuration keys in which runs differ: key -> one value per run that has a configuration."""
    configs = [run.config for run in runs if run.config is not None]
    flat = [{printable(key): _setting(value) for key, value in flatten(config)} for config in configs]
    keys = dict.fromkeys(key for values in flat for key in values)
    table = {key: [values.get(key, MISSING) for values in flat] for key in keys}
    return {key: row for key, row in table.items() if len(set(row)) > 1}


def _setting(value: Any) -> str:
    return printable(value) if isinstance(value, str) else printable(json.dumps(value, ensure_ascii=False, default=str))
