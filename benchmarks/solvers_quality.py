"""Number 1: PSNR of the automatic choices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pe_lightning import encoders
from pe_lightning.evaluation.metrics import SignalPSNR
from pe_lightning.signals.sources.paths import sample_path
from pe_lightning.solvers import solve_grid

PAPER: dict[str, dict[str, Any]] = {
    "linf": {"sigma": 6.0},
    "logf": {"sigma": 6.5},
    "rff": {"sigma": 42.0, "seed": 0},
    "tri": {"half_width": 1 / 256},
    "gau": {"sigma": 0.0025},
}
"""The papers' settings for the closed form at K = 256."""
SAMPLES = ("astronaut", "brick", "camera", "grass", "gravel", "moon")


def load(paths: Sequence[str] | None) -> Tensor:
    """RGB pictures of one size in [0, 1], ``(S, H, W, 3)``; default the 512 x 512 samples of scikit-image."""
    files = [sample_path(f"samples://{name}") for name in SAMPLES]
    if paths:
        given = [Path(path) for path in paths]
        files = sorted(file for path in given for file in (path.glob("*.png") if path.is_dir() else [path]))
    pictures = [torch.from_numpy(np.array(Image.open(file).convert("RGB"))) for file in files]
    return torch.stack(pictures).float() / 255


def coordinates(n: int) -> Tensor:
    """``i / n``."""
    return torch.arange(n, dtype=torch.float64) / n


def plain(features: Sequence[Tensor], values: Tensor) -> Tensor:
    """The papers' closed form, per image and in float32: ``(S, N1, N2, C)`` -> ``(S, C, K1, K2)``."""
    weights = []
    for image in values.movedim(-1, 1):
        first, second = (torch.linalg.lstsq(psi, torch.eye(len(psi))).solution for psi in features)
        weights.append(first @ image @ second.T)
    return torch.stack(weights)


def bicubic(values: Tensor, factor: int = 2) -> Tensor:
    """Keys' interpolation with replicated borders at ``factor`` times the samples: ``(S, N, M, C)``."""
    for axis in (1, 2):
        n = values.shape[axis]
        wide = encoders.create("keys", num_features=n, padding=2)(coordinates(n * factor)).float()
        matrix = wide[:, 2:-2].clone()
        matrix[:, 0] += wide[:, :2].sum(1)
        matrix[:, -1] += wide[:, -2:].sum(1)
        values = torch.tensordot(matrix, values, ([1], [axis])).movedim(0, axis)
    return values


def quality(images: Tensor) -> None:
    """Prints the table."""
    axes = [coordinates(n) for n in images.shape[1:3]]
    train = images[:, ::2, ::2]
    half = [x[::2] for x in axes]
    mask = torch.ones(1, *images.shape[1:3], dtype=torch.bool)
    mask[:, ::2, ::2] = False

    def score(prediction: Tensor) -> str:
        metric = SignalPSNR(len(images))
        metric.update(prediction, images, mask)
        return f"{metric.per_signal().mean().item():9.2f}"

    print("test PSNR, dB (train: every second sample of each axis; test: all the others; unclamped)")
    print(f"{'':6}{'lstsq f32':>10}{'ridge auto':>11}{'(ridge)':>10}{'best fixed':>11}{'sigma auto':>11}  chosen")
    for name, arguments in PAPER.items():
        encoder = encoders.create(name, num_features=256, **arguments)
        features = [encoder(x).float() for x in axes]
        weight = plain([psi[::2] for psi in features], train)
        dense = (features[0] @ weight @ features[1].T).movedim(1, -1)
        fixed = solve_grid(train, encoder, half)
        best = max(score(solve_grid(train, encoder, half, ridge=10 ** (k / 2)).predict(axes)) for k in range(-16, 1))
        free = solve_grid(train, encoder, half, sigma="auto")
        assert free.choice is not None
        chosen = free.choice.report()
        print(
            f"{name:6}{score(dense):>10}{score(fixed.predict(axes)):>11}{fixed.ridge:10.1e}{best:>11}"
            f"{score(free.predict(axes)):>11}  {chosen['parameter'][0]} {chosen['value'][0]:.4g}, ridge {free.ridge:.1e}",
            flush=True,
        )
    print(f"bicubic interpolation {score(bicubic(train))}", flush=True)
