"""Command-line arguments, split into files and options and rewritten once for jsonargparse.

``fit my.jpg --encoder tri`` becomes ``--config=image/closed_form.yaml --model.encoder=tri --data.paths=["my.jpg"]``.
"""

from __future__ import annotations

import codecs
import locale
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import get_loader, set_loader

from pe_lightning.errors import InputError, paragraph
from pe_lightning.registry import find_registry, path_of
from pe_lightning.results import runs
from pe_lightning.results.config_files import as_yaml, load_yaml, read_config, with_any_names

VERBOSE = frozenset({"-v", "--verbose"})
FLAGS = frozenset({"h", "help", "v", "verbose", "print_config"})
"""Options of the verbs of the Trainer that take no value."""
MULTIPLE = frozenset({"output_shape"})
"""Options of the verbs of the Trainer that take several values."""
DESCRIBED = frozenset({"model.encoder", "model.estimator", "model.network", "data.sampling", "data.source"})
"""Settings that take a registered name or an import path, or a mapping with the name and arguments."""
NAMED = {"model": "models", "data": "datamodules", "trainer.callbacks": "callbacks"}
"""Settings that name a class of a registry, with the registry."""
HOST = "pe_lightning.NetworkModule"
"""The module that trains networks that are no LightningModules."""
DEFAULT_STEPS = 2000
"""Steps of a fit where none are given, as in the papers."""
CLASS_KEYS = DESCRIBED | {"model", "data", "model.optimizer", "model.lr_scheduler", "trainer.logger"}
"""Settings that name a class, whose arguments are settings below them."""


@dataclass(frozen=True)
class Option:
    """One option with its values: ``("--encoder", "tri")`` or ``("--encoder=tri",)``."""

    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """The option as typed: ``--encoder``."""
        return self.words[0].partition("=")[0]

    @cached_property
    def key(self) -> str:
        """The parser's key: ``model.encoder`` for ``--encoder``, ``config`` for ``-c``, without ``init_args``."""
        key = self.name.lstrip("-").replace(".init_args", "").removesuffix(".class_path")
        return "config" if key == "c" else re.sub(r"^encoder(?=\.|\+?$)", "model.encoder", key)

    @property
    def values(self) -> tuple[str, ...]:
        _, equals, value = self.words[0].partition("=")
        return ((value,) if equals else ()) + self.words[1:]

    @property
    def value(self) -> str | None:
        """The only value; ``None`` without a value and with several."""
        return self.values[0] if len(self.values) == 1 else None


def read(
    words: Sequence[str], flags: Collection[str] = FLAGS, multiple: Collection[str] = MULTIPLE
) -> tuple[list[str], list[Option]]:
    """Splits the words after a verb into positional arguments, such as files, and options.

    Args:
        words: The words, in any order.
        flags: Options that take no value, without dashes.
        multiple: Options that take all values up to the next option, without dashes.
    """
    positional: list[str] = []
    options: list[list[str]] = []
    wanted: float = 0  # values that the last option still takes
    for word in words:
        if word.startswith("-") and not re.match(r"-\.?\d", word):  # no value such as -1 or -.5
            name, equals, _ = word.lstrip("-").partition("=")
            options.append([word])
            wanted = 0 if equals or name in flags else math.inf if name in multiple else 1
        elif wanted:
            options[-1].append(word)
            wanted -= 1
        else:
            positional.append(word)
    return positional, [Option(tuple(option)) for option in options]


def rewrite(verb: str, words: Sequence[str]) -> list[str]:
    """Files and options after a verb of the Trainer as its parser takes them."""
    # these import torch, which tables and help texts of other verbs do not need
    from pe_lightning.cli import recipes
    from pe_lightning.results.checkpoint_files import locate
    from pe_lightning.training.export import saved_settings

    positional, options = read(words)
    options = [option for option in options if option.name not in VERBOSE]
    given = {option.key: option.value for option in options}
    asks_help = any(key in ("h", "help") or key.endswith(".help") for key in given)
    if verb == "fit":
        if "init" in given and not given.keys() & {"config", "model"}:
            config = runs.of_checkpoint(locate(given["init"] or "")) / runs.CONFIG
            if not config.is_file():
                raise InputError(
                    f"--init {given['init']!r} is not of a run directory with a {runs.CONFIG}: give --config too"
                )
            given["config"] = str(config)
            options.append(Option((f"--config={config}",)))
        if positional:
            options += [Option((word,)) for word in recipes.words_for(positional, given)]
            # options beside files change the recipe, wherever the recipe stands
            options = sorted(options, key=lambda option: option.key != "config")
            positional = []
        elif not (asks_help or given.keys() & {"config", "model", "data", "ckpt_path"}):
            raise InputError("fit needs signals, pe-lightning fit my.jpg, or a recipe, pe-lightning fit --config image/demo")
        if _is_trained(given, options):
            steps = -1 if "trainer.max_epochs" in given else DEFAULT_STEPS
            options.append(Option((f"--trainer.max_steps={steps}",)))
    if not (asks_help or "print_config" in given):
        path = given.get("ckpt_path")
        if path is not None:
            settings = saved_settings(path, verb, configured="config" in given)
            options = [Option((f"--config={as_yaml(settings)}",)), *options]
        elif verb != "fit":
            raise InputError(f"{verb} needs a checkpoint: pe-lightning {verb} --ckpt_path RUN/checkpoints/last.ckpt")
    rate = "model.optimizer.lr"
    if any(option.key == rate for option in options) and merged(options).get("model.optimizer") in (None, "null"):
        # of the model's default optimiser
        options = [Option(("--model.lr", *option.values)) if option.key == rate else option for option in options]
    options = _hosted(options)
    # the name of a class resets the arguments before it: it precedes them, unless a configuration is between them
    files = max((place + 1 for place, option in enumerate(options) if option.key == "config"), default=0)
    ordered: list[Option] = []
    for option in options:
        places = [n for n, other in enumerate(ordered) if n >= files and other.key.startswith(f"{option.key}.")]
        ordered.insert(min(places, default=len(ordered)) if option.key in CLASS_KEYS else len(ordered), option)
    with_arguments = frozenset(option.key.rpartition(".")[0] for option in ordered)
    spelt = [word for option in ordered for word in _spelt(option, with_arguments)]
    return [*spelt, *positional]


def _is_trained(given: Mapping[str, str | None], options: Sequence[Option]) -> bool:
    """Whether options put a model that takes steps in place of the model of an exact fit, and no number of steps."""
    if not given.keys() & {"model", "model.solver"} or "trainer.max_steps" in given:
        return False
    settings, models = merged(options), find_registry("models")
    try:
        cls = models.get(str(settings.get("model")))
    except InputError:  # the parser says what is wrong
        return False
    has_solver = "solver" in models.parameters(cls) and settings.get("model.solver") not in (None, "null")
    return settings.get("trainer.max_steps") == 0 and not (getattr(cls, "solves", False) or has_solver)


def merged(options: Sequence[Option]) -> dict[str, Any]:
    """The settings of configurations and options by dotted keys, classes by their names; the last of a key counts."""
    merged: dict[str, Any] = {}
    for option in options:
        if option.key == "config" and option.value is not None:
            settings = runs.flatten(_settings(option.value)[1])
            merged |= {key.replace(".init_args", "").removesuffix(".class_path"): value for key, value in settings}
        else:
            merged[option.key] = option.value
    return merged


def _settings(config: str) -> tuple[str, dict[str, Any]]:
    """The configuration that ``--config`` means, as the parser takes it, and its settings."""
    from pe_lightning.cli import recipes

    found = recipes.find(config)
    if found.startswith("{"):
        try:
            return found, load_yaml(found)
        except yaml.YAMLError as error:
            raise InputError(f"--config {paragraph(found, 80)!r} is not YAML: {paragraph(str(error), 200)}") from error
    settings, text = read_config(Path(found)), Path(found).read_text(encoding="utf-8")
    # jsonargparse reads files in the encoding of the locale
    readable = text.isascii() or codecs.lookup(locale.getpreferredencoding(False)).name == "utf-8"
    return found if readable else as_yaml(settings), settings


def _hosted(options: list[Option]) -> list[Option]:
    """The options with a network as ``--model`` given to the module that trains networks, with its own arguments."""
    if not any(option.key == "model" and is_network(option.value) for option in options):
        return options
    hosted = []
    for option in options:
        section, _, rest = option.key.partition(".")
        if option.key == "model":
            hosted += [Option((f"--model={HOST}",)), Option((f"--model.network={option.value}",))]
        elif section == "model" and rest.partition(".")[0] not in _host_arguments():
            hosted.append(Option((f"--model.network.{rest}", *option.values)))
        else:
            hosted.append(option)
    return hosted


def hosted(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration in which a network as ``model`` is given to the module that trains networks."""
    model = settings.get("model")
    name, given = (model.get("class_path"), model.get("init_args") or {}) if isinstance(model, Mapping) else (model, {})
    if not is_network(name):
        return settings
    own = {key: value for key, value in given.items() if key in _host_arguments()}
    network = {"class_path": name, "init_args": {key: value for key, value in given.items() if key not in own}}
    return {**settings, "model": {"class_path": HOST, "init_args": {"network": network, **own}}}


def is_network(name: object) -> bool:
    """Whether this names a model that is no LightningModule."""
    from lightning.pytorch import LightningModule

    try:
        return isinstance(name, str) and not issubclass(find_registry("models").get(name), LightningModule)
    except InputError:  # the parser says what is wrong
        return False


def _host_arguments() -> Collection[str]:
    models = find_registry("models")
    return models.parameters(models.get(HOST)).keys()


def _spelt(option: Option, with_arguments: frozenset[str]) -> list[str]:
    from lightning.pytorch import callbacks as lightning_callbacks

    key, value = option.key, option.value
    if key in ("h", "help"):
        return ["--help"]
    if option.name == f"-{key}":  # unknown
        return list(option.words)
    if value is None:
        return list(option.words) if option.key.startswith("print_config") else [f"--{key}", *option.values]
    if key == "config":
        found, settings = _settings(value)
        import_named(settings)
        if (changed := hosted(settings)) is not settings:
            found = as_yaml(changed)
        return [f"--config={found}"]
    named = NAMED.get(key.rstrip("+")) if value.isidentifier() else None
    others_class = named == "callbacks" and (
        value == "null" or hasattr(lightning_callbacks, value) or value not in find_registry(named)
    )
    if named and not others_class:
        value = path_of(find_registry(named).get(value))
    if key in DESCRIBED & with_arguments and re.fullmatch(r"[A-Za-z_][\w.]*", value):
        # jsonargparse adds arguments to a mapping, not to a word; a network may have an argument `name`
        value = as_yaml({"class_path" if key == "model.network" else "name": value})
    if key == "data.missing" and value.startswith("#"):  # a colour; jsonargparse takes it for a comment
        value = as_yaml([value])
    return [f"--{key}={value}"]


def import_named(settings: Any, key: str = "") -> None:
    """Imports the plugins whose classes a configuration names: the parser finds only imported classes by name."""
    if isinstance(settings, str) and key in ("class_path", "model", "data", "callbacks"):
        for registry in NAMED.values():
            find_registry(registry).load_plugins(settings)
    for inner, value in settings.items() if isinstance(settings, Mapping) else ():
        import_named(value, str(inner))
    for value in settings if isinstance(settings, list) else ():
        import_named(value, key)


@cache
def accept_any_names() -> None:
    """Makes jsonargparse read file names of any bytes; to be called before a parser is."""
    set_loader("yaml", with_any_names(get_loader("yaml")), exceptions=(yaml.YAMLError,))
