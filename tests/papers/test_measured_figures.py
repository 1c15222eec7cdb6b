"""Cells of the reproduced figures that measure encoders: against the functions of the analysis, on small data."""

import math

import numpy as np
import pytest
import torch
import yaml

from pe_lightning import encoders
from pe_lightning.signals.loaders import Batching
from pe_lightning.training import ImageDataModule, SimpleMLP, TensorDataModule
from pe_papers import analysis
from pe_papers.reproduce import measured
from pe_papers.reproduce.command import reproduce


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


def test_a_direction_map_is_the_sum_or_product_of_the_directions_similarities():
    encoder = {"name": "gau", "num_features": 64, "sigma": 0.05}
    maps = {way: np.array(measured.direction_map(encoder, way, 8)["image"]) for way in ("axes", "directions")}
    maps["grid"] = np.array(measured.direction_map({**encoder, "num_features": 16}, "grid", 8)["image"])
    delta = np.arange(8) / 8 - 0.5
    row = np.exp(-(delta**2) / (4 * 0.05**2))
    assert maps["grid"] == pytest.approx(np.outer(row, row), abs=0.01)
    assert maps["axes"] == pytest.approx((row[:, None] + row) / 2, abs=0.02)
    assert maps["directions"][2, 2] > 0.2 > maps["directions"][2, 3]
    assert maps["axes"][2, 2] < 0.02


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


def test_the_score_of_the_last_steps_is_the_mean_of_the_scores_after_each(make_trainer):
    def fitted(steps, count):
        torch.manual_seed(0)
        values = torch.rand(1, 16, 1, generator=torch.Generator().manual_seed(0))
        model, callback = SimpleMLP({"name": "gau", "num_features": 8}, depth=0), measured.ScoreOfLast(count)
        data = TensorDataModule(values, eval_mask="midpoints", batching=Batching(steps_per_epoch=1))
        trainer = make_trainer(max_steps=steps, callbacks=[callback])
        trainer.fit(model, data)
        trainer.test(model, data, verbose=False)
        return model.psnr, callback.report()["psnr_of_last"]

    (third, _), (fourth, mean) = fitted(3, 1), fitted(4, 2)
    assert mean == pytest.approx((third + fourth) / 2, rel=1e-5)


def test_a_figure_that_measures_takes_options_of_its_data(tmp_path):
    arguments = {"encoder": {"name": "gau", "num_features": 8}, "steps": 1, "learning_rate": 1e-3, "depth": 1, "width": 4}
    base = {"function": "pe_papers.reproduce.measured.ranks_in_training", "arguments": arguments}
    base |= {"data": "RowDataModule", "data.paths": ["samples://astronaut"], "data.num_rows": 10, "data.num_columns": 0}
    vary = {"rate": {"key": ["arguments.learning_rate", "arguments.random"], "values": [[0.001, False], [0.01, True]]}}
    definition = {"title": "t", "source": "s", "base": base, "vary": vary, "blocks": {"one": {}}, "layout": []}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(definition))
    found = reproduce(str(tmp_path / "small.yaml"), "--data.num_rows", "1", "--data.length=16", out=tmp_path / "out")
    assert (found.failed, [row["rate"] for row in found.rows]) == (0, [0.001, 0.01])
    config = yaml.safe_load((tmp_path / "out/one-0.01/config.yaml").read_text())
    assert config["model"]["init_args"]["random"] is True
    assert (config["data"]["init_args"]["num_rows"], config["data"]["init_args"]["length"]) == (1, 16)
