"""The verbs that train and evaluate: LightningCLI with our defaults, names and errors."""

from __future__ import annotations

import inspect
import logging
import os
import pydoc
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import lightning
import torch
import yaml
from jsonargparse import ArgumentError, Namespace
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.loggers import WandbLogger

from pe_lightning import encoders, naming, recipes, runs, tasks
from pe_lightning.callbacks import GracefulStop, PSNRProgressBar, RunRecorder, WandbSettings
from pe_lightning.callbacks.loggers import wandb_may_fail
from pe_lightning.checkpoints import BestAndLast, complete_arguments, locate, read_checkpoint, restoring
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.output import OutputGrid
from pe_lightning.errors import InputError, explain, root_message
from pe_lightning.files import write_atomically
from pe_lightning.modules import CoordinateModule
from pe_lightning.modules.base import refuse_other_model
from pe_lightning.resumption import Resumption

__all__ = ["CoordinateCLI", "prepare", "run"]

INTERRUPTED = 130
"""The exit status of a command that the user interrupted: 128 and the number of the signal."""

OPTIONS = [
    *(f"--{name}" for name in ("config", "seed_everything", "trainer", "model", "data", "wandb", "ckpt_path")),
    *(f"--trainer.{name}" for name in inspect.signature(Trainer).parameters),
    *(f"--wandb.{name}" for name in inspect.signature(WandbSettings).parameters),
    *(f"--{name}" for name in ("float32_matmul_precision", "output_shape", "output_format")),
    *(f"--data.{name}" for name in naming.SHORT_FORMS),
]
"""What can be misspelt and is no argument of a class that is named."""

VERBOSE = ("-v", "--verbose")
MEMORY_OPTIONS = frozenset({"signals_per_chunk", "points_per_chunk"})
"""Arguments of models that change memory and time, and no result: free to change where a checkpoint is loaded."""

NOT_FOR_USERS = [
    # Lightning 2.6 asks torch >= 2.13 about its trees in an outdated way
    r".*LeafSpec",
    # the data is one batch in memory: worker processes would only slow it down
    r"The '\w+' does not have many workers",
    # evaluating a checkpoint needs no callback that writes checkpoints
    r"Be aware that when using `ckpt_path`, callbacks used to create",
    # a resumed fit keeps its directory
    r"Checkpoint directory .* exists and is not empty",
]
"""Warnings that no user of this command can act on."""

TRAINER_DEFAULTS = {
    "max_steps": 2000,  # the papers'
    "enable_model_summary": False,  # the table that ends a run has the number of parameters
    "num_sanity_val_steps": 0,  # validation is one deterministic batch of the same data: nothing to try out first
}


def run(verb: str, arguments: Sequence[str]) -> int:
    """Runs a verb of the Trainer with command-line arguments.

    Returns:
        The exit status: 0, or 130 after an interrupt that ended a fit early.

    Raises:
        InputError: If something that was given has to be changed.
    """
    given = [argument for argument in arguments if argument not in VERBOSE]
    prepare(verbose=len(given) < len(arguments))
    given = recipes.with_recipe(given) if verb == "fit" else given
    with restoring():
        cli = CoordinateCLI([verb, *complete_arguments(verb, naming.expand_arguments(given))])
    # Lightning watches the processes that it started, and takes one that reports an interrupt for one that failed
    return INTERRUPTED if cli.stop.stopped and cli.trainer.is_global_zero else 0


def prepare(verbose: bool = False) -> None:
    """Loads plugins and names; to be called before a :class:`CoordinateCLI` is made.

    Args:
        verbose: Whether Lightning says what it does: seed, devices, why a fit ends.
    """
    naming.install()
    for name in ("fabric.utilities.seed", "fabric.utilities.distributed", "pytorch.utilities.rank_zero"):
        logger = logging.getLogger(f"lightning.{name}")
        logger.removeFilter(_is_ours)
        if not verbose:
            logger.addFilter(_is_ours)
    for message in NOT_FOR_USERS:
        warnings.filterwarnings("ignore", message=message)


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a record is a warning, or not written by Lightning: our notices go through its logger too."""
    return record.levelno > logging.INFO or Path(lightning.__file__).parent not in Path(record.pathname).parents


class CoordinateCLI(LightningCLI):
    """LightningCLI with the defaults of this package, for any LightningModule and LightningDataModule.

    Args:
        args: The verb and its arguments.
    """

    recorder_options: Mapping[str, Any] = {}
    """Further arguments of the run's :class:`~pe_lightning.callbacks.RunRecorder`."""
    _given_model: Namespace | None = None

    def __init__(self, args: list[str]) -> None:
        common: dict[str, Any] = {"parser_mode": naming.MODE, "exit_on_error": False, "allow_abbrev": False}
        listed = (
            f"Encoders: {', '.join(encoders.names())} (see pe-lightning encoders). Recipes for --config: "
            f"{', '.join(recipes.names())}. --encoder is short for --model.encoder; -v shows what Lightning says."
        )
        usage = {"fit": f"Fits signals: pe-lightning fit FILE ..., exactly unless --config says otherwise. {listed}"}
        super().__init__(
            LightningModule,
            LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            save_config_callback=KeepConfig,
            seed_everything_default=0,
            auto_configure_optimizers=False,
            # checkpoints hold plain hyper-parameters of our own making
            load_from_checkpoint_support=False,
            trainer_defaults=TRAINER_DEFAULTS,
            parser_kwargs=common
            | {verb: {**common, "prog": verb, "description": usage.get(verb, listed)} for verb in self.subcommands()},
            args=args,
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Adds the ``wandb`` group, the precision of matrix products and the output of ``predict``."""
        parser.add_class_arguments(WandbSettings, "wandb")
        parser.add_argument(
            "--float32_matmul_precision",
            type=Literal["highest", "high", "medium"],
            default="highest",
            help="Of float32 products in training steps on a GPU: 'highest' is float32, 'high' TF32 (faster, 10 bits), "
            "'medium' bfloat16. Exact fits and Gram matrices are always in full precision.",
        )
        if parser.prog == "predict":
            parser.set_defaults({"data": {"class_path": f"{OutputGrid.__module__}.{OutputGrid.__qualname__}"}})
            shape = "Samples per axis, such as 1024 1024; by default the size that the model was fitted at."
            parser.add_argument("--output_shape", type=int, nargs="+", default=[], help=shape)
            written = "What is written: auto suits the source (PNG, MP4, WAV, else NPY), or png, mp4, gif, wav, npy, h5."
            parser.add_argument("--output_format", type=str, default="auto", help=written)
            parser.link_arguments("output_shape", "data.init_args.output_shape", compute_fn=lambda given: given or None)
            parser.link_arguments("output_format", "data.init_args.output_format")

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parses, with errors of one paragraph, and refuses a model that is not the checkpoint's."""
        try:
            self.config = parser.parse_args(args if isinstance(args, list) else None)
        except ArgumentError as error:
            raise InputError(explain(str(error), OPTIONS)) from error
        given = self.config[self.config.subcommand]
        _check_classes(given.as_dict())
        processors, count = os.cpu_count() or 1, given.trainer.devices
        if str(count).isdigit() and int(count) > max(64, 4 * processors):  # they would all be started
            raise InputError(f"trainer.devices: {count} processes are too many for {processors} processors")
        self._given_model = given.model
        if not 0 <= int(given.seed_everything) < 2**32:
            raise InputError(f"seed_everything must be an integer from 0 to {2**32 - 1}; got {given.seed_everything}")
        for name in ("accumulate_grad_batches", "check_val_every_n_epoch", "val_check_interval"):
            if isinstance(value := given.trainer[name], (int, float)) and value <= 0:
                raise InputError(f"trainer.{name} must be above 0; got {value}")
        if given.weights_only is False:
            raise InputError("weights_only: false would run code of the checkpoint; leave it out")
        given.weights_only = True  # Lightning asks for it
        if given.ckpt_path:  # of an option, a configuration or the environment
            given.ckpt_path = path = str(locate(given.ckpt_path))
            with _input_errors():
                model = parser.instantiate_classes(self.config)[self.config.subcommand].model
            if isinstance(model, (CoordinateModule, tasks.AttentionTask)):
                refuse_other_model(read_checkpoint(path)["hyper_parameters"], dict(model.hparams), MEMORY_OPTIONS)

    def before_instantiate_classes(self) -> None:
        """Takes the options of the model as they were given, where LightningCLI has put those of the checkpoint."""
        if self._given_model is not None:
            self.config[self.config.subcommand].model = self._given_model

    def instantiate_classes(self) -> None:
        """Makes data, model and Trainer."""
        torch.set_float32_matmul_precision(self.config[self.config.subcommand].float32_matmul_precision)
        with _input_errors():
            super().instantiate_classes()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Adds the callbacks that every run has, unless their switches are off."""
        config = self.config_init[self.subcommand]
        trainer = config.trainer
        recorder = RunRecorder(
            ckpt_path=config.get("ckpt_path"),
            wandb=WandbSettings(**vars(config.wandb)),
            log=trainer.logger is not False,
            **self.recorder_options,
        )
        self.save_config_kwargs = {"recorder": recorder}
        self.stop = GracefulStop()
        callbacks: list[Any] = [recorder, self.stop]
        if not any(isinstance(callback, Resumption) for callback in self.model.configure_callbacks()):
            callbacks.append(Resumption())  # a module of the user's own
        if trainer.enable_progress_bar is not False:
            callbacks.append(PSNRProgressBar())
        self.best = BestAndLast(getattr(self.model, "monitor", None), getattr(self.model, "monitor_mode", "max"))
        if self.subcommand == "fit" and trainer.enable_checkpointing is not False:
            callbacks.append(self.best)
        given = trainer.callbacks or []
        trainer.callbacks = [*(given if isinstance(given, list) else [given]), *callbacks]
        if trainer.logger in (None, True):
            trainer.logger = False  # the recorder attaches loggers once the run has a directory
        try:
            return super().instantiate_trainer(**kwargs)
        except TypeError as error:  # Lightning's for --trainer.devices x
            raise InputError(str(error)) from error

    def before_fit(self) -> None:
        """Builds the model for the data, so that bad input fails before anything is started or written."""
        if isinstance(self.datamodule, SignalDataModule) and isinstance(self.model, CoordinateModule):
            self.model.build_from(self.datamodule, self.trainer.strategy.root_device)
            self.best.monitor = self.model.monitor  # the metric is the data's
        elif isinstance(self.datamodule, tasks.TaskDataModule) and isinstance(self.model, tasks.AttentionTask):
            self.model.build(self.datamodule.info)

    def before_test(self) -> None:
        """The table at the end is ours, not Lightning's."""
        self.config_init["test"]["verbose"] = False

    def after_fit(self) -> None:
        """Ends a fit with the test evaluation of the last weights."""
        self.trainer.test(self.model, datamodule=self.datamodule, verbose=False, weights_only=True)
        if any(isinstance(logger, WandbLogger) for logger in self.trainer.loggers):
            import wandb

            with wandb_may_fail():
                wandb.finish()  # first: a run that is torn down would stay the current one of this process
                wandb.teardown()  # waits for wandb's own process, which writes the last records after finish() returns


@contextmanager
def _input_errors() -> Iterator[None]:
    """What a constructor refuses is the user's to change."""
    try:
        yield
    except (ValueError, MisconfigurationException) as error:
        raise InputError(root_message(error)) from error


def _check_classes(tree: Any) -> None:
    """Refuses a ``class_path`` that is no class: the parser calls any function in the place of an optimiser."""
    name = tree.get("class_path") if isinstance(tree, Mapping) else None
    if isinstance(name, str) and not isinstance(pydoc.locate(name), type):
        raise InputError(f"class_path: {name!r} is not a class; nothing else is made from a configuration")
    for value in tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, (list, tuple)) else ():
        _check_classes(value)


class KeepConfig(SaveConfigCallback):
    """Writes the resolved configuration of a fit into the directory that the run's recorder has chosen."""

    def __init__(self, parser: LightningArgumentParser, config: Namespace, recorder: RunRecorder) -> None:
        super().__init__(parser, config, save_to_log_dir=False)
        self.recorder = recorder

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Writes the configuration of a fit; an evaluation has its run's."""
        if stage == "fit":
            super().setup(trainer, pl_module, stage)

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Writes ``config.yaml`` into the run directory."""
        text = self.parser.dump(self.config, skip_none=False)
        self.recorder.hyper_parameters = yaml.safe_load(text)
        if self.recorder.run_dir is not None:
            write_atomically(self.recorder.run_dir / runs.CONFIG, text)
