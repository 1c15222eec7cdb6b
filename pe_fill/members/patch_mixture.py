r"""Missing pixels from a mixture of Gaussians of patches of 8 x 8, learned from pictures.

A patch minus its mean is one of K shapes in one of the eight orientations of a square, at any contrast: the density of its
direction for the covariance :math:`\Sigma` is, up to a constant, :math:`|\Sigma|^{-1/2} (x^T \Sigma^{-1} x)^{-d/2}` with
:math:`d = 63` (angular central Gaussian). Each patch around missing pixels takes the component of the largest density for a
first estimate of these pixels; they are then the conditional mean given the known pixels of the patch, with the mean of the
patch unknown. With :math:`\Lambda = (\Sigma + \beta 1 1^T)^{-1}` and the missing pixels m,

.. math:: x_m = -\Lambda_{mm}^{-1} \Lambda_{mo} x_o, \qquad \mathrm{cov}(x_m) = s^2 \Lambda_{mm}^{-1}.

Predictions of overlapping patches are averaged with weights 1/variance.

Reference: Zoran and Weiss, *From learning models of natural image patches to whole image restoration*, ICCV 2011. Tyler, *A
distribution-free M-estimator of multivariate scatter*, Annals of Statistics 15, 1987.
"""

from __future__ import annotations

import io
import json
import math
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from pe_fill.networks.cells import turns
from pe_lightning.linalg.threads import in_turns
from pe_lightning.signals.files import shipped_bytes

SIDE = 8
"""Pixels per axis of a patch."""
NUGGET = 4e-3
"""Added to the diagonal of the covariances, relative to their mean diagonal."""
AT_ONCE = 256
"""Patches that are computed together."""


class PatchMixture(NamedTuple):
    """Components.

    Args:
        shares: Share of the patches of each component, ``(K,)``.
        covariances: Covariances of patches without their mean, with mean diagonal 1, ``(K, 64, 64)``.
    """

    shares: Tensor
    covariances: Tensor


@cache
def shipped_patches() -> PatchMixture:
    """The mixture that is part of the package, learned by ``datasets/make_patches.py``."""
    path = Path(__file__).parents[1] / "estimators" / "weights" / "patches.pt"
    card = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    state = torch.load(io.BytesIO(shipped_bytes(path, card["sha256"])), map_location="cpu", weights_only=True)
    factors = state["factors"].double()
    return PatchMixture(state["shares"].double(), factors @ factors.mT)


class OrientedPatches(NamedTuple):
    """Components in all orientations, ``G = 8 K``."""

    offset: Tensor
    """Logarithm of the share and of the determinant, ``(G,)``."""
    whitening: Tensor
    """``(64, 64 G)``."""
    precision: Tensor
    """With the mean of the patch unknown, ``(G, 64 * 64)``."""


def oriented_patches(mixture: PatchMixture, dtype: torch.dtype) -> OrientedPatches:
    """The components of a mixture in all orientations."""
    every, shares = oriented_covariances(mixture)
    flat = every + 100.0  # the variance of the mean of a patch, relative to its pixels
    factor = torch.linalg.cholesky(every + 1 / SIDE)
    whitening = torch.linalg.solve_triangular(factor, torch.eye(SIDE * SIDE).to(every).expand_as(every), upper=False)
    logarithm = factor.diagonal(dim1=1, dim2=2).log().sum(1)
    offset = shares.log() - logarithm
    precision = torch.cholesky_inverse(torch.linalg.cholesky(flat))
    return OrientedPatches(
        offset.to(dtype), whitening.flatten(0, 1).T.to(dtype).contiguous(), precision.flatten(1).to(dtype)
    )


def oriented_covariances(mixture: PatchMixture) -> tuple[Tensor, Tensor]:
    """Covariances of the components in all orientations, ``(8 K, 64, 64)`` float64, and their shares, ``(8 K,)``."""
    sigma = mixture.covariances.double() + NUGGET * torch.eye(SIDE * SIDE, dtype=torch.float64)
    turned = [sigma[:, index][:, :, index] for index in turns(SIDE)]
    return torch.stack(turned, 1).flatten(0, 1), mixture.shares.double().repeat_interleave(len(turned))


def patch_starts(size: int, stride: int, step: int = 1) -> Tensor:
    """First pixels along an axis of patches ``stride`` apart, whose pixels are ``step`` apart; the last ends at its end."""
    last = size - (SIDE - 1) * step - 1
    return torch.arange(0, last + stride, stride).clamp_max(last)


def patch_places(width: int, step: int = 1) -> Tensor:
    """Flat positions of the pixels of a patch in rows of ``width``, from its first pixel: ``(64,)``."""
    return step * (torch.arange(SIDE)[:, None] * width + torch.arange(SIDE)).flatten()


def closest(patches: Tensor, tables: OrientedPatches) -> tuple[Tensor, Tensor]:
    """The component of the largest density and its quadratic form, of patches without mean ``(P, 64)``: ``(P,)`` each."""
    form = (patches @ tables.whitening).view(len(patches), -1, SIDE * SIDE).square().sum(-1)
    best = (tables.offset - (SIDE * SIDE - 1) / 2 * form.clamp_min(1e-30).log()).argmax(1)
    return best, form.gather(1, best[:, None])[:, 0]


def fill_patches(start: Tensor, known: Tensor, wanted: Tensor, mixture: PatchMixture, stride: int = 2) -> Tensor:
    """Predicts missing pixels of ``(H, W, C)``, at least 8 x 8, from patches ``stride`` pixels apart.

    ``start`` has the known pixels and a first estimate of the others, which wanted pixels keep in no patch with enough known
    ones.
    """
    tables = oriented_patches(mixture, start.dtype)
    width = known.shape[1]
    inner = patch_places(width)
    if not len(corners := _corners(known, wanted, stride)):
        return start
    result = start.flatten(0, 1).clone()
    have = known.flatten()
    sample = result[have][:: max(1, int(have.sum()) >> 14)]
    colour = torch.linalg.svd(sample - sample.mean(0), full_matrices=False).Vh[0]
    order = (~have[corners[:, None] + inner]).sum(1).argsort()
    total, weight = torch.zeros_like(result), torch.zeros_like(result[:, 0])

    def predict(some: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        places = some[:, None] + inner
        filled, variance = _conditional(result[places], ~have[places], colour, tables)
        return places, filled, torch.where(have[places], 0, 1 / variance).flatten()

    for _, (places, filled, weights) in in_turns(predict, torch.split(corners[order], AT_ONCE), start.device):
        total.index_add_(0, places.flatten(), filled.flatten(0, 1) * weights[:, None])
        weight.index_add_(0, places.flatten(), weights)
    result = torch.where((weight > 0)[:, None], total / weight.clamp_min(1e-30)[:, None], result)
    return result.view_as(start)


def _corners(known: Tensor, wanted: Tensor, stride: int) -> Tensor:
    """First pixels of the patches with wanted and enough known pixels, row-major, ``(P,)``."""
    starts = [patch_starts(n, stride) for n in known.shape]

    def count(mask: Tensor) -> Tensor:
        total = torch.nn.functional.pad(mask.int().cumsum(0).cumsum(1), (1, 0, 1, 0))
        rows = total[starts[0] + SIDE] - total[starts[0]]
        return rows[:, starts[1] + SIDE] - rows[:, starts[1]]

    places = starts[0][:, None] * known.shape[1] + starts[1]
    return places[(count(wanted) > 0) & (count(known) >= 8)]


def _conditional(values: Tensor, missing: Tensor, colour: Tensor, tables: OrientedPatches) -> tuple[Tensor, Tensor]:
    """Conditional means and variances: ``(P, 64, C)``, missing ``(P, 64)`` -> ``(P, 64, C)``, ``(P, 64)``."""
    mean = values.mean(1, keepdim=True)
    values = values - mean
    best, _ = closest(values @ colour, tables)
    precision = tables.precision[best]
    most = int(missing.sum(1).max())
    place = missing.int().argsort(dim=1, descending=True, stable=True)[:, :most]  # missing pixels first
    padded = ~missing.gather(1, place)
    given = values.masked_fill(missing[..., None], 0)
    pull = precision.view(-1, SIDE * SIDE, SIDE * SIDE) @ given
    index = place[:, :, None] * SIDE * SIDE + place[:, None]
    system = precision.gather(1, index.flatten(1)).view(index.shape)
    apart = padded[:, :, None] | padded[:, None]
    system = torch.where(apart, torch.eye(most, dtype=system.dtype), system)
    right = pull.gather(1, place[..., None].expand(-1, -1, pull.shape[-1])).masked_fill(padded[..., None], 0)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(system))
    found = -inverse @ right
    at = place[..., None].expand_as(found)
    filled = given.scatter(1, at, torch.where(padded[..., None], given.gather(1, at), found))
    form = (given * pull).sum((1, 2)) + (found * right).sum((1, 2))
    scale = form.clamp_min(1e-12) / math.prod(values.shape[2:]) / (~missing).sum(1)
    variance = torch.ones_like(values[..., 0]).scatter(1, place, inverse.diagonal(dim1=1, dim2=2)) * scale[:, None]
    return filled + mean, variance.clamp_min(1e-12)
