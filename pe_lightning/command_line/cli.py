"""The verbs that train and evaluate: their parser, and one function from a configuration to data, model and Trainer.

The options are those of :class:`lightning.pytorch.cli.LightningCLI`, whose parser class builds them.
"""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import lightning
import torch
import yaml
from jsonargparse import ActionConfigFile, ArgumentError, Namespace  # type: ignore[attr-defined]
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer, seed_everything
from lightning.pytorch.cli import LightningArgumentParser, SaveConfigCallback
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities import rank_zero_info

from pe_lightning import runs, tasks
from pe_lightning.callbacks import GracefulStop, PSNRProgressBar, RunRecorder, WandbSettings
from pe_lightning.callbacks.loggers import wandb_may_fail
from pe_lightning.checkpoints import BestAndLast, locate, read_checkpoint, restoring
from pe_lightning.command_line import naming
from pe_lightning.command_line.arguments import VERBOSE, Known, rewrite
from pe_lightning.command_line.config_checks import check_names
from pe_lightning.command_line.help import PURPOSES, short_help
from pe_lightning.data import ImageDataModule, SignalDataModule
from pe_lightning.data.output import OutputGrid
from pe_lightning.errors import InputError, explain, root_message
from pe_lightning.files import write_atomically
from pe_lightning.folds import fold_scores
from pe_lightning.interrupts import Interrupted, exit_status
from pe_lightning.modules import ComplexLinear, CoordinateModule
from pe_lightning.modules.base import refuse_other_model
from pe_lightning.quiet_fits import HIDDEN_WARNINGS, fit_quietly
from pe_lightning.resumption import Resumption

__all__ = ["Job", "build", "execute", "instantiate", "make_parser", "parse", "plain_values", "prepare", "run"]

OPTIONS = [
    *(f"--{name}" for name in ("config", "encoder", "seed_everything", "trainer", "model", "data", "wandb", "ckpt_path")),
    *(f"--trainer.{name}" for name in inspect.signature(Trainer).parameters),
    *(f"--wandb.{name}" for name in inspect.signature(WandbSettings).parameters),
    *(f"--{name}" for name in ("float32_matmul_precision", "output_shape", "output_format", "scale", "at")),
    *(f"--data.{name}" for name in naming.SHORT_FORMS),
]
"""Options offered as spelling suggestions, besides the arguments of the named classes."""

MEMORY_OPTIONS = frozenset({"signals_per_chunk", "points_per_chunk"})
"""Arguments of models that change memory and time but no result: they may differ from those of a checkpoint."""

NOT_OPTIONS = frozenset({"model", "train_dataloaders", "val_dataloaders", "dataloaders", "datamodule"})
"""Arguments of the Trainer's methods that the configuration provides."""

SECTIONS = frozenset({"trainer", "model", "data"})
"""Sections of a configuration that describe instances."""

TRAINER_DEFAULTS = {
    "trainer.max_steps": 2000,  # as in the papers
    "trainer.enable_model_summary": False,  # the table at the end of a run has the number of parameters
    "trainer.num_sanity_val_steps": 0,  # validation is one deterministic batch of the same data
}


def run(verb: str, arguments: Sequence[str]) -> int:
    """Runs a verb of the Trainer with command-line arguments.

    Returns:
        The exit status: 0, or that of the signal that ended a fit early.

    Raises:
        InputError: If the arguments, the data or the checkpoint cannot be used.
    """
    prepare(verbose=not VERBOSE.isdisjoint(arguments))
    known = Known()
    words = rewrite(verb, arguments, known)
    if known.short_help:
        named = {"model": ComplexLinear, "data": ImageDataModule, **known.classes}
        print(short_help(verb, **named), end="")
        return 0
    job = build(verb, parse(verb, words))
    execute(job)
    # Lightning treats a started process that reports an interrupt as failed
    return exit_status(job.stop.signum) if job.stop.signum and job.trainer.is_global_zero else 0


def prepare(verbose: bool = False) -> None:
    """Loads plugins and names, and filters messages; to be called before :func:`parse`.

    Args:
        verbose: Whether Lightning's notes are shown: seed, devices, why a fit ends.
    """
    naming.install()
    for name in ("fabric.utilities.seed", "fabric.utilities.distributed", "pytorch.utilities.rank_zero"):
        logger = logging.getLogger(f"lightning.{name}")
        logger.removeFilter(_is_ours)
        if not verbose:
            logger.addFilter(_is_ours)
    for message in HIDDEN_WARNINGS:
        warnings.filterwarnings("ignore", message=message)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a record is a warning, or was logged outside Lightning: this package logs through the same logger."""
    return record.levelno > logging.INFO or Path(lightning.__file__).parent not in Path(record.pathname).parents


@functools.cache
def make_parser(verb: str) -> LightningArgumentParser:
    """The parser of ``fit``, ``validate``, ``test`` or ``predict``, for any LightningModule and LightningDataModule."""
    parser = LightningArgumentParser(
        prog=f"pe-lightning {verb}",
        usage=f"pe-lightning {verb} [options]; pe-lightning {verb} --help is shorter",
        description=PURPOSES[verb],
        parser_mode=naming.MODE,
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
    parser.add_argument(
        "--float32_matmul_precision",
        type=Literal["highest", "high", "medium"],
        default="highest",
        help="Precision of float32 products in training steps on a GPU: 'highest' is float32, 'high' TF32 (faster, "
        "10 bits), 'medium' bfloat16. Exact fits and Gram matrices are always computed in full precision.",
    )
    if verb == "predict":
        parser.set_defaults({"data": {"class_path": f"{OutputGrid.__module__}.{OutputGrid.__qualname__}"}})
        shape = "Samples per axis, such as 1024 1024; by default the size that the model was fitted at."
        parser.add_argument("--output_shape", type=int, nargs="+", default=[], help=shape)
        scale = "Samples per axis relative to the size that the model was fitted at, in place of output_shape."
        parser.add_argument("--scale", type=float, default=1.0, help=scale)
        places = "For models of scattered points: a file with columns of coordinates, at whose rows to predict."
        parser.add_argument("--at", type=str | None, default=None, help=places)
        written = "Format: png, mp4, gif, wav, npy or h5; auto suits the source (PNG, MP4, WAV, else NPY). "
        written += "For models of scattered points: nc, tif, csv or npy."
        parser.add_argument("--output_format", type=str, default="auto", help=written)
        deviations = "Write standard deviations beside the signals, for models of one signal that have them (Adaptive)."
        parser.add_argument("--output_std", type=bool, default=False, help=deviations)
        parser.link_arguments("output_shape", "data.init_args.output_shape", compute_fn=lambda given: given or None)
        for name in ("scale", "output_format", "at", "output_std"):
            parser.link_arguments(name, f"data.init_args.{name}")
    taken = inspect.signature(getattr(Trainer, verb)).parameters.keys()
    parser.add_method_arguments(Trainer, verb, skip={*NOT_OPTIONS & taken})
    parser.add_lightning_class_args(Trainer, "trainer")
    parser.set_defaults(TRAINER_DEFAULTS)
    return parser


def parse(verb: str, given: Sequence[str] | Mapping[str, Any]) -> Namespace:
    """The complete configuration of a verb. No class is instantiated to check it.

    Args:
        verb: ``fit``, ``validate``, ``test`` or ``predict``.
        given: Arguments as :func:`pe_lightning.command_line.arguments.rewrite` returns them, or a configuration of plain
            values.

    Raises:
        InputError: If an option is unknown, or a value is not allowed; the message is one paragraph.
    """
    parser = make_parser(verb)
    try:
        config: Namespace
        if isinstance(given, Mapping):
            config = parser.parse_object(copy.deepcopy(dict(given)))  # which it changes
        else:
            config = parser.parse_args(list(given))
    except ArgumentError as error:
        raise InputError(explain(str(error), OPTIONS)) from error
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


def plain_values(verb: str, config: Namespace) -> dict[str, Any]:
    """A configuration as plain values, which :func:`parse` takes again."""
    return dict(yaml.safe_load(make_parser(verb).dump(config, skip_none=False)))


def instantiate(verb: str, config: Namespace, sections: Collection[str] = SECTIONS) -> Namespace:
    """A configuration with instances in place of their descriptions; of ``trainer`` its arguments are instantiated.

    Args:
        verb: ``fit``, ``validate``, ``test`` or ``predict``.
        config: The complete configuration, from :func:`parse`.
        sections: Those of :data:`SECTIONS` to instantiate; the others are left out.

    Raises:
        InputError: If a constructor refuses its arguments.
    """
    chosen = config.clone()
    for section in SECTIONS - frozenset(sections):
        del chosen[section]
    with _input_errors():
        instances: Namespace = make_parser(verb).instantiate_classes(chosen)
    return instances


@contextmanager
def _input_errors() -> Iterator[None]:
    """Turns the errors of constructors into an :class:`InputError`."""
    try:
        yield
    except (ValueError, MisconfigurationException) as error:
        raise InputError(root_message(error)) from error


@dataclass(frozen=True)
class Job:
    """A verb of the Trainer, with all objects that it takes.

    Args:
        verb: ``fit``, ``validate``, ``test`` or ``predict``.
        config: The complete configuration.
        data: The DataModule.
        model: The module; of a fit it has no parameters before :func:`execute`.
        trainer: The Trainer, with the callbacks that every run has.
        recorder: Its callback that keeps the run directory.
        best: Its callback that writes the checkpoints of a fit.
        stop: Its callback that stops a fit at signals.
    """

    verb: str
    config: Namespace
    data: LightningDataModule
    model: LightningModule
    trainer: Trainer
    recorder: RunRecorder
    best: BestAndLast
    stop: GracefulStop


def build(
    verb: str,
    config: Namespace,
    *,
    data: LightningDataModule | None = None,
    callbacks: Sequence[Callback] = (),
    interactive: bool = True,
    **recorder_options: Any,
) -> Job:
    """Seeds the random generators, and makes data, model and Trainer of a configuration.

    Args:
        verb: ``fit``, ``validate``, ``test`` or ``predict``.
        config: The complete configuration, from :func:`parse`.
        data: The DataModule in place of a new one.
        callbacks: Further callbacks, after those of every run.
        interactive: Whether the Trainer draws a progress bar and handles signals; else both are the caller's.
        **recorder_options: Further arguments of :class:`~pe_lightning.callbacks.RunRecorder`.

    Raises:
        InputError: If a constructor refuses its arguments, or the model is not the checkpoint's.
    """
    if config.seed_everything is not False:
        seed = None if config.seed_everything is True else config.seed_everything
        config.seed_everything = seed_everything(seed, workers=True)
    torch.set_float32_matmul_precision(config.float32_matmul_precision)
    instances = instantiate(verb, config, SECTIONS if data is None else SECTIONS - {"data"})
    data, model, options = data or instances.data, instances.model, {**instances.trainer}
    if config.ckpt_path and isinstance(model, (CoordinateModule, tasks.AttentionTask)):
        refuse_other_model(read_checkpoint(config.ckpt_path)["hyper_parameters"], dict(model.hparams), MEMORY_OPTIONS)
    if verb == "fit" and _plain(config.data).get("validation") == "auto":
        rank_zero_info(
            "--data.validation is auto: a tenth of the trained samples is held out of training for val/ scores, by which "
            "callbacks and schedulers select; 0 trains on these too, and they select by the samples of test/."
        )
    log = options["logger"] is not False
    recorder = RunRecorder(ckpt_path=config.ckpt_path, wandb=instances.wandb, log=log, **recorder_options)
    best = BestAndLast(getattr(model, "monitor", None), getattr(model, "monitor_mode", "max"))
    stop = GracefulStop(listen=interactive)
    given = options["callbacks"] or []
    chosen: list[Callback] = [*(given if isinstance(given, list) else [given]), recorder, stop]
    if not any(isinstance(callback, Resumption) for callback in model.configure_callbacks()):
        chosen.append(Resumption())  # a module of the user's own
    if not interactive:
        options["enable_progress_bar"] = False
    elif options["enable_progress_bar"] is not False:
        chosen.append(PSNRProgressBar())
    if verb == "fit" and options["enable_checkpointing"] is not False:
        chosen.append(best)
    if not options["fast_dev_run"]:
        chosen.append(KeepConfig(make_parser(verb), config, recorder))
    if options["logger"] in (None, True):
        options["logger"] = False  # the recorder attaches loggers once the run has a directory
    try:
        with _input_errors():
            trainer = Trainer(**{**options, "callbacks": [*chosen, *callbacks]})
    except TypeError as error:  # raised by Lightning for --trainer.devices x
        raise InputError(str(error)) from error
    return Job(verb, config, data, model, trainer, recorder, best, stop)


def _plain(part: Any) -> dict[str, Any]:
    """The arguments of a class in a configuration, as plain values."""
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


def execute(job: Job) -> None:
    """Runs the verb. A fit ends with the test evaluation of the last weights.

    Raises:
        InputError: If the model cannot represent the data, or the checkpoint does not fit the model.
        Interrupted: If a signal stopped a fit whose signals the caller handles; its checkpoint is written.
    """
    if job.verb == "fit":
        _score_folds(job)
        _build_model(job)
    method = getattr(job.trainer, job.verb)
    options = {name: job.config[name] for name in inspect.signature(method).parameters.keys() - NOT_OPTIONS}
    if job.verb == "test":
        options["verbose"] = False  # the recorder prints the table
    with restoring():
        method(job.model, datamodule=job.data, **options)
        if job.stop.signum is not None and not job.stop.listen:
            raise Interrupted(job.stop.signum)  # the fit is to be resumed
        if job.verb == "fit":
            job.trainer.test(job.model, datamodule=job.data, verbose=False, weights_only=True)
    if job.verb == "fit" and any(isinstance(logger, WandbLogger) for logger in job.trainer.loggers):
        import wandb

        with wandb_may_fail():
            # a run that is torn down would stay the current one of this process
            wandb.finish(exit_code=exit_status(job.stop.signum or 0) if job.stop.preempted else None)
            wandb.teardown()  # waits for the process of wandb, which writes its last records after finish() returns


def _score_folds(job: Job) -> None:
    """Scores copies of the model that are fitted to all folds but one, if the data has folds.

    Raises:
        InputError: If several processes fit.
    """
    if not isinstance(job.data, SignalDataModule) or not isinstance(job.model, CoordinateModule) or job.data.folds is None:
        return
    if job.trainer.world_size > 1:
        raise InputError("folds are fitted by one process: set --trainer.devices 1, or leave out --data.folds")
    names = ("max_steps", "max_epochs", "accelerator", "precision")
    options = {name: job.config.trainer[name] for name in names if job.config.trainer[name] is not None}
    job.data.prepare()
    job.recorder.durations.mark("reading")
    job.model.fold_scores = fold_scores(job.model, job.data, functools.partial(fit_quietly, devices=1, **options))
    job.recorder.durations.mark("folds")


def _build_model(job: Job) -> None:
    """Builds the model for the data, so that bad input fails before anything is started or written."""
    if isinstance(job.data, SignalDataModule) and isinstance(job.model, CoordinateModule):
        job.model.build_from(job.data, job.trainer.strategy.root_device)
        job.best.monitor = job.model.monitor  # the metric is the data's
    elif isinstance(job.data, tasks.TaskDataModule) and isinstance(job.model, tasks.AttentionTask):
        job.model.build(job.data.info)


class KeepConfig(SaveConfigCallback):
    """Writes the resolved configuration of a fit into the run directory."""

    def __init__(self, parser: LightningArgumentParser, config: Namespace, recorder: RunRecorder) -> None:
        super().__init__(parser, config, save_to_log_dir=False)
        self.recorder = recorder

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Writes the configuration of a fit. An evaluation leaves that of its run unchanged."""
        if stage == "fit":
            super().setup(trainer, pl_module, stage)

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Writes ``config.yaml`` into the run directory."""
        text = self.parser.dump(self.config, skip_none=False)
        self.recorder.hyper_parameters = yaml.safe_load(text)
        if self.recorder.run_dir is not None:
            write_atomically(self.recorder.run_dir / runs.CONFIG, text)
