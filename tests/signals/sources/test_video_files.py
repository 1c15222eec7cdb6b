"""Video files: exact frames, times, rotation, and what is said about broken ones."""

import logging

import numpy as np
import pytest
from clip_files import TURNS, pictures, set_display_matrix, write_video
from source_checks import stored

from pe_lightning.signals.sources import VideoSource, clips


def read(path, **arguments):
    return VideoSource(path, **arguments).read()


def frames_of(path, **arguments):
    return stored(read(path, **arguments))[0]


@pytest.mark.parametrize(("name", "codec", "pixels"), [("a.mp4", "libx264rgb", "rgb24"), ("a.mkv", "ffv1", "bgr0")])
def test_lossless_frames_are_exact_and_in_presentation_order(tmp_path, monkeypatch, name, codec, pixels):
    frames = write_video(tmp_path / name, pictures(), codec, pixels, audio=True)
    raw = read(tmp_path / name)
    assert (raw.shape, raw.stored, raw.unit, raw.media) == ((1, 12, 24, 32, 3), "uint8", False, "video")
    assert (raw.scaling.low, raw.scaling.high, raw.rate) == ((0.0,), (255.0,), 25.0)
    monkeypatch.setattr(clips, "BLOCK_BYTES", 5 * 24 * 32 * 6)
    assert [len(block) for block in raw.blocks()] == [5, 5, 2]
    np.testing.assert_array_equal(stored(raw)[0], frames)


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
