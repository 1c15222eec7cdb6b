"""Steps that Lightning's loop does not take: the same weights, states, logs and calls of callbacks as of single steps."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from fits import MODULES, signals
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import CSVLogger
from torch.optim.lr_scheduler import StepLR

from benchmarks.own_hooks import OF_BATCHES, public_hooks, weights_and_calls
from pe_lightning.signals.loaders import Batching
from pe_lightning.training import ComplexLinear, CoordinateModule, SimpleMLP, TensorDataModule


class EveryStep(Callback):
    """Makes a fit take single steps; keeps their numbers, and whether epochs ended with their last batch."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.ended: list[bool] = []

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        self.ended.append(trainer.is_last_batch)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.steps.append(trainer.global_step)


class Needed(EveryStep):
    """Asks for every fifth step."""

    def next_step(self, trainer: Trainer) -> int:
        return trainer.global_step // 5 * 5 + 5


Made = tuple[CoordinateModule, Trainer, dict[str, Any], list[dict[str, str]]]


def fit(
    folder: Path, make: Callable[[], CoordinateModule], batching: Batching, *callbacks: Callback, **options: Any
) -> Made:
    """A fit with a CSV log and a checkpoint at its end: what is in them too."""
    seed_everything(0)
    sampling = options.pop("sampling", "grid")
    module, data = make(), TensorDataModule(signals(2, 18, 12), batching=batching, sampling=sampling)
    logger = CSVLogger(folder, name="", version="")
    quiet = {"accelerator": "cpu", "enable_model_summary": False, "num_sanity_val_steps": 0, "enable_progress_bar": False}
    given = {"max_steps": 31, "log_every_n_steps": 7, "logger": logger, **quiet, **options}
    trainer = Trainer(
        default_root_dir=folder,
        enable_checkpointing=any(isinstance(c, ModelCheckpoint) for c in callbacks),
        callbacks=list(callbacks),
        **given,
    )
    trainer.fit(module, data)
    trainer.save_checkpoint(folder / "end.ckpt")
    logger.save()
    rows = list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))
    return module, trainer, torch.load(folder / "end.ckpt", weights_only=True), rows


def equal(one: Any, other: Any) -> bool:
    """Whether nested values are equal, tensors bit for bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def scheduled() -> CoordinateModule:
    return MODULES["simple"](
        optimizer=lambda p: torch.optim.AdamW(p, lr=0.01), lr_scheduler=lambda optimizer: StepLR(optimizer, 4, 0.5)
    )


FULL = Batching(steps_per_epoch=13)
CASES: dict[str, tuple[Callable[[], CoordinateModule], Batching, dict[str, Any]]] = {
    "linear": (MODULES["complex"], FULL, {}),
    "head": (MODULES["complex-head"], FULL, {"gradient_clip_val": 1e-3}),
    "schedule": (scheduled, FULL, {"gradient_clip_val": 0.01, "gradient_clip_algorithm": "value"}),
    "points": (MODULES["simple"], Batching("points", 6), {"val_check_interval": 2}),
    "blocks": (MODULES["simple"], Batching("blocks", 2), {"check_val_every_n_epoch": None, "val_check_interval": 11}),
    "float64": (MODULES["complex"], FULL, {"precision": "64-true"}),
    "bfloat16": (MODULES["simple"], FULL, {"precision": "bf16-mixed"}),
    "epochs": (MODULES["simple"], FULL, {"max_steps": -1, "max_epochs": 2, "limit_train_batches": 9}),
    "hash": (lambda: SimpleMLP("hash", depth=1, hidden_size=8), FULL, {}),
    "some samples": (MODULES["complex"], FULL, {"sampling": "random"}),
    "learned": (lambda: ComplexLinear({"name": "gau", "num_features": 8, "trainable": True}), FULL, {}),
}


@pytest.mark.parametrize("name", list(CASES))
def test_weights_states_and_logs_equal_those_of_single_steps(tmp_path: Path, name: str) -> None:
    make, batching, options = CASES[name]
    single = EveryStep()
    _, one, expected, rows = fit(tmp_path / "single", make, batching, single, **options)
    needed = Needed()
    _, trainer, found, logged = fit(tmp_path / "runs", make, batching, needed, **options)
    for key in ("state_dict", "optimizer_states", "lr_schedulers", "loops", "global_step", "epoch"):
        assert equal(found[key], expected[key]), key
    assert trainer.global_step == one.global_step == len(single.steps)
    assert logged == rows
    assert needed.ended == single.ended
    assert {step for step in single.steps if step % 5 == 0} <= set(needed.steps)
    assert len(needed.steps) < len(single.steps)


def test_lightning_takes_the_steps_at_which_something_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    step = CoordinateModule.training_step

    def training_step(self: CoordinateModule, batch: Any, batch_idx: int) -> torch.Tensor:
        taken.append(self.global_step + 1)
        return step(self, batch, batch_idx)

    monkeypatch.setattr(CoordinateModule, "training_step", training_step)
    monkeypatch.setattr("pe_lightning.training.uninterrupted.MAX_SECONDS", 100)
    checkpoints = ModelCheckpoint(tmp_path / "kept", filename="{step}", every_n_train_steps=15, save_top_k=-1)
    rates, bar = LearningRateMonitor("step"), TQDMProgressBar(refresh_rate=0)
    options = {"max_steps": 50, "log_every_n_steps": 20, "enable_progress_bar": True}
    _, _, _, rows = fit(tmp_path, scheduled, Batching(steps_per_epoch=100), checkpoints, rates, bar, **options)
    assert taken == [15, 20, 30, 40, 45, 50]
    assert sorted(int(path.stem.removeprefix("step=")) for path in (tmp_path / "kept").iterdir()) == [15, 30, 45]
    assert len([row for row in rows if row["lr-AdamW"]]) == 2  # before steps 20 and 40


class Own(SimpleMLP):
    """Has a hook of batches."""

    def on_after_backward(self) -> None:
        pass


@pytest.mark.parametrize(
    ("make", "callbacks", "options", "reason"),
    [
        (MODULES["simple"], [EveryStep()], {}, "EveryStep acts at every step"),
        (MODULES["simple"], [], {"log_every_n_steps": 1}, "log_every_n_steps is 1"),
        (MODULES["simple"], [], {"accumulate_grad_batches": 2}, "accumulate_grad_batches is 2"),
        (MODULES["simple"], [], {"profiler": "simple"}, "SimpleProfiler measures each step"),
        (lambda: Own("rff", depth=1, hidden_size=4), [], {}, "Own defines on_after_backward"),
        (lambda: MODULES["simple"](optimizer=torch.optim.LBFGS), [], {}, "LBFGS evaluates the loss several times"),
    ],
)
def test_a_fit_that_takes_single_steps_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Any, callbacks: list[Callback], options: Any, reason: str
) -> None:
    caplog.set_level("INFO", "pe_lightning")
    fit(tmp_path, make, FULL, *callbacks, **{"max_steps": 3, "log_every_n_steps": 2, **options})
    assert [reason in text for text in caplog.messages if "Lightning's loop" in text] == [True]


# -- hooks of anybody: every public method of Lightning's classes -------------------------------------------------------


@pytest.fixture(scope="module")
def single_steps(tmp_path_factory: pytest.TempPathFactory) -> Callable[[type, str], tuple[dict[str, bytes], int]]:
    """Weights and calls of a hook in a fit of single steps: of those that change nothing in one fit for each owner."""

    @cache
    def fitted(owner: type, names: tuple[str, ...]) -> tuple[dict[str, bytes], Counter[str]]:
        return weights_and_calls(tmp_path_factory.mktemp("single"), owner, names, 1)

    def find(owner: type, name: str) -> tuple[dict[str, bytes], int]:
        rest = tuple(hook for cls, hook in public_hooks() if cls is owner and hook not in OF_BATCHES)
        weights, calls = fitted(owner, rest if name in rest else (name,))
        return weights, calls[name]

    return find


@pytest.mark.filterwarnings("ignore:You have overridden")  # the hook of a module and of its data
@pytest.mark.parametrize(("owner", "name"), list(public_hooks()))
def test_a_hook_of_anybody_is_called_as_by_lightning(tmp_path: Path, single_steps: Any, owner: type, name: str) -> None:
    """A new hook of Lightning is in this test by itself; values that a hook changes are trained on."""
    weights, calls = weights_and_calls(tmp_path, owner, [name], 4)
    assert (weights, calls[name]) == single_steps(owner, name)


class Scheduler(Callback):
    """Accumulates gradients from the fifth step on."""

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        trainer.accumulate_grad_batches = 2 if trainer.global_step >= 5 else 1

    def next_step(self, trainer: Trainer) -> int:
        return max(5, trainer.global_step + 1)


class Sharpness(torch.optim.SGD):
    """Calls its closure twice where it gets one, as sharpness-aware minimisation does."""

    def step(self, closure: Any = None) -> Any:
        if closure is not None:
            closure()
        return super().step(closure)


def test_what_lightning_reads_at_every_step_is_read(tmp_path: Path) -> None:
    """Optimisers with a closure of their own, plateaus at steps, and accumulation that begins within an epoch."""
    sharp = lambda: MODULES["simple"](optimizer=lambda p: Sharpness(p, lr=0.01))  # noqa: E731
    _, one, expected, _ = fit(tmp_path / "one", sharp, FULL, EveryStep())
    _, _, found, _ = fit(tmp_path / "all", sharp, FULL)
    assert equal(found["state_dict"], expected["state_dict"])
    _, one, expected, _ = fit(tmp_path / "slow", MODULES["simple"], FULL, Scheduler(), EveryStep())
    _, two, found, _ = fit(tmp_path / "fast", MODULES["simple"], FULL, Scheduler())
    assert one.fit_loop.total_batch_idx == two.fit_loop.total_batch_idx
    assert equal(found["state_dict"], expected["state_dict"])


def test_a_subclass_of_a_callback_that_changes_a_hook_says_when_it_acts(tmp_path: Path) -> None:
    class Silent(Needed):
        def on_train_batch_end(self, *args: Any) -> None:
            super().on_train_batch_end(*args)

    silent = Silent()
    fit(tmp_path, MODULES["simple"], FULL, silent)
    assert silent.steps == list(range(1, 32))


def test_a_lightning_without_its_counters_takes_single_steps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pe_lightning.training.uninterrupted.COUNTERS", ("epoch_loop._steps_of_another_version",))
    caplog.set_level("INFO", "pe_lightning")
    _, trainer, _, _ = fit(tmp_path, MODULES["simple"], FULL)
    assert trainer.global_step == 31
    assert "this version of Lightning has no fit_loop.epoch_loop._steps_of_another_version" in caplog.text


@pytest.mark.parametrize("own", ["errors", "loss_of", "targets"])
@pytest.mark.parametrize("cls", [ComplexLinear, SimpleMLP])
def test_a_loss_of_somebody_is_trained_by_every_step(tmp_path: Path, cls: type[CoordinateModule], own: str) -> None:
    usual = getattr(cls, own)
    changed = type("Own", (cls,), {own: lambda self, *args: 1.5 * usual(self, *args)})
    module, weights = (lambda cls: lambda: cls("gau", optimizer=lambda p: torch.optim.SGD(p, lr=0.02))), []
    for name, made, callbacks in (("fast", changed, []), ("slow", changed, [EveryStep()]), ("usual", cls, [])):
        weights.append(fit(tmp_path / name, module(made), FULL, *callbacks, max_steps=14)[2]["state_dict"])
    assert equal(weights[0], weights[1])
    assert (own == "targets" and cls is ComplexLinear) or not equal(weights[0], weights[2])


class Alternating(Callback):
    """Freezes, trains and freezes the encoder, three epochs of each."""

    def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        trained = trainer.current_epoch // 2 % 2 == 1
        for name, parameter in pl_module.named_parameters():
            if "log_sigma" in name:
                parameter.requires_grad_(trained)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", ["complex", "simple"])
def test_an_encoder_that_is_frozen_again_is_fitted_with_what_it_has_learned(tmp_path: Path, kind: str, shared: bool) -> None:
    """As where every step computes its features anew."""
    cls: Any = {"complex": ComplexLinear, "simple": partial(SimpleMLP, depth=1, hidden_size=6)}[kind]
    own = {"complex": ComplexLinear, "simple": SimpleMLP}[kind]
    anew = type("Anew", (own,), {"errors": lambda self, batch: own.errors(self, batch)})
    encoder = {"name": "gau", "num_features": 8, "trainable": True}
    weights = []
    for name, made in (("held", cls), ("anew", anew if kind == "complex" else partial(anew, depth=1, hidden_size=6))):
        make = partial(made, encoder, shared_encoder=shared, optimizer=lambda p: torch.optim.SGD(p, lr=0.02))
        options = {"max_steps": 24, "log_every_n_steps": 4}
        weights.append(fit(tmp_path / name, make, Batching(steps_per_epoch=4), Alternating(), **options)[0].state_dict())
    for name, value in weights[0].items():
        torch.testing.assert_close(value, weights[1][name], rtol=1e-4, atol=1e-5)
