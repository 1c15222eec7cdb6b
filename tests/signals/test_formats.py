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
from source_checks import noise, refused, stored, unit, write_png16

from pe_lightning.errors import InputError
from pe_lightning.signals.files import replacing
from pe_lightning.signals.raw import EditableFile
from pe_lightning.signals.sources import VideoSource
from pe_lightning.signals.sources.kinds import read_original, source_of
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile

RNG = np.random.default_rng(0)


def pillow(path: Path, values: np.ndarray) -> None:
    Image.fromarray(values.squeeze()).save(path, **({"lossless": True} if path.suffix == ".webp" else {}))


def frames(path: Path, values: np.ndarray) -> None:
    path.mkdir()
    for number, frame in enumerate(values[0]):
        Image.fromarray(frame).save(path / f"{number}.png")


def geotiff(path: Path, values: np.ndarray) -> None:
    rasterio = pytest.importorskip("rasterio", reason="of the extra geo")
    options = {"height": values.shape[1], "width": values.shape[2], "count": 3, "dtype": values.dtype, "crs": "EPSG:4326"}
    with rasterio.open(path, "w", driver="GTiff", transform=rasterio.Affine(1, 0, 0, 0, -1, 60), **options) as tiff:
        tiff.write(np.moveaxis(values[0], -1, 0))


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
    "geo.tif": (geotiff, RGB),
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
def test_a_copy_with_other_values(made: tuple[Path, np.ndarray]) -> None:
    path, values = made
    original = original_of(path)
    assert original.values.dtype == values.dtype
    assert not original.missing.any()
    other = np.random.default_rng(1).random(original.values.shape) < 0.1
    changed = np.where(other, original.values[:, ::-1], original.values)
    target = target_of(path, original)
    original.write(target, changed)
    again = original_of(target)
    assert again.values.dtype == values.dtype
    np.testing.assert_array_equal(again.values, changed)


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
