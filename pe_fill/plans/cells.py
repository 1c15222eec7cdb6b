"""Samples that are means over cells, divided into smaller cells; missing ones are filled first."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from PIL import Image
from torch import Tensor

from pe_fill.estimators.priors import NO_PRIOR, read_prior
from pe_fill.memory import check_enlarging_memory
from pe_fill.plans.enlarging import MIN_REDUCED_SAMPLES, Enlarger, by_fit, by_network, by_pillow, enlarge_cells
from pe_fill.plans.signal import Outcome, Signal, read_quietly
from pe_fill.request import SHIPPED
from pe_lightning.estimators import Field
from pe_lightning.estimators.folds import FoldScore
from pe_lightning.signals.sources import TensorSource

PILLOW = {f"Pillow {method.name}": method for method in (Image.Resampling.LANCZOS, Image.Resampling.BICUBIC)}
"""Filters that enlargements are compared with."""


def applies(signal: Signal) -> bool:
    """To enlargements of means."""
    return bool(signal.frame.factors) and signal.frame.samples == "cells"


def run(signal: Signal, fill: Callable[[Signal], Outcome]) -> Outcome:
    """Means over the parts of the samples; ``fill`` predicts missing ones."""
    request, factors = signal.request, signal.frame.factors
    check_enlarging_memory(signal.name, signal.values.shape, factors)
    unit = signal.unit
    if signal.missing.any():
        points = replace(request, upscale=1, samples="auto", pretrained=SHIPPED, folds="none", std=False)
        kept = signal.frame._replace(factors=(), samples="points")
        whole = fill(Signal(signal.name, signal.values, signal.missing, points, kept)).values
        unit = torch.from_numpy(signal.scaling.to_unit(whole, 0)).clamp(0, 1)
    scored = request.folds != "none" and len([factor for factor in factors if factor > 1]) > 1
    alternatives = {key: by_pillow(method, factors) for key, method in PILLOW.items()} if scored else {}
    found = enlarge_cells(unit, factors, _members(signal), alternatives, signal.values.dtype.kind in "iu")
    about = signal.about(found)
    if found.truth is None:
        about.protocol = f"an enlargement is scored from {MIN_REDUCED_SAMPLES * max(factors)} samples per axis on"
    elif request.folds != "none":
        by = "x".join(map(str, factors)) if len(set(factors)) > 1 else str(factors[0])
        about.protocol = f"the signal reduced to means over cells, 1/{by}, and enlarged again"
        squares = {key: (held.double() - found.truth).square().mean() for key, held in found.held_out.items()}
        scores = {key: FoldScore.of_squared_errors(square[None]) for key, square in squares.items()}
        about.score, about.baselines = scores.pop(""), {key: scores[key] for key in alternatives}
    return Outcome(signal.scaling.restore(found.values.numpy(), 0), about)


def _members(signal: Signal) -> dict[str, Enlarger]:
    request, factors = signal.request, signal.frame.factors
    found: dict[str, Enlarger] = {}
    if request.is_automatic and request.pretrained != NO_PRIOR:
        prior = read_prior(request.pretrained, "cells")
        if all(factor == 1 or prior.steps(factor) for factor in factors):
            found[f"the network {request.pretrained!r} trained on other pictures"] = by_network(prior, factors)
    make = signal.make_model(math.prod(signal.grid), NO_PRIOR if request.is_automatic else request.pretrained)

    def fit(part: Tensor) -> Field:
        return make().fit(read_quietly(TensorSource(part[None]), "cells"))

    return {**found, "Adaptive" if request.is_automatic else "the fit": by_fit(fit, factors)}
