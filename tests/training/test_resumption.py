"""Resumed fits equal uninterrupted ones, whatever monitors or averages; fits that cannot be monitored are refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import lightning.pytorch.callbacks as callbacks_of_lightning
import pytest
import torch
from fits import MODULES, MakeTrainer, signals
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import (
    EarlyStopping,
    GradientAccumulationScheduler,
    LearningRateMonitor,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from lightning.pytorch.callbacks.weight_averaging import EMAWeightAveraging
from lightning.pytorch.loggers.logger import DummyLogger
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, LambdaLR, OneCycleLR, ReduceLROnPlateau, SequentialLR

from pe_lightning.errors import InputError
from pe_lightning.signals.loaders import Batching
from pe_lightning.training import ComplexLinear, CoordinateModule, SimpleMLP, TensorDataModule
from pe_lightning.training.callbacks import RunRecorder, WandbSettings
from pe_lightning.training.checkpoints import BestAndLast, FiniteWeights

STEPS_PER_EPOCH = 6

pytestmark = [
    pytest.mark.filterwarnings("ignore:You're using the WeightAveraging callback with a model"),
    pytest.mark.filterwarnings("ignore:SWA is currently only supported every epoch"),
]


class Killed(Exception):
    """Ends a fit without any further hook."""


class EndAt(Callback):
    """Kills or stops a fit after a step."""

    def __init__(self, step: int, kill: bool) -> None:
        self.step, self.kill = step, kill

    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        if trainer.global_step == self.step:
            if self.kill:
                raise Killed
            trainer.should_stop = True


class Validations(Callback):
    """Keeps the score of every validation, by step."""

    def __init__(self) -> None:
        self.scores: dict[int, float] = {}

    def on_validation_end(self, trainer: Trainer, *args: Any) -> None:
        self.scores[trainer.global_step] = float(trainer.callback_metrics["val/psnr"])


def plateau() -> CoordinateModule:
    def scheduler(optimizer: Adam) -> ReduceLROnPlateau:
        return ReduceLROnPlateau(optimizer, mode="max", patience=0, threshold=0.5, threshold_mode="abs")

    return MODULES["simple"](optimizer=lambda parameters: Adam(parameters, lr=0.05), lr_scheduler=scheduler)


def scheduled() -> CoordinateModule:
    return MODULES["simple"](lr_scheduler=lambda optimizer: LambdaLR(optimizer, lambda step: 0.99**step))


def siren() -> SimpleMLP:
    """Scaled targets, and a rate that falls at the end of the fit."""
    return SimpleMLP("identity", depth=1, hidden_size=5, activation="sine")


def swa() -> list[Callback]:
    return [StochasticWeightAveraging(swa_lrs=0.02, swa_epoch_start=2, annealing_epochs=3)]


def early(**more: Any) -> EarlyStopping:
    return EarlyStopping(**{"monitor": "val/psnr", "mode": "max", "patience": 50, **more})


Case = tuple[Callable[[], list[Callback]], dict[str, Any]]
CASES: dict[str, Case] = {
    "EarlyStopping": (lambda: [early(patience=2, min_delta=0.3)], {"max_steps": 200}),
    "EarlyStopping of train/loss": (lambda: [early(monitor="train/loss", mode="min")], {}),
    "EarlyStopping, every second epoch": (lambda: [early()], {"check_val_every_n_epoch": 2}),
    "EarlyStopping, twice an epoch": (lambda: [early()], {"val_check_interval": 3}),
    "EarlyStopping, epochs": (lambda: [early()], {"max_epochs": 5, "max_steps": -1}),
    "ModelCheckpoint": (lambda: [ModelCheckpoint(monitor="train/loss", filename="other")], {}),
    "LearningRateMonitor": (lambda: [LearningRateMonitor("epoch"), early()], {"logger": DummyLogger()}),
    "ReduceLROnPlateau": (list, {"make": plateau}),
    "accumulated gradients": (lambda: [early()], {"accumulate_grad_batches": 4, "max_steps": 23}),
    "SWA, epochs": (swa, {"max_epochs": 5, "max_steps": -1, "make": scheduled}),
    "SWA, steps": (swa, {}),
    "float64": (list, {"precision": "64-true"}),
    # Gram matrices give the loss, at times the samples
    "Gram": (list, {"make": MODULES["complex"], "values": signals(1, 36, 12)}),
    "head": (list, {"make": MODULES["complex-head"]}),
    "learned": (list, {"make": lambda: ComplexLinear({"name": "gau", "num_features": 8, "trainable": True})}),
    "per axis": (list, {"make": lambda: SimpleMLP([{"name": "rff", "seed": 3}, "gau"], depth=1, hidden_size=5)}),
    "SIREN": (list, {"make": siren}),
    "GradientAccumulationScheduler": (lambda: [GradientAccumulationScheduler({0: 1, 2: 4})], {"max_steps": 23}),
    "EMA": (lambda: [EMAWeightAveraging(decay=0.9)], {}),
}


def test_the_table_has_every_callback_of_lightning_that_monitors() -> None:
    classes = {name: value for name, value in vars(callbacks_of_lightning).items() if inspect.isclass(value)}
    monitoring = {name for name, cls in classes.items() if "monitor" in inspect.signature(cls).parameters}
    assert monitoring
    assert {name for name in monitoring if not any(case.startswith(name) for case in CASES)} == set()


def run(
    folder: Path,
    callbacks: list[Callback],
    checkpoint: Path | None = None,
    make: Callable[[], CoordinateModule] = MODULES["simple"],
    values: torch.Tensor | None = None,
    **options: Any,
) -> tuple[Trainer, CoordinateModule]:
    seed_everything(0)
    values = signals(1, 12, 12) if values is None else values
    data, module = TensorDataModule(values, batching=Batching(steps_per_epoch=STEPS_PER_EPOCH)), make()
    module.build_from(data)
    recorder = RunRecorder(folder=folder, ckpt_path=checkpoint, wandb=WandbSettings(enabled=False), table=False, log=False)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
    options = {"max_steps": 33, "log_every_n_steps": 5, "accelerator": "cpu", **quiet, **options}
    trainer = Trainer(callbacks=[*callbacks, recorder, BestAndLast("val/psnr", "max")], default_root_dir=folder, **options)
    with suppress(Killed):
        trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
    return trainer, module


def state_of(trainer: Trainer, module: CoordinateModule) -> dict[str, Any]:
    """What a resumed fit has in common with an uninterrupted one."""
    stopping = [(c.wait_count, float(c.best_score), c.stopped_epoch) for c in trainer.early_stopping_callbacks]
    rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups]
    return {"steps": trainer.global_step, "epoch": trainer.current_epoch, "stopping": stopping, "rates": rates}


QUICK = ("EarlyStopping", "SWA, epochs", "Gram", "learned", "SIREN")
EVERY_END = ("EarlyStopping", "SWA, epochs")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in CASES])
def test_a_resumed_fit_equals_the_uninterrupted_one(tmp_path: Path, name: str) -> None:
    make, options = CASES[name]
    validations = Validations()
    trainer, module = run(tmp_path / "whole", [*make(), validations], **options)
    expected = state_of(trainer, module), module.state_dict(), validations.scores
    # within an epoch and at its end, killed and stopped
    for step, kill in ((14, True), (18, False), *(((12, True), (15, False)) if name in EVERY_END else ())):
        folder, validations = tmp_path / f"{step}{kill}", Validations()
        ended, _ = run(folder, [*make(), EndAt(step, kill)], **options)
        checkpoint = folder / "checkpoints/last.ckpt"
        averaged = not kill and (name == "SWA, steps" or (name == "EMA" and step % STEPS_PER_EPOCH == 0))
        if averaged:
            with pytest.raises(InputError, match="holds the average of the weights of a fit that has ended"):
                run(folder, make(), checkpoint, **options)
            continue
        trainer, module = run(folder, [*make(), validations], checkpoint, **options)
        assert state_of(trainer, module) == expected[0], (step, kill)
        for key, value in module.state_dict().items():
            assert value.equal(expected[1][key]), (step, kill, key)
        assert validations.scores.items() <= expected[2].items(), (step, kill)
        assert {step for step in expected[2] if step > ended.global_step} <= validations.scores.keys()


class KillAtEnd(Callback):
    """Kills a fit after its last epoch, before the final checkpoint."""

    def on_train_end(self, *args: Any) -> None:
        raise Killed


@pytest.mark.parametrize("options", [{"max_steps": 12}, {"max_steps": 14}, {"max_steps": -1, "max_epochs": 2}])
def test_a_fit_killed_at_its_very_end_resumes_to_the_checkpoint_of_the_uninterrupted_one(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    def progress(name: str) -> tuple[int, int, Any]:
        found = torch.load(tmp_path / name / "checkpoints/last.ckpt", weights_only=True)
        return found["epoch"], found["global_step"], found["loops"]["fit_loop"]["epoch_progress"]["current"]

    run(tmp_path / "whole", [], **options)
    run(tmp_path / "killed", [KillAtEnd()], **options)
    run(tmp_path / "killed", [], tmp_path / "killed/checkpoints/last.ckpt", **options)
    assert progress("killed") == progress("whole")


def test_a_fit_that_early_stopping_ended_is_not_trained_further(tmp_path: Path) -> None:
    options = {"max_steps": 200}
    ended, module = run(tmp_path, [early(patience=1, min_delta=100)], **options)
    assert ended.global_step == 2 * STEPS_PER_EPOCH
    checkpoint = tmp_path / "checkpoints/last.ckpt"
    again, found = run(tmp_path, [early(patience=1, min_delta=100)], checkpoint, **options)
    assert again.global_step == ended.global_step
    assert all(value.equal(module.state_dict()[key]) for key, value in found.state_dict().items())
    longer, _ = run(tmp_path, [], checkpoint, max_steps=20)
    assert longer.global_step == 20


def test_weights_of_an_unbuilt_module_are_not_averaged(make_trainer: MakeTrainer) -> None:
    with pytest.raises(InputError, match=r"call SimpleMLP.build_from\(data\) before Trainer.fit"):
        make_trainer(callbacks=swa(), max_steps=5).fit(MODULES["simple"](), TensorDataModule(signals(1, 12, 12)))


def test_other_data_is_refused(tmp_path: Path) -> None:
    run(tmp_path, [], max_steps=12)
    checkpoint, other = tmp_path / "checkpoints/last.ckpt", signals(1, 12, 12).flip(1)
    before = checkpoint.read_bytes()
    with pytest.raises(InputError, match=r"other data: fingerprint \w+, now \w+\. .*InitialWeights\(PATH\)"):
        run(tmp_path, [], checkpoint, values=other)
    assert checkpoint.read_bytes() == before


Make = Callable[[], CoordinateModule]


def optimized(lr: float, schedule: Callable[[Adam], Any], cls: type = Adam) -> Make:
    return lambda: MODULES["simple"](optimizer=lambda parameters: cls(parameters, lr=lr), lr_scheduler=schedule)


SCHEDULES: dict[str, Callable[[float], Callable[[Adam], Any]]] = {
    "cosine": lambda lr: lambda o: CosineAnnealingLR(o, T_max=40, eta_min=lr / 100),
    "exponential": lambda lr: lambda o: ExponentialLR(o, 0.9 + lr),
    "lambda": lambda lr: lambda o: LambdaLR(o, lambda step: 1 / (1 + step)),
    "one cycle": lambda lr: lambda o: OneCycleLR(o, max_lr=lr, total_steps=50),
    "sequence": lambda lr: lambda o: SequentialLR(o, [ExponentialLR(o, 0.9), CosineAnnealingLR(o, 40)], [10]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_other_arguments_of_the_optimiser_are_applied(tmp_path: Path, name: str) -> None:
    """The rates are those of a fit that had them from its first step on."""
    before, after = (optimized(lr, SCHEDULES[name](lr)) for lr in (0.01, 0.002))
    whole, _ = run(tmp_path / "whole", [], make=after, max_steps=24)
    run(tmp_path, [], make=before, max_steps=14)
    resumed, module = run(tmp_path, [], tmp_path / "checkpoints/last.ckpt", make=after, max_steps=24)
    rates = [group.optimizers[0].param_groups[0]["lr"] for group in (whole, resumed)]
    assert rates[1] == pytest.approx(rates[0], rel=1e-12)
    assert module.optimization is not None
    assert module.optimization["lr"] == 0.002
    again, _ = run(tmp_path, [], tmp_path / "checkpoints/last.ckpt", make=after, max_steps=30)
    whole, _ = run(tmp_path / "longer", [], make=after, max_steps=30)
    assert again.optimizers[0].param_groups[0]["lr"] == pytest.approx(whole.optimizers[0].param_groups[0]["lr"], rel=1e-12)


class Rates(Callback):
    """Keeps the learning rate of every step."""

    def __init__(self) -> None:
        self.rates: list[float] = []

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: Any, optimizer: torch.optim.Optimizer) -> None:
        self.rates.append(optimizer.param_groups[0]["lr"])


def test_a_fit_resumed_to_more_steps_has_the_rates_of_a_fit_of_so_many(tmp_path: Path) -> None:
    first, more = Rates(), Rates()
    run(tmp_path, [first], make=siren, max_steps=10)
    run(tmp_path, [more], tmp_path / "checkpoints/last.ckpt", make=siren, max_steps=20)
    base = first.rates[0]
    assert first.rates == pytest.approx([*[base] * 8, base, base / 2])
    assert more.rates == pytest.approx([*[base] * 7, *(base * share for share in (3 / 4, 2 / 4, 1 / 4))])


def test_a_schedule_that_is_shorter_than_the_fit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InputError, match=r"OneCycleLR has 50 steps, the fit 60: set --model.lr_scheduler.total_steps 60"):
        run(tmp_path / "cycle", [], make=optimized(0.01, SCHEDULES["one cycle"](0.01)), max_steps=60)
    with caplog.at_level("INFO"):
        run(tmp_path / "cosine", [], make=optimized(0.01, SCHEDULES["cosine"](0.01)), max_steps=42)
    assert "CosineAnnealingLR rises again after step 40, and the fit has 42" in caplog.text


DECAYING = SCHEDULES["lambda"](0)


@pytest.mark.parametrize(
    ("before", "after", "options", "words"),
    [
        (DECAYING, optimized(0.002, DECAYING, SGD), {}, "keeps the classes of its optimiser and schedule"),
        (DECAYING, optimized(0.002, SCHEDULES["exponential"](0)), {}, "keeps the classes of its optimiser and schedule"),
        (DECAYING, optimized(0.002, DECAYING), {"max_steps": 12}, r"taken its 12 steps, so that lr 0.01, now 0.002"),
        (lambda o: ReduceLROnPlateau(o, "max"), plateau, {}, "follows from the fit so far"),
    ],
)
def test_what_a_resumed_fit_cannot_change_is_refused(
    tmp_path: Path, before: Any, after: Callable[[], CoordinateModule], options: dict[str, Any], words: str
) -> None:
    run(tmp_path, [], make=optimized(0.01, before), max_steps=12)
    with pytest.raises(InputError, match=words):
        run(tmp_path, [], tmp_path / "checkpoints/last.ckpt", make=after, **options)


def test_the_patience_of_a_resumed_fit_is_the_one_given(tmp_path: Path) -> None:
    run(tmp_path, [early(patience=5, min_delta=100)], max_steps=12)
    trainer, _ = run(tmp_path, [early(patience=3, min_delta=100)], tmp_path / "checkpoints/last.ckpt", max_steps=200)
    assert trainer.global_step == 4 * STEPS_PER_EPOCH


class Spoil(Callback):
    """Makes a weight NaN after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *args: Any) -> None:
        if trainer.global_step == self.step:
            next(pl_module.parameters()).data.view(-1)[0] = torch.nan


def steps_of(folder: Path) -> dict[str, int]:
    """The step of every checkpoint, whose weights are finite."""
    found = {path.name: torch.load(path, weights_only=True) for path in folder.rglob("*.ckpt")}
    assert all(value.isfinite().all() for content in found.values() for value in content["state_dict"].values())
    return {name: content["global_step"] for name, content in found.items()}


MANY = {"every_n_train_steps": 1, "filename": "{step}"}


@pytest.mark.filterwarnings("ignore:.* is not written. the weights are not finite")
@pytest.mark.parametrize(
    ("callbacks", "every", "step"), [(list, 1000, 18), (swa, 4, 16), (lambda: [ModelCheckpoint(**MANY)], 4, 16)]
)
def test_weights_that_are_not_finite_stop_a_fit_and_replace_no_checkpoint(
    tmp_path: Path, callbacks: Callable[[], list[Callback]], every: int, step: int
) -> None:
    with pytest.raises(InputError, match=rf"not finite after step {step}, and were after step 12.*--model.optimizer.lr"):
        run(tmp_path, [Spoil(14), *callbacks()], log_every_n_steps=every, max_epochs=8, max_steps=-1)
    assert steps_of(tmp_path)["last.ckpt"] == 12


@pytest.mark.filterwarnings("ignore:.* is not written. the weights are not finite")
def test_a_fit_that_may_go_on_keeps_its_finite_checkpoints(tmp_path: Path) -> None:
    callbacks = [Spoil(14), ModelCheckpoint(**MANY), FiniteWeights(stop=False)]
    with pytest.warns(UserWarning, match=r"not finite") as caught:
        trainer, _ = run(tmp_path, callbacks)
    (told,) = [str(warning.message) for warning in caught if "the fit goes on" in str(warning.message)]
    assert "after step 17, and were after step 12" in told
    assert trainer.global_step == 33
    steps = steps_of(tmp_path)
    assert set(steps.values()) <= {6, 12, 13}
    assert "step=13.ckpt" in steps, "nothing is removed for what is not written"
