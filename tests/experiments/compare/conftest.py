"""Run directories as a fit leaves them, made without one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_runs import GRID, metrics_of, signals, write_comparison

from pe_lightning.runs import file_names

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--window-size=1400,1000"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Writes a run directory below ``tmp_path``."""

    def make(
        name: str,
        scores: Sequence[float | None] = (20.0, 22.0, 24.0),
        config: dict[str, Any] | None = None,
        noise: float | None = None,
        grid: Sequence[int] = GRID,
        channels: int = 3,
        media: str = "image",
        rate: float | None = None,
        **changes: Any,
    ) -> Path:
        folder = tmp_path / name
        (folder / "checkpoints").mkdir(parents=True)
        metrics = metrics_of(scores, grid=list(grid), channels=channels, **changes)
        (folder / "metrics.json").write_text(json.dumps(metrics))
        (folder / "config.yaml").write_text(yaml.safe_dump(config or {"seed_everything": 0}))
        if noise is not None:  # with reconstructions
            (folder / "reconstructions").mkdir()
            pairs = zip(signals(len(scores), grid, channels), signals(len(scores), grid, channels, noise), strict=True)
            for stem, (truth, made) in zip(file_names(tuple(metrics["signals"])), pairs, strict=True):
                write_comparison(folder / "reconstructions" / f"{stem}_comparison.h5", truth, made, media, rate)
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
