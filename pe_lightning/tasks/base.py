"""What the tasks' LightningModules share: positions, building, the optimiser, scores, checkpoints."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, cast

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from pe_lightning import __version__, metrics
from pe_lightning.checkpoints import VERSION_KEY, check_optimizer, refuse_other_version
from pe_lightning.encoders import Encoder, EncoderLike, resolve
from pe_lightning.encoders.base import check_count, check_positive
from pe_lightning.encodings import Simple
from pe_lightning.errors import InputError
from pe_lightning.modules.base import plain_encoder, refuse_other_model, trainer_of
from pe_lightning.resumption import Resumption
from pe_lightning.tasks.data import TaskDataModule
from pe_lightning.tasks.positions import WITHOUT_FEATURES, Combine, PositionChoice, Positions

__all__ = ["AttentionTask", "count_right"]

INFO_KEY = "pe_lightning/task"
WARM_UP = 100
"""Steps in which the learning rate rises."""


class AttentionTask(LightningModule, ABC):
    """A Transformer whose tokens have positions.

    Layers exist once the sizes of the task are known: from the DataModule when a Trainer fits or tests, from the checkpoint
    when one is loaded, or by :meth:`build`. The optimiser is AdamW; its rate rises for 100 steps and then falls to zero as a
    half cosine. The loss of a step is the mean over the targets of the batches of all processes, plus the encoder's
    penalty: two processes take the steps of one, to rounding, where nothing is left out at random.

    Args:
        encoder: The encoder of positions by name, where ``num_features: auto`` means ``width``; ``rope``, rotary positions
            on queries and keys; ``rope_mixed``, the same with trained frequencies over all axes; or ``none``.
        combine: Whether features are added to the tokens, through a linear layer where their number is not ``width``; or
            set beside them (``concat``), with a linear layer after both.
        width: Features of a token.
        depth: Number of blocks; of the encoder and of the decoder each, where there are both.
        heads: Number of heads.
        lr: The highest learning rate.
        weight_decay: Of AdamW.
    """

    metric: ClassVar[str]
    """The registered metric of the task."""
    task: ClassVar[str]
    """The :attr:`TaskDataModule.task` that it is for."""
    monitor: str
    monitor_mode: Literal["max", "min"]
    scores: dict[str, Tensor]
    """After a test, the score of each test set ``(S,)``."""
    positions: Positions

    def __init__(
        self,
        encoder: PositionChoice,
        combine: Combine = "add",
        width: int = 64,
        depth: int = 2,
        heads: int = 4,
        lr: float = 2e-3,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__()
        self.monitor = f"val/{self.metric}"
        self.monitor_mode = "max" if metrics.metrics.get(self.metric).higher_is_better else "min"
        choice: PositionChoice = encoder if encoder in WITHOUT_FEATURES else resolve(cast(EncoderLike, encoder))
        self._choice = (choice,)  # in a tuple, so that it is no submodule: the positions have a copy
        self.combine: Combine = combine
        self.width = check_count(self, "width", width)
        self.depth = check_count(self, "depth", depth)
        self.heads = check_count(self, "heads", heads)
        self.lr = check_positive(self, "lr", lr)
        self.weight_decay = check_positive(self, "weight_decay", weight_decay, minimum=0)
        self.info: dict[str, Any] | None = None
        plain = plain_encoder(choice) if isinstance(choice, Encoder) else choice
        given = {name: getattr(self, name) for name in ("combine", "width", "depth", "heads", "lr", "weight_decay")}
        # LightningCLI and load_from_checkpoint read the class from here
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        self.save_hyperparameters({"_class_path": path, "encoder": plain, **given}, logger=False)

    @abstractmethod
    def make_layers(self, info: Mapping[str, Any]) -> None:
        """Creates the layers for the sizes of the task, but for :attr:`positions`."""

    @abstractmethod
    def loss_sum(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The sum over the targets of a batch of their losses, ``()``."""

    @abstractmethod
    def update(self, metric: metrics.SignalMetric, batch: Mapping[str, Tensor], mask: Tensor) -> None:
        """Adds a batch to a metric.

        Args:
            metric: Of the type :attr:`metric`, for ``S`` test sets.
            batch: The examples.
            mask: Whether an example belongs to a set, ``(S, B)``.
        """

    # -- building -----------------------------------------------------------------------------------------------------

    def build(self, info: Mapping[str, Any]) -> None:
        """Creates the layers for a task; a module already built for the same task is left alone.

        Args:
            info: :attr:`TaskDataModule.info`.

        Raises:
            InputError: If the module was built for a task of other sizes, or the encoder does not suit it.
        """
        if self.info is not None:
            self._refuse_other(self.info, info)
            return
        if info["task"] != self.task:
            raise InputError(f"{type(self).__name__} is for data of the task {self.task!r}, got {info['task']!r}")
        # initial weights come from the CPU's generator, so that a seed means the same model everywhere
        with torch.device("cpu"), torch.inference_mode(False), torch.enable_grad():
            self.positions = Positions(self._choice[0], info["samples"], self.width, self.heads, self.depth, self.combine)
            self.make_layers(info)
        self.val_metric = metrics.create(self.metric, 1)
        self.test_metric = metrics.create(self.metric, len(info["subsets"]))
        self.info = dict(info)

    def _refuse_other(self, trained: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        if differing := [key for key in given if trained.get(key) != given[key]]:
            was, now = ({key: one.get(key) for key in differing} for one in (trained, given))
            raise InputError(f"this {type(self).__name__} was made for {was}; the data has {now}")

    @property
    def encoder(self) -> Encoder | Simple | None:
        """The encoder in force, with all it has learned; of one axis at a time, their encoding; ``None`` without one.

        Either maps positions ``(*batch, D)`` in [0, 1] to features.
        """
        encoding = None if self.info is None else self.positions.encoding
        return encoding.encoders[0] if encoding is not None and encoding.layout == "joint" else encoding

    def configure_model(self) -> None:
        """Builds for the Trainer's DataModule; without a Trainer the sizes come from the checkpoint."""
        if (trainer := trainer_of(self)) is None:
            return
        data = getattr(trainer, "datamodule", None)
        if isinstance(data, TaskDataModule):
            self.build(data.info)
        elif trainer.state.fn == TrainerFn.PREDICTING:
            raise InputError(f"predict writes signals, and {type(self).__name__} has none; use pe-lightning test")
        else:
            raise InputError(f"{type(self).__name__} needs a DataModule of pe_lightning.tasks, got {type(data).__name__}")

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the sizes of the task."""
        checkpoint |= {VERSION_KEY: __version__, INFO_KEY: self.info}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Builds for the task of the checkpoint, or checks that it is the module's.

        Raises:
            InputError: If the checkpoint is of another kind of model, encoder or task, or of another version.
        """
        if INFO_KEY not in checkpoint:
            raise InputError("this checkpoint is not of an attention task of pe_lightning")
        refuse_other_version(checkpoint)
        refuse_other_model(checkpoint["hyper_parameters"], dict(self.hparams), frozenset({"lr", "weight_decay"}))
        if self.info is None:
            self.build(checkpoint[INFO_KEY])
        else:
            self._refuse_other(checkpoint[INFO_KEY], self.info)

    # -- fitting ------------------------------------------------------------------------------------------------------

    def configure_callbacks(self) -> list[Callback]:
        """What makes a resumed fit equal the uninterrupted one."""
        return [Resumption()]

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """AdamW, with a warm-up and a half cosine."""
        # in mixed precision Lightning clips no gradients of a fused one
        fused = not str(self.trainer.precision).endswith("mixed")
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=self.weight_decay, fused=fused)
        total = max(self.trainer.estimated_stepping_batches, 1)

        def rate(step: int) -> float:
            risen = min(1.0, (step + 1) / WARM_UP)
            return risen if math.isinf(total) else risen * (1 + math.cos(math.pi * min(1.0, step / total))) / 2

        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": LambdaLR(optimizer, rate), "interval": "step"}}

    def on_train_start(self) -> None:
        """Checks what the optimiser was given by a checkpoint."""
        for optimizer in self.trainer.optimizers:
            check_optimizer(optimizer)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The mean loss over the targets of all processes' batches, and the penalty; logged when it is time to."""
        # processes average their gradients, and each has its share of the sum
        loss: Tensor = self.loss_sum(batch) * (self.trainer.world_size / max(batch["total"], 1)) + self.positions.penalty()
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]
        if every > 0 and (self.trainer.global_step + 1) % every == 0:
            self.log("train/loss", loss, batch_size=1, prog_bar=True, sync_dist=True)
        return loss

    # -- scores -------------------------------------------------------------------------------------------------------

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Scores validation examples."""
        self._add(self.val_metric, batch)

    def on_validation_epoch_end(self) -> None:
        """Logs the score."""
        self.log(self.monitor, self.val_metric.per_signal()[0].float(), batch_size=1, prog_bar=True, sync_dist=True)
        self.val_metric.reset()

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Scores test examples, each in its test set."""
        self._add(self.test_metric, batch)

    def _add(self, metric: metrics.SignalMetric, batch: dict[str, Any]) -> None:
        sets = torch.arange(len(metric.count), device=self.device)
        self.update(metric, batch, (sets == batch["subset"])[:, None].expand(-1, len(batch["targets"])))

    def on_test_epoch_end(self) -> None:
        """Keeps the score of each test set in ``self.scores`` and logs their mean."""
        values = self.test_metric.per_signal().cpu()
        self.test_metric.reset()
        self.scores = {f"test/{self.metric}": values}
        self.log(f"test/{self.metric}", values.mean().float(), batch_size=1, sync_dist=True)

    # -- what it is ---------------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """What the module is, as plain values, for ``metrics.json``; with what its DataModule is, if a Trainer has one."""
        encoding = None if self.info is None else self.positions.encoding
        described: dict[str, Any] = {"name": self._choice[0]}
        if encoding is not None:
            first = encoding.encoders[0]
            described = {"name": first.name, **first.resolved(), "num_features": encoding.num_features}
        data = getattr(trainer_of(self), "datamodule", None)
        return {
            "model": type(self).__name__,
            "num_params": sum(p.numel() for p in self.parameters() if p.requires_grad),
            "data_name": (self.info or {}).get("task", "data"),
            "signals": (self.info or {}).get("subsets", ["data"]),
            "encoder": described,
            "combine": self.combine,
            "optimizer": {"name": "AdamW", "lr": self.lr, "weight_decay": self.weight_decay, "schedule": "cosine"},
            "protocol": "test set",
            "sampling": {"name": "random"},
            "data_fingerprint": data.fingerprint if isinstance(data, TaskDataModule) else None,
        }


def count_right(metric: metrics.SignalMetric, logits: Tensor, targets: Tensor, mask: Tensor) -> None:
    """Adds the classes of a batch to the metric ``accuracy``.

    Args:
        metric: For ``S`` test sets.
        logits: ``(B, T, classes)``.
        targets: ``(B, T)``; those below 0 are not counted.
        mask: Whether an example belongs to a test set, ``(S, B)``.
    """
    predicted, true = (each[None, ..., None].expand(len(mask), -1, -1, -1) for each in (logits.argmax(-1), targets))
    metric.update(predicted, true, mask[..., None] & (targets >= 0))
