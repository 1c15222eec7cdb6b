"""The base of all LightningModules here: hyper-parameters, optimiser, logging by optimiser step, checkpoints."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeVar

import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.compile import to_uncompiled
from lightning.pytorch.utilities.types import LRSchedulerTypeUnion, OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from pe_lightning import __version__
from pe_lightning.errors import InputError
from pe_lightning.evaluation import metrics
from pe_lightning.evaluation.scores import held_out_psnr
from pe_lightning.registry import Registry
from pe_lightning.results.checkpoint_files import VERSION_KEY, refuse_other_version
from pe_lightning.training.checkpoints import callbacks_of, own_callbacks
from pe_lightning.training.datamodule import SignalDataModule
from pe_lightning.training.optimization import (
    check_optimizer,
    check_optimizer_covers,
    describe_optimizer,
    refuse_clipping_of_fused,
    step_plateau,
    with_scheduler,
)
from pe_lightning.training.sharding import SignalScores

models: Registry[nn.Module] = Registry(
    "model",
    nn.Module,
    "pe_lightning.models",
    modules=[f"pe_lightning.training.{name}" for name in ("complex_linear", "estimator", "network", "simple_mlp")],
)
"""The names that ``--model`` and ``model:`` accept: LightningModules, and networks for
:class:`~pe_lightning.training.NetworkModule`."""

WRAPPER = "_orig_mod."
"""Part of the names of parameters in a module that :func:`torch.compile` wraps."""
D = TypeVar("D")


class TaskScores(nn.Module):
    """The metric of validation examples, and of each test set, with the methods of :class:`SignalScores`.

    Args:
        metric: Name of the registered metric.
        num_sets: Number of test sets.
    """

    def __init__(self, metric: str, num_sets: int) -> None:
        super().__init__()
        self.metric = metric
        self.held_out = metrics.create(metric, 1)
        self.tested = metrics.create(metric, num_sets)

    def validation(self) -> Tensor:
        score = self.held_out.per_signal()[0]
        self.held_out.reset()
        return score

    def test(self) -> dict[str, Tensor]:
        scores = {f"test/{self.metric}": self.tested.per_signal().cpu()}
        self.tested.reset()
        return scores


class TrainedModule(LightningModule, ABC):
    """Base of the LightningModules of this package.

    A subclass sets :attr:`metric_name` and :attr:`scorer`, defines :meth:`make_optimizer` and Lightning's steps, calls
    :meth:`save_arguments` in its constructor, and adds its own content to checkpoints.
    """

    metric_name: str
    """The registered metric of the scores."""
    scorer: SignalScores | TaskScores
    """Collects predictions of the validation and of the test, and returns their scores over all processes."""
    scores: dict[str, Tensor]
    """After a test, the scores of each signal or test set ``(S,)`` by name, such as ``test/psnr``."""
    may_differ: ClassVar[frozenset[str]] = frozenset()
    """Hyper-parameters in which a checkpoint may differ from the model that loads it: they do not change what the
    parameters and buffers mean."""
    content_key: ClassVar[str]
    """Key that every checkpoint of such a module has."""
    content: ClassVar[str]
    """Name of the value of this key, for messages."""
    takes_data: ClassVar[type[LightningDataModule]] = SignalDataModule
    """The DataModules that :meth:`build_from` takes."""

    def __init__(self) -> None:
        super().__init__()
        self._lr: float | None = None
        self.fold_scores: dict[str, Tensor] = {}
        """Held-out scores by name from fits to all folds but one; they replace the scores of the test."""
        self.optimization: dict[str, Any] | None = None
        """Optimiser, arguments and schedule of the latest fit as plain values; ``None`` if it took no step."""

    def build_from(self, data: Any, device: torch.device | None = None) -> None:
        """Sizes the layers for a DataModule of the type :attr:`takes_data`, before a fit; computes on ``device``."""

    # -- scores -------------------------------------------------------------------------------------------------------

    @property
    def monitor(self) -> str:
        """The logged value by which checkpoints are compared, such as ``val/psnr``."""
        return f"val/{self.metric_name}"

    @property
    def monitor_mode(self) -> Literal["max", "min"]:
        return "max" if metrics.metrics.get(self.metric_name).higher_is_better else "min"

    @property
    def logged_values(self) -> dict[str, Literal["max", "min"]]:
        """Names of the values that a fit logs, and which of each is best; a subclass that logs more adds them."""
        return {self.monitor: self.monitor_mode, f"train/{self.metric_name}": self.monitor_mode, "train/loss": "min"}

    @property
    def psnr(self) -> float:
        """Mean over signals of the PSNR of the held-out samples in dB, after a test."""
        return held_out_psnr(type(self).__name__, getattr(self, "scores", {}))

    @property
    def train_psnr(self) -> float:
        """Mean over signals of the PSNR of the trained samples in dB, after a test."""
        return float(self.scores["train/psnr"].mean())

    def on_validation_epoch_end(self) -> None:
        """Logs the score of the validation, unless nothing is held out; steps ``ReduceLROnPlateau`` during a fit."""
        score = self.scorer.validation().float()
        if score.isnan():
            return
        self.log_step({self.monitor: score})
        if self.is_fitting and not self.trainer.sanity_checking:
            step_plateau(self.trainer, self.monitor, score)

    def on_test_epoch_end(self) -> None:
        self.scores = self.scorer.test() | self.fold_scores
        for name, values in self.scores.items():
            if values.isfinite().all():
                self.log(name, values.mean().float(), batch_size=1, sync_dist=True)

    # -- the optimiser ------------------------------------------------------------------------------------------------

    @property
    def lr(self) -> Any:
        """Learning rate set by ``LearningRateFinder`` or ``Tuner.lr_find``, which replaces the optimiser's; or ``None``."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._lr = value
        trainer = trainer_of(self)
        if trainer is None or not trainer.optimizers:
            return
        for group in (optimizer.param_groups[0] for optimizer in trainer.optimizers):
            group.update({name: value for name in ("lr", "initial_lr") if name in group})
        for scheduler in (config.scheduler for config in trainer.lr_scheduler_configs):
            if hasattr(scheduler, "base_lrs"):  # from which the next rates follow
                scheduler.base_lrs = [value, *scheduler.base_lrs[1:]]
        if self.optimization is not None:
            self.optimization["lr"] = value

    def make_optimizer(self) -> tuple[torch.optim.Optimizer, LRSchedulerTypeUnion | None, str] | None:
        """The optimiser of all trained parameters, its scheduler, the schedule in words; ``None`` if nothing is trained."""
        return None

    def configure_optimizers(self) -> OptimizerLRScheduler:
        if (made := self.make_optimizer()) is None:
            return []
        optimizer, scheduler, schedule = made
        refuse_clipping_of_fused(optimizer, self.trainer)
        check_optimizer_covers(optimizer, self.named_parameters())
        self.optimization = describe_optimizer(optimizer, schedule) if self.trainer.max_steps != 0 else None
        period = self.trainer.check_val_every_n_epoch
        return with_scheduler(optimizer, scheduler, self.monitor, self.monitor_mode, period)

    def configure_callbacks(self) -> list[Callback]:
        refuse_compiled(self)  # this hook is the first of all verbs
        return own_callbacks(() if (trainer := trainer_of(self)) is None else callbacks_of(trainer))

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """Steps a scheduler; ``ReduceLROnPlateau`` is stepped by :meth:`on_validation_epoch_end` instead.

        Lightning steps it after the checkpoint of the epoch is written, and not in the first epoch of a resumed fit.
        """
        if not isinstance(scheduler, ReduceLROnPlateau):
            super().lr_scheduler_step(scheduler, metric)

    def on_train_start(self) -> None:
        for optimizer in self.trainer.optimizers:
            check_optimizer(optimizer)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Asks the fit to stop after its last step: Lightning then validates, also within an epoch."""
        if self.trainer.global_step == self.trainer.max_steps:
            self.trainer.should_stop = True

    # -- logging ------------------------------------------------------------------------------------------------------

    @property
    def is_fitting(self) -> bool:
        trainer = trainer_of(self)
        return trainer is not None and trainer.state.fn == TrainerFn.FITTING

    @property
    def logs_this_step(self) -> bool:
        """Whether the optimiser step that is being taken is logged: every ``log_every_n_steps``, never for 0."""
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        return every > 0 and (self.trainer.global_step + 1) % every == 0

    def log(self, *args: Any, **kwargs: Any) -> None:
        """As Lightning's; nothing with ``Trainer(barebones=True)``, where that warns."""
        if not self.trainer.barebones:
            super().log(*args, **kwargs)

    def log_step(self, values: Mapping[str, Tensor]) -> None:
        """Logs values that are equal in every process; during a fit at the optimiser step.

        Lightning's rows count batches, and a resumption changes the count; its ``log`` takes longer than a step of a small
        model. So during a fit loggers, callbacks and the progress bar get the values here.
        """
        trainer = self.trainer
        if not self.is_fitting:
            for name, value in values.items():
                self.log(name, value, batch_size=1, prog_bar=True, sync_dist=True)
        elif not trainer.barebones:
            numbers = {name: value.item() for name, value in values.items()}
            trainer.callback_metrics.update(values)
            trainer.progress_bar_metrics.update(numbers)
            for logger in [] if trainer.sanity_checking else self.loggers:
                logger.log_metrics({**numbers, "epoch": self.current_epoch}, step=self.global_step)
                logger.save()

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def save_arguments(self, **arguments: Any) -> None:
        """Saves the hyper-parameters as plain names and values, so that a checkpoint loads with ``weights_only``."""
        # a key of LightningCLI, which takes the name of a class for its path
        self.save_hyperparameters({"_class_path": models.name_of(type(self)), **arguments}, logger=False)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint[VERSION_KEY] = __version__

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.content_key not in checkpoint:
            raise InputError(f"this checkpoint was not written by pe_lightning: it holds no {self.content}")
        refuse_other_version(checkpoint)
        refuse_other_model(checkpoint.get("hyper_parameters", {}), dict(self.hparams), self.may_differ)
        checkpoint["state_dict"] = {name.replace(WRAPPER, ""): x for name, x in checkpoint["state_dict"].items()}
        if (trainer := trainer_of(self)) is not None:
            # Lightning would convert, such as to float64, what float32 has rounded
            trainer.precision_plugin.convert_module(self)


def trainer_of(module: LightningModule) -> Trainer | None:
    """The Trainer of a module, or ``None``."""
    try:
        return module.trainer
    except RuntimeError:  # raised by Lightning where there is none
        return None


def datamodule_of(trainer: Trainer | None, kind: type[D]) -> D | None:
    """The DataModule of a Trainer if it is of this class, else ``None``."""
    data = getattr(trainer, "datamodule", None)
    return data if isinstance(data, kind) else None


def signals_of(module: LightningModule) -> SignalDataModule:
    """The DataModule of a module's Trainer."""
    data = datamodule_of(trainer_of(module), SignalDataModule)
    if data is None:
        raise InputError(
            f"{type(module).__name__} needs the shape of the signals: pass a DataModule of pe_lightning.signals, such "
            "as TensorDataModule(values), to the Trainer"
        )
    return data


def refuse_other_model(saved: Mapping[str, Any], given: Mapping[str, Any], may_differ: frozenset[str]) -> None:
    """Checks that the hyper-parameters of a checkpoint and of a model are of the same class, encoder and architecture."""

    def in_words(key: str, value: Any) -> str:
        if key == "_class_path":
            return f"a {str(value).rpartition('.')[2]}"
        if key != "encoder" or isinstance(value, str):
            return f"a model with {key}={value}"
        spelt = []
        for entry in value if isinstance(value, list) else [value]:
            arguments = ", ".join(f"{name}={argument}" for name, argument in entry.items() if name != "name")
            spelt.append(f"{entry['name']}({arguments})")
        return f"encoder {', '.join(spelt)}"

    # the class first: of another class, the other hyper-parameters differ anyway
    for key in ("_class_path", "encoder", *given):
        if key not in may_differ and key in saved and _current(saved[key]) != _current(given.get(key)):
            raise InputError(
                f"the checkpoint holds {in_words(key, saved[key])}, the model asked for is {in_words(key, given.get(key))}; "
                "leave the option out, or name a checkpoint of that model"
            )


def _current(value: Any) -> Any:
    """A hyper-parameter without what version 0.3 saved for every encoder: that it trains no width per shift."""
    if isinstance(value, list):
        return [_current(entry) for entry in value]
    return {k: v for k, v in value.items() if (k, v) != ("per_feature", False)} if isinstance(value, Mapping) else value


def refuse_compiled(module: LightningModule) -> None:
    """Refuses a module, or a part of it, that is wrapped by :func:`torch.compile`, and unwraps the module.

    A compiled LightningModule is compiled again in every step, as its steps depend on their number; a compiled part has
    other names of parameters, and is called by other methods than the compiled one.
    """
    try:
        to_uncompiled(module)  # Lightning has replaced its steps
    except ValueError:  # raised by Lightning for a module that is not compiled
        if not any(WRAPPER in name for name, _ in module.named_parameters()):
            return
    name = type(module).__name__
    option = f"; {name}(..., compile=True) compiles the function that is trained" if "compile" in module.hparams else ""
    raise InputError(f"torch.compile does not speed up {name} or a part of it under a Trainer: pass them without it{option}")
