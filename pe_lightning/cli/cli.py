"""The verbs that train and evaluate: a :class:`~lightning.pytorch.cli.LightningCLI`, and what it adds to its Trainer."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import lightning
import torch
import yaml
from jsonargparse import ActionConfigFile, ArgumentError, Namespace, dict_to_namespace, set_parsing_settings  # type: ignore[attr-defined]
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import WandbLogger

from pe_lightning.cli.arguments import (
    DEFAULT_STEPS,
    VERBOSE,
    accept_any_names,
    check_names,
    hosted,
    import_named,
    read,
    restore_values,
    rewrite,
)
from pe_lightning.cli.help import OUTPUT, PURPOSES, short_help
from pe_lightning.cli.messages import explain, root_message
from pe_lightning.errors import InputError, say
from pe_lightning.registry import asked_modules
from pe_lightning.results import runs
from pe_lightning.results.checkpoint_files import locate, read_checkpoint
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import user_path
from pe_lightning.training import FunctionModule, SignalDataModule, TrainedModule
from pe_lightning.training.base import refuse_other_model
from pe_lightning.training.callbacks import GracefulStop, PSNRProgressBar, RunRecorder, WandbSettings
from pe_lightning.training.callbacks.base import refuse_lost_results
from pe_lightning.training.callbacks.loggers import wandb_may_fail
from pe_lightning.training.checkpoints import BestAndLast, FiniteWeights, restoring
from pe_lightning.training.datamodule import OutputGrid
from pe_lightning.training.final_score import FinalScore
from pe_lightning.training.fit import fold_scores
from pe_lightning.training.initialization import InitialWeights
from pe_lightning.training.interrupts import Interrupted, exit_status
from pe_lightning.training.quiet_fits import HIDDEN_WARNINGS, fit_quietly
from pe_lightning.training.resumption import Resumption, refuse_other_data

MEMORY_OPTIONS = frozenset({"signals_per_chunk", "points_per_chunk", "compile"})
"""Arguments of models that change memory and time, results only by rounding: they may differ from a checkpoint."""

OPTIMIZER_OPTIONS = frozenset({"encoder_lr", "lr", "weight_decay"})
"""Arguments of models that a resumed fit takes in place of the values in its checkpoint."""

NOT_OPTIONS = frozenset({"model", "train_dataloaders", "val_dataloaders", "dataloaders", "datamodule"})
"""Arguments of the Trainer's methods that the configuration provides."""

OF_ONE_COMMAND = ("ckpt_path", "weights_only")
"""Options that ``config.yaml`` leaves out: a run that is repeated is not resumed."""

INITIAL_WEIGHTS = f"{InitialWeights.__module__}.{InitialWeights.__qualname__}"

SECTIONS = frozenset({"trainer", "model", "data"})
"""Sections of a configuration that describe instances."""

TRAINER_DEFAULTS = {
    "trainer.max_steps": DEFAULT_STEPS,
    "trainer.enable_model_summary": False,  # the table at the end of a run has the number of parameters
    "trainer.num_sanity_val_steps": 0,  # validation is one deterministic batch of the same data
    "trainer.callbacks": [{"class_path": runs.RECORDER}],  # of every run: its arguments follow without its name
}


def run(verb: str, arguments: Sequence[str]) -> int:
    """Runs a verb of the Trainer with command-line arguments; the exit status is 0, or tells the signal."""
    prepare(verbose=not VERBOSE.isdisjoint(arguments))
    files, options = read(arguments)
    if any(option.key in ("h", "help") and option.value != "all" for option in options):
        say(*short_help(verb, files, options).splitlines())
        return 0
    command = CommandLine(verb, rewrite(verb, arguments))
    command.execute()
    # Lightning treats a started process that reports an interrupt as failed
    return exit_status(command.stop.signum) if command.stop.signum and command.trainer.is_global_zero else 0


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
                restore_values(config, given)
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
    processors, count = os.cpu_count() or 1, config.trainer.devices
    if str(count).isdigit() and int(count) > max(64, 4 * processors):  # all of them would be started
        raise InputError(f"trainer.devices: {count} processes are too many for {processors} processors")
    if not 0 <= int(config.seed_everything) < 2**32:
        raise InputError(f"seed_everything must be an integer from 0 to {2**32 - 1}; got {config.seed_everything}")
    for name in ("accumulate_grad_batches", "check_val_every_n_epoch", "val_check_interval"):
        if isinstance(value := config.trainer[name], (int, float)) and value <= 0:
            raise InputError(f"trainer.{name} must be above 0; got {value}")
    if config.weights_only is False:
        raise InputError("weights_only: false would run code of the checkpoint; leave it out")
    config.weights_only = True  # Lightning requires it
    if verb == "fit" and _plain(config.data).get("validation", 0) is None and _selects_by_validation(config):
        config.data.init_args.validation = "auto"
    if config.ckpt_path:  # from an option, a configuration or the environment
        config.ckpt_path = str(locate(config.ckpt_path))
    return config


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
    with _input_errors(), asked_modules():
        instances: Namespace = make_parser(verb).instantiate_classes(chosen)
    return instances


@contextmanager
def _input_errors() -> Iterator[None]:
    try:
        yield
    except (ValueError, MisconfigurationException) as error:
        raise InputError(root_message(error)) from error


class CommandLine(LightningCLI):
    """A verb of the Trainer with its objects, from a configuration to the run.

    Args:
        verb: ``fit``, ``validate``, ``test`` or ``predict``.
        args: Arguments, or a configuration as plain values, as :func:`parse` takes them.
        data: The DataModule in place of a new one.
        interactive: Whether the Trainer draws a progress bar and handles signals; else both are the caller's.
        **recorder: Arguments of the recorder that differ from the configuration, such as ``folder``.

    Attributes:
        recorder: The callback that keeps the run directory.
        best: The callback that writes the checkpoints of a fit.
        stop: The callback that stops a fit at signals.
    """

    def __init__(
        self,
        verb: str,
        args: list[str] | dict[str, Any],
        *,
        data: LightningDataModule | None = None,
        interactive: bool = True,
        **recorder: Any,
    ) -> None:
        self.verb = verb
        self.given_data = data
        self.interactive = interactive
        self.of_recorder = recorder
        self.stop = GracefulStop(listen=interactive)
        options: dict[str, Any] = {"auto_configure_optimizers": False, "load_from_checkpoint_support": False}
        super().__init__(LightningModule, LightningDataModule, args=args, run=False, **options)

    def setup_parser(self, *_: Any) -> None:
        self.parser = make_parser(self.verb)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        self.config = parse(self.verb, args)

    def before_instantiate_classes(self) -> None:
        """Completes the arguments of the recorder; a DataModule that is given takes the place of its description."""
        config, trainer = self.config, self.config.trainer
        recorder = runs.recorder_of(trainer.callbacks)
        if self.verb == "fit":
            tree = plain_values("fit", config)
            recorder.config = {key: value for key, value in tree.items() if key not in OF_ONE_COMMAND}
            if _plain(config.data).get("validation") == "auto":
                rank_zero_info(
                    "--data.validation is auto: a tenth of the trained samples is held out of training for val/ scores, by "
                    "which callbacks and schedulers select; 0 trains on these too, and they select by the samples of test/."
                )
        recorder.ckpt_path = config.ckpt_path
        if recorder.root is None and trainer.default_root_dir is not None:
            recorder.root = str(user_path(trainer.default_root_dir) / "runs")
        recorder.log &= trainer.logger is not False and not trainer.barebones
        for name, value in self.of_recorder.items():
            recorder[name] = value
        if self.given_data is not None:
            config.data = self.given_data

    def instantiate_classes(self) -> None:
        with _input_errors(), asked_modules():
            super().instantiate_classes()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        if self.config.ckpt_path and isinstance(self.model, TrainedModule):
            saved = read_checkpoint(self.config.ckpt_path)["hyper_parameters"]
            may_differ = MEMORY_OPTIONS | (OPTIMIZER_OPTIONS if self.verb == "fit" else frozenset())
            refuse_other_model(saved, dict(self.model.hparams), may_differ)
        self.best = BestAndLast(getattr(self.model, "monitor", None), getattr(self.model, "monitor_mode", "max"))
        options = {**self.config_init.trainer, **kwargs}
        resumes = self.config.ckpt_path is not None  # from its own weights
        given = [callback for callback in options["callbacks"] if not (resumes and isinstance(callback, InitialWeights))]
        self.start = next((callback for callback in given if isinstance(callback, InitialWeights)), None)
        self.recorder = next(callback for callback in given if isinstance(callback, RunRecorder))
        # first: others may need its loggers; a caller that is not interactive draws its own bar
        others = [c for c in given if c is not self.recorder and (self.interactive or not isinstance(c, ProgressBar))]
        chosen: list[Callback] = [self.recorder, *others, self.stop]
        own = {type(callback) for callback in [*chosen, *self.model.configure_callbacks()]}
        chosen += [cls() for cls in (Resumption, FiniteWeights) if cls not in own]  # a module of the user's own
        has_bar = options["barebones"] or any(isinstance(callback, ProgressBar) for callback in others)
        if not self.interactive:
            options["enable_progress_bar"] = False
        elif options["enable_progress_bar"] is not False and not has_bar:
            chosen.append(PSNRProgressBar())
        if self.verb == "fit":
            if not options["barebones"] and options["enable_checkpointing"] is not False:
                chosen.append(self.best)
            if isinstance(self.model, FunctionModule):
                chosen.append(FinalScore(logs=False))  # a test follows
        if options["logger"] in (None, True):
            options["logger"] = False  # the recorder attaches loggers once the run has a directory
        try:
            trainer = Trainer(**{**options, "callbacks": chosen})
        except TypeError as error:  # raised by Lightning for --trainer.devices x
            raise InputError(str(error)) from error
        refuse_lost_results(trainer)
        return trainer

    def execute(self) -> None:
        """Runs the verb. A fit ends with the test evaluation of the last weights.

        Raises:
            InputError: If the model cannot represent the data, or the checkpoint does not fit the model.
            Interrupted: If a signal stopped a fit whose signals the caller handles; its checkpoint is written.
        """
        if isinstance(self.datamodule, SignalDataModule):
            self.recorder.picture_scores.check(self.datamodule)
        if self.verb == "fit":
            self._check_data()
            self._score_folds()
            self._build_model()
        method = getattr(self.trainer, self.verb)
        options = {name: self.config[name] for name in inspect.signature(method).parameters.keys() - NOT_OPTIONS}
        if self.verb == "test":
            options["verbose"] = False  # the recorder prints the table
        with restoring():
            method(self.model, datamodule=self.datamodule, **options)
            if self.stop.signum is not None and not self.stop.listen:
                raise Interrupted(self.stop.signum)  # the fit is to be resumed
            if self.verb == "fit":
                self.trainer.test(self.model, datamodule=self.datamodule, verbose=False, weights_only=True)
        if self.verb == "fit" and any(isinstance(logger, WandbLogger) for logger in self.trainer.loggers):
            import wandb

            with wandb_may_fail():
                # a run that is torn down would stay the current one of this process
                wandb.finish(exit_code=exit_status(self.stop.signum or 0) if self.stop.preempted else None)
                wandb.teardown()  # waits for the process of wandb, which writes its last records after finish() returns

    def _check_data(self) -> None:
        # before any work; fits in Python refuse when the checkpoint is loaded
        if self.config.ckpt_path:
            self.datamodule.prepare_data()
            refuse_other_data(read_checkpoint(self.config.ckpt_path), self.datamodule)

    def _score_folds(self) -> None:
        data, model = self.datamodule, self.model
        if not isinstance(data, SignalDataModule) or not isinstance(model, FunctionModule) or data.folds is None:
            return
        if self.start is not None:
            self.start.refuse_folds(data)
        if self.trainer.world_size > 1:
            raise InputError("folds are fitted by one process: set --trainer.devices 1, or leave out --data.folds")
        names = ("max_steps", "max_epochs", "accelerator", "precision")
        options = {name: self.config.trainer[name] for name in names if self.config.trainer[name] is not None}
        data.prepare()
        self.recorder.durations.mark("reading")
        model.fold_scores = fold_scores(model, data, functools.partial(fit_quietly, devices=1, **options))
        self.recorder.durations.mark("folds")

    def _build_model(self) -> None:
        # bad input fails before anything is started or written
        if isinstance(self.model, TrainedModule) and isinstance(self.datamodule, self.model.takes_data):
            if self.start is not None:
                self.start.apply(self.model, self.datamodule)
            self.model.build_from(self.datamodule, self.trainer.strategy.root_device)
            self.best.monitor = self.model.monitor  # the metric may be the data's


def _plain(part: Any) -> dict[str, Any]:
    arguments = part.get("init_args") if part else None
    return arguments.as_dict() if isinstance(arguments, Namespace) else dict(arguments or {})


def _selects_by_validation(config: Namespace) -> bool:
    """Whether a configured callback or scheduler acts on ``val/`` scores, and does not only write checkpoints."""
    callbacks = config.trainer.callbacks or []
    scheduler = config.model.get("init_args", {}).get("lr_scheduler")
    for part in [*(callbacks if isinstance(callbacks, list) else [callbacks]), scheduler or {}]:
        name = str(part.get("class_path", "")).rpartition(".")[2]
        monitored = _plain(part).get("monitor") or ""
        if (name == "ReduceLROnPlateau" and not monitored) or (name != "ModelCheckpoint" and monitored.startswith("val/")):
            return True
    return False
