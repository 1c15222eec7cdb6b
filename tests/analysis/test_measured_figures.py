"""Cells of the reproduced figures that measure encoders: against the functions of the analysis, on small data."""

import math

import numpy as np
import pytest
import torch

from pe_lightning import analysis, encoders
from pe_lightning.data import ImageDataModule, TensorDataModule
from pe_lightning.data.options import Batching
from pe_lightning.experiments.reproduce import measured
from pe_lightning.experiments.reproduce.command import reproduce


def rows():
    values = torch.rand(2, 16, 3, generator=torch.Generator().manual_seed(0))
    return TensorDataModule(values, ["first", "second"], batching=Batching(steps_per_epoch=4))


def test_ranks_in_training_are_those_of_every_layer_at_the_steps():
    found = measured.ranks_in_training(rows(), {"name": "gau", "num_features": 8}, 4, 1e-3, every=2, depth=2, width=6)
    assert found["step"] == [1] * 3 + [2] * 3 + [4] * 3
    assert found["layer"] == ["features", "layer0", "layer1"] * 3
    encoder = encoders.create("gau", num_features=8)
    x = rows().train_batch().axes[0].double()
    assert found["stable_rank"][::3] == pytest.approx([analysis.encoder_rank(encoder, x)] * 3, rel=1e-5)
    assert all(math.isfinite(value) for value in found["train_psnr"])
    other = measured.ranks_in_training(rows(), {"name": "gau", "num_features": 8}, 4, 1e-3, True, every=2, depth=2, width=6)
    assert other["train_psnr"] != found["train_psnr"]


def test_maps_before_training_are_those_of_the_encoder_and_change_with_it():
    encoder = {"name": "lff", "num_features": 16, "gamma": 0.3}

    def image(steps):
        data = ImageDataModule("samples://astronaut", resize=16, batching=Batching(steps_per_epoch=8))
        return np.array(measured.similarity_maps(data, encoder, steps, 0.05, positions=8)["image"], dtype=float)

    start = image(0)
    found = analysis.similarity(
        encoders.resolve({**encoder, "num_axes": 2}), (31 / 64, 31 / 64), [analysis.positions(8)] * 2
    )
    scaled = (found - found.min()) / (found.max() - found.min())
    assert start.shape == (28, 28)
    assert start[10:18, 10:18] == pytest.approx(scaled.numpy(), abs=2e-3)
    assert np.isnan(start[:8, 10:18]).all()
    assert np.nanmax(np.abs(image(8) - start)) > 0.05


def test_frequencies_before_training_are_those_of_the_encoder_and_change_with_it():
    encoder = {"name": "lff", "num_features": 64, "gamma": 0.3, "seed": 2}

    def measure(steps):
        data = ImageDataModule("samples://astronaut", resize=16, batching=Batching(steps_per_epoch=8))
        return measured.learned_frequencies(data, encoder, steps, 0.05, bins=20)

    start = measure(0)
    weights = encoders.resolve({**encoder, "num_axes": 2}).frequencies.detach().numpy() * 0.3
    assert (start["mean"], start["std"]) == pytest.approx((weights.mean(), weights.std()), rel=1e-5)
    assert start["density"] == pytest.approx(np.histogram(weights, 20, (-4, 4), density=True)[0], rel=1e-4)
    assert abs(measure(8)["std"] - start["std"]) > 1e-3


def test_scattered_positions_take_rank_from_shifted_features():
    encoder = {"name": "tri", "num_features": 32, "half_width": 1 / 32}
    even, scattered = (measured.singular_values(encoder, 32, where) for where in (False, True))
    assert (even["numerical_rank"], even["singular_value"]) == (32, pytest.approx([1.0] * 32))
    assert scattered["numerical_rank"] < 32


@pytest.mark.slow
def test_a_figure_has_measurement_beside_theory(tmp_path):
    found = reproduce("r-fig2", quick=True, out=tmp_path)
    assert found.failed == 0
    for row in found.rows:
        expected = [min(row["positions"][0], 1 / (2 * math.sqrt(math.pi) * width)) for width in row["width"]]
        assert row["theory"] == pytest.approx(expected)
        assert max(row["deviation"]) < 0.15
        assert row["stable_rank"] == pytest.approx(row["theory"], rel=0.15)
    assert {path.name for path in found.files} == {"r-fig2.csv", "r-fig2.md", "r-fig2.png", "r-fig2.pdf"}
