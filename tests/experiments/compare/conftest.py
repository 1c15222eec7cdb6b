"""Run directories as a fit leaves them, made without one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pe_lightning.data.batches import SignalInfo
from pe_lightning.media.reconstructions import write_reconstructions

GRID = (12, 20)
"""Height and width of the signals."""

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,1000",
]


def metrics_of(psnr: Sequence[float | None], **changes: Any) -> dict[str, Any]:
    """The content of ``metrics.json`` for these scores."""
    names = [f"signal {k}" for k in range(len(psnr))]
    finite = [value for value in psnr if value is not None]
    metrics = {
        "schema": 1,
        "test/psnr": sum(finite) / len(finite) if len(finite) == len(psnr) else None,
        "test/psnr_per_signal": list(psnr),
        "test/ssim_per_signal": [0.5] * len(psnr),
        "train/psnr_per_signal": [40.0] * len(psnr),
        "fit_seconds": 2.0,
        "solve_seconds": None,
        "steps": 100,
        "model": "ComplexLinear",
        "num_params": 1000,
        "num_signals": len(psnr),
        "grid": list(GRID),
        "channels": 3,
        "signals": names,
        "encoding": "complex",
        "encoder": {"name": "gau", "num_features": 8, "sigma": 0.1},
        "protocol": "rest",
        "sampling": {"name": "grid", "stride": 2},
        "data_fingerprint": "0123456789abcdef",
        "baselines": {"bicubic": {"test/psnr": 20.0, "test/psnr_per_signal": [20.0 + k for k in range(len(psnr))]}},
        "seed": 0,
    }
    return metrics | changes


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Writes a run directory below ``tmp_path``."""

    def make(
        name: str,
        psnr: Sequence[float | None] = (20.0, 22.0, 24.0),
        config: dict[str, Any] | None = None,
        pictures: bool = False,
        noise: float = 0.1,
        grid: Sequence[int] = GRID,
        channels: int = 3,
        info: SignalInfo | None = None,
        **changes: Any,
    ) -> Path:
        folder = tmp_path / name
        (folder / "checkpoints").mkdir(parents=True)
        metrics = metrics_of(psnr, grid=list(grid), channels=channels, **changes)
        (folder / "metrics.json").write_text(json.dumps(metrics))
        (folder / "config.yaml").write_text(yaml.safe_dump(config or {"seed_everything": 0}))
        if pictures:
            truth = np.random.default_rng(0).random((len(psnr), *grid, channels), dtype=np.float32)
            made = truth + np.random.default_rng(1).normal(0, noise, truth.shape).astype(np.float32)
            trained = np.arange(np.prod(grid)).reshape(1, *grid) % 2 == 0
            write_reconstructions(folder / "reconstructions", metrics, made, truth, info, train_mask=trained)
        return folder

    return make


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Headless Chromium, which keeps what pages log."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()
