"""Options that follow from a goal: the size of a model from a number of parameters, its steps from seconds of a core."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pe_lightning.errors import InputError
from pe_lightning.signals import validation

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


def match(goals: Mapping[str, float], option: str | None, tree: Mapping[str, Any], trials: Trials) -> dict[str, int]:
    """The options that reach the goals, by key.

    Args:
        goals: The goals and their numbers.
        option: The option of ``fit`` that sets the size of the model.
        tree: The complete configuration without these options.
        trials: Measures configurations.
    """
    found: dict[str, int] = {}
    if "num_params" in goals:
        if option is None:
            raise InputError(
                "num_params is matched by an option that sets the size of the model, and none is known for it: "
                "--size model.hidden_size, or --size model.encoder.num_features"
            )
        goal, key = goals["num_params"], option
        found[key] = nearest_size(lambda size: trials.num_params(with_option(tree, key, size)), goal)
        tree = with_option(tree, key, found[key])
    if "core_seconds" in goals:
        found["trainer.max_steps"] = steps_within(lambda steps: trials.core_seconds(tree, steps), goals["core_seconds"])
    return found


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
    """The number of steps that take so many seconds, from the seconds of a part of them."""
    steps, spent = 8, 0.0
    while True:
        spent = seconds(steps)
        if spent >= min(TRIAL_SECONDS, goal / 2) or steps > 1 << 20:
            return max(1, round(goal * steps / spent))
        steps *= 4 if spent < TRIAL_SECONDS / 4 else 2
