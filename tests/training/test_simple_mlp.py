"""SimpleMLP with every activation: its optimiser, bare loops, checkpoints, derivatives; what is chosen by spectra."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from fits import MakeTrainer, fit, signals
from lightning.pytorch import seed_everything
from lightning.pytorch.plugins.precision import DoublePrecision
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.networks.spectrum import distance, spectra
from pe_lightning.training import Adaptive, ComplexLinear, CoordinateModule, SimpleMLP, TensorDataModule

SMALL: dict[str, Any] = {"encoder": "identity", "depth": 2, "hidden_size": 12}
RATES = {"relu": 5e-3, "sine": 5e-4, "gabor": 5e-3, "finer": 5e-4, "gauss": 3e-3, "staf": 5e-4}


def waves(frequency: float, size: int = 32) -> Tensor:
    """``(1, size, size, 1)``: waves along both axes."""
    x = torch.arange(size) / size
    return (0.5 + 0.2 * torch.sin(2 * math.pi * frequency * x[:, None]) + 0.2 * torch.cos(2 * math.pi * frequency * x))[
        None, ..., None
    ]


@pytest.mark.parametrize("activation", RATES)
def test_a_fit_is_a_bare_loop_at_the_rate_of_the_activation(activation: str, make_trainer: MakeTrainer) -> None:
    """Also clipped; two signals together are the two alone."""
    values = signals(2, 8, 6).double()

    def fitted(some: Tensor, **more: Any) -> SimpleMLP:
        seed_everything(0, verbose=False)
        module = SimpleMLP(activation=activation, **SMALL)
        fit(module, TensorDataModule(some), make_trainer, 5, limit_val_batches=0, precision="64-true", **more)
        return module

    axes = [torch.arange(8).double() / 8, torch.arange(6).double() / 6]
    torch.testing.assert_close(fitted(values).predict_grid(axes)[1:], fitted(values[1:]).predict_grid(axes))
    together = fitted(values, gradient_clip_val=0.1)
    seed_everything(0, verbose=False)
    bare, data = SimpleMLP(activation=activation, **SMALL), TensorDataModule(values)
    with DoublePrecision().module_init_context():  # the same draw as the Trainer's
        bare.build_from(data)
    batch = data.train_batch()
    decay = 1e-8 if activation == "relu" else 0.0
    optimizer = torch.optim.Adam(bare.parameters(), lr=RATES[activation], weight_decay=decay)
    for _ in range(5):
        optimizer.zero_grad()
        coords = torch.stack(torch.meshgrid(*batch.axes, indexing="ij"), -1)  # type: ignore[arg-type]
        (bare(coords) - batch.values).square().mean((1, 2, 3)).sum().backward()
        torch.nn.utils.clip_grad_norm_(bare.parameters(), 0.1)
        optimizer.step()
    torch.testing.assert_close(together.predict_grid(axes), bare.predict_grid(axes))


@pytest.mark.parametrize("precision", ["64-true", "bf16-mixed"])
@pytest.mark.parametrize("activation", ["gabor", "staf", "finer", "gauss"])
def test_every_activation_trains_in_other_precisions(activation: str, precision: str, make_trainer: MakeTrainer) -> None:
    module, data = SimpleMLP(activation=activation, **SMALL), TensorDataModule(signals(2, 8, 6))
    trainer = fit(module, data, make_trainer, 2, limit_val_batches=0, precision=precision)
    trainer.test(module, data, verbose=False)
    assert module.scores["test/psnr"].isfinite().all()


def test_a_chosen_omega_is_reported_and_saved(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """A signal of higher frequency gets a higher omega; the same every time; nobody else's random numbers change."""
    found = []
    for frequency in (1.5, 1.5, 6.0):
        module, before = SimpleMLP(activation="sine", omega="auto", **SMALL), torch.get_rng_state()
        module.choose(TensorDataModule(waves(frequency)), torch.device("cpu"))
        assert torch.equal(torch.get_rng_state(), before)
        assert module.solution is not None
        found.append(module.solution.spectrum.value)
        assert module.solution.spectrum.parameter == "omega"
        rows = module.solution.spectrum.distances
        assert found[-1] == min(rows, key=lambda row: row[1])[0]
    assert found[0] == found[1] < found[2]
    trainer = fit(module, TensorDataModule(waves(6.0)), make_trainer, 2, limit_val_batches=0)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    loaded = SimpleMLP.load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    coords = torch.rand(7, 2)
    assert torch.equal(loaded(coords), module(coords))
    assert loaded.networks.network.mlp.activations[0].omega.item() == pytest.approx(found[2])
    assert loaded.solution == module.solution
    assert loaded.describe()["network"] == pytest.approx(module.describe()["network"])


@pytest.mark.parametrize("name", ["rff", "gau", "linf"])
def test_a_width_is_chosen_by_spectra(name: str, make_trainer: MakeTrainer) -> None:
    """Rougher for a rougher signal, in the argument of the encoder."""
    found = []
    for frequency in (1.0, 7.0):
        module = SimpleMLP({"name": name, "num_features": 32, "sigma": "auto"}, depth=1, hidden_size=16)
        fit(module, TensorDataModule(waves(frequency)), make_trainer, 1, limit_val_batches=0)
        assert module.solution is not None
        assert module.solution.spectrum.parameter == "sigma"
        found.append(module.encoding.encoders[0].resolved()["sigma"])
        assert found[-1] == pytest.approx(module.solution.spectrum.value)
    assert found[0] > found[1] if name == "gau" else found[0] < found[1]


def test_invalid_automatic_choices_are_refused(make_trainer: MakeTrainer) -> None:
    scattered = TensorDataModule(signals(1, 16, 16), sampling="random")
    with pytest.raises(InputError, match=r"samples are scattered; give a number, such as --model.omega 30"):
        fit(SimpleMLP("identity", activation="sine", omega="auto"), scattered, make_trainer, 1)
    with pytest.raises(InputError, match="8 samples along an axis"):
        fit(SimpleMLP({"name": "rff", "sigma": "auto"}), TensorDataModule(signals(1, 8, 8)), make_trainer, 1)
    with pytest.raises(InputError, match="one width is chosen for all encoders, or omega"):
        SimpleMLP({"name": "rff", "sigma": "auto"}, activation="sine", omega="auto")
    gabor = SimpleMLP("identity", activation="gabor", omega="auto", activation_scale=0.1)
    with pytest.raises(InputError, match="gabor overflows"):
        fit(gabor, TensorDataModule(signals(1, 32, 32)), make_trainer, 1)
    built = SimpleMLP("identity", activation="sine", omega="auto")
    built.build(TensorDataModule(waves(1)).info)
    with pytest.raises(InputError, match="built before its width was chosen"):
        fit(built, TensorDataModule(waves(1)), make_trainer, 1)


def test_spectra_and_their_distance() -> None:
    """A wave is one frequency; the distance is how far the mass has to move."""
    x = torch.arange(64) / 64
    one, other = (spectra(torch.sin(2 * math.pi * f * x)[None, None, :, None] + 3)[0] for f in (4, 12))
    assert one.argmax() == 3
    assert other.argmax() == 11
    assert one.sum().item() == pytest.approx(1)
    assert distance(one, other).item() == pytest.approx(math.log2(12 / 4), rel=0.05)
    assert spectra(torch.full((1, 1, 64, 1), 0.3))[0, 0].item() == pytest.approx(1, abs=1e-3)


DERIVED: dict[str, CoordinateModule] = {
    "siren": SimpleMLP(activation="sine", signals_per_chunk=1, **SMALL),
    "complex": ComplexLinear({"name": "gau", "num_features": 8, "sigma": 0.15}),
    "adaptive": Adaptive(angles=0, aspects=[]),
    "adaptive scattered": Adaptive(angles=0, aspects=[]),
}


@pytest.mark.parametrize("kind", DERIVED)
def test_derivatives_of_every_module(kind: str) -> None:
    """Against differences of values; zero steps of a fit are enough, but for a linear layer that starts at zero."""
    module, sampling = DERIVED[kind].double(), "random" if kind.endswith("scattered") else "grid"
    module.build_from(TensorDataModule(signals(2, 16, 12).double(), sampling=sampling))
    module.double()
    if isinstance(module, ComplexLinear):
        module.weight.data.normal_()
    coords, step = (0.2 + 0.6 * torch.rand(2, 3, 2, dtype=torch.float64)).requires_grad_(), 1e-4
    (gradient,) = torch.autograd.grad(module(coords).sum(), coords, create_graph=True)
    units = step * torch.eye(2, dtype=torch.float64)
    with torch.no_grad():
        ends = [(module(coords + u) - module(coords - u)).sum((0, -1)) / (2 * step) for u in units]
    expected = torch.stack(ends, -1)
    torch.testing.assert_close(gradient.detach(), expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
    (curvature,) = torch.autograd.grad(gradient.square().sum(), coords)
    assert curvature.isfinite().all()
    with pytest.raises(InputError, match=r"shape \(\*batch, 2\)"):
        module(coords[..., :1])


def test_the_omega_of_gabor_is_one_that_may_be_given(make_trainer: MakeTrainer) -> None:
    """Noise asks for more than six times the scale, where the values of gabor overflow."""
    noise = torch.rand(1, 128, 128, 1, generator=torch.Generator().manual_seed(0))
    module = SimpleMLP("identity", depth=2, hidden_size=8, activation="gabor", omega="auto", activation_scale=2.0)
    fit(module, TensorDataModule(noise), make_trainer, 1)
    assert module.solution is not None
    assert module.solution.spectrum.value <= 12
