"""A set of images to one array: channels, transparency, crop, resize, sizes."""

import logging

import numpy as np
import tifffile
from PIL import Image
from source_checks import unit

from pe_lightning.signals.raw import ValueRange
from pe_lightning.signals.sources import ImageSource, RowSource, VideoSource

RNG = np.random.default_rng(0)


def read_images(paths, **arguments):
    raw = ImageSource(paths, **arguments).read()
    assert raw.media == "image"
    return unit(raw), raw.names


def save(path, *shape: int) -> np.ndarray:
    array = RNG.integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(array[..., 0] if shape[2:] == (1,) else array).save(path)
    return array.astype(np.float32) / 255


def test_transparency_is_laid_over_white_with_a_notice(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    rgba = save(tmp_path / "a.png", 6, 8, 4)
    values, _ = read_images(str(tmp_path))
    colours, opacity = rgba[..., :3].astype(np.float64), rgba[..., 3:].astype(np.float64)
    np.testing.assert_allclose(values[0], colours * opacity + (1 - opacity), atol=0.5001 / 255)
    assert ImageSource(str(tmp_path)).read().stored == "uint8"
    assert ["a.png' is transparent and composited over white" in message for message in caplog.messages] == [True, True]
    caplog.clear()
    Image.fromarray(np.full((4, 4, 4), 255, np.uint8)).save(tmp_path / "opaque.png")
    read_images(str(tmp_path / "opaque.png"))
    read_images(str(tmp_path / "a.png"), alpha="keep")
    assert not caplog.messages


def test_transparency_is_kept_for_the_whole_set(tmp_path):
    rgba, rgb, grey = (save(tmp_path / f"{channels}.png", 6, 8, channels) for channels in (4, 3, 1))
    values, _ = read_images([str(tmp_path / f"{channels}.png") for channels in (4, 3, 1)], alpha="keep")
    assert values.shape == (3, 6, 8, 4)
    np.testing.assert_array_equal(values[0], rgba)
    np.testing.assert_array_equal(values[1], np.concatenate([rgb, np.ones((6, 8, 1))], -1))
    np.testing.assert_array_equal(values[2, ..., :3], np.repeat(grey, 3, -1))


def test_pictures_arrays_and_videos_have_one_resize_and_one_grey(tmp_path):
    pixels = RNG.integers(0, 256, (2, 21, 30, 3), dtype=np.uint8)
    (tmp_path / "clip").mkdir()
    for number, frame in enumerate(pixels):
        Image.fromarray(frame).save(tmp_path / f"clip/{number}.png")
    np.save(tmp_path / "a.npy", pixels)
    found = [
        unit(source(path, resize=[9, 14], color=color).read())
        for color in ("rgb", "grey")
        for source, path in (
            (ImageSource, tmp_path / "clip"), (ImageSource, tmp_path / "a.npy"), (VideoSource, tmp_path / "clip"),
        )
    ]  # fmt: skip
    for pictures, arrays, (frames,) in (found[:3], found[3:]):
        np.testing.assert_array_equal(pictures, frames)
        np.testing.assert_array_equal(arrays, frames)
    expected = np.asarray(Image.fromarray(pixels[0]).resize((14, 9), Image.Resampling.BICUBIC))
    np.testing.assert_allclose(found[0][0], expected / 255, atol=1.01 / 255)


def test_arrays_are_images_too(tmp_path):
    array = RNG.integers(0, 256, (2, 9, 8, 3), dtype=np.uint8)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "b.npz", x=array)
    raw = ImageSource([tmp_path / "a.npy", tmp_path / "b.npz"]).read()
    assert (raw.names, raw.media) == (("a-0", "a-1", "b-0", "b-1"), "array")
    np.testing.assert_array_equal(unit(raw), np.concatenate([array, array]).astype(np.float32) / 255)
    assert ImageSource(tmp_path / "a.npy").files() == []  # it is read in place
    assert ImageSource(tmp_path / "b.npz", key="x").files() == [tmp_path / "b.npz"]
    edited = ImageSource(tmp_path / "a.npy", center_crop=[4, 6], color="grey")
    luma = np.rint(array[:, 2:6, 1:7] @ np.array([0.299, 0.587, 0.114]))[..., None]
    np.testing.assert_allclose(unit(edited.read()), luma / 255, rtol=1e-6)
    assert edited.files() == [tmp_path / "a.npy"], "decoded, so it is cached"


def save_float(path, low, high, channels=1, **arguments):
    values = np.linspace(low, high, 6 * 8 * channels, dtype=np.float32).reshape(6, 8, channels)
    tifffile.imwrite(path, values, photometric="rgb" if channels > 2 else "minisblack", **arguments)
    return values


def test_floating_point_pictures_have_the_range_of_their_values(tmp_path, caplog):
    wide, inside = save_float(tmp_path / "a.tif", -1, 4, 3), save_float(tmp_path / "b.tif", 0.25, 0.75, 3)
    eight = save(tmp_path / "c.png", 6, 8, 3)
    with caplog.at_level(logging.INFO):
        raw = ImageSource(tmp_path).read()
        values = unit(raw)
        np.testing.assert_allclose(values[0], (wide + 1) / 5, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(values[1:], np.stack([inside, eight]))
        assert raw.scaling == ValueRange("float32", (-1, 0, 0), (4, 1, 1))
        assert raw.media == "array", "written as NPY, in the range of the source"
        np.testing.assert_allclose(raw.scaling.restore(values[0], 0), wide, atol=1e-5)
    assert ["a.tif' holds values from -1 to 4" in message for message in caplog.messages] == [True]
    inside_only = ImageSource(tmp_path / "b.tif").read()
    assert (inside_only.unit, inside_only.media) == (True, "image")
    fixed = ImageSource(tmp_path / "a.tif", value_range=[-2, 8], center_crop=4)
    np.testing.assert_allclose(unit(fixed.read())[0], (wide[1:5, 2:6] + 2) / 10, rtol=1e-5)
    rows = RowSource([tmp_path / "a.tif", tmp_path / "c.png"], rows=[2]).read()
    np.testing.assert_allclose(unit(rows), np.stack([(wide[2] + 1) / 5, eight[2]]), rtol=1e-5, atol=1e-6)
    assert rows.scaling == ValueRange("float32", (-1, 0), (4, 1))
    (tmp_path / "frames").mkdir()
    first, second = save_float(tmp_path / "frames/1.tif", 0, 2, 3), save_float(tmp_path / "frames/2.tif", 1, 5, 3)
    frames = VideoSource(tmp_path / "frames").read()
    np.testing.assert_allclose(unit(frames)[0], np.stack([first, second]) / 5, atol=1e-6)
