"""Frame folders: order, bit depth, colour, and folders that are no clip."""

import numpy as np
import pytest
import tifffile
from clip_files import pictures
from pe_lightning.data.sources.sources import Source
from PIL import Image

from pe_lightning.data.sources import clips
from pe_lightning.data.sources.frames import read_frames
from pe_lightning.errors import InputError


def described(folder, **settings):
    return read_frames(Source(folder, str(folder)), **settings)


def decoded(clip):
    return np.concatenate(list(clip.slabs()))


def save(folder, frames, pattern="frame{}.png", first=1):
    folder.mkdir(exist_ok=True)
    for number, frame in enumerate(frames, first):
        Image.fromarray(frame[..., 0] if frame.shape[-1] == 1 else frame).save(folder / pattern.format(number))
    return frames


def test_frames_are_sorted_by_number_and_exact(tmp_path, monkeypatch):
    frames = save(tmp_path / "clip", pictures(12))
    (tmp_path / "clip" / "notes.txt").write_text("x")
    (tmp_path / "clip" / ".hidden.png").write_bytes(b"x")
    clip = described(tmp_path / "clip", fps=24)
    assert (clip.grid, clip.channels, clip.stored, clip.unit) == ((12, 24, 32), 3, "uint8", False)
    assert (clip.media, clip.rate, described(tmp_path / "clip").rate) == ("video", 24, None)
    monkeypatch.setattr(clips, "SLAB_BYTES", 5 * 4 * 24 * 32 * 3)
    assert [len(slab) for slab in clip.slabs()] == [5, 5, 2]
    np.testing.assert_array_equal(decoded(clip), frames)


def test_grey_frames_have_one_channel_and_join_colour_ones(tmp_path):
    grey = save(tmp_path / "clip", pictures(3, channels=1))
    assert described(tmp_path / "clip").channels == 1
    np.testing.assert_array_equal(decoded(described(tmp_path / "clip")), grey)
    colour = save(tmp_path / "clip", pictures(1), "z{}.png")
    np.testing.assert_array_equal(decoded(described(tmp_path / "clip")), np.concatenate([grey.repeat(3, -1), colour]))


def test_sixteen_bits_are_kept_and_lift_eight_bit_frames(tmp_path):
    deep = pictures(2, channels=1, dtype=np.uint16)
    save(tmp_path / "clip", deep)
    assert described(tmp_path / "clip").stored == "uint16"
    np.testing.assert_array_equal(decoded(described(tmp_path / "clip")), deep)
    flat = save(tmp_path / "clip", pictures(1, channels=1), "z{}.png")
    np.testing.assert_array_equal(
        decoded(described(tmp_path / "clip")), np.concatenate([deep, flat.astype(np.uint16) * 257])
    )


def test_floating_point_frames_stay_in_the_unit_range(tmp_path):
    (tmp_path / "clip").mkdir()
    frames = np.random.default_rng(0).random((3, 24, 32, 1), dtype=np.float32)
    for number, frame in enumerate(frames):
        tifffile.imwrite(tmp_path / "clip" / f"{number}.tif", frame[..., 0])
    clip = described(tmp_path / "clip")
    assert (clip.stored, clip.unit) == ("float32", True)
    np.testing.assert_array_equal(decoded(clip), frames)


def test_eight_bit_tiff_frames(tmp_path):
    frames = save(tmp_path / "clip", pictures(3), "{}.tif")
    assert described(tmp_path / "clip").stored == "uint8"
    np.testing.assert_array_equal(decoded(described(tmp_path / "clip")), frames)


def test_transparent_frames_are_laid_over_white(tmp_path):
    frames = pictures(2, channels=4)
    frames[..., 3] = 0
    save(tmp_path / "clip", frames)
    assert (decoded(described(tmp_path / "clip")) == 255).all()


def test_turned_photographs(tmp_path):
    (tmp_path / "clip").mkdir()
    exif = Image.Exif()
    exif[274] = 6
    for number in range(2):
        Image.new("RGB", (32, 24), "red").save(tmp_path / "clip" / f"{number}.jpg", exif=exif)
    clip = described(tmp_path / "clip")
    assert clip.grid == (2, 32, 24)
    assert decoded(clip).shape == (2, 32, 24, 3)


def test_mixed_sizes(tmp_path):
    save(tmp_path / "clip", pictures(3))
    save(tmp_path / "clip", pictures(1, height=12), "small{}.png")
    with pytest.raises(InputError, match=r"mixes 2 sizes.*24x32: 3 \(frame1\.png, …\); 12x32: 1 \(small1\.png\)"):
        described(tmp_path / "clip")


def test_one_frame(tmp_path):
    save(tmp_path / "clip", pictures(1))
    with pytest.raises(InputError, match=r"holds 1 picture\(s\).*ImageDataModule"):
        described(tmp_path / "clip")


def test_a_frame_that_is_no_picture_or_too_large(tmp_path):
    save(tmp_path / "clip", pictures(2))
    with pytest.raises(InputError, match="max_pixels: 768"):
        decoded(described(tmp_path / "clip", max_pixels=767))
    (tmp_path / "clip" / "frame3.png").write_text("not a picture")
    with pytest.raises(InputError, match=r"frame3\.png' is not an image"):
        described(tmp_path / "clip")
