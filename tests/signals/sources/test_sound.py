"""Sound files as signals: depths, channels, ranges, parts, and damage."""

import pickle

import numpy as np
import pytest
from scipy.io import wavfile
from source_checks import noise, stored, unit

from pe_lightning.signals.sources import RowSource

RNG = np.random.default_rng(0)


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


def test_a_header_that_counts_fewer_samples_than_the_file_holds(tmp_path, caplog):
    array = noise("int16", 1000)
    save(tmp_path / "a.wav", array)
    data = (tmp_path / "a.wav").read_bytes()
    with caplog.at_level("INFO"):
        RowSource(str(tmp_path / "a.wav")).read()
        assert not caplog.messages
        (tmp_path / "a.wav").write_bytes(data[:40] + (400).to_bytes(4, "little") + data[44:])
        raw = RowSource(str(tmp_path / "a.wav")).read()
    assert "a.wav': the header counts 200 samples" in caplog.text
    np.testing.assert_array_equal(stored(raw)[0, :, 0], array[:200])


def test_a_stream_of_unknown_size_is_whole(tmp_path):
    array = noise("int16", 100)
    save(tmp_path / "a.wav", array)
    data = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "a.wav").write_bytes(data[:4] + b"\xff" * 4 + data[8:40] + b"\xff" * 4 + data[44:])
    np.testing.assert_array_equal(stored(RowSource(str(tmp_path / "a.wav")).read())[0, :, 0], array)


def test_values_that_are_not_finite(tmp_path):
    save(tmp_path / "nan.wav", np.array([0, np.nan, 1, np.inf], np.float32))
    raw = RowSource(str(tmp_path / "nan.wav")).read()
    assert raw.scaling.high == (1.0,)
    np.testing.assert_array_equal(unit(raw)[0, :, 0], np.float32([0.5, np.nan, 1, np.inf]))
