"""Fits under a Trainer: what is learned, by whom, and that it depends on nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fits import GAU, MODULES, SAMPLINGS, Losses, MakeTrainer, fit, signals
from lightning.pytorch import seed_everything
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.signals import Batching, grid_axes
from pe_lightning.signals.sampling import RandomSampling
from pe_lightning.training import ComplexLinear, TensorDataModule

every_module = pytest.mark.parametrize("kind", MODULES)
every_sampling = pytest.mark.parametrize("sampling", SAMPLINGS)


# -- the loss ---------------------------------------------------------------------------------------------------------


@every_module
@every_sampling
def test_the_loss_is_the_sum_over_signals_of_each_ones_mse(kind: str, sampling: str, make_trainer: MakeTrainer) -> None:
    values = signals(3, 8, 6)
    data, losses = TensorDataModule(values, sampling=SAMPLINGS[sampling]), Losses()
    module = MODULES[kind](optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0))
    module.build_from(data)
    for parameter in module.parameters():
        parameter.data.normal_(std=0.1)
    fit(module, data, make_trainer, 1, callbacks=[losses], limit_val_batches=0)
    prediction = module.predict_grid(data.evaluation_batch().axes).detach()
    mask = data.signals.split.train_mask().expand(3, -1, -1)
    expected = sum((prediction[s] - values[s])[mask[s]].square().mean() for s in range(3))
    assert losses.values == [pytest.approx(float(expected), rel=1e-5)]


def test_the_loss_is_computed_in_full_precision(make_trainer: MakeTrainer) -> None:
    values, losses = torch.ones(1, 256, 256, 3), Losses()
    module = ComplexLinear({"name": "gau", "num_features": 4}, center=False)
    data = TensorDataModule(values, sampling="random", eval_mask="none")
    trainer = make_trainer(max_steps=1, precision="bf16-mixed", callbacks=[losses], limit_val_batches=0)
    trainer.fit(module, data)
    # 49 152 errors of exactly one: their sum has no bfloat16, whose neighbours lie 256 apart
    assert losses.values == [1.0]
    assert module.batch_psnr.dtype == torch.float32


# -- independence -----------------------------------------------------------------------------------------------------


@every_module
@pytest.mark.parametrize("sampling", ["grid", "shared"])
def test_signals_fitted_together_are_those_fitted_alone(kind: str, sampling: str, make_trainer: MakeTrainer) -> None:
    values = signals(2, 10, 6)

    def fitted(part: Tensor) -> dict[str, Tensor]:
        seed_everything(0, verbose=False)
        module = MODULES[kind]()
        fit(module, TensorDataModule(part, sampling=SAMPLINGS[sampling]), make_trainer, 8, limit_val_batches=0)
        return module.state_dict()

    together, alone = fitted(values), fitted(values[1:])
    trained = [key for key in together if not key.startswith("networks.network.encoding.")]
    assert len(trained) > 1
    for key in trained:
        assert not torch.equal(together[key][0], together[key][1]), key  # the signals do differ
        torch.testing.assert_close(together[key][1], alone[key][0], rtol=2e-4, atol=2e-5)


# -- the solution -----------------------------------------------------------------------------------------------------


def test_gradient_descent_reaches_least_squares(make_trainer: MakeTrainer) -> None:
    """Of scattered samples, other ones for each signal; the least-norm solution below is of a grid."""
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(2, 12, 10, 2, generator=generator)
    data = TensorDataModule(values, sampling=RandomSampling(0.6), eval_mask="none")
    module = ComplexLinear(
        {"name": "tri", "num_features": 3, "half_width": 1 / 3},
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0, momentum=0.9),
    )
    fit(module, data, make_trainer, 300, precision="64-true", limit_val_batches=0, log_every_n_steps=0)
    evaluation = data.evaluation_batch()
    coords = torch.cartesian_prod(*evaluation.axes).double()
    features = module.encoding(coords)
    masks = data.signals.split.train_mask().expand(2, -1, -1).flatten(1)
    for signal in range(2):
        chosen = masks[signal]
        target = values[signal].reshape(-1, 2)[chosen].double()
        mean = target.mean(0)
        solution = torch.linalg.lstsq(features[chosen], target - mean).solution
        assert torch.linalg.cond(features[chosen]) < 100
        expected = features @ solution + mean
        got = module.predict_grid(evaluation.axes)[signal].reshape(-1, 2)
        torch.testing.assert_close(got.detach(), expected, rtol=1e-6, atol=1e-6)


# -- buffers ----------------------------------------------------------------------------------------------------------


@every_sampling
def test_the_mean_is_that_of_the_trained_samples(sampling: str, make_trainer: MakeTrainer) -> None:
    values = signals(3, 8, 6)
    data = TensorDataModule(values, sampling=SAMPLINGS[sampling])
    module, raw = ComplexLinear(GAU), ComplexLinear(GAU, center=False, normalize=False)
    for made in (module, raw):
        fit(made, data, make_trainer, 1)
    mask = data.signals.split.train_mask().expand(3, -1, -1)
    expected = torch.stack([values[s][mask[s]].mean(0) for s in range(3)])
    torch.testing.assert_close(module.mean, expected, rtol=1e-6, atol=1e-6)
    assert raw.mean.abs().max() == 0
    assert raw.encoding.scales.tolist() == [1, 1]
    assert (module.encoding.scales != 1).all()
    assert not any(module.mean is parameter for parameter in module.parameters())


# -- features are never stale -----------------------------------------------------------------------------------------


@every_module
@every_sampling
def test_a_second_fit_on_other_data(kind: str, sampling: str, make_trainer: MakeTrainer) -> None:
    values = signals(2, 8, 6)
    first = TensorDataModule(values, sampling=SAMPLINGS[sampling])
    second = TensorDataModule(values.flip(0, 1), sampling=SAMPLINGS[sampling])
    module, losses = MODULES[kind](), Losses()
    fit(module, first, make_trainer, 3, limit_val_batches=0)
    expected = module.errors(second.train_batch()).detach().square().mean(1).sum()
    fit(module, second, make_trainer, 1, callbacks=[losses], limit_val_batches=0)
    assert losses.values == [pytest.approx(float(expected), rel=1e-5)]


# -- optimisers, schedulers, precision --------------------------------------------------------------------------------


def test_a_scheduler_is_stepped_every_optimiser_step(make_trainer: MakeTrainer) -> None:
    module = ComplexLinear(
        GAU,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
        lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step),
    )
    trainer = fit(module, TensorDataModule(signals(1, 8), batching=Batching(steps_per_epoch=3)), make_trainer, 5)
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
    data = TensorDataModule(signals(1, 8), batching=Batching(steps_per_epoch=1))
    trainer = fit(plateau(mode="max"), data, make_trainer, 5, check_val_every_n_epoch=every)
    validations = 5 // every  # the first sets the mark
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(1e-9 * 0.1 ** (validations - 1))


def test_a_plateau_of_psnr_is_a_maximum(make_trainer: MakeTrainer) -> None:
    with pytest.raises(InputError, match="ReduceLROnPlateau: val/psnr grows as the fit improves; set mode='max'"):
        fit(plateau(), TensorDataModule(signals(1, 8)), make_trainer, 1)


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
    trained = data.signals.split.train_mask()
    for key, mask in (("test/psnr", ~trained), ("train/psnr", trained)):
        expected = torch.stack([-10 * squared[s][mask[s]].mean().log10() for s in range(3)])
        torch.testing.assert_close(module.scores[key].float(), expected, rtol=1e-5, atol=1e-4)
    assert logged["test/psnr"] == pytest.approx(float(module.scores["test/psnr"].mean()))
    assert logged["train/psnr"] == pytest.approx(float(module.scores["train/psnr"].mean()))
    assert float(trainer.validate(module, data, verbose=False)[0]["val/psnr"]) == pytest.approx(logged["test/psnr"])


def test_nothing_held_out(make_trainer: MakeTrainer) -> None:
    data, module = TensorDataModule(signals(2, 8), eval_mask="none"), MODULES["complex"]()
    trainer = fit(module, data, make_trainer, 2)
    assert "val/psnr" not in trainer.callback_metrics
    (logged,) = trainer.test(module, data, verbose=False)
    assert module.scores["test/psnr"].isnan().all()
    assert set(logged) == {"train/psnr"}


# -- what is refused --------------------------------------------------------------------------------------------------


def test_data_without_a_shape(make_trainer: MakeTrainer) -> None:
    with pytest.raises(InputError, match=r"ComplexLinear needs the shape .* TensorDataModule\(values\)"):
        make_trainer(max_steps=1).fit(ComplexLinear(GAU), train_dataloaders=[1], val_dataloaders=[1])


def test_a_python_fit_says_its_score_and_predicts(make_trainer, caplog):
    """Where Lightning's own progress bar is shown; a fit that draws nothing says nothing."""
    data, module = TensorDataModule(signals(2, 16, 12)), ComplexLinear(GAU, solver="exact")
    with caplog.at_level("INFO", "lightning.pytorch.utilities.rank_zero"):
        trainer = fit(module, data, make_trainer, 0, enable_progress_bar=True)
    (said,) = [record.getMessage() for record in caplog.records if "PSNR" in record.getMessage()]
    trainer.test(module, data, verbose=False)
    expected = module.scores["test/psnr"].mean().item()
    assert said == f"held-out PSNR: {expected:.2f} dB, samples that are not trained on (rest); mean over 2 signals"
    (predicted,) = trainer.predict(module, data)
    torch.testing.assert_close(predicted, module.predict_grid(grid_axes((16, 12))))
    caplog.clear()
    fit(ComplexLinear(GAU, solver="exact"), data, make_trainer, 0)
    assert not any("PSNR" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("module", "steps", "said"),
    [
        (lambda: ComplexLinear(GAU, solver="exact", lr=0.1), 0, "lr: not used, as the fit takes no steps."),
        (lambda: ComplexLinear(GAU, encoder_lr=0.1, hidden_size=8), 1, "encoder_lr: not used, as the encoder has no"),
        (lambda: ComplexLinear(GAU, hidden_size=8), 1, "hidden_size: not used, as there are no hidden layers (depth 0)."),
        (lambda: ComplexLinear(GAU, hidden_size=8, depth=1, lr=0.1), 1, None),
    ],
)
def test_arguments_that_a_fit_does_not_read_are_named(module, steps, said, make_trainer, caplog):
    with caplog.at_level("INFO"):
        fit(module(), TensorDataModule(signals(1, 8, 6)), make_trainer, steps)
    assert [said in caplog.text if said else "not used" not in caplog.text] == [True]
