"""The command line of ``suggest``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pe_lightning import encoders
from pe_lightning.errors import InputError, did_you_mean

__all__ = ["Options", "parse"]

OWN = ("--budget", "--out", "--encoders", "--num_features", "--force")
LEAST_BUDGET = 1.0


@dataclass(frozen=True)
class Options:
    """A parsed command line.

    Args:
        paths: Files and folders named without an option.
        data: Options that say what the data is: ``--config``, ``--data...``.
        budget: Seconds.
        out: The configuration to write.
        force: Whether it may replace a file.
        encoders: Names to try; all registered ones if empty.
        num_features: ``K`` per axis to try; by the number of trained samples if empty.
    """

    paths: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    budget: float = 60.0
    out: Path = Path("suggested.yaml")
    force: bool = False
    encoders: tuple[str, ...] = ()
    num_features: tuple[int, ...] = ()

    @property
    def names_data(self) -> bool:
        """Whether a DataModule is named."""
        return any(argument.partition("=")[0] in ("--data", "-c", "--config") for argument in self.data)


def parse(arguments: Sequence[str]) -> Options:
    """Reads the command line.

    Raises:
        InputError: If an option is unknown or its value is out of range, or there are no data.
    """
    paths: list[str] = []
    data: list[str] = []
    own: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        option, equals, text = argument.partition("=")
        if not argument.startswith("-"):
            paths.append(argument)
            continue
        if option == "--force" and not equals:
            own[option] = "true"
            continue
        is_data = option in ("-c", "--config", "--data") or option.startswith("--data.")
        if not is_data and option not in OWN:
            near = did_you_mean(option, [*OWN, "--data", "--data.paths", "--config"])
            raise InputError(f"suggest: unknown option {option!r}{near or '.'} It takes data options and {', '.join(OWN)}")
        if not equals:
            if not rest:
                raise InputError(f"{option} needs a value")
            text = rest.pop(0)
        if is_data:
            data += [f"{option}={text}"] if option.startswith("--") else ["--config", text]
        elif option in own:
            raise InputError(f"{option} is given twice")
        else:
            own[option] = text
    has_paths = any(argument.partition("=")[0] in ("--data.paths", "--config", "--data") for argument in data)
    if not paths and not has_paths:
        raise InputError("suggest needs signals: pe-lightning suggest my.jpg, or --data.paths my.jpg")
    if paths and any(argument.startswith("--data.paths") for argument in data):
        raise InputError(f"signals are given as --data.paths and as {paths[0]!r}; leave one of them out")
    return Options(
        tuple(paths),
        tuple(data),
        _budget(own.get("--budget", "60")),
        Path(own.get("--out", "suggested.yaml")),
        "--force" in own,
        _encoders(own.get("--encoders")),
        _numbers(own.get("--num_features")),
    )


def _budget(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not LEAST_BUDGET <= seconds < math.inf:
        raise InputError(f"--budget is a number of seconds, at least {LEAST_BUDGET:g}; got {text!r}")
    return seconds


def _encoders(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.strip("[] ").split(",")))
    for name in names:
        encoders.registry.get(name)  # raises with the nearest names
    return names


def _numbers(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    words = [word.strip() for word in text.strip("[] ").split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise InputError(f"--num_features is one or more whole numbers >= 1, joined by commas; got {text!r}")
    return tuple(dict.fromkeys(map(int, words)))
