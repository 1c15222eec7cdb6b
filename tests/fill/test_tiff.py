"""Every variant of TIFF has the same pixels and the same missing samples for ``fit`` and ``fill``, and in the copy."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image
from source_checks import refused, stored

from pe_fill.filling import fill, read_file
from pe_fill.formats.labelled import LabelledSource
from pe_fill.results.filled import Filled
from pe_lightning.__main__ import main
from pe_lightning.signals.raw import to_unit
from pe_lightning.signals.sources import ImageSource
from pe_lightning.signals.sources.kinds import kind_of

PIXELS = np.random.default_rng(0).integers(1, 256, (32, 48, 3), dtype=np.uint8)
HOLE = np.zeros((32, 48), bool)
HOLE[4:9, 6:12] = True
COLOURS = Image.fromarray(PIXELS).quantize(16)
TURNED = np.rot90(PIXELS, -1)
Write = Callable[[Path], Any]


def geotiff(
    values: np.ndarray, mask: np.ndarray | None = None, overviews: bool = False, inside: bool = True, **options: Any
) -> Write:
    def write(path: Path) -> None:
        rasterio = pytest.importorskip("rasterio", reason="of the extra geo")
        bands = np.moveaxis(values, -1, 0)
        options.update(count=len(bands), height=bands.shape[1], width=bands.shape[2], dtype=bands.dtype)
        options.update(transform=rasterio.Affine(10, 0, 5e5, 0, -10, 5.4e6), crs="EPSG:32632")
        with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=inside):
            with rasterio.open(path, "w", driver="GTiff", **options) as tiff:
                tiff.write(bands)
                if mask is not None:
                    tiff.write_mask(~mask)
            if overviews:
                with rasterio.open(path, "r+") as tiff:
                    tiff.build_overviews([2, 4])

    return write


def pyramid(path: Path) -> None:
    with tifffile.TiffWriter(path) as file:
        file.write(PIXELS, photometric="rgb", subifds=1)
        file.write(PIXELS[::2, ::2], photometric="rgb", subfiletype=1)
        file.write(PIXELS[::4, ::4], photometric="rgb", subfiletype=1)


def by_pillow(picture: Image.Image, **options: Any) -> Write:
    return lambda path: picture.save(path, **options)


def turned(path: Path) -> None:
    options: dict[str, Any] = {"resolution": (300, 200), "extratags": [(274, 3, 1, 6, True)]}
    tifffile.imwrite(path, PIXELS, photometric="rgb", **options)


RGB = Image.fromarray(PIXELS)
VARIANTS: dict[str, tuple[Write, np.ndarray, np.ndarray | None]] = {
    "mask": (geotiff(PIXELS, HOLE), PIXELS, HOLE),
    "mask beside": (geotiff(PIXELS, HOLE, inside=False), PIXELS, HOLE),
    "overviews": (geotiff(PIXELS, overviews=True), PIXELS, None),
    "overviews and mask": (geotiff(PIXELS, HOLE, overviews=True), PIXELS, HOLE),
    "geo inverted": (geotiff(255 - PIXELS[..., :1], photometric="miniswhite"), PIXELS[..., :1], None),
    "nodata": (geotiff(np.where(HOLE[..., None], np.uint8(0), PIXELS), nodata=0), PIXELS, HOLE),
    **{f"geo {name}": (geotiff(PIXELS, compress=name), PIXELS, None) for name in ("lzw", "zstd", "packbits", "deflate")},
    "lzw of 16 bits": (geotiff(PIXELS * np.uint16(200), compress="lzw", photometric="rgb"), PIXELS * np.uint16(200), None),
    **{name: (by_pillow(RGB, compression=f"tiff_{name}"), PIXELS, None) for name in ("lzw", "adobe_deflate")},
    "packbits": (by_pillow(RGB, compression="packbits"), PIXELS, None),
    "palette": (by_pillow(COLOURS), np.asarray(COLOURS.convert("RGB")), None),
    "pyramid": (pyramid, PIXELS, None),
    "orientation": (turned, TURNED, None),
    "premultiplied": (
        lambda path: tifffile.imwrite(path, np.dstack([PIXELS, np.full_like(HOLE, 255, "u1")]), photometric="rgb",
                                      extrasamples=["assocalpha"]),
        np.dstack([PIXELS, np.full_like(HOLE, 255, "u1")]), None,
    ),
}  # fmt: skip


def seen_by_fit(path: Path) -> np.ndarray:
    assert kind_of(str(path)) == "images"
    return to_unit(stored(ImageSource(str(path)).read()))[0]


@pytest.mark.parametrize("name", VARIANTS)
def test_fit_and_fill_see_the_same(tmp_path: Path, name: str) -> None:
    write, pixels, hole = VARIANTS[name]
    hole = np.zeros(pixels.shape[:2], bool) if hole is None else hole
    write(tmp_path / "a.tif")
    read, original = seen_by_fit(tmp_path / "a.tif"), read_file(tmp_path / "a.tif")
    np.testing.assert_array_equal(np.isnan(read).any(-1), hole)
    np.testing.assert_array_equal(original.missing[0].any(-1), hole)
    as_stored = 255 - pixels if "inverted" in name else pixels
    np.testing.assert_array_equal(original.values[0][~hole], as_stored[~hole])
    np.testing.assert_array_equal(read[~hole], to_unit(pixels)[~hole][:, :3])
    changed = np.where(original.missing, np.uint8(7), original.values)
    original.write(tmp_path / "b.tif", changed)
    again = read_file(tmp_path / "b.tif")
    np.testing.assert_array_equal(again.values, changed)
    assert not again.missing.any()
    np.testing.assert_array_equal(seen_by_fit(tmp_path / "b.tif")[~hole], read[~hole])
    with tifffile.TiffFile(tmp_path / "b.tif") as tiff:
        assert len(tiff.pages) == 1
        assert not tiff.pages[0].subifds
    if hole.any():  # what is not filled stays missing
        original.write(tmp_path / "c.tif", original.values, left=original.missing)
        np.testing.assert_array_equal(read_file(tmp_path / "c.tif").missing[0].any(-1), hole)
        labelled = stored(LabelledSource(str(tmp_path / "a.tif"), "2").read())
        np.testing.assert_array_equal(np.isnan(labelled[0, ..., 0]), hole)


@pytest.mark.parametrize("dtype", ["i1", "i2"])
def test_signed_numbers_are_signed(tmp_path: Path, dtype: str) -> None:
    values = np.random.default_rng(0).integers(-100, 100, (12, 14)).astype(dtype)
    tifffile.imwrite(tmp_path / "a.tif", values)
    refused(ImageSource(str(tmp_path / "a.tif")).read, f"holds {values.dtype} values", "--data LabelledDataModule")
    np.testing.assert_array_equal(read_file(tmp_path / "a.tif").values[0, ..., 0], values)


def test_what_a_copy_has_not_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    exif = Image.Exif()
    exif[0x8769] = {0x9003: "2020:01:01 00:00:00"}
    RGB.save(tmp_path / "exif.tif", exif=exif.tobytes())
    RGB.save(tmp_path / "lzw.tif", compression="tiff_lzw")
    by_pillow(COLOURS)(tmp_path / "palette.tif")
    pyramid(tmp_path / "pyramid.tif")
    for name, part in (
        ("exif", "tag ExifTag, which the copy has not"),
        ("lzw", "compressed by LZW, which is not written here (pip install imagecodecs): the result is, by deflate"),
        ("palette", "a palette: its colours are filled, and the copy is RGB"),
        ("pyramid", "has 2 reduced pages (overviews), which the copy has not"),
    ):
        if name == "lzw" and importlib.util.find_spec("imagecodecs"):
            continue
        caplog.clear()
        with caplog.at_level(logging.INFO):
            read_file(tmp_path / f"{name}.tif")
        assert part in caplog.text


def test_what_is_refused_before_it_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rasterio = pytest.importorskip("rasterio", reason="of the extra geo")
    Image.fromarray(HOLE).save(tmp_path / "bits.tif")
    with tifffile.TiffWriter(tmp_path / "two.tif") as file:
        file.write(PIXELS, photometric="rgb")
        file.write(PIXELS[::2, ::2], photometric="rgb")
    geotiff(PIXELS[..., :1], photometric="palette")(tmp_path / "classes.tif")
    with rasterio.open(tmp_path / "classes.tif", "r+") as tiff:
        tiff.write_colormap(1, {1: (255, 0, 0, 255)})
    for name, part in (("bits", "1 bits per sample"), ("two", "holds 2 image series"), ("classes", "-expand rgb")):
        path = tmp_path / f"{name}.tif"
        refused(lambda path=path: read_file(path), part)
    geotiff(PIXELS, compress="zstd")(tmp_path / "zstd.tif")
    if importlib.util.find_spec("imagecodecs"):
        return
    monkeypatch.setitem(sys.modules, "rasterio", None)
    for read in (seen_by_fit, read_file):
        refused(lambda read=read: read(tmp_path / "zstd.tif"), "the compression ZSTD", "pip install imagecodecs")


@pytest.mark.slow
def test_masked_pixels_are_filled_and_enlarged_by_command_and_python(tmp_path: Path) -> None:
    y, x = np.mgrid[:16, :18] / 16
    smooth = (128 + 90 * np.sin(4 * x * y))[..., None].astype(np.uint8)
    hole = HOLE[:16, :18]
    geotiff(np.where(hole[..., None], np.uint8(0), smooth), hole)(tmp_path / "a.tif")
    options: dict[str, Any] = {"folds": "none", "model": "exact"}
    filled: Filled = fill(tmp_path / "a.tif", **options)
    assert np.abs(filled.values[..., 0].astype(int) - smooth[..., 0])[hole].max() < 40
    large = fill(tmp_path / "a.tif", upscale=2, **options)
    assert np.abs(large.values[..., 0].astype(int).reshape(16, 2, 18, 2).mean((1, 3)) - smooth[..., 0])[hole].max() < 40
    words = ["--folds", "none", "--model", "exact", "--no_std", "--out", str(tmp_path / "b.tif")]
    assert main(["fill", str(tmp_path / "a.tif"), *words]) == 0
    np.testing.assert_array_equal(read_file(tmp_path / "b.tif").values[0].squeeze(), filled.values.squeeze())
