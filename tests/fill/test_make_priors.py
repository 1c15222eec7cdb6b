"""Training a prior: the pictures, the batches, a short fit, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from pe_fill.estimators.priors import read_prior
from pe_fill.networks.local import blend_weight
from pe_lightning.errors import InputError

import make_priors
from drawing import draw_picture, draw_words
from make_priors import CellRegression, PatchDataModule, PatchRegression, shipped_photographs


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """A folder of two pictures of shapes, one grey."""
    folder = tmp_path_factory.mktemp("pictures")
    for name, mode in (("one", "RGB"), ("two", "L")):
        Image.fromarray(draw_picture(np.random.default_rng(len(name)), 136)).convert(mode).save(folder / f"{name}.png")
    return folder


def test_drawn_pictures_follow_the_seed():
    first, again, other = (draw_picture(np.random.default_rng(seed), 32) for seed in (0, 0, 1))
    assert first.shape == (32, 32, 3)
    assert (first == again).all()
    assert (first != other).any()
    assert draw_words(np.random.default_rng(0), 128).std() > 0


def test_a_batch_holds_the_samples_of_its_pictures(photographs):
    """A picture whose values are its positions says which samples were taken."""
    # half of it is too small to be used
    ramp = np.add.outer(np.arange(48), 3 * np.arange(48)).astype(np.uint8)
    Image.fromarray(ramp).save(photographs.parent / "ramp.png")
    data = PatchDataModule([str(photographs.parent / "ramp.png")], drawn=0, batch_size=5)
    for stride, batch in zip((2, 2, 2, 3, 2, 2, 2, 4), data.train_dataloader(), strict=False):
        whole = torch.round(batch["patches"] * 255)
        torch.testing.assert_close(whole.diff(dim=1), torch.full((5, 5, 6), float(stride)))
        torch.testing.assert_close(whole.diff(dim=2), torch.full((5, 6, 5), 3.0 * stride))
        known = (batch["at"] % 1 == 0).nonzero()[:, 0]
        assert batch["at"][known].tolist() == [0, 1]
        torch.testing.assert_close(batch["targets"][:, known][:, :, known], batch["patches"][:, 2:4, 2:4])
        assert batch["targets"].shape == (5, len(batch["at"]), len(batch["at"]))


def test_patches_of_high_contrast_are_preferred_and_their_errors_divided_by_their_scale(tmp_path):
    values = np.full((60, 120), 90, np.uint8)
    values[:, 60:] = np.random.default_rng(0).integers(85, 95, (60, 60))
    values[:, 110:] = np.random.default_rng(0).integers(0, 255, (60, 10))
    Image.fromarray(values).save(tmp_path / "half.png")
    batch = next(iter(PatchDataModule([str(tmp_path / "half.png")], drawn=0, batch_size=200).train_dataloader()))
    deviation = batch["patches"][:, 1:5, 1:5].flatten(1).std(1, correction=0)
    assert deviation.min() > 0.005
    assert (deviation > 0.03).float().mean() > 0.8, "a sixth of the area, nearly all of the squared contrast"
    torch.testing.assert_close(batch["scale"], deviation + 0.02)
    module = PatchRegression(width=4)
    place = blend_weight(batch["at"])
    weight = place[:, None] * place
    errors = (module.prior(batch["patches"], batch["at"]) - batch["targets"]) / batch["scale"][:, None, None]
    expected = (errors.square() * weight).sum((1, 2)).mean() / weight.sum()
    module.trainer = SimpleNamespace(world_size=1, log_every_n_steps=0)
    torch.testing.assert_close(module.training_step(batch, 0), expected)


def test_a_resumed_loader_and_two_processes_see_the_batches_of_one(photographs):
    data = PatchDataModule([str(photographs)], drawn=1, batch_size=7)
    each = iter(data.train_dataloader())
    batches = [next(each) for _ in range(3)]
    resumed = data.train_dataloader()
    resumed.load_state_dict({"position": 2})
    assert torch.equal(next(iter(resumed))["patches"], batches[2]["patches"])
    assert not torch.equal(batches[0]["patches"], batches[2]["patches"])
    shares = [data.train_dataloader() for _ in range(2)]
    for rank, loader in enumerate(shares):
        loader.process = type(loader.process)(rank, 2)
    both = [next(iter(loader))["patches"] for loader in shares]
    assert torch.equal(torch.cat(both), batches[0]["patches"])


@pytest.mark.slow
def test_a_short_fit_is_better_than_bicubic_and_its_checkpoint_is_a_prior(make_trainer, tmp_path):
    data = PatchDataModule([], drawn=6, batch_size=256)
    module = PatchRegression(width=16)
    trainer = make_trainer(max_steps=0, num_sanity_val_steps=0)
    trainer.fit(module, data)
    trainer.test(module, data, verbose=False)
    bicubic = float(module.scores["test/psnr"].mean())
    trained = PatchRegression(width=16, lr=1e-2)
    trainer = make_trainer(max_steps=150, num_sanity_val_steps=0)
    trainer.fit(trained, data)
    trainer.test(trained, data, verbose=False)
    assert float(trained.scores["test/psnr"].mean()) > bicubic + 0.05
    assert trained.describe()["signals"] == ["drawn"]
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    prior, patches = read_prior(str(tmp_path / "last.ckpt")), torch.rand(3, 6, 6)
    torch.testing.assert_close(prior.coefficients(patches), trained.prior.coefficients(patches))
    assert not any(parameter.requires_grad for parameter in prior.parameters())
    again = PatchRegression.load_from_checkpoint(tmp_path / "last.ckpt")
    torch.testing.assert_close(again.prior.coefficients(patches), prior.coefficients(patches))


@pytest.mark.slow
def test_cells_are_means_over_the_samples_that_are_predicted(photographs, make_trainer, tmp_path):
    """A short fit is better than cells that are repeated, and its checkpoint divides cells."""
    data = PatchDataModule([str(photographs)], drawn=4, batch_size=256, samples="cells")
    for factor, batch in zip((2, 3, 2), data.train_dataloader(), strict=False):
        assert batch["at"] == factor
        assert batch["targets"].shape == (256, factor, factor)
        torch.testing.assert_close(batch["targets"].mean((1, 2)), batch["patches"][:, 3, 3], atol=0.51 / 255, rtol=0)
    scores = []
    for steps in (0, 60):
        module = CellRegression(width=16, lr=1e-2)
        trainer = make_trainer(max_steps=steps, num_sanity_val_steps=0)
        trainer.fit(module, data)
        trainer.test(module, data, verbose=False)
        scores.append(float(module.scores["test/psnr"].mean()))
    assert scores[1] > scores[0] + 1, "without training, the parts are equal"
    trainer.save_checkpoint(tmp_path / "cells.ckpt")
    prior, patches = read_prior(str(tmp_path / "cells.ckpt"), "cells"), torch.rand(3, 7, 7)
    torch.testing.assert_close(prior(patches, 3), module.prior(patches, 3))


def test_the_command_trains_on_own_pictures(photographs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = [str(photographs), "--data.batch_size", "16", "--trainer.max_steps", "2"]
    for network in ("pictures", "cells"):
        monkeypatch.setattr("sys.argv", ["make_priors.py", network, *options, "--wandb.enabled", "false"])
        assert make_priors.main() == 0
    (cells,) = tmp_path.glob("runs/*CellRegression*/1/checkpoints/last.ckpt")
    assert read_prior(str(cells), "cells").num_params > 1000


def test_what_cannot_be_trained_on_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no picture"):
        PatchDataModule([], drawn=0)
    Image.fromarray(np.zeros((20, 90), np.uint8)).save(tmp_path / "small.png")
    with pytest.raises(InputError, match="20x90; patches need more than 24"):
        PatchDataModule([str(tmp_path / "small.png")]).prepare_data()


@pytest.mark.slow
def test_shipped_photographs_hold_none_that_are_evaluated_on():
    names = {tuple(picture.shape) for picture in shipped_photographs()}
    assert (512, 512, 3) in names  # ihc
    from skimage import data

    for held_out in (data.astronaut(), data.camera()[..., None], data.page()[..., None], data.text()[..., None]):
        assert not any(p.shape == held_out.shape and (p == held_out).all() for p in shipped_photographs())
