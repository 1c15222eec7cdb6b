"""The base of the modules that train one network per signal."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import torch
from lightning.pytorch import Callback
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.utilities.types import LRSchedulerTypeUnion
from torch import Tensor, nn
from typing_extensions import Self

from pe_lightning.encoders import ConfiguredEncoders, Encoder, EncoderLike
from pe_lightning.encodings.base import check_axes
from pe_lightning.evaluation.scores import psnr
from pe_lightning.networks import Network, VmapEnsemble
from pe_lightning.registry import Described
from pe_lightning.signals import validation
from pe_lightning.signals.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.training.datamodule import SignalDataModule
from pe_lightning.training.function import FunctionModule
from pe_lightning.training.optimization import (
    FactorSchedule,
    check_length,
    check_optimization,
    clip_by_norm,
    flush_subnormal,
    parameter_groups,
)
from pe_lightning.training.sharding import SignalScores, SignalsStrategy
from pe_lightning.training.steps import OutputStep, Step, check_compiler, coordinates_of, for_each
from pe_lightning.training.uninterrupted import UninterruptedSteps

EncoderChoice: TypeAlias = Described[Encoder] | list[Described[Encoder]]
"""An encoder for all axes, or one per axis: objects, registered names or descriptions, as in a configuration."""

LR_HALF_LIFE_STEPS = 500
"""Steps after which the learning rate of the default schedule has halved."""
FLUSH_INTERVAL = 50
"""Steps after which a fit without gradients near zero looks for some again."""
COMPILATION = (
    "compile: the first step compiles its program, which takes 5 s to a minute of a core; steps of a few milliseconds or "
    "less take longer with it."
)
ENCODERS_KEY = "pe_lightning/encoders"
FIRST_AXES_KEY = "pe_lightning/shared_by_axes"


class CoordinateModule(FunctionModule):
    """A set of signals as functions of coordinates, one network per signal, all fitted together.

    Parameters exist once the shape of the signals is known: from the DataModule when a Trainer fits, from the checkpoint
    when one is loaded, or by :meth:`build`. Everything that is taken from the training samples (chosen widths, scales of
    features, means) is set by :meth:`build_from` alone, before the optimiser is made. The training loss is the sum over
    signals of their mean squared errors, so that the steps of a signal do not depend on the number of signals.

    A subclass defines :meth:`make_network`, and calls :meth:`save_arguments` in its constructor. It may define
    :meth:`calibrate`, and faster :meth:`errors` and :meth:`predict_grid`. Networks with a ``scaling``
    (:class:`~pe_lightning.networks.TargetScaling`) are trained on scaled targets; predictions and scores are of the values.

    Args:
        encoder: One encoder, or one per axis; an empty list for networks without encoders.
        shared_encoder: Whether all signals train one encoder, where it has parameters; else each has its own.
        encoder_lr: Learning rate of the encoder's parameters; ``None``: the rate of the network.
        signals_per_chunk: Signals whose network is evaluated at a time; ``None``: all.
        optimizer: Makes the optimiser from the parameters; ``None``: :meth:`default_optimizer`.
        lr_scheduler: Makes the scheduler from the optimiser; it steps after every optimiser step
            (``ReduceLROnPlateau``: after every validation). ``None``: a constant rate; with the default optimiser
            :meth:`default_schedule`, here ``1 / (1 + t / 500)`` at step ``t``, whatever the number of steps.
        compile: Whether :meth:`errors` and its gradient are compiled in training steps.
        lr: Learning rate in place of the optimiser's own, such as the default optimiser's; ``None``: its own.
    """

    networks: VmapEnsemble
    points_per_chunk: int = 65536
    """Points, of all signals together, that :meth:`predict_grid` evaluates at a time."""
    may_differ: ClassVar[frozenset[str]] = frozenset({"normalize", "encoder_lr", "lr", "signals_per_chunk", "compile"})

    def __init__(
        self,
        encoder: EncoderLike | Sequence[EncoderLike],
        shared_encoder: bool,
        encoder_lr: float | None,
        signals_per_chunk: int | None,
        optimizer: OptimizerCallable | None,
        lr_scheduler: LRSchedulerCallable | None,
        compile: bool = False,
        lr: float | None = None,
    ) -> None:
        super().__init__()
        if lr is not None:
            validation.number("lr", lr, "(0, inf)", hint=", or null for the rate of the optimiser")
        if encoder_lr is not None:
            validation.number("encoder_lr", encoder_lr, "(0, inf)", hint=", or null for the rate of the network")
        if signals_per_chunk is not None:
            validation.integer("signals_per_chunk", signals_per_chunk, 1, hint=", or null for all")
        validation.choice("compile", compile, (False, True))
        self.configured = ConfiguredEncoders(encoder)
        """Encoders as configured; after :meth:`build_from` with all arguments resolved for the data."""
        self.shared_encoder = shared_encoder
        self.encoder_lr = encoder_lr
        self.signals_per_chunk = signals_per_chunk
        self.compile_errors = compile  # `compile` is a method of every nn.Module
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler
        check_optimization(optimizer, lr_scheduler)
        if lr is not None:
            self.lr = lr
        self.is_calibrated = False
        """Whether scales and means have been set, from data or a checkpoint."""
        self.choice_seconds = 0.0
        """Seconds that choosing widths took before the fit started, counted as a part of the fit."""
        self.shard: SignalsStrategy | None = None
        """The strategy ``independent_signals``, while the networks are of the signals of this process alone."""
        self._last_errors = torch.zeros(0), 0
        self._step: Step | None = None
        self._flushes = True  # whether there are gradients and momenta near zero

    def configure_callbacks(self) -> list[Callback]:
        if self.is_fitting and self.compile_errors and self.trainer.max_steps != 0:
            rank_zero_info(COMPILATION)  # this hook precedes all work
            check_compiler(self.trainer.strategy.root_device)
        return super().configure_callbacks()

    def make_optimizer(self) -> tuple[torch.optim.Optimizer, LRSchedulerTypeUnion | None, str]:
        for reason, names in self.unread_arguments().items():
            rank_zero_info(f"{', '.join(names)}: not used, as {reason}.")
        parameters: Any = [parameter for parameter in self.parameters() if parameter.requires_grad]
        if self.encoder_lr is not None and self.networks.features_are_trained:
            parameters = parameter_groups(parameters, self.encoding.parameters(), self.encoder_lr)
        optimizer = (self.optimizer or self.default_optimizer)(parameters)
        if self.lr is not None:
            optimizer.defaults["lr"] = optimizer.param_groups[0]["lr"] = self.lr
        if self.lr_scheduler is not None:
            scheduler = self.lr_scheduler(optimizer)
            check_length(scheduler, self.trainer.max_steps)
            return optimizer, scheduler, type(scheduler).__name__
        factor, schedule = (None, "constant") if self.optimizer else self.default_schedule()
        return optimizer, None if factor is None else FactorSchedule(optimizer, factor), schedule

    def unread_arguments(self) -> dict[str, list[str]]:
        """Names of the arguments that were given and that this fit does not read, by the reason."""
        if self.trainer.max_steps == 0:
            names, reason = ["optimizer", "lr_scheduler", "lr", "encoder_lr"], "the fit takes no steps"
            names = [name for name in names if getattr(self, name) is not None]
        else:
            fixed = self.encoder_lr is not None and not self.networks.features_are_trained
            names, reason = ["encoder_lr"] if fixed else [], "the encoder has no parameters that are trained"
        return {reason: names} if names else {}

    def default_optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        """The optimiser for ``optimizer: null``: the papers' Adam."""
        return torch.optim.Adam(parameters, lr=0.1, weight_decay=1e-8, fused=True)

    def default_schedule(self) -> tuple[Callable[[int], float] | None, str]:
        """The factor of the default optimiser's rate at a step, and the schedule in words; ``None``: a constant rate."""
        return lambda step: 1 / (1 + step / LR_HALF_LIFE_STEPS), f"1 / (1 + step / {LR_HALF_LIFE_STEPS})"

    def on_train_start(self) -> None:
        super().on_train_start()
        self._step = None
        if (reason := UninterruptedSteps(self, CoordinateModule).reason()) is not None:
            rank_zero_info(f"Every step goes through Lightning's loop, which takes longer: {reason}.")

    def on_train_epoch_start(self) -> None:
        UninterruptedSteps(self, CoordinateModule).attach()

    def make_step(self, batch: GridBatch | PointBatch) -> Step:
        """The errors of batches like this one, and their gradients, for the steps of a fit."""
        return (OutputStep if self.has_usual_errors else Step)(self, batch)

    @property
    def has_usual_errors(self) -> bool:
        """Whether :meth:`errors` and :meth:`loss_of` are those of this package, which a step may compute in another way."""
        owners = (next(cls for cls in type(self).__mro__ if name in vars(cls)) for name in ("errors", "loss_of"))
        return all(owner.__module__.startswith("pe_lightning.") for owner in owners)

    def step_of(self, batch: GridBatch | PointBatch) -> Step:
        """The step of the fit that runs, made where there is none for this batch."""
        if self._step is None or not self._step.fits(batch):
            self._step = self.make_step(batch)
        return self._step

    def training_step(self, batch: GridBatch | PointBatch, batch_idx: int) -> Tensor:
        """The sum over signals of the mean squared error, and the encoders' penalties, ``()``."""
        squared = self.step_of(batch).squared_errors(batch)
        self._last_errors = squared.detach(), math.prod(batch.values.shape[1:])
        if self.logs_this_step:
            all_squared = self._of_values(squared.detach()).clone()  # a reduction writes into its input
            if batch.total is not None and self.shard is None:
                all_squared = self.trainer.strategy.reduce(all_squared, reduce_op="sum")
            self.log_step(self.scorer.of_training(all_squared, _num_values(batch)))
        return self.loss_of(squared, batch)

    def loss_of(self, squared: Tensor, batch: GridBatch | PointBatch) -> Tensor:
        """The loss ``()`` of a batch from the sum of squared errors of each signal, ``(S,)``."""
        loss = squared.sum() * self.derivative_of_loss(batch)
        return loss + self.networks.penalty() if self.networks.features_are_trained else loss

    def derivative_of_loss(self, batch: GridBatch | PointBatch) -> float:
        """The derivative of the loss by the squared error of any one signal.

        Processes average their gradients, and each has its share of the sum.
        """
        is_share = batch.total is not None and self.shard is None
        return (self.trainer.world_size if is_share else 1) / _num_values(batch)

    def _of_values(self, squared: Tensor) -> Tensor:
        """Squared errors of the values from squared errors of the targets, ``(S,)``."""
        scaling = self.networks.scaling
        return squared if scaling is None else squared * scaling.scale.square()

    @property
    def batch_psnr(self) -> Tensor:
        """PSNR of the last training batch before its step, mean over the signals of this process, ``()``."""
        squared, count = self._last_errors
        squared = self._of_values(squared)
        return psnr(squared, torch.full_like(squared, count)).mean()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self._flushes or self.trainer.global_step % FLUSH_INTERVAL == 0:
            self._flushes = flush_subnormal(optimizer)

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

    def gather(self) -> None:
        self.choice_seconds, self._step = 0.0, None
        if self.shard is not None:
            self.networks.replace_signals(self.shard.gather)
            self._set_shard(None)

    # -- the networks -------------------------------------------------------------------------------------------------

    @abstractmethod
    def make_network(self, info: SignalInfo) -> nn.Module:
        """The network of one signal of this shape, ``(P, D) -> (P, C)``.

        A :class:`~pe_lightning.networks.Network` has an ``encoding`` made from :attr:`encoder`.
        """

    def calibrate(self, batch: GridBatch | PointBatch) -> None:
        """Sets the buffers that come from the training samples: scales of features, means; none by default."""

    def targets(self, batch: GridBatch | PointBatch) -> Tensor:
        """What the networks are trained on, of the shape of the batch's values."""
        return batch.values if self.networks.scaling is None else self.networks.scaling.targets(batch.values)

    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        """Output minus target on a training batch, ``(S, M)``, in any fixed order of samples and channels."""
        coords, each = for_each(coordinates_of(batch))
        outputs = self.networks.call("forward" if self.networks.scaling is None else "outputs", coords, each=each)
        errors: Tensor = (outputs - self.targets(batch).reshape(outputs.shape)).flatten(1)
        return errors

    def predict_grid(self, axes: Sequence[Tensor]) -> Tensor:
        """As in the base class, computed for a few rows of the first axis, or points of a row, at a time."""
        info = self.require_info()
        check_axes(axes, info.num_axes)
        points = max(1, self.points_per_chunk // self.networks.num_signals)
        rows = max(1, points // max(1, math.prod(len(x) for x in axes[1:])))
        blocks = []
        for some in torch.split(axes[0], rows):
            coords = torch.stack(torch.meshgrid(some, *axes[1:], indexing="ij"), -1)
            values = torch.cat([self(part) for part in torch.split(coords.flatten(0, -2), points)], 1)
            blocks.append(values.reshape(len(values), *coords.shape[:-1], info.channels))
        return torch.cat(blocks, 1)

    @property
    def encoder(self) -> Encoder | list[Encoder]:
        """A copy of the configured encoder, or of the list of them: models given the same one do not share it."""
        return self.configured.copy()

    @property
    def encoding(self) -> Any:
        """The encoding of the networks, or ``None``; tensors that each signal has for itself have a leading axis."""
        network = self.networks.network
        return network.encoding if isinstance(network, Network) else None

    @property
    def num_params(self) -> int:
        """Trainable parameters of one signal: its own, and the shared parameters."""
        return self.networks.num_params if self.info is not None else 0

    def evaluate(self, points: Tensor) -> Tensor:
        values: Tensor = self.networks(points.to(next(self.parameters()).dtype.to_real()))
        return values

    def of_cells(self, sizes: Sequence[float]) -> Self:
        self.encoding.cells = tuple(sizes)
        return self

    def describe(self) -> dict[str, Any]:
        if self.encoding is None:
            return super().describe()
        encoders = [{"name": encoder.name, **encoder.resolved()} for encoder in self.encoding.encoders]
        return {
            **super().describe(),
            "encoding": self.encoding.name,
            # one entry where all axes or directions have the same encoder
            "encoder": encoders[0] if all(entry == encoders[0] for entry in encoders) else encoders,
            "learned": self.encoding.learned(),
        }

    # -- building and checkpoints -------------------------------------------------------------------------------------

    def configure_model(self) -> None:
        super().configure_model()
        if self.is_fitting and self.shard is None:
            self._set_shard(SignalsStrategy.shard_of(self.trainer, self.networks))

    def build_from(self, data: SignalDataModule, device: torch.device | None = None) -> None:
        """Builds for the signals of a DataModule and takes scales, means and widths from its training samples, once."""
        super().build_from(data, device)
        if not self.is_calibrated:
            batch = data.signals.calibration_batch()
            self.calibrate(batch)
            if self.networks.scaling is not None:
                self.networks.scaling.calibrate(batch.values)
            self.is_calibrated = True

    def build(self, info: SignalInfo, source: str = "the data") -> None:
        """Creates the parameters for signals of this shape, once; an error names the ``source`` of another shape."""
        if self.info is None:
            # Lightning may be inside a context that creates tensors on another device or without gradients; initial weights
            # come from the CPU's generator, so that a seed means the same model everywhere
            with torch.device("cpu"), torch.inference_mode(False), torch.enable_grad():
                network, shared, chunk = self.make_network(info), self.shared_encoder, self.signals_per_chunk
                self.networks = VmapEnsemble.of_signals(network, info.num_signals, shared, chunk)
                self.of_cells(info.cells)
                self.shard = None
        super().build(info, source)

    def _set_shard(self, shard: SignalsStrategy | None) -> None:
        self.shard = shard
        self.scorer = SignalScores(self.metric_name, self.require_info().num_signals, shard).to(self.device)

    def save_arguments(self, **arguments: Any) -> None:
        specs = self.configured.specs()
        encoder = {"encoder": specs[0] if self.configured.one_for_all else specs} if specs else {}
        super().save_arguments(**encoder, **arguments)

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
            if next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), None) == torch.float64:
                self.double()  # to() would make complex numbers real
            if self.is_fitting:
                self._set_shard(SignalsStrategy.shard_of(self.trainer, self.networks))


def _num_values(batch: GridBatch | PointBatch) -> int:
    """Values of one signal in a training batch, over all processes."""
    return math.prod(batch.values.shape[1:]) if batch.total is None else batch.total * batch.values.shape[-1]
