"""The command line of a sweep: what is varied, what is fixed, and the sweep's own options."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

import jsonargparse
import yaml

from pe_lightning import runs
from pe_lightning.errors import InputError
from pe_lightning.experiments.sweep.share import Share

__all__ = ["Options", "Varied", "parse", "split_values"]

REFUSED = {
    "config": "vary the settings in it one by one, or start a sweep for each file",
    "ckpt_path": "a sweep starts every fit from nothing, and takes its own unfinished ones up again",
    "print_config": "config.yaml in each run directory has the complete configuration",
}
MOST_CELLS = 10_000
"""A sweep of more is taken for a slip."""

LauncherName: TypeAlias = Literal["process", "ray"]
EXAMPLES = {
    "--vary": "--vary model.encoder=gau,tri,rff",
    "--repeats": "--repeats 3",
    "--out": "--out FOLDER",
    "--launcher": "--launcher ray",
    "--cpus_per_cell": "--cpus_per_cell 2",
    "--gpus_per_cell": "--gpus_per_cell 1",
}
"""The sweep's own options."""


@dataclass(frozen=True)
class Varied:
    """A setting and its values.

    Args:
        key: As on the command line of ``fit``, without the dashes: ``model.encoder.sigma``.
        values: As typed, YAML each.
    """

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Options:
    """A parsed command line.

    Args:
        varied: The settings that are varied, in the order given.
        fixed: Options of ``fit``.
        repeats: How many seeds each combination is fitted with.
        out: Where the run directories go.
        launcher: Where the fits run: in this process, or on a Ray cluster.
        share: What a cell gets of the cluster.
    """

    varied: tuple[Varied, ...]
    fixed: tuple[str, ...] = ()
    repeats: int = 1
    out: Path = field(default_factory=Path)
    launcher: LauncherName = "process"
    share: Share = field(default_factory=Share)

    @property
    def name(self) -> str:
        """The sweep's name: that of its folder."""
        return self.out.absolute().name


def parse(arguments: Sequence[str]) -> Options:
    """Reads the command line; the options of ``fit`` in it are not looked at.

    Raises:
        InputError: If nothing is varied, a setting is given twice, or values cannot be read.
    """
    varied: list[Varied] = []
    fixed: list[str] = []
    own: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        option, equals, text = argument.partition("=")
        if option not in EXAMPLES:
            fixed.append(argument)
            continue
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise InputError(f"{option} needs a value: {EXAMPLES[option]}")
            text = rest.pop(0)
        if option == "--vary":
            varied.append(_varied(text))
        elif option in own:
            raise InputError(f"{option} is given twice")
        else:
            own[option] = text
    if not varied:
        raise InputError(f"sweep varies something: {EXAMPLES['--vary']}; a single fit is pe-lightning fit")
    _check(varied, fixed)
    out = Path(own["--out"]) if "--out" in own else Path("sweeps") / _name(fixed, varied)
    launcher = _launcher(own)
    share = Share(_cpus(own.get("--cpus_per_cell", "1")), _gpus(own.get("--gpus_per_cell", "0")))
    return Options(tuple(varied), tuple(fixed), _repeats(own.get("--repeats", "1")), out, launcher, share)


def _launcher(own: Mapping[str, str]) -> LauncherName:
    name = own.get("--launcher", "process")
    if name not in get_args(LauncherName):
        raise InputError(f"--launcher is one of {', '.join(get_args(LauncherName))}; got {name!r}")
    for option in ("--cpus_per_cell", "--gpus_per_cell"):
        if option in own and name != "ray":
            raise InputError(f"{option} is for --launcher ray; without it, cells run one after the other in this process")
    return cast(LauncherName, name)


def _cpus(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"--cpus_per_cell is a number of CPUs from 1 on, got {text!r}")
    return int(text)


def _gpus(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise InputError(f"--gpus_per_cell is 0, 1, or the part of a GPU that each of several cells gets; got {text!r}")
    return share


def _repeats(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_CELLS:
        raise InputError(f"--repeats is a number of seeds from 1 to {MOST_CELLS}, got {text!r}")
    return int(text)


def _varied(text: str) -> Varied:
    key, equals, values = text.partition("=")
    key = key.strip().lstrip("-").replace(".init_args", "")
    if not equals or not re.fullmatch(r"\w+(\.\w+)*", key):
        raise InputError(f"--vary takes KEY=V1,V2,..., got {text!r}: {EXAMPLES['--vary']}")
    for refused, instead in REFUSED.items():
        if key == refused:
            raise InputError(f"--vary {key}: {instead}")
    return Varied(key, split_values(key, values))


def split_values(key: str, text: str) -> tuple[str, ...]:
    """Values between the commas outside of brackets, braces and quotes, each of them checked to be YAML.

    >>> split_values("model.encoder", "gau, [tri, rff], {name: logf, sigma: 5}")
    ('gau', '[tri, rff]', '{name: logf, sigma: 5}')
    """
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"" and not parts[-1].strip():
            quote = character  # a quote within a word is an apostrophe
        elif character in "'\"" and depth:
            quote = character
        depth += 0 if quote else (character in "[{") - (character in "]}")
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    values = tuple(part.strip() for part in parts)
    seen: dict[str, str] = {}
    for value in values:
        if not value:
            raise InputError(f"--vary {key}: an empty value in {text!r}; write null for none, and no comma at the end")
        try:
            meaning = repr(jsonargparse.get_loader("yaml")(value))
        except yaml.YAMLError as error:
            problem = getattr(error, "problem", None) or str(error).splitlines()[0]
            raise InputError(f"--vary {key}: {value!r} does not parse: {problem}. Quote values that hold commas") from error
        if meaning in seen:
            raise InputError(f"--vary {key}: the value {value!r} is given twice")
        seen[meaning] = value
    return values


def _check(varied: Sequence[Varied], fixed: Sequence[str]) -> None:
    keys = [entry.key for entry in varied]
    for key in keys:
        if keys.count(key) > 1:
            raise InputError(f"--vary {key} is given twice; give all its values at once: --vary {key}=V1,V2,...")
    for argument in fixed:
        option = argument.partition("=")[0].lstrip("-").replace(".init_args", "")
        if not argument.startswith("-"):
            continue
        if option in keys:
            raise InputError(f"{option} is varied and given as --{option} too; leave one of them out")
        if option in ("ckpt_path", "print_config"):
            raise InputError(f"sweep takes no --{option}: {REFUSED[option]}")


def _name(fixed: Sequence[str], varied: Sequence[Varied]) -> str:
    """``<configuration>-<settings>``: the same command finds its folder again, and more values of a setting do too."""
    config = ""
    for place, argument in enumerate(fixed):
        option, equals, text = argument.partition("=")
        if option in ("-c", "--config"):
            config = text if equals else (fixed[place + 1] if place + 1 < len(fixed) else "")
    stem = "sweep" if not config or config.startswith("{") else Path(config).stem
    return runs.slug("-".join([stem, *(entry.key.rpartition(".")[2] for entry in varied)]))
