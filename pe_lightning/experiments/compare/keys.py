"""Dotted keys into ``metrics.json`` and ``config.yaml``: what runs are grouped by, and where they differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pe_lightning.errors import InputError, did_you_mean
from pe_lightning.experiments.compare.reading import MISSING, Run, printable

__all__ = ["as_text", "check_key", "differences", "flatten", "look_up"]


def flatten(tree: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and their values; lists are values."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


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
        flat = (entry for run in runs for entry in flatten(run.metrics))
        available = sorted({printable(name) for name, value in flat if "/" not in name and not isinstance(value, list)})
        raise InputError(
            f"--by {key}: no run has it in its metrics.json{did_you_mean(key, available) or '.'} "
            f"Available: {', '.join(available)}"
        )


def as_text(value: Any) -> str:
    """A value in a table: text as it is, lists of equal values once, others joined by a plus, the rest as JSON."""
    if isinstance(value, list) and value and not any(isinstance(entry, (list, Mapping)) for entry in value):
        return "+".join(dict.fromkeys(map(as_text, value)))
    return printable(value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str))


def differences(runs: Sequence[Run]) -> dict[str, list[str]]:
    """The configuration keys in which runs differ: key -> one value per run that has a configuration."""
    configs = [dict(flatten(run.config)) for run in runs if run.config is not None]
    keys = dict.fromkeys(key for config in configs for key in config)
    rows = {key: [_as_setting(config[key]) if key in config else MISSING for config in configs] for key in keys}
    return {printable(key): row for key, row in rows.items() if len(set(row)) > 1}


def _as_setting(value: Any) -> str:
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
