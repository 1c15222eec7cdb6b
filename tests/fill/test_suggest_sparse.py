"""Curves of PSNR against the numbers kept of an exact fit."""

import pytest
import torch

from pe_fill import SparseLinear
from pe_fill.sparse.suggest import sparsity
from pe_lightning import encoders
from pe_lightning.signals.sampling import GridSampling
from pe_lightning.training import TensorDataModule


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
