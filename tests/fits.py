"""Small fits that several test modules make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from pe_lightning.signals.sampling import RandomSampling
from pe_lightning.training import ComplexLinear, CoordinateModule, SimpleMLP, TensorDataModule

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


def fit(module: CoordinateModule, data: TensorDataModule, make_trainer: MakeTrainer, steps: int, **more: Any) -> Trainer:
    trainer = make_trainer(max_steps=steps, num_sanity_val_steps=0, **more)
    trainer.fit(module, data)
    return trainer


def fitted(make_trainer: MakeTrainer, model: ComplexLinear, data: TensorDataModule, steps: int = 0) -> ComplexLinear:
    make_trainer(max_steps=steps, num_sanity_val_steps=0).fit(model, datamodule=data)
    return model


class Losses(Callback):
    """Keeps the loss of every step."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *args: Any) -> None:
        self.values.append(float(outputs["loss"]))
