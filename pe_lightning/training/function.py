"""The base of the modules of signals as functions of coordinates: scores, predictions, the shape of the signals."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from typing_extensions import Self

from pe_lightning.encodings.base import POINTS_AT_ONCE, check_points
from pe_lightning.errors import InputError, show_metric, show_protocol
from pe_lightning.evaluation import metrics
from pe_lightning.linalg import full_precision
from pe_lightning.signals.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.split_signals import Signals
from pe_lightning.solvers.solution import FitReport
from pe_lightning.training.base import TrainedModule, datamodule_of, signals_of, trainer_of
from pe_lightning.training.datamodule import OutputGrid, SignalDataModule
from pe_lightning.training.sharding import SignalScores

SIGNALS_KEY = "pe_lightning/signals"
FOLDS_KEY = "pe_lightning/folds"
SOLUTION_KEY = "pe_lightning/solution"


class FunctionModule(TrainedModule):
    """A set of signals as functions of coordinates, with the methods of a :class:`~pe_lightning.estimators.Field`.

    A subclass defines :meth:`evaluate`, :meth:`predict_grid`, :meth:`of_cells` and :attr:`num_params`, and fits the
    functions.
    """

    info: SignalInfo | None = None
    """The shape of the signals, once the module is built for them."""
    scorer: SignalScores
    content_key: ClassVar[str] = SIGNALS_KEY
    content: ClassVar[str] = "shape of signals"
    solves: bool = False
    """Whether a fit solves for the weights, so that it needs no steps."""
    size_argument: ClassVar[str | None] = None
    """The argument that sets the number of parameters, such as ``hidden_size`` or ``encoder.num_features``."""
    takes_periodic: bool = False
    """Whether an axis may be periodic."""

    def __init__(self) -> None:
        super().__init__()
        self.metric_name = "psnr"
        self.solution: FitReport | None = None
        """Results of an exact fit and of a choice."""

    def configure_callbacks(self) -> list[Callback]:
        trainer = trainer_of(self)
        given = [] if trainer is None else trainer.callbacks  # type: ignore[attr-defined]
        scored = any(isinstance(callback, FinalScore) for callback in given)
        return [*super().configure_callbacks(), *([] if scored else [FinalScore()])]

    def validation_step(self, batch: GridBatch | PointBatch, batch_idx: int) -> None:
        self.scorer.add(self.predicted(batch), batch)

    def test_step(self, batch: GridBatch | PointBatch, batch_idx: int) -> dict[str, Tensor]:
        """Scores held-out and training samples; returns the prediction on the grid, or at all points, for callbacks."""
        prediction = self.predicted(batch)
        self.scorer.add(prediction, batch, with_trained=True)
        return {"prediction": prediction}

    def predict_step(self, batch: Sequence[Tensor] | Tensor, batch_idx: int = 0) -> Tensor:
        """Values on the grid of coordinate vectors, ``(S, n_1, ..., n_D, C)``, or at points ``(P, D)``, ``(S, P, C)``.

        In full precision: scores are of the weights, whatever the training steps round.
        """
        with full_precision(self.device):
            if not isinstance(batch, Tensor):
                return self.predict_grid(batch)
            check_points(batch, self.require_info().num_axes)
            return torch.cat([self.evaluate(some) for some in torch.split(batch, POINTS_AT_ONCE)], 1)

    def gather(self) -> None:
        """Takes the signals that other processes fitted, at the end of a fit; by default there are none."""

    def on_predict_start(self) -> None:
        """Predictions on a grid of another size are means over the cells of that grid, if the samples are means."""
        output, info = datamodule_of(self.trainer, OutputGrid), self.info
        if output is not None and info is not None and info.cells:
            self.of_cells([1 / n for n in output.grid(info)])

    def on_predict_end(self) -> None:
        if self.info is not None:
            self.of_cells(self.info.cells)

    # -- the functions ------------------------------------------------------------------------------------------------

    @abstractmethod
    def evaluate(self, points: Tensor) -> Tensor:
        """Values at valid points: ``(P, D)`` -> ``(S, P, C)``."""

    @abstractmethod
    def predict_grid(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on a separable grid: ``D`` coordinate vectors ``(n_a,)`` -> ``(S, n_1, ..., n_D, C)``."""

    @abstractmethod
    def of_cells(self, sizes: Sequence[float]) -> Self:
        """This module, whose predictions are from now on means over cells of these lengths per axis; of length 0: values."""

    @property
    @abstractmethod
    def num_params(self) -> int:
        """Parameters of one signal; 0 before there are some."""

    @property
    def label(self) -> str:
        return type(self).__name__

    @property
    def prefers_points(self) -> bool:
        return False

    @property
    def has_std(self) -> bool:
        return False

    def forward(self, coords: npt.ArrayLike | Tensor) -> Tensor:
        """Values at any coordinates: ``(*batch, D)`` in [0, 1) -> ``(S, *batch, C)``; differentiable."""
        given = coords if isinstance(coords, Tensor) else torch.as_tensor(np.asarray(coords), device=self.device)
        info = self.require_info()
        check_points(given, info.num_axes)
        values = self.evaluate(given.to(next(self.parameters()).dtype.to_real()).reshape(-1, info.num_axes))
        return values.reshape(len(values), *given.shape[:-1], values.shape[-1])

    def at(self, points: Tensor) -> Tensor:
        """Values at points, in full precision: ``(P, D)`` in [0, 1) -> ``(S, P, C)``."""
        return self.predict_step(points.to(self.device))

    def grid(self, axes: Sequence[Tensor]) -> Tensor:
        """As :meth:`predict_grid`, in full precision and from any device."""
        return self.predict_step([x.to(self.device) for x in axes])

    def predicted(self, batch: GridBatch | PointBatch) -> Tensor:
        """The prediction at the samples of an evaluation batch, of the shape of its values."""
        return self.predict_step(batch.axes if isinstance(batch, GridBatch) else batch.coords[0])

    def std(self, coords: Tensor, level: float | None = None) -> Tensor:
        """Standard deviations about the predictions of one signal: ``(*batch, D)`` in [0, 1) -> ``(*batch, C)``."""
        raise InputError(f"{type(self).__name__} has no standard deviations: use Adaptive, or pe_lightning.fit")

    def fit(self, signals: Signals) -> FunctionModule:
        """Solves for the model, without logs and files, as an :class:`~pe_lightning.estimators.Estimator` does."""
        from pe_lightning.training.quiet_fits import fit_quietly  # imports this module

        return fit_quietly(self, SignalDataModule(signals.source).with_signals(signals))

    def require_info(self) -> SignalInfo:
        """The shape of the signals."""
        if self.info is None:
            raise InputError(
                f"{type(self).__name__} has no parameters yet: fit it with a Trainer, load a checkpoint, or call "
                "build(SignalInfo(...))"
            )
        return self.info

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

    # -- building and checkpoints -------------------------------------------------------------------------------------

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

    def build_from(self, data: SignalDataModule, device: torch.device | None = None) -> None:
        """Builds for the signals of a DataModule, before a fit."""
        periodic = [axis.name for axis in data.info.axes if axis.periodic]
        if periodic and not self.takes_periodic:
            raise InputError(
                f"{type(self).__name__} has no periodic axes, and {', '.join(periodic)} is one: use Adaptive or "
                "ComplexLinear"
            )
        with torch.device("cpu"):  # Lightning may be inside a context that creates tensors on the GPU
            self.choose(data, device or torch.device("cpu"))
        self.build(data.info)

    def choose(self, data: SignalDataModule, device: torch.device) -> None:
        """Resolves arguments for the data, before the module is built; does nothing by default."""

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

    def take_signals(self, info: SignalInfo) -> None:
        """Takes signals of an equal shape in place of the signals of the weights, which stay."""
        self.build(info)  # refuses another shape
        self.info, self.metric_name = info, info.metric
        self.scorer = SignalScores(info.metric, info.num_signals).to(self.device)
        self.solution, self.fold_scores = None, {}
        self.of_cells(info.cells)

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
        """Builds from the checkpoint's shape of the signals, or checks that the module's is the same."""
        info = SignalInfo.from_dict(checkpoint[SIGNALS_KEY])
        self.build(info, "the checkpoint")
        if (data := datamodule_of(trainer_of(self), SignalDataModule)) is not None:
            data.take_scaling(info.scaling)
            self.info = replace(self.require_info(), scaling=data.info.scaling)
        solution = checkpoint[SOLUTION_KEY]
        self.solution = None if solution is None else FitReport(**solution)
        self.fold_scores = checkpoint.get(FOLDS_KEY, {})


class FinalScore(Callback):
    """Scores the final weights: a fit that ends within an epoch, or has no steps, has no validation then.

    Args:
        logs: Whether loggers get the score; ``False`` where a test follows.
    """

    def __init__(self, logs: bool = True) -> None:
        self.logs = logs
        self._validated: int | None = None

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            self._validated = trainer.global_step

    def on_fit_end(self, trainer: Trainer, pl_module: Any) -> None:
        pl_module.gather()
        validated, self._validated = self._validated, None
        bar, data = trainer.progress_bar_callback, datamodule_of(trainer, SignalDataModule)
        # without a progress bar fits are silent; a bar that declares `prints_scores` has a table after it
        prints = bar is not None and not getattr(bar, "prints_scores", False)
        logs = self.logs and bool(trainer.limit_val_batches and trainer.loggers) and validated != trainer.global_step
        if not (prints or logs) or data is None or not trainer.is_global_zero:
            return
        if data.signals.streamed or not data.signals.scores_validation:
            return
        count, name = data.info.num_signals, pl_module.metric_name
        with torch.no_grad():
            batch = data.transfer_batch_to_device(data.signals.validation_batch, pl_module.device, 0)
            metric = metrics.create(name, count, sync_on_compute=False).to(pl_module.device)
            metric.update(pl_module.predicted(batch), batch.values, batch.mask)
            score = float(metric.per_signal().mean())
        if prints:
            over = f"; mean over {count} signals" if count > 1 else ""
            value = f"{score:.2f} {metric.unit}".rstrip()
            rank_zero_info(f"held-out {show_metric(name)}: {value}, {show_protocol(data.signals.eval_mask)}{over}")
        if logs:
            for logger in trainer.loggers:
                logger.log_metrics({pl_module.monitor: score, "epoch": trainer.current_epoch}, step=trainer.global_step)
                logger.save()
