"""Sound files as signals: depths, channels, ranges, parts, and every kind of damage."""

import pickle
import wave

import numpy as np
import pytest
from scipy.io import wavfile

from pe_lightning.data.sources.audio import is_wav, read_audio
from pe_lightning.data.values import load
from pe_lightning.errors import InputError

RNG = np.random.default_rng(0)


def save(path, array, rate=8000):
    wavfile.write(path, rate, array)
    return str(path)


def noise(dtype, *shape):
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def refused(path, *parts, **arguments):
    with pytest.raises(InputError) as error:
        read_audio(path if isinstance(path, list) else str(path), **arguments)
    for part in parts:
        assert part in str(error.value), str(error.value)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32"])
@pytest.mark.parametrize("shape", [(100,), (100, 1), (100, 2), (100, 6)])
def test_integers_fill_their_range(tmp_path, dtype, shape):
    array = noise(dtype, *shape)
    raw = read_audio(save(tmp_path / "a.wav", array))
    info = np.iinfo(dtype)
    expected = (array.reshape(100, -1).astype(np.float64) - info.min) / (float(info.max) - info.min)
    assert (raw.shape, raw.stored, raw.rate, raw.media) == ((1, *expected.shape), dtype, 8000.0, "audio")
    np.testing.assert_allclose(load(raw)[0], expected, rtol=1e-6, atol=1e-7)
    if dtype != "int32":  # float32 does not hold 32 bits
        np.testing.assert_array_equal(raw.scaling.restore(load(raw).numpy()[0], 0), array.reshape(100, -1))


def test_twenty_four_bits(tmp_path):
    array = RNG.integers(-(2**23), 2**23, 100, dtype=np.int32)
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(1), file.setsampwidth(3), file.setframerate(44100)
        file.writeframes(b"".join(int(value).to_bytes(3, "little", signed=True) for value in array))
    raw = read_audio(str(tmp_path / "a.wav"))
    assert raw.rate == 44100
    np.testing.assert_allclose(load(raw)[0, :, 0], (array + 2.0**23) / 2**24, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_keep_silence_at_one_half(tmp_path, dtype):
    quiet, loud = np.array([0, 0.5, -1, 0.25], dtype), np.array([0, 0.5, -4, 2], dtype)
    raw = read_audio([save(tmp_path / "quiet.wav", quiet), save(tmp_path / "loud.wav", loud)])
    assert (raw.scaling.low, raw.scaling.high) == ((-1, -4), (1, 4))
    np.testing.assert_allclose(load(raw)[..., 0], [[0.5, 0.75, 0, 0.625], [0.5, 0.5625, 0, 0.75]])
    np.testing.assert_array_equal(raw.scaling.restore(load(raw).numpy()[1], 1)[:, 0], loud)


def test_seconds_and_length(tmp_path):
    array = noise("int16", 1000)
    path = save(tmp_path / "a.wav", array, rate=100)
    for arguments, part in (
        ({"seconds": [1, 2.5]}, array[100:250]),
        ({"seconds": [0, 10]}, array),
        ({"length": 7}, array[:7]),
        ({"seconds": [1, 2], "length": 7}, array[100:107]),
    ):
        raw = read_audio(path, **arguments)
        np.testing.assert_array_equal(np.concatenate(list(raw.blocks()))[:, 0], part)
        np.testing.assert_array_equal(load(pickle.loads(pickle.dumps(raw))), load(raw))
    refused(path, "goes beyond", "lasts 10 s (1000 samples at 100 Hz)", "within [0, 10]", seconds=[9, 11])
    refused(path, "holds 1 sample(s)", seconds=[1, 1.01])
    refused(path, "length 1001 is more than the 1000 samples", length=1001)
    for seconds in ([2, 1], [-1, 2], [1], "1,2", [0, float("inf")], [0, True]):
        refused(path, "seconds must be [start, stop]", seconds=seconds)


def test_folders_odd_names_and_links(tmp_path):
    folder = tmp_path / "Töne 1"
    folder.mkdir()
    first = noise("int16", 50)
    save(folder / "c dur.WAV", first)
    (folder / "ä.wav").symlink_to(folder / "c dur.WAV")
    raw = read_audio(str(folder))
    assert raw.names == ("c dur", "ä")
    np.testing.assert_array_equal(np.concatenate(list(raw.blocks()))[:, 0], np.concatenate([first, first]))
    refused(tmp_path, "no sound file in the folder")


@pytest.mark.parametrize(
    ("array", "rate", "parts"),
    [
        (noise("int16", 60), 8000, ["2 different lengths", "50: ", "60: ", "Set length: 50", "or seconds"]),
        (noise("int16", 50), 4000, ["2 different sample rates", "8000 Hz: ", "4000 Hz: "]),
        (noise("int16", 50, 2), 8000, ["2 different numbers of channels"]),
        (noise("uint8", 50), 8000, ["2 different dtypes", "int16: ", "uint8: ", "b.wav"]),
    ],
)
def test_files_that_do_not_fit_together(tmp_path, array, rate, parts):
    save(tmp_path / "a.wav", noise("int16", 50)), save(tmp_path / "b.wav", array, rate)
    refused(tmp_path, *parts)


def test_length_brings_files_together(tmp_path):
    save(tmp_path / "a.wav", noise("int16", 50)), save(tmp_path / "b.wav", noise("int16", 60))
    assert read_audio(str(tmp_path), length=50).shape == (2, 50, 1)


@pytest.mark.parametrize("size", [4, 10, 11, 12, 30, 43, 44, 46, 1000, 4043])
def test_truncated_files(tmp_path, size):
    save(tmp_path / "whole.wav", noise("int16", 1000, 2))
    data = (tmp_path / "whole.wav").read_bytes()
    (tmp_path / "a.wav").write_bytes(data[:size])
    refused(tmp_path / "a.wav", "a.wav", "not a WAV file" if size < 12 else "truncated")


def test_a_stream_of_unknown_size_is_whole(tmp_path):
    array = noise("int16", 100)
    save(tmp_path / "a.wav", array)
    data = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "a.wav").write_bytes(data[:4] + b"\xff" * 4 + data[8:40] + b"\xff" * 4 + data[44:])
    np.testing.assert_array_equal(np.concatenate(list(read_audio(str(tmp_path / "a.wav")).blocks()))[:, 0], array)


def test_chunks_that_are_no_sound_are_skipped(tmp_path):
    array = noise("int16", 100)
    save(tmp_path / "a.wav", array)
    data = (tmp_path / "a.wav").read_bytes()
    chunk = b"what" + (4).to_bytes(4, "little") + b"abcd"
    size = (len(data) + len(chunk) - 8).to_bytes(4, "little")
    (tmp_path / "a.wav").write_bytes(data[:4] + size + data[8:36] + chunk + data[36:])
    np.testing.assert_array_equal(np.concatenate(list(read_audio(str(tmp_path / "a.wav")).blocks()))[:, 0], array)


def test_other_bad_files(tmp_path):
    save(tmp_path / "whole.wav", noise("int16", 100))
    data = (tmp_path / "whole.wav").read_bytes()
    for name, content, part in (
        (
            "mulaw",
            data[:20] + b"\x07\x00" + data[22:],
            "is compressed or of an unusual kind (Unknown wave file format: MULAW",
        ),
        ("no channel", data[:22] + b"\x00\x00" + data[24:], "truncated or damaged"),
        ("text", b"hello, this is no sound", "is not a WAV file, whatever its suffix says"),
        ("empty", b"", "is not a WAV file"),
        ("silent", data[:4] + (36).to_bytes(4, "little") + data[8:40] + bytes(4), "holds no sound: it has 0 samples"),
    ):
        (tmp_path / f"{name}.wav").write_bytes(content)
        refused(tmp_path / f"{name}.wav", f"{name}.wav", part)
    save(tmp_path / "one.wav", noise("int16", 1))
    refused(tmp_path / "one.wav", "has 1 sample(s); a signal needs at least 2")
    save(tmp_path / "nan.wav", np.array([0, np.nan, 1, np.inf], np.float32))
    refused(tmp_path / "nan.wav", "2 value(s) that are not finite", "first at sample 1")
    save(tmp_path / "long.wav", np.arange(9, dtype=np.int64))
    refused(tmp_path / "long.wav", "64-bit integers")
    refused(tmp_path / "none.wav", "no such file")


def test_the_head_of_a_file():
    assert is_wav(b"RIFF\x00\x00\x00\x00WAVE")
    assert is_wav(b"RF64\xff\xff\xff\xffWAVE")
    assert not is_wav(b"RIFF\x00\x00\x00\x00WEBP")
    assert not is_wav(b"RIFF")
