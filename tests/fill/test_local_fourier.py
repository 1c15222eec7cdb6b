"""Sparse local Fourier fits against the published algorithm, window by window, and on signals of few frequencies."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from pe_fill.members.fourier import FourierSettings, local_fourier


def one_window(window: np.ndarray, weights: np.ndarray, terms: int) -> np.ndarray:
    """Frequency selective extrapolation of a window ``(T, ..., T, C)``, in space, one pair of conjugate waves at a time."""
    side, axes = len(window), window.ndim - 1
    grid = np.stack(np.meshgrid(*[np.arange(side)] * axes, indexing="ij"), -1)
    mean = (window * weights[..., None]).reshape(-1, window.shape[-1]).sum(0) / weights.sum()
    model = np.zeros(window.shape)
    signed = [range(-((side - 1) // 2), side // 2 + 1)] * axes
    # one of each pair, in the order of their positions in the spectrum
    chosen = sorted({min(tuple(n % side for n in u), tuple(-n % side for n in u)) for u in itertools.product(*signed)})
    for _ in range(terms):
        residual = (window - mean - model) * weights[..., None]
        best, wave, largest = np.zeros(0), np.zeros(0), -1.0
        for u in chosen:
            phase = np.exp(2j * np.pi / side * (grid @ np.array(u)))
            projection = (residual * phase.conj()[..., None]).reshape(-1, window.shape[-1]).sum(0)
            radius = math.hypot(*[(n - side if n > side // 2 else n) / (side / 2) for n in u])
            score = (np.abs(projection) ** 2).sum() * max(0.0, 1 - math.sqrt(0.5) * radius) ** 2
            if score > largest * (1 + 1e-9):
                best, wave, largest = projection, phase, score
        own = np.abs(wave.imag).max() < 1e-9
        model += (0.3 if own else 0.6) * 2 * (wave[..., None] * best / weights.sum()).real
    return model + mean


@pytest.mark.parametrize(("shape", "block", "window"), [((23,), 3, 9), ((11, 10), 2, 8), ((6, 7, 6), 2, 4)])
@pytest.mark.parametrize("periodic", [False, True])
def test_equals_the_published_algorithm_in_every_window(
    shape: tuple[int, ...], block: int, window: int, periodic: bool
) -> None:
    random = np.random.default_rng(0)
    values, known = random.random((*shape, 2)), random.random(shape) < 0.7
    settings = FourierSettings(block, window, 0.8, 1.0, (4, 5))
    found = local_fourier(
        torch.from_numpy(values), torch.from_numpy(known), periodic=[periodic] * len(shape), settings=settings
    ).numpy()
    before, margin = (window - block) // 2, window
    filled, weight = np.where(known[..., None], values, values[known].mean(0)), known.astype(float)
    offsets = np.arange(window) - before - (block - 1) / 2
    fall = 0.8 ** np.sqrt(sum(part**2 for part in np.meshgrid(*[offsets] * len(shape), indexing="ij")))
    for terms in settings.terms:
        mode = {"mode": "wrap"} if periodic else {"mode": "constant"}
        pad = [(margin, margin)] * len(shape)
        around, share = np.pad(filled, [*pad, (0, 0)], **mode), np.pad(weight, pad, **mode)
        result = filled.copy()
        for start in itertools.product(*[range(0, n, block) for n in shape]):
            inner = tuple(slice(s, s + block) for s in start)
            if known[inner].all():
                continue
            outer = tuple(slice(s - before + margin, s - before + margin + window) for s in start)
            model = one_window(around[outer], share[outer] * fall, terms)
            part = model[tuple(slice(before, before + block) for _ in shape)]
            result[inner] = part[tuple(slice(min(block, n - s)) for s, n in zip(start, shape, strict=True))]
        filled = np.where(known[..., None], values, result)
        weight = np.where(known, 1, 0.2)
    np.testing.assert_allclose(found, filled, atol=1e-9)


@pytest.mark.parametrize(("shape", "hole"), [((256,), 12), ((48, 40), 8), ((80, 72), 24), ((16, 16, 16), 4)])
def test_continues_a_texture_of_few_frequencies_through_a_hole(shape: tuple[int, ...], hole: int) -> None:
    grid = torch.stack(torch.meshgrid(*[torch.arange(n) for n in shape], indexing="ij"), -1).double()
    turns = torch.tensor([1.0, 0.6, 0.35])[: len(shape)].double()
    values = torch.stack([torch.sin(grid @ turns + c) + 0.5 * torch.cos(1.7 * grid[..., 0]) for c in range(2)], -1)
    known = torch.ones(shape, dtype=torch.bool)
    known[tuple(slice(n // 2, n // 2 + hole) for n in shape)] = False
    found = local_fourier(values, known)
    assert torch.equal(found[known], values[known])
    error = (found - values)[~known].square().mean().sqrt() / values.std()
    assert error < 0.15
