"""Methods that predict missing samples: the members of a mixture (:mod:`~pe_fill.mixture.gap_mixture`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.interpolate import LinearNDInterpolator, PchipInterpolator
from scipy.ndimage import distance_transform_edt
from scipy.sparse.linalg import spsolve
from scipy.spatial import Delaunay, QhullError, cKDTree
from torch import Tensor
from torch.nn import functional as F

from pe_fill.networks.bank import AnisotropicKernels
from pe_fill.solvers.adaptive_points import RIDGE, AdaptivePoints
from pe_fill.solvers.autoregressive import autoregressive
from pe_fill.solvers.local_fourier import DENSE, local_fourier, smooth_continuation
from pe_fill.solvers.motion import along_motion
from pe_fill.solvers.patch_mixture import SIDE, fill_patches, shipped_patches
from pe_fill.solvers.point_level import NUM_NEIGHBOURS
from pe_fill.solvers.power_kriging import POWERS, PowerKriging

NEAR = 8.0
"""Distance from wanted samples, in samples, of the known samples that the adaptive fit takes."""
COARSE, MAX_COARSE = 4, 1 << 14
"""Least side of the pixels in which pictures are continued far from known samples, and most of them that are unknown."""
KRIGED = {"cubic": 3.0, "kriging": 1.0, "thin_plate": 2.0}
"""Powers of the variograms of members."""
TOGETHER = 4
"""Samples per axis whose kriging takes the same known samples."""
BANK, WINDOW = (12, (2.0, 6.0)), 0.8
"""Angles and aspects of the bank of the adaptive fit, and the window of its errors, as of the model ``Adaptive``."""


@dataclass
class Gaps:
    """One signal ``(N_1, ..., N_D, C)``, zero at missing samples, and which samples are known and wanted, booleans.

    A ``dense`` picture (:func:`is_dense`) has larger blocks and fewer patches. Members by kriging among ``members``, the
    predicted ones, are computed together. ``step`` is the distance of neighbouring samples in samples of the signal.
    """

    values: Tensor
    known: Tensor
    wanted: Tensor
    periodic: Sequence[bool] = ()
    dense: bool = False
    members: Sequence[str] = tuple(KRIGED)
    step: int = 1
    _results: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    _locks: dict[str, Lock] = field(default_factory=dict, init=False, repr=False)

    def once(self, name: str, compute: Callable[[Gaps], Tensor]) -> Tensor:
        """The result of a computation that several members share: the first thread computes it."""
        with self._locks.setdefault(name, Lock()):
            if name not in self._results:
                self._results[name] = compute(self)
            return self._results[name]


Member = Callable[[Gaps], Tensor]
"""Values ``(N_1, ..., N_D, C)`` with at least the wanted samples predicted."""


def _fourier(gaps: Gaps) -> Tensor:
    options: dict[str, Any] = {"wanted": gaps.wanted, "periodic": gaps.periodic, "settings": DENSE if gaps.dense else None}
    return gaps.once("fourier", lambda gaps: local_fourier(gaps.values, gaps.known, **options))


def _patches(gaps: Gaps) -> Tensor:
    return fill_patches(_fourier(gaps), gaps.known, gaps.wanted, shipped_patches(), 3 if gaps.dense else 2)


def _adaptive(gaps: Gaps) -> Tensor:
    known, axes, near = gaps.known, gaps.known.ndim, _near(gaps)
    bank = AnisotropicKernels("laplace", axes, *(BANK if axes > 1 else (0, ())))
    size = torch.tensor(known.shape, device=known.device)
    coords, periodic = near.nonzero() / size, tuple(gaps.periodic)
    field = AdaptivePoints(bank, gaps.values[near], coords, known.shape, WINDOW, RIDGE, periodic=periodic)
    found = gaps.values.clone()
    found[gaps.wanted] = field.at(gaps.wanted.nonzero() / size).to(found)
    return found


def _kriging(name: str, gaps: Gaps) -> Tensor:
    """Kriging with a power variogram; members share neighbours, and samples next to each other one system."""
    names = [other for other in KRIGED if other in gaps.members]
    found = gaps.values.clone()
    found[gaps.wanted] = gaps.once("kriging", partial(_krigings, [KRIGED[other] for other in names]))[names.index(name)]
    return found


def _krigings(powers: Sequence[float], gaps: Gaps) -> Tensor:
    """At wanted samples, ``(M, P, C)``."""
    near, index = _near(gaps), gaps.wanted.nonzero()
    places, group = near.nonzero().double(), index.new_zeros(len(index))
    for along, size in zip((index // TOGETHER).unbind(1), near.shape, strict=True):
        group = group * (size // TOGETHER + 1) + along
    fit = PowerKriging(gaps.values[near], places, cKDTree(places.cpu().numpy()))
    return fit.at(index.double(), group, [POWERS.index(power) for power in powers])


def _delaunay(gaps: Gaps) -> Tensor:
    """Linear interpolation on the triangulation of the known samples next to gaps; outside of their hull a continuation."""
    border, found = gaps.known & (_distance_to(~gaps.known) <= 2), smooth_continuation(gaps.values, gaps.known)
    places, wanted = border.nonzero().cpu().numpy(), gaps.wanted.nonzero().cpu().numpy()
    try:
        triangles = Delaunay(places)
    except QhullError as error:
        raise ValueError("the known samples next to gaps are on one line") from error
    made = torch.from_numpy(LinearNDInterpolator(triangles, gaps.values[border].double().cpu().numpy())(wanted)).to(found)
    found[gaps.wanted] = torch.where(made.isnan(), found[gaps.wanted], made)
    return found


def continuation(values: Tensor, known: Tensor, order: int, side: int = COARSE) -> Tensor:
    """Smooth values far from known samples, ``(N_1, ..., N_D, C)``.

    In pictures they solve the Laplace equation (order 1) or the biharmonic one (2) in pixels of at least ``side``.
    """
    if known.ndim != 2:
        return smooth_continuation(values, known)
    share = known.to(values)[None, None]
    while int((F.max_pool2d(share, side, ceil_mode=True) == 0).sum()) > MAX_COARSE:
        side *= 2
    weight = F.avg_pool2d(share, side, ceil_mode=True)
    planes = torch.where(known[..., None], values, 0).movedim(-1, 0)[None]
    coarse = F.avg_pool2d(planes, side, ceil_mode=True) / weight.clamp_min(1e-12)
    unknown = (weight == 0).flatten().cpu().numpy()
    if unknown.any():
        slopes, bends = ([_energy(n, order) for n in weight.shape[2:]] for order in (1, 2))
        operator = sparse.kronsum(slopes[1], slopes[0], "csr")
        if order == 2:  # linear up to the ends of the picture; the slopes decide where known pixels are on a line
            bent = sparse.kronsum(bends[1], bends[0], "csr") + 2 * sparse.kron(slopes[0], slopes[1], "csr")
            operator = bent + 1e-6 * operator
        operator = operator[unknown]
        found = coarse.flatten(2)[0].T.double().cpu().numpy()
        low, high = found[~unknown].min(0), found[~unknown].max(0)
        solved = spsolve(operator[:, unknown].tocsc(), -operator[:, ~unknown] @ found[~unknown])
        found[unknown] = solved.reshape(-1, found.shape[1]).clip(low, high)
        coarse = torch.from_numpy(found.T.reshape(coarse.shape)).to(values)
    size = [n * side for n in weight.shape[2:]]
    fine = F.interpolate(coarse, size, mode="bicubic", align_corners=False)[0].movedim(0, -1)
    return fine[: known.shape[0], : known.shape[1]]


def _energy(size: int, order: int) -> sparse.csr_array:
    """Matrix of the sum of squared differences of an order along an axis; its ends are free."""
    differences = sparse.csr_array(np.diff(np.eye(size), order, axis=0))
    return differences.T @ differences


def _neighbours(gaps: Gaps) -> Tensor:
    """Linear interpolation along the first axis, between frames."""
    values, known = gaps.values, gaps.known
    number = torch.arange(len(known), device=known.device).reshape(-1, *[1] * (known.ndim - 1)).expand(known.shape)
    before = torch.where(known, number, -1).cummax(0).values
    after = torch.where(known, number, len(known)).flip(0).cummin(0).values.flip(0)
    left = torch.where(before < 0, after, before).clamp(0, len(known) - 1)
    right = torch.where(after >= len(known), before, after).clamp(0, len(known) - 1)
    share = ((number - left) / (right - left).clamp_min(1)).clamp(0, 1).to(values)[..., None]
    low, high = (values.gather(0, at[..., None].expand_as(values)) for at in (left, right))
    found = low.lerp(high, share)
    never = (before < 0) & (after >= len(known))
    return torch.where(never[..., None], values[known].mean(0), found)


def _pchip(gaps: Gaps) -> Tensor:
    """Monotone cubic interpolation along the first axis at positions without known samples, as lost frames."""
    found, seen = _neighbours(gaps), gaps.known.flatten(1).any(1) if gaps.known.ndim > 1 else gaps.known
    places, lost = (which.nonzero()[:, 0].cpu().numpy() for which in (seen, ~seen))
    lost = lost[(lost > places[0]) & (lost < places[-1])]
    made = PchipInterpolator(places, found[seen].double().cpu().numpy())(lost)
    found[torch.from_numpy(lost).to(found.device)] = torch.from_numpy(made).to(found)
    return found


MEMBERS: dict[str, Member] = {
    "adaptive": _adaptive,
    "autoregressive": lambda gaps: autoregressive(gaps.values, gaps.known),
    "biharmonic": lambda gaps: continuation(gaps.values, gaps.known, 2, 1),
    "delaunay": _delaunay,
    "fourier": _fourier,
    "motion": lambda gaps: along_motion(_neighbours(gaps), gaps.known, gaps.wanted),
    "neighbours": _neighbours,
    "patches": _patches,
    "pchip": _pchip,
    **{name: partial(_kriging, name) for name in KRIGED},
}
"""Members by name."""
AXES = {"autoregressive": (1,), "biharmonic": (2,), "delaunay": (2, 3), "motion": (3,), "patches": (2,)}
"""Numbers of axes of the signals that a member fills; others fill all."""
ORDERS = {"biharmonic": 0, "cubic": 2, "delaunay": 0, "thin_plate": 2}
"""Order of the continuation that members pass into far from known samples; 1 by default, 0 for none."""


def default_members(known: Tensor) -> list[str]:
    """Members for a signal, by its axes and numbers of samples."""
    if known.ndim == 1:
        near = known & (_distance_to(~known) <= NEAR)
        some = ["adaptive"] if int(near.sum()) <= 1 << 18 else []
        return [*some, "autoregressive", "fourier", "neighbours"]
    if known.ndim == 3:
        lost = bool((~known).flatten(1).all(1).any())
        return ["fourier", "kriging", *(["motion"] if lost else []), "neighbours", *(["pchip"] if lost else [])]
    wide = ["biharmonic", "delaunay"] if bool((_distance_to(known) > NEAR).any()) else []
    return [*wide, "cubic", "fourier", "kriging", *(["patches"] if min(known.shape) >= SIDE else []), "thin_plate"]


def is_dense(known: Tensor) -> bool:
    """Whether so much of a picture is missing that most blocks have missing samples."""
    return known.ndim == 2 and float(known.float().mean()) < 0.65


def _near(gaps: Gaps) -> Tensor:
    """Known samples near wanted ones; all if these are few."""
    near = gaps.known & (_distance_to(gaps.wanted) <= NEAR)
    return near if int(near.sum()) >= 2 * NUM_NEIGHBOURS[near.ndim - 1] else gaps.known


def _distance_to(wanted: Tensor) -> Tensor:
    """Distance of every sample from the wanted ones, in samples."""
    return torch.from_numpy(distance_transform_edt(~wanted.cpu().numpy())).to(wanted.device)
