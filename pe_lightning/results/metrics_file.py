"""``metrics.json``: types of its values, writing and reading."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pe_lightning.errors import InputError, paragraph
from pe_lightning.signals.files import write_atomically

SCHEMA = 1
"""The value of ``schema``. Increment when the meaning of a field changes."""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _all(values: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(values, list) and all(map(fits, values))


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


KINDS: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "a number": _is_number,
    "an integer >= 0": _is_count,
    "a mapping": _is_mapping,
    "a mapping, or one per axis": lambda value: _is_mapping(value) or _all(value, _is_mapping),
    "a mapping of scores by method": lambda value: _is_mapping(value) and _all([*value.values()], _is_mapping),
    "a list of names": lambda value: _all(value, lambda name: isinstance(name, str)),
    "a list of integers": lambda value: _all(value, _is_count),
    "a list of numbers or nulls": lambda value: _all(value, lambda number: number is None or _is_number(number)),
}
FIELDS: Mapping[str, str] = {
    "text": "metric data_name data_fingerprint protocol model encoding",
    "a number": "num_params fit_seconds solve_seconds",
    "an integer >= 0": "num_signals channels num_validation checkpoint_bytes steps",
    "a mapping": "sampling network learned optimizer solution versions",
    "a mapping, or one per axis": "encoder",
    "a mapping of scores by method": "baselines",
    "a list of names": "signals paths",
    "a list of integers": "grid num_missing",
}
"""Fields by type. Callbacks and modules may add others, of any plain values."""
ALWAYS_KNOWN = ("metric", "signals")
"""Fields that are never ``null``; ``null`` stands for a value that is not known or not finite."""
SCORE_PREFIXES = ("test/", "train/", "val/")
KIND_OF_SCORE = {"_per_signal": "a list of numbers or nulls", "_reason": "text", "": "a number"}
"""Types of scores by the end of their names."""


def check_metrics(content: Any) -> dict[str, Any]:
    """Returns the content of ``metrics.json``; ValueError names a value that does not fit the schema."""
    if not isinstance(content, dict):
        raise ValueError(f"it holds {_shown(content)}, not a mapping")
    if content.get("schema") != SCHEMA or isinstance(content["schema"], bool):
        raise ValueError(f"its schema is {_shown(content.get('schema'))}; this version reads {SCHEMA}")
    for kind, names in FIELDS.items():
        for name in content.keys() & set(names.split()):
            _check(name, content[name], kind, null=name not in ALWAYS_KNOWN)
    for prefix, scores in (("", content), *(content.get("baselines") or {}).items()):
        for name, value in scores.items():
            if name.startswith(SCORE_PREFIXES):
                end = next(end for end in KIND_OF_SCORE if name.endswith(end))
                label = f"baselines.{prefix}.{name}" if prefix else name
                _check(label, value, KIND_OF_SCORE[end], length=len(content.get("signals", ())) or None)
    return content


def _check(name: str, value: Any, kind: str, null: bool = True, length: int | None = None) -> None:
    if value is None and null:
        return
    label = paragraph(name, 100)
    if not KINDS[kind](value):
        raise ValueError(f"{label} is {_shown(value)}; it must be {kind}{' or null' * null}")
    if length is not None and isinstance(value, list) and len(value) != length:
        raise ValueError(f"{label} has {len(value)} values for {length} signals; it must have one per signal")


def _shown(value: Any) -> str:
    return paragraph(json.dumps(value), 60)


def _finite(number: str) -> int | float:
    if not math.isfinite(value := float(number)):
        raise ValueError(f"{paragraph(number, 60)} is not a finite number, for which null is written")
    return int(number) if number.lstrip("-").isdecimal() else value


def read_metrics(path: Path) -> dict[str, Any]:
    """The content of a ``metrics.json``; ValueError if it is not JSON, or does not fit the schema."""
    try:
        text = path.read_text(encoding="utf-8")
        return check_metrics(json.loads(text, parse_float=_finite, parse_int=_finite, parse_constant=_finite))
    except RecursionError as error:
        raise ValueError("it has too many levels of lists and mappings") from error


def write_metrics(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a ``metrics.json`` atomically."""
    for name, value in content.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"cannot write {path.name}: {name}: {error}") from error
    try:
        text = json.dumps(content, indent=2)
        check_metrics(json.loads(text))
    except ValueError as error:
        raise InputError(f"cannot write {path.name}: {error}") from error
    write_atomically(path, text + "\n")
