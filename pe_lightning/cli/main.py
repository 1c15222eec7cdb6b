"""The verbs that train and evaluate: a :class:`~lightning.pytorch.cli.LightningCLI`, and what it adds to its Trainer."""

from __future__ import annotations

import functools
import inspect
import signal
from collections.abc import Sequence
from typing import Any

from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from pe_lightning.cli.arguments import VERBOSE, read, rewrite
from pe_lightning.cli.help import short_help
from pe_lightning.cli.parser import NOT_OPTIONS, init_args_of, input_errors, make_parser, parse, plain_values, prepare
from pe_lightning.errors import InputError, say
from pe_lightning.registry import asked_modules
from pe_lightning.results import runs
from pe_lightning.results.checkpoint_files import read_checkpoint
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import user_path
from pe_lightning.training import FunctionModule, SignalDataModule, TrainedModule
from pe_lightning.training.base import refuse_other_model
from pe_lightning.training.callbacks import GracefulStop, PSNRProgressBar, RunRecorder
from pe_lightning.training.callbacks.base import refuse_lost_results
from pe_lightning.training.callbacks.loggers import end_wandb
from pe_lightning.training.checkpoints import BestAndLast, own_callbacks, refuse_other_data, restoring
from pe_lightning.training.fit import fold_scores
from pe_lightning.training.function import FinalScore
from pe_lightning.training.initialization import InitialWeights
from pe_lightning.training.interrupts import Interrupted, exit_status
from pe_lightning.training.quiet_fits import fit_quietly

MEMORY_OPTIONS = frozenset({"signals_per_chunk", "points_per_chunk", "compile"})
"""Arguments of models that change memory and time, results only by rounding: they may differ from a checkpoint."""

OPTIMIZER_OPTIONS = frozenset({"encoder_lr", "lr", "weight_decay"})
"""Arguments of models that a resumed fit takes in place of the values in its checkpoint."""

OF_ONE_COMMAND = ("ckpt_path", "weights_only")
"""Options that ``config.yaml`` leaves out: a run that is repeated is not resumed."""


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
            if init_args_of(config.data).get("validation") == "auto":
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
        with input_errors(), asked_modules():
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
        chosen += own_callbacks(chosen)  # which a module of the user's own does not add
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
            self.before_fit()
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
        if self.verb == "fit":
            signum = self.stop.signum
            end_wandb(self.trainer.loggers, None if signum in (None, signal.SIGINT) else exit_status(signum))

    def before_fit(self) -> None:
        """Fails on bad input before anything is started or written: checks the data, scores folds, builds the model."""
        if self.config.ckpt_path:  # fits in Python refuse when the checkpoint is loaded
            self.datamodule.prepare_data()
            refuse_other_data(read_checkpoint(self.config.ckpt_path), self.datamodule)
        data, model = self.datamodule, self.model
        if isinstance(data, SignalDataModule) and isinstance(model, FunctionModule) and data.folds is not None:
            self._score_folds(model, data)
        if isinstance(model, TrainedModule) and isinstance(data, model.takes_data):
            if self.start is not None:
                self.start.apply(model, data)
            if isinstance(data, SignalDataModule):
                data.prepare()
                self.recorder.durations.mark("reading")
            model.build_from(data, self.trainer.strategy.root_device)  # chooses widths by exact fits
            self.recorder.durations.mark("fit")
            self.best.monitor = model.monitor  # the metric may be the data's

    def _score_folds(self, model: FunctionModule, data: SignalDataModule) -> None:
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
