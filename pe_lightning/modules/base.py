"""What both modules share: building from the data's shape, the loss, the metrics, the checkpoint."""

from __future__ import annotations

import contextlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau

from pe_lightning.data.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.encoders import Encoder, EncoderLike, resolve
from pe_lightning.encodings import Encoding
from pe_lightning.errors import InputError
from pe_lightning.metrics import SignalPSNR, psnr

__all__ = ["CoordinateModule", "EncoderChoice"]

EncoderChoice = Encoder | list[Encoder] | str
"""An encoder for all axes, or one per axis. At run time names and descriptions are accepted in their place."""

SIGNALS_KEY = "pe_lightning/signals"


class CoordinateModule(LightningModule, ABC):
    """A set of signals as functions of coordinates, one network per signal, all fitted together.

    Parameters exist once the shape of the signals is known: from the DataModule when a Trainer runs, from the checkpoint
    when one is loaded, or by calling :meth:`build`. The training loss is the sum over signals of each one's mean squared
    error, so that no signal's step depends on how many others there are.

    Args:
        encoder: One encoder, or one per axis.
        optimizer: Makes the optimiser from the parameters.
        lr_scheduler: Makes the scheduler from the optimiser; it is stepped every optimiser step
            (``ReduceLROnPlateau``: every validation).
    """

    encoding: Encoding
    scores: dict[str, Tensor]

    def __init__(
        self,
        encoder: EncoderLike | Sequence[EncoderLike],
        optimizer: OptimizerCallable,
        lr_scheduler: LRSchedulerCallable | None,
    ) -> None:
        super().__init__()
        several = isinstance(encoder, Sequence) and not isinstance(encoder, str)
        # prototypes: the encoding makes its own from them once the number of axes is known, so they are no submodules
        prototypes = [resolve(entry) for entry in (encoder if several else [encoder])]  # type: ignore[list-item, union-attr]
        self.prototypes: list[Encoder]
        object.__setattr__(self, "prototypes", prototypes)
        self._several_encoders = several
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler
        self.info: SignalInfo | None = None
        self._cached: tuple[object, Any] | None = None
        self._last: tuple[Tensor, Tensor] | None = None

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

    @abstractmethod
    def predict_grid(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on a separable grid: ``D`` coordinate vectors ``(n_a,)`` -> ``(S, n_1, ..., n_D, C)``."""

    # -- building -----------------------------------------------------------------------------------------------------

    @property
    def encoder_prototype(self) -> Encoder | list[Encoder]:
        """The encoder as configured, or the list of them."""
        return self.prototypes if self._several_encoders else self.prototypes[0]

    def remember(self, **arguments: Any) -> None:
        """Saves the hyper-parameters as plain names and values, so that a checkpoint loads with ``weights_only``."""
        described = [_plain_encoder(encoder) for encoder in self.prototypes]
        self.save_hyperparameters(
            {
                # LightningCLI and load_from_checkpoint read the class from here
                "_class_path": f"{type(self).__module__}.{type(self).__qualname__}",
                "encoder": described if self._several_encoders else described[0],
                **arguments,
            },
            logger=False,
        )

    def build(self, info: SignalInfo) -> None:
        """Creates the parameters for signals of this shape; a module already built for the same shape is left alone.

        Raises:
            InputError: If the module was built for signals of another shape.
        """
        if self.info is not None:
            mine, theirs = self.info, info
            if (mine.num_signals, mine.num_axes, mine.channels) != (theirs.num_signals, theirs.num_axes, theirs.channels):
                raise InputError(f"this module holds {_shape(mine)}; the data has {_shape(theirs)}")
            return
        # Lightning may be inside a context that creates tensors on another device; initial weights come from the CPU's
        # generator so that a seed means the same model everywhere
        with torch.device("cpu"), _leave_inference():
            self.make(info)
            self.info = info
            self.train_psnr = SignalPSNR(info.num_signals)
            self.test_psnr = SignalPSNR(info.num_signals)

    def configure_model(self) -> None:
        """Builds from the Trainer's DataModule; without a Trainer the shape comes from the checkpoint."""
        if self.info is not None:
            return
        try:
            trainer = self.trainer
        except RuntimeError:  # Lightning's way to say that there is none
            return
        data = getattr(trainer, "datamodule", None)
        info = getattr(data, "info", None)
        if info is None and trainer.state.fn != TrainerFn.FITTING:
            return  # the checkpoint, read next, knows the shape
        if not isinstance(info, SignalInfo):
            raise InputError(
                f"{type(self).__name__} needs the shape of the signals: pass a DataModule of pe_lightning.data, such as "
                "TensorDataModule(values), to the Trainer"
            )
        self.build(info)
        train_batch = getattr(data, "train_batch", None)
        if callable(train_batch):
            self.calibrate(train_batch())

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
        self._check_same(checkpoint.get("hyper_parameters", {}))
        self.build(SignalInfo.from_dict(checkpoint[SIGNALS_KEY]))

    def _check_same(self, saved: dict[str, Any]) -> None:
        mine = dict(self.hparams)
        for key in ("_class_path", "encoder"):
            if key in saved and saved[key] != mine.get(key):
                raise InputError(
                    f"the checkpoint holds {_describe(saved, key)}, the model asked for is {_describe(mine, key)}; "
                    "leave the option out, or name a checkpoint of that model"
                )

    @property
    def num_params(self) -> int:
        """Trainable parameters of one signal: what is held per signal once, plus what all signals share."""
        signals = self.info.num_signals if self.info is not None else 1
        shared = {id(p) for p in self.encoding.parameters()} if self.info is not None else set()
        counts = [p.numel() if id(p) in shared else p.numel() // signals for p in self.parameters() if p.requires_grad]
        return sum(counts)

    # -- fitting ------------------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The optimiser over all parameters, and the scheduler if there is one."""
        optimizer = self.optimizer(self.parameters())
        if self.lr_scheduler is None:
            return optimizer
        scheduler = self.lr_scheduler(optimizer)
        if isinstance(scheduler, ReduceLROnPlateau):
            monitor = getattr(scheduler, "monitor", "val/psnr")
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": monitor}}
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def training_step(self, batch: GridBatch | PointBatch, batch_idx: int) -> Tensor:
        """The sum over signals of the mean squared error, ``()``."""
        errors = self.errors(batch)
        # a dot product per signal: one pass over the errors, forward and backward
        squared = torch.bmm(errors.unsqueeze(1), errors.unsqueeze(2)).reshape(-1)
        self._last = (squared.detach(), squared.new_tensor(errors.shape[1]))
        loss = squared.sum() / errors.shape[1]
        if (self.trainer.global_step + 1) % self.trainer.log_every_n_steps == 0:
            self.log("train/loss", loss.detach(), batch_size=1)
            self.log("train/psnr", self.last_train_psnr(), batch_size=1)
        return loss

    def last_train_psnr(self) -> Tensor:
        """PSNR of the latest training batch before its step, mean over signals, ``()``; NaN before the first step."""
        if self._last is None:
            return torch.tensor(float("nan"))
        return psnr(*self._last).mean()

    def cached(self, key: object, compute: Callable[[], Any]) -> Any:
        """``compute()`` for a training batch, kept while batches with the same ``key`` object come and nothing it
        depends on is trained."""
        if any(p.requires_grad for p in self.encoding.parameters()):
            return compute()
        if self._cached is None or self._cached[0] is not key:
            self._cached = (key, compute())
        return self._cached[1]

    def on_train_start(self) -> None:
        """Forgets features of an earlier fit."""
        self._cached = None

    def on_train_end(self) -> None:
        """Frees the features of the training batch."""
        self._cached = None

    # -- scoring ------------------------------------------------------------------------------------------------------

    def validation_step(self, batch: GridBatch, batch_idx: int) -> None:
        """Scores the held-out samples."""
        self.test_psnr.update(self.predict_grid(batch.axes), batch.values, batch.mask)

    def on_validation_epoch_end(self) -> None:
        """Logs ``val/psnr``, mean over signals; nothing when no sample is held out."""
        score = self.test_psnr.per_signal().mean()
        self.test_psnr.reset()
        if not score.isnan():
            self.log("val/psnr", score.float(), prog_bar=True, batch_size=1)

    def test_step(self, batch: GridBatch, batch_idx: int) -> dict[str, Tensor]:
        """Scores held-out and training samples; returns the prediction on the whole grid for callbacks."""
        prediction = self.predict_grid(batch.axes)
        self.test_psnr.update(prediction, batch.values, batch.mask)
        self.train_psnr.update(prediction, batch.values, batch.train_mask)
        return {"prediction": prediction}

    def on_test_epoch_end(self) -> None:
        """Keeps the scores per signal in ``self.scores`` and logs their means."""
        self.scores = {"test/psnr": self.test_psnr.per_signal().cpu(), "train/psnr": self.train_psnr.per_signal().cpu()}
        self.test_psnr.reset()
        self.train_psnr.reset()
        for name, values in self.scores.items():
            if values.isfinite().all():
                self.log(name if name.startswith("test/") else "test/train_psnr", values.mean().float(), batch_size=1)

    def predict_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor:
        """Values on the grid of the given coordinate vectors, ``(S, n_1, ..., n_D, C)``."""
        return self.predict_grid(batch)

    def require_info(self) -> SignalInfo:
        """The shape of the signals.

        Raises:
            InputError: If the module has not been built.
        """
        if self.info is None:
            raise InputError(
                f"{type(self).__name__} has no parameters yet: fit it with a Trainer, load a checkpoint, or call "
                "build(SignalInfo(...))"
            )
        return self.info


def _plain_encoder(encoder: Encoder) -> dict[str, Any]:
    cls, given = type(encoder), encoder.given()
    # every argument is written, so that equal encoders have equal descriptions however they were spelt
    arguments = {key: given.get(key, parameter.default) for key, parameter in inspect.signature(cls).parameters.items()}
    return {"class_path": f"{cls.__module__}.{cls.__qualname__}", "init_args": arguments}


def _describe(hparams: dict[str, Any], key: str) -> str:
    value = hparams.get(key)
    if key == "encoder":
        entries = value if isinstance(value, list) else [value]
        return "encoder " + ", ".join(
            f"{entry['class_path'].rpartition('.')[2]}({', '.join(f'{k}={v}' for k, v in entry['init_args'].items())})"
            for entry in entries
            if isinstance(entry, dict)
        )
    return f"a {str(value).rpartition('.')[2]}"


def _shape(info: SignalInfo) -> str:
    return f"{info.num_signals} signal(s) of {info.num_axes} axes and {info.channels} channel(s)"


def _leave_inference() -> contextlib.AbstractContextManager[None]:
    """Parameters made while Lightning is in inference mode could not be trained later."""
    return torch.inference_mode(False)  # type: ignore[return-value]

