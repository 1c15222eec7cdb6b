"""Video files: exact frames, times, rotation, and what is said about broken ones."""

import av
import numpy as np
import pytest
from clip_files import TURNS, pictures, set_display_matrix, write_audio, write_video
from pe_lightning.data.sources.sources import Source
from pe_lightning.data.sources.timing import check_fps, is_even, plan

from pe_lightning.data.sources import clips, video
from pe_lightning.data.sources.clips import picked
from pe_lightning.data.sources.video import read_video
from pe_lightning.errors import InputError


def described(path, **settings):
    return read_video(Source(path, str(path)), **settings)


def decoded(clip):
    return np.concatenate(list(clip.slabs()))


@pytest.fixture
def notices(monkeypatch):
    told = []
    monkeypatch.setattr(video, "rank_zero_info", told.append)
    return told


@pytest.mark.parametrize(("name", "codec", "stored"), [("a.mp4", "libx264rgb", "rgb24"), ("a.mkv", "ffv1", "bgr0")])
def test_lossless_frames_are_exact_and_in_presentation_order(tmp_path, notices, name, codec, stored):
    frames = write_video(tmp_path / name, pictures(), codec, stored)
    clip = described(tmp_path / name)
    assert (clip.grid, clip.channels, clip.stored, clip.unit, clip.media) == ((12, 24, 32), 3, "uint8", False, "video")
    assert (clip.scaling.low, clip.scaling.high, clip.rate) == ((0.0,), (255.0,), 25.0)
    np.testing.assert_array_equal(decoded(clip), frames)
    assert not notices


def test_frames_are_decoded_a_few_at_a_time(tmp_path, monkeypatch):
    frames = write_video(tmp_path / "a.mp4", pictures())
    monkeypatch.setattr(clips, "SLAB_BYTES", 5 * 24 * 32 * 6)
    slabs = list(described(tmp_path / "a.mp4").slabs())
    assert [len(slab) for slab in slabs] == [5, 5, 2]
    np.testing.assert_array_equal(np.concatenate(slabs), frames)


@pytest.mark.parametrize(
    ("dtype", "codec", "stored", "given"),
    [
        (np.uint8, "ffv1", "gray", "gray"),
        (np.uint16, "ffv1", "gray16le", "gray16le"),
        (np.uint16, "png", "rgb48be", "rgb48le"),
    ],
)
def test_bit_depth_and_grey_are_kept(tmp_path, dtype, codec, stored, given):
    channels = 1 if "gray" in given else 3
    path = tmp_path / ("a.mov" if codec == "png" else "a.mkv")
    frames = write_video(path, pictures(channels=channels, dtype=dtype), codec, stored, given)
    clip = described(path)
    assert (clip.channels, clip.stored) == (channels, np.dtype(dtype).name)
    np.testing.assert_array_equal(decoded(clip), frames)


def test_ten_bit_colour_uses_sixteen_bits(tmp_path):
    frames = pictures(dtype=np.uint16) & 0xFFC0
    write_video(tmp_path / "a.mkv", frames, "ffv1", "gbrp10le", "rgb48le")
    clip = described(tmp_path / "a.mkv")
    assert clip.stored == "uint16"
    # 10 bits are spread over the whole range of 16
    assert np.abs(decoded(clip).astype(int) - np.rint((frames >> 6) * (65535 / 1023))).max() <= 64


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
    np.testing.assert_allclose(decoded(described(tmp_path / "a.mkv"))[0, 0, 0], np.array([r, g, b]) * 255, atol=1.5)


@pytest.mark.parametrize("turn", TURNS)
def test_rotation_and_mirroring_of_phone_clips(tmp_path, turn):
    path = tmp_path / "a.mp4"
    frames = write_video(path, pictures())
    matrix, shown = TURNS[turn]
    set_display_matrix(path, matrix)
    clip = described(path)
    expected = shown(frames)
    assert clip.grid == expected.shape[:3]
    np.testing.assert_array_equal(decoded(clip), expected)


def test_a_slanted_display_is_refused(tmp_path):
    write_video(tmp_path / "a.mp4", pictures())
    set_display_matrix(tmp_path / "a.mp4", (1, 1, -1, 1))
    with pytest.raises(InputError, match="only multiples of 90"):
        described(tmp_path / "a.mp4")


def test_sound_is_ignored(tmp_path):
    frames = write_video(tmp_path / "a.mp4", pictures(), audio=True)
    np.testing.assert_array_equal(decoded(described(tmp_path / "a.mp4")), frames)


def test_uneven_times_are_resampled_to_the_mean_rate_with_a_notice(tmp_path, notices):
    pts = [0, 40, 80, 120, 320, 360, 400]  # at the mean rate, 15 / s: 0, 66.7, 133.3, 200, 266.7, 333.3, 400 ms
    frames = write_video(tmp_path / "a.mkv", pictures(7), "ffv1", "bgr0", pts=pts)
    clip = described(tmp_path / "a.mkv")
    assert clip.rate == pytest.approx(15)
    np.testing.assert_array_equal(decoded(clip), frames[[0, 1, 3, 3, 3, 4, 6]])
    assert len(notices) == 1
    assert "15 frames per second" in notices[0]


def test_rounded_times_are_even(tmp_path, notices):
    frames = write_video(tmp_path / "a.mkv", pictures(), "ffv1", "bgr0", rate=30)  # Matroska: 0, 33, 67, 100 ms
    clip = described(tmp_path / "a.mkv", fps=30)
    np.testing.assert_array_equal(decoded(clip), frames)
    assert described(tmp_path / "a.mkv").rate == 30
    assert not notices


@pytest.mark.parametrize(
    ("fps", "expected"), [(12.5, [0, 2, 4, 6, 8, 10]), (10, [0, 2, 5, 7, 10]), (50, [*np.arange(24) // 2])]
)
def test_fps_takes_the_latest_frame_shown(tmp_path, fps, expected):
    frames = write_video(tmp_path / "a.mp4", pictures())
    clip = described(tmp_path / "a.mp4", fps=fps)
    assert clip.rate == fps
    np.testing.assert_array_equal(decoded(clip), frames[expected])


def test_times_are_even_or_not():
    steady = np.arange(100) / 25
    assert is_even(steady + np.random.default_rng(0).uniform(-0.008, 0.008, 100), 1e-5)
    assert not is_even(np.delete(steady, 50), 1e-5)  # a dropped frame
    assert not is_even(np.concatenate([np.arange(50) / 24, 50 / 24 + np.arange(50) / 30]), 1e-5)  # a change of rate
    assert plan(np.arange(10) / 25 + 1, 1e-5, None, None).rate == pytest.approx(25)
    assert plan(np.arange(10) / 25, 1e-5, 50.0, None).rate == pytest.approx(25)  # the stated rate is wrong


@pytest.mark.parametrize("fps", [0, -1, float("nan"), float("inf"), True, "25", 1e6])
def test_bad_fps(fps):
    with pytest.raises(InputError, match="fps must be a number"):
        check_fps(fps)


def test_raw_stream_without_times(tmp_path):
    frames = write_video(tmp_path / "a.h264", pictures())
    clip = described(tmp_path / "a.h264")
    assert clip.rate == 25
    np.testing.assert_array_equal(decoded(clip), frames)


@pytest.mark.parametrize("name", ["with spaces.mp4", "ünïcode 视频.mp4", "12:30 100%d.mp4", "-dash.mp4"])
def test_names_of_files(tmp_path, name):
    frames = write_video(tmp_path / "plain.mp4", pictures())
    (tmp_path / name).symlink_to(tmp_path / "plain.mp4")
    np.testing.assert_array_equal(decoded(described(tmp_path / name)), frames)


def cut(path, share):
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv"])
def test_truncated_file_says_how_many_frames_are_whole(tmp_path, name):
    frames = write_video(tmp_path / name, pictures(30))
    cut(tmp_path / name, 0.7)
    clip = described(tmp_path / name)
    total = len(clip.frames)
    assert 5 < total < 30
    for asked in (None, [0, None], [-5, total], [0, -1]):
        with pytest.raises(InputError, match=rf"a\.m.*is truncated.*Set frames: \[0, {total}\]"):
            picked(clip, asked)
    whole = decoded(picked(clip, [0, total]))
    np.testing.assert_array_equal(whole, frames[:total])


def test_truncated_between_two_frames(tmp_path):
    path = tmp_path / "a.mp4"
    write_video(path, pictures(30))
    with av.open(str(path)) as container:
        ends = sorted(packet.pos + packet.size for packet in container.demux(video=0) if packet.size)
    path.write_bytes(path.read_bytes()[: ends[19]])
    with pytest.raises(InputError, match=r"header announces 1\.20 s"):
        picked(described(path), None)


def test_damage_found_while_decoding(tmp_path):
    path = tmp_path / "a.mov"
    write_video(path, pictures(20), "png", "rgb24")
    with av.open(str(path)) as container:
        packets = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    content = bytearray(path.read_bytes())
    start = content.index(b"\x89PNG", packets[9][0])
    content[start : start + 40] = bytes(40)
    path.write_bytes(content)
    clip = described(path)
    with pytest.raises(InputError, match=r"a\.mov.*truncated or damaged: only its first \d+ frames.*20 were to be read"):
        decoded(clip)


def test_mp4_without_its_index(tmp_path):
    write_video(tmp_path / "a.mov", pictures())  # its index is at the end
    cut(tmp_path / "a.mov", 0.5)
    with pytest.raises(InputError, match=r"a\.mov.*not a video, or it is truncated"):
        described(tmp_path / "a.mov")


def test_not_a_video(tmp_path):
    (tmp_path / "a.mp4").write_text("a shopping list\n" * 50)
    (tmp_path / "b.mp4").write_bytes(b"")
    for name in ("a.mp4", "b.mp4"):
        with pytest.raises(InputError, match="is not a video"):
            described(tmp_path / name)


def test_a_playlist_reaches_no_network(tmp_path):
    (tmp_path / "a.mp4").write_text(
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:9/x.ts\n#EXT-X-ENDLIST\n"
    )
    with pytest.raises(InputError):
        described(tmp_path / "a.mp4")


def test_only_sound(tmp_path):
    write_audio(tmp_path / "a.mp4")
    with pytest.raises(InputError, match=r"a\.mp4' holds no video, only audio"):
        described(tmp_path / "a.mp4")


def test_no_frames(tmp_path):
    with av.open(str(tmp_path / "a.avi"), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
        container.start_encoding()
    with pytest.raises(InputError, match="without any complete frame"):
        described(tmp_path / "a.avi")


def test_one_frame(tmp_path):
    write_video(tmp_path / "a.mp4", pictures(1))
    with pytest.raises(InputError, match=r"a\.mp4' has 1 frame\(s\).*at least 2"):
        described(tmp_path / "a.mp4")


def test_too_many_pixels(tmp_path):
    write_video(tmp_path / "a.mp4", pictures())
    with pytest.raises(InputError, match=r"24x32 \(height x width\), 768 pixels.*set max_pixels: 768"):
        described(tmp_path / "a.mp4", max_pixels=767)
    assert described(tmp_path / "a.mp4", max_pixels=768).grid == (12, 24, 32)
    assert described(tmp_path / "a.mp4", max_pixels=None).grid == (12, 24, 32)


def test_change_of_size_on_the_way(tmp_path):
    write_video(tmp_path / "a.ts", pictures(), "mpeg2video", "yuv420p")
    write_video(tmp_path / "b.ts", pictures(height=48, width=64), "mpeg2video", "yuv420p")
    (tmp_path / "c.ts").write_bytes((tmp_path / "a.ts").read_bytes() + (tmp_path / "b.ts").read_bytes())
    with pytest.raises(InputError, match="changes its size from 24x32 to 48x64"):
        decoded(described(tmp_path / "c.ts"))
