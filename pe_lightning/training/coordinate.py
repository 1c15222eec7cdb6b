"""The base of the modules of signals as functions of coordinates: building from data, the loss, scores, predictions."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.utilities.types import LRSchedulerTypeUnion
from torch import Tensor, nn
from typing_extensions import Self

from pe_lightning.encoders import ConfiguredEncoders, Encoder, EncoderLike
from pe_lightning.encodings.base import check_points
from pe_lightning.errors import InputError, show_metric
from pe_lightning.estimators.base import POINTS_AT_ONCE
from pe_lightning.estimators.report import FitReport
from pe_lightning.evaluation import metrics
from pe_lightning.evaluation.scores import psnr
from pe_lightning.linalg import full_precision
from pe_lightning.networks import VmapEnsemble
from pe_lightning.registry import Described
from pe_lightning.signals import validation
from pe_lightning.signals.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.loaders import FullLoader
from pe_lightning.signals.split_signals import Signals
from pe_lightning.training.base import TrainedModule, datamodule_of, signals_of, trainer_of
from pe_lightning.training.datamodule import OutputGrid, SignalDataModule
from pe_lightning.training.optimization import (
    LR_HALF_LIFE_STEPS,
    clip_by_norm,
    flush_subnormal,
    harmonic_decay,
    parameter_groups,
)
from pe_lightning.training.sharding import SignalScores, SignalsStrategy

EncoderChoice: TypeAlias = Described[Encoder] | list[Described[Encoder]]
"""An encoder for all axes, or one per axis: objects, registered names or descriptions, as in a configuration."""

SIGNALS_KEY = "pe_lightning/signals"
ENCODERS_KEY = "pe_lightning/encoders"
FIRST_AXES_KEY = "pe_lightning/shared_by_axes"
FOLDS_KEY = "pe_lightning/folds"
SOLUTION_KEY = "pe_lightning/solution"


@dataclass(frozen=True)
class BatchErrors:
    """Errors of a training batch before the step; under several processes, those of this process's share."""

    squared: Tensor
    """Sum of squared errors per signal, ``(S,)``."""
    count: int
    """Number of values in each sum."""

    def psnr(self) -> Tensor:
        """PSNR, mean over signals, ``()``; NaN without signals."""
        return psnr(self.squared, torch.full_like(self.squared, self.count)).mean()


class FunctionModule(TrainedModule):
    """A set of signals as functions of coordinates: scores, predictions, description and the shape of the signals.

    A subclass defines :meth:`evaluate` and :meth:`predict_grid`, and fits the functions.
    """

    info: SignalInfo | None = None
    """The shape of the signals, once the module is built for them."""
    scorer: SignalScores
    content_key: ClassVar[str] = SIGNALS_KEY
    content: ClassVar[str] = "shape of signals"
    solves: bool = False
    """Whether a fit solves for the weights, so that it needs no steps."""
    logs_final_score: bool = True
    """Whether a fit logs the score of its final weights where no validation did; false where a test follows."""

    def __init__(self) -> None:
        super().__init__()
        self.metric_name = "psnr"
        self.solution: FitReport | None = None
        """Results of an exact fit and of a choice."""

    @abstractmethod
    def evaluate(self, points: Tensor) -> Tensor:
        """Values at points that are known to be valid: ``(P, D)`` -> ``(S, P, C)``."""

    @property
    @abstractmethod
    def num_params(self) -> int:
        """Parameters of one signal; 0 before there are some."""

    @property
    @abstractmethod
    def prefers_points(self) -> bool:
        """Whether a few samples of a grid are predicted faster one by one than as a part of the whole grid."""

    @property
    @abstractmethod
    def takes_periodic(self) -> bool:
        """Whether an axis may be periodic."""

    @abstractmethod
    def predict_grid(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on a separable grid: ``D`` coordinate vectors ``(n_a,)`` -> ``(S, n_1, ..., n_D, C)``."""

    @property
    def has_std(self) -> bool:
        """Whether :meth:`std` is available: not by default."""
        return False

    def std(self, coords: Tensor, level: float | None = None) -> Tensor:
        """Standard deviations about the predictions of one signal: ``(*batch, D)`` in [0, 1) -> ``(*batch, C)``."""
        raise InputError(f"{type(self).__name__} has no standard deviations: use Adaptive, or pe_lightning.fit")

    def require_info(self) -> SignalInfo:
        """The shape of the signals."""
        if self.info is None:
            raise InputError(
                f"{type(self).__name__} has no parameters yet: fit it with a Trainer, load a checkpoint, or call "
                "build(SignalInfo(...))"
            )
        return self.info

    def on_predict_start(self) -> None:
        """Predictions on a grid of another size are means over the cells of that grid, if the samples are means."""
        output, info = datamodule_of(self.trainer, OutputGrid), self.info
        if output is not None and info is not None and info.cells:
            self.of_cells([1 / n for n in output.grid(info)])

    def on_predict_end(self) -> None:
        if self.info is not None:
            self.of_cells(self.info.cells)

    @abstractmethod
    def of_cells(self, sizes: Sequence[float]) -> Self:
        """This module, whose predictions are from now on means over cells of these lengths per axis; of length 0: values."""

    def predict_step(self, batch: Sequence[Tensor] | Tensor, batch_idx: int = 0) -> Tensor:
        """Values on the grid of coordinate vectors, ``(S, n_1, ..., n_D, C)``, or at points ``(P, D)``, ``(S, P, C)``.

        In full precision: scores are of the weights, whatever the training steps round.
        """
        with full_precision(self.device):
            if not isinstance(batch, Tensor):
                return self.predict_grid(batch)
            check_points(batch, self.require_info().num_axes)
            return torch.cat([self.evaluate(some) for some in torch.split(batch, POINTS_AT_ONCE)], 1)

    @property
    def label(self) -> str:
        return type(self).__name__

    def at(self, points: Tensor) -> Tensor:
        """Values at points, in full precision: ``(P, D)`` in [0, 1) -> ``(S, P, C)``."""
        return self.predict_step(points.to(self.device))

    def grid(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on a separable grid: ``D`` coordinate vectors ``(n_a,)`` -> ``(S, n_1, ..., n_D, C)``."""
        return self.predict_step([x.to(self.device) for x in axes])

    def predicted(self, batch: GridBatch | PointBatch) -> Tensor:
        """The prediction at the samples of an evaluation batch, of the shape of its values."""
        return self.predict_step(batch.axes if isinstance(batch, GridBatch) else batch.coords[0])

    def forward(self, coords: npt.ArrayLike | Tensor) -> Tensor:
        """Values at any coordinates: ``(*batch, D)`` in [0, 1) -> ``(S, *batch, C)``; differentiable."""
        given = coords if isinstance(coords, Tensor) else torch.as_tensor(np.asarray(coords), device=self.device)
        info = self.require_info()
        check_points(given, info.num_axes)
        values = self.evaluate(given.to(next(self.parameters()).dtype).reshape(-1, info.num_axes))
        return values.reshape(len(values), *given.shape[:-1], values.shape[-1])

    def describe(self) -> dict[str, Any]:
        """Plain values for ``metrics.json``: model, shape of the signals, encoders, optimiser, exact solution."""
        info, solution = self.require_info(), self.solution or FitReport()
        return {
            "model": self.label,
            "num_params": self.num_params,
            "num_signals": info.num_signals,
            "grid": list(info.grid),
            "channels": info.channels,
            "signals": list(info.names),
            "network": None,  # subclasses name the layers after the encoding, if there are some
            "encoding": None,
            "encoder": None,
            "learned": {},
            "optimizer": self.optimization,
            "solve_seconds": solution.solve_seconds,
            "ridge": solution.ridge,
            "solution": None if self.solution is None else self.solution.to_dict(),
        }

    # -- building -----------------------------------------------------------------------------------------------------

    def configure_model(self) -> None:
        """Builds from the Trainer's DataModule; without a Trainer the shape comes from the checkpoint."""
        trainer = trainer_of(self)
        if trainer is None:
            return
        if trainer.precision in ("16-true", "bf16-true"):  # to 11 or 8 bits
            raise InputError(
                f"precision {trainer.precision!r} would round the coordinates, so that neighbouring samples fall "
                f"together; use {trainer.precision.replace('true', 'mixed')!r} or '32-true'"
            )
        if self.is_fitting:
            self.build_from(signals_of(self), trainer.strategy.root_device)
        elif (data := datamodule_of(trainer, SignalDataModule)) is not None:
            self.build(data.info)  # refuses signals of another shape, as the checkpoint that is read next does
            data.take_scaling(self.require_info().scaling)

    def refuse_periodic(self, info: SignalInfo) -> None:
        """Refuses periodic axes, unless the module takes them."""
        wrapping = [axis.name for axis in info.axes if axis.periodic]
        if wrapping and not self.takes_periodic:
            raise InputError(
                f"{type(self).__name__} has no periodic axes, and {', '.join(wrapping)} is one: use Adaptive or "
                "ComplexLinear"
            )

    def build_from(self, data: SignalDataModule, device: torch.device | None = None) -> None:
        """Builds for the signals of a DataModule, before a fit."""
        self.refuse_periodic(data.info)
        self.build(data.info)

    def build(self, info: SignalInfo, source: str = "the data") -> None:
        """Takes the shape of the signals, once; an error names the ``source`` of another shape."""
        if self.info is not None:
            mine, theirs = (
                f"{given.num_signals} signal(s) of {given.num_axes} axes and {given.channels} channel(s)"
                for given in (self.info, info)
            )
            if mine != theirs:
                raise InputError(f"this module holds {mine}; {source} has {theirs}")
            return
        # Lightning may be inside a context that creates tensors on another device or without gradients
        with torch.device("cpu"), torch.inference_mode(False):
            self.info, self.metric_name = info, info.metric
            self.scorer = SignalScores(info.metric, info.num_signals).to(self.device)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the shape of the signals, the scores of folds, and the results of a solver."""
        super().on_save_checkpoint(checkpoint)
        if self.info is not None:
            checkpoint[SIGNALS_KEY] = self.info.to_dict()
            checkpoint[FOLDS_KEY] = self.fold_scores
            checkpoint[SOLUTION_KEY] = None if self.solution is None else self.solution.to_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self.build_from_checkpoint(checkpoint)

    def build_from_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Builds from the checkpoint's shape of the signals, or checks that it is the module's."""
        info = SignalInfo.from_dict(checkpoint[SIGNALS_KEY])
        self.build(info, "the checkpoint")
        trainer = trainer_of(self)
        if trainer is not None and (data := datamodule_of(trainer, SignalDataModule)) is not None:
            data.take_scaling(info.scaling)
            self.info = replace(self.require_info(), scaling=data.info.scaling)
        solution = checkpoint[SOLUTION_KEY]
        self.solution = None if solution is None else FitReport.from_dict(solution)
        self.fold_scores = checkpoint.get(FOLDS_KEY, {})

    # -- scores -------------------------------------------------------------------------------------------------------

    def validation_step(self, batch: GridBatch | PointBatch, batch_idx: int) -> None:
        self.scorer.add(self.predicted(batch), batch)

    def test_step(self, batch: GridBatch | PointBatch, batch_idx: int) -> dict[str, Tensor]:
        """Scores held-out and training samples; returns the prediction on the grid, or at all points, for callbacks."""
        prediction = self.predicted(batch)
        self.scorer.add(prediction, batch, with_trained=True)
        return {"prediction": prediction}

    def fit(self, signals: Signals) -> FunctionModule:
        """Solves for the model, without logs and files, as an :class:`~pe_lightning.estimators.Estimator` does."""
        from pe_lightning.training.quiet_fits import fit_quietly  # imports this module

        return fit_quietly(self, SignalDataModule.of_signals(signals))

    def on_fit_end(self) -> None:
        """Logs the score of the final weights: a fit that ends within an epoch, or has no steps, has no validation then."""
        trainer, data = self.trainer, datamodule_of(self.trainer, SignalDataModule)
        bar = trainer.progress_bar_callback
        # without a progress bar fits are silent; a bar that declares `prints_scores` has a table after it
        prints = bar is not None and not getattr(bar, "prints_scores", False)
        validates = bool(trainer.limit_val_batches) and self.logs_final_score
        logs = validates and bool(trainer.loggers) and self.validated_step != trainer.global_step
        self.validated_step = None
        if not (prints or logs) or data is None or data.streamed or not data.scores_validation or not trainer.is_global_zero:
            return
        with torch.no_grad():
            batch = data.transfer_batch_to_device(data.dataset.validation_batch, self.device, 0)
            metric = metrics.create(self.metric_name, data.info.num_signals, sync_on_compute=False).to(self.device)
            metric.update(self.predicted(batch), batch.values, batch.mask)
            score = float(metric.per_signal().mean())
        if prints:
            over = f", mean over {data.info.num_signals} signals" if data.info.num_signals > 1 else ""
            value = f"{score:.2f} {metric.unit}".rstrip()
            name, protocol = show_metric(self.metric_name), data.effective_eval_mask
            rank_zero_info(f"held-out {name}: {value} (protocol {protocol}{over})")
        if logs:
            for logger in trainer.loggers:
                logger.log_metrics({self.monitor: score, "epoch": trainer.current_epoch}, step=trainer.global_step)
                logger.save()


class CoordinateModule(FunctionModule):
    """A set of signals as functions of coordinates, one network per signal, all fitted together.

    Parameters exist once the shape of the signals is known: from the DataModule when a Trainer fits, from the checkpoint
    when one is loaded, or by :meth:`build`. Everything that is taken from the training samples (chosen widths, scales of
    features, means) is set by :meth:`build_from` alone, before the optimiser is made. The training loss is the sum over
    signals of their mean squared errors, so that the steps of a signal do not depend on the number of the others.

    A subclass defines :meth:`make_network`, :meth:`calibrate`, :meth:`errors` and :meth:`predict_grid`, and calls
    :meth:`save_arguments` in its constructor.

    Args:
        encoder: One encoder, or one per axis.
        shared_encoder: Whether all signals train one encoder, where it has parameters; else each has its own.
        encoder_lr: Learning rate of the encoder's parameters; ``None``: that of the network.
        signals_per_chunk: Signals whose network is evaluated at a time; ``None``: all.
        optimizer: Makes the optimiser from the parameters; ``None``: :meth:`default_optimizer`.
        lr_scheduler: Makes the scheduler from the optimiser; it steps after every optimiser step
            (``ReduceLROnPlateau``: after every validation). ``None``: a constant rate; with the default optimiser the rate
            falls as ``1 / (1 + t / 500)`` at step ``t``, whatever the number of steps.
    """

    networks: VmapEnsemble
    may_differ: ClassVar[frozenset[str]] = frozenset({"normalize", "encoder_lr", "signals_per_chunk"})
    takes_periodic: ClassVar[bool] = False
    prefers_points: ClassVar[bool] = False
    has_layers: ClassVar[bool] = False
    """Whether the networks have features and hidden layers, whose activations :meth:`VmapEnsemble.hidden` returns."""

    def __init__(
        self,
        encoder: EncoderLike | Sequence[EncoderLike],
        shared_encoder: bool,
        encoder_lr: float | None,
        signals_per_chunk: int | None,
        optimizer: OptimizerCallable | None,
        lr_scheduler: LRSchedulerCallable | None,
    ) -> None:
        super().__init__()
        self.configured = ConfiguredEncoders(encoder)
        """Encoders as configured; after :meth:`build_from` with all arguments resolved for the data."""
        if encoder_lr is not None:
            validation.number("encoder_lr", encoder_lr, "(0, inf)", hint=", or null for that of the network")
        if signals_per_chunk is not None:
            validation.integer("signals_per_chunk", signals_per_chunk, 1, hint=", or null for all")
        self.shared_encoder = shared_encoder
        self.encoder_lr = encoder_lr
        self.signals_per_chunk = signals_per_chunk
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler
        self.is_calibrated = False
        """Whether scales and means have been set, from data or a checkpoint."""
        self.choice_seconds = 0.0
        """Seconds that choosing widths took before the fit started, counted as a part of the fit."""
        self.shard: SignalsStrategy | None = None
        """The strategy ``independent_signals``, while the networks are those of the signals of this process."""
        self.last_train = BatchErrors(torch.zeros(0), 0)
        """Errors of the last training batch, before its step."""

    # -- defined by subclasses ----------------------------------------------------------------------------------------

    @abstractmethod
    def make_network(self, info: SignalInfo) -> nn.Module:
        """The network of one signal of this shape, with an ``encoding`` made from :attr:`encoder`."""

    @abstractmethod
    def calibrate(self, batch: GridBatch | PointBatch) -> None:
        """Sets the buffers that come from the training samples: scales of features, means."""

    @abstractmethod
    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        """Prediction minus truth on a training batch, ``(S, M)``, in any fixed order of samples and channels."""

    def choose(self, data: SignalDataModule, device: torch.device) -> None:
        """Resolves arguments of the encoders for the data, before parameters are created; does nothing by default."""

    def default_optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        """The optimiser for ``optimizer: null``: the papers' Adam."""
        return torch.optim.Adam(parameters, lr=0.1, weight_decay=1e-8, fused=True)

    # -- parts and description ----------------------------------------------------------------------------------------

    @property
    def encoding(self) -> Any:
        """The encoding of the networks; tensors that each signal has for itself have a leading axis."""
        return self.networks.network.encoding

    def of_cells(self, sizes: Sequence[float]) -> Self:
        self.encoding.cells = tuple(sizes)
        return self

    def evaluate(self, points: Tensor) -> Tensor:
        values: Tensor = self.networks(points.to(next(self.parameters()).dtype))
        return values

    @property
    def encoder(self) -> Encoder | list[Encoder]:
        """A copy of the configured encoder, or of the list of them: models given the same one do not share it."""
        return self.configured.copy()

    @property
    def num_params(self) -> int:
        """Trainable parameters of one signal: its own, and those that all signals share."""
        return self.networks.num_params if self.info is not None else 0

    def describe(self) -> dict[str, Any]:
        encoders = [{"name": encoder.name, **encoder.resolved()} for encoder in self.encoding.encoders]
        return {
            **super().describe(),
            "encoding": self.encoding.name,
            # one entry where all axes or directions have the same encoder
            "encoder": encoders[0] if all(entry == encoders[0] for entry in encoders) else encoders,
            "learned": self.encoding.learned(),
        }

    # -- building -----------------------------------------------------------------------------------------------------

    def configure_model(self) -> None:
        super().configure_model()
        if self.is_fitting:
            self.networks.cache.clear()
            if self.shard is None:
                self._set_shard(SignalsStrategy.shard_of(self.trainer, self.networks))

    def build_from(self, data: SignalDataModule, device: torch.device | None = None) -> None:
        """Builds for the signals of a DataModule and takes scales, means and widths from its training samples, once."""
        self.refuse_periodic(data.info)
        if not self.is_calibrated:
            with torch.device("cpu"):  # Lightning may be inside a context that creates tensors on the GPU
                self.choose(data, device or torch.device("cpu"))
        self.build(data.info)
        if not self.is_calibrated:
            self.calibrate(data.calibration_batch())
            self.is_calibrated = True

    def build(self, info: SignalInfo, source: str = "the data") -> None:
        """Creates the parameters for signals of this shape, once; an error names the ``source`` of another shape."""
        if self.info is None:
            # Lightning may be inside a context that creates tensors on another device or without gradients; initial weights
            # come from the CPU's generator, so that a seed means the same model everywhere
            with torch.device("cpu"), torch.inference_mode(False), torch.enable_grad():
                network, shared, chunk = self.make_network(info), self.shared_encoder, self.signals_per_chunk
                self.networks = VmapEnsemble.of_signals(network, info.num_signals, shared, chunk)
                self.encoding.cells, self.shard = info.cells, None
        super().build(info, source)

    def _set_shard(self, shard: SignalsStrategy | None) -> None:
        self.shard = shard
        self.scorer = SignalScores(self.metric_name, self.require_info().num_signals, shard).to(self.device)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def save_arguments(self, **arguments: Any) -> None:
        specs = self.configured.specs()
        super().save_arguments(encoder=specs[0] if self.configured.one_for_all else specs, **arguments)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """As in the base class; adds the encoders as resolved for the data."""
        super().on_save_checkpoint(checkpoint)
        if self.info is not None:
            checkpoint[ENCODERS_KEY] = self.configured.specs()
            checkpoint[FIRST_AXES_KEY] = self.configured.first_axes

    def build_from_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        found = ConfiguredEncoders.from_checkpoint(checkpoint[ENCODERS_KEY], checkpoint[FIRST_AXES_KEY])
        mine = self.configured
        if (found.specs(), found.first_axes) != (mine.specs(), mine.first_axes):  # the fit chose sizes and widths
            self.configured = found
            self.info = self.shard = None
        is_new = self.info is None
        super().build_from_checkpoint(checkpoint)
        self.is_calibrated = True  # the state that is loaded next holds the scales and the means
        if is_new:  # a model fitted in float64 comes back in float64
            tensors = checkpoint["state_dict"].values()
            self.to(next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), None))
            if self.is_fitting:
                self._set_shard(SignalsStrategy.shard_of(self.trainer, self.networks))

    # -- fitting ------------------------------------------------------------------------------------------------------

    def make_optimizer(self) -> tuple[torch.optim.Optimizer, LRSchedulerTypeUnion | None, str]:
        """As in the base class; encoders that have a learning rate of their own are a group of parameters."""
        parameters: Any = [parameter for parameter in self.parameters() if parameter.requires_grad]
        if self.encoder_lr is not None and self.networks.features_are_trained:
            parameters = parameter_groups(parameters, self.encoding.parameters(), self.encoder_lr)
        optimizer = (self.optimizer or self.default_optimizer)(parameters)
        if self.lr is not None:
            optimizer.defaults["lr"] = optimizer.param_groups[0]["lr"] = self.lr
        if self.lr_scheduler is not None:
            scheduler = self.lr_scheduler(optimizer)
            return optimizer, scheduler, type(scheduler).__name__
        if self.optimizer is None:
            return optimizer, harmonic_decay(optimizer), f"1 / (1 + step / {LR_HALF_LIFE_STEPS})"
        return optimizer, None, "constant"

    def training_step(self, batch: GridBatch | PointBatch, batch_idx: int) -> Tensor:
        """The sum over signals of the mean squared error, and the encoders' penalties, ``()``."""
        trainer, loader, logged = self.trainer, self.trainer.train_dataloader, self.logs_this_step
        given, repeated = batch, loader.batch if isinstance(loader, FullLoader) else None
        if repeated is not None:  # Lightning makes a new one in every step where it changes its dtype
            batch = self.networks.cached("batch", (repeated,), lambda: given)
        # a line search compares losses of nearby weights
        compares_losses = isinstance(trainer.optimizers[0], torch.optim.LBFGS)
        squared = self.squared_errors(batch, repeated is not None and not compares_losses, logged)
        own = math.prod(batch.values.shape[1:])
        self.last_train = BatchErrors(squared.detach(), own)
        is_share = batch.total is not None and self.shard is None
        count = own if batch.total is None else batch.total * batch.values.shape[-1]
        if logged:
            all_squared = squared.detach().clone()  # a reduction writes into its input
            if is_share:
                all_squared = trainer.strategy.reduce(all_squared, reduce_op="sum")
            self.log_step(self.scorer.of_training(all_squared, count))
        loss = squared.sum() / count
        # processes average their gradients, and each has its share of the sum
        loss = loss * trainer.world_size if is_share else loss
        return loss + self.networks.penalty() if self.networks.features_are_trained else loss

    def squared_errors(self, batch: GridBatch | PointBatch, every_step: bool = False, exact: bool = True) -> Tensor:
        """The sum of squared errors of each signal, ``(S,)``.

        Args:
            batch: The training samples.
            every_step: Whether the following steps have the same batch.
            exact: Whether the value may not rely on earlier ones. The gradient never does.
        """
        errors = self.errors(batch)
        # a dot product per signal: one pass over the errors, forward and backward; in full precision, as half precision
        # overflows at 65504
        with torch.autocast(errors.device.type, enabled=False):
            return torch.bmm(errors.unsqueeze(1), errors.unsqueeze(2)).reshape(-1)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        flush_subnormal(optimizer)

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Applies the Trainer's gradient clipping; a norm is over all signals, also where processes have their own."""
        if self.shard is None or not gradient_clip_val or gradient_clip_algorithm == "value":
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
        else:
            clip_by_norm(optimizer, gradient_clip_val, self.shard.sum)

    def on_fit_end(self) -> None:
        """Gathers the signals that other processes fitted, and logs the score of the final weights."""
        self.choice_seconds = 0.0
        self.networks.cache.clear()
        if self.shard is not None:
            self.networks.replace_signals(self.shard.gather)
            self._set_shard(None)
        super().on_fit_end()
