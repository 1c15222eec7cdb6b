"""Weights of an earlier fit as the start of a new one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from pe_lightning.errors import InputError, paragraph
from pe_lightning.registry import Described
from pe_lightning.training.base import TrainedModule, signals_of, trainer_of
from pe_lightning.training.datamodule import SignalDataModule
from pe_lightning.training.export import read_weights
from pe_lightning.training.function import FunctionModule


class InitialWeights(Callback):
    """Starts a fit from the weights of another one: at step 0, with a new optimiser, on any data whose shapes agree.

    The numbers of signals, axes and channels have to agree, the size of the grid need not. Before the first step the model
    has the predictions of the other fit: encoders, scales and means are taken with the weights. A resumed fit
    (``ckpt_path``) continues from its own checkpoint.

    Args:
        weights: A run directory, a checkpoint, or a safetensors file of ``pe-lightning export``; in Python also a
            ``state_dict``.
    """

    def __init__(self, weights: Path | Described[Mapping[str, Tensor]]) -> None:
        self.weights = weights
        self._applied = False

    def apply(self, module: LightningModule, data: Any) -> None:
        """Builds a module for the data of a DataModule, and sets its weights.

        Raises:
            InputError: If the weights are of another model or of signals of another shape.
        """
        given = self.weights
        name = "the state_dict" if isinstance(given, Mapping) else repr(str(given))
        checkpoint: dict[str, Any] = {} if isinstance(given, Mapping) else read_weights(given)
        if getattr(module, "solves", False):
            raise InputError(
                f"{type(module).__name__} solves for its weights, so that a fit has no start: leave out --init, or type "
                "--model.solver null --trainer.max_steps 2000"
            )
        trainer = trainer_of(module)
        module.trainer = None  # the scaling of the data is not the checkpoint's, and every process has all signals
        try:
            if isinstance(module, TrainedModule) and checkpoint:
                module.on_load_checkpoint(checkpoint)
            elif isinstance(module, TrainedModule):
                module.build_from(data)
            try:
                module.load_state_dict(checkpoint.get("state_dict", given))
            except RuntimeError as error:
                raise InputError(f"the weights of {name} are of another model: {paragraph(str(error), 400)}") from error
            if isinstance(module, FunctionModule):
                module.take_signals(data.info)
        finally:
            module.trainer = trainer
        self._applied = True

    @staticmethod
    def refuse_folds(data: SignalDataModule) -> None:
        """Refuses data with folds, whose fits are from the usual start."""
        if data.folds is not None:
            raise InputError("the fits of folds have the usual start: leave out --init or --data.folds")

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit" and not self._applied:
            data = signals_of(pl_module) if isinstance(pl_module, FunctionModule) else trainer.datamodule  # type: ignore[attr-defined]
            self.apply(pl_module, data)
        self._applied = False
