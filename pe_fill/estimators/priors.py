"""Trained priors: the shipped one, and checkpoints of ``datasets/make_priors.py``."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, overload

import torch
from torch import Tensor

from pe_fill.networks.cells import CellPrior
from pe_fill.networks.local import LocalPrior
from pe_fill.request import SHIPPED
from pe_lightning.errors import InputError
from pe_lightning.estimators.base import fits_of
from pe_lightning.results.checkpoint_files import read_checkpoint
from pe_lightning.signals.axes import SampleKind
from pe_lightning.signals.files import shipped_bytes, user_path

PRIOR_KEY = "pe_lightning/prior"
"""Key of a checkpoint with the arguments of its :class:`~pe_fill.networks.local.LocalPrior`."""
NO_PRIOR = "none"
"""No prior, and the shipped one."""
FILES: dict[SampleKind, str] = {"points": "pictures", "cells": "cells"}
"""File of the shipped prior, and its name in ``datasets/make_priors.py``, by what samples are."""


def shipped_file(name: str) -> Path:
    """The file of a shipped prior; beside it is its card, of the same name with the suffix ``.json``."""
    return Path(__file__).parent / "weights" / f"{name}.pt"


@cache
def card(name: str) -> dict[str, Any]:
    """The card of a shipped prior: data, licences, command, seed, scores and the checksum of its file."""
    found: dict[str, Any] = json.loads(shipped_file(name).with_suffix(".json").read_text(encoding="utf-8"))
    return found


@overload
def read_prior(name: str, samples: Literal["points"] = ...) -> LocalPrior: ...


@overload
def read_prior(name: str, samples: Literal["cells"]) -> CellPrior: ...


def read_prior(name: str, samples: SampleKind = "points") -> LocalPrior | CellPrior:
    """A trained prior that takes no further training, for samples that are points or cells.

    Args:
        name: :data:`SHIPPED`, or a checkpoint: of ``PatchRegression``, ``Local`` or ``Adaptive`` for points, of
            ``CellRegression`` for cells.
        samples: What the samples are.
    """
    trained = f"a checkpoint of python datasets/make_priors.py {FILES[samples]}"
    if name == SHIPPED:
        path = shipped_file(FILES[samples])
        if not path.is_file():
            raise InputError(f"the prior {name!r} is missing from the installed package: install pe-lightning again")
        content = io.BytesIO(shipped_bytes(path, card(path.stem)["sha256"]))
        checkpoint: Mapping[str, Any] = torch.load(content, map_location="cpu", weights_only=True)
    elif not user_path(name).is_file():
        raise InputError(f"unknown prior {name!r}, and there is no such file: give {SHIPPED}, {NO_PRIOR}, or {trained}")
    else:
        checkpoint = read_checkpoint(name)
    spec, state = _content(checkpoint)
    if spec is None:
        raise InputError(f"{name!r} holds no prior; give {trained}, or {SHIPPED}")
    if ("factors" in spec) != (samples == "cells"):
        raise InputError(f"{name!r} is not for samples that are {samples}: give {SHIPPED}, {NO_PRIOR}, or {trained}")
    try:
        with torch.random.fork_rng(devices=[]):  # initial weights are drawn, and replaced
            prior = CellPrior(**spec).requires_grad_(False).eval() if samples == "cells" else prior_from(spec)
        prior.load_state_dict(state)
    except (TypeError, RuntimeError) as error:
        raise InputError(f"the prior of {name!r} is damaged: its arguments and its weights do not agree") from error
    if not all(weight.isfinite().all() for weight in prior.parameters()):
        raise InputError(f"the prior of {name!r} has weights that are not finite: train it again with a smaller --model.lr")
    return prior


def prior_from(spec: Mapping[str, Any]) -> LocalPrior:
    """A prior of :meth:`~pe_fill.networks.local.LocalPrior.spec`, to be given its weights; not trained further."""
    # in float32 where a Trainer with precision 64-true makes tensors in float64
    return LocalPrior(**spec).float().requires_grad_(False).eval()


def prior_state(prior: LocalPrior) -> dict[str, Any]:
    """The arguments and the weights of a prior, for the state of a fit."""
    return {"spec": prior.spec(), "weights": prior.state_dict()}


def prior_of(state: Mapping[str, Any], device: torch.device) -> LocalPrior | None:
    """The prior in the state of a fit, if there is one."""
    if (found := state.get("prior")) is None:
        return None
    prior = prior_from(found["spec"])
    prior.load_state_dict(found["weights"])
    return prior.to(device)


def _content(checkpoint: Mapping[str, Any]) -> tuple[dict[str, Any] | None, Mapping[str, Tensor]]:
    """Arguments and weights of the prior in a checkpoint: of the task that trains it, or of a fit with it."""
    state = checkpoint["state_dict"]
    if (spec := checkpoint.get(PRIOR_KEY)) is not None:
        return spec, {key.removeprefix("prior."): value for key, value in state.items() if key.startswith("prior.")}
    found = [fit["prior"] for fit in fits_of(state) if "prior" in fit]
    return (found[0]["spec"], found[0]["weights"]) if found else (None, {})
