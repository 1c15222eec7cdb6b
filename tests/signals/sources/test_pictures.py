"""One file to an exact array: every depth, mode and orientation, and every kind of damage."""

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageOps
from source_checks import write_png16

from pe_lightning.signals.raw import to_unit
from pe_lightning.signals.sources.paths import SourceFile
from pe_lightning.signals.sources.pictures import decode_image as decode_file
from pe_lightning.signals.sources.pictures import header_of

RNG = np.random.default_rng(0)
GREY8 = RNG.integers(0, 256, (5, 7), dtype=np.uint8)
RGB8 = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)
RGBA8 = RNG.integers(0, 256, (5, 7, 4), dtype=np.uint8)


def decode_image(path, **arguments):
    image = to_unit(decode_file(SourceFile(path, str(path)), **arguments))
    header = header_of(SourceFile(path, str(path)))
    assert (header.height, header.width) == image.shape[:2]
    assert image.shape[2] <= 2 or not header.grey
    return image


def deep(channels: int) -> np.ndarray:
    return RNG.integers(0, 65536, (5, 7, channels), dtype=np.uint16)


def test_eight_bit_grey_and_one_bit_have_one_channel(tmp_path):
    Image.fromarray(GREY8).save(tmp_path / "grey.png")
    np.testing.assert_array_equal(decode_image(tmp_path / "grey.png"), GREY8[..., None].astype(np.float32) / 255)
    for name in ("one.png", "one.tif", "one.pbm"):
        Image.fromarray(GREY8 > 100).save(tmp_path / name)
        np.testing.assert_array_equal(decode_image(tmp_path / name)[..., 0], GREY8 > 100)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("interlace", [False, True])
def test_sixteen_bit_png_is_exact(tmp_path, channels, interlace):
    array = deep(channels)
    write_png16(tmp_path / "a.png", array, interlace=interlace)
    np.testing.assert_array_equal(decode_image(tmp_path / "a.png"), array.astype(np.float32) / 65535)


@pytest.mark.parametrize(("channels", "key"), [(1, 1234), (3, (1, 2, 3))])
def test_sixteen_bit_png_with_one_transparent_colour(tmp_path, channels, key):
    array = deep(channels)
    array[2, 3] = key
    write_png16(tmp_path / "a.png", array, transparent=key)
    image = decode_image(tmp_path / "a.png")
    np.testing.assert_array_equal(image[..., :-1], array.astype(np.float32) / 65535)
    assert image[2, 3, -1] == 0
    assert image[..., -1].sum() == 5 * 7 - 1


def test_palette_with_and_without_transparency(tmp_path):
    image = Image.fromarray(RGB8).quantize(16)
    expected = np.asarray(image.convert("RGB")).astype(np.float32) / 255
    for name in ("p.png", "p.gif"):
        image.save(tmp_path / name)
        np.testing.assert_array_equal(decode_image(tmp_path / name), expected)
    image.save(tmp_path / "t.png", transparency=3)
    decoded = decode_image(tmp_path / "t.png")
    np.testing.assert_array_equal(decoded[..., :3], expected)
    np.testing.assert_array_equal(decoded[..., 3] == 0, np.asarray(image) == 3)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path, orientation):
    exif = Image.Exif()
    exif[274] = orientation
    for name in ("a.png", "a.jpg", "a.tif"):
        Image.fromarray(RGB8).save(tmp_path / name, exif=exif)
        with Image.open(tmp_path / name) as image:
            expected = np.asarray(ImageOps.exif_transpose(image)).astype(np.float32) / 255
        np.testing.assert_array_equal(decode_image(tmp_path / name), expected)


@pytest.mark.parametrize(
    ("orientation", "turned"),
    [(2, lambda a: a[:, ::-1]), (5, lambda a: a.swapaxes(0, 1)), (6, lambda a: np.rot90(a, -1)), (9, lambda a: a)],
)
@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_orientation_of_a_deep_tiff(tmp_path, orientation, turned, dtype):
    array = deep(3) if dtype == np.uint16 else RNG.random((5, 7, 3), np.float32)
    tifffile.imwrite(tmp_path / "a.tif", array, photometric="rgb", extratags=[(274, 3, 1, orientation, True)])
    np.testing.assert_array_equal(decode_image(tmp_path / "a.tif"), to_unit(turned(array)))


def test_sixteen_bit_tiff_is_exact(tmp_path):
    for name, array, kwargs in (
        ("grey.tif", deep(1)[..., 0], {}),
        ("deflated.tif", deep(1)[..., 0], {"compression": "zlib"}),
        ("big-endian.tif", deep(1)[..., 0], {"byteorder": ">"}),
        ("white.tif", deep(1)[..., 0], {"photometric": "miniswhite"}),
        ("rgb.tif", deep(3), {"photometric": "rgb"}),
        ("rgb-deflated.tif", deep(3), {"photometric": "rgb", "compression": "zlib"}),
        ("rgba.tif", deep(4), {"photometric": "rgb", "extrasamples": ["unassalpha"]}),
        ("planar.tif", deep(3), {"photometric": "rgb", "planarconfig": "separate"}),
    ):
        stored = np.moveaxis(array, -1, 0) if "planarconfig" in kwargs else array
        tifffile.imwrite(tmp_path / name, stored, **kwargs)
        expected = array.reshape(5, 7, -1).astype(np.float32) / 65535
        if name == "white.tif":
            expected = (65535 - array[..., None]).astype(np.float32) / 65535
        np.testing.assert_array_equal(decode_image(tmp_path / name), expected, err_msg=name)


def test_colours_that_are_multiplied_by_their_opacity(tmp_path):
    array = deep(4)
    array[..., :3] = array[..., :3] * (array[..., 3:] / 65535)
    array[2, 3] = 0
    tifffile.imwrite(tmp_path / "a.tif", array, photometric="rgb", extrasamples=["assocalpha"])
    unit, opacity = array / 65535, np.maximum(array[..., 3:], 1) / 65535
    expected = np.concatenate([unit[..., :3] / opacity, unit[..., 3:]], -1)
    np.testing.assert_allclose(decode_image(tmp_path / "a.tif"), expected, rtol=1e-6)  # float32


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3)])
def test_float_tiff_in_range_is_kept(tmp_path, dtype, shape):
    array = RNG.random(shape).astype(dtype)
    tifffile.imwrite(tmp_path / "a.tif", array, photometric="rgb" if len(shape) == 3 else "minisblack")
    np.testing.assert_array_equal(decode_image(tmp_path / "a.tif"), array.reshape(5, 7, -1).astype(np.float32))


def test_the_picture_of_a_phone_jpeg_with_a_second_frame(tmp_path):
    first, second = Image.fromarray(RGB8), Image.fromarray(255 - RGB8)
    first.save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=[second])
    first.save(tmp_path / "b.jpg")
    np.testing.assert_array_equal(decode_image(tmp_path / "a.jpg"), decode_image(tmp_path / "b.jpg"))
