r"""Missing samples by several methods, mixed with weights that follow their errors at imitated gaps near by.

Copies of the missing samples are moved over known ones, these are hidden too, and every member predicts them. The second
moments of the members' errors are smoothed in space and shrunk towards their mean; the weights of a missing sample are those
of least variance that sum to one, without negative ones. The errors of the mixture, with weights from the other copies, are
its score and calibrate its standard deviations by the distance from known samples.

Far from all known samples members have nothing to continue: the mixture passes into a smooth continuation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt, gaussian_filter
from torch import Tensor

from pe_lightning.encodings.bank import AnisotropicKernels
from pe_lightning.linalg.threads import one_thread, side_by_side
from pe_lightning.solvers.adaptive_points import NUM_NEIGHBOURS, RIDGE, AdaptivePoints
from pe_lightning.solvers.autoregressive import autoregressive
from pe_lightning.solvers.local_fourier import FourierSettings, local_fourier, smooth_continuation

Member = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Values ``(N_1, ..., N_D, C)``, which are known, which are wanted -> values with at least the wanted ones predicted."""
Mask = NDArray[np.bool_]
Array = NDArray[np.float64]

COPIES = 3
"""Imitations of the gaps."""
CANDIDATES = 12
"""Random shifts of which those are taken whose hidden samples are as far from known ones as the missing samples."""
MAX_SHIFT = 30
"""Largest shift per axis, in samples."""
MAX_HIDDEN = 4000
"""Hidden samples of a copy; of more, random tiles are taken."""
TILE = 16
"""Samples per axis of these tiles."""
DENSE, DENSE_HIDDEN = 0.3, 0.1
"""Share of missing samples from which a copy hides a random part of the known samples instead, and that part."""
SMOOTHING = 18.0
"""Standard deviation of the local mean of second moments, in samples."""
SHRINKAGE, PRIOR_COUNT = 0.25, 10.0
"""Share of the mean over all imitated gaps in the moments, and number of hidden samples that it counts as besides."""
MOMENT_RIDGE = 1e-3
"""Added to the diagonal of the moments, relative to it."""
DENSE_SHARE, DENSE_SETTINGS = 0.5, FourierSettings(8, 32, 0.75, 1.0, (20, 50))
"""Share of missing samples from which pictures have larger blocks, and these: every block has missing samples."""
SHORT_SETTINGS = {
    1: FourierSettings(4, 32, 0.85, 1.0, (15, 25)),
    2: FourierSettings(4, 16, 0.75, 1.0, (20, 30)),
    3: FourierSettings(4, 8, 0.6, 1.0, (20, 30)),
}
"""Short windows, by number of axes."""
DISTANCE_BINS = 6
"""Bins of the distance from known samples with deviations of their own."""
MIN_BIN = 40
"""Fewest hidden samples of such a bin."""
COVERAGE, COVERAGE_DEVIATIONS = 0.9, 1.6448536
"""Share of the errors within so many standard deviations."""
FAR = {1: (96.0, 192.0), 2: (10.0, 16.0), 3: (10.0, 16.0)}
"""Distances from known samples, in samples, between which the mixture passes into the smooth continuation, by axes."""
NEAR = 8.0
"""Distance from wanted samples, in samples, of the known samples that the adaptive fit takes."""
MAX_ADAPTIVE = 1 << 18
"""Known samples near gaps up to which the adaptive fit is a member by default."""
MAX_BIHARMONIC = 1 << 16
"""Missing samples up to which the biharmonic equation is a member by default."""
BANK_ANGLES, BANK_ASPECTS, BANK_WINDOW = 12, (2.0, 6.0), 0.8
"""The bank of the adaptive fit and the window of its errors: those of the model ``Adaptive``."""


@dataclass(frozen=True)
class GapMixture:
    """A filled signal.

    Args:
        values: ``(N_1, ..., N_D, C)``; known samples are those that were given.
        std: Standard deviations at missing samples, zero elsewhere, ``(N_1, ..., N_D, C)``.
        weights: Mean weight of each member over the missing samples.
        errors: Root mean squared error of each member and of the ``mixture`` at the hidden samples.
        held_out: Hidden samples of each copy as row-major positions ``(H,)``, predictions of the mixture ``(H, C)``, and of
            each member ``(M, H, C)``.
    """

    values: Tensor
    std: Tensor
    weights: dict[str, float]
    errors: dict[str, float]
    held_out: list[tuple[Tensor, Tensor, Tensor]]


@one_thread
def fill_gaps(
    values: Tensor, known: Tensor, members: Sequence[str], hidden: Sequence[Tensor], periodic: Sequence[bool] = ()
) -> GapMixture:
    """Predicts missing samples by a mixture of members, which are computed side by side, with one thread each.

    Args:
        values: One signal ``(N_1, ..., N_D, C)``, D of 1 to 3; values of missing samples are ignored.
        known: ``(N_1, ..., N_D)`` booleans.
        members: Names in :data:`MEMBERS`.
        hidden: Known samples that are hidden in each held-out fit, ``(N_1, ..., N_D)`` booleans; see :func:`imitated_gaps`.
        periodic: Which axes are periodic.
    """
    values = torch.where(known[..., None], values, values[known].mean(0))
    functions = {name: MEMBERS[name](periodic) for name in members}
    flat, grid = values.flatten(0, -2), known.shape
    where = [some.flatten().nonzero()[:, 0] for some in hidden]
    found, *predictions = _predict(functions, values, [(known, ~known), *((known & ~some, some) for some in hidden)])
    truths = [flat[index] for index in where]
    moments = [_moments(made - truth, index, grid) for made, truth, index in zip(predictions, truths, where, strict=True)]
    total = np.sum(moments, 0) if moments else np.zeros((len(members) ** 2 + 1, *grid), np.float32)

    mixed, variances, distances = [], [], []
    for predicted, index, own, some in zip(predictions, where, moments, hidden, strict=True):
        others = total - own if len(moments) > 1 else total
        weights, variance = least_variance(_local(others, index.cpu().numpy()))
        mixed.append(torch.einsum("hm,mhc->hc", torch.from_numpy(weights).to(predicted), predicted))
        variances.append(variance)
        distances.append(distance_transform_edt((~known | some).cpu().numpy()).ravel()[index.cpu().numpy()])

    missing = (~known).flatten().nonzero()[:, 0]
    weights, variance = least_variance(_local(total, missing.cpu().numpy()))
    result = flat.clone()
    result[missing] = torch.einsum("hm,mhc->hc", torch.from_numpy(weights).to(found), found)
    distance = distance_transform_edt((~known).cpu().numpy())
    result = _with_far(result.reshape(values.shape), known, torch.from_numpy(distance).to(values))
    std = torch.zeros_like(flat)
    if mixed:
        errors = torch.cat([a - b for a, b in zip(mixed, truths, strict=True)]).abs().cpu().numpy()
        scale = _Deviations(errors, np.concatenate(variances), np.concatenate(distances))
        std[missing] = torch.from_numpy(scale(variance, distance.ravel()[missing.cpu().numpy()])).to(std)
    return GapMixture(
        torch.where(known[..., None], values, result),
        std.reshape(values.shape),
        dict(zip(members, weights.mean(0).tolist() if len(weights) else [], strict=False)),
        _root_mean_squares(members, predictions, truths, mixed),
        list(zip(where, mixed, predictions, strict=True)),
    )


def _predict(functions: Mapping[str, Member], values: Tensor, masks: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Predictions of every member at the wanted samples, ``(M, H, C)`` for each pair of masks, known and wanted.

    Members and masks are computed side by side; a number that is not finite is replaced by the median of the members.
    """

    def predict(item: tuple[Member, tuple[Tensor, Tensor]]) -> Tensor:
        function, (known, wanted) = item
        return function(torch.where(known[..., None], values, 0), known, wanted)[wanted]

    items = [(function, pair) for pair in masks for function in functions.values()]
    every = side_by_side(predict, items, values.device)
    result = []
    for start in range(0, len(every), len(functions)):
        found = torch.stack(every[start : start + len(functions)])
        middle = torch.nan_to_num(found, 0.0).median(0).values
        result.append(torch.where(found.isfinite(), found, middle))
    return result


def _root_mean_squares(
    members: Sequence[str], predictions: Sequence[Tensor], truths: Sequence[Tensor], mixed: Sequence[Tensor]
) -> dict[str, float]:
    if not predictions:
        return {}
    truth = torch.cat(list(truths))
    every = torch.cat([torch.cat(list(predictions), 1), torch.cat(list(mixed))[None]])
    errors = (every - truth).square().mean((1, 2)).sqrt().tolist()
    return dict(zip([*members, "mixture"], errors, strict=True))


# -- weights ------------------------------------------------------------------------------------------------------------


def _moments(errors: Tensor, index: Tensor, grid: Sequence[int]) -> NDArray[np.float32]:
    """Products of errors, mean over channels, and counts, smoothed over the grid: ``(M^2 + 1, N_1, ..., N_D)``."""
    products = torch.einsum("mhc,nhc->mnh", errors, errors).flatten(0, 1).cpu().numpy() / errors.shape[-1]
    made = np.zeros((len(products) + 1, math.prod(grid)), np.float32)
    made[:-1, index.cpu().numpy()], made[-1, index.cpu().numpy()] = products, 1
    made = made.reshape(-1, *grid)
    sigma = [min(SMOOTHING, n / 4) for n in grid]
    area = math.prod(math.sqrt(2 * math.pi) * s for s in sigma)  # a sum over neighbours, not a mean
    return np.stack([gaussian_filter(plane, sigma, mode="constant", truncate=3.0) * area for plane in made])


def _local(moments: NDArray[np.float32], places: NDArray[np.int64]) -> Array:
    """Second moments of the members at some samples of the grid, shrunk towards their mean: ``(P, M, M)``."""
    size = math.isqrt(len(moments) - 1)
    flat = moments.reshape(len(moments), -1).astype(np.float64)
    mean = flat[:-1].sum(1) / max(flat[-1].sum(), 1e-12)
    if not mean.any():
        mean = np.eye(size).ravel()
    local = (flat[:-1, places] + PRIOR_COUNT * mean[:, None]) / (flat[-1, places] + PRIOR_COUNT)
    scale = np.trace(local.reshape(size, size, -1)) / max(np.trace(mean.reshape(size, size)), 1e-300)
    shrunk = (1 - SHRINKAGE) * local + SHRINKAGE * scale * mean[:, None]
    return np.moveaxis(shrunk.reshape(size, size, -1), -1, 0)


def least_variance(moments: Array) -> tuple[Array, Array]:
    """Weights, not negative and with sum one, of least variance, and that variance.

    The member of the most negative weight is left out until none is negative.

    Args:
        moments: Second moments of errors, ``(P, M, M)``.

    Returns:
        ``(P, M)`` and ``(P,)``.
    """
    size = moments.shape[-1]
    own = np.diagonal(moments, axis1=1, axis2=2)
    ridged = moments + (MOMENT_RIDGE * own + 1e-14)[..., None] * np.eye(size)
    level = own.mean(1, keepdims=True)
    out = np.zeros(moments.shape[:2], bool)
    weights = np.full(moments.shape[:2], 1 / size)
    for _ in range(size):
        kept = np.where(out[:, :, None] | out[:, None, :], np.eye(size) * (1 + level[..., None]), ridged)
        solved = np.linalg.solve(kept, (~out)[..., None].astype(float))[..., 0] * ~out
        weights = solved / solved.sum(1, keepdims=True)
        negative = weights.min(1) < 0
        if not negative.any():
            break
        out[negative, weights[negative].argmin(1)] = True
    return weights, np.einsum("pm,pmn,pn->p", weights, moments, weights).clip(1e-14)


class _Deviations:
    """Standard deviations from the variance of the mixture and the distance, such that held-out errors have the coverage."""

    def __init__(self, errors: Array, variance: Array, distance: Array) -> None:
        count = max(1, min(DISTANCE_BINS, len(distance) // MIN_BIN))
        self.edges = np.unique(np.quantile(distance, np.linspace(0, 1, count + 1)[1:-1]))
        bins = np.searchsorted(self.edges, distance)
        ratio = errors / np.sqrt(variance)[:, None]
        self.centres, factors = np.zeros(0), []
        for number in np.unique(bins):
            here = bins == number
            self.centres = np.append(self.centres, distance[here].mean())
            factors.append(np.quantile(ratio[here], COVERAGE, axis=0) / COVERAGE_DEVIATIONS)
        self.factors = np.stack(factors)

    def __call__(self, variance: Array, distance: Array) -> Array:
        """Of samples with these variances and distances ``(P,)``: ``(P, C)``; it grows with the root of the distance."""
        beyond = np.sqrt(np.maximum(distance / self.centres[-1], 1))
        factor = np.stack([np.interp(distance, self.centres, column) for column in self.factors.T], 1)
        found: Array = factor * (beyond * np.sqrt(variance))[:, None]
        return found


# -- imitated gaps ------------------------------------------------------------------------------------------------------


def imitated_gaps(known: Tensor, copies: int = COPIES, seed: int = 0) -> list[Tensor]:
    """Known samples to hide: moved copies of the missing ones, or random ones where much is missing.

    Args:
        known: ``(N_1, ..., N_D)`` booleans.
        copies: How many.
        seed: Seed of the shifts.

    Returns:
        Booleans ``(N_1, ..., N_D)``; none where too few samples are known.
    """
    have = known.cpu().numpy()
    missing, random = ~have, np.random.default_rng(seed)
    found: list[tuple[float, Mask]] = []
    target = float(distance_transform_edt(missing)[missing].mean())
    if missing.mean() > DENSE and target < 2:
        found = [(n, have & (random.random(have.shape) < DENSE_HIDDEN)) for n in range(copies)]
    else:
        for _ in range(CANDIDATES):
            shift = [int(random.integers(-min(MAX_SHIFT, n // 2), min(MAX_SHIFT, n // 2) + 1)) for n in have.shape]
            some = have & np.roll(missing, shift, range(have.ndim))
            if some.sum() < min(4, have.sum() // 4) or (have & ~some).sum() < have.sum() / 4:
                continue
            distance = float(distance_transform_edt(missing | some)[some].mean())
            found.append((abs(math.log(distance / target)), some))
        found.sort(key=lambda pair: pair[0])
    result = []
    for _, some in found[:copies]:
        tile = _tiles(have.shape, random)
        share = MAX_HIDDEN / max(int(some.sum()), 1)
        if share < 1:
            some = some & (tile <= np.quantile(tile[some], share))
        if some.any():
            result.append(torch.from_numpy(some).to(known.device))
    return result


def _tiles(shape: Sequence[int], random: np.random.Generator) -> Array:
    """A random number for each tile of a grid, ``(N_1, ..., N_D)``."""
    sides = [TILE if n >= 2 * TILE else 1 for n in shape]
    made = random.random([-(-n // s) for n, s in zip(shape, sides, strict=True)])
    for axis, (n, side) in enumerate(zip(shape, sides, strict=True)):
        made = np.repeat(made, side, axis).take(range(n), axis)
    return made


# -- members ------------------------------------------------------------------------------------------------------------


def _fourier(periodic: Sequence[bool]) -> Member:
    def predict(values: Tensor, known: Tensor, wanted: Tensor) -> Tensor:
        many = known.ndim == 2 and float(known.float().mean()) < 1 - DENSE_SHARE
        return local_fourier(values, known, wanted=wanted, periodic=periodic, settings=DENSE_SETTINGS if many else None)

    return predict


def _short(periodic: Sequence[bool]) -> Member:
    return lambda values, known, wanted: local_fourier(
        values, known, wanted=wanted, periodic=periodic, settings=SHORT_SETTINGS[known.ndim]
    )


def _adaptive(periodic: Sequence[bool]) -> Member:
    def predict(values: Tensor, known: Tensor, wanted: Tensor) -> Tensor:
        grid, near = known.shape, known & torch.from_numpy(_distance_to(wanted) <= NEAR).to(known.device)
        if int(near.sum()) < 2 * NUM_NEIGHBOURS[known.ndim - 1]:
            near = known
        turned = (BANK_ANGLES, BANK_ASPECTS) if known.ndim > 1 else (0, ())
        bank = AnisotropicKernels("laplace", known.ndim, *turned)
        size = torch.tensor(grid, device=known.device)
        field = AdaptivePoints(bank, values[near], near.nonzero() / size, grid, BANK_WINDOW, RIDGE, periodic=tuple(periodic))
        found = values.clone()
        found[wanted] = field.at(wanted.nonzero() / size).to(found)
        return found

    return predict


def _biharmonic(_: Sequence[bool]) -> Member:
    def predict(values: Tensor, known: Tensor, wanted: Tensor) -> Tensor:
        from skimage.restoration import inpaint_biharmonic  # takes a while, and not every fit needs it

        given = torch.where(known[..., None], values, 0).cpu().double().numpy()
        found = inpaint_biharmonic(given, (~known).cpu().numpy(), channel_axis=-1, split_into_regions=True)
        return torch.from_numpy(found).to(values)

    return predict


def _autoregressive(_: Sequence[bool]) -> Member:
    return lambda values, known, wanted: autoregressive(values, known)[0]


def _neighbours(_: Sequence[bool]) -> Member:
    """Linear interpolation along the first axis, between frames."""

    def predict(values: Tensor, known: Tensor, wanted: Tensor) -> Tensor:
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

    return predict


MEMBERS: dict[str, Callable[[Sequence[bool]], Member]] = {
    "adaptive": _adaptive,
    "autoregressive": _autoregressive,
    "biharmonic": _biharmonic,
    "fourier": _fourier,
    "fourier_short": _short,
    "neighbours": _neighbours,
}
"""Members by name: axes that are periodic -> the member."""


def default_members(known: Tensor) -> list[str]:
    """Members for a signal: Fourier fits, and those that apply to its axes and numbers of samples."""
    axes, missing = known.ndim, int((~known).sum())
    near = int((known & torch.from_numpy(_distance_to(~known) <= NEAR).to(known.device)).sum())
    names = ["fourier", "fourier_short"]
    if near <= MAX_ADAPTIVE and axes < 3:
        names.append("adaptive")
    if axes == 1:
        names.append("autoregressive")
    if axes == 2 and missing <= MAX_BIHARMONIC:
        names.append("biharmonic")
    if axes != 2:
        names.append("neighbours")
    return sorted(names)


def _distance_to(wanted: Tensor) -> Array:
    found: Array = distance_transform_edt(~wanted.cpu().numpy())
    return found


# -- far from known samples -----------------------------------------------------------------------------------------------


def _with_far(filled: Tensor, known: Tensor, distance: Tensor) -> Tensor:
    """The filled values near known samples, and their smooth continuation far from them."""
    near, far = FAR[known.ndim]
    if float(distance.max()) <= near:
        return filled
    share = ((distance - near) / (far - near)).clamp(0, 1)[..., None]
    return filled.lerp(smooth_continuation(filled, distance <= near), share)
