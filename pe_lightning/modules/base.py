"""What the modules share: building from data, the loss, scores, checkpoints, signals on several devices."""

from __future__ import annotations

import copy
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_info
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from pe_lightning import __version__, metrics
from pe_lightning.checkpoints import VERSION_KEY, check_optimizer, refuse_other_version
from pe_lightning.data.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.loaders import FullLoader
from pe_lightning.distributed import SignalsStrategy
from pe_lightning.encoders import Encoder, EncoderLike, registry, resolve
from pe_lightning.errors import InputError, show_metric
from pe_lightning.linalg import full_precision
from pe_lightning.metrics import psnr
from pe_lightning.networks import Stack
from pe_lightning.resumption import Resumption

__all__ = ["CoordinateModule", "EncoderChoice", "plain_encoder", "refuse_other_model", "trainer_of"]

EncoderChoice = Encoder | list[Encoder] | str
"""An encoder for all axes, or one per axis. At run time names and descriptions are accepted in their place."""

SIGNALS_KEY = "pe_lightning/signals"
ENCODERS_KEY = "pe_lightning/encoders"
SHARED_KEY = "pe_lightning/shared_by_axes"
SOLUTION_KEY = "pe_lightning/solution"
FALL = 500
"""Steps after which the rate of the default optimiser has fallen to a half."""
COORDINATES_LOST = ("16-true", "bf16-true")
"""Precisions in which Lightning would round the coordinates themselves, to 11 or 8 bits."""


class CoordinateModule(LightningModule, ABC):
    """A set of signals as functions of coordinates, one network per signal, all fitted together.

    Parameters exist once the shape of the signals is known: from the DataModule when a Trainer fits, from the checkpoint
    when one is loaded, or by :meth:`build`. What comes from the training samples (chosen widths, scales of features, means)
    is set by :meth:`build_from` alone, before the optimiser is made. The training loss is the sum over signals of each one's
    mean squared error, so that no signal's step depends on how many others there are.

    Args:
        encoder: One encoder, or one per axis.
        shared_encoder: Whether all signals train one encoder, where it has parameters; else each has its own.
        encoder_lr: Learning rate of the encoder's parameters; ``None``: that of the network.
        signals_per_chunk: Signals whose network is evaluated at a time; ``None``: all.
        optimizer: Makes the optimiser from the parameters; ``None``: :meth:`default_optimizer`.
        lr_scheduler: Makes the scheduler from the optimiser; it is stepped every optimiser step
            (``ReduceLROnPlateau``: every validation). ``None``: a constant rate; with the default optimiser one that falls
            as ``1 / (1 + t / 500)`` over the steps ``t``, whatever their number.
    """

    networks: Stack
    scores: dict[str, Tensor]
    """After a test, the scores of each signal ``(S,)`` by name, such as ``test/psnr`` and ``train/psnr``."""
    monitor_mode: Literal["max", "min"] = "max"
    free: ClassVar[frozenset[str]] = frozenset({"normalize", "encoder_lr", "signals_per_chunk"})
    """Hyper-parameters in which a checkpoint may differ from the model that loads it: they do not change what the
    parameters and buffers mean."""

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
        several = isinstance(encoder, Sequence) and not isinstance(encoder, str)
        entries: Sequence[EncoderLike] = encoder if several else [encoder]  # type: ignore[assignment, list-item]
        # in a list, so that they are no submodules: the networks get copies once the number of axes is known
        self._configured: list[Encoder] = [resolve(entry) for entry in entries]
        self._several_encoders = several
        if encoder_lr is not None and not encoder_lr > 0:
            raise InputError(f"encoder_lr must be a positive number, or null for that of the network; got {encoder_lr!r}")
        if signals_per_chunk is not None and not (isinstance(signals_per_chunk, int) and signals_per_chunk >= 1):
            raise InputError(f"signals_per_chunk must be an integer >= 1, or null for all; got {signals_per_chunk!r}")
        self.shared_encoder = shared_encoder
        self.encoder_lr = encoder_lr
        self.signals_per_chunk = signals_per_chunk
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler
        self.optimization: dict[str, Any] | None = None
        """The optimiser of the latest fit, its arguments and its scheduler, as plain values."""
        self.info: SignalInfo | None = None
        self.calibrated = False
        """Whether scales and means have been set, from data or a checkpoint."""
        self.choice_seconds = 0.0
        """What the choice of widths took, before the fit that it is a part of."""
        self.shard: slice | None = None
        """Under the strategy ``signals``, while it fits: which of the signals this process holds."""
        self.solution: dict[str, Any] | None = None
        """What an exact solver found, as plain values."""
        self.batch_cache = BatchCache()
        self.last_train_errors: tuple[Tensor, int] | None = None
        """Of the latest training batch before its step: the sum of squared errors of each signal, ``(S,)``, and over how
        many numbers it goes; under several processes, of this one's share."""

    # -- what the subclasses define -----------------------------------------------------------------------------------

    @abstractmethod
    def make_network(self, info: SignalInfo) -> nn.Module:
        """The network of one signal of this shape, with an ``encoding`` made from :attr:`encoder`."""

    @abstractmethod
    def calibrate(self, batch: GridBatch | PointBatch) -> None:
        """Sets the buffers that come from the training samples: scales of features, means."""

    @abstractmethod
    def predict_grid(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on a separable grid: ``D`` coordinate vectors ``(n_a,)`` -> ``(S, n_1, ..., n_D, C)``."""

    @abstractmethod
    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        """Prediction minus truth on a training batch, ``(S, M)``, in any fixed order of samples and channels."""

    # -- building -----------------------------------------------------------------------------------------------------

    @property
    def encoder(self) -> Encoder | list[Encoder]:
        """A copy of the encoder as configured, or of the list of them: models given the same one do not share it."""
        return copy.deepcopy(self._configured if self._several_encoders else self._configured[0])

    @property
    def encoding(self) -> Any:
        """The encoding of the networks; tensors that each signal has for itself have a leading axis."""
        return self.networks.network.encoding

    @property
    def encoders(self) -> list[Encoder]:
        """The encoders in force, one per axis or direction."""
        return list(self.encoding.encoders)

    @property
    def features_are_shared(self) -> bool:
        """Whether all signals have the same features of the same coordinates."""
        return all(f"encoding.{name}" in self.networks.shared for name, _ in self.encoding.named_parameters())

    @property
    def features_are_trained(self) -> bool:
        """Whether anything that features depend on is trained."""
        return any(parameter.requires_grad for parameter in self.encoding.parameters())

    def remember(self, **arguments: Any) -> None:
        """Saves the hyper-parameters as plain names and values, so that a checkpoint loads with ``weights_only``."""
        described = [plain_encoder(encoder) for encoder in self._configured]
        self.save_hyperparameters(
            {
                # LightningCLI and load_from_checkpoint read the class from here
                "_class_path": f"{type(self).__module__}.{type(self).__qualname__}",
                "encoder": described if self._several_encoders else described[0],
                "shared_encoder": self.shared_encoder,
                "encoder_lr": self.encoder_lr,
                "signals_per_chunk": self.signals_per_chunk,
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
            mine, theirs = _shape_in_words(self.info), _shape_in_words(info)
            if mine != theirs:
                raise InputError(f"this module holds {mine}; {source} has {theirs}")
            return
        # Lightning may be inside a context that creates tensors on another device or without gradients; initial weights
        # come from the CPU's generator, so that a seed means the same model everywhere
        with torch.device("cpu"), torch.inference_mode(False), torch.enable_grad():
            network = self.make_network(info)
            own = any(p.requires_grad for p in network.encoding.parameters()) and not self.shared_encoder  # type: ignore[union-attr]
            names = [name for name, _ in (*network.named_parameters(), *network.named_buffers())]
            shared = () if own else [name for name in names if name.startswith("encoding.")]
            self.networks = Stack(network, info.num_signals, shared, self.signals_per_chunk)
            self.info = info
            self._make_metrics(info.num_signals, together=True)

    def _make_metrics(self, signals: int, together: bool) -> None:
        # scores of different signals are not summed over processes
        name = self.require_info().metric
        made = [metrics.create(name, signals, sync_on_compute=together).to(self.device) for _ in range(2)]
        self.train_metric, self.test_metric = made

    def build_from(self, data: SignalDataModule, device: torch.device | None = None) -> None:
        """Builds for the signals of a DataModule and takes from its training samples what comes from them, once.

        Args:
            data: The DataModule that the module is going to be fitted to.
            device: Where to compute; the CPU by default.

        Raises:
            InputError: If the module cannot represent these signals, or was built for others.
        """
        if self.calibrated:
            self.build(data.info)
            return
        self.choose(data, device or torch.device("cpu"))
        self.build(data.info)
        self.calibrate(data.calibration_batch())
        self.calibrated = True

    def choose(self, data: SignalDataModule, device: torch.device) -> None:
        """Replaces widths that are given as ``auto`` by chosen ones, before any parameter exists; nothing by default."""

    def configure_model(self) -> None:
        """Builds from the Trainer's DataModule; without a Trainer the shape comes from the checkpoint.

        Raises:
            InputError: If there is no shape to build for, the module was built for another, or the Trainer's precision
                would round the coordinates.
        """
        trainer = trainer_of(self)
        if trainer is None:
            return
        if trainer.precision in COORDINATES_LOST:
            raise InputError(
                f"precision {trainer.precision!r} would round the coordinates, so that neighbouring samples fall "
                f"together; use {trainer.precision.replace('true', 'mixed')!r} or '32-true'"
            )
        data = getattr(trainer, "datamodule", None)
        if trainer.state.fn != TrainerFn.FITTING:
            if isinstance(data, SignalDataModule):
                self.build(data.info)  # refuses signals of another shape, as the checkpoint that is read next does
        elif isinstance(data, SignalDataModule):
            self.build_from(data, trainer.strategy.root_device)
            self._hold_shard(trainer)
        else:
            raise InputError(
                f"{type(self).__name__} needs the shape of the signals: pass a DataModule of pe_lightning.data, such "
                "as TensorDataModule(values), to the Trainer"
            )

    @property
    def is_fitted(self) -> bool:
        """Whether a Trainer has the module to fit it, and not to test it or for nothing."""
        trainer = trainer_of(self)
        return trainer is not None and trainer.state.fn == TrainerFn.FITTING

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

    # -- signals of its own on each process -----------------------------------------------------------------------------

    def _hold_shard(self, trainer: Trainer) -> None:
        """Lets go of the signals of other processes, if the strategy gives each process its own."""
        strategy, signals = trainer.strategy, self.require_info().num_signals
        if not isinstance(strategy, SignalsStrategy) or self.shard is not None:
            return
        if signals < strategy.world_size:
            raise InputError(
                f"strategy signals gives each process signals of its own, but there are {signals} for {strategy.world_size} "
                f"processes; set --trainer.devices {signals} or less, or --trainer.strategy ddp, which shares each signal"
            )
        if self.features_are_trained and self.features_are_shared:
            raise InputError("strategy signals exchanges no gradients, but all signals train one encoder; set strategy ddp")
        self.shard = shard = strategy.shard(signals)
        self.networks.replace_signals(lambda tensor: tensor[shard].clone())
        self._make_metrics(self.networks.num_signals, together=False)

    def on_fit_end(self) -> None:
        """Gathers the signals that other processes fitted; says the score where Lightning's own progress bar is shown."""
        self.choice_seconds = 0.0
        if self.shard is not None:
            strategy, signals = self.trainer.strategy, self.require_info().num_signals
            assert isinstance(strategy, SignalsStrategy)
            self.networks.replace_signals(lambda tensor: strategy.gather(tensor, signals))
            self.shard = None
            self._make_metrics(signals, together=True)
        data, bar = getattr(self.trainer, "datamodule", None), self.trainer.progress_bar_callback
        shown = self.trainer.is_global_zero and type(bar).__module__.startswith("lightning.")
        if shown and isinstance(data, SignalDataModule) and not data.streamed and data.effective_protocol != "none":
            self._say_score(data)

    @torch.no_grad()
    def _say_score(self, data: SignalDataModule) -> None:
        name, signals = data.info.metric, data.info.num_signals
        batch = data.transfer_batch_to_device(data.evaluation_batch(), self.device, 0)
        score = metrics.create(name, signals, sync_on_compute=False).to(self.device)  # the other processes are not here
        score.update(self._evaluate(batch.axes), batch.values, batch.mask)
        mean = f"{score.per_signal().mean():.2f} {metrics.unit_of(name)}".rstrip()
        over = f", mean over {signals} signals" if signals > 1 else ""
        rank_zero_info(f"held-out {show_metric(name)}: {mean} (protocol {data.effective_protocol}{over})")

    def _over_signals(self, values: Tensor) -> Tensor:
        """The sum of ``(S,)`` values over the signals of all processes, ``()``."""
        total = values.sum()
        return total if self.shard is None else self.trainer.strategy.reduce(total, reduce_op="sum")

    # -- checkpoints ----------------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the shape of the signals, the encoders in force and what a solver found."""
        checkpoint[VERSION_KEY] = __version__
        if self.info is not None:
            checkpoint[SIGNALS_KEY] = self.info.to_dict()
            checkpoint[ENCODERS_KEY] = [plain_encoder(encoder) for encoder in self._configured]
            checkpoint[SHARED_KEY] = self._first_axes()
            checkpoint[SOLUTION_KEY] = self.solution

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Builds from the checkpoint's shape of the signals, or checks that it is the module's.

        Raises:
            InputError: If the checkpoint is of another kind of model, encoder or shape, or of an earlier version.
        """
        if SIGNALS_KEY not in checkpoint:
            raise InputError("this checkpoint was not written by pe_lightning: it holds no shape of signals")
        refuse_other_version(checkpoint)
        refuse_other_model(checkpoint.get("hyper_parameters", {}), dict(self.hparams), self.free)
        chosen = checkpoint[ENCODERS_KEY]
        first = checkpoint.get(SHARED_KEY, list(range(len(chosen))))  # older ones do not say
        mine = [plain_encoder(encoder) for encoder in self._configured]
        if (chosen, first) != (mine, self._first_axes()):  # sizes and widths that the fit chose, which it is of
            made = [resolve(plain) for plain in chosen]
            self._configured, self._several_encoders = [made[axis] for axis in first], len(chosen) > 1
            self.info = self.shard = None
        fresh = self.info is None
        self.build(SignalInfo.from_dict(checkpoint[SIGNALS_KEY]), "the checkpoint")
        self.solution = checkpoint[SOLUTION_KEY]
        self.calibrated = True  # the state that is loaded next holds the scales and the means
        if fresh:  # a model fitted in float64 comes back in float64
            tensors = checkpoint["state_dict"].values()
            self.to(next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), None))
            if self.is_fitted:
                self._hold_shard(self.trainer)

    def _first_axes(self) -> list[int]:
        """Of each configured encoder, the first axis that has it: axes of equal sizes share theirs."""
        return [self._configured.index(encoder) for encoder in self._configured]

    @property
    def num_params(self) -> int:
        """Trainable parameters of one signal: what is held per signal once, plus what all signals share."""
        return self.networks.num_params if self.info is not None else 0

    def describe(self) -> dict[str, Any]:
        """What the module is, as plain values: the part of ``metrics.json`` that the module knows."""
        info, solution = self.require_info(), self.solution or {}
        encoders = [{"name": encoder.name, **encoder.resolved()} for encoder in self.encoders]
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
            "optimizer": self.optimization,
            "solve_seconds": solution.get("solve_seconds"),
            "ridge": solution.get("ridge"),
            "solution": self.solution,
        }

    # -- fitting ------------------------------------------------------------------------------------------------------

    def configure_callbacks(self) -> list[Callback]:
        """What makes a resumed fit equal the uninterrupted one."""
        return [Resumption()]

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The optimiser over all parameters, those of encoders as a group of their own if they have their own rate.

        Raises:
            InputError: If the optimiser leaves out a parameter, or ``ReduceLROnPlateau`` waits for the PSNR to fall.
        """
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        groups: Any = trained
        if self.encoder_lr is not None and self.features_are_trained:
            encoder = [parameter for parameter in self.encoding.parameters() if parameter.requires_grad]
            network = [p for p in trained if all(p is not other for other in encoder)]
            groups = [{"params": network}, {"params": encoder, "lr": self.encoder_lr}]
        optimizer = (self.optimizer or self.default_optimizer)(groups)
        fused = any(group.get("fused") for group in optimizer.param_groups)
        if fused and self.trainer.gradient_clip_val and str(self.trainer.precision).endswith("mixed"):
            name = f"{type(optimizer).__module__.rpartition('.')[0]}.{type(optimizer).__name__}"
            raise InputError(
                "gradients of a fused optimiser cannot be clipped in mixed precision; leave out gradient_clip_val, or type "
                f"--model.optimizer {name} --model.optimizer.lr {optimizer.defaults['lr']:g} --model.optimizer.fused false"
            )
        stepped = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        missing = [name for name, p in self.named_parameters() if p.requires_grad and id(p) not in stepped]
        if missing:
            raise InputError(f"the optimiser leaves out {', '.join(missing)}; pass it all parameters it is called with")
        scheduler, schedule = None, "constant"
        if self.lr_scheduler is not None:
            scheduler = self.lr_scheduler(optimizer)
            schedule = type(scheduler).__name__
        elif self.optimizer is None:
            scheduler = LambdaLR(optimizer, lambda step: 1 / (1 + step / FALL))
            schedule = f"1 / (1 + step / {FALL})"
        settings = {key: x for key, x in optimizer.defaults.items() if x and isinstance(x, (bool, int, float, tuple))}
        self.optimization = {"name": type(optimizer).__name__, **settings, "schedule": schedule}
        if scheduler is None:
            return optimizer
        if not isinstance(scheduler, ReduceLROnPlateau):
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
        monitor = getattr(scheduler, "monitor", self.monitor)
        if monitor == self.monitor and scheduler.mode != self.monitor_mode:
            raise InputError(f"ReduceLROnPlateau: {monitor} grows as the fit improves; set mode='max'")
        every = self.trainer.check_val_every_n_epoch or 1
        plateau = {"scheduler": scheduler, "monitor": monitor, "interval": "epoch", "frequency": every}
        return {"optimizer": optimizer, "lr_scheduler": plateau}  # type: ignore[return-value]

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """Steps a scheduler; ``ReduceLROnPlateau`` is stepped by :meth:`on_validation_epoch_end` instead.

        Lightning steps it after the checkpoint of the epoch is written, and not in the first epoch of a resumed fit.
        """
        if not isinstance(scheduler, ReduceLROnPlateau):
            super().lr_scheduler_step(scheduler, metric)

    def default_optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        """What ``optimizer: null`` stands for: the papers' Adam."""
        return torch.optim.Adam(parameters, lr=0.1, weight_decay=1e-8, fused=True)

    def training_step(self, batch: GridBatch | PointBatch, batch_idx: int) -> Tensor:
        """The sum over signals of the mean squared error, ``()``, and the encoders' penalties; logged when it is time to."""
        trainer, loader = self.trainer, self.trainer.train_dataloader
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        logged = every > 0 and (trainer.global_step + 1) % every == 0  # 0: never
        given, repeated = batch, loader.batch if isinstance(loader, FullLoader) else None
        if repeated is not None:  # Lightning makes it a new one, every step, where it changes its dtype
            batch = self.cached("batch", (repeated,), lambda: given)
        # a line search compares losses of nearby weights
        compares = isinstance(trainer.optimizers[0], torch.optim.LBFGS)
        squared = self.squared_errors(batch, repeated is not None and not compares, logged)
        own = math.prod(batch.values.shape[1:])
        self.last_train_errors = squared.detach(), own
        shared = batch.total is not None and self.shard is None
        count = own if batch.total is None else batch.total * batch.values.shape[-1]
        if logged:
            together = squared.detach().clone()  # a reduction writes into what it is given
            if shared:
                together = trainer.strategy.reduce(together, reduce_op="sum")
            values = {"train/loss": self._over_signals(together / count)}
            if self.require_info().metric == "psnr":
                scores = self._over_signals(psnr(together, torch.full_like(together, count)))
                values["train/psnr"] = scores / self.require_info().num_signals
            self._log_step(values)
        loss = squared.sum() / count
        # processes average their gradients, and each has its share of the sum
        loss = loss * trainer.world_size if shared else loss
        return loss + self.penalty() if self.features_are_trained else loss

    def penalty(self) -> Tensor:
        """The sum of the encoders' auxiliary losses, over signals where each has its own encoder, ``()``."""
        penalties: Tensor = self.networks.call("penalty")
        return penalties[0] if self.features_are_shared else penalties.sum()

    def squared_errors(self, batch: GridBatch | PointBatch, every_step: bool = False, exact: bool = True) -> Tensor:
        """The sum of squared errors of each signal, ``(S,)``.

        Args:
            batch: The training samples.
            every_step: Whether the next steps have the same batch, so that what depends on it alone is worth making.
            exact: Whether the value may not rely on earlier ones. The gradient never does.
        """
        errors = self.errors(batch)
        # a dot product per signal: one pass over the errors, forward and backward; in full precision, as half of it
        # overflows at 65504
        with torch.autocast(errors.device.type, enabled=False):
            return torch.bmm(errors.unsqueeze(1), errors.unsqueeze(2)).reshape(-1)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Zeroes what moves no weight and would become subnormal, which is slow: in squares, and as momenta decay."""
        for parameter in self.parameters():
            for numbers in (parameter.grad, optimizer.state[parameter].get("momentum_buffer")):
                if numbers is not None:
                    torch.hardshrink(numbers, 128 * torch.finfo(numbers.dtype).tiny ** 0.5, out=numbers)

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clips as the Trainer is told to; by the norm over all signals, also where processes have their own."""
        if self.shard is None or not gradient_clip_val or gradient_clip_algorithm == "value":
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        squared = get_total_norm([p.grad for p in parameters]).square()
        norm = self.trainer.strategy.reduce(squared, reduce_op="sum").sqrt()
        clip_grads_with_norm_(parameters, gradient_clip_val, norm)

    def cached(self, name: str, inputs: Sequence[object], compute: Callable[[], Any]) -> Any:
        """``compute()``, remembered while the same ``inputs`` come and no feature is trained."""
        return compute() if self.features_are_trained else self.batch_cache.get(name, inputs, compute)

    def on_train_start(self) -> None:
        """Forgets features of an earlier fit, and checks what the optimiser was given by a checkpoint."""
        self.batch_cache.clear()
        for optimizer in self.trainer.optimizers:
            check_optimizer(optimizer)

    def on_train_end(self) -> None:
        """Frees the features of the training batch."""
        self.batch_cache.clear()

    def last_train_psnr(self) -> Tensor:
        """PSNR of the latest training batch before its step, mean over signals, ``()``; NaN before the first step.

        Under several processes, of this one's share.
        """
        if self.last_train_errors is None:
            return torch.tensor(float("nan"))
        squared, count = self.last_train_errors
        return psnr(squared, torch.full_like(squared, count)).mean()

    # -- scores -------------------------------------------------------------------------------------------------------

    @property
    def monitor(self) -> str:
        """The logged value by which checkpoints are compared: ``val/psnr``, or another metric of the data."""
        return f"val/{self.info.metric if self.info is not None else 'psnr'}"

    def validation_step(self, batch: GridBatch, batch_idx: int) -> None:
        """Scores the held-out samples."""
        self.test_metric.update(self._evaluate(batch.axes), batch.values, batch.mask)

    def on_validation_epoch_end(self) -> None:
        """Logs the score of the held-out samples, mean over signals; nothing when no sample is held out."""
        score = self._over_signals(self.test_metric.per_signal()) / self.require_info().num_signals
        self.test_metric.reset()
        if not score.isnan():
            self._log_step({self.monitor: score.float()})
            self._step_plateau(score.float())

    def _step_plateau(self, score: Tensor) -> None:
        """Steps ``ReduceLROnPlateau`` by the value that it monitors; not in the validation of a fit stopped in an epoch."""
        trainer = self.trainer
        if not self.is_fitted or trainer.sanity_checking or (trainer.should_stop and not trainer.is_last_batch):
            return
        for config in trainer.lr_scheduler_configs:
            if isinstance(config.scheduler, ReduceLROnPlateau):
                value = score if config.monitor == self.monitor else trainer.callback_metrics.get(str(config.monitor))
                if value is None:
                    raise InputError(f"ReduceLROnPlateau: nothing is logged as {config.monitor}; there is {self.monitor}")
                config.scheduler.step(value)

    def _log_step(self, values: dict[str, Tensor]) -> None:
        """Logs values that are the same in every process, in a fit at the optimiser step.

        Lightning's own rows count batches, and from one more after a resumption. So it gets what a fit logs for callbacks
        and the progress bar, and loggers get it from here.
        """
        fitted = self.is_fitted
        for name, value in values.items():
            # sync_dist changes nothing here; without it Lightning warns
            self.log(name, value, batch_size=1, logger=False if fitted else None, prog_bar=True, sync_dist=True)
        if fitted and self.loggers and not self.trainer.sanity_checking:
            row = {name: value.item() for name, value in values.items()} | {"epoch": self.current_epoch}
            for logger in self.loggers:
                logger.log_metrics(row, step=self.global_step)
                logger.save()

    def test_step(self, batch: GridBatch, batch_idx: int) -> dict[str, Tensor]:
        """Scores held-out and training samples; returns the prediction on the whole grid for callbacks."""
        prediction = self._evaluate(batch.axes)
        self.test_metric.update(prediction, batch.values, batch.mask)
        self.train_metric.update(prediction, batch.values, batch.train_mask)
        return {"prediction": prediction}

    def on_test_epoch_end(self) -> None:
        """Keeps the scores per signal in ``self.scores`` and logs their means."""
        name = self.require_info().metric
        self.scores = {}
        for stage, metric in (("test", self.test_metric), ("train", self.train_metric)):
            values = self.scores[f"{stage}/{name}"] = metric.per_signal().cpu()
            metric.reset()
            if values.isfinite().all():
                self.log(f"{stage}/{name}", values.mean().float(), batch_size=1, sync_dist=True)

    # -- use ----------------------------------------------------------------------------------------------------------

    def forward(self, coords: Tensor) -> Tensor:
        """Values at any coordinates: ``(*batch, D)`` in [0, 1) -> ``(S, *batch, C)``; differentiable."""
        return self._reshaped(self.at_points, coords)

    def gradient(self, coords: Tensor) -> Tensor:
        """First derivatives at any coordinates: ``(*batch, D)`` -> ``(S, *batch, C, D)``; differentiable.

        In values per unit of the coordinates, which is the whole length of an axis: divide by the number of samples ``N_a``
        for the change from one sample of the axis to the next.
        """
        return self._reshaped(lambda points: self.derivatives("gradient", points), coords)

    def laplacian(self, coords: Tensor) -> Tensor:
        r"""The Laplacian :math:`\sum_a \partial^2 f / \partial x_a^2` at any coordinates; differentiable.

        ``(*batch, D)`` -> ``(S, *batch, C)``, in values per squared unit of the coordinates.
        """
        return self._reshaped(lambda points: self.derivatives("laplacian", points), coords)

    def _reshaped(self, function: Callable[[Tensor], Tensor], coords: Tensor) -> Tensor:
        """A function of points ``(P, D)`` -> ``(S, P, *rest)``, called at ``(*batch, D)`` -> ``(S, *batch, *rest)``."""
        info = self.require_info()
        self.encoding.check_points(coords)
        found = function(coords.to(next(self.parameters()).dtype).reshape(-1, info.num_axes))
        return found.reshape(len(found), *coords.shape[:-1], *found.shape[2:])

    def derivatives(self, name: str, points: Tensor) -> Tensor:
        """``gradient``, ``(S, P, C, D)``, or ``laplacian``, ``(S, P, C)``, at points known to be valid, ``(P, D)``."""
        # vmap takes no operation in place on a slope that is the same for all signals, times a feature that is not
        found: Tensor = self.networks.call(name, points, in_turn=not self.features_are_shared)
        return found

    def at_points(self, points: Tensor) -> Tensor:
        """Values at points that are known to be valid: ``(P, D)`` -> ``(S, P, C)``."""
        values: Tensor = self.networks(points)
        return values

    @torch.no_grad()
    def hidden(self, coords: Tensor) -> list[Tensor]:
        """The activations of every hidden layer at points ``(S or 1, P, D)``, each ``(S, P, width)``."""
        each = len(coords) > 1
        found: list[Tensor] = self.networks.call("hidden", coords if each else coords[0], each=each)
        return found

    def predict_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor:
        """Values on the grid of the given coordinate vectors, ``(S, n_1, ..., n_D, C)``."""
        return self._evaluate(batch)

    def _evaluate(self, axes: Sequence[Tensor]) -> Tensor:
        """The prediction in full precision: scores are of the weights, whatever the training steps round."""
        with full_precision(self.device):
            return self.predict_grid(axes)


class BatchCache:
    """Results that come from the training batch alone: one per name, with what it was computed from."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[tuple[object, ...], Any]] = {}

    def get(self, name: str, inputs: Sequence[object], compute: Callable[[], Any]) -> Any:
        """``compute()``, which is called again when an input is another object than last time.

        Args:
            name: What is computed.
            inputs: What it is computed from, compared by identity. They are held too, so that no other object can take
                their place in memory.
            compute: Computes it.
        """
        held = self._held.get(name)
        if held is None or len(held[0]) != len(inputs) or not all(map(operator.is_, held[0], inputs)):
            held = self._held[name] = (tuple(inputs), compute())
        return held[1]

    def clear(self) -> None:
        """Forgets everything."""
        self._held.clear()


def trainer_of(module: LightningModule) -> Trainer | None:
    """The Trainer of a module, if it has one."""
    try:
        return module.trainer
    except RuntimeError:  # Lightning's way to say that there is none
        return None


def plain_encoder(encoder: Encoder) -> dict[str, Any]:
    """The encoder as ``{"class_path": ..., "init_args": {...}}``, which :func:`pe_lightning.encoders.resolve` takes.

    Every argument is written, so that equal encoders have equal descriptions however they were spelt.
    """
    cls, given = type(encoder), encoder.given()
    arguments = {key: given.get(key, parameter.default) for key, parameter in registry.parameters(cls).items()}
    return {"class_path": f"{cls.__module__}.{cls.__qualname__}", "init_args": arguments}


def _shape_in_words(info: SignalInfo) -> str:
    """What two sets of signals must have in common for the parameters of one to fit the other."""
    return f"{info.num_signals} signal(s) of {info.num_axes} axes and {info.channels} channel(s)"


def refuse_other_model(saved: Mapping[str, Any], asked: Mapping[str, Any], free: frozenset[str]) -> None:
    """Raises :class:`InputError` if a checkpoint is of another class, encoder or architecture than the model."""

    def in_words(key: str, value: Any) -> str:
        if key == "_class_path":
            return f"a {str(value).rpartition('.')[2]}"
        if key != "encoder" or isinstance(value, str):
            return f"a model with {key}={value}"
        entries = value if isinstance(value, list) else [value]
        spelt = [", ".join(f"{name}={given}" for name, given in entry["init_args"].items()) for entry in entries]
        names = [entry["class_path"].rpartition(".")[2] for entry in entries]
        return f"encoder {', '.join(f'{name}({text})' for name, text in zip(names, spelt, strict=True))}"

    # the class first: of another class, the other hyper-parameters differ anyway
    for key in ("_class_path", "encoder", *asked):
        if key not in free and key in saved and saved[key] != asked.get(key):
            raise InputError(
                f"the checkpoint holds {in_words(key, saved[key])}, the model asked for is {in_words(key, asked.get(key))}; "
                "leave the option out, or name a checkpoint of that model"
            )
