"""Fits under a Trainer: what is learned, by whom, and that it depends on nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from torch import Tensor, nn

from pe_lightning.data import GridBatch, PointBatch, SignalInfo, TensorDataModule
from pe_lightning.data.sampling import RandomSampling
from pe_lightning.encoders import Encoder
from pe_lightning.errors import InputError
from pe_lightning.metrics import psnr
from pe_lightning.modules import ComplexLinear, CoordinateModule, SimpleMLP, simple_mlp

MakeTrainer = Callable[..., Trainer]

GAU = {"name": "gau", "num_features": 8, "sigma": 0.1}
MODULES: dict[str, Callable[..., CoordinateModule]] = {
    "complex": lambda **more: ComplexLinear(GAU, **more),
    "complex-head": lambda **more: ComplexLinear(GAU, depth=1, width=6, **more),
    "simple": lambda **more: SimpleMLP(GAU, depth=2, width=8, **more),
}
SAMPLINGS = {"grid": "grid", "random": RandomSampling(0.5), "shared": RandomSampling(0.5, shared=True)}
every_module = pytest.mark.parametrize("kind", MODULES)
every_sampling = pytest.mark.parametrize("sampling", SAMPLINGS)


def signals(count: int, *grid: int, channels: int = 2) -> Tensor:
    """Smooth signals, each another, with means far from zero."""
    x = torch.stack(torch.meshgrid(*[torch.arange(n) / n for n in grid], indexing="ij"), -1)
    waves = [torch.sin((s + 1) * x.sum(-1) + c + s) for s in range(count) for c in range(channels)]
    return 0.5 + 0.4 * torch.stack(waves).reshape(count, channels, *grid).movedim(1, -1)


def fit(module: CoordinateModule, data: TensorDataModule, make_trainer: MakeTrainer, steps: int, **more: Any) -> Trainer:
    trainer = make_trainer(max_steps=steps, num_sanity_val_steps=0, **more)
    trainer.fit(module, data)
    return trainer


# -- the loss ---------------------------------------------------------------------------------------------------------


class Losses(Callback):
    """Keeps the loss of every step."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *args: Any) -> None:
        self.values.append(float(outputs["loss"]))


@every_module
@every_sampling
def test_the_loss_is_the_sum_over_signals_of_each_ones_mse(kind: str, sampling: str, make_trainer: MakeTrainer) -> None:
    values = signals(3, 8, 6)
    data, losses = TensorDataModule(values, sampling=SAMPLINGS[sampling]), Losses()
    module = MODULES[kind](optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0))
    module.build(data.info)
    module.calibrate(data.train_batch())
    for parameter in module.parameters():
        parameter.data.normal_(std=0.1)
    fit(module, data, make_trainer, 1, callbacks=[losses], limit_val_batches=0)
    prediction = module.predict_grid(data.evaluation_batch().axes).detach()
    mask = data.split.train_mask().expand(3, -1, -1)
    expected = sum((prediction[s] - values[s])[mask[s]].square().mean() for s in range(3))
    assert losses.values == [pytest.approx(float(expected), rel=1e-5)]


def test_train_psnr_is_the_mean_over_signals(make_trainer: MakeTrainer) -> None:
    module, data = MODULES["simple"](), TensorDataModule(signals(3, 8, 6))
    assert module.last_train_psnr().isnan()
    trainer = fit(module, data, make_trainer, 4, log_every_n_steps=2)
    logged = trainer.callback_metrics["train/psnr"]
    assert logged == module.last_train_psnr()
    batch = data.train_batch()
    module.optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.0)
    fit(module, data, make_trainer, 1)  # scores what the four steps left, and changes nothing
    squared = (module.predict_grid(batch.axes) - batch.values).square().flatten(1)
    expected = psnr(squared.sum(1), torch.tensor(squared.shape[1])).mean()
    torch.testing.assert_close(module.last_train_psnr(), expected.detach(), rtol=1e-5, atol=1e-5)


def test_logging_can_be_switched_off(make_trainer: MakeTrainer) -> None:
    trainer = fit(MODULES["complex"](), TensorDataModule(signals(1, 8)), make_trainer, 2, log_every_n_steps=0)
    assert "train/psnr" not in trainer.callback_metrics


def test_the_loss_is_computed_in_full_precision(make_trainer: MakeTrainer) -> None:
    values, losses = torch.ones(1, 256, 256, 3), Losses()
    module = ComplexLinear({"name": "gau", "num_features": 4}, center=False)
    data = TensorDataModule(values, sampling="random", protocol="none")
    trainer = make_trainer(max_steps=1, precision="bf16-mixed", callbacks=[losses], limit_val_batches=0)
    trainer.fit(module, data)
    # 49 152 errors of exactly one: their sum has no bfloat16, whose neighbours lie 256 apart
    assert losses.values == [1.0]
    assert module.last_train_errors is not None
    assert module.last_train_errors[0].dtype == torch.float32


# -- independence -----------------------------------------------------------------------------------------------------


@every_module
@pytest.mark.parametrize("sampling", ["grid", "shared"])
def test_signals_fitted_together_are_those_fitted_alone(kind: str, sampling: str, make_trainer: MakeTrainer) -> None:
    values = signals(3, 10, 6)
    chosen = SAMPLINGS[sampling]

    def fitted(part: Tensor) -> dict[str, Tensor]:
        seed_everything(0, verbose=False)
        module = MODULES[kind]()
        fit(module, TensorDataModule(part, sampling=chosen), make_trainer, 12, limit_val_batches=0)
        return module.state_dict()

    together, alone = fitted(values), [fitted(values[s : s + 1]) for s in range(3)]
    trained = [key for key in together if key.startswith(("weight", "mlp", "head", "mean"))]
    assert len(trained) > 1
    for key in trained:
        assert not torch.equal(together[key][0], together[key][2]), key  # the signals do differ
        for s in range(3):
            torch.testing.assert_close(together[key][s], alone[s][key][0], rtol=2e-4, atol=2e-5)


@every_module
def test_the_same_seed_gives_the_same_result(kind: str, make_trainer: MakeTrainer) -> None:
    def fitted(seed: int) -> dict[str, Tensor]:
        seed_everything(seed, verbose=False)
        module = MODULES[kind]()
        fit(module, TensorDataModule(signals(2, 8, 6)), make_trainer, 5, limit_val_batches=0)
        return module.state_dict()

    first, second, other = fitted(1), fitted(1), fitted(2)
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert all(torch.equal(first[key], other[key]) for key in first) == (kind == "complex")  # it draws nothing


def test_each_signals_own_mask_trains_that_signal(make_trainer: MakeTrainer) -> None:
    values = signals(2, 12)
    data = TensorDataModule(values, sampling=RandomSampling(0.5))
    batch = data.train_batch()
    assert isinstance(batch, PointBatch)
    assert not torch.equal(batch.coords[0], batch.coords[1])
    module = ComplexLinear({"name": "gau", "num_features": 12}, optimizer=lambda p: torch.optim.Adam(p, lr=0.05))
    fit(module, data, make_trainer, 400, limit_val_batches=0)
    error = (module.predict_grid(data.evaluation_batch().axes) - values).abs().amax(-1)
    mask = data.split.train_mask()
    assert error[mask].max() < 0.02
    assert error[~mask].max() > 0.02


# -- the solution -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["grid", "points"])
def test_gradient_descent_reaches_least_squares(route: str, make_trainer: MakeTrainer) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(2, 12, 10, 2, generator=generator)
    sampling = "grid" if route == "grid" else RandomSampling(0.6)
    data = TensorDataModule(values, sampling=sampling, protocol="none")
    module = ComplexLinear(
        {"name": "tri", "num_features": 3, "half_width": 1 / 3},
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0, momentum=0.9),
    )
    fit(module, data, make_trainer, 400, precision="64-true", limit_val_batches=0)
    evaluation = data.evaluation_batch()
    coords = torch.cartesian_prod(*evaluation.axes).double()
    features = module.encoding(coords)
    masks = data.split.train_mask().expand(2, -1, -1).flatten(1)
    for signal in range(2):
        chosen = masks[signal]
        target = values[signal].reshape(-1, 2)[chosen].double()
        mean = target.mean(0)
        solution = torch.linalg.lstsq(features[chosen], target - mean).solution
        assert torch.linalg.cond(features[chosen]) < 100
        expected = features @ solution + mean
        got = module.predict_grid(evaluation.axes)[signal].reshape(-1, 2)
        torch.testing.assert_close(got.detach(), expected, rtol=1e-6, atol=1e-6)


def test_many_solutions_the_smallest_is_found(make_trainer: MakeTrainer) -> None:
    data = TensorDataModule(signals(1, 8), sampling="grid", protocol="none")  # four samples, eight features
    module = ComplexLinear(GAU, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0, momentum=0.9))
    fit(module, data, make_trainer, 600, precision="64-true", limit_val_batches=0)
    batch = data.train_batch()
    features = module.encoding(batch.axes[0].double()[:, None])
    target = (batch.values[0].double() - module.mean[0]).T
    expected = target @ torch.linalg.pinv(features).T
    torch.testing.assert_close(module.weight[0].detach(), expected, rtol=1e-6, atol=1e-6)


# -- buffers ----------------------------------------------------------------------------------------------------------


@every_sampling
def test_the_mean_is_that_of_the_trained_samples(sampling: str, make_trainer: MakeTrainer) -> None:
    values = signals(3, 8, 6)
    data = TensorDataModule(values, sampling=SAMPLINGS[sampling])
    module, raw = ComplexLinear(GAU), ComplexLinear(GAU, center=False, normalize=False)
    for made in (module, raw):
        fit(made, data, make_trainer, 1)
    mask = data.split.train_mask().expand(3, -1, -1)
    expected = torch.stack([values[s][mask[s]].mean(0) for s in range(3)])
    torch.testing.assert_close(module.mean, expected, rtol=1e-6, atol=1e-6)
    assert raw.mean.abs().max() == 0
    assert raw.encoding.scales.tolist() == [1, 1]
    assert (module.encoding.scales != 1).all()
    assert "mean" in module.state_dict()
    assert "mean" not in dict(module.named_parameters())


def test_a_flat_signal_is_known_before_the_first_step(make_trainer: MakeTrainer) -> None:
    data = TensorDataModule(torch.full((1, 6, 6, 1), 0.25))
    module = ComplexLinear(GAU)
    fit(module, data, make_trainer, 1)
    prediction = module.predict_grid(data.evaluation_batch().axes)
    torch.testing.assert_close(prediction, torch.full((1, 6, 6, 1), 0.25))


# -- features are never stale -----------------------------------------------------------------------------------------


class Trainable(Encoder):
    """Gaussians of a width that is learned."""

    def __init__(self, num_features: int = 6) -> None:
        super().__init__(num_features)
        self.log_sigma = nn.Parameter(torch.tensor(-2.0))

    def forward(self, x: Tensor) -> Tensor:
        shifts = torch.arange(self.num_features, dtype=x.dtype, device=x.device) / self.num_features
        return torch.exp(-(((x[..., None] - shifts) / self.log_sigma.exp()) ** 2) / 2)


@pytest.mark.parametrize("module", [ComplexLinear, SimpleMLP])
@every_sampling
def test_features_that_are_trained_are_computed_anew(
    module: type[CoordinateModule], sampling: str, make_trainer: MakeTrainer
) -> None:
    more: dict[str, Any] = {} if module is ComplexLinear else {"layout": "axes", "depth": 1, "width": 8}
    data, losses = TensorDataModule(signals(2, 8, 6), sampling=SAMPLINGS[sampling]), Losses()
    seed_everything(0, verbose=False)
    made = module(Trainable(), optimizer=lambda p: torch.optim.SGD(p, lr=0.05), **more)
    fit(made, data, make_trainer, 4, callbacks=[losses], limit_val_batches=0)
    assert -2.0 not in {encoder.log_sigma.item() for encoder in made.encoding.encoders}
    # the same in a bare loop that keeps nothing from one step to the next
    seed_everything(0, verbose=False)
    bare, batch, expected = module(Trainable(), **more), data.train_batch(), []
    bare.build(data.info)
    bare.calibrate(batch)
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.05)
    for _ in range(4):
        bare.kept.clear()
        optimizer.zero_grad()
        loss = bare.errors(batch).square().mean(1).sum()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert losses.values == pytest.approx(expected, rel=1e-5)
    assert not made.kept


def test_parameters_that_signals_share_are_counted_once() -> None:
    module = ComplexLinear(Trainable())
    module.build(SignalInfo(("a", "b", "c"), (4, 4), 2))
    assert module.num_params == 2 * 36 + 1


@every_module
@every_sampling
def test_a_second_fit_on_other_data(kind: str, sampling: str, make_trainer: MakeTrainer) -> None:
    values = signals(2, 8, 6)
    first = TensorDataModule(values, sampling=SAMPLINGS[sampling])
    second = TensorDataModule(values.flip(0, 1), sampling=SAMPLINGS[sampling])
    module, losses = MODULES[kind](), Losses()
    fit(module, first, make_trainer, 3, limit_val_batches=0)
    expected = module.errors(second.train_batch()).detach().square().mean(1).sum()
    module.kept.clear()
    fit(module, second, make_trainer, 1, callbacks=[losses], limit_val_batches=0)
    assert losses.values == [pytest.approx(float(expected), rel=1e-5)]


@every_module
def test_batches_that_share_coordinates_keep_their_own_values(kind: str) -> None:
    module, values = MODULES[kind](), signals(2, 8, 6)
    data = TensorDataModule(values)
    module.build(data.info)
    batch = data.train_batch()
    other = GridBatch(batch.axes, 1 - batch.values)
    apart = module.errors(other)
    module.kept.clear()
    module.errors(batch)
    torch.testing.assert_close(module.errors(other), apart, rtol=0, atol=0)


@pytest.mark.parametrize(("sampling", "points"), [("grid", 12), ("random", 2 * 24), ("shared", 24)])
@pytest.mark.parametrize("spare", [0, -1])
def test_features_that_would_fill_the_memory_are_not_kept(
    sampling: str, points: int, spare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simple_mlp, "CACHE_LIMIT", points * 8 * 4 + spare)  # points, features, bytes
    data, module = TensorDataModule(signals(2, 8, 6), sampling=SAMPLINGS[sampling]), MODULES["simple"]()
    module.build(data.info)
    module.errors(data.train_batch())
    assert bool(module.kept) == (spare == 0)


# -- optimisers, schedulers, precision --------------------------------------------------------------------------------


def test_a_scheduler_is_stepped_every_optimiser_step(make_trainer: MakeTrainer) -> None:
    module = ComplexLinear(
        GAU,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
        lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step),
    )
    trainer = fit(module, TensorDataModule(signals(1, 8), steps_per_epoch=3), make_trainer, 5)
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.5**5


def plateau(**more: Any) -> ComplexLinear:
    return ComplexLinear(
        GAU,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-9),  # nothing improves
        lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, factor=0.1, patience=0, threshold=1e-3, eps=0, **more
        ),
    )


@pytest.mark.parametrize("every", [1, 2])
def test_a_plateau_is_looked_for_at_every_validation(every: int, make_trainer: MakeTrainer) -> None:
    data = TensorDataModule(signals(1, 8), steps_per_epoch=1)
    trainer = fit(plateau(mode="max"), data, make_trainer, 5, check_val_every_n_epoch=every)
    validations = 5 // every  # the first sets the mark
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(1e-9 * 0.1 ** (validations - 1))


def test_a_plateau_of_psnr_is_a_maximum(make_trainer: MakeTrainer) -> None:
    with pytest.raises(InputError, match="ReduceLROnPlateau: val/psnr grows as the fit improves; set mode='max'"):
        fit(plateau(), TensorDataModule(signals(1, 8)), make_trainer, 1)


@every_module
def test_float64(kind: str, make_trainer: MakeTrainer) -> None:
    data, module = TensorDataModule(signals(2, 8, 6)), MODULES[kind]()
    trainer = fit(module, data, make_trainer, 3, precision="64-true")
    assert {p.dtype for p in module.parameters()} == {torch.float64}
    trainer.test(module, data, verbose=False)
    assert module.scores["test/psnr"].dtype == torch.float64
    prediction = module.predict_grid(data.evaluation_batch().axes).detach()
    assert prediction.dtype == torch.float64
    squared = (prediction - data.values).square()
    for s, mask in enumerate(~data.split.train_mask().expand(2, -1, -1)):
        expected = -10 * math.log10(float(squared[s][mask].mean()))
        assert module.scores["test/psnr"][s].item() == pytest.approx(expected, abs=1e-9)


@every_module
def test_scores_are_of_the_weights_whatever_the_steps_round(kind: str, make_trainer: MakeTrainer) -> None:
    data, module = TensorDataModule(signals(2, 16, 12)), MODULES[kind]()
    trainer = fit(module, data, make_trainer, 30, precision="bf16-mixed", limit_val_batches=0)
    trainer.test(module, data, verbose=False)
    rounded = module.scores["test/psnr"]
    exact = make_trainer(precision="32-true")
    exact.test(module, data, verbose=False)
    assert torch.equal(rounded, module.scores["test/psnr"])


@pytest.mark.parametrize("precision", ["bf16-true", "16-true"])
def test_precisions_that_round_coordinates_are_refused(precision: Any, make_trainer: MakeTrainer) -> None:
    mixed = precision.replace("true", "mixed")
    with pytest.raises(InputError, match=f"would round the coordinates.*use '{mixed}' or '32-true'"):
        fit(ComplexLinear(GAU), TensorDataModule(signals(1, 8)), make_trainer, 1, precision=precision)


# -- scores -----------------------------------------------------------------------------------------------------------


def test_test_scores_held_out_and_trained_samples_apart(make_trainer: MakeTrainer) -> None:
    values = signals(3, 8, 6)
    data, module = TensorDataModule(values, sampling=RandomSampling(0.5)), MODULES["complex"]()
    trainer = fit(module, data, make_trainer, 10)
    (logged,) = trainer.test(module, data, verbose=False)
    squared = (module.predict_grid(data.evaluation_batch().axes) - values).square()
    trained = data.split.train_mask()
    for key, mask in (("test/psnr", ~trained), ("train/psnr", trained)):
        expected = torch.stack([-10 * squared[s][mask[s]].mean().log10() for s in range(3)])
        torch.testing.assert_close(module.scores[key].float(), expected, rtol=1e-5, atol=1e-4)
    assert logged["test/psnr"] == pytest.approx(float(module.scores["test/psnr"].mean()))
    assert logged["test/train_psnr"] == pytest.approx(float(module.scores["train/psnr"].mean()))
    assert float(trainer.validate(module, data, verbose=False)[0]["val/psnr"]) == pytest.approx(logged["test/psnr"])


def test_nothing_held_out(make_trainer: MakeTrainer) -> None:
    data, module = TensorDataModule(signals(2, 8), protocol="none"), MODULES["complex"]()
    trainer = fit(module, data, make_trainer, 2)
    assert "val/psnr" not in trainer.callback_metrics
    (logged,) = trainer.test(module, data, verbose=False)
    assert module.scores["test/psnr"].isnan().all()
    assert set(logged) == {"test/train_psnr"}


# -- what is refused --------------------------------------------------------------------------------------------------


def test_data_without_a_shape(make_trainer: MakeTrainer) -> None:
    with pytest.raises(InputError, match=r"ComplexLinear needs the shape .* TensorDataModule\(values\)"):
        make_trainer(max_steps=1).fit(ComplexLinear(GAU), train_dataloaders=[1], val_dataloaders=[1])


def test_a_fitted_module_refuses_data_of_another_shape(make_trainer: MakeTrainer) -> None:
    module = ComplexLinear(GAU)
    fit(module, TensorDataModule(signals(2, 8)), make_trainer, 1)
    other = TensorDataModule(signals(3, 8))
    with pytest.raises(InputError, match=r"holds 2 signal\(s\) of 1 axes.*the data has 3 signal\(s\)"):
        fit(module, other, make_trainer, 1)
