"""Files that describe a sweep: settings whose values are names, each for several options of ``fit``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pe_lightning.errors import InputError, did_you_mean
from pe_lightning.results.config_files import as_yaml, read_config
from pe_lightning.studies.sweep.cells import Options, Varied
from pe_lightning.studies.sweep.matching import ANY, GOALS, parse_goals

SUFFIX = ".yaml"
SIZE, MATCH = "size", "match"
"""Entries of a value that are no options of ``fit``: the option by which its number of parameters is matched, and the goals
that its cells have (default: all)."""
KEYS = ("options", "vary", MATCH, "parts")


@dataclass(frozen=True)
class Study:
    """A sweep in a file.

    Args:
        options: Options of ``fit`` for all cells.
        varied: The settings, and the options of each of their values.
        sizes: The option that sets the size of a model, by setting and value.
        goals: The goals of the cells of a value, by setting and value; there is one cell for all values of the others.
    """

    options: Options = ()
    varied: Varied = field(default_factory=dict)
    sizes: dict[str, dict[str, str]] = field(default_factory=dict)
    goals: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)

    def without_goals(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The settings of a combination, with the value ``any`` for goals that it does not have."""
        limits = [self.goals[key][value] for key, value in settings.items() if value in self.goals.get(key, {})]
        free = {goal for goal in GOALS for limit in limits if goal not in limit}
        return {key: ANY if key in free else value for key, value in settings.items()}

    def size_option(self, settings: Mapping[str, str]) -> str | None:
        """The option by which the number of parameters of a combination is matched, if the file names one."""
        named = (self.sizes.get(key, {}).get(value) for key, value in settings.items())
        return next((option for option in named if option is not None), None)


def read_study(name: str, part: str | None = None) -> Study:
    """Reads a study by the path of its file, or by its name: ``encodings`` is ``configs/studies/encodings.yaml``.

    Args:
        name: The file or the name.
        part: The name of a part of the study, which has some of the values; ``None``: all of it.
    """
    from pe_lightning.cli.recipes import FOLDER  # imports Lightning

    path = Path(name) if Path(name).is_file() else FOLDER / "studies" / f"{name.removesuffix(SUFFIX)}{SUFFIX}"
    if not path.is_file():
        known = sorted(found.stem for found in (FOLDER / "studies").glob(f"*{SUFFIX}"))
        raise InputError(
            f"--study {name!r} is neither a file nor a study{did_you_mean(name, known) or '.'} Studies: {', '.join(known)}"
        )
    content = read_config(path)
    _check_keys(name, content, KEYS)
    described = {key: _described(name, key, values) for key, values in content.get("vary", {}).items()}
    goals = parse_goals([f"{goal}={','.join(map(str, values))}" for goal, values in content.get(MATCH, {}).items()])
    described |= {goal: {value: {} for value in values} for goal, values in goals.items()}
    parts = content.get("parts", {})
    if part is not None:
        if part not in parts:
            raise InputError(f"{name} has no part {part!r}; its parts are {', '.join(parts) or 'none'}")
        for key, names in parts[part].items():
            _check_keys(f"{name}: parts.{part}", {key: None}, list(described))
            _check_keys(f"{name}: parts.{part}.{key}", dict.fromkeys(map(str, names)), list(described[key]))
            described[key] = {str(value): described[key][str(value)] for value in names}
    varied: dict[str, dict[str, Options]] = {}
    sizes: dict[str, dict[str, str]] = {}
    limits: dict[str, dict[str, tuple[str, ...]]] = {}
    for key, values in described.items():
        sizes[key] = {value: options.pop(SIZE) for value, options in values.items() if SIZE in options}
        limits[key] = {value: tuple(options.pop(MATCH)) for value, options in values.items() if MATCH in options}
        varied[key] = {value: _words(options) for value, options in values.items()}
    return Study(_words(content.get("options", {})), varied, sizes, limits)


def _described(name: str, key: str, values: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(values, Mapping) or not all(isinstance(options, Mapping) for options in values.values()):
        raise InputError(
            f"{name}: vary.{key} is a mapping of names to options of fit, such as {{gau: {{model.encoder: gau}}}}"
        )
    return {str(value): dict(options) for value, options in values.items()}


def _check_keys(where: str, given: Mapping[str, Any], allowed: Sequence[str]) -> None:
    for key in given:
        if key not in allowed:
            raise InputError(f"{where} has no {key!r}{did_you_mean(str(key), allowed) or '.'} It has {', '.join(allowed)}")


def _words(options: Mapping[str, Any]) -> Options:
    return tuple(f"--{key}={value if isinstance(value, str) else as_yaml(value)}" for key, value in options.items())
