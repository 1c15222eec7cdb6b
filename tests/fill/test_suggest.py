"""``suggest`` with the candidates of this package: the prior, and sparse fits where every sample is trained on."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from commands import error_of
from PIL import Image
from studies.suggest.test_suggest_command import best_of_table, fitted, picture

from pe_fill import SparseLinear
from pe_fill.sparse.suggest import sparsity
from pe_lightning import encoders
from pe_lightning.__main__ import main
from pe_lightning.signals.sampling import GridSampling
from pe_lightning.training import TensorDataModule

from drawing import draw_words


@pytest.mark.slow  # many fits
@pytest.mark.usefixtures("empty_folder")
def test_the_prior_is_recommended_only_where_held_out_samples_support_it(capsys):
    def suggested(name, picture):
        Image.fromarray(picture).save(f"{name}.png")
        assert main(["suggest", f"{name}.png", "--encoders", "Adaptive,gau", "--out", f"{name}.yaml"]) == 0
        shown = capsys.readouterr().out
        assert "Adaptive, prior *" in shown
        assert "other pictures" in shown
        assert yaml.safe_load(Path(f"{name}.yaml").read_text())["model"]["class_path"] == "pe_fill.Adaptive"
        found = fitted(f"{name}.yaml", f"{name}-*")
        assert found["test/psnr"] == pytest.approx(best_of_table(shown)[1], abs=0.01)
        return found, shown

    words, _ = suggested("words", draw_words(np.random.default_rng(0))[100:244, 100:244])
    assert words["prior"]["name"] == "pictures"
    assert words["prior"]["weight"][0] > 0.3
    y, x = np.mgrid[:64, :64]
    stripes, shown = suggested("stripes", (127.5 * (1 + np.sin(2 * np.pi * 0.18 * (0.8 * x + 0.6 * y)))).astype(np.uint8))
    assert "prior" not in stripes
    assert best_of_table(shown)[0] == "Adaptive"


@pytest.mark.usefixtures("empty_folder")
def test_with_all_samples_trained_a_sparse_fit_is_suggested(capsys, tmp_path):
    assert main(["suggest", picture("a.png", 40, 30), "--data.sampling.stride", "1", "--encoders", "tri,gau"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("tri", "gau", "9/7", "5/3", "haar"))
    written = yaml.safe_load(Path("suggested.yaml").read_text())
    assert written["model"]["init_args"]["num_coefficients"] == 0.1
    assert main(["fit", "--config", "suggested.yaml", "--wandb.enabled", "false"]) == 0
    (found,) = tmp_path.rglob("metrics.json")
    assert f"{json.loads(found.read_text())['train/psnr']:.2f} dB" in Path("suggested.yaml").read_text()
    assert main(["suggest", "a.png", "--data.sampling.stride", "1", "--encoders", "impulse,tri,keys", "--force"]) == 0
    encoder = yaml.safe_load(Path("suggested.yaml").read_text())["model"]["init_args"]["encoder"]
    assert encoder == "keys"  # all three reproduce the samples alike
    refused = error_of(capsys, ["suggest", "a.png", "--data.sampling.stride", "1", "--encoders", "rff", "--force"])
    assert "rff are no shifted encoders: try keys" in refused


def test_curves_are_those_of_the_model(make_trainer):
    x = torch.stack(torch.meshgrid(torch.arange(30) / 30, torch.arange(24) / 24, indexing="ij")).sum(0)
    picture = torch.stack([0.5 + 0.4 * torch.sin(9 * x**2 + c) for c in range(3)], -1)
    found = sparsity(picture[None], encoders.create("gau"), shares=(0.05, 0.2))
    for count, score in zip(found.numbers, found.psnr, strict=True):
        data = TensorDataModule(picture[None], sampling=GridSampling(stride=1), eval_mask="none")
        model = SparseLinear("gau", num_coefficients=count, ridge=0.0)
        make_trainer(max_steps=0).fit(model, data)
        error = (model.predict_grid(data.evaluation_batch().axes)[0] - picture).square().mean().detach()
        assert score == pytest.approx(float(-10 * torch.log10(error)), abs=1e-2)
    assert found.psnr_of_all > found.psnr[1] > found.psnr[0]
