"""TIFF stacks and NIfTI volumes: axes, ranges, orientation and headers."""

import logging
import sys

import nibabel
import numpy as np
import pytest
import tifffile
from PIL import Image
from source_checks import refused, stored, unit

from pe_lightning.signals.raw import ValueRange
from pe_lightning.signals.sources import VideoSource, clips

RNG = np.random.default_rng(0)


def read(path, **arguments):
    return VideoSource(path, **arguments).read()


def save_nifti(path, values):
    nibabel.Nifti1Image(values, np.eye(4)).to_filename(path)
    return path


@pytest.mark.parametrize("axes", ["TYX", "ZCYX"])
def test_imagej_stacks(tmp_path, axes):
    values = RNG.integers(0, 256, (5, 2, 6, 7) if "C" in axes else (5, 6, 7), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", values, imagej=True, metadata={"axes": axes})
    expected = values.transpose(0, 2, 3, 1) if "C" in axes else values[..., None]
    np.testing.assert_array_equal(stored(read(tmp_path / "a.tif"))[0], expected)


def test_pages_written_one_by_one_and_booleans(tmp_path):
    values = RNG.integers(0, 256, (4, 6, 7), dtype=np.uint8)
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for page in values:
            file.write(page, contiguous=False, metadata=None)
    np.testing.assert_array_equal(stored(read(tmp_path / "a.tif"))[0, ..., 0], values)
    tifffile.imwrite(tmp_path / "a.ome.tif", values, metadata={"axes": "ZYX"})
    np.testing.assert_array_equal(stored(read(tmp_path / "a.ome.tif"))[0, ..., 0], values)
    truth = RNG.random((5, 6, 8)) < 0.5
    first, *rest = (Image.fromarray(page) for page in truth)
    first.save(tmp_path / "b.tif", save_all=True, append_images=rest)  # one bit each
    raw = read(tmp_path / "b.tif")
    assert raw.scaling == ValueRange("uint8", (0,), (1,))
    np.testing.assert_array_equal(stored(raw)[0, ..., 0], truth)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_nifti_axes_and_dtype(tmp_path, monkeypatch, caplog, suffix):
    values = RNG.integers(-1000, 2000, (7, 6, 5)).astype(np.int16)  # x, y, z
    with caplog.at_level(logging.INFO):
        raw = read(save_nifti(tmp_path / f"a{suffix}", values))
    assert (raw.names, raw.shape, raw.stored, raw.media) == (("a",), (1, 5, 6, 7, 1), "int16", "array")
    assert raw.scaling == ValueRange("int16", (float(values.min()),), (float(values.max()),))
    assert len(caplog.messages) == 1
    monkeypatch.setattr(clips, "BLOCK_BYTES", 2 * 6 * 7 * 2)
    assert [len(block) for block in raw.blocks()] == [2, 2, 1]
    np.testing.assert_array_equal(stored(raw)[0, ..., 0], values.transpose(2, 1, 0))


def test_nifti_slope_intercept_and_fourth_axis(tmp_path):
    image = nibabel.Nifti1Image(RNG.integers(0, 1000, (7, 6, 5)).astype(np.int16), np.eye(4))
    image.header.set_slope_inter(0.5, -100)
    image.to_filename(tmp_path / "a.nii")
    expected = nibabel.load(tmp_path / "a.nii").get_fdata()
    raw = read(tmp_path / "a.nii")
    assert raw.stored == "float32"
    np.testing.assert_allclose(stored(raw)[0, ..., 0], expected.transpose(2, 1, 0), rtol=1e-6)
    assert not np.array_equal(nibabel.load(tmp_path / "a.nii").dataobj.get_unscaled(), expected)
    values = RNG.random((7, 6, 5, 3)).astype(np.float32)
    raw = read(save_nifti(tmp_path / "b.nii", values))
    assert raw.scaling == ValueRange("float32")
    np.testing.assert_array_equal(stored(raw)[0], values.transpose(2, 1, 0, 3))


def test_volumes_have_a_range_each(tmp_path):
    for name, shift in (("a", 0), ("b", 50)):
        values = np.arange(210, dtype=np.int16).reshape(7, 6, 5) + np.int16(shift)
        save_nifti(tmp_path / f"{name}.nii.gz", values)
    raw = read(tmp_path)
    assert (raw.names, raw.shape, raw.media) == (("a", "b"), (2, 5, 6, 7, 1), "array")
    assert raw.scaling == ValueRange("int16", (0.0, 50.0), (209.0, 259.0))
    assert read(tmp_path, value_range=[0, 300]).scaling == ValueRange("int16", (0.0,), (300.0,))
    assert read(tmp_path, frames=[0, 4, 2], fps=10).rate == 5


def test_nifti_without_its_package(tmp_path, monkeypatch):
    path = save_nifti(tmp_path / "a.nii", RNG.random((7, 6, 5)))
    monkeypatch.setitem(sys.modules, "nibabel", None)
    refused(VideoSource(path).read, "needs the package nibabel", "pip install 'pe-lightning[nifti]'")


def test_ranges_blocks_and_byte_order_of_stacks(tmp_path, monkeypatch):
    values = RNG.integers(0, 100, (5, 6, 7, 3)).astype(">u2")
    tifffile.imwrite(tmp_path / "a.tif", values, byteorder=">", photometric="rgb")
    raw = read(tmp_path / "a.tif")
    assert (raw.shape, raw.media, raw.unit, raw.rate) == ((1, 5, 6, 7, 3), "array", False, None)
    assert raw.scaling == ValueRange.of_integers("uint16")
    monkeypatch.setattr(clips, "BLOCK_BYTES", 2 * values[0].nbytes)
    assert [len(block) for block in raw.blocks()] == [2, 2, 1]
    np.testing.assert_array_equal(stored(read(tmp_path / "a.tif", frames=[1, 5, 2]))[0], values[1:5:2])
    wide = (RNG.random((5, 6, 7)) * 30 - 10).astype(np.float32)
    wide[2, 3, 4] = np.nan
    tifffile.imwrite(tmp_path / "wide.tif", wide)
    raw, low, high = read(tmp_path / "wide.tif"), float(np.nanmin(wide)), float(np.nanmax(wide))
    assert raw.scaling == ValueRange("float32", (low,), (high,))
    np.testing.assert_allclose(unit(raw)[0, ..., 0], (wide - low) / (high - low), rtol=1e-5, atol=1e-6)
    assert read(tmp_path / "wide.tif", value_range=[-10, 20]).scaling == ValueRange("float32", (-10,), (20,))
