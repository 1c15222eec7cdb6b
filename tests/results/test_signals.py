"""A signal as a file: what is read back is what was written, in the format, range, dtype and rate of its source."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import av
import h5py
import numpy as np
import png
import pytest
import soundfile
from PIL import Image

from pe_lightning.errors import InputError
from pe_lightning.results.signal_files import choose_medium, write_signal
from pe_lightning.signals import blocks
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.raw import ValueRange

FULL = {
    "uint8": (0.0, 255.0),
    "uint16": (0.0, 65535.0),
    "int16": (-32768.0, 32767.0),
    "int32": (-(2.0**31), 2.0**31 - 1),
    "float32": (-1.0, 1.0),
}


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def info_of(media: str, grid: tuple[int, ...], channels: int, dtype: str, rate: float | None = None) -> SignalInfo:
    low, high = FULL[dtype]
    return SignalInfo(("a",), grid, channels, ValueRange(dtype, (low,), (high,)), rate, media)


def film(count: int, height: int, width: int, channels: int = 3) -> np.ndarray:
    """A smooth picture that changes."""
    t, y, x = np.meshgrid(*(np.linspace(0, 1, n) for n in (count, height, width)), indexing="ij")
    return np.stack([(x + t) / 2, y, t, 1 - x][:channels], -1).astype(np.float32)


def decode(path: Path) -> tuple[np.ndarray, dict]:
    # bicubic, accurate rounding, full chroma; PyAV takes any video for BT.601 unless told both
    how = {"format": "rgb24", "interpolation": 4 | 0x40000 | 0x2000, "src_colorspace": "ITU709", "dst_colorspace": "DEFAULT"}
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = [frame.to_ndarray(**how) for frame in container.decode(stream)]
        about = {
            "rate": stream.average_rate,
            "seconds": float(stream.duration * stream.time_base),
            "coded": (stream.codec_context.name, stream.codec_context.pix_fmt),
            "colour": (stream.codec_context.colorspace, stream.codec_context.color_range),
        }
    return np.stack(frames), about


# -- pictures -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("channels", "dtype"), [(1, "uint8"), (2, "uint8"), (3, "float32"), (4, "uint8")])
def test_images_are_png(channels: int, dtype: str, tmp_path: Path) -> None:
    values = np.round(random(5, 7, channels) * 255).astype(np.float32) / 255
    path = write_signal(tmp_path / "new" / "photo.v2", values, info_of("image", (5, 7), channels, dtype))
    assert path == tmp_path / "new" / "photo.v2.png"  # what looks like a suffix is a part of the name
    with Image.open(path) as image:
        assert image.mode == {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[channels]
        read = np.asarray(image, dtype=np.float32).reshape(5, 7, channels) / 255
    assert np.array_equal(read, values)
    assert [entry.name for entry in path.parent.iterdir()] == ["photo.v2.png"]


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_images_of_16_bits_stay_so(channels: int, tmp_path: Path) -> None:
    source = np.random.default_rng(0).integers(0, 65536, (9, 5, channels), dtype=np.uint16)
    source[0, 0], source[0, 1] = 0, 65535
    info = info_of("image", (9, 5), channels, "uint16")
    path = write_signal(tmp_path / "deep", info.scaling.to_unit(source, 0), info)
    width, height, rows, about = png.Reader(bytes=path.read_bytes()).read()
    assert (width, height, about["bitdepth"], about["planes"]) == (5, 9, 16, channels)
    assert np.array_equal(np.array([list(row) for row in rows]).reshape(9, 5, channels), source)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_values_outside_are_clamped_and_nan_is_black(dtype: str, tmp_path: Path) -> None:
    values = np.array([[-3, 0, 1, 7, np.inf, -np.inf, np.nan]], dtype=np.float32)[..., None]
    path = write_signal(tmp_path / "a", values, info_of("image", (1, 7), 1, dtype))
    with Image.open(path) as image:
        assert (np.asarray(image) == np.array([[0, 0, 1, 1, 1, 0, 0]]) * np.iinfo(dtype).max).all()


# -- videos -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("height", "width", "channels"), [(33, 47, 3), (32, 48, 1), (1, 1, 3)])
def test_a_video_is_mp4_of_the_same_frames_at_the_same_rate(height: int, width: int, channels: int, tmp_path: Path) -> None:
    values = film(13, height, width, channels)
    path = write_signal(tmp_path / "clip", values, info_of("video", (13, height, width), channels, "uint8", 30000 / 1001))
    assert [entry.name for entry in tmp_path.iterdir()] == ["clip.mp4"]
    frames, about = decode(path)
    assert (about["rate"], about["coded"], about["colour"]) == (Fraction(30000, 1001), ("h264", "yuv420p"), (1, 1))
    assert about["seconds"] == pytest.approx(13 * 1001 / 30000, rel=1e-4)
    padded = np.pad(values, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")  # H.264 needs even sizes
    assert frames.shape == (*padded.shape[:3], 3)
    assert np.abs(frames / 255 - padded).mean() < (0.008 if height > 1 else 0.03)
    content = path.read_bytes()
    assert 0 < content.index(b"moov") < content.index(b"mdat"), "browsers begin before all is loaded"


def test_colours_and_greys_of_a_video(tmp_path: Path) -> None:
    colours = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 1, 1]], dtype=np.float32)
    values = np.broadcast_to(colours[:, None, None], (6, 32, 32, 3))
    frames, _ = decode(write_signal(tmp_path / "a", values, info_of("video", (6, 32, 32), 3, "uint8", 25.0)))
    assert np.abs(frames / 255 - values).max() < 0.02
    greys = np.broadcast_to((np.arange(64, dtype=np.float32) / 63)[:, None, None, None], (64, 16, 16, 3))
    frames, _ = decode(write_signal(tmp_path / "b", greys, info_of("video", (64, 16, 16), 3, "uint8", 25.0)))
    assert np.abs((frames / 255 - greys).mean((0, 1, 2))).max() < 0.002
    diverged = np.full((4, 16, 16, 3), np.nan, dtype=np.float32)
    diverged[1], diverged[2], diverged[3] = np.inf, -5, 3e38
    frames, _ = decode(write_signal(tmp_path / "c", diverged, info_of("video", (4, 16, 16), 3, "uint8", 25.0)))
    assert np.abs(frames.mean((1, 2, 3)) - [0, 255, 0, 255]).max() < 3


@pytest.mark.parametrize(
    ("frames", "rate", "expected"),
    [
        (24, 24.0, Fraction(48)),  # twice the frames in the same time
        (36, None, Fraction(75)),
        (12, 0.001, Fraction(1, 1000)),
    ],
)
def test_a_video_lasts_as_long_as_its_source(frames: int, rate: float | None, expected: Fraction, tmp_path: Path) -> None:
    info = info_of("video", (12, 16, 16), 3, "uint8", rate)
    read, about = decode(write_signal(tmp_path / "a", film(frames, 16, 16), info))
    assert (len(read), about["rate"]) == (frames, expected)
    assert about["seconds"] == pytest.approx(float(frames / expected), rel=1e-4)


# -- sound and arrays ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "channels"), [("uint8", 1), ("int16", 2), ("int32", 6), ("float32", 1)])
def test_audio_is_wav_in_the_dtype_of_its_source(dtype: str, channels: int, tmp_path: Path) -> None:
    info = info_of("audio", (501,), channels, dtype, 44100.0)
    values = random(501, channels) * 1.2 - 0.1
    path = write_signal(tmp_path / "a", values, info)
    assert path == tmp_path / "a.wav"
    about, expected = soundfile.info(path), info.scaling.restore(values, 0)
    subtype = {"uint8": "PCM_U8", "int16": "PCM_16", "int32": "PCM_32", "float32": "FLOAT"}[dtype]
    assert (about.samplerate, about.subtype, about.channels) == (44100, subtype, channels)
    read, _ = soundfile.read(path, dtype="int16" if dtype == "uint8" else dtype, always_2d=True)
    assert np.array_equal((read >> 8) + 128 if dtype == "uint8" else read, expected)


@pytest.mark.parametrize("formats", ["auto", "h5"])
@pytest.mark.parametrize(("grid", "dtype"), [((41,), "uint8"), ((3, 4, 2, 5), "int32"), ((41,), "float32")])
def test_arrays_have_the_dtype_and_range_of_their_source(
    grid: tuple[int, ...], dtype: str, formats: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(blocks, "ROW_BLOCK_VALUES", 30)  # several blocks
    low, high = FULL[dtype]
    scaling = ValueRange(dtype, (low / 2, low), (high / 2, high))
    values = random(*grid, 2) * 1.2 - 0.1
    path = write_signal(tmp_path / "a", values, SignalInfo(("a", "b"), grid, 2, scaling), 1, formats)
    if formats == "auto":
        assert path.suffix == ".npy"
        read = np.load(path)
    else:
        with h5py.File(path) as file:
            read = file["values"][...]
            assert json.loads(file["values"].attrs["scaling"]) == {"dtype": dtype, "low": [low], "high": [high]}
            assert list(file["values"].attrs["axes"]) == [*(f"axis{n + 1}" for n in range(len(grid))), "channel"]
    assert read.dtype == dtype
    assert np.array_equal(read, scaling.restore(values, 1))


# -- choice of the format -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("media", "shape", "dtype", "expected"),
    [
        ("image", (4, 5, 5), "uint8", "npy"),
        ("video", (2, 4, 5, 1), "uint8", "mp4"),
        ("video", (2, 4, 5, 4), "uint8", "npy"),
        ("audio", (9, 2), "uint16", "npy"),
        ("array", (4, 5, 3), "uint8", "npy"),
        ("image", (4, 4, 4), "uint8", "png"),
    ],
)
def test_auto_follows_the_medium(media: str, shape: tuple[int, ...], dtype: str, expected: str) -> None:
    assert choose_medium(shape, info_of(media, shape[:-1], shape[-1], dtype, 100.0)).suffix == expected


@pytest.mark.parametrize(
    ("formats", "shape", "dtype", "rate", "words"),
    [
        ("png", (4, 5, 5), "int16", 10.0, "4x5x5.*1 to 4 channels.*Possible: auto, npy, h5"),
        ("mp4", (4, 5, 3), "int16", 10.0, "MP4 needs 3 axes.*Possible: auto, png, npy, h5"),
        ("wav", (4, 5, 6, 3), "int16", 10.0, "WAV needs 1 axis.*Possible: auto, mp4, npy, h5"),
        ("wav", (9, 1), "int16", None, "of the source: none"),
        ("wav", (9, 1), "uint16", 8000.0, "not uint16"),
        ("wav", (2**31, 1), "int16", 8000.0, "4 GiB"),
        ("np", (4, 5, 3), "int16", 10.0, "got 'np'; did you mean 'npy'"),
    ],
)
def test_an_impossible_format_says_what_is_possible(
    formats: str, shape: tuple[int, ...], dtype: str, rate: float | None, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        choose_medium(shape, info_of("array", shape[:-1], shape[-1], dtype, rate), formats)
