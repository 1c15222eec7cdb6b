"""The functions of ``import pe_lightning``: fit signals, create and list encoders."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from torch import Tensor

from pe_lightning.data import SignalDataModule, make_datamodule
from pe_lightning.data.sources.paths import Paths
from pe_lightning.encoders import EncoderLike, create, registry
from pe_lightning.errors import InputError
from pe_lightning.folds import fold_scores
from pe_lightning.modules import Adaptive, ComplexLinear, CoordinateModule
from pe_lightning.quiet_fits import fit_quietly

__all__ = ["create_encoder", "fit", "list_encoders"]

create_encoder = create


def fit(
    signals: Paths | Tensor | np.ndarray[Any, Any] | SignalDataModule,
    encoder: EncoderLike | Sequence[EncoderLike] | None = None,
    model: CoordinateModule | None = None,
    max_steps: int = 0,
    **data: Any,
) -> CoordinateModule:
    """Fits signals, and scores the samples that are held out.

    By default this is :class:`~pe_lightning.modules.Adaptive`, as of ``pe-lightning fit FILE``; with an encoder it is the
    exact fit of a :class:`~pe_lightning.modules.ComplexLinear`. Nothing is written to disk.

    Args:
        signals: Values ``(signals, *grid, channels)`` in [0, 1]; or files, folders or ``samples://NAME``; or a DataModule.
        encoder: The encoder, or one per axis, of a linear layer that is solved exactly.
        model: Another model, such as ``SimpleMLP("hash")``.
        max_steps: Optimiser steps; a model that is trained needs some.
        **data: Arguments of the DataModule, such as ``sampling="random"`` (:func:`~pe_lightning.data.make_datamodule`).

    Returns:
        The fitted model: ``model.psnr`` is the PSNR of the held-out samples, ``model.scores`` has the scores of each signal,
        ``model(coords)`` answers at any coordinates.

    Raises:
        InputError: If signals or arguments are not valid, or a model that needs steps gets none.

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


def list_encoders(pattern: str = "*") -> list[str]:
    """The names of the registered encoders, those of plug-ins included, that match a pattern of the shell.

    Example:
        >>> list_encoders("l*")
        ['laplace', 'lff', 'lines', 'linf', 'logf']
    """
    return [name for name in registry.names() if fnmatchcase(name, pattern)]
