"""Digits and textures as sequences of pixels."""

import math

import pytest
import torch
from lightning.pytorch import seed_everything
from PIL import Image

from pe_lightning.errors import InputError
from pe_papers.tasks import PixelClassification, PixelDataModule, PixelGeneration
from pe_papers.tasks.pictures import textures, write_pictures

pytest.importorskip("sklearn")


def test_textures_held_out_are_other_parts_of_the_pictures():
    parts = textures()
    assert {part["pixels"].shape[1:] for part in parts.values()} == {(16, 16)}
    assert parts["train"]["pixels"].min() == 0
    assert parts["train"]["pixels"].max() == 15
    counts = [part["classes"].bincount().tolist() for part in parts.values()]
    assert counts == [[41 * 63] * 3, [3 * 32] * 3, [8 * 32] * 3]


def test_no_part_of_the_textures_has_pixels_of_another():
    """Quarters of patches without bricks, whose even ones look alike everywhere."""
    quarters = [part["pixels"][part["classes"] > 0].unfold(1, 8, 8).unfold(2, 8, 8) for part in textures().values()]
    train, val, test = (set(map(tuple, each.reshape(-1, 64).tolist())) for each in quarters)
    assert not train & val
    assert not test & (train | val)


def test_a_permutation_moves_positions_and_nothing_else():
    plain, moved = (PixelDataModule(permuted=permuted).examples["train"] for permuted in (False, True))
    torch.testing.assert_close(plain["pixels"], moved["pixels"])
    torch.testing.assert_close(plain["targets"], moved["targets"])
    assert not torch.equal(plain["positions"], moved["positions"])
    assert set(map(tuple, plain["positions"][0].tolist())) == set(map(tuple, moved["positions"][0].tolist()))
    assert (moved["positions"] == moved["positions"][0]).all()
    data = PixelDataModule().examples
    assert [len(data[name]["targets"]) for name in ("train", "val", "digits", "digits-large")] == [1213, 134, 450, 450]
    assert data["train"]["positions"].max().item() == pytest.approx(7 / 12)


def test_larger_pictures_are_the_test_digits_elsewhere():
    data = PixelDataModule().examples
    own, large = data["digits"], data["digits-large"]
    assert large["pixels"].shape == (450, 144)
    assert large["positions"].max().item() == pytest.approx(11 / 12)
    torch.testing.assert_close(large["targets"], own["targets"])
    torch.testing.assert_close(large["pixels"].sum(1), own["pixels"].sum(1))
    canvas, digit = large["pixels"][7].reshape(12, 12), own["pixels"][7].reshape(8, 8)
    assert any(torch.equal(part, digit) for rows in canvas.unfold(0, 8, 1).unfold(1, 8, 1) for part in rows)


def test_without_positions_a_picture_is_a_bag_of_pixels():
    data = PixelDataModule()
    batch = {key: tensor[:4] for key, tensor in data.examples["val"].items()}
    shuffled = {**batch, "pixels": batch["pixels"].flip(1)}
    for encoder, differs in (("none", False), ("rope", True), ("gau", True)):
        seed_everything(0, verbose=False)
        model = PixelClassification(encoder, width=16, heads=2, depth=1)
        model.build(data.info)
        assert differs != torch.allclose(model(batch), model(shuffled), atol=1e-5)
    with pytest.raises(InputError, match="goal: pixel, got class"):
        PixelGeneration("none").build(data.info)


def test_bits_and_samples_are_those_of_the_model(tmp_path):
    """A model whose output is constant: its bits by hand, and samples that follow its chances; no pixel sees itself."""
    data = PixelDataModule(goal="pixel")
    seed_everything(0, verbose=False)
    model = PixelGeneration("gau", width=16, heads=2, depth=1)
    model.build(data.info)
    batch = {key: tensor[:4] for key, tensor in data.examples["digits"].items()}
    changed = {**batch, "pixels": batch["pixels"].clone()}
    changed["pixels"][:, 20:] = 16 - changed["pixels"][:, 20:]
    torch.testing.assert_close(model(changed)[:, :21], model(batch)[:, :21])
    assert not torch.allclose(model(changed)[:, 21], model(batch)[:, 21])
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.copy_(torch.full((17,), -30.0).index_fill(0, torch.tensor([0, 4]), 0.0))
        model.output.bias[0] += math.log(3)
    nats = model.nats({**batch, "targets": batch["targets"] * 0})
    torch.testing.assert_close(nats, torch.full_like(nats, math.log(4 / 3)))
    drawn = model.sample(8, batch["positions"][0])
    torch.testing.assert_close(drawn, model.sample(8, batch["positions"][0]))
    assert set(drawn.unique().tolist()) == {0, 4}
    assert 0.6 < float((drawn == 0).float().mean()) < 0.9
    with Image.open(write_pictures(tmp_path / "x.png", drawn, 17)) as image:
        assert (image.size, image.getextrema()) == ((320, 40), (0, 63))
