"""Every format by one table: what is read, what a copy has, and what is said of damage and of a full disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import soundfile
import tifffile
from clip_files import pictures, write_video
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from source_checks import noise, refused, stored, unit, write_png16

from pe_fill.formats.editable import EditableFile
from pe_fill.formats.original import read_original
from pe_lightning.errors import InputError
from pe_lightning.signals.files import replacing
from pe_lightning.signals.sources import VideoSource
from pe_lightning.signals.sources.kinds import source_of
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile
from pe_lightning.signals.sources.pictures import decode_image

RNG = np.random.default_rng(0)


def pillow(path: Path, values: np.ndarray) -> None:
    Image.fromarray(values.squeeze()).save(path, **({"lossless": True} if path.suffix == ".webp" else {}))


def frames(path: Path, values: np.ndarray) -> None:
    path.mkdir()
    for number, frame in enumerate(values[0]):
        Image.fromarray(frame).save(path / f"{number}.png")


def geotiff(**options: object) -> Callable[[Path, np.ndarray], None]:
    def write(path: Path, values: np.ndarray) -> None:
        rasterio = pytest.importorskip("rasterio", reason="of the extra geo")
        bands = np.moveaxis(values[0], -1, 0) if len(values) == 1 else values[..., 0]
        profile = {"count": len(bands), "height": bands.shape[1], "width": bands.shape[2], "dtype": bands.dtype, **options}
        place = rasterio.Affine(10, 0, 5e5, 0, -10, 5.4e6)
        with rasterio.open(path, "w", driver="GTiff", transform=place, crs="EPSG:32632", **profile) as tiff:
            tiff.write(bands)
            tiff.update_tags(1, who="me")
            tiff.set_band_description(1, "height")

    return write


def hdf5(path: Path, values: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("group/v", data=values[0, ..., 0], chunks=True, compression=3)


def sound(subtype: str) -> Callable[[Path, np.ndarray], None]:
    return lambda path, values: soundfile.write(path, values[0], 8000, subtype)


def table(path: Path, values: np.ndarray) -> None:
    np.savetxt(path, values[..., 0].T, "%.3f", ",", header="a,b", comments="")


def nifti(path: Path, values: np.ndarray) -> None:
    nibabel = pytest.importorskip("nibabel")
    nibabel.save(nibabel.Nifti1Image(values[0, ..., 0].transpose(2, 1, 0), np.eye(4)), path)


def video(codec: str, stored: str, given: str) -> Callable[[Path, np.ndarray], object]:
    return lambda path, values: write_video(path, values[0], codec, stored, given)


RGB, ROW = noise("u1", 1, 16, 17, 3), noise("i2", 1, 900, 2)
FORMATS: dict[str, tuple[Callable[[Path, np.ndarray], object], np.ndarray]] = {
    **{f"rgb.{suffix}": (pillow, RGB) for suffix in ("png", "bmp", "tif", "webp", "ppm")},
    "grey.png": (pillow, noise("u1", 1, 16, 17, 1)),
    "deep.png": (lambda path, values: write_png16(path, values[0]), noise("u2", 1, 16, 17, 3)),
    "float.tif": (lambda path, values: tifffile.imwrite(path, values[0], photometric="rgb"), RNG.random(RGB.shape, "f4")),
    "stack.tif": (lambda path, values: tifffile.imwrite(path, values[0, ..., 0]), noise("u2", 1, 9, 16, 17, 1)),
    "geo.tif": (geotiff(), RGB),
    "frames": (frames, noise("u1", 1, 3, 16, 17, 3)),
    "a.npy": (lambda path, values: np.save(path, values[0, ..., 0]), RNG.normal(size=(1, 16, 17, 1))),
    "a.npz": (lambda path, values: np.savez(path, values[0, ..., 0]), RNG.normal(size=(1, 16, 17, 1))),
    "a.h5": (hdf5, RNG.normal(size=(1, 16, 17, 1)).astype("f4")),
    "a.csv": (table, RNG.normal(size=(2, 90, 1)).round(3)),
    "16.wav": (sound("PCM_16"), ROW),
    "float.wav": (sound("FLOAT"), RNG.uniform(-1, 1, ROW.shape).astype("f4")),
    "double.wav": (sound("DOUBLE"), RNG.uniform(-1, 1, ROW.shape)),
    "24.wav": (sound("PCM_24"), noise("i4", *ROW.shape) & ~0xFF),
    "24.flac": (sound("PCM_24"), noise("i4", *ROW.shape) & ~0xFF),
    "a.mp4": (video("libx264rgb", "rgb24", "rgb24"), pictures()[None]),
    "rgb.mkv": (video("ffv1", "bgr0", "rgb24"), pictures()[None]),
    "grey.mkv": (video("ffv1", "gray", "gray"), pictures(channels=1)[None]),
    "deep.mkv": (video("ffv1", "gray16le", "gray16le"), pictures(channels=1, dtype=np.uint16)[None]),
    "deep.mov": (video("png", "rgb48be", "rgb48le"), pictures(dtype=np.uint16)[None]),
    "a.nii": (nifti, noise("i2", 1, 5, 6, 7, 1)),
    "a.nii.gz": (nifti, noise("i2", 1, 5, 6, 7, 1)),
}


def png(path: Path, values: np.ndarray) -> None:
    """A picture whose second or fourth channel is opacity; with a gamma, or with a text, a resolution and a profile."""
    if values.dtype == np.uint16:
        write_png16(path, values[0], gamma=0.5)
        return
    info = PngInfo()
    info.add_text("Author", "someone")
    Image.fromarray(values[0]).save(path, pnginfo=info, dpi=(300, 300), icc_profile=b"profile")


def about_png(path: Path) -> object:
    from png import Reader

    pixels, chunks = decode_image(SourceFile(path, str(path))), dict(Reader(bytes=path.read_bytes()).chunks())
    kept = {name: bytes(chunks[name]) for name in (b"gAMA", b"tEXt", b"pHYs", b"iCCP") if name in chunks}
    return pixels.dtype, pixels[..., -1].tolist() if pixels.shape[-1] in (2, 4) else None, kept


def tiff(path: Path, values: np.ndarray) -> None:
    """With a value that marks missing samples, tags, and a smaller page."""
    tags = [("GDAL_NODATA", 2, 3, "-3", True), ("Artist", 2, 3, "me", True)]
    options = {"description": "about", "compression": "zlib", "software": "s", "resolution": (300, 200), "extratags": tags}
    photometric = "rgb" if values.shape[-1] == 3 else "minisblack"
    with tifffile.TiffWriter(path, byteorder=">") as file:
        file.write(values[0] if values.shape[-1] == 3 else values[0, ..., 0], photometric=photometric, **options)
        if values.ndim == 4:
            file.write(np.arange(20, dtype="u1").reshape(4, 5), photometric="minisblack")


def about_tiff(path: Path) -> object:
    with tifffile.TiffFile(path) as file:
        page, last = file.pages[0], file.series[-1].asarray() if len(file.series) > 1 else np.zeros(0)
        names = ("Artist", "GDAL_NODATA", "Compression", "Software", "XResolution", "YResolution", "ImageDescription")
        return file.byteorder, page.dtype, last.tolist(), [page.tags.valueof(name) for name in names]


def about_raster(path: Path) -> object:
    import rasterio

    with rasterio.open(path) as tiff:
        place = str(tiff.crs), tiff.transform, tiff.nodata, tiff.block_shapes, tiff.compression, tiff.interleaving
        return *place, tiff.tags(1), tiff.descriptions, tiff.dtypes


def netcdf_like(path: Path, values: np.ndarray) -> None:
    hdf5(path, values)
    with h5py.File(path, "r+") as file:
        file["group"].attrs["who"] = "me"
        file["group/v"].attrs["_FillValue"] = np.float32(-3)


def about_hdf5(path: Path) -> object:
    with h5py.File(path) as file:
        return dict(file["group"].attrs), dict(file["group/v"].attrs), file["group/v"].compression, file["group/v"].chunks


def scan(path: Path, values: np.ndarray) -> None:
    nibabel = pytest.importorskip("nibabel")
    image = nibabel.Nifti1Image(values[0, ..., 0], np.diag([2.0, 2, 3, 1]))
    image.header.set_slope_inter(0.5, 10)
    image.header["descrip"] = b"scan"
    nibabel.save(image, path)


def about_scan(path: Path) -> object:
    import nibabel

    found = nibabel.load(path)
    return found.dataobj.slope, found.dataobj.inter, found.header["descrip"].item(), found.affine.tolist()


def about_npy(path: Path) -> object:
    found = np.load(path)
    return found.dtype.str, found.flags.f_contiguous, found.shape


def marked(dtype: str, *shape: int) -> np.ndarray:
    """Values of which some are -3, and some NaN."""
    values = (np.random.default_rng(0).random(shape) * 900).astype(dtype)
    values[:, 1, 2] = -3
    values[:, 2, 2] = np.nan if values.dtype.kind == "f" else -3
    return values


COPIED: dict[str, tuple[Callable[[Path, np.ndarray], object], np.ndarray, Callable[[Path], object]]] = {
    **{f"{n}-{t}.png": (png, noise(t, 1, 6, 7, n), about_png) for n, t in ((2, "u2"), (3, "u1"), (4, "u1"), (4, "u2"))},
    **{
        f"{len(shape)}-{shape[-1]}-{dtype}.tif": (tiff, marked(dtype, *shape), about_tiff)
        for dtype in ("i2", "f4", "f8")
        for shape in ((1, 6, 7, 1), (1, 6, 7, 3), (1, 5, 6, 7, 1))
    },
    **{
        f"bands-{len(values)}.tif": (
            geotiff(nodata=-3, tiled=True, blockxsize=32, blockysize=16, compress="deflate"), values, about_raster,
        )
        for values in (marked("i2", 1, 40, 50, 1), marked("i2", 6, 40, 50, 1))
    },
    "attributes.h5": (netcdf_like, marked("f4", 1, 16, 17, 1), about_hdf5),
    "scan.nii.gz": (scan, noise("i2", 1, 5, 6, 7, 1), about_scan),
    "columns.npy": (lambda p, v: np.save(p, v[0, ..., 0].astype(">f4", order="F")), RNG.random((1, 6, 7, 1)), about_npy),
    "counted.npy": (lambda p, v: np.save(p, v[..., 0]), RNG.random((1, 6, 7, 1)), about_npy),
    "grey.npy": (lambda p, v: np.save(p, v[0]), RNG.random((1, 6, 7, 1)), about_npy),
    "cubes.npy": (lambda p, v: np.save(p, v[..., 0]), RNG.random((4, 9, 8, 8, 1)), about_npy),
}  # fmt: skip


@pytest.mark.parametrize("name", COPIED)
def test_a_copy_has_known_values_and_metadata(tmp_path: Path, name: str) -> None:
    write, values, about = COPIED[name]
    write(tmp_path / name, values)
    original = original_of(tmp_path / name)
    expected = np.isnan(original.values) | (original.values == -3)
    np.testing.assert_array_equal(original.missing, expected)
    filled = np.ascontiguousarray(np.where(expected, 5, original.values).astype(original.values.dtype))
    target = target_of(tmp_path / name, original)
    original.write(target, filled)
    np.testing.assert_array_equal(original_of(target).values, filled)
    assert about(target) == about(tmp_path / name)


WRITTEN = [name for name in FORMATS if name != "a.npz"]
CHECKED = [name for name in FORMATS if name not in ("frames", "a.csv")]  # the others are text, or files of their own


@pytest.fixture
def made(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, np.ndarray]:
    """A file, and its samples ``(S, N_1, ..., N_D, C)``."""
    name = request.param
    write, values = FORMATS[name]
    write(tmp_path / name, values)
    return tmp_path / name, values


def original_of(path: Path) -> EditableFile:
    return read_original(SourceFile(path, str(path)), Missing("nan"), axes=1 if path.suffix == ".wav" else None)


def target_of(path: Path, original: EditableFile) -> Path:
    suffix = next((suffix for suffix in original.suffixes if path.name.endswith(suffix)), original.suffixes[0])
    return path.with_name(f"copy{suffix}")


@pytest.mark.parametrize("made", FORMATS, indirect=True)
def test_the_samples_of_a_file(made: tuple[Path, np.ndarray]) -> None:
    path, values = made
    raw = (VideoSource(path) if path.is_dir() else source_of(str(path))).read()
    assert raw.stored == values.dtype.name
    np.testing.assert_array_equal(stored(raw), values)
    for signal, (in_unit, expected) in enumerate(zip(unit(raw), values, strict=True)):
        assert 0 <= in_unit.min() < in_unit.max() <= 1
        low, high = raw.scaling.of(signal)
        np.testing.assert_allclose(raw.scaling.restore(in_unit, signal), expected, rtol=0, atol=1e-6 * (high - low))


@pytest.mark.parametrize("made", WRITTEN, indirect=True)
def test_copies_with_other_values_in_every_lossless_format(made: tuple[Path, np.ndarray]) -> None:
    path, values = made
    original = original_of(path)
    assert original.values.dtype == values.dtype
    assert not original.missing.any()
    other = np.random.default_rng(1).random(original.values.shape) < 0.1
    changed = np.where(other, original.values[:, ::-1], original.values)
    for suffix in {*original.suffixes} - {".jpg", ".jpeg"}:
        target = path.with_name(f"copy{suffix}")
        original.write(target, changed)
        again = original_of(target)
        assert again.values.dtype == values.dtype
        # WebP and MP4 have three channels
        np.testing.assert_array_equal(again.values, np.broadcast_to(changed, again.values.shape), err_msg=suffix)


@pytest.mark.parametrize("made", CHECKED, indirect=True)
def test_truncated_files(made: tuple[Path, np.ndarray]) -> None:
    path, _ = made
    path.write_bytes(path.read_bytes()[: int(0.6 * path.stat().st_size)])
    refused(lambda: stored(source_of(str(path)).read()), path.name, "truncated, damaged")


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
@pytest.mark.parametrize("made", WRITTEN, indirect=True)
def test_a_full_disk_leaves_the_old_file_and_an_error(made: tuple[Path, np.ndarray]) -> None:
    import resource

    path, _ = made
    original = original_of(path)
    target = target_of(path, original)
    if target.suffix:
        target.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
        with pytest.raises(InputError, match="cannot write"), replacing(target) as temporary:
            original.write(temporary, original.values)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {entry.name for entry in path.parent.iterdir()} == {path.name} | ({target.name} if target.suffix else set())
    assert not target.suffix or target.read_text() == "old"
