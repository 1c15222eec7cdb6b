"""1-D signals of any source: which reader, which rows and columns, which arguments are for what."""

import inspect
import logging
import pickle

import h5py
import numpy as np
import pytest
from PIL import Image
from scipy.io import wavfile

from pe_lightning.data.draws import draw
from pe_lightning.data.sources.rows import direct_rows, read_rows
from pe_lightning.data.values import load
from pe_lightning.errors import InputError

RNG = np.random.default_rng(0)


def picture(path, *shape):
    array = RNG.integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(array).save(path)
    return array.reshape(*shape[:2], -1).astype(np.float32) / 255


def unit(raw):
    return load(raw).numpy()


def refused(paths, *parts, **arguments):
    with pytest.raises(InputError) as error:
        read_rows(paths if isinstance(paths, list) else str(paths), **arguments)
    for part in parts:
        assert part in str(error.value), str(error.value)


# -- rows and columns of images -------------------------------------------------------------------------


def test_rows_and_columns_by_position(tmp_path):
    image = picture(tmp_path / "ü 1.png", 9, 9, 3)
    raw = read_rows(str(tmp_path / "ü 1.png"), rows=[7, 0], columns=[3])
    assert raw.names == ("ü 1-row7", "ü 1-row0", "ü 1-col3")
    assert (raw.shape, raw.stored, raw.unit, raw.media, raw.array) == ((3, 9, 3), "float32", True, "array", None)
    np.testing.assert_array_equal(unit(raw), np.stack([image[7], image[0], image[:, 3]]))
    np.testing.assert_array_equal(unit(pickle.loads(pickle.dumps(raw))), unit(raw))


def test_the_papers_protocol_is_the_default(tmp_path):
    a, b = picture(tmp_path / "a.png", 40, 40), picture(tmp_path / "b.png", 40, 40)
    raw = read_rows(str(tmp_path))
    assert raw.shape == (64, 40, 1)
    expected, names = [], []
    for position, (name, image) in enumerate((("a", a), ("b", b))):
        rows, columns = draw(0, 2 * position, 40, 16), draw(0, 2 * position + 1, 40, 16)
        expected += [*image[rows], *image[:, columns].swapaxes(0, 1)]
        names += [f"{name}-row{row}" for row in rows] + [f"{name}-col{column}" for column in columns]
    assert list(raw.names) == names
    np.testing.assert_array_equal(unit(raw), expected)


def test_the_draw_is_the_same_on_every_machine():
    raw = read_rows("samples://astronaut", num_rows=4, num_columns=3)
    assert raw.names == tuple(f"astronaut-{line}" for line in EXPECTED)
    assert raw.shape == (7, 512, 3)
    other = read_rows("samples://astronaut", num_rows=4, num_columns=3, seed=1)
    assert other.names != raw.names
    more = read_rows("samples://astronaut", num_rows=8, num_columns=3)
    assert set(raw.names) < set(more.names)
    assert read_rows("samples://astronaut", num_rows=4).names == raw.names[:4]


EXPECTED = ("row11", "row196", "row269", "row403", "col7", "col259", "col289")


def test_each_image_has_its_own_draw(tmp_path):
    picture(tmp_path / "a.png", 99, 99), picture(tmp_path / "b.png", 99, 99)
    names = read_rows(str(tmp_path), num_rows=5, num_columns=5).names
    lines = [name.split("-")[1][3:] for name in names]
    assert len({tuple(lines[start : start + 5]) for start in (0, 5, 10, 15)}) == 4


def test_images_that_are_not_square(tmp_path, caplog):
    image = picture(tmp_path / "a.png", 20, 30)
    path = str(tmp_path / "a.png")
    with caplog.at_level(logging.INFO):
        raw = read_rows(path)
    assert raw.shape == (16, 30, 1)
    assert all("-row" in name for name in raw.names)
    assert ["only 16 random rows" in record.getMessage() for record in caplog.records] == [True]
    np.testing.assert_array_equal(unit(read_rows(path, columns=[2, 4])), image[:, [2, 4]].swapaxes(0, 1))
    refused(
        path, "2 different lengths", "30: ", "(rows)", "20: ", "(columns)", "center_crop or resize", rows=[1], columns=[2]
    )
    assert read_rows(path, rows=[1], columns=[2], length=20).shape == (2, 20, 1)
    assert read_rows(path, center_crop=20).shape == (32, 20, 1)
    np.testing.assert_array_equal(unit(read_rows(path, rows=[3], center_crop=[10, 12])), image[None, 8, 9:21])
    assert read_rows(path, num_rows=2, num_columns=2, resize=24).shape == (4, 24, 1)


def test_grey_among_coloured_images(tmp_path):
    grey, rgb = picture(tmp_path / "a.png", 9, 9), picture(tmp_path / "b.png", 9, 9, 3)
    raw = read_rows(str(tmp_path), rows=[2])
    np.testing.assert_array_equal(unit(raw), np.stack([np.repeat(grey[2], 3, -1), rgb[2]]))
    assert read_rows(str(tmp_path), rows=[2], color="grey").channels == 1
    assert read_rows(str(tmp_path / "a.png"), rows=[2], color="rgb").channels == 3


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({}, ["has 9 rows, fewer than num_rows: 16", "set num_rows: 9"]),
        ({"num_columns": 10}, ["has 9 columns, fewer than num_columns: 10"]),
        ({"rows": [9]}, ["has no row 9: its rows are 0 to 8"]),
        ({"columns": [1, 12]}, ["has no column 12"]),
        ({"rows": [-1]}, ["rows must be a list of distinct positions, integers >= 0; got [-1]"]),
        ({"rows": [1, 1]}, ["distinct"]),
        ({"rows": []}, ["got []"]),
        ({"columns": 3}, ["columns must be a list of distinct positions", "got 3"]),
        ({"rows": [True]}, ["got [True]"]),
        ({"num_rows": -1}, ["num_rows must be an integer >= 0, got -1"]),
        ({"num_columns": 1.5}, ["num_columns must be an integer"]),
        ({"num_rows": 0, "num_columns": 0}, ["no row and no column is asked for"]),
        ({"rows": [1], "num_rows": 2}, ["rows and num_rows exclude each other"]),
        ({"num_rows": 2, "seed": -1}, ["seed must be an integer >= 0, got -1"]),
        ({"rows": [1], "length": 10}, ["length 10 is more than the 9 samples", "set length: 9"]),
        ({"rows": [1], "length": 0}, ["length is the number of first samples"]),
        ({"rows": [1], "max_pixels": 80}, ["more than max_pixels, 80", "set max_pixels: 81"]),
        ({"rows": [1], "color": "gray"}, ["color must be one of"]),
    ],
)
def test_bad_rows_and_columns(tmp_path, arguments, parts):
    picture(tmp_path / "a.png", 9, 9)
    refused(tmp_path / "a.png", *parts, **arguments)


# -- other sources --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["npy", "npz", "h5"])
def test_arrays(tmp_path, suffix):
    array, path = RNG.integers(0, 256, (9, 3), dtype=np.uint8), tmp_path / f"a.{suffix}"
    if suffix == "npy":
        np.save(path, array)
    elif suffix == "npz":
        np.savez(path, x=array)
    else:
        with h5py.File(path, "w") as file:
            file["x"] = array
    arguments = {} if suffix == "npy" else {"key": "x"}
    assert read_rows(str(path), **arguments).shape == (1, 9, 3)
    raw = read_rows(str(path), channels="none", value_range=[0, 510], length=2, **arguments)
    assert raw.names == tuple(f"a-{n}" for n in range(9))
    np.testing.assert_allclose(unit(raw)[..., 0], array[:, :2] / 510, rtol=1e-6)
    assert direct_rows(str(path)) == (suffix != "npz")
    assert (raw.array is None) == (suffix == "npz")


def test_sound(tmp_path):
    array = RNG.integers(-99, 99, 100, dtype=np.int16)
    wavfile.write(tmp_path / "a.wav", 10, array)
    raw = read_rows(str(tmp_path / "a.wav"), seconds=[1, 3], length=15)
    assert (raw.shape, raw.media, raw.rate) == ((1, 15, 1), "audio", 10)
    np.testing.assert_array_equal(next(raw.blocks())[:, 0], array[10:25])
    assert not direct_rows(str(tmp_path / "a.wav"))


def test_tables(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n0,5\n1,7\n2,9\n")
    raw = read_rows(str(tmp_path), select=["y"], length=2, value_range=[0, 10])
    assert raw.names == ("a-y",)
    np.testing.assert_allclose(unit(raw)[..., 0], [[0.5, 0.7]])
    assert read_rows(str(tmp_path / "a.csv"), select="x").names == ("a-x",)


def test_the_content_decides_then_the_suffix(tmp_path):
    array = RNG.integers(0, 256, 9, dtype=np.uint8)
    np.save(tmp_path / "a.npy", array)
    (tmp_path / "a.npy").rename(tmp_path / "array.txt")
    assert read_rows(str(tmp_path / "array.txt")).shape == (1, 9, 1)
    picture(tmp_path / "a.png", 20, 20)
    (tmp_path / "a.png").rename(tmp_path / "image")
    assert read_rows(str(tmp_path / "image"), rows=[0]).shape == (1, 20, 1)
    wavfile.write(tmp_path / "sound", 10, array)
    assert read_rows(str(tmp_path / "sound")).media == "audio"
    for name, part in (("a.wav", "not a WAV file"), ("a.npy", "damaged"), ("a.png", "not an image"), ("a.csv", "no column")):
        (tmp_path / name).write_text("what\nthis\nis\n")
        refused(tmp_path / name, part)
    (tmp_path / "a.dat").write_text("what\nthis\nis\n")
    refused(tmp_path / "a.dat", "is no source of 1-D signals", ".npy", ".wav", ".csv")


def test_links_and_home(tmp_path, monkeypatch):
    np.save(tmp_path / "a b.npy", np.arange(9, dtype=np.uint8))
    (tmp_path / "link.npy").symlink_to(tmp_path / "a b.npy")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_rows(["~/a b.npy", str(tmp_path / "link.npy")]).names == ("a b", "link")


def test_several_kinds_at_once(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(9, np.uint8))
    (tmp_path / "b.csv").write_text("1\n2\n")
    refused(tmp_path, "of 2 kinds", "array: ", "a.npy", "table: ", "b.csv", "one kind")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "no image, array, sound file or table in the folder")


GIVEN = {
    "rows": ([1], "images"),
    "columns": ([1], "images"),
    "num_rows": (3, "images"),
    "num_columns": (3, "images"),
    "seed": (3, "images"),
    "center_crop": (3, "images"),
    "resize": (3, "images"),
    "color": ("grey", "images"),
    "max_pixels": (3, "images"),
    "select": (["x"], "tables"),
    "key": ("x", "arrays"),
    "channels": ("last", "arrays"),
    "value_range": ([0, 1], "arrays and tables"),
    "seconds": ([0, 1], "sound files"),
}


@pytest.mark.parametrize(
    "argument", [name for name in inspect.signature(read_rows).parameters if name not in ("paths", "length")]
)
def test_arguments_for_another_kind_of_source(tmp_path, argument):
    value, meant = GIVEN[argument]
    picture(tmp_path / "a.png", 20, 20)
    np.save(tmp_path / "a.npy", np.zeros(9, np.uint8))
    wavfile.write(tmp_path / "a.wav", 10, np.zeros(9, np.int16))
    (tmp_path / "a.csv").write_text("x\n1\n2\n")
    for name, kind in (("a.png", "images"), ("a.npy", "arrays"), ("a.wav", "sound files"), ("a.csv", "tables")):
        if kind not in meant:
            refused(tmp_path / name, f"{argument} is for {meant}, but", f"is read as {kind}; leave", **{argument: value})
