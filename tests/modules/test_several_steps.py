"""Several steps on one batch: the weights, the counters and the log of one step per batch."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.cli import ReduceLROnPlateau
from lightning.pytorch.loggers import Logger
from lightning.pytorch.loggers.logger import DummyExperiment
from test_fitting import GAU, MakeTrainer, fit, plateau, signals
from torch import Tensor

from pe_lightning.data import TensorDataModule
from pe_lightning.errors import InputError
from pe_lightning.modules import ComplexLinear
from pe_lightning.modules.gram import GramErrors


class Memory(Logger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int | None, dict[str, float]]] = []

    name = "memory"
    version = 0

    @property
    def experiment(self) -> DummyExperiment:
        return DummyExperiment()

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        pass

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.rows.append((step, {key: value for key, value in metrics.items() if key != "epoch"}))


def halving(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)


@pytest.mark.parametrize("several", [2, 5, 100])
@pytest.mark.parametrize("every", [0, 4, 7])
@pytest.mark.parametrize("more", [{}, {"gradient_clip_val": 0.02}, {"precision": "64-true"}], ids=["", "clip", "float64"])
def test_everything_is_as_with_one(several: int, every: int, more: dict[str, Any], make_trainer: MakeTrainer) -> None:
    results = []
    for steps in (1, several):
        logger = Memory()
        module = ComplexLinear(GAU, steps_per_batch=steps, lr_scheduler=halving)
        data = TensorDataModule(signals(2, 16, 12))
        trainer = fit(
            module, data, make_trainer, 33, log_every_n_steps=every, limit_val_batches=0, logger=logger, **more
        )  # fmt: skip
        results.append((module.weight, trainer.global_step, logger.rows, trainer.optimizers[0].param_groups[0]["lr"]))
    (weight, count, rows, rate), (same, other_count, other_rows, other_rate) = results
    assert count == other_count == 33
    assert torch.equal(weight, same)
    assert rows == other_rows
    assert [step for step, _ in rows] == ([n - 1 for n in range(every, 34, every)] if every else [])
    assert rate == other_rate == pytest.approx(0.1 * 0.9**33)


def test_scores_of_a_test_are_logged_at_the_step_of_the_weights(make_trainer: MakeTrainer) -> None:
    logger, module = Memory(), ComplexLinear(GAU, steps_per_batch=10)
    data = TensorDataModule(signals(1, 16))
    trainer = fit(module, data, make_trainer, 40, log_every_n_steps=10, logger=logger, limit_val_batches=0)
    trainer.test(module, data, verbose=False)
    step, row = logger.rows[-1]
    assert step == 40
    assert set(row) == {"test/psnr", "test/train_psnr"}


def test_batches_are_fewer(make_trainer: MakeTrainer) -> None:
    trainer = fit(
        ComplexLinear(GAU, steps_per_batch=10), TensorDataModule(signals(1, 16)), make_trainer, 40, log_every_n_steps=0
    )
    assert trainer.fit_loop.epoch_loop.batch_progress.total.completed == 4


def test_losses_that_nobody_sees_are_not_computed(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    flags: list[bool | None] = []
    original = GramErrors.evaluate

    def evaluate(self: GramErrors, weight: Tensor, exact: bool | None) -> tuple[Tensor, Tensor]:
        flags.append(exact)
        return original(self, weight, exact)

    monkeypatch.setattr(GramErrors, "evaluate", evaluate)
    module, one = ComplexLinear(GAU, steps_per_batch=3), ComplexLinear(GAU)
    fit(module, TensorDataModule(signals(1, 24, 20)), make_trainer, 8, limit_val_batches=0, log_every_n_steps=6)
    assert flags == [None, None, False, None, None, True, None, False]
    fit(one, TensorDataModule(signals(1, 24, 20)), make_trainer, 8, limit_val_batches=0, log_every_n_steps=6)
    torch.testing.assert_close(module.last_train_psnr(), one.last_train_psnr(), rtol=0, atol=1e-4)


def test_a_line_search(make_trainer: MakeTrainer) -> None:
    weights = []
    for steps in (1, 3):
        module = ComplexLinear(GAU, steps_per_batch=steps, optimizer=lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3))
        trainer = fit(module, TensorDataModule(signals(1, 16)), make_trainer, 6, limit_val_batches=0)
        assert trainer.global_step == 6
        weights.append(module.weight)
    assert torch.equal(*weights)


@pytest.mark.parametrize("several", [1, 4])
def test_a_resumed_fit_goes_on_bit_for_bit(several: int, make_trainer: MakeTrainer, tmp_path: Path) -> None:
    def run(steps: int, **more: Any) -> tuple[ComplexLinear, int, list[Any]]:
        module, logger = ComplexLinear(GAU, steps_per_batch=several, lr_scheduler=halving), Memory()
        trainer = make_trainer(max_steps=steps, num_sanity_val_steps=0, log_every_n_steps=3, logger=logger)
        trainer.fit(module, TensorDataModule(signals(2, 24, 20), steps_per_epoch=3), **more)
        trainer.save_checkpoint(tmp_path / f"{steps}.ckpt")
        return module, trainer.global_step, logger.rows

    whole, count, rows = run(31)
    before = run(13)[2]
    resumed, resumed_count, after = run(31, ckpt_path=tmp_path / "13.ckpt", weights_only=False)
    assert count == resumed_count == 31
    assert torch.equal(resumed.weight, whole.weight)
    assert [step for step, row in before + after if "train/loss" in row] == [*range(2, 30, 3)]
    validated = [{step: row["val/psnr"] for step, row in some if "val/psnr" in row} for some in (rows, after)]
    assert validated[1]
    if several == 1:  # else validation, which counts batches, comes after other steps: step 13 ended one early
        assert validated[1].items() <= validated[0].items()


def test_the_plateau_is_left_to_validation(make_trainer: MakeTrainer) -> None:
    module = plateau(mode="max")
    module.steps_per_batch = 3
    trainer = fit(module, TensorDataModule(signals(1, 8), steps_per_epoch=1), make_trainer, 15, log_every_n_steps=0)
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(1e-9 * 0.1**4)  # five validations


@pytest.mark.parametrize(
    ("data", "trainer", "message"),
    [
        ({"batch": "points", "batch_size": 16}, {}, "set --data.batch full"),
        ({"sampling": "grid", "batch": "blocks"}, {}, "set --data.batch full"),
        ({}, {"accumulate_grad_batches": 2}, "accumulate_grad_batches saves them"),
    ],
)
def test_what_is_refused(data: Any, trainer: Any, message: str, make_trainer: MakeTrainer) -> None:
    with pytest.raises(InputError, match=message):
        fit(ComplexLinear(GAU, steps_per_batch=2), TensorDataModule(signals(1, 24, 20), **data), make_trainer, 4, **trainer)


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1)])
def test_steps_that_are_counted_otherwise_are_not_resumed(
    before: int, after: int, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    data, path = TensorDataModule(signals(1, 16)), tmp_path / "fit.ckpt"
    fit(ComplexLinear(GAU, steps_per_batch=before), data, make_trainer, 8).save_checkpoint(path)
    trainer, other = make_trainer(max_steps=16), ComplexLinear(GAU, steps_per_batch=after)
    with pytest.raises(InputError, match=f"a fit with steps_per_batch={before}; resume it with that, not with {after}"):
        trainer.fit(other, data, ckpt_path=path, weights_only=False)
    tested = ComplexLinear(GAU, steps_per_batch=after)
    trainer.test(tested, data, ckpt_path=path, weights_only=False)  # nothing is counted
    assert ComplexLinear.load_from_checkpoint(path, steps_per_batch=after).steps_per_batch == after


def test_callbacks_see_every_optimiser_step_and_the_gradient_before_it_is_clipped(make_trainer: MakeTrainer) -> None:
    class Norms(Callback):
        def __init__(self) -> None:
            self.values: list[float] = []

        def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
            (weight,) = pl_module.parameters()
            assert weight.grad is not None
            self.values.append(float(weight.grad.norm()))

    found = []
    for steps in (1, 4):
        norms = Norms()
        module, more = ComplexLinear(GAU, steps_per_batch=steps), {"gradient_clip_val": 1e-3, "callbacks": [norms]}
        fit(module, TensorDataModule(signals(1, 16, 12)), make_trainer, 9, limit_val_batches=0, **more)
        found.append(norms.values)
    assert len(found[0]) == 9
    assert found[0] == found[1]
    assert min(found[0]) > 1e-3


def test_a_plateau_of_something_that_is_not_logged(make_trainer: MakeTrainer) -> None:
    module = ComplexLinear(GAU, steps_per_batch=3, lr_scheduler=lambda o: ReduceLROnPlateau(o, monitor="val/loss"))
    with pytest.raises(InputError, match=r"waits for 'val/loss', which is not logged; there is: .*val/psnr"):
        fit(module, TensorDataModule(signals(1, 8), steps_per_epoch=1), make_trainer, 15)


@pytest.mark.parametrize("steps", [0, -1, 2.5, True])
def test_steps_are_counted_from_one(steps: Any) -> None:
    with pytest.raises(InputError, match="steps_per_batch must be an integer >= 1"):
        ComplexLinear(GAU, steps_per_batch=steps)
