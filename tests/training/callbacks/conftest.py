"""Small fits with callbacks, under a recorder that prints nothing and knows no W&B."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fits import MODULES
from lightning.pytorch import Callback, Trainer, seed_everything
from torch import Tensor

from pe_lightning.signals.loaders import Batching
from pe_lightning.training import CoordinateModule, TensorDataModule
from pe_lightning.training.callbacks import RunRecorder, WandbSettings, base
from pe_lightning.training.datamodule import SignalDataModule


class Run:
    """A fit that has ended: the Trainer, the module and the run directory."""

    def __init__(self, trainer: Trainer, module: CoordinateModule, folder: Path) -> None:
        self.trainer, self.module, self.folder = trainer, module, folder


@pytest.fixture
def fit(make_trainer: Callable[..., Trainer], tmp_path: Path) -> Callable[..., Run]:
    """Fits with callbacks before the recorder, as the command line has them."""

    def run(
        module: CoordinateModule | str,
        data: SignalDataModule | Tensor,
        callbacks: list[Callback],
        steps: int = 12,
        ckpt_path: Path | None = None,
        **more: Any,
    ) -> Run:
        seed_everything(0, verbose=False)
        made = MODULES[module]() if isinstance(module, str) else module
        if not isinstance(data, SignalDataModule):
            data = TensorDataModule(data, batching=Batching(steps_per_epoch=6))
        recorder = RunRecorder(tmp_path / "runs", ckpt_path, WandbSettings(enabled=False), table=False)
        more = {"log_every_n_steps": 5, "num_sanity_val_steps": 0, **more}
        trainer = make_trainer(max_steps=steps, callbacks=[*callbacks, recorder], **more)
        trainer.fit(made, data, ckpt_path=ckpt_path)
        return Run(trainer, made, recorder.run_dir or tmp_path)

    return run


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A list whose one number is the time of clocks."""
    time = [0.0]
    monkeypatch.setattr(base, "time", SimpleNamespace(perf_counter=lambda: time[0]))
    return time
