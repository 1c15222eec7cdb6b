"""Curves of PSNR against the numbers kept of an exact fit."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from pe_lightning import encoders
from pe_lightning.__main__ import main
from pe_lightning.estimators.sparsity import sparsity
from pe_lightning.signals.sampling import GridSampling
from pe_lightning.training import ComplexLinear, TensorDataModule


def values(*grid):
    x = torch.stack(torch.meshgrid(*[torch.arange(n) / n for n in grid], indexing="ij")).sum(0)
    return torch.stack([0.5 + 0.4 * torch.sin(9 * x**2 + c) for c in range(3)], -1)


def test_curves_are_those_of_the_model(make_trainer):
    picture = values(30, 24)
    found = sparsity(picture, encoders.create("gau"), shares=(0.05, 0.2))
    for count, score in zip(found["numbers"], found["psnr"], strict=True):
        data = TensorDataModule(picture[None], sampling=GridSampling(stride=1), eval_mask="none")
        model = ComplexLinear("gau", num_coefficients=count, ridge=0.0)
        make_trainer(max_steps=0).fit(model, data)
        error = (model.predict_grid(data.evaluation_batch().axes)[0] - picture).square().mean().detach()
        assert score == pytest.approx(float(-10 * torch.log10(error)), abs=1e-2)
    assert found["psnr_of_all"] > found["psnr"][1] > found["psnr"][0]


def test_encoders_that_are_not_shifted_are_ranked_in_their_own_basis():
    found = sparsity(values(24, 24), encoders.create("linf"), shares=(0.1, 0.9))
    assert found["transform"] is None
    assert found["psnr_of_all"] >= found["psnr"][1] > found["psnr"][0]


def test_the_verb_writes_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Image.fromarray((255 * values(20, 16).numpy()).astype(np.uint8)).save("a.png")
    assert main(["analyze", "--encoder", "keys", "--against", "gau", "--samples", "32", "--paths", "a.png"]) == 0
    found = json.loads((tmp_path / "analysis/analysis.json").read_text())["sparsity"]
    assert [report["encoder"] for report in found] == ["keys", "gau"]
    assert (tmp_path / "analysis/sparsity.png").is_file()
    assert "numbers kept" in capsys.readouterr().out
    assert main(["analyze", "--encoder", "keys", "--samples", "32", "--paths", "a.png", "--signal", "1"]) == 2
    assert "--signal 1 is not there" in capsys.readouterr().err
