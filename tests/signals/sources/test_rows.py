"""Signals of one axis: rows and columns of images, and sound."""

import logging
import pickle

import numpy as np
import pytest
from PIL import Image
from scipy.io import wavfile
from source_checks import noise, stored, unit

from pe_lightning.signals.sources import RowSource

RNG = np.random.default_rng(0)


def picture(path, *shape):
    array = RNG.integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(array).save(path)
    return array.reshape(*shape[:2], -1).astype(np.float32) / 255


def read_rows(paths, **arguments):
    return RowSource(paths, **arguments).read()


def test_rows_and_columns_by_position(tmp_path):
    image = picture(tmp_path / "ü 1.png", 9, 9, 3)
    raw = read_rows(tmp_path / "ü 1.png", rows=[7, 0], columns=[3])
    assert raw.names == ("ü 1-row7", "ü 1-row0", "ü 1-col3")
    assert (raw.shape, raw.stored, raw.unit, raw.media) == ((3, 9, 3), "float32", True, "array")
    np.testing.assert_array_equal(unit(raw), np.stack([image[7], image[0], image[:, 3]]))
    np.testing.assert_array_equal(unit(pickle.loads(pickle.dumps(raw))), unit(raw))


def test_the_papers_protocol_is_the_default(tmp_path):
    images = {"a": picture(tmp_path / "a.png", 40, 40), "b": picture(tmp_path / "b.png", 40, 40)}
    raw = read_rows(tmp_path)
    assert raw.shape == (64, 40, 1)
    places = [name.split("-") for name in raw.names]
    assert [(image, line[:3]) for image, line in places[::16]] == [("a", "row"), ("a", "col"), ("b", "row"), ("b", "col")]
    for (image, line), values in zip(places, unit(raw), strict=True):
        place = int(line[3:])
        np.testing.assert_array_equal(values, images[image][place] if line[:3] == "row" else images[image][:, place])
    lines = [tuple(line[3:] for _, line in places[start : start + 16]) for start in (0, 16, 32, 48)]
    assert len(set(lines)) == 4  # each image, and rows and columns, for themselves


def test_random_rows_are_the_same_on_every_machine():
    raw = read_rows("samples://astronaut", num_rows=4, num_columns=3)
    lines = ("row11", "row196", "row269", "row403", "col7", "col259", "col289")
    assert (raw.names, raw.shape) == (tuple(f"astronaut-{line}" for line in lines), (7, 512, 3))
    assert read_rows("samples://astronaut", num_rows=4, num_columns=3, seed=1).names != raw.names
    assert set(raw.names) < set(read_rows("samples://astronaut", num_rows=8, num_columns=3).names)
    assert read_rows("samples://astronaut", num_rows=4).names == raw.names[:4]


def test_images_that_are_not_square(tmp_path, caplog):
    image = picture(tmp_path / "a.png", 20, 30)
    path = tmp_path / "a.png"
    with caplog.at_level(logging.INFO):
        raw = read_rows(path)
    assert raw.shape == (16, 30, 1)
    assert all("-row" in name for name in raw.names)
    assert ["only 16 random rows" in message for message in caplog.messages] == [True]
    np.testing.assert_array_equal(unit(read_rows(path, columns=[2, 4])), image[:, [2, 4]].swapaxes(0, 1))
    assert read_rows(path, rows=[1], columns=[2], length=20).shape == (2, 20, 1)
    np.testing.assert_array_equal(unit(read_rows(path, rows=[3], center_crop=[10, 12])), image[None, 8, 9:21])
    assert read_rows(path, num_rows=2, num_columns=2, resize=[24, 24]).shape == (4, 24, 1)


def save(path, array, rate=8000):
    wavfile.write(path, rate, array)  # not by soundfile, which reads it
    return str(path)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_have_silence_at_one_half(tmp_path, dtype):
    quiet, loud = np.array([0, 0.5, -1, 0.25], dtype), np.array([0, 0.5, -4, 2], dtype)
    raw = RowSource([save(tmp_path / "quiet.wav", quiet), save(tmp_path / "loud.wav", loud)]).read()
    assert (raw.names, raw.stored, raw.scaling.low, raw.scaling.high) == (("quiet", "loud"), dtype, (-1, -4), (1, 4))
    np.testing.assert_allclose(unit(raw)[..., 0], [[0.5, 0.75, 0, 0.625], [0.5, 0.5625, 0, 0.75]])
    np.testing.assert_array_equal(raw.scaling.restore(unit(raw)[1], 1)[:, 0], loud)


def test_seconds_and_length(tmp_path):
    array = noise("int16", 1000)
    path = save(tmp_path / "a.wav", array, rate=100)
    for arguments, part in (
        ({"seconds": [1, 2.5]}, array[100:250]),
        ({"seconds": [0, 10]}, array),
        ({"seconds": [1, 2], "length": 7}, array[100:107]),
    ):
        raw = RowSource(path, **arguments).read()
        np.testing.assert_array_equal(stored(raw)[0, :, 0], part)
        np.testing.assert_array_equal(unit(pickle.loads(pickle.dumps(raw))), unit(raw))


def test_headers_of_another_length(tmp_path, caplog):
    """A header that counts too few samples is noticed, and a stream without a length is whole."""
    array = noise("int16", 1000)
    save(tmp_path / "a.wav", array)
    data = (tmp_path / "a.wav").read_bytes()
    for count, expected in ((400, array[:200]), (2**32 - 1, array)):
        (tmp_path / "a.wav").write_bytes(data[:40] + count.to_bytes(4, "little") + data[44:])
        caplog.clear()
        with caplog.at_level("INFO"):
            np.testing.assert_array_equal(stored(RowSource(str(tmp_path / "a.wav")).read())[0, :, 0], expected)
        assert ("a.wav': the header counts 200 samples" in caplog.text) == (count == 400)
