"""The function :func:`pe_lightning.fit`. Exact fits import no Lightning."""

from __future__ import annotations

import copy
import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pe_lightning.encoders import EncoderLike, automatic_width
from pe_lightning.errors import InputError
from pe_lightning.estimators.base import Estimator, FittedField, estimators
from pe_lightning.estimators.folds import score_folds
from pe_lightning.estimators.linear import LinearRidge
from pe_lightning.estimators.scored import fit_and_score
from pe_lightning.signals.sources.paths import Paths
from pe_lightning.signals.split_signals import Signals, read_signals

if TYPE_CHECKING:
    from torch import nn

    from pe_lightning.training import FunctionModule, SignalDataModule


AnySignals: TypeAlias = "Paths | Tensor | np.ndarray[Any, Any] | Image.Image | SignalDataModule"
Encoders: TypeAlias = "EncoderLike | Sequence[EncoderLike] | None"


@overload
def fit(
    signals: AnySignals, encoder: Encoders = None, model: None = None, max_steps: int = 0, **data: Any
) -> FittedField: ...
@overload
def fit(
    signals: AnySignals,
    encoder: Encoders = None,
    *,
    model: nn.Module,
    max_steps: int = 0,
    init: str | Path | FunctionModule | Mapping[str, Tensor] | None = None,
    **data: Any,
) -> FunctionModule: ...
def fit(
    signals: AnySignals,
    encoder: Encoders = None,
    model: nn.Module | None = None,
    max_steps: int = 0,
    init: str | Path | FunctionModule | Mapping[str, Tensor] | None = None,
    **data: Any,
) -> FittedField | FunctionModule:
    """Fits signals, and scores the samples that are held out.

    By default the adaptive fit, as ``pe-lightning fit FILE``; with an encoder, or where no package has the adaptive fit, the
    exact fit of a linear layer, whose ridge and widths are chosen by held-out samples. Nothing is written to disk, and
    random generators are left as they were: two fits of a model start from the same weights, unless a seed is set between.

    Args:
        signals: Values ``(signals, *grid, channels)`` in [0, 1], or with ``value_range=(low, high)`` within it; or files,
            folders or ``samples://NAME``; a picture of Pillow; or a DataModule.
        encoder: The encoder, or one per axis, of a linear layer that is solved exactly.
        model: A LightningModule of this package, such as ``SimpleMLP("hash")``; or any ``nn.Module`` from coordinates
            ``(P, D)`` in [0, 1) to values ``(P, C)``, of which each signal trains a copy
            (:class:`~pe_lightning.training.NetworkModule`).
        max_steps: Optimiser steps; a model that is trained needs some.
        init: Weights from which the model starts: a run directory, a file, a fitted model or a ``state_dict``
            (:class:`~pe_lightning.training.callbacks.InitialWeights`).
        **data: Arguments of the DataModule, such as ``sampling="random"`` (:func:`~pe_lightning.training.make_datamodule`);
            ``sampling`` and ``missing`` may be arrays that are not zero at trained and at missing samples.

    Returns:
        The fitted signals, or the fitted model: ``fitted.psnr`` is the PSNR of the held-out samples, ``fitted.scores`` has
        the scores of each signal, ``fitted(coords)`` answers at any coordinates.

    Example:
        >>> import torch
        >>> fitted = fit(torch.rand(1, 16, 16, 3), "gau")
        >>> fitted(torch.rand(5, 2)).shape
        torch.Size([1, 5, 3])
    """
    is_datamodule = hasattr(signals, "train_dataloader")
    if is_datamodule and data:
        raise InputError(f"{', '.join(data)}: give them to the DataModule")
    _check_arguments(encoder, model, max_steps, init, data)
    if model is None:
        linear = None if encoder is None else LinearRidge(automatic_width(encoder))
        read, folds = (signals.signals, signals.folds) if is_datamodule else read_signals(signals, **data)  # type: ignore
        return fit_and_score(linear or usual_estimator(read), read, folds)
    from pe_lightning.training.datamodule import make_datamodule  # these import Lightning
    from pe_lightning.training.initialization import InitialWeights
    from pe_lightning.training.network import as_model
    from pe_lightning.training.quiet_fits import fit_quietly

    module = as_model(model)
    if max_steps < 1 and not module.solves:
        raise InputError(f"{type(model).__name__} is trained: give max_steps, such as max_steps=2000")
    module_data: SignalDataModule = signals if is_datamodule else make_datamodule(signals, **data)  # type: ignore
    start = [] if init is None else [InitialWeights(init)]
    for callback in start:
        callback.refuse_folds(module_data)
    with torch.random.fork_rng(range(torch.cuda.device_count())):  # initial weights follow the generator of the caller
        module.fold_scores = fold_scores(module, module_data, lambda made, part: fit_quietly(made, part, max_steps))
        return fit_quietly(module, module_data, max_steps, score=True, callbacks=start)


def _check_arguments(encoder: Encoders, model: nn.Module | None, max_steps: int, init: Any, data: Mapping[str, Any]) -> None:
    """Refuses arguments that the fit would not read, and names that are nearly those of :func:`fit`."""
    for name, value in {"max_steps": max_steps or None, "init": init, "batching": data.get("batching")}.items():
        if model is None and value is not None:
            raise InputError(f"{name} is for a model that is trained: give model too, such as SimpleMLP('gau')")
    if model is not None and encoder is not None:
        raise InputError(f"{type(model).__name__} has an encoder of its own, or none: leave out encoder, or model")
    own = list(inspect.signature(fit).parameters)[1:-1]
    for name in data:
        if near := difflib.get_close_matches(name, own, 1, cutoff=0.8):
            raise InputError(f"fit has no argument {name!r}; did you mean {near[0]!r}?")


def usual_estimator(signals: Signals) -> Estimator:
    """The adaptive fit if a package has it, else the linear fit of the recipes ``closed_form``."""
    if "adaptive" in estimators:
        return estimators.create("adaptive")
    return LinearRidge(automatic_width("gau" if signals.info.num_points is None else "laplace"))


def fold_scores(
    module: FunctionModule, data: SignalDataModule, fit: Callable[[FunctionModule, SignalDataModule], Any]
) -> dict[str, Tensor]:
    """The held-out scores of a module that trains on every known sample: ``test/<metric>`` of each signal ``(S,)``.

    Copies of the module, which is not built yet, are fitted. Without ``folds`` of the DataModule there are none.
    """
    if data.folds is None:
        return {}

    def fitted(part: Signals) -> FunctionModule:
        made = copy.deepcopy(module)
        fit(made, data.with_signals(part))
        return made

    with torch.random.fork_rng():  # the fit that follows draws as without folds
        return {f"test/{data.info.metric}": score_folds(data.signals, fitted, data.folds).values}
