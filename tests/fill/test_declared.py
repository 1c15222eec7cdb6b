"""Declarations of missing values: declared values alone are missing for both verbs, and none is in a copy."""

from __future__ import annotations

import logging
import shutil
import warnings
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import pytest
import tifffile
from source_checks import refused, stored

from pe_fill.filling import fill, read_file
from pe_fill.formats.editable import valid_values
from pe_fill.formats.labelled import LabelledSource
from pe_fill.formats.netcdf import edit_labelled
from pe_lightning.errors import InputError
from pe_lightning.signals.sources import ImageSource, VideoSource
from pe_lightning.signals.sources.declared import Declared
from pe_lightning.signals.sources.kinds import source_of

HOLES = (slice(3, 6), slice(4, 8))


def field(dtype: str, hole: float | None) -> np.ndarray[Any, Any]:
    """Values from 20 to 120 with valid zeros in a corner, and a hole of some number."""
    y, x = np.mgrid[:14, :16]
    values = (70 + 50 * np.sin(x / 5) * np.cos(y / 4)).astype(dtype)
    values[0, :3] = 0
    if hole is not None:
        values[HOLES] = hole
    return values


def missing(hole: float | None) -> np.ndarray[Any, Any]:
    found = np.zeros((14, 16), bool)
    found[HOLES] = hole is not None
    return found


LOWEST = float(np.finfo(np.float32).min)


@pytest.mark.parametrize(
    ("dtype", "text", "hole"),
    [
        ("uint8", "-9999", None),
        ("uint8", "255", 255),
        ("uint16", "65535", 65535),
        ("int16", "-9999.0", -9999),
        ("float32", str(LOWEST), LOWEST),
        ("float32", "-3.40282346638529e+38", LOWEST),
        ("float32", "-1.7976931348623157e+308", None),
        ("float32", "-9999,0", -9999),
        ("float64", "nan", None),
        ("float32", "none", None),
    ],
)
def test_the_text_of_the_tag_of_a_tiff(tmp_path: Path, dtype: str, text: str, hole: float | None) -> None:
    """The library takes 0 where it cannot read the text; zeros are known, and NaN is missing besides the number."""
    values, expected = field(dtype, hole), missing(hole)
    if values.dtype.kind == "f":
        values[9, 2], expected[9, 2] = np.nan, True
    options: dict[str, Any] = {"photometric": "minisblack", "metadata": None, "extratags": [(42113, "s", 0, text, True)]}
    tifffile.imwrite(tmp_path / "a.tif", values, **options)
    tifffile.imwrite(tmp_path / "stack.tif", np.stack([values] * 5), **options)
    original = read_file(tmp_path / "a.tif")
    np.testing.assert_array_equal(original.missing[0, ..., 0], expected)
    filled = np.where(original.missing, original.values.dtype.type(hole or 1), original.values)  # predicted as declared
    original.write(tmp_path / "b.tif", filled)
    assert not read_file(tmp_path / "b.tif").missing.any()
    with tifffile.TiffFile(tmp_path / "b.tif") as tiff:
        assert tiff.pages[0].tags.valueof(42113) == text
    stack = stored(VideoSource(tmp_path / "stack.tif").read())[0, ..., 0]
    np.testing.assert_array_equal(np.isnan(stack), np.stack([expected] * 5))
    if dtype == "int16":  # of unknown range
        with pytest.raises(InputError, match=r"--data LabelledDataModule --data\.variable 1"):
            ImageSource(tmp_path / "a.tif").read()
    else:
        picture = stored(ImageSource(tmp_path / "a.tif").read())[0, ..., 0]
        np.testing.assert_array_equal(np.isnan(picture), expected)


CASES = [
    ("int16", {"_FillValue": np.int16(200), "missing_value": np.int16(201)}, (200, 201)),
    ("uint8", {"_FillValue": np.int16(-9999)}, ()),
    ("float32", {"missing_value": np.float32(150)}, (150,)),
    ("int16", {"valid_range": np.array([0, 125], np.int16)}, (130, -1)),
    ("float32", {"valid_min": np.float32(0), "valid_max": np.float32(125)}, (130, -1)),
    ("int16", {"valid_max": np.int16(125), "scale_factor": 0.5, "add_offset": 3.0}, (130, 126)),
    ("int16", {"valid_range": np.array([3.0, 65.5]), "scale_factor": 0.5, "add_offset": 3.0}, (130, -1)),
    ("int16", {"valid_range": np.array([-59.5, 3.0]), "scale_factor": -0.5, "add_offset": 3.0}, (130, -1)),
    ("int8", {"_Unsigned": "true", "valid_range": np.array([0, 254], np.int16)}, (-1,)),
]


@pytest.mark.parametrize(("dtype", "attributes", "holes"), CASES)
def test_attributes(tmp_path: Path, dtype: str, attributes: dict[str, Any], holes: tuple[float, ...]) -> None:
    """NetCDF by both verbs, and the same file as plain arrays, in which numbers are not unpacked."""
    xarray = pytest.importorskip("xarray", reason="of the extra geo")
    values, expected = field(dtype, None), missing(None)
    for place, hole in enumerate(holes):
        values[5 + place, 2:6], expected[5 + place, 2:6] = hole, True
    path = str(tmp_path / "a.nc")
    xarray.Dataset({"v": (("y", "x"), values, attributes)}).to_netcdf(path, engine="h5netcdf")
    original = edit_labelled(path)
    np.testing.assert_array_equal(original.missing[0, ..., 0], expected)
    read = np.concatenate(list(LabelledSource(path).read().blocks()))
    np.testing.assert_array_equal(np.isnan(read[..., 0]), expected)
    copy = str(shutil.copy(path, tmp_path / "a.h5"))
    plain = read_file(copy, axes=2, key="v")
    np.testing.assert_array_equal(plain.missing[0, ..., 0], expected)
    np.testing.assert_array_equal(np.isnan(stored(source_of(copy, key="v").read())[0, ..., 0]), expected)
    for edited, name in ((original, "b.nc"), (plain, "c.nc")):
        for predicted in (200, 1000, -1000):
            number = np.clip(predicted, -128, 127) if dtype == "int8" and edited is plain else np.int64(predicted)
            edited.write(tmp_path / name, np.where(edited.missing, number, edited.values).astype(edited.values.dtype))
            again = edit_labelled(str(tmp_path / name))
            assert not again.missing.any()
            np.testing.assert_array_equal(again.values[0, ..., 0][~expected], original.values[0, ..., 0][~expected])
            (tmp_path / name).unlink()


def test_zeros_of_zarr_2_are_known_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """0 is the fill value of Zarr 2 without a declaration; --missing=0 makes these values missing."""
    zarr = pytest.importorskip("zarr", minversion="3", reason="of the extra geo")
    pytest.importorskip("xarray", reason="of the extra geo")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    array = group.create_array("v", shape=(14, 16), dtype="f4")
    array[:] = field("float32", None)
    array.attrs["_ARRAY_DIMENSIONS"] = ["y", "x"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr 3 warns about consolidated metadata
        zarr.consolidate_metadata(tmp_path / "a.zarr")
    with caplog.at_level(logging.INFO):
        assert not edit_labelled(str(tmp_path / "a.zarr")).missing.any()
    assert "3 values are 0, the default fill value of Zarr 2" in caplog.text
    assert "--missing=0" in caplog.text
    assert edit_labelled(str(tmp_path / "a.zarr"), missing="0").missing.sum() == 3


def test_a_number_without_a_declaration_is_named_and_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What the notice says to type works, in every format, and then nothing is named."""
    xarray = pytest.importorskip("xarray", reason="of the extra geo")
    values = field("float32", -9999)
    np.save(tmp_path / "a.npy", values)
    np.save(tmp_path / "b.npy", values.astype(np.int16))
    tifffile.imwrite(tmp_path / "a.tif", values, photometric="minisblack")
    xarray.Dataset({"v": (("y", "x"), values)}).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = values
    for name in ("a.npy", "b.npy", "a.tif", "a.nc", "a.h5"):
        path, labelled = str(tmp_path / name), name.endswith(".nc")
        for read in (edit_labelled if labelled else read_file, LabelledSource if labelled else source_of):
            for given, named in (("nan", True), ("-9999", False)):
                caplog.clear()
                with caplog.at_level(logging.INFO):
                    found = read(path, missing=given)
                    found = found.missing if hasattr(found, "values") else np.isnan(stored(found.read()))
                assert ("-9999 in 12 of 224 samples is far outside" in caplog.text) == named, (name, read)
                assert ("--missing=-9999 for fill, --data.missing=-9999 for fit" in caplog.text) == named
                assert found.sum() == (0 if named else 12)
    with caplog.at_level(logging.INFO):
        fill(np.where(values == -9999, -9999, values), missing=values == 0, folds="none")
    assert "missing=-9999" in caplog.text


def test_values_that_are_stored() -> None:
    declared = Declared((5, 6, 10), low=5, high=10)
    np.testing.assert_array_equal(valid_values(np.array([0.0, 5.2, 6, 9.6, 99]), np.dtype("u1"), declared), [7, 7, 7, 9, 9])
    reals = valid_values(np.array([1.0, 2, 3]), np.dtype("f8"), Declared((2.0,), high=2))
    np.testing.assert_array_equal(reals, [1, np.nextafter(2, 1), np.nextafter(2, 1)])


def test_masks_of_volumes_have_the_order_of_axes_of_the_file(tmp_path: Path) -> None:
    volume, mask = np.random.default_rng(0).random((2, 7, 6, 5)).astype(np.float32)
    for name, values in (("a", volume), ("mask", (mask > 0.8).astype(np.uint8))):
        nibabel.Nifti1Image(values, np.eye(4)).to_filename(tmp_path / f"{name}.nii.gz")
    original = read_file(tmp_path / "a.nii.gz", str(tmp_path / "mask.nii.gz"), axes=3)
    np.testing.assert_array_equal(original.missing[0, ..., 0], mask > 0.8)


def test_volumes_that_a_fit_refuses_are_not_filled(tmp_path):
    """One reader: colours in one number, and a series of volumes, which was taken for signals along x."""
    colours = np.zeros((4, 5, 6), [(name, "u1") for name in "RGB"])
    nibabel.Nifti1Image(colours, np.eye(4)).to_filename(tmp_path / "rgb.nii")
    nibabel.Nifti1Image(np.zeros((4, 5, 6, 7), "f4"), np.eye(4)).to_filename(tmp_path / "series.nii")
    for name, part in (("rgb", "Save colours"), ("series", "has the shape (4, 5, 6, 7); a volume has three axes")):
        path = str(tmp_path / f"{name}.nii")
        refused(lambda path=path: read_file(path), part)
        refused(VideoSource(path).read, part)
    nibabel.Nifti1Image(np.zeros((4, 5, 6, 1, 3), "f4"), np.eye(4)).to_filename(tmp_path / "channels.nii")
    assert read_file(tmp_path / "channels.nii").values.shape == (1, 4, 5, 6, 3)
    nibabel.Nifti1Image(np.zeros((8, 9, 1), "f4"), np.eye(4)).to_filename(tmp_path / "slice.nii")
    assert read_file(tmp_path / "slice.nii").values.shape == (1, 8, 9, 1)
