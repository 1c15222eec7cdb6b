"""Training samples from a mask file: images and arrays, one for all or one per signal, and bad masks."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import pe_lightning.data
from pe_lightning.data import ImageDataModule, TensorDataModule
from pe_lightning.data.mask_sampling import MaskSampling
from pe_lightning.data.sampling import resolve
from pe_lightning.errors import InputError

RNG = np.random.default_rng(0)


def marked(*shape):
    return RNG.random(shape) < 0.3


def save(path, mask):
    if path.suffix == ".npy":
        np.save(path, mask)
    else:
        Image.fromarray(mask).save(path)
    return str(path)


def refused(sampling, *parts, grid=(5, 7), signals=1):
    with pytest.raises(InputError) as error:
        sampling.split(grid, signals)
    for part in parts:
        assert part in str(error.value), str(error.value)


@pytest.mark.parametrize("grid", [(35,), (5, 7), (3, 4, 5)])
@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float32, ">f8"])
def test_arrays_of_any_number_of_axes(tmp_path, grid, dtype):
    mask = marked(*grid)
    path = save(tmp_path / "m ü.npy", (mask * 3).astype(dtype))
    split = MaskSampling(path).split(grid, 4)
    assert split.index.shape == (1, mask.sum())
    assert split.index.dtype == torch.int64
    np.testing.assert_array_equal(split.train_mask()[0].numpy(), mask)
    np.testing.assert_array_equal(MaskSampling(path, invert=True).split(grid, 4).train_mask()[0].numpy(), ~mask)
    np.save(path, np.asfortranarray(mask))
    np.testing.assert_array_equal(MaskSampling(path).split(grid, 1).train_mask()[0].numpy(), mask)


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "gif"])
@pytest.mark.parametrize("level", [1, 255])
def test_images(tmp_path, suffix, level):
    mask = marked(5, 7)
    path = save(tmp_path / f"m.{suffix}", (mask * level).astype(np.uint8))
    np.testing.assert_array_equal(MaskSampling(path).split((5, 7), 1).train_mask()[0].numpy(), mask)
    (tmp_path / "link").symlink_to(path)
    np.testing.assert_array_equal(MaskSampling(str(tmp_path / "link")).split((5, 7), 1).train_mask()[0].numpy(), mask)


def test_colours_and_transparency(tmp_path):
    mask = marked(5, 7)
    red = np.zeros((5, 7, 3), np.uint8)
    red[mask, 0] = 9
    np.testing.assert_array_equal(MaskSampling(save(tmp_path / "a.png", red)).split((5, 7), 1).train_mask()[0], mask)
    drawn = np.full((5, 7, 4), 255, np.uint8)
    drawn[..., 3] = mask * 255
    np.testing.assert_array_equal(MaskSampling(save(tmp_path / "b.png", drawn)).split((5, 7), 1).train_mask()[0], mask)
    black = np.zeros((5, 7, 4), np.uint8)
    black[..., 3] = 255
    black[0, 0, 1] = 1
    assert MaskSampling(save(tmp_path / "c.png", black)).split((5, 7), 1).index.tolist() == [[0]]
    save(tmp_path / "one bit.png", mask)
    np.testing.assert_array_equal(MaskSampling(str(tmp_path / "one bit.png")).split((5, 7), 1).train_mask()[0], mask)


def test_one_mask_per_signal(tmp_path):
    masks = np.zeros((3, 35), bool)
    for mask in masks:
        mask[RNG.choice(35, 8, replace=False)] = True
    paths = [save(tmp_path / f"{n}.npy", mask.reshape(5, 7)) for n, mask in enumerate(masks)]
    for given in (paths, str(tmp_path)):
        split = MaskSampling(given).split((5, 7), 3)
        np.testing.assert_array_equal(split.train_mask().numpy(), masks.reshape(3, 5, 7))
    assert MaskSampling(paths[:1]).split((5, 7), 3).index.shape == (1, 8)
    refused(MaskSampling(paths), "3 masks for 2 signal(s); give one for all, or one for each", signals=2)
    save(tmp_path / "1.npy", np.ones((5, 7), bool))
    refused(MaskSampling(paths), "different numbers of samples", "0.npy: 8", "1.npy: 35", "runs of their own", signals=3)


def test_everything_is_allowed(tmp_path):
    path = save(tmp_path / "a.npy", np.ones((5, 7)))
    assert MaskSampling(path).split((5, 7), 1).num_train == 35
    data = TensorDataModule(torch.rand(1, 5, 7, 1), sampling=MaskSampling(path))
    assert data.effective_protocol == "none"


@pytest.mark.parametrize(
    ("array", "parts"),
    [
        (np.zeros((5, 7), bool), ["marks no sample: all of it is zero", "set invert: true"]),
        (np.ones((7, 5), bool), ["has 7x5 samples, but the signals have 5x7: it is transposed"]),
        (np.ones((5, 8), bool), ["has 5x8 samples, but the signals have 5x7. A mask has the shape"]),
        (np.ones((1, 5, 7), bool), ["has 1x5x7 samples"]),
        (np.full((5, 7), np.nan), ["holds NaN"]),
        (np.array([[None]]), ["Python objects"]),
        (np.zeros((0, 7)), ["0x7 samples"]),
    ],
)
def test_bad_arrays(tmp_path, array, parts):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    refused(MaskSampling(str(tmp_path / "a.npy")), "a.npy", *parts)


def test_bad_files(tmp_path):
    refused(MaskSampling(save(tmp_path / "a.png", np.zeros((5, 7), np.uint8))), "marks no sample")
    refused(MaskSampling(save(tmp_path / "a.npy", np.ones((5, 7))), invert=True), "marks every sample", "set invert: false")
    refused(MaskSampling(save(tmp_path / "b.png", np.ones((7, 5), np.uint8))), "7x5", "5x7", "transposed")
    refused(MaskSampling(save(tmp_path / "a.jpg", np.ones((5, 7), np.uint8))), "JPEG", "save it as PNG")
    refused(MaskSampling(str(tmp_path / "b.png")), "taken for an image", "3 axes", ".npy", grid=(3, 4, 5))
    refused(MaskSampling(str(tmp_path / "none.png")), "no such file")
    (tmp_path / "text.png").write_text("hello")
    refused(MaskSampling(str(tmp_path / "text.png")), "is not an image")
    (tmp_path / "c.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-9])
    refused(MaskSampling(str(tmp_path / "c.npy")), "truncated or damaged")
    np.savez(tmp_path / "a.npz", np.ones((5, 7)))
    refused(MaskSampling(str(tmp_path / "a.npz")), "is an npz file; a mask is an image or a .npy file")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({}, "path is the mask file, or a list of one per signal; got ''"),
        ({"path": []}, "got []"),
        ({"path": ["a.png", ""]}, "got ['a.png', '']"),
        ({"path": 3}, "got 3"),
        ({"path": "a.png", "invert": 1}, "invert must be true or false, got 1"),
    ],
)
def test_bad_arguments(arguments, part):
    with pytest.raises(InputError) as error:
        resolve({"name": "mask", **arguments})
    assert part in str(error.value)


def test_specification_is_plain(tmp_path):
    assert MaskSampling(tmp_path / "m.png").spec() == {"name": "mask", "path": str(tmp_path / "m.png"), "invert": False}
    sampling = MaskSampling(["a.png", tmp_path / "b.png"], invert=True)
    spec = json.loads(json.dumps(sampling.spec()))
    assert spec == {"name": "mask", "path": ["a.png", str(tmp_path / "b.png")], "invert": True}
    assert resolve(spec) == sampling
    assert pe_lightning.data.MaskSampling is MaskSampling


def test_the_content_counts_in_the_fingerprint(tmp_path):
    values, path = torch.rand(2, 5, 7, 1), tmp_path / "a.npy"
    fingerprints = set()
    for place in range(3):
        mask = np.zeros((5, 7), bool)
        mask[place] = True
        data = TensorDataModule(values, sampling=MaskSampling(save(path, mask)))
        assert data.train_batch().values.shape == (2, 7, 1)
        torch.testing.assert_close(data.train_batch().values, values[:, place])
        fingerprints.add(data.fingerprint)
    assert len(fingerprints) == 3


def test_pixels_of_an_image_are_held_out(tmp_path):
    mask = marked(512, 512)
    data = ImageDataModule("samples://astronaut", sampling=MaskSampling(save(tmp_path / "m.png", mask)))
    assert data.evaluation_batch().mask.sum() == (~mask).sum()
    np.testing.assert_array_equal(data.evaluation_batch().mask[0].numpy(), ~mask)
