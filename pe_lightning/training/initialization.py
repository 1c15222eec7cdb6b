"""Weights of an earlier fit as the start of a new one."""

from __future__ import annotations

import os
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
        weights: A run directory, a checkpoint, or a safetensors file of ``pe-lightning export``; in Python also a fitted
            model, or a ``state_dict``, which has no widths and sizes of encoders: these are then of the new data.

    Raises:
        InputError: If ``weights`` is of another type.
    """

    def __init__(self, weights: Path | Described[FunctionModule | Mapping[str, Tensor]]) -> None:
        of_names = isinstance(weights, Mapping) and all(isinstance(name, str) for name in weights)
        if not of_names and not isinstance(weights, (str, os.PathLike, FunctionModule)):
            raise InputError(
                "init is a run directory, a checkpoint, a safetensors file, a fitted model or its state_dict; got "
                f"{paragraph(repr(weights), 100)}"
            )
        self.weights = weights
        self._applied = False

    def apply(self, module: LightningModule, data: Any) -> None:
        """Builds a module for the data of a DataModule, and sets its weights.

        Raises:
            InputError: If the weights are of another model or of signals of another shape, or are not finite.
        """
        given, checkpoint, hint = self.weights, dict[str, Any](), ""
        if isinstance(given, Mapping):
            name = "the state_dict"
            hint = " For a grid of another size give the fitted model or its run directory, which has the sizes of encoders"
        elif isinstance(given, FunctionModule):
            given.require_info()
            name = f"the given {type(given).__name__}"
            checkpoint = {"state_dict": given.state_dict(), "hyper_parameters": dict(given.hparams)}
            given.on_save_checkpoint(checkpoint)
        else:
            name, checkpoint = repr(str(given)), read_weights(given)
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
            state: Any = checkpoint.get("state_dict", given)
            try:
                for key, own in module.state_dict().items():
                    if isinstance(own, Tensor) and isinstance(value := state.get(key), Tensor):
                        _check_numbers(f"{key} of {name}", value, own)
                module.load_state_dict(state)
            except RuntimeError as error:
                words = paragraph(str(error), 400)
                raise InputError(f"the weights of {name} are of another model: {words}{hint}") from error
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


def _check_numbers(label: str, given: Tensor, own: Tensor) -> None:
    """Refuses values of another kind than a model's own, and values that are not finite in place of finite ones."""
    if (given.is_floating_point(), given.is_complex()) != (own.is_floating_point(), own.is_complex()):
        raise InputError(f"{label} is {given.dtype}, that of the model {own.dtype}: give the weights of a fit of this model")
    if own.isfinite().all() and not given.isfinite().all():
        raise InputError(f"{label} has values that are not finite: give the weights of another fit")
