"""A small file of every format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import soundfile
import tifffile
from clip_files import pictures, write_video
from PIL import Image
from source_checks import noise, write_png16

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
    def write(path: Path, values: np.ndarray) -> None:
        as_16_bits = (values[0].astype("i2") - 128 * (values.dtype == "u1")) << 8 if values.itemsize == 1 else values[0]
        soundfile.write(path, as_16_bits, 8000, subtype)

    return write


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
    "u8.wav": (sound("PCM_U8"), noise("u1", *ROW.shape)),
    "s8.aiff": (sound("PCM_S8"), noise("i1", *ROW.shape)),
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
"""Functions that write the samples ``(S, N_1, ..., N_D, C)`` to a path, and these, by the name of the file."""


def write_sample(folder: Path, name: str) -> tuple[Path, np.ndarray]:
    """A file of :data:`FORMATS`, and its samples."""
    write, values = FORMATS[name]
    write(folder / name, values)
    return folder / name, values
