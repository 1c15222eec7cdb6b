"""Reconstructions and predictions as files."""

from __future__ import annotations

import json
import tracemalloc
from fractions import Fraction
from pathlib import Path
from unittest.mock import Mock

import av
import h5py
import numpy as np
import png
import pytest
from lightning.pytorch.loggers import CSVLogger, WandbLogger
from PIL import Image, ImageSequence
from scipy.io import wavfile

from pe_lightning import runs
from pe_lightning.callbacks import media, outputs
from pe_lightning.callbacks.outputs import choose_format, write_png, write_signal
from pe_lightning.callbacks.report import SHEETS, log_scores, write_reconstructions
from pe_lightning.data.batches import SignalInfo
from pe_lightning.data.signals import Scaling
from pe_lightning.errors import InputError
from pe_lightning.runs import file_names

FULL = {
    "uint8": (0.0, 255.0),
    "uint16": (0.0, 65535.0),
    "int16": (-32768.0, 32767.0),
    "int32": (-(2.0**31), 2.0**31 - 1),
    "float32": (-1.0, 1.0),
}


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def describe(media: str, grid: tuple[int, ...], channels: int, dtype: str, rate: float | None = None) -> SignalInfo:
    low, high = FULL[dtype]
    return SignalInfo(("a",), grid, channels, Scaling(dtype, (low,), (high,)), rate, media)


def film(count: int, height: int, width: int, channels: int = 3) -> np.ndarray:
    """A smooth picture that changes."""
    t, y, x = np.meshgrid(*(np.linspace(0, 1, n) for n in (count, height, width)), indexing="ij")
    return np.stack([x, y, t, 1 - x][:channels], -1).astype(np.float32)


def decode(path: Path) -> tuple[np.ndarray, dict]:
    # bicubic, accurate rounding, full chroma; PyAV 14 takes any video for BT.601 unless told both
    how = {"format": "rgb24", "interpolation": 4 | 0x40000 | 0x2000, "src_colorspace": "ITU709", "dst_colorspace": "DEFAULT"}
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = [frame.to_ndarray(**how) for frame in container.decode(stream)]
        about = {
            "rate": stream.average_rate,
            "seconds": float(stream.duration * stream.time_base),
            "pix_fmt": stream.codec_context.pix_fmt,
            "codec": stream.codec_context.name,
            "colour": (stream.codec_context.colorspace, stream.codec_context.color_range),
            "comment": container.metadata.get("comment"),
        }
    return np.stack(frames), about


# -- pictures -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [None, "uint8", "int16", "float32"])
def test_images_are_png(channels: int, dtype: str | None, tmp_path: Path) -> None:
    values = np.round(random(5, 7, channels) * 255).astype(np.float32) / 255
    info = describe("image", (5, 7), channels, dtype) if dtype else None
    path = write_signal(tmp_path / "new" / "photo.v2", values, info)
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
    info = describe("image", (9, 5), channels, "uint16")
    path = write_signal(tmp_path / "deep", info.scaling.to_unit(source, 0), info)
    width, height, rows, about = png.Reader(bytes=path.read_bytes()).read()
    assert (width, height, about["bitdepth"], about["planes"]) == (5, 9, 16, channels)
    assert (about["greyscale"], about["alpha"]) == (channels < 3, channels in (2, 4))
    assert np.array_equal(np.array([list(row) for row in rows]).reshape(9, 5, channels), source)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_values_outside_are_clamped_and_nan_is_black(dtype: str, tmp_path: Path) -> None:
    values = np.array([[-3, 0, 1, 7, np.inf, -np.inf, np.nan]], dtype=np.float32)[..., None]
    path = write_signal(tmp_path / "a", values, describe("image", (1, 7), 1, dtype))
    with Image.open(path) as image:
        assert (np.asarray(image) == np.array([[0, 0, 1, 1, 1, 0, 0]]) * np.iinfo(dtype).max).all()


def test_without_a_source_two_axes_of_one_to_four_channels_are_a_picture() -> None:
    shapes = [(4, 4, 0), (4, 4, 1), (4, 4, 4), (4, 4, 5), (4, 3), (4, 4, 4, 3)]
    assert [choose_format(shape) for shape in shapes] == ["npy", "png", "png", "npy", "npy", "npy"]


def test_write_png(tmp_path: Path) -> None:
    path = write_png(tmp_path / "a.png", Image.new("RGB", (3, 2), "red"))
    with Image.open(path) as image:
        assert (image.format, image.size, image.getpixel((0, 0))) == ("PNG", (3, 2), (255, 0, 0))


# -- videos -------------------------------------------------------------------------------------------------------------


def test_a_video_is_mp4_of_the_same_frames_at_the_same_rate(tmp_path: Path) -> None:
    values = film(13, 48, 64)
    path = write_signal(tmp_path / "clip", values, describe("video", (13, 48, 64), 3, "uint8", 30000 / 1001))
    assert path == tmp_path / "clip.mp4"
    assert [entry.name for entry in tmp_path.iterdir()] == ["clip.mp4"]
    frames, about = decode(path)
    assert (frames.shape, about["rate"], about["comment"]) == ((13, 48, 64, 3), Fraction(30000, 1001), None)
    assert about["seconds"] == pytest.approx(13 * 1001 / 30000, rel=1e-4)
    assert (about["codec"], about["pix_fmt"], about["colour"]) == ("h264", "yuv420p", (1, 1))
    assert np.abs(frames / 255 - values).mean() < 0.006


def test_the_index_of_mp4_is_in_front_so_that_browsers_begin_at_once(tmp_path: Path) -> None:
    content = write_signal(tmp_path / "clip", film(3, 32, 32), describe("video", (3, 32, 32), 3, "uint8", 25.0)).read_bytes()
    assert 0 < content.index(b"moov") < content.index(b"mdat")


def test_pure_colours_survive(tmp_path: Path) -> None:
    colours = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 1, 1]], dtype=np.float32)
    values = np.broadcast_to(colours[:, None, None], (6, 32, 32, 3))
    frames, _ = decode(write_signal(tmp_path / "a", values, describe("video", (6, 32, 32), 3, "uint8", 25.0)))
    assert np.abs(frames / 255 - values).max() < 0.02


def test_greys_have_no_tint(tmp_path: Path) -> None:
    values = np.broadcast_to((np.arange(64, dtype=np.float32) / 63)[:, None, None, None], (64, 16, 16, 3))
    frames, _ = decode(write_signal(tmp_path / "a", values, describe("video", (64, 16, 16), 3, "uint8", 25.0)))
    assert np.abs((frames / 255 - values).mean((0, 1, 2))).max() < 0.002


def test_colour_lies_at_even_columns_between_two_rows() -> None:
    frame = np.zeros((6, 16, 3), dtype=np.float32)
    y, x = np.mgrid[:6, :16]
    frame[..., 0] = 0.1 + 0.04 * x + 0.03 * y
    red = 128 + 224 * (1 - 0.2126) / 1.5748 * (0.1 + 0.04 * x[0, ::2] + 0.03 * (2 * np.arange(3)[:, None] + 0.5))
    planes = media._yuv420(frame)
    assert planes.shape == (9, 16)
    assert np.abs(planes.ravel()[-24:].reshape(3, 8)[:, 1:] - red[:, 1:]).max() <= 0.5 + 1e-3
    assert np.abs(planes[:6] - (16 + 219 * 0.2126 * frame[..., 0])).max() <= 0.5 + 1e-3


@pytest.mark.parametrize(("height", "width"), [(33, 47), (32, 47), (33, 48)])
def test_odd_sizes_repeat_the_last_row_and_column(height: int, width: int, tmp_path: Path) -> None:
    values = film(4, height, width)
    frames, about = decode(write_signal(tmp_path / "a", values, describe("video", (4, height, width), 3, "uint8", 10.0)))
    assert frames.shape == (4, height + height % 2, width + width % 2, 3)
    assert about["comment"].startswith(f"{width}x{height} pixels")
    padded = np.pad(values, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    assert np.abs(frames / 255 - padded).mean() < 0.006


def test_grey_videos_are_grey(tmp_path: Path) -> None:
    values = film(5, 32, 32, 1)
    frames, _ = decode(write_signal(tmp_path / "a", values, describe("video", (5, 32, 32), 1, "uint8", 25.0)))
    assert np.abs(frames.astype(int) - frames[..., :1]).max() <= 2
    assert np.abs(frames / 255 - values).mean() < 0.006


@pytest.mark.parametrize(
    ("frames", "source_rate", "rate", "expected"),
    [
        (12, 24.0, None, Fraction(24)),
        (24, 24.0, None, Fraction(48)),  # twice the frames in the same time
        (6, 24.0, None, Fraction(12)),
        (17, 30000 / 1001, None, Fraction(30000, 1001) * Fraction(17, 12)),
        (12, None, None, Fraction(25)),
        (36, None, None, Fraction(75)),
        (36, 24.0, 10.0, Fraction(10)),
        (12, 0.001, None, Fraction(1, 1000)),
        (12, 10000.0, None, Fraction(10000)),
    ],
)
def test_a_video_lasts_as_long_as_its_source(
    frames: int, source_rate: float | None, rate: float | None, expected: Fraction, tmp_path: Path
) -> None:
    info = describe("video", (12, 16, 16), 3, "uint8", source_rate)
    read, about = decode(write_signal(tmp_path / "a", film(frames, 16, 16), info, rate=rate))
    assert len(read) == frames
    assert about["rate"] == expected
    assert about["seconds"] == pytest.approx(float(frames / expected), rel=1e-4)


def test_frames_that_diverged_are_clamped_and_nan_is_black(tmp_path: Path) -> None:
    values = np.full((4, 16, 16, 3), np.nan, dtype=np.float32)
    values[1], values[2], values[3] = np.inf, -5, 3e38
    frames, _ = decode(write_signal(tmp_path / "a", values, describe("video", (4, 16, 16), 3, "uint8", 25.0)))
    assert np.abs(frames.mean((1, 2, 3)) - [0, 255, 0, 255]).max() < 3


@pytest.mark.parametrize("size", [(1, 1), (2, 2), (3, 1)])
def test_the_smallest_video(size: tuple[int, int], tmp_path: Path) -> None:
    frames, _ = decode(write_signal(tmp_path / "a", film(1, *size), describe("video", (1, *size), 3, "uint8", 25.0)))
    assert frames.shape[0] == 1


def test_without_an_encoder_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(media, "_CODEC", "libx265000")
    info = describe("video", (4, 16, 16), 3, "uint8", 25.0)
    with pytest.raises(InputError, match="output format npy has the values"):
        write_signal(tmp_path / "a", film(4, 16, 16), info)
    assert not list(tmp_path.iterdir())
    assert write_signal(tmp_path / "a", film(4, 16, 16), info, formats="npy").exists()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("rate", "expected"), [(25.0, 40), (30.0, 33), (50.0, 20), (7.0, 143)])
def test_gif(rate: float, expected: int, channels: int, tmp_path: Path) -> None:
    values = np.round(film(10, 24, 33, channels) * 255).astype(np.float32) / 255
    values[4] = values[3]  # a frame like the one before stays a frame
    info = describe("video", (10, 24, 33), channels, "uint8", rate)
    path = write_signal(tmp_path / "a", values, info, formats="gif")
    assert path == tmp_path / "a.gif"
    with Image.open(path) as image:
        assert (image.format, image.size, image.n_frames, image.info["loop"]) == ("GIF", (33, 24), 10, 0)
        frames, delays = [], []
        for frame in ImageSequence.Iterator(image):
            delays.append(frame.info["duration"])
            frames.append(np.asarray(frame.convert("RGB")) / 255)
    assert sum(delays) == pytest.approx(10_000 / rate, abs=5)  # GIF counts in steps of 10 ms
    assert max(abs(delay - expected) for delay in delays) < 10
    difference = np.abs(np.stack(frames) - values)
    assert difference.max() < 1e-6 if channels == 1 else difference.mean() < 0.03


def test_gif_of_one_frame(tmp_path: Path) -> None:
    info = describe("video", (1, 8, 8), 3, "uint8", 10.0)
    with Image.open(write_signal(tmp_path / "a", film(1, 8, 8), info, formats="gif")) as image:
        assert (image.n_frames, image.info["duration"]) == (1, 100)


@pytest.mark.parametrize("formats", ["mp4", "gif", "npy", "h5"])
def test_a_video_is_converted_frame_by_frame(formats: str, tmp_path: Path) -> None:
    values = np.broadcast_to(film(1, 256, 256, 1), (64, 256, 256, 1))  # 16 MiB in one piece
    info = describe("video", (64, 256, 256), 1, "uint8", 25.0)
    write_signal(tmp_path / "warm", values[:1], info, formats=formats)
    tracemalloc.start()
    try:
        write_signal(tmp_path / "a", values, info, formats=formats)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 << 20 if formats in ("mp4", "gif") else peak < 40 << 20


# -- sound --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 2, 6])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32"])
def test_audio_is_wav_in_the_dtype_of_its_source(
    dtype: str, channels: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(outputs, "SLAB", 64)  # several blocks
    info = describe("audio", (501, channels)[:1], channels, dtype, 44100.0)
    values = random(501, channels) * 1.2 - 0.1
    path = write_signal(tmp_path / "a", values, info)
    assert path == tmp_path / "a.wav"
    rate, read = wavfile.read(path)
    assert (rate, read.dtype) == (44100, np.dtype(dtype))
    assert np.array_equal(read.reshape(501, channels), info.scaling.restore(values, 0))
    size = path.stat().st_size
    assert size % 2 == 0
    assert int.from_bytes(path.read_bytes()[4:8], "little") == size - 8


def test_wav_is_read_by_ffmpeg_too(tmp_path: Path) -> None:
    info = describe("audio", (100,), 1, "float32", 8000.0)
    values = random(100, 1)
    with av.open(str(write_signal(tmp_path / "a", values, info))) as container:
        read = np.concatenate([frame.to_ndarray() for frame in container.decode(audio=0)], axis=-1)
        assert container.streams.audio[0].rate == 8000
    assert np.array_equal(read.ravel(), info.scaling.restore(values, 0).ravel())


@pytest.mark.parametrize(
    ("samples", "rate", "expected"), [(100, None, 8000), (200, None, 16000), (50, None, 4000), (200, 11025, 11025)]
)
def test_upsampled_audio_lasts_as_long(samples: int, rate: float | None, expected: int, tmp_path: Path) -> None:
    path = write_signal(tmp_path / "a", random(samples, 1), describe("audio", (100,), 1, "int16", 8000.0), rate=rate)
    assert wavfile.read(path)[0] == expected


# -- arrays -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(9, 1), (4, 5, 5), (3, 4, 5, 3)])
def test_signals_of_no_known_source_are_written_as_they_are(shape: tuple[int, ...], tmp_path: Path) -> None:
    values = random(*shape) * 3 - 1
    path = write_signal(tmp_path / "cube.v2", values)
    assert path == tmp_path / "cube.v2.npy"
    read = np.load(path)
    assert read.dtype == np.float32
    assert np.array_equal(read, values)


@pytest.mark.parametrize("formats", ["auto", "h5"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32"])
@pytest.mark.parametrize("grid", [(41,), (11, 13), (6, 5, 4), (3, 4, 2, 5)])
def test_arrays_have_the_dtype_and_range_of_their_source(
    grid: tuple[int, ...], dtype: str, formats: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(outputs, "SLAB", 30)  # several blocks
    low, high = FULL[dtype]
    scaling = Scaling(dtype, (low / 2, low), (high / 2, high))
    info = SignalInfo(("a", "b"), grid, 2, scaling)
    values = random(*grid, 2) * 1.2 - 0.1
    path = write_signal(tmp_path / "a", values, info, place=1, formats=formats)
    if formats == "auto":
        assert path.suffix == ".npy"
        read = np.load(path)
    else:
        with h5py.File(path) as file:
            read = file["values"][...]
            assert json.loads(file["values"].attrs["scaling"]) == {"dtype": dtype, "low": [low], "high": [high]}
    assert read.dtype == dtype
    assert np.array_equal(read, scaling.restore(values, 1))
    assert not np.array_equal(read, scaling.restore(values, 0))


@pytest.mark.parametrize(
    ("media", "grid", "axes"),
    [
        ("image", (4, 5), ["height", "width"]),
        ("video", (3, 4, 5), ["time", "height", "width"]),
        ("audio", (9,), ["time"]),
        ("array", (3, 4), ["axis1", "axis2"]),
    ],
)
def test_hdf5_says_what_the_axes_are(media: str, grid: tuple[int, ...], axes: list[str], tmp_path: Path) -> None:
    rate = None if media == "image" else 10.0
    with h5py.File(
        write_signal(tmp_path / "a", random(*grid, 1), describe(media, grid, 1, "uint8", rate), formats="h5")
    ) as file:
        attributes = file["values"].attrs
        assert list(attributes["axes"]) == [*axes, "channel"]
        assert attributes.get("rate") == rate


def test_hdf5_invents_no_rate(tmp_path: Path) -> None:
    info = describe("video", (3, 4, 5), 3, "uint8", None)
    with h5py.File(write_signal(tmp_path / "a", random(3, 4, 5, 3), info, formats="h5")) as file:
        assert "rate" not in file["values"].attrs


# -- choice of the format -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("media", "shape", "dtype", "expected"),
    [
        ("image", (4, 5, 3), "uint8", "png"),
        ("image", (4, 5, 5), "uint8", "npy"),
        ("video", (2, 4, 5, 3), "uint8", "mp4"),
        ("video", (2, 4, 5, 1), "uint8", "mp4"),
        ("video", (2, 4, 5, 4), "uint8", "npy"),
        ("audio", (9, 2), "int16", "wav"),
        ("audio", (9, 2), "uint16", "npy"),
        ("array", (9, 1), "int16", "npy"),
        ("array", (4, 5, 3), "uint8", "npy"),
        ("array", (2, 4, 5, 3), "uint8", "npy"),
    ],
)
def test_auto_follows_the_medium(media: str, shape: tuple[int, ...], dtype: str, expected: str) -> None:
    assert choose_format(shape, describe(media, shape[:-1], shape[-1], dtype, 100.0)) == expected


@pytest.mark.parametrize(
    ("formats", "shape", "words"),
    [
        ("png", (9, 1), ["PNG needs 2 axes", "Possible: auto, wav, npy, h5"]),
        ("png", (4, 5, 5), ["1 to 4 channels", "4x5x5", "Possible: auto, npy, h5"]),
        ("mp4", (4, 5, 3), ["MP4 needs 3 axes", "Possible: auto, png, npy, h5"]),
        ("gif", (4, 5, 6, 2), ["GIF needs 3 axes", "1 or 3 channels", "Possible: auto, npy, h5"]),
        ("wav", (4, 5, 6, 3), ["WAV needs 1 axis", "Possible: auto, png, mp4, gif, npy, h5".replace("png, ", "")]),
        ("jpeg", (4, 5, 3), ["unknown output format 'jpeg'", "auto, png, mp4, gif, wav, npy, h5"]),
        ("np", (4, 5, 3), ["did you mean 'npy'"]),
    ],
)
def test_an_impossible_format_says_what_is_possible(
    formats: str, shape: tuple[int, ...], words: list[str], tmp_path: Path
) -> None:
    info = describe("array", shape[:-1], shape[-1], "int16", 10.0)
    with pytest.raises(InputError) as error:
        write_signal(tmp_path / "a", random(*shape), info, formats=formats)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("dtype", "rate", "shape", "words"),
    [
        ("int16", None, (9, 1), "the source has none"),
        ("uint16", 8000.0, (9, 1), "not uint16"),
        ("int16", 0.1, (9, 1), "at most 4 GiB"),
        ("int16", 8000.0, (2**31, 1), "at most 4 GiB"),
        ("int16", 8000.0, (9, 40000), "at most 4 GiB"),
    ],
)
def test_what_wav_cannot_hold(dtype: str, rate: float | None, shape: tuple[int, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        choose_format(shape, describe("array", shape[:1], shape[1], dtype, rate), "wav")


def test_gif_refuses_more_frames_than_players_show() -> None:
    info = describe("video", (10, 8, 8), 3, "uint8", 25.0)
    assert choose_format((20, 8, 8, 3), info, "gif") == "gif"
    with pytest.raises(InputError, match=r"at most 50 frames per second, not 75.*mp4"):
        choose_format((30, 8, 8, 3), info, "gif")


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_is_positive(rate: float) -> None:
    with pytest.raises(InputError, match="positive"):
        choose_format((9, 1), describe("audio", (9,), 1, "int16", 10.0), "wav", rate)


def test_axes_must_be_those_of_the_source() -> None:
    with pytest.raises(InputError, match="2 axes"):
        choose_format((9, 1), describe("image", (9, 9), 1, "uint8"))


# -- atomicity ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("formats", ["mp4", "gif", "npy", "h5"])
def test_a_failed_write_leaves_the_old_file(formats: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write_signal(tmp_path / "a", film(3, 16, 16), formats=formats)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_signal(tmp_path / "a", film(5, 16, 16), formats=formats)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


# -- all of a run ---------------------------------------------------------------------------------------------------------


def scores(*names: str) -> dict:
    empty = [None] * len(names)
    per_signal = {f"{key}_per_signal": empty for key in ("test/psnr", "train/psnr", "test/ssim")}
    numbers = dict.fromkeys(("test/psnr", "test/psnr_std", "test/ssim", "train/psnr", "num_params", "fit_seconds"))
    return {"signals": list(names), "baselines": {}, **per_signal, **numbers}


@pytest.mark.parametrize(
    ("media", "grid", "suffix"),
    [("image", (16, 16), "png"), ("video", (5, 16, 16), "mp4"), ("audio", (50,), "wav"), ("array", (3, 4, 5), "npy")],
)
def test_every_kind_of_run_leaves_something_to_look_at(
    media: str, grid: tuple[int, ...], suffix: str, tmp_path: Path
) -> None:
    info = SignalInfo(("a", "b"), grid, 1, Scaling("uint8", (0.0,), (255.0,)), 25.0, media)
    values = random(2, *grid, 1)
    mask = np.ones((1, *grid), dtype=bool)
    pictures = write_reconstructions(tmp_path, scores("a", "b"), values, values, info, train_mask=mask)
    assert pictures == [str(tmp_path / f"{name}_comparison.png") for name in "ab"]
    files = {f"{name}.{suffix}" for name in "ab"} | {f"{name}_comparison.png" for name in "ab"}
    files |= set() if media == "image" else {f"{name}_comparison.h5" for name in "ab"}
    assert {entry.name for entry in tmp_path.iterdir()} == files
    sheets = [np.asarray(Image.open(path)) for path in pictures]
    assert sheets[0].shape == sheets[1].shape
    assert not np.array_equal(*sheets)


def test_each_signal_has_its_own_trained_samples(tmp_path: Path) -> None:
    values = np.broadcast_to(random(1, 50, 1), (2, 50, 1))
    masks = np.stack([np.arange(50) < 10, np.arange(50) >= 40])
    one, two = write_reconstructions(tmp_path, scores("a", "b"), values, values, None, train_mask=masks)
    assert Path(one).read_bytes() != Path(two).read_bytes()


def test_formats_reach_the_files(tmp_path: Path) -> None:
    write_reconstructions(tmp_path, scores("a"), random(1, 8, 8, 3), random(1, 8, 8, 3), formats="h5")
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.h5", "a_comparison.png"}


def test_four_axes_are_written_and_not_compared(tmp_path: Path) -> None:
    values = random(1, 2, 3, 4, 5, 1)
    assert write_reconstructions(tmp_path, scores("a"), values, values) == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.npy"]


def test_of_many_rows_the_first_are_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert SHEETS == 64
    monkeypatch.setattr("pe_lightning.callbacks.report.SHEETS", 2)
    for name, grid, count in [("rows", (8,), 2), ("images", (8, 8), 4), ("volumes", (2, 8, 8), 2)]:
        values = random(4, *grid, 1)
        assert len(write_reconstructions(tmp_path / name, scores(*"abcd"), values, values)) == count
        assert len(list((tmp_path / name).glob("?.*"))) == 4


def test_videos_go_to_wandb(tmp_path: Path) -> None:
    values = film(3, 16, 16)[None]
    logger, other = Mock(spec=WandbLogger), Mock(spec=CSVLogger)
    info = describe("video", (3, 16, 16), 3, "uint8", 25.0)
    pictures = write_reconstructions(tmp_path, scores("a"), values, values, info)
    log_scores([other, logger], scores("a"), pictures, None, 7)
    logger.log_video.assert_called_once_with("videos", [str(tmp_path / "a.mp4")], step=7, format=["mp4"])
    logger.log_image.assert_called_once_with("reconstructions", pictures, step=7, caption=["a"])

    logger.reset_mock()
    pictures = write_reconstructions(tmp_path / "arrays", scores("a"), values, values, info, "npy")
    log_scores([logger], scores("a"), pictures, None, 7)
    logger.log_video.assert_not_called()


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a", "a"], ["a", "a-2", "a-3"]),
        (["a", "a-2", "a"], ["a", "a-2", "a-3"]),
        (["a-2", "a", "a"], ["a-2", "a", "a-3"]),
        (["Cat", "cat"], ["Cat", "cat-2"]),  # one file on Windows and macOS
        (["a b", "a/b"], ["a-b", "a-b-2"]),
        (["a", "a_comparison"], ["a", "a_comparison-2"]),  # the sheet of the first has that name
        (["a_comparison", "a"], ["a_comparison", "a-2"]),
        (["..."], ["unnamed"]),
        ([], []),
    ],
)
def test_file_names(names: list[str], expected: list[str]) -> None:
    assert file_names(tuple(names)) == expected


def test_no_two_files_of_any_signals_meet() -> None:
    names = tuple(["a", "A", "a-2", "a_comparison", "a-2_comparison", "a", "A_COMPARISON", "x" * 300, "x" * 301])
    stems = file_names(names)
    files = [name.casefold() for stem in stems for name in (f"{stem}.png", f"{stem}_comparison.png")]
    assert len(set(files)) == 2 * len(names)
    assert max(len(name.encode()) for name in files) < 255
