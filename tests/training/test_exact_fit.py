"""A ComplexLinear that starts from, or is, the exact fit."""

import numpy as np
import pytest
import torch
from fits import fitted, smooth

from pe_lightning.errors import InputError
from pe_lightning.signals import Batching, RandomSampling
from pe_lightning.training import ComplexLinear, TensorDataModule

GAU = {"name": "gau", "num_features": 12}


def test_it_is_the_ridge_regression_of_numpy(make_trainer):
    """The Kronecker product formed, one augmented least-squares problem, float64."""
    data = TensorDataModule(smooth(1, (12, 10), 1))
    model = fitted(make_trainer, ComplexLinear(GAU, solver="exact", ridge=0.01, normalize=False), data)
    batch = data.train_batch()
    psi = [encoder(x.double()).numpy() for encoder, x in zip(model.encoding.encoders, batch.axes, strict=True)]
    joint = np.kron(*psi)
    y = batch.values[0, ..., 0].double().numpy().reshape(-1)
    rho = 0.01 * np.square(joint).sum(1).mean()
    augmented = np.concatenate([joint, np.sqrt(rho) * np.eye(joint.shape[1])])
    w = np.linalg.lstsq(augmented, np.concatenate([y - y.mean(), np.zeros(joint.shape[1])]), rcond=None)[0]
    torch.testing.assert_close(model.weight[0, 0].double().flatten(), torch.from_numpy(w), atol=1e-5, rtol=1e-4)
    assert (model.solution.ridge, model.solution.solver) == (0.01, "grid")


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("center", [True, False])
def test_scales_and_means_are_those_of_the_module(make_trainer, normalize, center):
    data = TensorDataModule(smooth())
    model = ComplexLinear(GAU, solver="exact", ridge=1e-6, normalize=normalize, center=center)
    fitted(make_trainer, model, data)
    batch = data.train_batch()
    # 12 features on 12 and 10 samples: the training samples are reproduced
    torch.testing.assert_close(model.predict_grid(batch.axes), batch.values, atol=1e-3, rtol=0)
    assert bool(model.mean.any()) == center


@pytest.mark.parametrize(("depth", "activation"), [(1, "relu"), (3, "gelu")])
def test_a_head_starts_from_the_solution(make_trainer, depth, activation):
    data = TensorDataModule(smooth())
    linear = fitted(make_trainer, ComplexLinear(GAU, solver="exact", ridge=1e-3), data)
    deep = ComplexLinear(GAU, depth=depth, hidden_size=16, activation=activation, solver="exact", ridge=1e-3)
    fitted(make_trainer, deep, data)
    axes = data.evaluation_batch().axes
    torch.testing.assert_close(deep.predict_grid(axes), linear.predict_grid(axes), atol=1e-5, rtol=0)


def test_a_head_can_still_learn(make_trainer):
    """No unit is dead: the loss falls below the solution's, and every layer moves."""
    data = TensorDataModule(smooth())
    optimizer = lambda parameters: torch.optim.Adam(parameters, lr=1e-3)  # noqa: E731
    start = ComplexLinear(GAU, depth=2, hidden_size=16, solver="exact", ridge=0.1)
    trained = ComplexLinear(GAU, depth=2, hidden_size=16, solver="exact", ridge=0.1, optimizer=optimizer)
    torch.manual_seed(0)
    fitted(make_trainer, start, data)
    torch.manual_seed(0)
    fitted(make_trainer, trained, data, steps=50)
    batch = data.train_batch()
    assert trained.errors(batch).square().sum() < 0.9 * start.errors(batch).square().sum()
    for before, after in zip(start.parameters(), trained.parameters(), strict=True):
        assert not torch.equal(before, after)


@pytest.mark.parametrize("sampling", ["grid", "random"])
def test_sigma_and_ridge_are_chosen_and_come_back_from_the_checkpoint(make_trainer, tmp_path, sampling):
    data = TensorDataModule(smooth(1, (40, 40)), sampling=sampling if sampling == "grid" else RandomSampling(0.5))
    model = ComplexLinear({"name": "gau", "num_features": 20, "sigma": "auto"}, solver="exact")
    trainer = make_trainer(max_steps=0, num_sanity_val_steps=0)
    trainer.fit(model, datamodule=data)
    chosen = model.encoding.encoders[0].sigma
    choice = model.solution.choice
    assert model.solution.ridge == choice["ridge"] > 0
    assert len(choice["curve"]) > 3
    trainer.save_checkpoint(tmp_path / "model.ckpt", weights_only=False)
    torch.load(tmp_path / "model.ckpt", weights_only=True)
    again = ComplexLinear.load_from_checkpoint(tmp_path / "model.ckpt")
    assert again.encoding.encoders[0].sigma == chosen
    axes = data.evaluation_batch().axes
    assert torch.equal(again.predict_grid(axes), model.predict_grid(axes))
    assert again.solution == model.solution


def test_a_resumed_fit_does_not_solve_again(make_trainer, tmp_path, monkeypatch):
    data = TensorDataModule(smooth(), batching=Batching(steps_per_epoch=2))
    model = ComplexLinear(GAU, solver="exact", ridge=1e-3)
    trainer = make_trainer(max_steps=4, num_sanity_val_steps=0)
    trainer.fit(model, datamodule=data)
    trainer.save_checkpoint(tmp_path / "model.ckpt", weights_only=False)
    monkeypatch.setattr("pe_lightning.estimators.linear.solve_grid", lambda *_: pytest.fail("solved again"))
    resumed = ComplexLinear(GAU, solver="exact", ridge=1e-3)
    make_trainer(max_steps=6, num_sanity_val_steps=0).fit(resumed, datamodule=data, ckpt_path=str(tmp_path / "model.ckpt"))
    assert not torch.equal(resumed.weight, model.weight)
    assert resumed.solution == model.solution


def test_other_refusals(make_trainer):
    with pytest.raises(InputError, match="gelu, relu, silu"):
        ComplexLinear(GAU, depth=1, activation="tanh", solver="exact")
    with pytest.raises(InputError, match="hidden_size >= 6"):
        fitted(make_trainer, ComplexLinear(GAU, depth=1, hidden_size=4, solver="exact"), TensorDataModule(smooth()))
    mixed = [{"name": "gau", "num_features": 8, "sigma": "auto"}, "gau"]
    with pytest.raises(InputError, match="all axes together"):
        fitted(make_trainer, ComplexLinear(mixed, solver="exact"), TensorDataModule(smooth()))
