"""Scores of a mixture and of interpolation at known samples that are hidden by copies of the gaps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from pe_fill.mixture.mixture import HeldOut
from pe_lightning.errors import InputError
from pe_lightning.estimators.folds import FoldScore
from pe_lightning.evaluation.baselines import baselines, interpolate
from pe_lightning.signals import PointBatch

MAX_PLACES, CLUSTERS = 400, 8
"""Hidden samples of a copy of the gaps at which interpolation is scored, and the places around which they are chosen."""
NEAR_SAMPLES = 8.0
"""Distance from these, in samples, of the known samples that are interpolated."""


def interpolated_gaps(
    values: Tensor, members: Sequence[str], held_out: Sequence[HeldOut], seed: int = 0
) -> tuple[FoldScore, dict[str, FoldScore], dict[str, str]]:
    """Scores of a mixture at known samples that are hidden, and of interpolation at up to :data:`MAX_PLACES` of each copy.

    Of one signal ``(N_1, ..., N_D, C)`` in [0, 1]. Errors of interpolation are relative to the mixture at the same samples,
    and carried over to the spacing of a pattern as its errors are. A member that is a baseline too is scored by its
    predictions.

    Returns:
        Score of the mixture, scores of interpolation by name, and reasons why other baselines have no score.
    """
    flat = values.flatten(0, -2)
    squared: dict[str, list[Tensor]] = {"": []}
    left_out: dict[str, str] = {}
    for known, index, mixed, predictions, carried in held_out:
        at = torch.from_numpy(np.stack(np.unravel_index(index.numpy(), known.shape), 1)).double()
        centres = at[torch.randperm(len(index), generator=torch.Generator().manual_seed(seed))[:CLUSTERS]]
        order = torch.cdist(at, centres).amin(1).argsort(stable=True)[:MAX_PLACES]
        truth, own = flat[index[order]], {"": mixed[order]}
        given = known.flatten()
        wanted = torch.zeros_like(given).index_fill(0, index[order], True).reshape(known.shape)
        near = given & torch.from_numpy(distance_transform_edt(~wanted.numpy()) <= NEAR_SAMPLES).flatten()
        near = near if bool(near.any()) else given
        places = near.reshape(known.shape).nonzero().double()
        batch = PointBatch(places[None], flat[near][None])
        for name in [name for name in baselines if baselines.get(name).on_points and name not in left_out]:
            try:
                if name in members:
                    own[name] = predictions[list(members).index(name)][order]
                elif name != "biharmonic" and (known.ndim <= 2 or name not in ("delaunay", "clough_tocher")):
                    own[name] = truth + carried[order] * (interpolate(name, batch, at[order])[0] - truth)
            except InputError as error:
                left_out[name] = f"left out: {error}"
        for name, found in own.items():
            squared.setdefault(name, []).append((found.double() - truth).square().flatten())
    # a mixture is scored at all hidden samples, and others by the ratio of their errors to its own at the same ones
    every = torch.cat([(found - flat[index]).double().square().flatten() for _, index, found, *_ in held_out]).mean()
    ratio = every / torch.cat(squared[""]).mean().clamp_min(torch.finfo(torch.float64).tiny)
    errors = {name: ratio * torch.cat(some).mean()[None] for name, some in squared.items() if name not in left_out}
    scores = {name: FoldScore.of_squared_errors(error) for name, error in errors.items()}
    return scores.pop(""), scores, left_out
