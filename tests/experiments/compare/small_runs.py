"""What a fit leaves of small random signals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pe_lightning.runs import frames_of

GRID = (12, 20)
"""Height and width of the signals."""


def metrics_of(scores: Sequence[float | None], metric: str = "psnr", **changes: Any) -> dict[str, Any]:
    """The content of ``metrics.json`` for these scores."""
    return {
        "schema": 1,
        "metric": metric,
        f"test/{metric}_per_signal": list(scores),
        "test/ssim_per_signal": [0.5] * len(scores),
        f"train/{metric}_per_signal": [40.0] * len(scores),
        "fit_seconds": 2.0,
        "solve_seconds": None,
        "steps": 100,
        "model": "ComplexLinear",
        "num_params": 1000,
        "grid": list(GRID),
        "channels": 3,
        "signals": [f"signal {k}" for k in range(len(scores))],
        "encoder": {"name": "gau", "num_features": 8, "sigma": 0.1},
        "protocol": "rest",
        "sampling": {"name": "grid", "stride": 2},
        "data_fingerprint": "0123456789abcdef",
        "baselines": {"bicubic": {f"test/{metric}_per_signal": [20.0 + k for k in range(len(scores))]}},
        "seed": 0,
    } | changes


def levels(values: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)


def signals(count: int, grid: Sequence[int], channels: int, noise: float = 0.0) -> np.ndarray:
    """Random signals of [0, 1], the same ones each time, with this noise added."""
    truth = np.random.default_rng(0).random((count, *grid, channels), dtype=np.float32)
    return truth + np.float32(noise) * np.random.default_rng(1).standard_normal(truth.shape, dtype=np.float32)


def write_comparison(path: Path, truth: np.ndarray, made: np.ndarray, media: str = "", rate: float | None = None) -> None:
    """``<stem>_comparison.h5`` as a fit leaves it: of a cube at most 32 frames."""
    with h5py.File(path, "w") as file:
        if truth.ndim == 2:
            file["truth"], file["reconstruction"], file["trained"] = truth, made, np.arange(len(truth)) % 2 == 0
        else:
            frames = [0] if truth.ndim == 3 else frames_of(len(truth), 32)
            file["truth"], file["reconstruction"] = (
                levels(values.reshape(-1, *values.shape[-3:])[frames]) for values in (truth, made)
            )
            file.attrs["frames"] = frames
        file.attrs["media"] = media
        if rate is not None:
            file.attrs["rate"] = rate
