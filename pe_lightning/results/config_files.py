"""Configuration files, and file names of any bytes in YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from pe_lightning.errors import InputError, paragraph

_SURROGATES = re.compile(r"[\udc80-\udcff]|\\u(dc[89a-f][0-9a-f])", re.IGNORECASE)
_STAND_INS = {code: code + 0x102200 for code in range(0xDC80, 0xDD00)}  # private characters of Unicode


def as_yaml(tree: Any) -> str:
    """Plain values as a line of YAML, of printable ASCII characters."""

    def escaped(found: re.Match[str]) -> str:
        code = ord(found[0])
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # YAML takes no pairs of surrogates, as JSON has

    return re.sub("[^ -~]", escaped, json.dumps(tree, ensure_ascii=False))


def with_any_names(load: Callable[[str], Any]) -> Callable[[str], Any]:
    """A loader of YAML texts that also takes the surrogates by which Python represents file names that are not UTF-8.

    libyaml refuses surrogates, so ``load`` gets private characters in their place.
    """
    back = {private: code for code, private in _STAND_INS.items()}

    def restored(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {restored(key): restored(value) for key, value in tree.items()}
        if isinstance(tree, list):
            return [restored(value) for value in tree]
        return tree.translate(back) if isinstance(tree, str) else tree

    def stand_in(found: re.Match[str]) -> str:
        return chr(_STAND_INS[int(found[1], 16) if found[1] else ord(found[0])])

    def load_any(text: str) -> Any:
        replaced, count = _SURROGATES.subn(stand_in, text)
        return restored(load(replaced)) if count else load(text)

    return load_any


def load_yaml(text: str) -> Any:
    """The content of a YAML text; InputError for values that Python does not take, and for a text that refers to itself."""
    try:
        tree = yaml.safe_load(text)
        json.dumps(tree, default=str, skipkeys=True, check_circular=False)  # RecursionError if it refers to itself
    except RecursionError as error:
        raise InputError("a configuration has too many levels, or refers to itself (YAML's & and *)") from error
    except ValueError as error:  # dates and integers that Python does not take
        raise InputError(f"a configuration holds a value that cannot be read: {paragraph(str(error), 200)}") from error
    return tree


def read_config(path: Path) -> dict[str, Any]:
    """The content of a configuration file."""
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
            raise InputError("it holds no settings by name")
    except (ValueError, OSError, yaml.YAMLError) as error:
        kinds = {yaml.YAMLError: "it is not YAML: ", UnicodeDecodeError: "it is not UTF-8 text: "}
        kind = next((words for cls, words in kinds.items() if isinstance(error, cls)), "")
        reason = getattr(error, "strerror", None) or paragraph(str(error), 200)
        raise InputError(f"cannot read {str(path)!r}: {kind}{reason}") from error
    return content
