"""The base of the tasks' LightningModules: positions of tokens, building, the loss, scores, checkpoints."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from jsonargparse.typing import NonNegativeFloat, PositiveFloat, PositiveInt
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR

from pe_lightning.encoders import Encoder, resolve
from pe_lightning.encodings import Simple
from pe_lightning.errors import InputError
from pe_lightning.evaluation import metrics
from pe_lightning.training import TaskScores, TrainedModule, trainer_of, warm_up_and_cosine
from pe_papers.tasks.data import TaskDataModule, task_data_of
from pe_papers.tasks.positions import WITHOUT_FEATURES, Combine, PositionChoice, Positions

INFO_KEY = "pe_lightning/task"
LR_WARM_UP_STEPS = 100
"""Steps in which the learning rate rises linearly."""


class AttentionTask(TrainedModule):
    """A Transformer whose tokens have positions.

    Layers exist once the sizes of the task are known: from the DataModule when a Trainer fits or tests, from the checkpoint
    when one is loaded, or by :meth:`build`. The optimiser is AdamW; its rate rises for 100 steps and then falls to zero as a
    half cosine. The loss of a step is the mean over the targets of the batches of all processes, plus the encoder's
    penalty: two processes take the same steps as one, to rounding, unless there is dropout.

    Args:
        encoder: The encoder of positions by name, where ``num_features: auto`` means ``width``; ``rope``, rotary positions
            on queries and keys; ``rope_mixed``, the same with trained frequencies over all axes; or ``none``.
        combine: Whether features are added to the tokens (``add``), through a linear layer where their number is not
            ``width``; or concatenated with them (``concat``), with a linear layer after both.
        width: Features of a token.
        depth: Number of blocks; of the encoder and of the decoder each, where there are both.
        heads: Number of heads.
        lr: The highest learning rate.
        weight_decay: Weight decay of AdamW.
    """

    metric: ClassVar[str]
    """The registered metric of the task."""
    task: ClassVar[str]
    """The :attr:`TaskDataModule.task` that the module is for."""
    may_differ: ClassVar[frozenset[str]] = frozenset({"lr", "weight_decay"})
    content_key: ClassVar[str] = INFO_KEY
    content: ClassVar[str] = "sizes of an attention task"
    takes_data = TaskDataModule
    positions: Positions
    scorer: TaskScores

    def __init__(
        self,
        encoder: PositionChoice,
        combine: Combine = "add",
        width: PositiveInt = 64,
        depth: PositiveInt = 2,
        heads: PositiveInt = 4,
        lr: PositiveFloat = 2e-3,
        weight_decay: NonNegativeFloat = 0.01,
    ) -> None:
        super().__init__()
        self.metric_name = self.metric
        choice = encoder if isinstance(encoder, str) and encoder in WITHOUT_FEATURES else resolve(encoder)
        self._choice = (choice,)  # in a tuple, so that it is no submodule: the positions have a copy
        self.combine: Combine = combine
        # plain numbers: the parser makes instances of the types, which a checkpoint cannot hold
        self.width, self.depth, self.heads = int(width), int(depth), int(heads)
        self.lr, self.weight_decay = float(lr), float(weight_decay)
        self.info: dict[str, Any] | None = None
        plain = choice.spec() if isinstance(choice, Encoder) else choice
        given = {name: getattr(self, name) for name in ("combine", "width", "depth", "heads", "lr", "weight_decay")}
        self.save_arguments(encoder=plain, **given)

    @abstractmethod
    def make_layers(self, info: Mapping[str, Any]) -> None:
        """Creates the layers for the sizes of the task, except :attr:`positions`."""

    def loss_sum(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The sum over the targets of a batch of their losses, ``()``: the cross-entropy of classes; -1 is no target."""
        return F.cross_entropy(self(batch).flatten(0, 1), batch["targets"].flatten(), ignore_index=-1, reduction="sum")

    def update(self, metric: metrics.SignalMetric, batch: Mapping[str, Tensor], mask: Tensor) -> None:
        """Adds a batch to a metric: the classes that are predicted, from logits ``(B, T, classes)``, and the targets.

        Args:
            metric: A metric of the type :attr:`metric`, for ``S`` test sets.
            batch: The examples.
            mask: Whether an example belongs to a set, ``(S, B)``.
        """
        pair = (self(batch).argmax(-1), batch["targets"])
        predicted, true = (each[None, ..., None].expand(len(mask), -1, -1, -1) for each in pair)
        metric.update(predicted, true, mask[..., None] & (batch["targets"] >= 0))

    # -- building -----------------------------------------------------------------------------------------------------

    def build_from(self, data: TaskDataModule, device: torch.device | None = None) -> None:
        self.build(data.info)

    def build(self, info: Mapping[str, Any]) -> None:
        """Creates the layers for a task; does nothing if they were built for the same task.

        Args:
            info: :attr:`TaskDataModule.info`.
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
        self.scorer = TaskScores(self.metric_name, len(info["subsets"]))
        self.info = dict(info)

    def _refuse_other(self, trained: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        if differing := [key for key in given if trained.get(key) != given[key]]:
            was, now = ({key: one.get(key) for key in differing} for one in (trained, given))
            raise InputError(f"this {type(self).__name__} was made for {was}; the data has {now}")

    @property
    def encoder(self) -> Encoder | Simple | None:
        """The encoder of positions with its learned parameters; ``None`` without one.

        It maps positions ``(*batch, D)`` in [0, 1] to features: an encoder of all axes at once, or the encoding of one
        encoder per axis.
        """
        encoding = None if self.info is None else self.positions.encoding
        return encoding.encoders[0] if encoding is not None and encoding.layout == "joint" else encoding

    def configure_model(self) -> None:
        if (trainer := trainer_of(self)) is None:
            return
        if (data := task_data_of(trainer)) is not None:
            self.build(data.info)
        elif trainer.state.fn == TrainerFn.PREDICTING:
            raise InputError(f"predict writes signals, and {type(self).__name__} has none; use pe-lightning test")
        else:
            raise InputError(f"{type(self).__name__} needs a DataModule of pe_papers.tasks, such as PixelDataModule()")

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint[INFO_KEY] = self.info

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Builds for the task of the checkpoint, or checks that it is the module's."""
        super().on_load_checkpoint(checkpoint)
        if self.info is None:
            self.build(checkpoint[INFO_KEY])
        else:
            self._refuse_other(checkpoint[INFO_KEY], self.info)

    # -- fitting ------------------------------------------------------------------------------------------------------

    def make_optimizer(self) -> tuple[torch.optim.Optimizer, LambdaLR, str]:
        # in mixed precision Lightning clips no gradients of a fused one
        fused = not str(self.trainer.precision).endswith("mixed")
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=self.weight_decay, fused=fused)
        schedule = warm_up_and_cosine(optimizer, LR_WARM_UP_STEPS, self.trainer.estimated_stepping_batches)
        return optimizer, schedule, "cosine"

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        # processes average their gradients, and each has its share of the sum
        loss: Tensor = self.loss_sum(batch) * (self.trainer.world_size / max(batch["total"], 1)) + self.positions.penalty()
        if self.logs_this_step:
            self.log_step({"train/loss": self.trainer.strategy.reduce(loss.detach().clone(), reduce_op="mean")})
        return loss

    # -- scores -------------------------------------------------------------------------------------------------------

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        self._add(self.scorer.held_out, batch)

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        self._add(self.scorer.tested, batch)

    def _add(self, metric: metrics.SignalMetric, batch: dict[str, Any]) -> None:
        sets = torch.arange(len(metric.count), device=self.device)
        self.update(metric, batch, (sets == batch["subset"])[:, None].expand(-1, len(batch["targets"])))

    # -- description --------------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        encoding = None if self.info is None else self.positions.encoding
        described: dict[str, Any] = {"name": self._choice[0]}
        if encoding is not None:
            first = encoding.encoders[0]
            described = {"name": first.name, **first.resolved(), "num_features": encoding.num_features}
        data = task_data_of(trainer_of(self))
        return {
            "model": type(self).__name__,
            "num_params": sum(p.numel() for p in self.parameters() if p.requires_grad),
            "data_name": (self.info or {}).get("task", "data"),
            "signals": (self.info or {}).get("subsets", ["data"]),
            "encoder": described,
            "learned": {} if encoding is None else encoding.learned(),
            "combine": self.combine,
            "optimizer": {"name": "AdamW", "lr": self.lr, "weight_decay": self.weight_decay, "schedule": "cosine"},
            "protocol": "test set",
            "sampling": {"name": "random"},
            "data_fingerprint": None if data is None else data.fingerprint,
        }
