"""TIFF stacks and NIfTI volumes: axes, ranges, and what is said about broken ones."""

import sys

import nibabel
import numpy as np
import pytest
import tifffile
from pe_lightning.data.sources.sources import Source
from PIL import Image

from pe_lightning.data.sources import clips, volumes
from pe_lightning.data.sources.clips import picked
from pe_lightning.data.sources.volumes import count_pages, read_nifti, read_tiff
from pe_lightning.errors import InputError

RNG = np.random.default_rng(0)


def tiff(path, **settings):
    return read_tiff(Source(path, str(path)), **settings)


def nifti(path, **settings):
    return read_nifti(Source(path, str(path)), **settings)


def decoded(clip):
    return np.concatenate(list(clip.slabs()))


def limits(clip):
    return clip.scaling.dtype, clip.scaling.low[0], clip.scaling.high[0]


@pytest.fixture
def notices(monkeypatch):
    told = []
    monkeypatch.setattr(volumes, "rank_zero_info", told.append)
    return told


@pytest.mark.parametrize("channels", [None, 3, 4])
@pytest.mark.parametrize(
    ("dtype", "low", "high"), [("uint8", 0, 255), ("uint16", 0, 65535), (">u2", 0, 65535), ("int16", -32768, 32767)]
)
def test_integer_stacks(tmp_path, monkeypatch, dtype, low, high, channels):
    shape = (5, 6, 7) if channels is None else (5, 6, 7, channels)
    values = RNG.integers(0, 100, shape).astype(dtype)
    kind = {} if channels is None else {"photometric": "rgb"}
    tifffile.imwrite(tmp_path / "a.tif", values, byteorder=">" if ">" in dtype else "<", **kind)
    clip = tiff(tmp_path / "a.tif")
    assert (clip.grid, clip.channels, clip.media, clip.unit, clip.rate) == ((5, 6, 7), channels or 1, "array", False, None)
    assert limits(clip) == (np.dtype(dtype).newbyteorder("=").name, low, high)
    monkeypatch.setattr(clips, "SLAB_BYTES", 2 * values[0].nbytes)
    slabs = list(clip.slabs())
    assert [len(slab) for slab in slabs] == [2, 2, 1]
    assert slabs[0].dtype == np.dtype(clip.stored)
    np.testing.assert_array_equal(np.concatenate(slabs), values.reshape(5, 6, 7, -1))
    np.testing.assert_array_equal(decoded(picked(clip, [1, 5, 2])), values.reshape(5, 6, 7, -1)[1:5:2])


@pytest.mark.parametrize("axes", ["ZYX", "TYX", "ZCYX"])
def test_imagej_stacks(tmp_path, axes):
    values = RNG.integers(0, 256, (5, 2, 6, 7) if "C" in axes else (5, 6, 7), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", values, imagej=True, metadata={"axes": axes})
    expected = values.transpose(0, 2, 3, 1) if "C" in axes else values[..., None]
    np.testing.assert_array_equal(decoded(tiff(tmp_path / "a.tif")), expected)


def test_pages_written_one_by_one(tmp_path):
    values = RNG.integers(0, 256, (4, 6, 7), dtype=np.uint8)
    with tifffile.TiffWriter(tmp_path / "a.tif") as file:
        for page in values:
            file.write(page, contiguous=False, metadata=None)
    assert count_pages(Source(tmp_path / "a.tif", "a")) == 4
    np.testing.assert_array_equal(decoded(tiff(tmp_path / "a.tif"))[..., 0], values)


def test_truth_values(tmp_path):
    truth = RNG.random((5, 6, 8)) < 0.5
    first, *rest = (Image.fromarray(page) for page in truth)
    first.save(tmp_path / "a.tif", save_all=True, append_images=rest)  # one bit each
    clip = tiff(tmp_path / "a.tif")
    assert limits(clip) == ("uint8", 0, 1)
    np.testing.assert_array_equal(decoded(clip)[..., 0], truth)


def test_range_of_floating_point(tmp_path, notices):
    values = RNG.random((5, 6, 7)).astype(np.float32)
    tifffile.imwrite(tmp_path / "unit.tif", values)
    assert limits(tiff(tmp_path / "unit.tif")) == ("float32", 0, 1)
    assert not notices
    tifffile.imwrite(tmp_path / "wide.tif", values * 30 - 10)
    clip = tiff(tmp_path / "wide.tif")
    assert limits(clip) == ("float32", float((values * 30 - 10).min()), float((values * 30 - 10).max()))
    assert len(notices) == 1
    assert "become 0 and 1" in notices[0]
    unit = clip.scaling.to_unit(decoded(clip), 0)
    assert (unit.min(), unit.max()) == (0, 1)
    assert limits(tiff(tmp_path / "wide.tif", value_range=[-10, 20])) == ("float32", -10, 20)
    assert len(notices) == 1


def test_given_range(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", RNG.integers(-5, 6, (5, 6, 7)).astype(np.int32))
    with pytest.raises(InputError, match=r"int32 values, whose range is unknown; set value_range"):
        tiff(tmp_path / "a.tif")
    assert limits(tiff(tmp_path / "a.tif", value_range=[-5, 5])) == ("int32", -5, 5)
    with pytest.raises(InputError, match=r"from -5 to 5, outside value_range \[-4\.0, 5\.0\]"):
        tiff(tmp_path / "a.tif", value_range=[-4, 5])
    with pytest.raises(InputError, match="value_range must be"):
        tiff(tmp_path / "a.tif", value_range=[1, 0])


def test_constant_floating_point(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.full((5, 6, 7), 3, dtype=np.float32))
    with pytest.raises(InputError, match="are 3: nothing to fit"):
        tiff(tmp_path / "a.tif")
    assert limits(tiff(tmp_path / "a.tif", value_range=[0, 3])) == ("float32", 0, 3)


def test_values_that_are_not_finite(tmp_path, monkeypatch):
    values = RNG.random((5, 6, 7)).astype(np.float32)
    values[2, 3, 4], values[3, 0, 0] = np.nan, np.inf
    tifffile.imwrite(tmp_path / "a.tif", values)
    monkeypatch.setattr(clips, "SLAB_BYTES", values[0].nbytes)
    with pytest.raises(InputError, match=r"2 value\(s\) that are not finite.*= \[2, 3, 4, 0\]"):
        tiff(tmp_path / "a.tif")


def test_a_single_picture_is_no_stack(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((6, 7), dtype=np.uint8))
    with pytest.raises(InputError, match=r"axes YX of sizes \(6, 7\).*ImageDataModule"):
        tiff(tmp_path / "a.tif")
    tifffile.imwrite(tmp_path / "b.tif", np.zeros((2, 3, 5, 6, 7), dtype=np.uint8))
    with pytest.raises(InputError, match="a TIFF stack has"):
        tiff(tmp_path / "b.tif")


def test_damaged_and_huge_stacks(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, RNG.random((5, 60, 70)).astype(np.float32), compression="zlib")
    with pytest.raises(InputError, match=r"60x70.*set max_pixels: 4200"):
        tiff(path, max_pixels=4199)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"a\.tif.*truncated or damaged \(ValueError: \d pages found"):
        tiff(path)  # tifffile says in its log that pages are missing, and goes on
    path.write_bytes(content[: content.rindex(b"x\x9c")] + bytes(len(content) - content.rindex(b"x\x9c")))
    with pytest.raises(InputError, match=r"a\.tif.*truncated or damaged"):
        decoded(tiff(path))
    path.write_bytes(b"II*\x00")
    with pytest.raises(InputError, match=r"a\.tif.*truncated or damaged"):
        tiff(path)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_nifti_axes_and_dtype(tmp_path, monkeypatch, notices, suffix):
    values = RNG.integers(-1000, 2000, (7, 6, 5)).astype(np.int16)  # x, y, z
    nibabel.Nifti1Image(values, np.eye(4)).to_filename(tmp_path / f"a{suffix}")
    clip = nifti(tmp_path / f"a{suffix}")
    assert (clip.grid, clip.channels, clip.stored, clip.media) == ((5, 6, 7), 1, "int16", "array")
    assert limits(clip) == ("int16", values.min(), values.max())
    assert len(notices) == 1
    monkeypatch.setattr(clips, "SLAB_BYTES", 2 * 6 * 7 * 2)
    assert [len(slab) for slab in clip.slabs()] == [2, 2, 1]
    np.testing.assert_array_equal(decoded(clip)[..., 0], values.transpose(2, 1, 0))


def test_nifti_slope_and_intercept(tmp_path):
    stored = RNG.integers(0, 1000, (7, 6, 5)).astype(np.int16)
    image = nibabel.Nifti1Image(stored, np.eye(4))
    image.header.set_slope_inter(0.5, -100)
    image.to_filename(tmp_path / "a.nii")
    expected = nibabel.load(tmp_path / "a.nii").get_fdata()
    clip = nifti(tmp_path / "a.nii")
    assert clip.stored == "float32"
    assert limits(clip)[1:] == (pytest.approx(expected.min()), pytest.approx(expected.max()))
    np.testing.assert_allclose(decoded(clip)[..., 0], expected.transpose(2, 1, 0), rtol=1e-6)
    raw = nibabel.load(tmp_path / "a.nii").dataobj.get_unscaled()
    assert not np.array_equal(raw, expected)  # the header does have a slope


def test_nifti_fourth_axis(tmp_path):
    values = RNG.random((7, 6, 5, 3)).astype(np.float32)
    nibabel.Nifti1Image(values, np.eye(4)).to_filename(tmp_path / "a.nii")
    clip = nifti(tmp_path / "a.nii")
    assert limits(clip) == ("float32", 0, 1)
    np.testing.assert_array_equal(decoded(clip), values.transpose(2, 1, 0, 3))
    nibabel.Nifti1Image(np.zeros((7, 6, 5, 9), np.float32), np.eye(4)).to_filename(tmp_path / "b.nii")
    with pytest.raises(InputError, match=r"shape \(7, 6, 5, 9\).*slicer"):
        nifti(tmp_path / "b.nii")


def test_nifti_that_cannot_be_read(tmp_path, monkeypatch):
    path = tmp_path / "a.nii.gz"
    nibabel.Nifti1Image(RNG.random((17, 16, 15)), np.eye(4)).to_filename(path)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(InputError, match=r"NIfTI file.*a\.nii\.gz.*truncated or damaged"):
        nifti(path)
    (tmp_path / "b.nii").write_text("text")
    with pytest.raises(InputError, match="truncated or damaged"):
        nifti(tmp_path / "b.nii")
    values = np.zeros((7, 6, 5), np.float32)
    values[4, 3, 2] = np.nan
    nibabel.Nifti1Image(values, np.eye(4)).to_filename(tmp_path / "c.nii")
    with pytest.raises(InputError, match=r"1 value\(s\) that are not finite.*= \[2, 3, 4, 0\]"):
        nifti(tmp_path / "c.nii")
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(InputError, match=r'pip install "pe-lightning\[nifti\]"'):
        nifti(path)
