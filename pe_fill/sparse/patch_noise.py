r"""Noise of pictures: its level, and its removal, by the mixture of patches of :mod:`pe_fill.members.patch_mixture`.

A patch minus its mean is a component :math:`\Sigma_k` at a contrast ``s`` plus noise :math:`N`, with the covariance
:math:`s^2 \Sigma_k + N`.

- The contrast follows from the energy of the patch. The patch is replaced by its conditional mean (a Wiener filter) under
  its most likely component, which the channel of the largest variance chooses for all channels. Overlapping patches are
  averaged.
- Means over 2 x 2 pixels are denoised in the same way, and correct what is coarser than a patch.
- Shrunk coefficients of all scales (:mod:`pe_fill.sparse.denoise`) are mixed in as held-out noise supports it.
- The level of white noise is the standard deviation of the largest likelihood, less what texture adds to it: patches of
  every second pixel of every second row have the same noise, but more texture.

Reference: Zoran and Weiss, *From learning models of natural image patches to whole image restoration*, ICCV 2011.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from pe_fill.members.patch_mixture import SIDE, oriented_covariances, patch_places, patch_starts, shipped_patches
from pe_fill.sparse.denoise import denoise
from pe_fill.sparse.lifting import channel_rotation, rotated
from pe_lightning.linalg.threads import in_turns

PIXELS = SIDE * SIDE
MIN_PIXELS = 2 * SIDE
"""Fewest pixels per axis of pictures that are denoised, and of samples of noise."""
STRIDE = 2
"""Pixels between denoised patches."""
AT_ONCE = 64
"""Patches of similar contrast that are computed together."""
LEVEL_PATCHES = 512
"""Patches of a channel that its noise level is found from, at most."""
TEXTURE_GROWTH = 6.0
"""Variance of texture in patches of every second pixel, relative to patches of all pixels."""
WEIGHT_PIXELS = 96
"""Pixels per axis of the middle of a picture, by which methods are weighted."""
HELD_OUT_NOISE = 0.5
"""Standard deviation of the noise that is drawn to weight methods, relative to the noise of the picture."""
MIN_WEIGHT = 0.2
"""Weight below which a method is left out."""
MIN_KNOWN = 0.75
"""Share of the pixels of a patch that are known, where the noise level is found."""
MIN_DEVIATION = 1 / 512
"""Standard deviation of a channel, relative to the range, below which it holds nothing but rounding errors."""


class NoisyPatches(NamedTuple):
    """Components in bases where the noise of a patch without its mean is white, and their covariances are diagonal."""

    offset: Tensor
    """Logarithms of the shares, ``(G,)``."""
    variances: Tensor
    """At contrast 1, in units of the noise, ``(G, 63)``."""
    analysis: Tensor
    """``(64, G, 63)``."""
    synthesis: Tensor
    """``(G, 64, 63)``."""
    noise: float
    """Variance of the noise of a pixel."""

    def contrast(self, patches: Tensor) -> Tensor:
        """The squared contrast of patches without their mean, ``(P, 64)`` -> ``(P,)``."""
        return (patches.square().mean(1) - self.noise).clamp_min(1e-3 * self.noise)

    def log_densities(self, patches: Tensor, contrast: Tensor) -> Tensor:
        """Logarithms of densities at one squared contrast, up to a constant: ``(P, 64)`` -> ``(P, G)``."""
        variances = contrast * self.variances + 1
        whitened = patches @ (self.analysis * variances.rsqrt()).flatten(1)
        return self.offset - (whitened.view(-1, *variances.shape).square().sum(-1) + variances.log().sum(1)) / 2

    def conditional_mean(self, patches: Tensor, component: Tensor) -> Tensor:
        """Patches ``(P, 64)`` without their noise, under one component each, ``(P,)``."""
        signal = self.contrast(patches)[:, None] * self.variances[component]
        numbers = torch.einsum("pi,ipk->pk", patches, self.analysis[:, component]) * signal / (signal + 1)
        return torch.einsum("pik,pk->pi", self.synthesis[component], numbers)


def noisy_patches(covariance: Tensor, dtype: torch.dtype) -> NoisyPatches:
    """The shipped components beside noise with a covariance ``(64, 64)``."""
    (every, shares), eye = oriented_covariances(shipped_patches()), torch.eye(PIXELS, dtype=torch.float64)
    without_mean = torch.linalg.qr(torch.cat([torch.ones_like(eye[:, :1]), eye[:, 1:]], 1)).Q[:, 1:]
    noise = without_mean.T @ covariance.double() @ without_mean
    factor = torch.linalg.cholesky(noise)
    whiten = torch.linalg.solve_triangular(factor, without_mean.T, upper=False)
    variances, vectors = torch.linalg.eigh(whiten @ every @ whiten.T)
    offset = shares.log()
    analysis, synthesis = (whiten.T @ vectors).movedim(0, 1), without_mean @ factor @ vectors
    offset, variances, analysis, synthesis = (
        table.to(dtype).contiguous() for table in (offset, variances, analysis, synthesis)
    )
    return NoisyPatches(offset, variances, analysis, synthesis, float(noise.diagonal().sum()) / PIXELS)


@cache
def beside_white_noise(dtype: torch.dtype) -> NoisyPatches:
    """The shipped components beside white noise of variance 1."""
    return noisy_patches(torch.eye(PIXELS, dtype=torch.float64), dtype)


def mixed_denoising(values: Tensor, level: float) -> tuple[Tensor, float]:
    """A picture ``(H, W, C)`` without white noise of a level, and the weight of the patches.

    Mixed are patches and shrunk coefficients of all scales, which are ahead where a picture is smooth. Noise that is
    drawn and added to a part of the picture, and subtracted from a copy, gives two pictures with independent noise: the
    weight has the least squared error of the first one's results in the second.
    """
    part = values[tuple(slice((n - min(n, WEIGHT_PIXELS)) // 2, (n + min(n, WEIGHT_PIXELS)) // 2) for n in values.shape[:2])]
    drawn = level * HELD_OUT_NOISE * torch.randn(part.shape, generator=torch.Generator().manual_seed(0), dtype=part.dtype)
    held_out, noisier = part - drawn / HELD_OUT_NOISE**2, math.hypot(1, HELD_OUT_NOISE) * level
    patches, sparse = (method(part + drawn, noisier) for method in (remove_noise, _shrunk))
    difference = (patches - sparse).double()
    weight = float(((held_out - sparse) * difference).sum() / difference.square().sum().clamp_min(1e-30))
    weight = min(1.0, max(0.0, weight))
    if weight > 1 - MIN_WEIGHT:
        return remove_noise(values, level), 1.0
    if weight < MIN_WEIGHT:
        return _shrunk(values, level), 0.0
    return _shrunk(values, level).lerp(remove_noise(values, level), weight), weight


def _shrunk(values: Tensor, level: float) -> Tensor:
    return denoise(values.movedim(-1, 0).contiguous(), level=level).values.movedim(0, -1)


def remove_noise(values: Tensor, noise: float | Tensor) -> Tensor:
    """A picture ``(H, W, C)``, at least 16 x 16, without its noise, by patches alone.

    Args:
        values: The picture.
        noise: Standard deviation of white noise, above 0; or a sample of the noise, ``(h, w, C)``, at least 16 x 16: a
            region without other content.
    """
    channels = values.movedim(-1, 0)
    mean = channels.mean((1, 2), keepdim=True)
    rotation = channel_rotation(channels - mean)
    if isinstance(noise, Tensor):
        noise = rotated(noise.movedim(-1, 0), rotation.T)
    clean = _remove(rotated(channels - mean, rotation.T), noise)
    return (rotated(clean, rotation) + mean).movedim(0, -1)


def _remove(planes: Tensor, noise: float | Tensor) -> Tensor:
    """As :func:`remove_noise`, of rotated channels ``(C, H, W)``."""
    if isinstance(noise, Tensor):
        tables, level = [noisy_patches(_covariance(sample), planes.dtype) for sample in noise], 1.0
    else:
        tables, level = [beside_white_noise(planes.dtype)] * len(planes), noise
    flat, corners = planes.flatten(1) / level, _corners(planes, STRIDE)
    inner = patch_places(planes.shape[2])

    def contrasts(some: Tensor) -> Tensor:
        patches = flat[0, some[:, None] + inner]
        return tables[0].contrast(patches - patches.mean(1, keepdim=True))

    contrast = torch.cat([contrasts(some) for some in torch.split(corners, 256 * AT_ONCE)])
    total, count = torch.zeros_like(flat), torch.zeros_like(flat[0])

    def clean(some: Tensor) -> Tensor:
        patches = flat[:, corners[some][:, None] + inner]
        mean = patches.mean(2, keepdim=True)
        patches = patches - mean
        component = tables[0].log_densities(patches[0], contrast[some].median()).argmax(1)
        each = [table.conditional_mean(own, component) for own, table in zip(patches, tables, strict=True)]
        return torch.stack(each) + mean

    for some, patches in in_turns(clean, torch.split(contrast.argsort(), AT_ONCE), planes.device):
        places = (corners[some][:, None] + inner).flatten()
        total.index_add_(1, places, patches.flatten(1))
        count.index_add_(0, places, torch.ones_like(patches[0]).flatten())
    result = (total / count * level).view_as(planes)
    if min(planes.shape[1:]) < 2 * MIN_PIXELS or (isinstance(noise, Tensor) and min(noise.shape[1:]) < 2 * MIN_PIXELS):
        return result
    coarse, own = functional.avg_pool2d(planes, 2), functional.avg_pool2d(result, 2)
    change = _remove(coarse, functional.avg_pool2d(noise, 2) if isinstance(noise, Tensor) else noise / 2) - own
    # an odd last row or column keeps its value
    height, width = (2 * n for n in change.shape[1:])
    result[:, :height, :width] += functional.interpolate(change[None], scale_factor=2.0, mode="bilinear")[0]
    return result


def noise_level(values: Tensor, known: Tensor) -> float | None:
    """Standard deviation of white noise, the same in all channels, of a picture ``(H, W, C)`` in [0, 1]; 0 if none is found.

    The channel with the least noise decides: colour has less texture than brightness. ``None`` if no patch is ``known``
    ``(H, W)``, except for a quarter of its pixels.
    """
    # noise is cut off at the ends of the range; patches without a single such pixel would have less noise than others
    inside = known & ((values > 0) & (values < 1)).all(-1)
    chosen = []
    for step in (1, 2):
        corners = _corners(known[None], 1, step)
        order = torch.randperm(len(corners), generator=torch.Generator().manual_seed(0))[: 32 * LEVEL_PATCHES]
        index = corners[order][:, None] + patch_places(known.shape[1], step)
        shares = [mask.flatten()[index].float().mean(1) for mask in (inside, known)]
        usable = [index[share >= least] for share, least in ((shares[0], 0.9), (shares[1], 1), (shares[1], MIN_KNOWN))]
        chosen.append(next((some for some in usable if len(some) >= PIXELS), usable[-1])[: 4 * LEVEL_PATCHES])
    if not all(map(len, chosen)):
        return None
    channels = values[known].T
    rotation = channel_rotation(channels - channels.mean(1, keepdim=True))
    planes = rotated(values.movedim(-1, 0), rotation.T).flatten(1)
    planes = planes[planes[:, known.flatten()].std(1) >= MIN_DEVIATION]
    if not len(planes):
        return 0.0
    fine, least = min((_likeliest(plane, chosen[0]), number) for number, plane in enumerate(planes))
    growth = max(0.0, _likeliest(planes[least], chosen[1]) ** 2 - fine**2)
    return math.sqrt(max(0.0, fine**2 - growth / (TEXTURE_GROWTH - 1)))


def _likeliest(plane: Tensor, index: Tensor) -> float:
    """Standard deviation of white noise with the largest likelihood, from patches of a channel ``(N,)``."""
    # the quarter that is smoothest has the least texture; means over 2 x 2 pixels have little of the noise
    means = functional.avg_pool2d(plane[index].view(-1, SIDE, SIDE), 2).flatten(1)
    patches = plane[index[means.std(1).argsort()[: max(PIXELS, len(index) // 4)]]]
    patches, tables = patches - patches.mean(1, keepdim=True), beside_white_noise(plane.dtype)
    highest = math.log2(max(float(patches.square().mean().sqrt()), MIN_DEVIATION))

    @cache
    def likelihood(octaves: float) -> float:
        scaled, total = patches / 2**octaves, -len(patches) * (PIXELS - 1) * octaves * math.log(2)
        contrast = tables.contrast(scaled)
        for some in torch.split(contrast.argsort(), AT_ONCE):
            total += float(tables.log_densities(scaled[some], contrast[some].median()).logsumexp(1).sum())
        return total

    best = max((highest - octaves for octaves in range(-1, 12)), key=likelihood)
    for step in (1 / 2, 1 / 4, 1 / 8, 1 / 16):
        best = max((best - step, best, best + step), key=likelihood)
    return float(2**best)


def _corners(planes: Tensor, stride: int, step: int = 1) -> Tensor:
    """Flat positions of the first pixels of patches in ``(C, H, W)``, whose pixels are ``step`` apart: ``(P,)``."""
    rows, columns = (patch_starts(n, stride, step) for n in planes.shape[1:])
    return (rows[:, None] * planes.shape[2] + columns).flatten()


def _covariance(sample: Tensor) -> Tensor:
    """Covariance of the pixels of a patch from a sample of stationary noise ``(h, w)``: ``(64, 64)``."""
    centred = sample.double() - sample.double().mean()
    spectrum = torch.fft.rfft2(centred, s=[n + SIDE for n in centred.shape])
    # divided by the number of pixels, not of pairs, which keeps the covariance positive
    by_lag = torch.fft.irfft2(spectrum.abs().square(), s=[n + SIDE for n in centred.shape]) / centred.numel()
    rows, columns = (each.flatten() for each in torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij"))
    found: Tensor = by_lag[rows[:, None] - rows, columns[:, None] - columns]
    found += (1e-3 * by_lag[0, 0] + 1e-12) * torch.eye(PIXELS, dtype=found.dtype)
    return found
