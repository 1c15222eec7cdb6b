"""Signals of three axes: frames and times of videos, frame folders, folders of files, edits of frames, sets of signals."""

import logging

import numpy as np
import pytest
import tifffile
from clip_files import TURNS, pictures, set_display_matrix, write_video
from PIL import Image
from source_checks import stored

from pe_lightning.signals.raw import ValueRange
from pe_lightning.signals.sources import VideoSource, clips

RNG = np.random.default_rng(0)


def read(paths, **arguments):
    return VideoSource(paths, **arguments).read()


def frames_of(path, **arguments):
    return stored(read(path, **arguments))[0]


def save(folder, frames, pattern="frame{}.png"):
    folder.mkdir(exist_ok=True)
    for number, frame in enumerate(frames, 1):
        Image.fromarray(frame[..., 0] if frame.shape[-1] == 1 else frame).save(folder / pattern.format(number))
    return frames


def test_frames_are_sorted_by_number_and_exact(tmp_path, monkeypatch):
    frames = save(tmp_path / "clip", pictures(12))
    (tmp_path / "clip" / "notes.txt").write_text("x")
    (tmp_path / "clip" / ".hidden.png").write_bytes(b"x")
    raw = read(tmp_path / "clip", fps=24)
    assert (raw.names, raw.shape, raw.stored, raw.unit) == (("clip",), (1, 12, 24, 32, 3), "uint8", False)
    assert (raw.media, raw.rate, read(tmp_path / "clip").rate) == ("video", 24, None)
    monkeypatch.setattr(clips, "BLOCK_BYTES", 5 * 4 * 24 * 32 * 3)
    assert [len(block) for block in raw.blocks()] == [5, 5, 2]
    np.testing.assert_array_equal(stored(raw)[0], frames)


def test_a_video_and_its_frame_folder_are_the_same_signal(tmp_path):
    frames = write_video(tmp_path / "a.mp4", pictures())
    save(tmp_path / "clip.v2", frames)
    raw = read([str(tmp_path / "a.mp4"), tmp_path / "clip.v2"], fps=25)
    assert (raw.names, raw.rate) == (("a", "clip.v2"), 25)
    np.testing.assert_array_equal(stored(raw), np.stack([frames, frames]))


def test_grey_and_deep_frames(tmp_path):
    grey = save(tmp_path / "a", pictures(3, channels=1))
    np.testing.assert_array_equal(frames_of(tmp_path / "a"), grey)
    colour = save(tmp_path / "a", pictures(1), "z{}.png")
    np.testing.assert_array_equal(frames_of(tmp_path / "a"), np.concatenate([grey.repeat(3, -1), colour]))
    deep = save(tmp_path / "b", pictures(2, channels=1, dtype=np.uint16))
    np.testing.assert_array_equal(frames_of(tmp_path / "b"), deep)
    flat = save(tmp_path / "b", pictures(1, channels=1), "z{}.png")
    np.testing.assert_array_equal(frames_of(tmp_path / "b"), np.concatenate([deep, flat.astype(np.uint16) * 257]))


def test_folders(tmp_path):
    for name in ("b.mp4", "a.mkv"):
        write_video(tmp_path / name, pictures(4), *(["ffv1", "bgr0"] if "mkv" in name else []))
    Image.new("RGB", (5, 5)).save(tmp_path / "cover.png")
    assert read(tmp_path).names == ("a", "b")
    (tmp_path / "stacks").mkdir(), (tmp_path / "pages").mkdir()
    for name in "xyz":
        tifffile.imwrite(tmp_path / "stacks" / f"{name}.tif", np.zeros((5, 6, 7), np.uint8))
        tifffile.imwrite(tmp_path / "pages" / f"{name}.tif", np.zeros((6, 7), np.uint8))
    assert read(tmp_path / "stacks").shape == (3, 5, 6, 7, 1)
    assert read(tmp_path / "pages").shape == (1, 3, 6, 7, 1)
    assert VideoSource([tmp_path / "stacks", tmp_path / "pages", tmp_path / "b.mp4"]).files() == [
        *(tmp_path / folder / f"{name}.tif" for folder in ("stacks", "pages") for name in "xyz"),
        tmp_path / "b.mp4",
    ]


def test_arrays(tmp_path):
    array = RNG.integers(0, 256, (2, 6, 8, 10, 3), dtype=np.uint8)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "b.npz", x=array)
    raw = read(tmp_path / "a.npy", fps=12)
    assert (raw.names, raw.rate, raw.values.shape) == (("a-0", "a-1"), 12, (2, 6, 8, 10, 3))
    luma = np.rint(array @ np.array([0.299, 0.587, 0.114]))[..., None]
    for name in ("a.npy", "b.npz"):
        raw = read(tmp_path / name, frames=[1, 6, 2], center_crop=[2, 4, 6], color="grey", fps=10)
        assert (raw.names, raw.rate, raw.media) == ((f"{name[0]}-0", f"{name[0]}-1"), 5, "array")
        np.testing.assert_array_equal(stored(raw), luma[:, 1:5:2, 2:6, 2:8])
    assert VideoSource(tmp_path / "a.npy").files() == []  # it is read in place
    for arguments in ({"frames": [0, 2]}, {"center_crop": 4}, {"resize": 4}, {"preset": "papers"}, {"color": "grey"}):
        assert VideoSource(tmp_path / "a.npy", **arguments).files() == [tmp_path / "a.npy"]
    assert VideoSource(tmp_path / "b.npz").files() == [tmp_path / "b.npz"]


@pytest.mark.parametrize("asked", [[2, 9], [-5, -1, 2], [None, None, 2]])
def test_frames_are_a_slice(tmp_path, asked):
    frames = save(tmp_path / "a", pictures())
    raw = read(tmp_path / "a", frames=asked, fps=25)
    np.testing.assert_array_equal(stored(raw)[0], frames[slice(*asked)])
    assert raw.rate == 25 / (asked[2] if len(asked) == 3 else 1)


@pytest.mark.parametrize(("crop", "rows", "columns", "times"), [
    (8, slice(8, 16), slice(12, 20), slice(None)),
    ([8, 30], slice(8, 16), slice(1, 31), slice(None)),
    ([5, 23, 9], slice(0, 23), slice(11, 20), slice(3, 8)),
])  # fmt: skip
def test_center_crop(tmp_path, crop, rows, columns, times):
    frames = save(tmp_path / "a", pictures())
    np.testing.assert_array_equal(frames_of(tmp_path / "a", center_crop=crop), frames[times, rows, columns])


@pytest.mark.parametrize(("dtype", "channels"), [(np.uint8, 3), (np.uint8, 1), (np.uint16, 1)])
def test_resize_comes_before_the_crop_and_is_anti_aliased(tmp_path, dtype, channels):
    frames = RNG.integers(0, np.iinfo(dtype).max, (3, 64, 96, channels), endpoint=True).astype(dtype)
    save(tmp_path / "a", frames)
    got = frames_of(tmp_path / "a", resize=[8, 12], center_crop=[6, 10]).astype(float)
    means = frames.reshape(3, 8, 8, 12, 8, channels).mean((2, 4))[:, 1:7, 1:11]  # area averages
    assert np.abs(got - means).max() < 0.1 * np.iinfo(dtype).max  # picking single pixels would be off by up to half
    save(tmp_path / "a", np.full_like(frames, 77))
    assert (frames_of(tmp_path / "a", resize=128) == 77).all()


def test_preset_of_the_papers(tmp_path):
    frames = write_video(tmp_path / "a.mp4", pictures(132, 40, 72))
    got = frames_of(tmp_path / "a.mp4", preset="papers")
    assert got.shape == (128, 128, 128, 3)
    for number in (0, 127):
        square = Image.fromarray(np.ascontiguousarray(frames[2 + number, :, 16:56]))
        whole = np.asarray(square.resize((256, 256), Image.Resampling.BICUBIC))
        np.testing.assert_allclose(got[number].astype(int), whole[64:192, 64:192], atol=1)


@pytest.mark.parametrize(("color", "channels"), [("auto", 3), ("grey", 1)])
def test_color_of_a_grey_and_a_colour_clip(tmp_path, color, channels):
    grey, colour = save(tmp_path / "grey", pictures(channels=1)), save(tmp_path / "colour", pictures(seed=1))
    got = stored(read([tmp_path / "grey", tmp_path / "colour"], color=color))
    luma = np.rint(colour @ np.array([0.299, 0.587, 0.114]))[..., None]
    np.testing.assert_array_equal(got[0], grey.repeat(channels, -1))
    np.testing.assert_array_equal(got[1], luma if channels == 1 else colour)
    assert read(tmp_path / "grey", color="rgb").channels == 3
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((5, 6, 7, 4), np.uint8), photometric="rgb")
    assert read(tmp_path / "a.tif").channels == 4


def test_clips_of_different_bits_join_at_the_widest(tmp_path):
    flat, deep = (
        save(tmp_path / "a", pictures(3, channels=1)),
        save(tmp_path / "b", pictures(3, channels=1, dtype=np.uint16)),
    )
    raw = read([tmp_path / "a", tmp_path / "b"])
    assert raw.scaling == ValueRange.of_integers("uint16")
    np.testing.assert_array_equal(stored(raw), np.stack([flat.astype(np.uint16) * 257, deep]))
    (tmp_path / "c").mkdir()
    for number in range(3):
        tifffile.imwrite(tmp_path / "c" / f"{number}.tif", RNG.random((24, 32), dtype=np.float32))
    raw = read([tmp_path / "a", tmp_path / "b", tmp_path / "c"])
    assert (raw.stored, raw.unit, raw.scaling) == ("float32", True, ValueRange("float32"))
    np.testing.assert_allclose(stored(raw)[:2], np.stack([flat / 255, deep / 65535]), rtol=1e-6)


def test_rotation_and_mirroring_of_phone_clips(tmp_path):
    path = tmp_path / "a.mp4"
    frames = write_video(path, pictures())
    for matrix, shown in TURNS.values():
        set_display_matrix(path, matrix)
        np.testing.assert_array_equal(frames_of(path), shown(frames))


def test_uneven_times_are_resampled_to_the_mean_rate_with_a_notice(tmp_path, caplog):
    pts = [0, 40, 80, 120, 320, 360, 400]  # at the mean rate, 15 / s: 0, 66.7, 133.3, 200, 266.7, 333.3, 400 ms
    frames = write_video(tmp_path / "a.mkv", pictures(7), "ffv1", "bgr0", pts=pts)
    with caplog.at_level(logging.INFO):
        raw = read(tmp_path / "a.mkv")
    assert raw.rate == pytest.approx(15)
    np.testing.assert_array_equal(stored(raw)[0], frames[[0, 1, 3, 3, 3, 4, 6]])
    assert ["15 frames per second" in message for message in caplog.messages] == [True]


def test_rounded_times_are_even_and_a_raw_stream_has_none(tmp_path, caplog):
    frames = write_video(tmp_path / "a.mkv", pictures(), "ffv1", "bgr0", rate=30)  # Matroska: 0, 33, 67, 100 ms
    np.testing.assert_array_equal(frames_of(tmp_path / "a.mkv", fps=30), frames)
    assert read(tmp_path / "a.mkv").rate == 30
    write_video(tmp_path / "b.h264", pictures())
    assert read(tmp_path / "b.h264").rate == 25
    np.testing.assert_array_equal(frames_of(tmp_path / "b.h264"), frames)
    assert not caplog.messages


@pytest.mark.parametrize(
    ("fps", "expected"), [(12.5, [0, 2, 4, 6, 8, 10]), (10, [0, 2, 5, 7, 10]), (50, [*np.arange(24) // 2])]
)
def test_fps_takes_the_latest_frame_shown(tmp_path, fps, expected):
    frames = write_video(tmp_path / "a.mp4", pictures())
    assert read(tmp_path / "a.mp4", fps=fps).rate == fps
    np.testing.assert_array_equal(frames_of(tmp_path / "a.mp4", fps=fps), frames[expected])
