"""Small fits that several test modules make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from pe_lightning.estimators import Estimator
from pe_lightning.signals.sampling import RandomSampling
from pe_lightning.training import ComplexLinear, CoordinateModule, FunctionModule, SimpleMLP, TensorDataModule

MakeTrainer = Callable[..., Trainer]

GAU = {"name": "gau", "num_features": 8, "sigma": 0.1}
MODULES: dict[str, Callable[..., CoordinateModule]] = {
    "complex": lambda **more: ComplexLinear(GAU, **more),
    "complex-head": lambda **more: ComplexLinear(GAU, depth=1, hidden_size=6, **more),
    "simple": lambda **more: SimpleMLP(GAU, depth=2, hidden_size=8, **more),
}
SAMPLINGS = {"grid": "grid", "random": RandomSampling(0.5), "shared": RandomSampling(0.5, shared=True)}


def signals(count: int, *grid: int, channels: int = 2) -> Tensor:
    """Smooth signals, each another, with means far from zero."""
    x = torch.stack(torch.meshgrid(*[torch.arange(n) / n for n in grid], indexing="ij"), -1)
    waves = [torch.sin((s + 1) * x.sum(-1) + c + s) for s in range(count) for c in range(channels)]
    return 0.5 + 0.4 * torch.stack(waves).reshape(count, channels, *grid).movedim(1, -1)


def smooth(signals: int = 2, size: tuple[int, ...] = (24, 20), channels: int = 3) -> torch.Tensor:
    """Signals with something to learn at every scale."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(signals, channels, *size, generator=generator)
    spectrum = torch.fft.fftn(noise, dim=tuple(range(2, 2 + len(size))))
    radius = sum(torch.fft.fftfreq(n).square().reshape(-1, *[1] * (len(size) - 1 - a)) for a, n in enumerate(size)).sqrt()
    values = torch.fft.ifftn(spectrum / (1 + (12 * radius) ** 2), dim=tuple(range(2, 2 + len(size)))).real
    low, high = values.amin(), values.amax()
    return ((values - low) / (high - low)).movedim(1, -1).contiguous()


def fit(module: FunctionModule, data: TensorDataModule, make_trainer: MakeTrainer, steps: int, **more: Any) -> Trainer:
    trainer = make_trainer(max_steps=steps, num_sanity_val_steps=0, **more)
    trainer.fit(module, data)
    return trainer


def fitted(make_trainer: MakeTrainer, model: ComplexLinear, data: TensorDataModule, steps: int = 0) -> ComplexLinear:
    make_trainer(max_steps=steps, num_sanity_val_steps=0).fit(model, datamodule=data)
    return model


def check_derivatives(module: Callable[[Tensor], Tensor]) -> None:
    """Of a float64 module of two axes, against differences of values."""
    coords, step = (0.2 + 0.6 * torch.rand(2, 3, 2, dtype=torch.float64)).requires_grad_(), 1e-4
    (gradient,) = torch.autograd.grad(module(coords).sum(), coords, create_graph=True)
    units = step * torch.eye(2, dtype=torch.float64)
    with torch.no_grad():
        ends = [(module(coords + u) - module(coords - u)).sum((0, -1)) / (2 * step) for u in units]
    expected = torch.stack(ends, -1)
    torch.testing.assert_close(gradient.detach(), expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
    (curvature,) = torch.autograd.grad(gradient.square().sum(), coords)
    assert curvature.isfinite().all()


def check_field_of_module(
    estimator: Estimator, module: FunctionModule, data: TensorDataModule, make_trainer: MakeTrainer
) -> bool:
    """The field of an estimator is the function of its module. Returns whether the field has standard deviations."""
    trainer = fit(module, data, make_trainer, 0)
    field, axes = estimator.fit(data.signals), [torch.arange(n) / n for n in (7, 9)]
    points = torch.rand(5, 2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(field.grid(axes), module.predict_grid(axes), rtol=1e-4, atol=2e-5)
        torch.testing.assert_close(field.at(points), module(points), rtol=1e-4, atol=2e-5)
        unknown = torch.tensor([[0.0, torch.nan], [-torch.inf, 0.0]])
        for found in (field.at(torch.cat([points, unknown])), module(torch.cat([points, unknown]))):
            assert found.isnan().all((0, 2)).tolist() == [False] * 5 + [True] * 2
            torch.testing.assert_close(found[:, :5], field.at(points), rtol=1e-4, atol=2e-5)
    assert field.label == type(module).__name__
    assert field.solution is not None
    assert module.solution is not None
    assert field.solution.ridge == pytest.approx(module.solution.ridge)
    if module.has_std:  # a linear layer does not hold its samples
        torch.testing.assert_close(field.std(points), module.std(points), rtol=1e-3, atol=1e-5)
    tensors = [value for value in field.state_dict().values() if isinstance(value, torch.Tensor)]
    assert all(value.isfinite().all() for value in tensors)
    assert trainer.global_step == 0
    return field.has_std


class Losses(Callback):
    """Keeps the loss of every step."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *args: Any) -> None:
        self.values.append(float(outputs["loss"]))
