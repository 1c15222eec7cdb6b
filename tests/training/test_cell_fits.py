"""Fits of means over cells: predictions of finer cells, in closed form and by gradient descent, and their checkpoints."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch import Tensor

import pe_lightning
from pe_lightning import ComplexLinear, SimpleMLP, TensorDataModule
from pe_lightning.encoders import local
from pe_lightning.encodings import Complex, Simple
from pe_lightning.estimators import LinearRidge
from pe_lightning.signals.blocks import grid_axes
from pe_lightning.signals.sampling import GridSampling
from pe_lightning.training import SignalDataModule
from pe_lightning.training.datamodule import OutputGrid

N, FINER = 24, 3
pytestmark = pytest.mark.filterwarnings("ignore:.*covers.*|.*degrees of freedom")


def waves(size: int, num_axes: int) -> Tensor:
    """Means of a smooth function over the cells of a grid, ``(1, size, ..., 1)`` float64."""
    x = (torch.arange(size * 64, dtype=torch.float64) + 0.5) / (size * 64)
    column = (0.5 + 0.3 * torch.sin(9 * x + 1)).reshape(size, 64).mean(1)
    row = (0.5 + 0.4 * torch.cos(7 * x)).reshape(size, 64).mean(1)
    return (column if num_axes == 1 else column[:, None] * row)[None, ..., None]


def blocks(values: Tensor, factor: int) -> Tensor:
    """Means over blocks of ``factor`` samples per axis of ``(1, n, ..., n, 1)``."""
    sizes = [n for axis in values.shape[1:-1] for n in (axis // factor, factor)]
    return values.reshape(1, *sizes, 1).mean(tuple(range(2, len(sizes) + 1, 2)))


def fit(model: Any, data: SignalDataModule, steps: int = 0) -> Any:
    trainer = lightning.Trainer(
        max_steps=steps, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        accelerator="cpu",
    )  # fmt: skip
    trainer.fit(model, data)
    return trainer


def predicted(trainer: Any, model: Any, factor: float) -> Tensor:
    return torch.cat(trainer.predict(model, OutputGrid(scale=factor)), 1)


def data_of(num_axes: int) -> TensorDataModule:
    return TensorDataModule(waves(N, num_axes).float(), sampling=GridSampling(1), samples="cells")


@pytest.mark.parametrize("num_axes", [1, 2])
@pytest.mark.parametrize("name", ["gau", "tri", "keys", "bspline", "laplace", "linf"])
def test_means_of_predicted_cells_are_the_known_cells(name: str, num_axes: int) -> None:
    data = data_of(num_axes)
    model = ComplexLinear(
        {"name": name, "num_features": N, **({} if name == "linf" else {"padding": 2})}, solver="exact", ridge=1e-9
    )
    trainer = fit(model, data)
    finer = predicted(trainer, model, FINER)
    assert finer.shape[1:-1] == (FINER * N,) * num_axes
    assert (blocks(finer, FINER) - data.values).abs().max() < 2e-4
    inside = (slice(None), *[slice(2 * FINER, -2 * FINER)] * num_axes)
    assert (finer - waves(FINER * N, num_axes))[inside].abs().max() < 0.03
    # predictions are of the samples' cells again
    same = model.predict_step(data.signals.axes)
    assert (same - data.values).abs().max() < 2e-4


def test_widths_and_ridges_are_chosen_and_a_long_axis_is_banded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MIN_FEATURES", 200)
    x = torch.arange(512 * 8, dtype=torch.float64) / 512
    row = (0.5 + 0.4 * torch.sin(50 * x + 2 * torch.sin(2.5 * x))).reshape(-1, 8)
    data = TensorDataModule(row.mean(1).float()[None, :, None], sampling=GridSampling(1), samples="cells")
    model = ComplexLinear({"name": "gau", "width": "auto"}, solver="exact")
    trainer = fit(model, data)
    assert model.encoding.is_line
    assert all(encoder.cell_size is None for encoder in model.encoding.encoders)
    finer, expected = predicted(trainer, model, 2)[0, :, 0], row.reshape(-1, 2, 4).mean(2).flatten()
    assert (finer - expected)[20:-20].abs().max() < 0.01


@pytest.mark.parametrize("steps", [0, 300])
def test_a_wave_has_its_amplitude_at_points(steps: int) -> None:
    """Averages over cells of a third of a period have 83 % of it, which both kinds of fit undo."""
    x = (torch.arange(N * 64, dtype=torch.float64) + 0.5) / (N * 64)
    means = (0.5 + 0.4 * torch.sin(2 * math.pi * 8 * x)).reshape(N, 64).mean(1)
    data = TensorDataModule(means.float()[None, :, None], sampling=GridSampling(1), samples="cells")
    model = ComplexLinear(
        {"name": "linf", "num_features": 16, "sigma": 3.0}, solver="exact" if steps == 0 else None, ridge=1e-6
    )
    fit(model, data, steps)
    model.encoding.cells = ()
    values = model.predict_step([torch.arange(240) / 240])
    assert float(values.max() - values.min()) == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(
    ("encoder", "layout"),
    [
        ("gau", "directions"),
        ("laplace", "axes"),
        ("rff", "joint"),
        ("rff", "axes"),
        ("lff", "joint"),
        ("keys", "directions"),
    ],
)
def test_simple_encoding_averages_over_boxes(encoder: str, layout: Any) -> None:
    encoding = Simple({"name": encoder, "num_features": 24}, 2, layout).double()
    points = torch.tensor([[0.3, 0.55], [0.02, 0.9], [0.71, 0.13]], dtype=torch.float64)
    sizes, count = (0.11, 0.05), 240
    nodes = [((torch.arange(count, dtype=torch.float64) + 0.5) / count - 0.5) * size for size in sizes]
    expected = encoding(points[:, None] + torch.cartesian_prod(*nodes)).mean(1)
    encoding.cells = sizes
    torch.testing.assert_close(encoding(points), expected, rtol=0, atol=2e-4 * float(expected.detach().abs().max()))


def test_complex_encoding_is_the_product_of_the_cells_of_its_axes() -> None:
    encoding = Complex([{"name": "gau", "num_features": 5}, {"name": "linf", "num_features": 4}], 2)
    encoding.cells = (0.2, 0.1)
    points = torch.rand(7, 2)
    first, second = encoding.encoders[0].cell(points[:, 0], 0.2), encoding.encoders[1].cell(points[:, 1], 0.1)
    torch.testing.assert_close(encoding(points), torch.einsum("pi,pj->pij", first, second).flatten(1))


def test_a_perceptron_of_cells_and_its_checkpoint(tmp_path: Path) -> None:
    data = data_of(2)
    model = SimpleMLP({"name": "rff", "num_features": 32, "sigma": 3.0}, depth=1, hidden_size=32)
    trainer = fit(model, data, 300)
    expected = predicted(trainer, model, 2)
    assert (blocks(expected, 2) - data.values).abs().max() < 0.1
    trainer.save_checkpoint(tmp_path / "cells.ckpt")
    loaded = pe_lightning.load(tmp_path / "cells.ckpt")
    assert loaded.require_info().samples == "cells"
    torch.testing.assert_close(predicted(trainer, loaded, 2), expected)
    loaded.encoding.cells = (1 / (2 * N),) * 2
    axes = grid_axes((2 * N, 2 * N), cells=loaded.require_info().cells)
    torch.testing.assert_close(loaded.predict_step(axes), expected)


def test_an_estimator_of_cells_has_values_at_points() -> None:
    data = data_of(2)
    field = LinearRidge({"name": "gau", "width": "auto"}).fit(data.signals)
    x = torch.arange(4, 20, dtype=torch.float64) / N
    truth = (0.5 + 0.3 * torch.sin(9 * (x + 0.5 / N) + 1))[:, None] * (0.5 + 0.4 * torch.cos(7 * (x + 0.5 / N)))
    assert (field.grid(data.signals.axes) - data.values).abs().max() < 0.01
    assert (field.of_cells((0.0, 0.0)).grid([x, x])[0, ..., 0] - truth).abs().max() < 0.005
