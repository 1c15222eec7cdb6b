"""``metrics.json``: the types of its values, and how it is written and read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pe_lightning.errors import InputError, paragraph
from pe_lightning.signals.files import write_atomically

SCHEMA = 1
"""The value of ``schema``. Increment when the meaning of a field changes."""
MAX_DEPTH = 32
"""Most levels of nested lists and mappings."""


class Kind(NamedTuple):
    """The type of a field, as messages call it and as a test; ``null`` is a value that is not known, or not finite."""

    words: str
    fits: Callable[[Any], bool]
    null: bool = True

    def check(self, name: str, value: Any) -> None:
        """Raises ValueError unless a value is of this type."""
        if not (self.null and value is None) and not self.fits(value):
            expected = f"{self.words}{' or null' * self.null}"
            raise ValueError(f"{paragraph(name, 100)} is {paragraph(json.dumps(value), 60)}; it must be {expected}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_list(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


NUMBER = Kind("a number", _is_number)
COUNT = Kind("an integer >= 0", _is_count)
TEXT = Kind("text", _is_text)
MAPPING = Kind("a mapping", _is_mapping)
NUMBERS = Kind("a list of numbers or nulls", _is_list(lambda value: value is None or _is_number(value)))

FIELDS: Mapping[str, Kind] = {
    "metric": Kind("the name of a metric", _is_text, null=False),
    "signals": Kind("a list of names", _is_list(_is_text), null=False),
    "num_signals": COUNT,
    "grid": Kind("a list of integers", _is_list(_is_count)),
    "channels": COUNT,
    "paths": Kind("a list of paths", _is_list(_is_text)),
    "data_name": TEXT,
    "num_missing": Kind("a list of integers", _is_list(_is_count)),
    "num_validation": COUNT,
    "data_fingerprint": TEXT,
    "protocol": TEXT,
    "sampling": MAPPING,
    "model": TEXT,
    "num_params": NUMBER,
    "checkpoint_bytes": COUNT,
    "network": MAPPING,
    "encoding": TEXT,
    "encoder": Kind("a mapping, or one per axis", lambda value: _is_mapping(value) or _is_list(_is_mapping)(value)),
    "learned": MAPPING,
    "optimizer": MAPPING,
    "solution": MAPPING,
    "fit_seconds": NUMBER,
    "solve_seconds": NUMBER,
    "steps": COUNT,
    "baselines": Kind(
        "a mapping of scores by method", lambda value: _is_mapping(value) and all(map(_is_mapping, value.values()))
    ),
    "versions": MAPPING,
}
"""Types of the fields that this package writes. Callbacks and modules may add others, of any plain values."""

SCORE_PREFIXES = ("test/", "train/", "val/")
SCORE_KINDS = {"_per_signal": NUMBERS, "_reason": TEXT, "": NUMBER}
"""Types of scores by the end of their names: ``test/psnr``, ``test/psnr_std``, ``test/psnr_per_signal``, ..."""


def check_metrics(content: Any) -> dict[str, Any]:
    """Checks the content of ``metrics.json`` against the schema, and returns it; ValueError names what does not fit."""
    if not isinstance(content, dict):
        raise ValueError(f"it holds {paragraph(json.dumps(content), 60)}, not a mapping")
    if content.get("schema") != SCHEMA or isinstance(content["schema"], bool):
        raise ValueError(f"its schema is {paragraph(json.dumps(content.get('schema')), 60)}; this version reads {SCHEMA}")
    for path, value in _numbers(content):
        try:
            finite = math.isfinite(value)
        except OverflowError:  # an integer beyond the range of floats
            finite = False
        if not finite:
            raise ValueError(f"{paragraph(path, 100)} is not a finite number; what is not finite is written as null")
    for name, kind in FIELDS.items():
        if name in content:
            kind.check(name, content[name])
    _check_scores(content, "", content.get("signals"))
    for method, scores in (content.get("baselines") or {}).items():
        _check_scores(scores, f"baselines.{method}.", content.get("signals"))
    return content


def _check_scores(content: Mapping[str, Any], prefix: str, signals: list[str] | None) -> None:
    for name, value in content.items():
        if not name.startswith(SCORE_PREFIXES):
            continue
        end = next(end for end in SCORE_KINDS if name.endswith(end))
        SCORE_KINDS[end].check(f"{prefix}{name}", value)
        if end == "_per_signal" and value is not None and signals is not None and len(value) != len(signals):
            label = paragraph(prefix + name, 100)
            raise ValueError(f"{label} has {len(value)} values for {len(signals)} signals; it must have one per signal")


def _numbers(tree: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, int | float]]:
    if depth > MAX_DEPTH:
        raise ValueError(f"it has more than {MAX_DEPTH} levels")
    if isinstance(tree, (dict, list)):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _numbers(value, f"{path}.{key}" if path else str(key), depth + 1)
    elif _is_number(tree):
        yield path, tree


def read_metrics(path: Path) -> dict[str, Any]:
    """The content of a ``metrics.json``, checked; ValueError if it is not JSON, or does not fit the schema."""
    try:
        return check_metrics(json.loads(path.read_text(encoding="utf-8")))
    except RecursionError as error:
        raise ValueError(f"it has more than {MAX_DEPTH} levels") from error


def write_metrics(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a ``metrics.json`` atomically."""
    try:
        text = json.dumps(content, indent=2)
        check_metrics(json.loads(text))
    except (TypeError, ValueError) as error:
        raise InputError(f"cannot write {path.name}: {error}") from error
    write_atomically(path, text + "\n")
