"""Values are logged at optimiser steps, by all modules, also after a resumption."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fits import MakeTrainer, signals
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers.logger import DummyLogger

from pe_lightning.signals import Batching
from pe_lightning.training import ComplexLinear, TensorDataModule
from pe_lightning.training.function import FinalScore


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


def check_steps(make: Callable[[], tuple[Any, Any]], make_trainer: MakeTrainer, folder: Path) -> None:
    """Rows of a resumed fit have the steps of an uninterrupted one, and those of validations the steps taken."""

    def fit(checkpoint: Path | None, *callbacks: Callback) -> list[int]:
        seed_everything(0, verbose=False)
        rows = Rows()
        arguments: dict[str, Any] = {"logger": rows, "callbacks": list(callbacks), "num_sanity_val_steps": 0}
        trainer = make_trainer(max_steps=16, log_every_n_steps=2, **arguments)
        trainer.fit(*make(), ckpt_path=checkpoint, weights_only=True)
        return [step for step, names in rows.rows if "train/loss" in names]

    assert fit(None, Save(folder / "8.ckpt", 8)) == [1, 3, 5, 7, 9, 11, 13, 15]
    assert fit(folder / "8.ckpt") == [9, 11, 13, 15]
    rows = Rows()
    make_trainer(max_steps=8, log_every_n_steps=3, logger=rows, num_sanity_val_steps=0).fit(*make())
    assert [step for step, names in rows.rows if any(name.startswith("val/") for name in names)] == [4, 8]


def test_values_are_logged_at_optimiser_steps(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    check_steps(complex_linear, make_trainer, tmp_path)


def test_callbacks_and_progress_bars_get_the_values(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(max_steps=4, log_every_n_steps=2)
    trainer.fit(*complex_linear())
    numbers = {name: value.item() for name, value in trainer.callback_metrics.items()}
    assert numbers.keys() == {"train/psnr", "train/loss", "val/psnr"}
    assert trainer.progress_bar_metrics == numbers


@pytest.mark.parametrize(
    ("steps", "callbacks", "expected"), [(0, [], [0]), (6, [], [4, 6]), (8, [], [4, 8]), (0, [FinalScore(logs=False)], [])]
)
def test_final_weights_are_scored_unless_a_validation_did(
    steps: int, callbacks: list[Callback], expected: list[int], make_trainer: MakeTrainer
) -> None:
    rows, (_, data) = Rows(), complex_linear()
    trainer = make_trainer(max_steps=steps, log_every_n_steps=2, logger=rows, num_sanity_val_steps=0, callbacks=callbacks)
    trainer.fit(ComplexLinear("gau", solver="exact"), data)
    assert [step for step, names in rows.rows if "val/psnr" in names] == expected


def validations(
    make_trainer: MakeTrainer, steps: int, every: int, checkpoint: Path | None = None, **options: Any
) -> list[int]:
    """The steps with a row of a validation, in a fit with the default epochs."""
    rows = Rows()
    trainer = make_trainer(max_steps=steps, log_every_n_steps=every, logger=rows, num_sanity_val_steps=0, **options)
    trainer.fit(ComplexLinear("gau"), TensorDataModule(signals(1, 8, 6)), ckpt_path=checkpoint, weights_only=True)
    return [step for step, names in rows.rows if "val/psnr" in names]


def test_a_fit_validates_at_its_end_and_ten_times_where_rows_are_as_frequent(
    make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    best = ModelCheckpoint(tmp_path, "best", monitor="val/psnr", mode="max")
    assert validations(make_trainer, 9, 50, callbacks=[best], enable_checkpointing=True) == [9]
    assert best.best_model_score is not None, "Lightning's callbacks find the score"
    assert validations(make_trainer, 23, 2, callbacks=[Save(tmp_path / "a.ckpt", 23)]) == [*range(3, 24, 3), 23]
    assert validations(make_trainer, 60, 2) == [*range(6, 61, 6)]
    resumed = validations(make_trainer, 60, 2, tmp_path / "a.ckpt")
    assert resumed == [*range(24, 61, 3)], "a fit that is resumed for more steps keeps its epochs"
    assert validations(make_trainer, 250, 50) == [50, 100, 150, 200, 250]
