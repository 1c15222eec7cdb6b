"""A checkpoint alone rebuilds its model, safely, and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor

from pe_lightning.encoders import Encoder, Gaussian, RandomFourier
from pe_lightning.errors import InputError
from pe_lightning.signals import Batching, SignalInfo
from pe_lightning.training import ComplexLinear, CoordinateModule, SimpleMLP, TensorDataModule
from pe_lightning.training.datamodule import OutputGrid

MakeTrainer = Callable[..., Trainer]
VALUES = torch.rand(2, 8, 6, 2, generator=torch.Generator().manual_seed(0))


class Powers(Encoder):
    """An encoder of another package, in no registry."""

    def __init__(self, num_features: int = 4, base: float = 1.0) -> None:
        super().__init__(num_features)
        self.base = base

    def forward(self, x: Tensor) -> Tensor:
        return (self.base * x[..., None]) ** torch.arange(self.num_features, dtype=x.dtype, device=x.device)


LEARNED = {"name": "gau", "num_features": 8, "trainable": True}
CASES: dict[str, Callable[[], CoordinateModule]] = {
    "complex": lambda: ComplexLinear({"name": "gau", "num_features": 4, "sigma": 0.1}),
    "complex head": lambda: ComplexLinear("linf", depth=2, hidden_size=5, activation="silu"),
    "complex rff": lambda: ComplexLinear({"name": "rff", "num_features": 8, "sigma": 1.5, "seed": 7}),
    "complex noise": lambda: ComplexLinear({"name": "noise", "num_features": 4, "seed": 2, "num_positions": 16}),
    "complex per axis": lambda: ComplexLinear([RandomFourier(8, seed=3), Gaussian(5)]),
    "complex third party": lambda: ComplexLinear(Powers(5, base=0.5)),
    "complex learned": lambda: ComplexLinear(LEARNED),
    "simple": lambda: SimpleMLP({"name": "gau", "num_features": 16}, depth=1, hidden_size=5),
    "simple rff": lambda: SimpleMLP({"name": "rff", "num_features": 10, "seed": 7}, depth=1, hidden_size=5),
    "simple per direction": lambda: SimpleMLP(["identity", Gaussian(5)], depth=1, hidden_size=5, activation="sine"),
    "simple learned": lambda: SimpleMLP(LEARNED, depth=1, hidden_size=5),
}


def saved(module: CoordinateModule, make_trainer: MakeTrainer, path: Path, **more: Any) -> Path:
    """A file that a Trainer saved after three steps."""
    trainer = make_trainer(max_steps=3, limit_val_batches=0, **more)
    trainer.fit(module, TensorDataModule(VALUES, names=["first", "second"], batching=Batching(steps_per_epoch=3)))
    trainer.save_checkpoint(path / "model.ckpt")
    return path / "model.ckpt"


def everywhere(module: CoordinateModule) -> list[Tensor]:
    coords = torch.rand(9, 2, generator=torch.Generator().manual_seed(1))
    axes = [torch.arange(n) / n for n in (5, 11)]
    with torch.no_grad():
        return [module(coords), module.predict_grid(axes)]


@pytest.mark.parametrize(
    ("case", "precision"), [*((case, "32-true") for case in CASES), ("complex", "64-true"), ("simple", "64-true")]
)
def test_a_checkpoint_alone_gives_the_same_predictions(
    case: str, precision: str, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    module = CASES[case]()
    path = saved(module, make_trainer, tmp_path, precision=precision)
    torch.manual_seed(99)
    loaded = type(module).load_from_checkpoint(path, weights_only=True)
    for here, there in zip(everywhere(module), everywhere(loaded), strict=True):
        assert torch.equal(here, there)
    assert loaded.info == SignalInfo(("first", "second"), (8, 6), 2, media="image")
    assert loaded.hparams == module.hparams
    assert [e.resolved() for e in loaded.encoding.encoders] == [e.resolved() for e in module.encoding.encoders]
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    assert {p.dtype for p in loaded.parameters()} == {torch.float64 if precision == "64-true" else torch.float32}
    assert loaded.num_params == module.num_params


@pytest.fixture
def path(make_trainer: MakeTrainer, tmp_path: Path) -> Path:
    """The checkpoint of the first case."""
    return saved(CASES["complex"](), make_trainer, tmp_path)


class OwnMLP(SimpleMLP):
    """A network that is not registered."""


def test_checkpoints_hold_registered_names_and_the_import_paths_of_other_classes() -> None:
    encoder = {"class_path": "pe_lightning.encoders.shifted.Gaussian", "init_args": {"num_features": 4}}
    saved = [OwnMLP(encoder, activation=name).hparams for name in ("Sine", "pe_lightning.networks.activations.Sine")]
    assert saved[0] == saved[1]
    assert (saved[0]["_class_path"], saved[0]["encoder"]["name"]) == (f"{__name__}.OwnMLP", "gau")
    assert saved[0]["activation"] == "sine"


# -- other models are refused -----------------------------------------------------------------------------------------

OTHERS: dict[str, tuple[Callable[[], CoordinateModule], str]] = {
    "class": (lambda: SimpleMLP("gau"), "holds a ComplexLinear, the model asked for is a SimpleMLP"),
    "sigma": (
        lambda: ComplexLinear({"name": "gau", "num_features": 4, "sigma": 0.2}),
        r"holds encoder gau\(.*sigma=0\.1.*asked for is encoder gau\(.*sigma=0\.2",
    ),
    "per axis": (
        lambda: ComplexLinear([Gaussian(4, sigma=0.1), RandomFourier(4)]),
        r"asked for is encoder gau\(.*\), rff\(",
    ),
    "depth": (
        lambda: ComplexLinear(Gaussian(4, sigma=0.1), depth=1),
        "holds a model with depth=0, the model asked for is a model with depth=1",
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_the_checkpoint_of_another_model_is_refused(other: str, make_trainer: MakeTrainer, path: Path) -> None:
    make, message = OTHERS[other]
    with pytest.raises(InputError, match=message + ".*leave the option out, or name a checkpoint of that model"):
        make_trainer().predict(make(), OutputGrid(), ckpt_path=path, weights_only=True)


def test_arguments_that_keep_the_meaning_of_the_parameters_may_differ(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    for case, other in (
        ("simple", SimpleMLP({"name": "gau", "num_features": 16}, 1, 5, normalize=False, points_per_chunk=1)),
        ("complex", ComplexLinear(Gaussian(num_features=4, sigma=0.1, padding="auto"))),
    ):
        path = saved(CASES[case](), make_trainer, tmp_path)
        (prediction,) = make_trainer().predict(other, OutputGrid(), ckpt_path=path, weights_only=True)
        loaded = type(other).load_from_checkpoint(path)
        axes = [torch.arange(n) / n for n in (8, 6)]
        torch.testing.assert_close(prediction, loaded.predict_grid(axes).detach(), rtol=1e-5, atol=1e-6)


def test_other_classes_signals_and_versions_are_refused(make_trainer: MakeTrainer, path: Path) -> None:
    with pytest.raises(InputError, match="holds a ComplexLinear, the model asked for is a SimpleMLP"):
        SimpleMLP.load_from_checkpoint(path)
    with pytest.raises(InputError, match=r"this module holds 1 signal\(s\).*the checkpoint has 2 signal\(s\)"):
        make_trainer().test(CASES["complex"](), TensorDataModule(VALUES[:1]), ckpt_path=path, verbose=False)
    content = torch.load(path, weights_only=True)
    for key, message in (
        ("pe_lightning/signals", "was not written by pe_lightning: it holds no shape of signals"),
        ("pe_lightning/version", "by pe_lightning 0.1.0, .*fit again .*pe-lightning fit --config RUN/config.yaml"),
    ):
        torch.save({name: value for name, value in content.items() if name != key}, path)
        with pytest.raises(InputError, match=message):
            ComplexLinear.load_from_checkpoint(path)
