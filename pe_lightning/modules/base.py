"""What both modules share: building from the data's shape, the loss, the metrics, the checkpoint."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor

from pe_lightning.data.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.encoders import Encoder, EncoderLike, resolve
from pe_lightning.encodings import Encoding
from pe_lightning.errors import InputError
from pe_lightning.linalg import full_precision
from pe_lightning.metrics import SignalPSNR, psnr
from pe_lightning.modules.apart import clip_norm, hold_together
from pe_lightning.modules.building import build_for_fit, is_fitted, no_inference
from pe_lightning.modules.chunks import squared_errors, squared_errors_in_chunks
from pe_lightning.modules.description import plain_encoder, refuse_other_model, shape_in_words
from pe_lightning.modules.kept import Kept
from pe_lightning.modules.loss import training_loss
from pe_lightning.modules.optimizing import make_optimizer
from pe_lightning.modules.scoring import log_test, log_validation
from pe_lightning.modules.several_steps import check_resumed, step_plateau, take_steps

__all__ = ["CoordinateModule", "EncoderChoice"]

EncoderChoice = Encoder | list[Encoder] | str
"""An encoder for all axes, or one per axis. At run time names and descriptions are accepted in their place."""

SIGNALS_KEY = "pe_lightning/signals"


class CoordinateModule(LightningModule, ABC):
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
    scores: dict[str, Tensor]
    """After a test, the scores of each signal ``(S,)`` by name: ``test/psnr`` and ``train/psnr``."""
    monitor: str = "val/psnr"
    """The logged value by which checkpoints are compared."""
    monitor_mode: Literal["max", "min"] = "max"
    solution: dict[str, Any] | None = None
    """What an exact solver found, as plain values."""
    steps_per_batch: int = 1
    signals_per_batch: int | None = None
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
        self.calibrated = False
        """Whether the scales of the features and the means of the signals have been set, from data or a checkpoint."""
        self.own: slice | None = None
        """Under the strategy ``signals``, while it fits: which of the signals this process holds."""
        self.kept = Kept()
        """Features and other results that come from the training batch alone."""
        self.last_train_errors: tuple[Tensor, int] | None = None
        """Of the latest training batch before its step: the sum of squared errors of each signal, ``(S,)``, and over how
        many numbers it goes; under several processes, of this one's part."""

    # -- what the subclasses define -----------------------------------------------------------------------------------

    @abstractmethod
    def make(self, info: SignalInfo) -> None:
        """Creates the encoding and the parameters for signals of this shape."""

    @abstractmethod
    def calibrate(self, batch: GridBatch | PointBatch) -> None:
        """Sets the buffers that come from the training data: row-norm scales, means."""

    @abstractmethod
    def predict_grid(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on a separable grid: ``D`` coordinate vectors ``(n_a,)`` -> ``(S, n_1, ..., n_D, C)``."""

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
        with torch.device("cpu"), no_inference():
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
        build_for_fit(self)

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
        saved = checkpoint.get("hyper_parameters", {})
        refuse_other_model(saved, dict(self.hparams), self.free)
        if is_fitted(self):
            check_resumed(self.steps_per_batch, saved)
        fresh = self.info is None
        self.build(SignalInfo.from_dict(checkpoint[SIGNALS_KEY]), "the checkpoint")
        self.calibrated = True  # the state that is loaded next holds the scales and the means
        if fresh:  # a model fitted in float64 comes back in float64
            tensors = checkpoint["state_dict"].values()
            self.to(next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), None))

    @property
    def num_params(self) -> int:
        """Trainable parameters of one signal: what is held per signal once, plus what all signals share."""
        shared = {id(p) for p in self.encoding.parameters()} if self.info is not None else set()
        counts = [p.numel() if id(p) in shared else p[0].numel() for p in self.parameters() if p.requires_grad]
        return sum(counts)

    def describe(self) -> dict[str, Any]:
        """What the module is, as plain values: the part of ``metrics.json`` that the module knows."""
        info, solution = self.require_info(), self.solution or {}
        encoders = [{"name": e.name, **e.resolved()} for e in self.encoding.encoders]
        return {
            "model": type(self).__name__,
            "num_params": self.num_params,
            "num_signals": info.num_signals,
            "grid": list(info.grid),
            "channels": info.channels,
            "signals": list(info.names),
            "encoding": self.encoding.name,
            # one entry where all axes or directions have the same encoder
            "encoder": encoders[0] if all(entry == encoders[0] for entry in encoders) else encoders,
            "solve_seconds": solution.get("solve_seconds"),
            "ridge": solution.get("ridge"),
            "solution": {key: value for key, value in solution.items() if key != "encoders"} or None,
        }

    # -- fitting ------------------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The optimiser over all parameters, and the scheduler if there is one.

        Raises:
            InputError: If ``ReduceLROnPlateau`` waits for the PSNR to fall.
        """
        return make_optimizer(self)

    def on_fit_start(self) -> None:
        """Takes the optimiser's steps itself where there are several per batch."""
        self.automatic_optimization = self.steps_per_batch == 1

    def training_step(self, batch: GridBatch | PointBatch, batch_idx: int) -> Tensor:
        """The loss before the (last) step of the batch, ``()``."""
        if self.automatic_optimization:
            return self.training_loss(batch)
        return take_steps(self, batch, self.steps_per_batch)

    def training_loss(self, batch: GridBatch | PointBatch, seen: bool = True) -> Tensor:
        """The sum over signals of the mean squared error, ``()``, logged when it is time to.

        Args:
            batch: The training samples.
            seen: Whether anything looks at its value, and not only at the gradient.
        """
        return training_loss(self, batch, seen)

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clips as the Trainer is told to; by the norm over all signals, also where processes have their own."""
        if self.own is None or not gradient_clip_val or gradient_clip_algorithm == "value":
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
        else:
            clip_norm(self, optimizer, gradient_clip_val)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Clips gradients where Lightning leaves it to the module."""
        if not self.automatic_optimization:
            trainer = self.trainer
            self.configure_gradient_clipping(optimizer, trainer.gradient_clip_val, trainer.gradient_clip_algorithm)

    def on_train_epoch_end(self) -> None:
        """Tells ``ReduceLROnPlateau`` what it waits for where Lightning leaves it to the module."""
        if not self.automatic_optimization:
            step_plateau(self)

    def squared_errors(self, batch: GridBatch | PointBatch, every_step: bool = False, exact: bool | None = True) -> Tensor:
        """The sum of squared errors of each signal, ``(S,)``.

        Args:
            batch: The training samples.
            every_step: Whether the next steps have the same batch, so that what depends on it alone is worth making.
            exact: Whether the value may not rely on earlier ones; ``None``: nobody sees it. The gradient never does.
        """
        if self.signals_per_batch is None or self.signals_per_batch >= len(batch.values):
            return squared_errors(self, batch)
        return squared_errors_in_chunks(self, batch, self.signals_per_batch)

    def last_train_psnr(self) -> Tensor:
        """PSNR of the latest training batch before its step, mean over signals, ``()``; NaN before the first step.

        Under several processes, of this one's part.
        """
        if self.last_train_errors is None:
            return torch.tensor(float("nan"))
        squared, count = self.last_train_errors
        return psnr(squared, torch.full_like(squared, count)).mean()

    @property
    def features_are_trained(self) -> bool:
        """Whether anything that features depend on is trained."""
        return any(p.requires_grad for p in self.encoding.parameters())

    def cached(self, name: str, inputs: Sequence[object], compute: Callable[[], Any]) -> Any:
        """``compute()``, kept while the same ``inputs`` come (see :class:`Kept`) and no feature is trained."""
        return compute() if self.features_are_trained else self.kept.get(name, inputs, compute)

    def on_train_start(self) -> None:
        """Forgets features of an earlier fit."""
        self.kept.clear()

    def on_train_end(self) -> None:
        """Frees the features of the training batch."""
        self.kept.clear()

    # -- scores -------------------------------------------------------------------------------------------------------

    def validation_step(self, batch: GridBatch, batch_idx: int) -> None:
        """Scores the held-out samples."""
        self.test_psnr.update(self._evaluate(batch.axes), batch.values, batch.mask)

    def on_validation_epoch_end(self) -> None:
        """Logs ``val/psnr``, mean over signals; nothing when no sample is held out."""
        log_validation(self)

    def test_step(self, batch: GridBatch, batch_idx: int) -> dict[str, Tensor]:
        """Scores held-out and training samples; returns the prediction on the whole grid for callbacks."""
        prediction = self._evaluate(batch.axes)
        self.test_psnr.update(prediction, batch.values, batch.mask)
        self.train_psnr.update(prediction, batch.values, batch.train_mask)
        return {"prediction": prediction}

    def on_test_epoch_end(self) -> None:
        """Keeps the scores per signal in ``self.scores`` and logs their means."""
        self.scores = log_test(self)

    # -- use ----------------------------------------------------------------------------------------------------------

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

    def predict_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor:
        """Values on the grid of the given coordinate vectors, ``(S, n_1, ..., n_D, C)``."""
        return self._evaluate(batch)

    def _evaluate(self, axes: Sequence[Tensor]) -> Tensor:
        """The prediction in full precision: scores are of the weights, whatever the training steps round."""
        with full_precision(self.device):
            return self.predict_grid(axes)
