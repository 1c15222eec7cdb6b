"""Video files: exact frames, times, rotation, and what is said about broken ones."""

import logging

import av
import numpy as np
import pytest
from clip_files import TURNS, pictures, set_display_matrix, write_audio, write_video
from source_checks import refused, stored

from pe_lightning.data.sources import VideoSource, clips
from pe_lightning.data.sources.video_files import Timing


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


@pytest.mark.parametrize(
    ("dtype", "codec", "pixels", "given"),
    [
        (np.uint8, "ffv1", "gray", "gray"),
        (np.uint16, "ffv1", "gray16le", "gray16le"),
        (np.uint16, "png", "rgb48be", "rgb48le"),
    ],
)
def test_bits_and_grey_are_preserved(tmp_path, dtype, codec, pixels, given):
    channels = 1 if "gray" in given else 3
    path = tmp_path / ("a.mov" if codec == "png" else "a.mkv")
    frames = write_video(path, pictures(channels=channels, dtype=dtype), codec, pixels, given)
    assert read(path).stored == np.dtype(dtype).name
    np.testing.assert_array_equal(frames_of(path), frames)


def test_ten_bit_colour_uses_sixteen_bits(tmp_path):
    frames = pictures(dtype=np.uint16) & 0xFFC0
    write_video(tmp_path / "a.mkv", frames, "ffv1", "gbrp10le", "rgb48le")
    got = frames_of(tmp_path / "a.mkv")
    assert got.dtype == np.uint16
    # 10 bits are spread over the whole range of 16
    assert np.abs(got.astype(int) - np.rint((frames >> 6) * (65535 / 1023))).max() <= 64


@pytest.mark.parametrize(("matrix", "kr", "kb"), [(1, 0.2126, 0.0722), (5, 0.299, 0.114), (2, 0.299, 0.114)])
@pytest.mark.parametrize("full", [False, True])
def test_the_stated_colour_matrix_and_range_are_applied(tmp_path, matrix, kr, kb, full):
    frame = av.VideoFrame(32, 24, "yuv444p")
    for plane, value in zip(frame.planes, (100, 90, 200), strict=True):
        plane.update(bytes([value]) * plane.buffer_size)
    with av.open(str(tmp_path / "a.mkv"), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv444p"
        stream.codec_context.colorspace = frame.colorspace = matrix  # 1: BT.709, 5: BT.601, 2: not stated
        stream.codec_context.color_range = frame.color_range = 2 if full else 1
        for number in range(2):
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    luma, blue, red = (100 / 255, -38 / 255, 72 / 255) if full else (84 / 219, -38 / 224, 72 / 224)
    r, b = luma + 2 * (1 - kr) * red, luma + 2 * (1 - kb) * blue
    g = (luma - kr * r - kb * b) / (1 - kr - kb)
    np.testing.assert_allclose(frames_of(tmp_path / "a.mkv")[0, 0, 0], np.array([r, g, b]) * 255, atol=1.5)


def test_rotation_and_mirroring_of_phone_clips(tmp_path):
    path = tmp_path / "a.mp4"
    frames = write_video(path, pictures())
    for matrix, shown in TURNS.values():
        set_display_matrix(path, matrix)
        np.testing.assert_array_equal(frames_of(path), shown(frames))
    set_display_matrix(path, (1, 1, -1, 1))
    refused(VideoSource(path).read, "only multiples of 90")


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


def test_times_are_even_or_not():
    steady = np.arange(100) / 25
    jitter = np.random.default_rng(0).uniform(-0.008, 0.008, 100)
    changed = np.concatenate([np.arange(50) / 24, 50 / 24 + np.arange(50) / 30])
    for times, even in ((steady + jitter, True), (np.delete(steady, 50), False), (changed, False)):
        assert Timing.of(times, 1e-5, None, None).even == even
    assert Timing.of(steady + 1, 1e-5, None, None).rate == pytest.approx(25)
    assert Timing.of(steady, 1e-5, 50.0, None).rate == pytest.approx(25)  # the stated rate is wrong


@pytest.mark.parametrize("name", ["ünïcode 视频.mp4", "12:30 100%d.mp4", "-dash.mp4", "no suffix"])
def test_names_of_files(tmp_path, name):
    frames = write_video(tmp_path / "plain.mp4", pictures())
    (tmp_path / name).symlink_to(tmp_path / "plain.mp4")
    np.testing.assert_array_equal(frames_of(tmp_path / name), frames)


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.mov"])
def test_truncated_files(tmp_path, name):
    path = tmp_path / name
    write_video(path, pictures(30))
    with av.open(str(path)) as container:
        ends = sorted(packet.pos + packet.size for packet in container.demux(video=0) if packet.size)
    content = path.read_bytes()
    for length in (int(len(content) * 0.7), ends[19]):  # within a frame, and between two
        path.write_bytes(content[:length])
        refused(VideoSource(path).read, name, "truncated")


def test_damage_found_while_decoding(tmp_path):
    path = tmp_path / "a.mov"
    write_video(path, pictures(20), "png", "rgb24")
    with av.open(str(path)) as container:
        packets = [packet.pos for packet in container.demux(video=0) if packet.size]
    content = bytearray(path.read_bytes())
    start = content.index(b"\x89PNG", packets[9])
    content[start : start + 40] = bytes(40)
    path.write_bytes(content)
    refused(lambda: frames_of(path), "a.mov", "truncated or damaged")


def test_files_that_are_no_video(tmp_path):
    (tmp_path / "a.mp4").write_text("a shopping list\n" * 50)
    (tmp_path / "b.mp4").write_bytes(b"")
    # a playlist, which must not reach the network
    (tmp_path / "c.mp4").write_text(
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:9/x.ts\n#EXT-X-ENDLIST\n"
    )
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        refused(VideoSource(tmp_path / name).read, name)
    write_audio(tmp_path / "d.mp4")
    refused(VideoSource(tmp_path / "d.mp4").read, "holds no video that can be decoded, only audio")
    with av.open(str(tmp_path / "e.avi"), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
        container.start_encoding()
    refused(VideoSource(tmp_path / "e.avi").read, "has 0 frame(s)")
    write_video(tmp_path / "f.mp4", pictures(1))
    refused(VideoSource(tmp_path / "f.mp4").read, "has 1 frame(s)", "at least 2")


def test_too_many_pixels(tmp_path):
    write_video(tmp_path / "a.ts", pictures(), "mpeg2video", "yuv420p")
    refused(VideoSource(tmp_path / "a.ts", max_pixels=767).read, "24x32 (height x width), 768 pixels", "max_pixels: 768")
    assert read(tmp_path / "a.ts", max_pixels=768).grid == (12, 24, 32)
