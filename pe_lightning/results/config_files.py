"""Configuration files, of limited size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from pe_lightning.errors import InputError, paragraph

MAX_VALUES = 100_000
"""Most values of a configuration, those that aliases repeat included."""
MAX_DEPTH = 100
"""Most levels of nested lists and mappings."""


def load_limited(text: str, load: Callable[[str], Any] = yaml.safe_load) -> Any:
    """The content of a YAML text of limited size."""
    refusal = InputError(
        f"a configuration has more than {MAX_VALUES} values or {MAX_DEPTH} levels, or refers to itself (YAML's & and *)"
    )
    try:
        tree = load(text)
    except RecursionError as error:
        raise refusal from error
    except InputError:
        raise
    except ValueError as error:  # dates and integers that Python does not take
        raise InputError(f"a configuration holds a value that cannot be read: {paragraph(str(error), 200)}") from error
    rest, count = [(tree, 0)], 0
    while rest:
        (value, depth), count = rest.pop(), count + 1
        if depth > MAX_DEPTH or count > MAX_VALUES:
            raise refusal
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        rest += [(each, depth + 1) for each in inner]
    return tree


def read_config(path: Path) -> dict[str, Any]:
    """The content of a configuration file."""
    try:
        content = load_limited(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
            raise InputError("it holds no settings by name")
    except (ValueError, OSError, yaml.YAMLError) as error:
        kinds = {yaml.YAMLError: "it is not YAML: ", UnicodeDecodeError: "it is not UTF-8 text: "}
        kind = next((words for cls, words in kinds.items() if isinstance(error, cls)), "")
        reason = getattr(error, "strerror", None) or paragraph(str(error), 200)
        raise InputError(f"cannot read {str(path)!r}: {kind}{reason}") from error
    return content
