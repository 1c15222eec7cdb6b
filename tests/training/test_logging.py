"""Values are logged at optimiser steps, by all modules, also after a resumption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fits import MakeTrainer, signals
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.loggers.logger import DummyLogger

from pe_lightning.signals import Batching
from pe_lightning.training import ComplexLinear, TensorDataModule
from pe_papers.tasks import LayoutDataModule, LayoutRelations


class Rows(DummyLogger):
    """Stores the names and the step of everything that is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int, tuple[str, ...]]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append((step or 0, tuple(metrics)))


class Save(Callback):
    """Saves a checkpoint after a step, as ``ModelCheckpoint`` does; at the end of an epoch Lightning's count is then off."""

    def __init__(self, path: Path, step: int) -> None:
        self.path, self.step = path, step

    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)


def complex_linear() -> tuple[Any, Any]:
    return ComplexLinear("gau"), TensorDataModule(signals(1, 8, 6), batching=Batching(steps_per_epoch=4))


def layout() -> tuple[Any, Any]:
    return LayoutRelations("rff", width=16, depth=1, heads=2), LayoutDataModule(num_train=64, num_test=4, batch_size=16)


@pytest.mark.parametrize("make", [complex_linear, layout])
def test_rows_of_a_resumed_fit_have_the_steps_of_an_uninterrupted_one(
    make: Any, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    def fit(checkpoint: Path | None, *callbacks: Callback) -> list[int]:
        seed_everything(0, verbose=False)
        rows = Rows()
        arguments: dict[str, Any] = {"logger": rows, "callbacks": list(callbacks), "num_sanity_val_steps": 0}
        trainer = make_trainer(max_steps=16, log_every_n_steps=2, **arguments)
        trainer.fit(*make(), ckpt_path=checkpoint, weights_only=True)
        return [step for step, names in rows.rows if "train/loss" in names]

    assert fit(None, Save(tmp_path / "8.ckpt", 8)) == [1, 3, 5, 7, 9, 11, 13, 15]
    assert fit(tmp_path / "8.ckpt") == [9, 11, 13, 15]


@pytest.mark.parametrize("make", [complex_linear, layout])
def test_a_validation_is_logged_at_the_steps_taken(make: Any, make_trainer: MakeTrainer) -> None:
    rows = Rows()
    make_trainer(max_steps=8, log_every_n_steps=3, logger=rows, num_sanity_val_steps=0).fit(*make())
    assert [step for step, names in rows.rows if any(name.startswith("val/") for name in names)] == [4, 8]
