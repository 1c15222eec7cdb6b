"""Files that are filled: known values, dtype, layout and metadata of the file are in the copy."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import av
import h5py
import numpy as np
import pytest
import soundfile
import tifffile
from clip_files import pictures, write_video
from PIL import Image

from pe_fill.filling import fill
from pe_fill.formats.editable import EditableFile, read_original
from pe_lightning.errors import InputError
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile

RNG = np.random.default_rng(0)


def read(path: Path, missing: str = "nan", axes: int | None = None, key: str | None = None) -> EditableFile:
    original = read_original(SourceFile(path, str(path)), Missing(missing), axes, key=key)
    return pickle.loads(pickle.dumps(original))  # as a process pool has it


def changed(original: EditableFile, path: Path) -> np.ndarray:
    """Writes other numbers at missing places, and returns what was written."""
    values = np.where(original.missing, np.asarray(5, original.values.dtype), original.values)
    original.write(path, values)
    return values


@pytest.mark.parametrize("suffix", ["png", "tif", "webp", "jpg"])
def test_a_photograph_in_another_format_keeps_exif_and_profile(tmp_path: Path, suffix: str) -> None:
    exif, gps = Image.Exif(), {1: "N", 2: (48.0, 8.0, 1.0)}
    exif[271], exif[274], exif[0x8825] = "camera", 6, gps
    picture = Image.fromarray(RNG.integers(0, 255, (16, 24, 3), np.uint8))
    picture.save(tmp_path / "a.jpg", exif=exif, icc_profile=b"profile", dpi=(300, 300))
    original = read(tmp_path / "a.jpg")
    assert f".{suffix}" in original.suffixes
    changed(original, tmp_path / f"b.{suffix}")
    with Image.open(tmp_path / f"b.{suffix}") as found:
        assert found.size == (16, 24)  # upright
        assert (found.getexif()[271], found.getexif().get(274, 1)) == ("camera", 1)
        assert found.getexif().get_ifd(0x8825)[1] == "N"
        assert found.info["icc_profile"] == b"profile"
        assert suffix == "webp" or round(found.info["dpi"][0]) == 300
        same = np.array_equal(np.asarray(found), original.values[0])
    assert same == (suffix != "jpg")
    deep = RNG.integers(0, 2**16, (6, 7, 3)).astype(np.uint16)
    tifffile.imwrite(tmp_path / "deep.tif", deep, photometric="rgb")
    assert not {".jpg", ".webp"} & set(read(tmp_path / "deep.tif").suffixes)


def test_masks_of_a_jpeg(tmp_path: Path) -> None:
    """They are cut at half of the range, turned as the picture is, and grown by a disc of 3 pixels."""
    exif, mask = Image.Exif(), np.zeros((16, 24), np.uint8)
    exif[274] = 6
    Image.fromarray(RNG.integers(0, 255, (16, 24, 3), np.uint8)).save(tmp_path / "a.jpg", exif=exif)
    mask[8:, 8:16] = 255
    Image.fromarray(mask).save(tmp_path / "mask.jpg")
    turned = np.rot90(mask, -1) > 0
    file, marks = SourceFile(tmp_path / "a.jpg", "a.jpg"), Missing(str(tmp_path / "mask.jpg"))
    np.testing.assert_array_equal(read_original(file, marks, grow=0).missing[0, ..., 0], turned)
    grown = read_original(file, marks)
    y, x = np.nonzero(turned)
    places = np.mgrid[:24, :16].reshape(2, -1).T
    near = (np.hypot(*(places[:, None] - np.stack([y, x], 1)).transpose(2, 0, 1)) <= 3).any(1).reshape(24, 16)
    assert grown.grown == 3
    np.testing.assert_array_equal(grown.missing[0], np.broadcast_to(near[..., None], (24, 16, 3)))


def test_opacity_that_marks_missing_pixels_is_full_afterwards(tmp_path: Path) -> None:
    pixels = RNG.integers(1, 255, (6, 6, 4), np.uint8)
    pixels[2, 1:4, 3] = 0
    Image.fromarray(pixels).save(tmp_path / "a.png")
    original = read(tmp_path / "a.png", "alpha")
    np.testing.assert_array_equal(original.missing[0, ..., 0], pixels[..., 3] == 0)
    changed(original, tmp_path / "b.png")
    found = np.asarray(Image.open(tmp_path / "b.png"))
    assert (found[2, 1:4] == [5, 5, 5, 255]).all()
    np.testing.assert_array_equal(found[pixels[..., 3] > 0], pixels[pixels[..., 3] > 0])


@pytest.mark.parametrize("kind", ["Area", "Point"])
def test_an_enlarged_geotiff_keeps_its_extent_or_the_place_of_its_points(tmp_path: Path, kind: str) -> None:
    rasterio = pytest.importorskip("rasterio", reason="of the extra geo")
    values = np.random.default_rng(0).random((12, 10)).astype(np.float32)
    options = {"height": 12, "width": 10, "count": 1, "dtype": "float32", "crs": "EPSG:32632"}
    place = rasterio.Affine(10, 0, 5e5, 0, -10, 5.4e6)
    with rasterio.open(tmp_path / "a.tif", "w", driver="GTiff", transform=place, **options) as tiff:
        tiff.write(values, 1)
        tiff.update_tags(AREA_OR_POINT=kind)
    found = fill(tmp_path / "a.tif", upscale=2, folds="none", model="exact")
    found.write(tmp_path / "b.tif")
    with rasterio.open(tmp_path / "b.tif") as tiff:
        first, last = tiff.xy(0, 0), tiff.xy(23, 19)
        written = tiff.read(1)
    if kind == "Area":
        assert (first, last) == ((5e5 + 2.5, 5.4e6 - 2.5), (5e5 + 97.5, 5.4e6 - 117.5))
        np.testing.assert_allclose(written.reshape(12, 2, 10, 2).mean((1, 3)), values, atol=1e-5)
    else:
        assert (first, last) == ((5e5 + 5, 5.4e6 - 5), (5e5 + 100, 5.4e6 - 120))
        np.testing.assert_array_equal(written[::2, ::2], values)


def test_enlarged_frames_keep_their_number_and_pictures_their_opacity(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    (tmp_path / "clip").mkdir()
    for number in range(3):
        Image.fromarray(random.integers(0, 255, (12, 10, 3), np.uint8)).save(tmp_path / "clip" / f"f{number}.png")
    fill(tmp_path / "clip", upscale=2, folds="none", model="exact").write(tmp_path / "large")
    shapes = [np.asarray(Image.open(path)).shape for path in (tmp_path / "large").iterdir()]
    assert shapes == [(24, 20, 3)] * 3
    pixels = random.integers(0, 255, (12, 10, 4), np.uint8)
    pixels[..., 3] = np.linspace(20, 235, 10)
    Image.fromarray(pixels).save(tmp_path / "logo.png")
    fill(tmp_path / "logo.png", upscale=2, folds="none", model="exact").write(tmp_path / "large.png")
    opacity = np.asarray(Image.open(tmp_path / "large.png"))[..., 3].astype(float)
    assert opacity.shape == (24, 20)
    np.testing.assert_allclose(opacity.reshape(12, 2, 10, 2).mean((1, 3)), pixels[..., 3], atol=4)
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 40)
    with pytest.raises(InputError, match="in a format that keeps its number of samples"):
        fill(tmp_path / "t.csv", upscale=2)


def test_known_pixels_of_a_geotiff_with_lossy_compression_are_equal(tmp_path: Path) -> None:
    rasterio = pytest.importorskip("rasterio", reason="of the extra geo")
    options = {"height": 40, "width": 48, "count": 3, "dtype": "uint8", "crs": "EPSG:32632", "nodata": 0}
    options |= {"compress": "jpeg", "photometric": "ycbcr", "transform": rasterio.Affine(10, 0, 5e5, 0, -10, 5.4e6)}
    with rasterio.open(tmp_path / "a.tif", "w", driver="GTiff", **options) as tiff:
        tiff.write(RNG.integers(1, 255, (3, 40, 48)).astype("u1"))
    original = read(tmp_path / "a.tif", missing="200")
    changed(original, tmp_path / "b.tif")
    with rasterio.open(tmp_path / "b.tif") as found:
        expected = np.where(original.missing, 5, original.values)[0]
        np.testing.assert_array_equal(np.moveaxis(found.read(), 0, -1), expected)
        assert (found.compression.value, found.crs) == ("DEFLATE", "EPSG:32632")


@pytest.mark.slow
def test_one_of_several_arrays_of_a_file(tmp_path: Path) -> None:
    values = np.sin(np.arange(60.0))
    values[20:23] = np.nan
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["t"], file["other"] = values, np.arange(9)
    with pytest.raises(InputError, match="choose one array by key"):
        fill(tmp_path / "a.h5")
    filled = fill(tmp_path / "a.h5", key="t", folds="none")
    assert repr(filled) == "Filled(60 x 1 float64, 3 samples were missing, no score)"
    filled.write(tmp_path / "b.h5")
    with h5py.File(tmp_path / "b.h5") as file:
        assert np.isfinite(file["t"][...]).all()
        np.testing.assert_array_equal(file["other"], np.arange(9))
    np.save(tmp_path / "a.npy", values)
    with pytest.raises(InputError, match="key chooses an array of an HDF5 file"):
        read(tmp_path / "a.npy", key="t")


def test_tables_keep_the_text_of_known_cells(tmp_path: Path) -> None:
    text = '\ufeff# from a station\r\nday; temp;"hum, rel";note\r\n1; 1,50;"7";x\r\n2;;NA;"y;z"\r\n'
    text += "3;-2,25; 12;\r\n4;1e0;nan;w\r\n"
    (tmp_path / "a.csv").write_bytes(text.encode())
    original = read(tmp_path / "a.csv")
    assert original.names == ("day", "temp", "hum, rel")
    np.testing.assert_array_equal(original.missing[..., 0].sum(1), [0, 1, 2])
    original.write(tmp_path / "b.csv", np.where(original.missing, 3.14159, original.values))
    expected = text.replace("2;;NA", "2;3,14159;3").replace("1e0;nan", "1e0;3")
    assert (tmp_path / "b.csv").read_bytes().decode() == expected
    (tmp_path / "c.txt").write_text("0.25 1\n NA 2\n1.5  x\n")
    with pytest.raises(InputError, match="line 3: 'x' is not a number"):
        read(tmp_path / "c.txt")
    (tmp_path / "c.txt").write_text("0.25 1\n NA 2\n1.5  3\n")
    spaced = read(tmp_path / "c.txt")
    spaced.write(tmp_path / "d.txt", np.where(spaced.missing, 0.777, spaced.values))
    assert (tmp_path / "d.txt").read_text() == "0.25 1\n0.78 2\n1.5  3\n"


def test_frames_that_are_lost_and_frames_that_are_damaged(tmp_path: Path) -> None:
    (tmp_path / "clip").mkdir()
    for number in (8, 9, 11, 12):
        Image.fromarray(RNG.integers(0, 255, (6, 7, 3), np.uint8)).save(tmp_path / f"clip/shot2_{number:03}.png")
    mask = np.zeros((5, 6, 7), bool)
    mask[0, 2, 3] = True
    np.save(tmp_path / "m.npy", mask)
    original = read(tmp_path / "clip", str(tmp_path / "m.npy"))
    assert original.values.shape == (1, 5, 6, 7, 3)
    assert original.missing[0, 2].all()
    assert original.missing.sum() == 6 * 7 * 3 + 3
    values = changed(original, tmp_path / "out")
    names = [path.name for path in sorted((tmp_path / "out").iterdir())]
    assert names == [f"shot2_{number:03}.png" for number in range(8, 13)]
    for place, name in enumerate(names):
        np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "out" / name)), values[0, place])
    assert (tmp_path / "out/shot2_009.png").read_bytes() == (tmp_path / "clip/shot2_009.png").read_bytes()
    shutil.copy(tmp_path / "clip/shot2_009.png", tmp_path / "clip/last.png")
    with pytest.raises(InputError, match=r"'last\.png' in .* has none"):
        read(tmp_path / "clip")


def test_written_frames_have_no_name_of_a_device(tmp_path: Path) -> None:
    """Windows opens a device by names such as COM1.png: frames that are copied, changed and lost."""
    (tmp_path / "clip").mkdir()
    for number in (1, 3):
        Image.fromarray(RNG.integers(0, 255, (6, 7, 3), np.uint8)).save(tmp_path / f"clip/COM{number}.png")
    changed(read(tmp_path / "clip"), tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"COM1_.png", "COM2_.png", "COM3_.png"}


def test_a_video_whose_times_leave_out_frames(tmp_path: Path) -> None:
    """Lost are places between its times, and frames that are listed; the copy has the other frames to the bit, and sound."""
    frames, kept = pictures(9), [0, 1, 2, 5, 6, 7, 8]
    write_video(tmp_path / "a.mp4", frames[kept], pts=[40 * place for place in kept], audio=True)
    original = read(tmp_path / "a.mp4", "frames:0,6-7")
    lost = original.missing.all((0, 2, 3, 4))
    assert np.flatnonzero(lost).tolist() == [0, 3, 4, 6, 7]
    assert original.suffixes == (".mp4", ".mkv")
    for name in ("b.mp4", "b.mkv"):
        values = changed(original, tmp_path / name)
        np.testing.assert_array_equal(read(tmp_path / name).values, values)
        np.testing.assert_array_equal(values[0, ~lost], frames[~lost])
        with av.open(str(tmp_path / name)) as container:
            assert len(container.streams.audio) == 1
            assert float(container.streams.video[0].average_rate) == 25
    write_video(tmp_path / "deep.mkv", pictures(dtype=np.uint16), "ffv1", "gbrp16le", "rgb48le")
    assert read(tmp_path / "deep.mkv").suffixes == (".mkv",)  # MP4 holds 8 bits
    values = changed(read(tmp_path / "deep.mkv", "frames:2"), tmp_path / "deep2.mkv")
    np.testing.assert_array_equal(read(tmp_path / "deep2.mkv").values, values)
    write_video(tmp_path / "v.mkv", frames, "ffv1", "bgr0", pts=[0, 30, 90, 110, 205, 240, 310, 330, 480])
    with pytest.raises(InputError, match=r"variable frame rate.*frames:10-14"):
        read(tmp_path / "v.mkv")
    original = read(tmp_path / "v.mkv", "frames:2")
    for name in ("w.mkv", "w.mp4"):  # with the times of the file
        values = changed(original, tmp_path / name)
        np.testing.assert_array_equal(read(tmp_path / name, "frames:2").values, values)
        with av.open(str(tmp_path / name)) as container:
            times = [round(1000 * (frame.time or 0)) for frame in container.decode(video=0)]
        assert times == [0, 30, 90, 110, 205, 240, 310, 330, 480]


def test_what_cannot_be_filled(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"0000")
    with pytest.raises(InputError, match=r"it fills frames, hdf5, nifti, npy, picture, sound, table, tiff, video"):
        read(tmp_path / "a.bin")
    soundfile.write(tmp_path / "a.ogg", RNG.random(4000) - 0.5, 8000)
    with pytest.raises(InputError, match="is OGG VORBIS"):
        read(tmp_path / "a.ogg")
    Image.fromarray(RNG.integers(0, 255, (6, 7), np.uint8)).save(tmp_path / "a.png")
    np.save(tmp_path / "m.npy", np.zeros((6, 6), bool))
    with pytest.raises(InputError, match="has 6x6 samples, but the signals have 6x7"):
        read(tmp_path / "a.png", str(tmp_path / "m.npy"))
