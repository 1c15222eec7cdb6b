"""Run directories as a fit leaves them, made without one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pe_lightning.results.reconstructions import write_comparison
from pe_lightning.results.runs import file_names, frames_of
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.raw import ValueRange

MakeSignals = Callable[..., np.ndarray]


@pytest.fixture
def signals() -> MakeSignals:
    """Random signals of [0, 1], the same ones each time, with this noise added."""

    def make(count: int, grid: Sequence[int], channels: int, noise: float = 0.0) -> np.ndarray:
        truth = np.random.default_rng(0).random((count, *grid, channels), dtype=np.float32)
        return truth + np.float32(noise) * np.random.default_rng(1).standard_normal(truth.shape, dtype=np.float32)

    return make


@pytest.fixture
def make_run(tmp_path: Path, signals: MakeSignals) -> Callable[..., Path]:
    """Writes a run directory below ``tmp_path``, with reconstructions of this noise."""

    def make(
        name: str,
        scores: Sequence[float | None] = (20.0, 22.0, 24.0),
        config: dict[str, Any] | None = None,
        noise: float | None = None,
        grid: Sequence[int] = (12, 20),
        channels: int = 3,
        media: str = "image",
        rate: float | None = None,
        metric: str = "psnr",
        **changes: Any,
    ) -> Path:
        folder = tmp_path / name
        (folder / "checkpoints").mkdir(parents=True)
        metrics = {
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
            "grid": list(grid),
            "channels": channels,
            "signals": [f"signal {k}" for k in range(len(scores))],
            "encoder": {"name": "gau", "num_features": 8, "sigma": 0.1},
            "protocol": "rest",
            "sampling": {"name": "grid", "stride": 2},
            "data_fingerprint": "0123456789abcdef",
            "baselines": {"bicubic": {f"test/{metric}_per_signal": [20.0 + k for k in range(len(scores))]}},
        } | changes
        (folder / "metrics.json").write_text(json.dumps(metrics))
        (folder / "config.yaml").write_text(yaml.safe_dump(config or {"seed_everything": 0}))
        if noise is not None:
            (folder / "reconstructions").mkdir()
            stems = file_names(tuple(metrics["signals"]))
            info = SignalInfo(tuple(stems), tuple(grid), channels, ValueRange("uint8", (0.0,), (255.0,)), rate, media)
            pairs = zip(signals(len(scores), grid, channels, noise), signals(len(scores), grid, channels), strict=True)
            for stem, (made, truth) in zip(stems, pairs, strict=True):
                trained = np.arange(len(truth)) % 2 == 0
                frames = frames_of(len(truth), 32) if truth.ndim == 4 else [0]
                some = frames if truth.ndim == 4 else slice(None)
                path = folder / "reconstructions" / f"{stem}_comparison.h5"
                write_comparison(path, {"truth": truth[some], "reconstruction": made[some]}, info, frames, trained)
        return folder

    return make
