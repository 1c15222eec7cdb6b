r"""Sparse local Fourier fits: missing samples continued by the few frequencies that explain the known ones around them.

The grid is divided into blocks. The known samples in a window around each block with missing samples are approximated by
frequencies of the window, chosen one at a time: the one with the largest weighted projection, times a preference for low
frequencies, is added with a step below one. Weights :math:`w` fall with the distance from the block; in the second pass the
result of the first one takes part with a small weight. With :math:`R` the spectrum of the weighted residual and :math:`W`
the spectrum of the weights, a step at the frequency :math:`u` is

.. math:: R(k) \leftarrow R(k) - c\,W(k - u) - \bar c\,W(k + u), \qquad c = \gamma R(u) / W(0).

All windows are computed in batches, and a frequency is chosen for all channels together.

Reference: Seiler and Kaup, *Complex-valued frequency selective extrapolation for fast image and video signal extrapolation*,
IEEE Signal Processing Letters 17, 2010. Genser et al., *Spectral constrained frequency selective extrapolation for rapid
image error concealment*, IWSSIP 2018.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from scipy.ndimage import distance_transform_cdt
from torch import Tensor
from torch.nn import functional as F

from pe_lightning.linalg.threads import in_turns

STEP = 0.6
"""Part of a projection that is added at a time."""
NEW_WEIGHT, REPLACED_WEIGHT = 0.5, 0.2
"""Weight of predicted samples relative to known ones, in the first pass and in the second."""
LEAST_SHARE = 0.02
"""Share of the weights of a window at known samples below which the smooth continuation takes part."""
NUMBERS_AT_ONCE = 1 << 16
"""Coefficients of the windows that are computed together: they stay in the cache."""


class FourierSettings(NamedTuple):
    """Sizes of the fits.

    Args:
        block: Samples per axis of a block.
        window: Samples per axis of the window around it.
        decay: Factor of the weights per sample of distance from the centre of the block.
        band: Largest frequency, relative to the Nyquist frequency of an axis.
        terms: Chosen frequencies in each pass.
    """

    block: int
    window: int
    decay: float
    band: float
    terms: tuple[int, ...]


SETTINGS = {
    1: FourierSettings(8, 128, 0.95, 1.0, (40, 60)),
    2: FourierSettings(4, 32, 0.75, 1.0, (30, 60)),
    3: FourierSettings(4, 16, 0.65, 0.75, (40, 40)),
}
"""By number of axes."""
WIDE = FourierSettings(4, 48, 0.8, 0.75, (30, 60))
"""Of blocks of pictures in and next to gaps more than two blocks wide."""
DENSE = FourierSettings(8, 32, 0.75, 0.75, (40,))
"""Of pictures with many missing samples."""


class _Tables(NamedTuple):
    offsets: Tensor
    """Offsets of the window from the first sample of its block, ``(T, )``."""
    weights: Tensor
    """``(T^D,)``."""
    frequencies: Tensor
    """Flat positions in the spectrum of one of each pair of conjugate frequencies, ``(K,)``."""
    preference: Tensor
    """Factor of their squared projections, ``(K,)``."""
    pair: Tensor
    """One, or a half for a frequency that is its own conjugate, ``(K,)``."""
    shifted: Tensor
    """Flat positions of ``k - u`` and ``k + u``, ``(K, 2 K)``; u first."""
    waves: Tensor
    """Values in the block of coefficients, real parts first, ``(2 K, b^D)``."""


def local_fourier(
    values: Tensor,
    known: Tensor,
    *,
    wanted: Tensor | None = None,
    periodic: Sequence[bool] = (),
    settings: FourierSettings | None = None,
) -> Tensor:
    """Predicts missing samples of one signal ``(N_1, ..., N_D, C)``, D of 1 to 3.

    Args:
        values: The signal; values of missing samples are ignored.
        known: Which samples are known, ``(N_1, ..., N_D)`` booleans.
        wanted: Missing samples to predict, all by default; blocks without any have their smooth continuation, into which
            predictions pass far from known samples.
        periodic: Which axes are periodic; none by default.
        settings: Sizes of the fits; by the number of axes by default.
    """
    axes, sizes = known.ndim, known.shape
    narrow = settings or SETTINGS[axes]
    wide = WIDE if settings is None and axes == 2 else narrow
    tables = {made: _tables(made, axes, values.dtype, values.device) for made in (narrow, wide)}
    wraps = tuple(periodic) or (False,) * axes
    wanted = ~known if wanted is None else wanted & ~known
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[axes - 1]
    has_wanted, has_known = (
        pool(mask[None, None].float(), narrow.block, ceil_mode=True)[0, 0] > 0 for mask in (wanted, known)
    )
    distance = distance_transform_cdt(~has_known.cpu().numpy(), "chessboard")
    layer = (
        torch.from_numpy(distance).to(values.device).clamp(1, 24)
    )  # blocks farther from known samples are fitted together
    in_wide = pool((layer > 1)[None, None].float(), 5, stride=1, padding=2)[0, 0] > 0
    inner = torch.arange(narrow.block, device=values.device)
    filled, weight = smooth_continuation(values, known), known.to(values)

    def fit(item: tuple[FourierSettings, int, Tensor]) -> tuple[Tensor, Tensor]:
        made, terms, some = item
        samples, weights = _windows(filled, weight, some * made.block, tables[made], wraps)
        return _fit(samples, weights, tables[made], terms), weights.sum(1) / (LEAST_SHARE * tables[made].weights.sum())

    for number in range(len(narrow.terms)):
        # from the known samples inwards, then all blocks once more
        for now in (layer == n for n in range(1, int(layer.max()) + 1)) if number == 0 else (layer > 0,):
            items = []
            for made, here in ((narrow, ~in_wide), (wide, in_wide)):
                step = max(1, NUMBERS_AT_ONCE // (values.shape[-1] * len(tables[made].frequencies)))
                blocks = torch.split((now & here & has_wanted).nonzero(), step)
                items += [(made, made.terms[number], some) for some in blocks if len(some)]
            found, done = filled.flatten(0, -2).clone(), torch.zeros_like(known).flatten()
            for (_, _, some), (block, share) in in_turns(fit, items, values.device):
                place = [some[:, a, None] * narrow.block + inner for a in range(axes)]
                inside = _outer([p < n for p, n in zip(place, sizes, strict=True)], torch.logical_and)
                index = _positions(place, sizes)[inside]
                share = share.clamp(0, 1)[:, None].expand_as(inside)[inside][:, None]
                found[index] = found[index].lerp(block[inside], share)
                done[index] = True
            filled = torch.where(known[..., None], values, found.view_as(values))
            weight = torch.where(done.view_as(known) & ~known, NEW_WEIGHT, weight)
        weight = torch.where(weight == NEW_WEIGHT, REPLACED_WEIGHT, weight)
    return filled


def smooth_continuation(values: Tensor, known: Tensor) -> Tensor:
    """Values of unknown samples from means over larger and larger cells, interpolated linearly: ``(N_1, ..., N_D, C)``."""
    axes = known.ndim
    pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[axes - 1]
    mode = ("linear", "bilinear", "trilinear")[axes - 1]
    weight = known.to(values)[None]
    levels = [(torch.where(known[..., None], values, 0).movedim(-1, 0), weight)]
    while float(levels[-1][1].min()) == 0 and max(levels[-1][1].shape[1:]) > 1:
        total, share = levels[-1]
        size = [min(2, n) for n in total.shape[1:]]
        levels.append(tuple(pool(x[None], size, ceil_mode=True)[0] for x in (total, share)))  # type: ignore[arg-type]
    made = torch.zeros_like(levels[-1][0])
    for total, share in reversed(levels):
        coarse = F.interpolate(made[None], total.shape[1:], mode=mode)[0]
        made = torch.where(share > 0, total / share.clamp_min(1e-12), coarse)
    return made.movedim(0, -1)


def _fit(samples: Tensor, weights: Tensor, tables: _Tables, terms: int) -> Tensor:
    """Values in the blocks: samples ``(B, C, T^D)`` and weights ``(B, T^D)`` -> ``(B, b^D, C)``."""
    axes = round(math.log(samples.shape[-1], len(tables.offsets)))
    shape, ends = (len(tables.offsets),) * axes, tuple(range(-axes, 0))
    total = weights.sum(-1)
    mean = torch.einsum("bcn,bn->bc", samples, weights) / total.clamp_min(torch.finfo(total.dtype).tiny)[:, None]
    weighted = (samples - mean[..., None]) * weights[:, None]
    least = torch.finfo(total.dtype).tiny
    spectrum = _planes(torch.fft.fftn(weights.reshape(-1, *shape), dim=ends).flatten(1)[:, None])
    residual = _planes(
        torch.fft.fftn(weighted.reshape(*weighted.shape[:2], *shape), dim=ends).flatten(2)[..., tables.frequencies]
    )
    coefficients, scale = torch.zeros_like(residual), STEP * tables.pair / total.clamp_min(least)[:, None]
    for _ in range(terms):
        best = torch.linalg.vecdot(residual, residual, dim=1).mul_(tables.preference).argmax(1, keepdim=True)
        where = best[:, None].expand(-1, residual.shape[1], -1)
        step = residual.gather(2, where) * scale.gather(1, best)[:, None]
        coefficients.scatter_add_(2, where, step)
        real, imaginary = step.chunk(2, 1)
        upper = torch.cat([real, real, -imaginary, imaginary], 2)
        lower = torch.cat([imaginary, -imaginary, real, real], 2)
        index = tables.shifted.index_select(0, best[:, 0])[:, None].expand(-1, 2, -1)
        residual.baddbmm_(torch.cat([upper, lower], 1), spectrum.gather(2, index).view(len(step), 4, -1), alpha=-1)
    real, imaginary = coefficients.chunk(2, 1)
    return (torch.cat([real, imaginary], 2) @ tables.waves + mean[..., None]).mT


def _planes(spectrum: Tensor) -> Tensor:
    """Real parts, then imaginary parts: ``(B, C, K)`` complex -> ``(B, 2 C, K)``."""
    return torch.cat([spectrum.real, spectrum.imag], 1)


def _windows(
    filled: Tensor, weight: Tensor, start: Tensor, tables: _Tables, periodic: Sequence[bool]
) -> tuple[Tensor, Tensor]:
    """Samples ``(B, C, T^D)`` and weights ``(B, T^D)`` around blocks that start at ``(B, D)``."""
    along, inside = [], []
    for axis, size in enumerate(weight.shape):
        place = start[:, axis, None] + tables.offsets
        inside.append(torch.ones_like(place, dtype=torch.bool) if periodic[axis] else (place >= 0) & (place < size))
        along.append(place % size if periodic[axis] else place.clamp(0, size - 1))
    index = _positions(along, weight.shape)
    weights = weight.flatten()[index] * tables.weights * _outer(inside, torch.logical_and)
    return filled.flatten(0, -2)[index].mT.contiguous(), weights


def _outer(along: Sequence[Tensor], combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Combinations of all axes, row-major: ``(B, n_a)`` per axis -> ``(B, n_1 ... n_D)``."""
    return reduce(lambda x, y: combine(x[:, :, None], y[:, None]).flatten(1), along)


def _positions(along: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    return _outer([place * math.prod(sizes[a + 1 :]) for a, place in enumerate(along)], torch.add)


def _tables(settings: FourierSettings, axes: int, dtype: torch.dtype, device: torch.device) -> _Tables:
    side, block = settings.window, settings.block
    offsets = torch.arange(side, device=device) - (side - block) // 2
    centre = (offsets.double() - (block - 1) / 2).square()
    squared = sum(part for part in torch.meshgrid(*[centre] * axes, indexing="ij"))
    assert isinstance(squared, Tensor)
    weights = (settings.decay ** squared.sqrt()).flatten()
    most = int(settings.band * side / 2)
    every = {tuple(n % side for n in k) for k in itertools.product(range(-most, most + 1), repeat=axes)}
    inside = {k for k in every if math.hypot(*(min(n, side - n) for n in k)) <= most}
    chosen = sorted(k for k in inside if k <= tuple(-n % side for n in k))
    places = torch.tensor(chosen, device=device)
    own = torch.tensor([all(2 * n % side == 0 for n in k) for k in chosen], device=device)
    signed = torch.where(places > side // 2, places - side, places)
    radius = signed.double().square().sum(1).sqrt() / (side / 2)
    preference = (1 - math.sqrt(0.5) * radius).clamp_min(0).square()
    powers = side ** torch.arange(axes - 1, -1, -1, device=device)
    shifted = torch.cat([((places + sign * places[:, None]) % side * powers).sum(-1) for sign in (-1, 1)], 1)
    inner = torch.cartesian_prod(*[torch.arange(block, device=device) + (side - block) // 2] * axes).reshape(-1, axes)
    phase = 2 * math.pi / side * (signed.double() @ inner.double().T)
    waves = 2 * torch.cat([phase.cos(), -phase.sin()])
    pair = torch.where(own, 0.5, 1.0).to(dtype)
    return _Tables(
        offsets, weights.to(dtype), (places * powers).sum(1), preference.to(dtype), pair, shifted, waves.to(dtype)
    )
