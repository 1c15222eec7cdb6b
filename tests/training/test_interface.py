"""``import pe_lightning``: nothing heavy is imported before it is used, and a fit of one line."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from fits import signals
from PIL import Image

import pe_lightning
from pe_lightning.errors import InputError
from pe_lightning.training import ComplexLinear, SimpleMLP


def test_every_name_is_there_and_others_are_not():
    assert {name for name in pe_lightning.__all__ if getattr(pe_lightning, name) is not None} == set(pe_lightning.__all__)
    with pytest.raises(AttributeError, match="fits"):
        pe_lightning.fits  # noqa: B018
    assert pe_lightning.list_encoders("lin*") == ["lines", "linf"]
    assert "gau" in pe_lightning.list_encoders()
    assert pe_lightning.create_encoder("gau", num_features=4)(torch.rand(3)).shape == (3, 4)


def test_values_are_fitted_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    values = signals(2, 16, 18)
    model = pe_lightning.fit(values, "gau")
    assert model.psnr == pytest.approx(float(model.scores["test/psnr"].mean()))
    assert model.psnr > 30
    assert model(torch.rand(5, 2)).shape == (2, 5, 2)
    trained = pe_lightning.fit(values.numpy(), model=pe_lightning.SimpleMLP("gau", depth=1, hidden_size=8), max_steps=3)
    assert trained.psnr > 0
    data = pe_lightning.TensorDataModule(values)
    assert pe_lightning.fit(data, "gau").psnr == model.psnr
    module = pe_lightning.fit(values, model=pe_lightning.ComplexLinear.exact("gau"))
    assert module.psnr == pytest.approx(model.psnr, abs=1e-3)
    assert module.train_psnr == pytest.approx(model.train_psnr, abs=0.1)  # weights in float32
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_fitted_or_scored_is_said():
    values = signals(1, 8, 8)
    for trained in (pe_lightning.SimpleMLP("gau"), pe_lightning.ComplexLinear("gau")):
        assert not trained.solves
        with pytest.raises(InputError, match=f"{type(trained).__name__} is trained: give max_steps"):
            pe_lightning.fit(values, model=trained)
    with pytest.raises(InputError, match="sampling: give them to the DataModule"):
        pe_lightning.fit(pe_lightning.TensorDataModule(values), sampling="random")
    with pytest.raises(InputError, match=r"this ComplexLinear has no PSNR: Trainer\.test scores it"):
        pe_lightning.ComplexLinear("gau").psnr  # noqa: B018


def test_pictures_of_pillow_and_numpy_coordinates() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (12, 16, 3), np.uint8)
    expected = pe_lightning.fit(pixels[None], "gau")
    found = pe_lightning.fit(Image.fromarray(pixels), "gau")
    places = np.random.default_rng(1).random((5, 2))
    torch.testing.assert_close(found(places), expected(torch.from_numpy(places)))
    first = pe_lightning.fit(np.moveaxis(pixels, -1, 0), "gau")
    torch.testing.assert_close(first(places), found(places))
    batch = pe_lightning.fit(torch.from_numpy(pixels).movedim(-1, 0)[None], "gau")
    torch.testing.assert_close(batch(places), found(places))


def test_masked_samples_are_missing() -> None:
    rng = np.random.default_rng(0)
    levels, hidden = rng.integers(0, 255, (1, 8, 9, 1), np.uint8), rng.random((1, 8, 9, 1)) < 0.1
    found = pe_lightning.TensorDataModule(np.ma.masked_array(levels, hidden)).source.values
    np.testing.assert_allclose(found, np.where(hidden, np.nan, levels / 255), rtol=1e-6)


def test_a_fit_of_all_samples_says_how_well_it_fits_them() -> None:
    model = pe_lightning.fit(torch.rand(1, 12, 12, 1), "gau", sampling={"name": "grid", "stride": 1})
    assert model.train_psnr > 10
    assert set(model.scores) == {"train/psnr"}
    with pytest.raises(InputError, match="no sample is held out, and the PSNR of the trained samples is train_psnr"):
        model.psnr  # noqa: B018


def test_the_rate_alone_and_arguments_that_pytorch_refuses() -> None:
    values = torch.rand(1, 8, 8, 1)
    module = pe_lightning.fit(values, model=ComplexLinear("gau", lr=0.01), max_steps=2)
    assert module.optimization is not None
    assert (module.optimization["lr"], module.optimization["schedule"]) == (0.01, "1 / (1 + step / 500)")
    module = pe_lightning.fit(values, model=SimpleMLP("gau", 1, 8, lr=0.01), max_steps=2)
    assert module.optimization is not None
    assert (module.optimization["lr"], module.optimization["weight_decay"]) == (0.01, 1e-8)
    with pytest.raises(InputError, match=r"^Adam refuses optimizer\.lr=-1: Invalid learning rate"):
        SimpleMLP("gau", optimizer=partial(torch.optim.Adam, lr=-1, betas=(0.9, 0.99)))
    with pytest.raises(InputError, match=r"^StepLR refuses lr_scheduler\.step_size=0: "):
        ComplexLinear("gau", lr_scheduler=partial(torch.optim.lr_scheduler.StepLR, step_size=0))
