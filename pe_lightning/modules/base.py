"""What both modules share: building from the data's shape, the loss, the metrics, the checkpoint."""

from __future__ import annotations

import contextlib
import copy
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from pe_lightning.data.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.data.loaders import FullLoader
from pe_lightning.encoders import Encoder, EncoderLike, resolve
from pe_lightning.encodings import Encoding
from pe_lightning.errors import InputError
from pe_lightning.metrics import SignalPSNR, psnr
from pe_lightning.modules.apart import hold_own, hold_together
from pe_lightning.modules.description import plain_encoder, refuse_other_model, shape_in_words
from pe_lightning.modules.scoring import Scoring

__all__ = ["CoordinateModule", "EncoderChoice"]

EncoderChoice = Encoder | list[Encoder] | str
"""An encoder for all axes, or one per axis. At run time names and descriptions are accepted in their place."""

SIGNALS_KEY = "pe_lightning/signals"

COORDINATES_LOST = ("16-true", "bf16-true")
"""Precisions in which Lightning would round the coordinates themselves, to 11 or 8 bits."""


class CoordinateModule(Scoring, ABC):
    """A set of signals as functions of coordinates, one network per signal, all fitted together.

    Parameters exist once the shape of the signals is known: from the DataModule when a Trainer runs, from the
    checkpoint when one is loaded, or by calling :meth:`build`. The training loss is the sum over signals of each one's
    mean squared error, so that no signal's step depends on how many others there are.

    Args:
        encoder: One encoder, or one per axis.
        optimizer: Makes the optimiser from the parameters.
        lr_scheduler: Makes the scheduler from the optimiser; it is stepped every optimiser step
            (``ReduceLROnPlateau``: every validation).
    """

    encoding: Encoding
    free: ClassVar[frozenset[str]] = frozenset({"normalize"})
    """Hyper-parameters in which a checkpoint may differ from the model that loads it: they do not change what the
    parameters and buffers mean."""

    def __init__(
        self,
        encoder: EncoderLike | Sequence[EncoderLike],
        optimizer: OptimizerCallable,
        lr_scheduler: LRSchedulerCallable | None,
    ) -> None:
        super().__init__()
        several = isinstance(encoder, Sequence) and not isinstance(encoder, str)
        entries: Sequence[EncoderLike] = encoder if several else [encoder]  # type: ignore[assignment, list-item]
        # prototypes: the encoding gets its own once the number of axes is known, so they are in a list, no submodules
        self.prototypes: list[Encoder] = [resolve(entry) for entry in entries]
        self._several_encoders = several
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler
        self.info: SignalInfo | None = None
        self.own: slice | None = None
        """Under the strategy ``signals``, while it fits: which of the signals this process holds."""
        self._cached: dict[str, tuple[tuple[object, ...], Any]] = {}
        self._last: tuple[Tensor, int] | None = None
        self.loss_is_seen = True
        """Whether anything looks at the loss of the training step and not only at its gradient."""

    # -- what the subclasses define -----------------------------------------------------------------------------------

    @abstractmethod
    def make(self, info: SignalInfo) -> None:
        """Creates the encoding and the parameters for signals of this shape."""

    @abstractmethod
    def calibrate(self, batch: GridBatch | PointBatch) -> None:
        """Sets the buffers that come from the training data: row-norm scales, means."""

    @abstractmethod
    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        """Prediction minus truth on a training batch, ``(S, M)``, in any fixed order of samples and channels."""

    # -- building -----------------------------------------------------------------------------------------------------

    @property
    def encoder_prototype(self) -> Encoder | list[Encoder]:
        """A copy of the encoder as configured, or of the list of them: models given the same one do not share it."""
        return copy.deepcopy(self.prototypes if self._several_encoders else self.prototypes[0])

    def remember(self, **arguments: Any) -> None:
        """Saves the hyper-parameters as plain names and values, so that a checkpoint loads with ``weights_only``."""
        described = [plain_encoder(encoder) for encoder in self.prototypes]
        self.save_hyperparameters(
            {
                # LightningCLI and load_from_checkpoint read the class from here
                "_class_path": f"{type(self).__module__}.{type(self).__qualname__}",
                "encoder": described if self._several_encoders else described[0],
                **arguments,
            },
            logger=False,
        )

    def build(self, info: SignalInfo, source: str = "the data") -> None:
        """Creates the parameters for signals of this shape; a module already built for the same shape is left alone.

        Args:
            info: The shape.
            source: Where it comes from, for the message of the error.

        Raises:
            InputError: If the module was built for signals of another shape.
        """
        if self.info is not None:
            mine, theirs = shape_in_words(self.info), shape_in_words(info)
            if mine != theirs:
                raise InputError(f"this module holds {mine}; {source} has {theirs}")
            return
        # Lightning may be inside a context that creates tensors on another device; initial weights come from the CPU's
        # generator so that a seed means the same model everywhere
        with torch.device("cpu"), _leave_inference():
            self.make(info)
            self.info = info
            self.train_psnr = SignalPSNR(info.num_signals)
            self.test_psnr = SignalPSNR(info.num_signals)

    def configure_model(self) -> None:
        """Builds from the Trainer's DataModule; without a Trainer the shape comes from the checkpoint.

        Raises:
            InputError: If there is no shape to build for, the module was built for another, or the Trainer's precision
                would round the coordinates.
        """
        try:
            trainer = self.trainer
        except RuntimeError:  # Lightning's way to say that there is none
            return
        if trainer.precision in COORDINATES_LOST:
            raise InputError(
                f"precision {trainer.precision!r} would round the coordinates, so that neighbouring samples fall "
                f"together; use {trainer.precision.replace('true', 'mixed')!r} or '32-true'"
            )
        data = getattr(trainer, "datamodule", None)
        info = getattr(data, "info", None)
        if self.info is not None:
            if isinstance(info, SignalInfo):
                self.build(info)  # refuses signals of another shape
            if trainer.state.fn == TrainerFn.FITTING:
                hold_own(self, trainer.strategy)
            return
        if info is None and trainer.state.fn != TrainerFn.FITTING:
            return  # the checkpoint, read next, knows the shape
        if not isinstance(info, SignalInfo):
            raise InputError(
                f"{type(self).__name__} needs the shape of the signals: pass a DataModule of pe_lightning.data, such "
                "as TensorDataModule(values), to the Trainer"
            )
        self.build(info)
        calibration_batch = getattr(data, "calibration_batch", None)
        if callable(calibration_batch):
            self.calibrate(calibration_batch())
        if trainer.state.fn == TrainerFn.FITTING:
            hold_own(self, trainer.strategy)

    def on_fit_end(self) -> None:
        """Gathers the signals that other processes fitted."""
        hold_together(self, self.trainer.world_size)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the shape of the signals."""
        if self.info is not None:
            checkpoint[SIGNALS_KEY] = self.info.to_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Builds from the checkpoint's shape of the signals, or checks that it is the module's.

        Raises:
            InputError: If the checkpoint is of another kind of model, encoder or shape.
        """
        if SIGNALS_KEY not in checkpoint:
            raise InputError("this checkpoint was not written by pe_lightning: it holds no shape of signals")
        refuse_other_model(checkpoint.get("hyper_parameters", {}), dict(self.hparams), self.free)
        fresh = self.info is None
        self.build(SignalInfo.from_dict(checkpoint[SIGNALS_KEY]), "the checkpoint")
        if fresh:  # a model fitted in float64 comes back in float64
            tensors = checkpoint["state_dict"].values()
            self.to(next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), None))

    @property
    def num_params(self) -> int:
        """Trainable parameters of one signal: what is held per signal once, plus what all signals share."""
        shared = {id(p) for p in self.encoding.parameters()} if self.info is not None else set()
        counts = [p.numel() if id(p) in shared else p[0].numel() for p in self.parameters() if p.requires_grad]
        return sum(counts)

    # -- fitting ------------------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The optimiser over all parameters, and the scheduler if there is one.

        Raises:
            InputError: If ``ReduceLROnPlateau`` waits for the PSNR to fall.
        """
        optimizer = self.optimizer(self.parameters())
        if self.lr_scheduler is None:
            return optimizer
        scheduler = self.lr_scheduler(optimizer)
        if isinstance(scheduler, ReduceLROnPlateau):
            monitor = getattr(scheduler, "monitor", "val/psnr")
            if "psnr" in monitor and scheduler.mode != "max":
                raise InputError(f"ReduceLROnPlateau: {monitor} grows as the fit improves; set mode='max'")
            every = self.trainer.check_val_every_n_epoch or 1
            plateau = {"scheduler": scheduler, "monitor": monitor, "interval": "epoch", "frequency": every}
            return {"optimizer": optimizer, "lr_scheduler": plateau}  # type: ignore[return-value]
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def training_step(self, batch: GridBatch | PointBatch, batch_idx: int) -> Tensor:
        """The sum over signals of the mean squared error, ``()``."""
        trainer, loader = self.trainer, self.trainer.train_dataloader
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        logged = every > 0 and (trainer.global_step + 1) % every == 0  # 0: never
        given, repeated = batch, loader.batch if isinstance(loader, FullLoader) else None
        if repeated is not None:  # Lightning makes it a new one, every step, where it changes its dtype
            batch = self.cached("batch", (repeated,), lambda: given)
        # a line search compares losses of nearby weights
        compares = isinstance(trainer.optimizers[0], torch.optim.LBFGS)
        exact = logged if self.loss_is_seen else None
        squared = self.squared_errors(batch, repeated is not None and not compares, exact)
        own = math.prod(batch.values.shape[1:])
        self._last = (squared.detach(), own) if self.loss_is_seen else self._last
        shared = batch.total is not None and self.own is None
        count = own if batch.total is None else batch.total * batch.values.shape[-1]
        if logged:
            together = squared.detach().clone()  # a reduction writes into what it is given
            if shared:
                together = self.trainer.strategy.reduce(together, reduce_op="sum")
            self.log("train/loss", self._over_signals(together / count), batch_size=1)
            scores = psnr(together, torch.full_like(together, count))
            self.log("train/psnr", self._over_signals(scores) / self.require_info().num_signals, batch_size=1)
        loss = squared.sum() / count
        # processes average their gradients, and each has its share of the sum
        return loss * self.trainer.world_size if shared else loss

    def squared_errors(self, batch: GridBatch | PointBatch, every_step: bool = False, exact: bool | None = True) -> Tensor:
        """The sum of squared errors of each signal, ``(S,)``.

        Args:
            batch: The training samples.
            every_step: Whether the next steps have the same batch, so that what depends on it alone is worth making.
            exact: Whether the value may not rely on earlier ones; ``None``: nobody sees it. The gradient never does.
        """
        errors = self.errors(batch)
        # a dot product per signal: one pass over the errors, forward and backward; in full precision, as half of it
        # overflows at 65504
        with torch.autocast(errors.device.type, enabled=False):
            return torch.bmm(errors.unsqueeze(1), errors.unsqueeze(2)).reshape(-1)

    def last_train_psnr(self) -> Tensor:
        """PSNR of the latest training batch before its step, mean over signals, ``()``; NaN before the first step.

        Under several processes, of this one's part.
        """
        if self._last is None:
            return torch.tensor(float("nan"))
        squared, count = self._last
        return psnr(squared, torch.full_like(squared, count)).mean()

    @property
    def features_are_trained(self) -> bool:
        """Whether anything that features depend on is trained."""
        return any(p.requires_grad for p in self.encoding.parameters())

    def cached(self, name: str, inputs: Sequence[object], compute: Callable[[], Any]) -> Any:
        """``compute()``, kept while the same ``inputs`` come and nothing that features depend on is trained.

        Args:
            name: What is computed; one result per name is kept.
            inputs: What it is computed from, compared by identity.
            compute: Computes it.
        """
        if self.features_are_trained:
            return compute()
        # the cache holds the inputs, so that no other object can take their place in memory
        held = self._cached.get(name)
        if held is None or len(held[0]) != len(inputs) or not all(map(operator.is_, held[0], inputs)):
            held = self._cached[name] = (tuple(inputs), compute())
        return held[1]

    def on_train_start(self) -> None:
        """Forgets features of an earlier fit."""
        self._cached = {}

    def on_train_end(self) -> None:
        """Frees the features of the training batch."""
        self._cached = {}

    def predict_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor:
        """Values on the grid of the given coordinate vectors, ``(S, n_1, ..., n_D, C)``."""
        return self.predict_grid(batch)


def _leave_inference() -> contextlib.AbstractContextManager[None]:
    """Parameters made while Lightning is in inference mode could not be trained later."""
    return torch.inference_mode(False)
