"""Options that follow from a goal: the size of a model from a number of parameters, its steps from seconds of a core."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from pe_lightning.errors import InputError
from pe_lightning.registry import import_class
from pe_lightning.results import runs
from pe_lightning.results.config_files import read_config
from pe_lightning.signals import validation

Goal: TypeAlias = tuple[str, float]
"""A goal and its number."""

GOALS = {"num_params": "parameters of each signal", "core_seconds": "seconds of one core in training steps, for each signal"}
"""What ``--match`` takes, in words."""
ANY = "any"
"""Value of a goal that is none: the options stay as they are."""
FIRST_SIZE, MAX_SIZE = 8, 1 << 24
"""The sizes between which a number of parameters is searched."""
TOLERANCE = 0.2
"""Largest difference of a number of parameters from the goal, relative to it."""
MAX_REFUSED = 8
"""Sizes in a row that an encoder may refuse, such as odd ones."""
FEW_STEPS = 2
"""Steps of the fit whose seconds are those of a fit besides its steps."""
TRIAL_SECONDS = 0.3
"""Seconds of a core that are measured to find a number of steps."""


class Trials(Protocol):
    """What complete configurations are measured by."""

    def num_params(self, tree: Mapping[str, Any]) -> int:
        """Parameters of each signal."""

    def core_seconds(self, tree: Mapping[str, Any], steps: int) -> float:
        """Seconds of a core that so many training steps take."""


def parse_goals(texts: list[str]) -> dict[str, list[str]]:
    """The values of ``--match`` by their goal, ``num_params=1e4,1e5``."""
    found: dict[str, list[str]] = {}
    for text in texts:
        goal, _, values = text.strip().partition("=")
        if goal not in GOALS or not values or goal in found:
            listed = ", ".join(f"{name}: {words}" for name, words in GOALS.items())
            raise InputError(
                f"--match takes GOAL=V1,V2,..., each goal once, got {text!r}: --match num_params=1e4,1e5 ({listed})"
            )
        found[goal] = values.split(",")
        for value in found[goal]:
            goal_value(goal, value)
    return found


def goal_value(goal: str, value: str) -> float | None:
    """The number of a goal; ``None`` for ``any``."""
    if value == ANY:
        return None
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    validation.number(f"--match {goal}", number if number == number else value, "(0, inf)", hint=f", or {ANY}")
    return number


def options_of_goals(settings: Mapping[str, str], size: str | None, tree: Mapping[str, Any]) -> dict[str, Goal]:
    """The options that are found for the goals among the settings of a cell, each with its goal.

    Args:
        settings: The settings of the cell.
        size: The option that sets the size of the model; ``None``: the usual one of its class.
        tree: The complete configuration of the cell.
    """
    found: dict[str, Goal] = {}
    for goal in GOALS:
        value = goal_value(goal, settings[goal]) if goal in settings else None
        if value is None:
            continue
        if goal == "core_seconds":
            found["trainer.max_steps"] = goal, value
            continue
        name = getattr(import_class(tree["model"]["class_path"]), "size_argument", None)
        option = size or (name and f"model.{name}")
        if option is None:
            raise InputError(
                "num_params is matched by an option that sets the size of the model, and none is known for it: "
                "--size model.hidden_size, or --size model.encoder.num_features"
            )
        found[option] = goal, value
    return found


def match(goals: Mapping[str, Goal], tree: Mapping[str, Any], trials: Trials) -> dict[str, int]:
    """The values of options that reach goals, sizes before steps.

    Args:
        goals: The options and their goals.
        tree: The complete configuration with other values of these options.
        trials: Measures configurations.
    """
    found: dict[str, int] = {}
    for option, (goal, number) in goals.items():
        reached = with_options(tree, found)
        if goal == "num_params":
            count = partial(_count, trials, reached, option)
            found[option] = nearest_size(count, number)
        else:
            found[option] = steps_within(partial(trials.core_seconds, reached), number)
    return found


def _count(trials: Trials, tree: Mapping[str, Any], option: str, size: int) -> int:
    return trials.num_params(with_option(tree, option, size))


def found_before(run_dir: Path, goals: Mapping[str, Goal]) -> dict[str, int]:
    """The options that the configuration of a run directory holds for goals; none without a configuration."""
    path = run_dir / runs.CONFIG
    if not goals or not path.is_file():
        return {}
    settings = dict(runs.flatten(read_config(path)))
    plain = {key.replace(".init_args", ""): value for key, value in settings.items()}
    return {option: plain[option] for option in goals if option in plain}


def with_options(tree: Mapping[str, Any], options: Mapping[str, Any]) -> Mapping[str, Any]:
    """A copy of a complete configuration with the values of some options."""
    for key, value in options.items():
        tree = with_option(tree, key, value)
    return tree


def with_option(tree: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of a complete configuration with the value of an option, such as ``model.encoder.num_features``."""
    name, _, rest = key.partition(".")
    if not rest:
        return {**tree, name: value}
    inner = tree.get(name)
    if inner is None and "init_args" in tree:
        return {**tree, "init_args": with_option(tree["init_args"], key, value)}
    inner = {"name": inner} if isinstance(inner, str) else inner or {}
    if isinstance(inner, list):
        return {**tree, name: [with_option(entry, rest, value) for entry in inner]}
    if "init_args" in inner:
        return {**tree, name: {**inner, "init_args": with_option(inner["init_args"], rest, value)}}
    return {**tree, name: with_option(inner, rest, value)}


def nearest_size(count: Callable[[int], int], goal: float) -> int:
    """The size for which a count that grows with the size is nearest to a goal.

    Args:
        count: The number of parameters of a size; raises InputError for a size that cannot be, such as an odd one.
        goal: The number wanted.
    """
    known: dict[int, int] = {}

    def allowed(size: int) -> int:
        """The least possible size from this one on; its count is known then."""
        last = size + MAX_REFUSED
        while size not in known:
            try:
                known[size] = count(size)
            except InputError:
                size += 1
                if size == last:
                    raise
        return size

    low, high = allowed(1), allowed(FIRST_SIZE)
    while known[high] < goal and high < MAX_SIZE and known[larger := allowed(2 * high)] > known[high]:
        low, high = high, larger
    while (middle := allowed((low + high) // 2)) not in (low, high):
        low, high = (middle, high) if known[middle] < min(goal, known[high]) else (low, middle)
    nearest = min((low, high), key=lambda size: abs(known[size] - goal))
    if abs(known[nearest] - goal) > TOLERANCE * goal:
        raise InputError(f"no size has about {goal:,.0f} parameters: the nearest is {nearest}, with {known[nearest]:,}")
    return nearest


def steps_within(seconds: Callable[[int], float], goal: float) -> int:
    """The number of steps that take so many seconds, from the seconds of a part of them.

    What a fit costs besides its steps does not count, nor what is loaded in the first fit of a process: times are
    differences to a fit of few steps, the least of two, as other programs only add to them.
    """
    seconds(FEW_STEPS)
    steps, least = 4 * FEW_STEPS, min(seconds(FEW_STEPS), seconds(FEW_STEPS))
    while True:
        spent = seconds(steps) - least
        if spent >= min(TRIAL_SECONDS, goal / 2) or steps > 1 << 20:
            spent = min(spent, seconds(steps) - least)
            return max(1, round(goal * (steps - FEW_STEPS) / max(spent, 1e-9)))
        steps *= 4 if spent < TRIAL_SECONDS / 4 else 2
