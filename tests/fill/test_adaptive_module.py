"""The module Adaptive: by command and by Python, its checkpoint, many signals, what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import skimage
import torch
from fits import fit, signals
from torch.utils._python_dispatch import TorchDispatchMode

import pe_lightning
from pe_fill import Adaptive
from pe_lightning.errors import InputError
from pe_lightning.evaluation.baselines import interpolate
from pe_lightning.signals.sampling import GridSampling, RandomSampling
from pe_lightning.training import TensorDataModule

SAMPLINGS = {"grid": GridSampling(2), "strides": GridSampling([3, 2], [1, 0]), "random": RandomSampling(0.3, shared=True)}


def textured(count: int, *grid: int, channels: int = 2) -> torch.Tensor:
    """Smooth signals with some noise, so that members differ."""
    noise = torch.rand(count, *grid, channels, generator=torch.Generator().manual_seed(0))
    return (0.8 * signals(count, *grid, channels=channels) + 0.2 * noise).clamp(0, 1)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS.keys())
@pytest.mark.slow
def test_signals_fitted_together_are_the_signals_fitted_alone(sampling, make_trainer):
    values = textured(3, 18, 16)
    together = Adaptive(angles=2, noise="auto")
    fit(together, TensorDataModule(values, sampling=sampling), make_trainer, 0)
    axes = [torch.arange(n) / n for n in (18, 16)]
    for place in range(3):
        alone = Adaptive(angles=2, noise="auto")
        fit(alone, TensorDataModule(values[place : place + 1], sampling=sampling), make_trainer, 0)
        torch.testing.assert_close(alone.predict_grid(axes)[0], together.predict_grid(axes)[place], rtol=0, atol=0)


def test_values_are_differentiable_in_the_coordinates_after_a_test_of_lightning(make_trainer):
    """Lightning tests in inference mode; what is made there must not stop later gradients."""
    data, module = TensorDataModule(textured(1, 16, 16)), Adaptive(angles=2)
    trainer = fit(module, data, make_trainer, 0)
    module._field = None
    trainer.test(module, data, verbose=False)
    assert module.scores["test/psnr"].isfinite().all()
    coords = torch.tensor([[0.31, 0.52]], requires_grad=True)
    module(coords).sum().backward()
    step = 1e-2 * coords.grad / coords.grad.norm()
    difference = module(coords.detach() + step).sum() - module(coords.detach() - step).sum()
    assert float(difference) == pytest.approx(2 * float((step * coords.grad).sum()), rel=0.1)


def test_noise_auto_smooths_noisy_samples_and_leaves_clean_ones(make_trainer):
    clean = signals(1, 64, 64, channels=3)
    noisy = (clean + 0.1 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    axes = [torch.arange(64) / 64] * 2
    errors, ridges = {}, {}
    for noise in ("none", "auto"):
        module = Adaptive(noise=noise)
        fit(module, TensorDataModule(noisy), make_trainer, 0)
        errors[noise] = float((module.predict_grid(axes) - clean).square().mean())
        ridges[noise] = module.describe()["ridge"]
    assert errors["auto"] < 0.5 * errors["none"]
    assert ridges["auto"] >= 0.25 > ridges["none"]


def test_what_it_cannot_do_is_refused_before_anything_is_fitted(make_trainer):
    data = TensorDataModule(signals(1, 8, 8))
    with pytest.raises(InputError, match="max_steps 0"):
        fit(Adaptive(), data, make_trainer, 3)
    with pytest.raises(InputError, match="one encoder"):
        Adaptive(["laplace", "gau"])
    with pytest.raises(InputError, match="closed form"):
        fit(Adaptive("keys"), data, make_trainer, 0)


def test_a_width_that_is_given_is_the_encoders(make_trainer):
    values = textured(1, 24, 24)
    axes = [torch.arange(24) / 24] * 2
    found = []
    for encoder in ("laplace", {"name": "laplace", "scale": 3 / 24}, {"name": "laplace", "scale": 0.03}):
        module = Adaptive(encoder, angles=2)
        fit(module, TensorDataModule(values), make_trainer, 0)
        found.append(module.predict_grid(axes))
    torch.testing.assert_close(found[0], found[1])  # 1.5 spacings of 2 samples
    assert (found[0] - found[2]).abs().max() > 1e-3


@pytest.mark.slow  # eight fits
@pytest.mark.parametrize("sampling", ["random", "grid"])
@pytest.mark.parametrize("model", ["Adaptive", "ComplexLinear"])
def test_ninety_per_cent_of_values_that_were_not_seen_are_within_their_standard_deviations(model, sampling):
    """Noise whose size differs from place to place, on a smooth signal; two draws, of which one alone varies by 0.03."""
    coords = torch.cartesian_prod(torch.arange(56) / 56, torch.arange(48) / 48).reshape(56, 48, 2)
    shares = []
    for seed in (0, 1):
        draw = torch.randn(1, 56, 48, 1, generator=torch.Generator().manual_seed(seed))
        noise = draw * torch.linspace(0.005, 0.08, 48)[:, None]
        values = (0.2 + 0.6 * signals(1, 56, 48, channels=1) + noise).clamp(0, 1)
        data = TensorDataModule(values, sampling=sampling)
        how = {"model": Adaptive(angles=4)} if model == "Adaptive" else {"encoder": "gau"}
        fitted = pe_lightning.fit(data, **how)
        unseen = ~data.signals.split.train_mask()[0]
        deviations = fitted.std(coords)
        assert deviations.shape == (56, 48, 1)
        inside = (fitted(coords)[0] - values[0]).abs() <= 1.645 * deviations
        # also where there is little noise, and where there is much
        parts = (slice(None), slice(0, 16), slice(32, 48))
        shares.append([float(inside[:, part][unseen[:, part]].float().mean()) for part in parts])
    whole, little, much = np.mean(shares, 0)
    assert 0.85 < whole < 0.95
    for share in (little, much):
        assert 0.77 < share < 0.99


def test_standard_deviations_are_zero_at_samples_proportional_to_the_values_and_of_one_signal(tmp_path):
    values = textured(2, 20, 16, channels=1)
    one = pe_lightning.fit(values[:1], model=Adaptive(angles=2), sampling="random")
    mask = one.trainer.datamodule.signals.split.train_mask()[0].flatten()
    coords = torch.cartesian_prod(torch.arange(20) / 20, torch.arange(16) / 16)
    found = one.std(coords)
    one.trainer.save_checkpoint(tmp_path / "a.ckpt", weights_only=False)
    torch.testing.assert_close(Adaptive.load_from_checkpoint(tmp_path / "a.ckpt", weights_only=True).std(coords), found)
    assert bool((found[mask] == 0).all())
    assert bool((found[~mask] > 0).all())
    half = pe_lightning.fit(0.5 * values[:1], model=Adaptive(angles=2), sampling="random")
    torch.testing.assert_close(half.std(coords), 0.5 * found, rtol=0.05, atol=0)
    both = pe_lightning.fit(values, model=Adaptive(angles=2))
    assert not both.has_std
    with pytest.raises(InputError, match="one signal"):
        both.std(coords)


@pytest.mark.parametrize("stride", [2, [2, 1, 1]])
@pytest.mark.parametrize("brightness", [0, 0.2])
def test_a_clip_is_not_below_interpolation(stride, brightness):
    picture = torch.from_numpy(skimage.data.coffee()[100:140, 100:140, :1] / 255).float()
    clip = torch.stack([picture * (1 - brightness + brightness * math.sin(1.2 * frame)) for frame in range(24)])
    data = TensorDataModule(clip[None], sampling=GridSampling(stride))
    fitted, axes = pe_lightning.fit(data), data.evaluation_batch().axes
    held_out = data.evaluation_batch().mask[0]

    def error(prediction: torch.Tensor) -> float:
        return float((prediction[0] - clip)[held_out].square().mean())

    for name in ("nearest", "linear", "bicubic", "spline"):
        assert error(fitted.grid(axes)) <= error(interpolate(name, data.train_batch(), axes)) + 1e-12


class Operations(TorchDispatchMode):
    """Counts operations, without views."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def test_a_fit_takes_few_operations_which_a_gpu_has_to_launch(make_trainer):
    made = []
    for _ in range(2):  # constants are made once
        model = Adaptive(pretrained="none")
        with Operations() as operations:
            fit(model, TensorDataModule(signals(1, 40, 32)), make_trainer, 0)
            model.predict_grid([torch.arange(n) / n for n in (40, 32)])
        made.append(operations.count)
    assert made[-1] < 1500
