"""The parser of the verbs that train and evaluate, and complete configurations."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import os
import re
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import reduce
from pathlib import Path
from typing import Any

import lightning
import torch
import yaml
from jsonargparse import ActionConfigFile, ArgumentError, Namespace, dict_to_namespace, get_loader, set_parsing_settings  # type: ignore[attr-defined]
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.cli import LightningArgumentParser

from pe_lightning.cli.arguments import DEFAULT_STEPS, DESCRIBED, accept_any_names, hosted, import_named
from pe_lightning.cli.help import OUTPUT, PURPOSES
from pe_lightning.cli.messages import explain, root_message
from pe_lightning.errors import InputError, refuse
from pe_lightning.registry import asked_modules
from pe_lightning.results import runs
from pe_lightning.results.checkpoint_files import locate
from pe_lightning.training.callbacks import RunRecorder, WandbSettings
from pe_lightning.training.datamodule import OutputGrid
from pe_lightning.training.initialization import InitialWeights
from pe_lightning.training.quiet_fits import HIDDEN_WARNINGS

NOT_OPTIONS = frozenset({"model", "train_dataloaders", "val_dataloaders", "dataloaders", "datamodule"})
"""Arguments of the Trainer's methods that the configuration provides."""

INITIAL_WEIGHTS = f"{InitialWeights.__module__}.{InitialWeights.__qualname__}"

SECTIONS = frozenset({"trainer", "model", "data"})
"""Sections of a configuration that describe instances."""

TRAINER_DEFAULTS = {
    "trainer.max_steps": DEFAULT_STEPS,
    "trainer.enable_model_summary": False,  # the table at the end of a run has the number of parameters
    "trainer.num_sanity_val_steps": 0,  # validation is one deterministic batch of the same data
    "trainer.callbacks": [{"class_path": runs.RECORDER}],  # of every run: its arguments follow without its name
}


def prepare(verbose: bool = False) -> None:
    """Limits what configurations may import, and hides notes of Lightning unless ``verbose``; precedes :func:`parse`."""
    accept_any_names()
    set_parsing_settings(instantiate_subclass_spec_in_any=False, import_path_denylist=[])  # enforces the default list
    for name in ("fabric.utilities.seed", "fabric.utilities.distributed", "pytorch.utilities.rank_zero"):
        logger = logging.getLogger(f"lightning.{name}")
        logger.removeFilter(_is_ours)
        if not verbose:
            logger.addFilter(_is_ours)
    for message in HIDDEN_WARNINGS:
        warnings.filterwarnings("ignore", message=message)


def _is_ours(record: logging.LogRecord) -> bool:
    # this package logs through the same logger
    return record.levelno > logging.INFO or Path(lightning.__file__).parent not in Path(record.pathname).parents


class _Parser(LightningArgumentParser):
    def dump(self, cfg: Namespace, *args: Any, **kwargs: Any) -> str:
        """Text of a configuration, with devices and enumerations by their names."""
        with asked_modules():  # it validates, and so imports text that may be a class path, as of --trainer.profiler
            return str(super().dump(_named(cfg), *args, **kwargs))


def _named(value: Any) -> Any:
    if isinstance(value, Namespace):
        return Namespace(**{key: _named(entry) for key, entry in vars(value).items()})  # type: ignore[no-untyped-call]
    if isinstance(value, list):
        return [_named(entry) for entry in value]
    if isinstance(value, torch.device):
        return str(value)
    return value.value if isinstance(value, str) and isinstance(value, Enum) else value


@functools.cache
def make_parser(verb: str) -> LightningArgumentParser:
    """The parser of a verb of the Trainer, for any LightningModule and LightningDataModule."""
    parser = _Parser(
        prog=f"pe-lightning {verb}",
        usage=f"pe-lightning {verb} [options]; pe-lightning {verb} --help is shorter",
        description=PURPOSES[verb],
        exit_on_error=False,
        allow_abbrev=False,
        dump_header=[f"lightning.pytorch=={lightning.__version__}"],
    )
    parser.add_argument("-c", "--config", action=ActionConfigFile, help="A configuration file, or the name of a recipe.")
    seed = "Seed of all random generators; true draws one."
    parser.add_argument("--seed_everything", type=bool | int, default=0, help=seed)
    parser.add_lightning_class_args(LightningModule, "model", subclass_mode=True)
    parser.add_lightning_class_args(LightningDataModule, "data", subclass_mode=True)
    parser.add_class_arguments(WandbSettings, "wandb")
    if verb == "fit":
        init = "Run directory, checkpoint or safetensors file whose weights a new fit starts from, at step 0."
        parser.add_argument("--init", type=str | None, default=None, help=init)
    if verb == "predict":
        parser.set_defaults({"data": {"class_path": f"{OutputGrid.__module__}.{OutputGrid.__qualname__}"}})
        for name, _, kind, default, text in OUTPUT:
            several = name == "output_shape"
            parser.add_argument(f"--{name}", type=kind, default=default, help=text, nargs="+" if several else None)
            parser.link_arguments(name, f"data.init_args.{name}", (lambda sizes: sizes or None) if several else None)
    taken = inspect.signature(getattr(Trainer, verb)).parameters.keys()
    parser.add_method_arguments(Trainer, verb, skip={*NOT_OPTIONS & taken})
    parser.add_lightning_class_args(Trainer, "trainer")
    parser.set_defaults(TRAINER_DEFAULTS)
    return parser


def parse(verb: str, given: Sequence[str] | Mapping[str, Any]) -> Namespace:
    """The complete configuration of a verb, from rewritten arguments or plain values. No class is instantiated."""
    parser = make_parser(verb)
    try:
        config: Namespace
        with asked_modules():
            if isinstance(given, Mapping):
                import_named(given)
                config = parser.parse_object(copy.deepcopy(dict(hosted(given))))  # which it changes
            else:
                config = parser.parse_args(list(given))
                _restore_values(config, given)
    except (ArgumentError, ImportError) as error:
        options = parser.get_defaults(skip_validation=True).keys(branches=True)
        raise InputError(explain(str(error), [f"--{name}" for name in ("config", "encoder", *options)])) from error
    _move_into_callbacks(config)
    if (init := config.pop("init", None)) is not None:
        if config.ckpt_path:
            raise InputError("--init starts a new fit, --ckpt_path resumes one: give one of them")
        start = {"class_path": INITIAL_WEIGHTS, "init_args": {"weights": str(locate(init))}}
        others = [entry for entry in config.trainer.callbacks if entry.class_path != INITIAL_WEIGHTS]
        config.trainer.callbacks = [dict_to_namespace(start), *others]  # options are of the last, the recorder
    check_names(config.as_dict())
    processors, count, seed = os.cpu_count() or 1, str(config.trainer.devices), config.seed_everything
    intervals = ("accumulate_grad_batches", "check_val_every_n_epoch", "val_check_interval")
    counts = {name: config.trainer[name] for name in intervals if isinstance(config.trainer[name], (int, float))}
    refuse(
        (
            count.isdigit() and int(count) > max(64, 4 * processors),  # all of them would be started
            f"trainer.devices: {count} processes are too many for {processors} processors",
        ),
        (not 0 <= int(seed) < 2**32, f"seed_everything must be an integer from 0 to {2**32 - 1}; got {seed}"),
        *((value <= 0, f"trainer.{name} must be above 0; got {value}") for name, value in counts.items()),
        (config.weights_only is False, "weights_only: false would run code of the checkpoint; leave it out"),
    )
    config.weights_only = True  # Lightning requires it
    if verb == "fit" and init_args_of(config.data).get("validation", 0) is None and _selects_by_validation(config):
        config.data.init_args.validation = "auto"
    if config.ckpt_path:  # from an option, a configuration or the environment
        config.ckpt_path = str(locate(config.ckpt_path))
    return config


def _restore_values(config: Namespace, words: Sequence[str]) -> None:
    """Sets arguments of descriptions that are or contain ``null``, or are quoted, which jsonargparse 4 makes other texts."""
    load = get_loader("yaml")
    for word in words:
        key, equals, value = word.removeprefix("--").partition("=")
        described = next((name for name in DESCRIBED if key.startswith(f"{name}.")), None)
        if described is None or not equals or not re.search(r"~|null|^['\"]", value, re.IGNORECASE):
            continue
        loaded = load(value)
        section, name = described.split(".")
        *path, last = key.removeprefix(f"{described}.").split(".")
        holder = reduce(lambda tree, part: tree.get(part, {}), ("init_args", name, *path), config[section])
        quoted = isinstance(loaded, str) and value[0] in "'\""
        if loaded is None or quoted or (isinstance(loaded, list) and None in loaded):
            holder[last] = load(loaded) if quoted else loaded  # as in a file, where the type takes numbers first


def check_names(tree: Any, path: str = "") -> None:
    """Refuses a parsed configuration that names anything but classes: the parser imports and calls functions, too.

    Default values of a named class may be functions. Descriptions are resolved later, by the registries.
    """
    if callable(tree) and not isinstance(tree, (type, os.PathLike)):  # the parser's paths are callable
        name = f"{getattr(tree, '__module__', None)}.{getattr(tree, '__qualname__', type(tree).__qualname__)}"
        raise InputError(
            f"{path or 'the configuration'}: {name!r} is not a class, and a configuration names classes only. Name a class, "
            "such as a callback of your own with this method, or set it in Python"
        )
    if isinstance(tree, (list, tuple)):
        for entry in tree:
            check_names(entry, path)
    if not isinstance(tree, Mapping):
        return
    module, _, name = str(tree.get("class_path", "")).rpartition(".")
    cls = getattr(sys.modules.get(module), name, None)
    if cls is not None and not isinstance(cls, type):
        raise InputError(f"class_path: {tree['class_path']!r} is not a class; a configuration names classes only")
    for key, value in tree.items():
        inner = f"{path}.{key}" if path else str(key)
        if key == "init_args" and isinstance(value, Mapping) and cls is not None:
            defaults = _defaults(cls)
            for argument, given in value.items():
                if defaults.get(argument) is not given:
                    check_names(given, f"{path}.{argument}" if path else str(argument))
        else:
            check_names(value, inner)


def _defaults(cls: type) -> dict[str, Any]:
    constructors = [vars(base)["__init__"] for base in reversed(cls.__mro__) if "__init__" in vars(base)]
    signatures = [inspect.signature(made) for made in constructors if inspect.isfunction(made)]
    return {name: value.default for signature in signatures for name, value in signature.parameters.items()}


def _move_into_callbacks(config: Namespace) -> None:
    """Moves settings that a stock LightningCLI does not know into the arguments of callbacks."""
    settings, defaults = config.pop("wandb").as_dict(), vars(WandbSettings())
    callbacks = config.trainer.callbacks or []
    init_args = {name: parameter.default for name, parameter in inspect.signature(RunRecorder).parameters.items()}
    others, without = [], dict(init_args)
    for entry in callbacks if isinstance(callbacks, list) else [callbacks]:
        if (named := runs.recorder_of([entry])) is None:
            others.append(entry)
        else:  # an entry of a file and an entry of options are one recorder
            init_args |= {name: value for name, value in vars(named).items() if value != without[name]}
    given = init_args["wandb"] or {}
    given = given.as_dict() if isinstance(given, Namespace) else given
    changed = {name: value for name, value in settings.items() if value != defaults[name]}
    init_args["wandb"] = {**defaults, **given, **changed}
    config.trainer.callbacks = [*others, dict_to_namespace({"class_path": runs.RECORDER, "init_args": init_args})]


def plain_values(verb: str, config: Namespace, defaults: bool = True) -> dict[str, Any]:
    """A configuration as plain values, which :func:`parse` takes again; without default values on request."""
    return dict(yaml.safe_load(make_parser(verb).dump(config, skip_none=False, skip_default=not defaults)))


def instantiate(verb: str, config: Namespace, sections: Collection[str] = SECTIONS) -> Namespace:
    """Some sections of a complete configuration with instances in place of descriptions; arguments of the Trainer, too."""
    chosen = config.clone()
    for section in SECTIONS - frozenset(sections):
        del chosen[section]
    with input_errors(), asked_modules():
        instances: Namespace = make_parser(verb).instantiate_classes(chosen)
    return instances


@contextmanager
def input_errors() -> Iterator[None]:
    """Raises errors of constructors as InputError, without the text of jsonargparse."""
    try:
        yield
    except (ValueError, MisconfigurationException) as error:
        raise InputError(root_message(error)) from error


def init_args_of(part: Any) -> dict[str, Any]:
    """The arguments of a class in a configuration; none without a class."""
    arguments = part.get("init_args") if part else None
    return arguments.as_dict() if isinstance(arguments, Namespace) else dict(arguments or {})


def _selects_by_validation(config: Namespace) -> bool:
    """Whether a configured callback or scheduler acts on ``val/`` scores, and does not only write checkpoints."""
    callbacks = config.trainer.callbacks or []
    scheduler = config.model.get("init_args", {}).get("lr_scheduler")
    for part in [*(callbacks if isinstance(callbacks, list) else [callbacks]), scheduler or {}]:
        name = str(part.get("class_path", "")).rpartition(".")[2]
        monitored = init_args_of(part).get("monitor") or ""
        if (name == "ReduceLROnPlateau" and not monitored) or (name != "ModelCheckpoint" and monitored.startswith("val/")):
            return True
    return False
