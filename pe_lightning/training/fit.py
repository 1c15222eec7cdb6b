"""The function :func:`pe_lightning.fit`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pe_lightning.encoders import EncoderLike
from pe_lightning.errors import InputError
from pe_lightning.estimators.folds import score_folds
from pe_lightning.signals.sources.paths import Paths
from pe_lightning.training import Adaptive, ComplexLinear, CoordinateModule, SignalDataModule, make_datamodule
from pe_lightning.training.quiet_fits import fit_quietly


def fit(
    signals: Paths | Tensor | np.ndarray[Any, Any] | SignalDataModule,
    encoder: EncoderLike | Sequence[EncoderLike] | None = None,
    model: CoordinateModule | None = None,
    max_steps: int = 0,
    **data: Any,
) -> CoordinateModule:
    """Fits signals, and scores the samples that are held out.

    By default this is :class:`~pe_lightning.training.Adaptive`, as of ``pe-lightning fit FILE``; with an encoder it is the
    exact fit of a :class:`~pe_lightning.training.ComplexLinear`. Nothing is written to disk.

    Args:
        signals: Values ``(signals, *grid, channels)`` in [0, 1]; or files, folders or ``samples://NAME``; or a DataModule.
        encoder: The encoder, or one per axis, of a linear layer that is solved exactly.
        model: Another model, such as ``SimpleMLP("hash")``.
        max_steps: Optimiser steps; a model that is trained needs some.
        **data: Arguments of the DataModule, such as ``sampling="random"`` (:func:`~pe_lightning.signals.make_datamodule`).

    Returns:
        The fitted model: ``model.psnr`` is the PSNR of the held-out samples, ``model.scores`` has the scores of each signal,
        ``model(coords)`` answers at any coordinates.

    Example:
        >>> import torch
        >>> model = fit(torch.rand(1, 16, 16, 3), "gau")
        >>> model(torch.rand(5, 2)).shape
        torch.Size([1, 5, 3])
    """
    module = model or (Adaptive() if encoder is None else ComplexLinear.exact(encoder))
    if max_steps < 1 and not module.solves:
        raise InputError(f"{type(module).__name__} is trained: give max_steps, such as max_steps=2000")
    if isinstance(signals, SignalDataModule):
        if data:
            raise InputError(f"{', '.join(data)}: give them to the DataModule")
        module_data = signals
    else:
        module_data = make_datamodule(signals, **data)
    module.fold_scores = fold_scores(module, module_data, lambda made, part: fit_quietly(made, part, max_steps))
    return fit_quietly(module, module_data, max_steps, score=True)


def fold_scores(
    module: CoordinateModule, data: SignalDataModule, fit: Callable[[CoordinateModule, SignalDataModule], Any]
) -> dict[str, Tensor]:
    """The held-out scores of a module that trains on every known sample: ``test/<metric>`` of each signal ``(S,)``.

    Args:
        module: The module, not built yet; copies of it are fitted.
        data: Its DataModule, with ``folds``; empty without.
        fit: Fits a module to a DataModule.
    """
    if data.folds is None:
        return {}
    data.prepare()

    def fitted(part: SignalDataModule) -> CoordinateModule:
        made = copy.deepcopy(module)
        fit(made, part)
        return made

    with torch.random.fork_rng():  # the fit that follows is that of no folds
        return {f"test/{data.info.metric}": score_folds(data, fitted, data.folds).values}
