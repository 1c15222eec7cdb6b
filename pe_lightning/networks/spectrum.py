"""Choice of widths and frequencies by the spectrum of the untrained network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pe_lightning.errors import InputError

LINES = 32
"""Lines along each axis on which an untrained network is evaluated, over all initialisations."""
SEEDS = 4
"""Initialisations per candidate, if a signal has more than one line along an axis."""
MIN_SAMPLES = 8
"""Fewest samples of an axis whose spectrum is compared."""


def ladder(samples: float) -> list[float]:
    """Features per unit length of the candidates: from 4 to twice the samples, in factors of the square root of 2."""
    return [4 * 2 ** (i / 2) for i in range(max(1, math.floor(2 * math.log2(2 * samples / 4) + 1e-6) + 1))]


def spectra(lines: Tensor) -> Tensor:
    """Normalised energy spectra of lines, mean over lines and channels: ``(S, M, n, C)`` -> ``(S, n // 2)``.

    The mean of each line is removed, and a Hann window is applied.
    """
    window = torch.hann_window(lines.shape[2], dtype=lines.dtype, device=lines.device)[:, None]
    centred = (lines - lines.mean(2, keepdim=True)) * window
    energy: Tensor = torch.fft.rfft(centred, dim=2).abs()[:, :, 1:].square().mean((1, 3))
    energy[:, 0] += torch.finfo(lines.dtype).tiny  # of a constant signal
    return energy / energy.sum(1, keepdim=True)


def distance(one: Tensor, other: Tensor) -> Tensor:
    """Wasserstein distance of spectra ``(..., n)``, in octaves: ``(...)``.

    FreSh compares amplitudes in hertz. The high frequencies of photographs then have larger weights, and the chosen value
    fits trained samples faster and predicts held-out samples worse.
    """
    frequency = torch.arange(1, one.shape[-1] + 1, device=one.device)
    return ((one - other).cumsum(-1).abs() * torch.log2((frequency + 1) / frequency)).sum(-1)


@torch.no_grad()
def choose_by_spectrum(
    candidates: Sequence[float], make: Callable[[float], nn.Module], values: Tensor, axes: Sequence[Tensor]
) -> tuple[float, list[tuple[float, float]]]:
    """The candidate whose untrained network is most like the signals, without any training.

    Compared are the spectra along each axis, of lines at random places; the same every time, and the random state of PyTorch
    is left as it was.

    Args:
        candidates: Values to choose from.
        make: The network of a candidate as it starts, on the CPU; its :meth:`calibrate` is called.
        values: Signals on a grid of evenly spaced samples, ``(S, n_1, ..., n_D, C)``.
        axes: Coordinates of each axis, ``(n_a,)``.

    Returns:
        The value, and every value with its distance: the mean over axes, in octaves; without those that overflow.

    Reference: Kania et al., *FreSh: Frequency Shifting for Accelerated Neural Representation Learning*, ICLR 2025.
    """
    along = [axis for axis, x in enumerate(axes) if len(x) >= MIN_SAMPLES]
    if not along:
        raise InputError(f"auto compares spectra, which takes {MIN_SAMPLES} samples along an axis; give a number instead")
    generator = torch.Generator().manual_seed(0)
    wanted, points = [], []
    for axis in along:
        places = [torch.randint(len(x), (512,), generator=generator).to(x.device) for x in axes]
        where: Any = (slice(None), *(i for b, i in enumerate(places) if b != axis))
        lines = values.movedim(axis + 1, -2)[where]
        wanted.append(spectra(lines.reshape(len(values), -1, *lines.shape[-2:])).mean(0))
        count = LINES // SEEDS if len(axes) > 1 else 1
        columns = [x[i[:count], None] for x, i in zip(axes, places, strict=True)]
        columns[axis] = axes[axis]
        points.append(torch.stack([column.expand(count, len(axes[axis])) for column in columns], -1))
    distances = []
    with torch.random.fork_rng(devices=[]):
        for candidate in candidates:
            total = 0.0
            for seed in range(SEEDS if len(axes) > 1 else LINES):
                torch.default_generator.manual_seed(seed)
                network = make(candidate).to(values.device, values.dtype)
                network.calibrate(torch.cat([some.flatten(0, 1) for some in points]))  # type: ignore[operator]
                outputs = [spectra(network(some)[None])[0] for some in points]
                total += sum(float(distance(a, b)) for a, b in zip(outputs, wanted, strict=True)) / len(points)
            if math.isfinite(total):
                distances.append((candidate, total / (seed + 1)))
    return min(distances, key=lambda row: row[1])[0], distances
