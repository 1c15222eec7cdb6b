"""Copies of files of every format with other values: what they hold besides, and what is said of a full disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import av
import h5py
import numpy as np
import pytest
import soundfile
import tifffile
from clip_files import pictures, write_video
from file_formats import FORMATS, RNG, geotiff, hdf5, write_sample
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from source_checks import noise, write_png16

from pe_fill.formats.editable import EditableFile, read_original
from pe_lightning.errors import InputError
from pe_lightning.signals.files import replacing
from pe_lightning.signals.sources import VideoSource
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile
from pe_lightning.signals.sources.pictures import decode_image

WRITTEN = [name for name in FORMATS if name != "a.npz"]


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
    """With a value that marks missing samples, tags of any kind, and a reduced page."""
    tags = [("GDAL_NODATA", 2, 3, "-3", True), ("Artist", 2, 3, "me", True), (65000, 12, 2, (0.5, 3.0), True)]
    options = {"description": "größe".encode(), "compression": "zlib", "software": "s", "resolution": (300, 200)}
    options |= {"extratags": tags}
    photometric = "rgb" if values.shape[-1] == 3 else "minisblack"
    with tifffile.TiffWriter(path, byteorder=">") as file:
        file.write(values[0] if values.shape[-1] == 3 else values[0, ..., 0], photometric=photometric, **options)
        if values.ndim == 4:
            file.write(np.arange(20, dtype="u1").reshape(4, 5), photometric="minisblack", subfiletype=1)


def stack(options: dict[str, Any], path: Path, values: np.ndarray) -> None:
    tifffile.imwrite(path, values[0, ..., 0], **options)


def about_tiff(path: Path) -> object:
    with tifffile.TiffFile(path) as file:
        page, names = file.pages[0], ("Artist", "GDAL_NODATA", "Compression", "Software", "XResolution", "ImageDescription")
        return (
            file.byteorder,
            page.dtype,
            [page.tags.valueof(code) for code in (65000, 50839)],
            [page.tags.valueof(name) for name in names],
        )


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
    **{
        f"{name}.tif": (partial(stack, options), noise("u2", 1, 5, 6, 7, 1), about_tiff)
        for name, options in {
            "imagej": {"imagej": True, "metadata": {"axes": "ZYX", "Info": "about", "spacing": 2.0}},
            "of.ome": {"metadata": {"axes": "ZYX"}},
        }.items()
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


def original_of(path: Path) -> EditableFile:
    return read_original(SourceFile(path, str(path)), Missing("nan"))


def target_of(path: Path, original: EditableFile) -> Path:
    suffix = next((suffix for suffix in original.suffixes if path.name.endswith(suffix)), original.suffixes[0])
    return path.with_name(f"copy{suffix}")


@pytest.mark.parametrize("name", WRITTEN)
def test_copies_with_other_values_in_every_lossless_format(tmp_path: Path, name: str) -> None:
    path, values = write_sample(tmp_path, name)
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


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
@pytest.mark.parametrize("name", WRITTEN)
def test_a_full_disk_leaves_the_old_file_and_an_error(tmp_path: Path, name: str) -> None:
    import resource

    path, _ = write_sample(tmp_path, name)
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


def with_cue(content: bytes) -> bytes:
    """A WAV or AIFF file with a further chunk at its end, and with its size."""
    order = "big" if content[:4] == b"FORM" else "little"
    result = content + b"cue " + (28).to_bytes(4, order) + bytes(range(28))  # type: ignore[arg-type]
    if content[:4] == b"RF64":
        return result[:20] + (len(result) - 8).to_bytes(8, "little") + result[28:]
    return result[:4] + (len(result) - 8).to_bytes(4, order) + result[8:]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a.wav", "a.aiff", "a.flac", "rf64.wav", "float.wav"])
def test_tags_and_other_chunks_of_sound_are_in_the_copy(tmp_path: Path, name: str) -> None:
    path, options = tmp_path / name, {"format": "RF64"} if name == "rf64.wav" else {}
    with soundfile.SoundFile(path, "w", 8000, 1, "FLOAT" if name == "float.wav" else "PCM_16", **options) as file:
        file.title, file.artist = "song", "someone"
        file.write(RNG.random(900) - 0.5)
    if name != "a.flac":
        path.write_bytes(with_cue(path.read_bytes()))
    original = read_original(SourceFile(path, name), Missing("nan"))
    values = np.ascontiguousarray(original.values[:, ::-1])
    original.write(tmp_path / f"b{path.suffix}", values)
    copy = tmp_path / f"b{path.suffix}"
    np.testing.assert_array_equal(read_original(SourceFile(copy, "b"), Missing("nan")).values, values)
    with soundfile.SoundFile(copy) as file:
        assert (file.title, file.artist, len(file)) == ("song", "someone", 900)
    assert (bytes(range(28)) in copy.read_bytes()) == (name != "a.flac")


def test_what_a_copy_of_a_video_has_and_has_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Opacity is named, by fit too; chapters and the shape of pixels are kept."""
    colours = pictures()
    write_video(tmp_path / "a.mov", np.concatenate([colours, colours[..., :1]], -1), "png", "rgba", "rgba")
    for read in (
        lambda: list(VideoSource(str(tmp_path / "a.mov")).read().blocks()),
        lambda: original_of(tmp_path / "a.mov"),
    ):
        caplog.clear()
        with caplog.at_level(logging.INFO):
            read()
        assert "has an opacity channel, which is not read" in caplog.text
    with av.open(str(tmp_path / "b.mp4"), "w") as container:
        container.set_chapters([{"id": 1, "start": 0, "end": 9, "time_base": Fraction(1, 25), "metadata": {"title": "x"}}])
        stream = container.add_stream("libx264rgb", rate=25, options={"qp": "0"})
        stream.height, stream.width, stream.pix_fmt = *colours.shape[1:3], "rgb24"
        stream.codec_context.sample_aspect_ratio = Fraction(4, 3)
        for number, pixels in enumerate(colours):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    original = original_of(tmp_path / "b.mp4")
    original.write(tmp_path / "c.mp4", original.values)
    with av.open(str(tmp_path / "c.mp4")) as container:
        assert container.streams.video[0].sample_aspect_ratio == Fraction(4, 3)
        assert [chapter["metadata"]["title"] for chapter in container.chapters()] == ["x"]
    with caplog.at_level(logging.INFO):
        original.write(tmp_path / "c.mkv", original.values)
    assert "are not square, which a copy in Matroska does not say" in caplog.text
