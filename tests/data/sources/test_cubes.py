"""The entry for all signals of three axes: dispatch, shaping, and sets of signals."""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
import tifffile
from clip_files import pictures, write_video
from PIL import Image

from pe_lightning.data.signals import RawSignals, Scaling
from pe_lightning.data.sources import clips, cubes, samples
from pe_lightning.data.sources.cubes import CUBE_SUFFIXES, cube_files, direct, read_cubes
from pe_lightning.data.sources.samples import sample_path, video_sample_path, video_samples
from pe_lightning.errors import InputError

RNG = np.random.default_rng(0)


def values(raw):
    """``(S, T, H, W, C)``, after the checks that every caller relies on."""
    slabs = list(raw.blocks())
    assert all(slab.dtype == np.dtype(raw.stored) and slab.shape[1:] == raw.shape[2:] for slab in slabs)
    return np.concatenate(slabs).reshape(raw.shape)


def save_folder(folder, frames):
    folder.mkdir(exist_ok=True)
    for number, frame in enumerate(frames):
        Image.fromarray(frame[..., 0] if frame.shape[-1] == 1 else frame).save(folder / f"{number}.png")


def test_a_video_and_its_frame_folder_are_the_same_signal(tmp_path):
    frames = write_video(tmp_path / "a.mp4", pictures())
    save_folder(tmp_path / "clip.v2", frames)
    raw = read_cubes([str(tmp_path / "a.mp4"), tmp_path / "clip.v2"], fps=25)
    assert (raw.names, raw.grid, raw.channels, raw.stored) == (("a", "clip.v2"), (12, 24, 32), 3, "uint8")
    assert (raw.media, raw.rate, raw.unit, raw.array) == ("video", 25, False, None)
    np.testing.assert_array_equal(values(raw), np.stack([frames, frames]))


def test_folders(tmp_path):
    for name in ("b.mp4", "a.mkv"):
        write_video(tmp_path / name, pictures(4), *(["ffv1", "bgr0"] if "mkv" in name else []))
    Image.new("RGB", (5, 5)).save(tmp_path / "cover.png")
    assert read_cubes(tmp_path).names == ("a", "b")
    (tmp_path / "stacks").mkdir()
    for name in "xy":
        tifffile.imwrite(tmp_path / "stacks" / f"{name}.tif", np.zeros((5, 6, 7), np.uint8))
    assert read_cubes(tmp_path / "stacks").shape == (2, 5, 6, 7, 1)
    (tmp_path / "pages").mkdir()
    for name in "xyz":
        tifffile.imwrite(tmp_path / "pages" / f"{name}.tif", np.zeros((6, 7), np.uint8))
    assert read_cubes(tmp_path / "pages").shape == (1, 3, 6, 7, 1)
    assert cube_files([tmp_path / "stacks", tmp_path / "pages", tmp_path / "b.mp4"]) == (
        *(tmp_path / "stacks" / f"{name}.tif" for name in "xy"),
        *(tmp_path / "pages" / f"{name}.tif" for name in "xyz"),
        tmp_path / "b.mp4",
    )


def test_folders_that_hold_nothing(tmp_path):
    with pytest.raises(InputError, match="it is empty"):
        read_cubes(tmp_path)
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InputError, match=r"it holds 1 file\(s\) of type \.txt"):
        read_cubes(str(tmp_path))
    with pytest.raises(InputError, match="paths is an empty list"):
        read_cubes([])
    with pytest.raises(InputError, match=r"no such file or folder: 'b\.mp4'"):
        read_cubes(tmp_path / "b.mp4")
    Image.new("RGB", (5, 5)).save(tmp_path / "a.png")
    with pytest.raises(InputError, match="is one picture; give the folder"):
        read_cubes(tmp_path / "a.png")


def test_links_and_odd_names(tmp_path):
    frames = write_video(tmp_path / "plain.mp4", pictures(4))
    shutil.copy(tmp_path / "plain.mp4", tmp_path / "no suffix ü")
    (tmp_path / "link.mp4").symlink_to(tmp_path / "plain.mp4")
    raw = read_cubes([tmp_path / "no suffix ü", tmp_path / "link.mp4"])
    np.testing.assert_array_equal(values(raw), np.stack([frames, frames]))


@pytest.mark.parametrize("asked", [[2, 9], [2, 9, 3], [None, None, 2], [-4, None], [None, -3], [-5, -1, 2], [0, 12]])
def test_frames_are_a_slice(tmp_path, asked):
    frames = write_video(tmp_path / "a.mp4", pictures())
    raw = read_cubes(tmp_path / "a.mp4", frames=asked)
    np.testing.assert_array_equal(values(raw)[0], frames[slice(*asked)])
    assert raw.rate == 25 / (asked[2] if len(asked) == 3 else 1)


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ([0, 13], r"asks for stop 13, but .*a\.mp4' has 12 frames; set stop to at most 12"),
        ([12, None], "asks for start 12, but"),
        ([-13, None], "asks for start -13, but"),
        ([3, 4], r"has 12 frame\(s\), and frames \[3, 4\] leaves 1"),
        ([5, 2], r"leaves 0"),
        ([0, 12, 0], "step of frames must be at least 1"),
        ([0, 12, -1], "step of frames must be at least 1"),
        ([3], "frames must be"),
        (3, "frames must be"),
        ([0.0, 5], "frames must be"),
        ([True, 5], "frames must be"),
    ],
)
def test_frames_that_are_not_there(tmp_path, asked, match):
    write_video(tmp_path / "a.mp4", pictures())
    with pytest.raises(InputError, match=match):
        read_cubes(tmp_path / "a.mp4", frames=asked)


def test_frames_count_after_resampling(tmp_path):
    frames = write_video(tmp_path / "a.mp4", pictures())
    raw = read_cubes(tmp_path / "a.mp4", fps=12.5, frames=[1, 5, 2])
    np.testing.assert_array_equal(values(raw)[0], frames[[2, 6]])
    assert raw.rate == 6.25


@pytest.mark.parametrize(("crop", "rows", "columns", "times"), [
    (8, slice(8, 16), slice(12, 20), slice(None)),
    ([8, 30], slice(8, 16), slice(1, 31), slice(None)),
    ([5, 23, 9], slice(0, 23), slice(11, 20), slice(3, 8)),
])  # fmt: skip
def test_center_crop(tmp_path, crop, rows, columns, times):
    frames = write_video(tmp_path / "a.mp4", pictures())
    np.testing.assert_array_equal(values(read_cubes(tmp_path / "a.mp4", center_crop=crop))[0], frames[times, rows, columns])


@pytest.mark.parametrize("crop", [25, [24, 33], [13, 8, 8]])
def test_center_crop_that_is_too_large(tmp_path, crop):
    write_video(tmp_path / "a.mp4", pictures())
    with pytest.raises(InputError, match=r"a\.mp4', which has 12 frames of 24x32.*set center_crop to at most"):
        read_cubes(tmp_path / "a.mp4", center_crop=crop)


@pytest.mark.parametrize(("dtype", "channels"), [(np.uint8, 3), (np.uint8, 1), (np.uint16, 1)])
def test_resize_comes_before_the_crop_and_is_anti_aliased(tmp_path, dtype, channels):
    frames = RNG.integers(0, np.iinfo(dtype).max, (3, 64, 96, channels), endpoint=True).astype(dtype)
    save_folder(tmp_path / "a", frames)
    raw = read_cubes(tmp_path / "a", resize=[8, 12], center_crop=[6, 10])
    got = values(raw)[0].astype(float)
    assert raw.grid == (3, 6, 10)
    means = frames.reshape(3, 8, 8, 12, 8, channels).mean((2, 4))[:, 1:7, 1:11]  # area averages
    assert np.abs(got - means).max() < 0.1 * np.iinfo(dtype).max  # picking single pixels would be off by up to half
    assert got.std() < 0.25 * frames.std()  # as much as that of single pixels without smoothing
    flat = np.full_like(frames, 77)
    save_folder(tmp_path / "a", flat)
    assert (values(read_cubes(tmp_path / "a", resize=128)) == 77).all()


def test_resize_keeps_a_ramp_and_the_range(tmp_path):
    ramp = np.broadcast_to(np.linspace(0, 1, 64, dtype=np.float32), (5, 32, 64))
    tifffile.imwrite(tmp_path / "a.tif", ramp)
    got = values(read_cubes(tmp_path / "a.tif", resize=[16, 32]))[0, 1, 8, 3:-3, 0]
    np.testing.assert_allclose(got, (np.arange(32) * 2 + 0.5)[3:-3] / 63, atol=1e-5)
    step = np.zeros((5, 32, 64), np.float32)
    step[..., 32:] = 1
    tifffile.imwrite(tmp_path / "b.tif", step)
    overshot = values(read_cubes(tmp_path / "b.tif", resize=[64, 128]))
    assert (overshot.min(), overshot.max()) == (0, 1)


@pytest.mark.parametrize(("color", "channels"), [("auto", 3), ("rgb", 3), ("grey", 1)])
def test_color_of_a_grey_and_a_colour_clip(tmp_path, color, channels):
    grey, colour = pictures(channels=1), pictures(seed=1)
    save_folder(tmp_path / "grey", grey)
    write_video(tmp_path / "colour.mp4", colour)
    got = values(read_cubes([tmp_path / "grey", tmp_path / "colour.mp4"], color=color, fps=25))
    luma = np.rint(colour @ np.array([0.299, 0.587, 0.114]))[..., None]
    np.testing.assert_array_equal(got[0], grey.repeat(channels, -1))
    np.testing.assert_array_equal(got[1], luma if channels == 1 else colour)
    assert read_cubes(tmp_path / "grey").channels == 1
    assert read_cubes(tmp_path / "grey", color="rgb").channels == 3


def test_eight_and_sixteen_bit_clips_join_at_sixteen(tmp_path):
    flat, deep = pictures(channels=1), pictures(channels=1, dtype=np.uint16)
    save_folder(tmp_path / "a", flat)
    write_video(tmp_path / "b.mkv", deep, "ffv1", "gray16le", "gray16le")
    raw = read_cubes([tmp_path / "a", tmp_path / "b.mkv"], fps=25)
    assert (raw.stored, raw.scaling) == ("uint16", Scaling.of_integers("uint16"))
    np.testing.assert_array_equal(values(raw), np.stack([flat.astype(np.uint16) * 257, deep]))


def test_floating_point_frames_lift_the_others(tmp_path):
    save_folder(tmp_path / "a", pictures(3, channels=1))
    (tmp_path / "b").mkdir()
    for number in range(3):
        tifffile.imwrite(tmp_path / "b" / f"{number}.tif", RNG.random((24, 32), dtype=np.float32))
    raw = read_cubes([tmp_path / "a", tmp_path / "b"])
    assert (raw.stored, raw.unit, raw.scaling) == ("float32", True, Scaling("float32"))
    np.testing.assert_allclose(values(raw)[0], pictures(3, channels=1) / 255, rtol=1e-6)


def test_sizes_and_rates_that_differ(tmp_path):
    write_video(tmp_path / "a.mp4", pictures())
    write_video(tmp_path / "b.mp4", pictures(10, 32, 24))
    both = [tmp_path / "a.mp4", tmp_path / "b.mp4"]
    with pytest.raises(InputError, match=r"12x24x32: .*a\.mp4; 10x32x24: .*b\.mp4\. Set center_crop .* \[10, 24, 24\]"):
        read_cubes(both)
    assert read_cubes(both, center_crop=[10, 24, 24]).shape == (2, 10, 24, 24, 3)
    write_video(tmp_path / "b.mp4", pictures(), rate=30)
    with pytest.raises(InputError, match=r"25 frames per second and .*b\.mp4' 30.*set fps"):
        read_cubes(both)


def test_kinds_that_differ(tmp_path):
    write_video(tmp_path / "a.mp4", pictures())
    tifffile.imwrite(tmp_path / "b.tif", np.zeros((12, 24, 32), np.uint8))
    with pytest.raises(InputError, match=r"several kinds .*tiff: .*b\.tif'; video: .*a\.mp4'"):
        read_cubes([tmp_path / "a.mp4", tmp_path / "b.tif"])
    with pytest.raises(InputError, match="leave it out"):
        read_cubes(tmp_path / "a.mp4", value_range=[0, 1])
    with pytest.raises(InputError, match="key 'x' chooses"):
        read_cubes(tmp_path / "b.tif", key="x")


def test_volumes_have_a_range_each(tmp_path):
    for name, shift in (("a", 0), ("b", 50)):
        nibabel.Nifti1Image(np.arange(210, dtype=np.int16).reshape(7, 6, 5) + np.int16(shift), np.eye(4)).to_filename(
            tmp_path / f"{name}.nii.gz"
        )
    raw = read_cubes(tmp_path)
    assert (raw.names, raw.shape, raw.media) == (("a", "b"), (2, 5, 6, 7, 1), "array")
    assert raw.scaling == Scaling("int16", (0.0, 50.0), (209.0, 259.0))
    assert read_cubes(tmp_path, value_range=[0, 300]).scaling == Scaling("int16", (0.0,), (300.0,))
    assert read_cubes(tmp_path, frames=[0, 4, 2], fps=10).rate == 5
    tifffile.imwrite(tmp_path / "c.tif", np.zeros((5, 6, 7), np.uint8))
    tifffile.imwrite(tmp_path / "d.tif", np.zeros((5, 6, 7), np.uint16))
    with pytest.raises(InputError, match=r"different dtypes \(uint16: .*d\.tif'; uint8: .*c\.tif'\)"):
        read_cubes([tmp_path / "c.tif", tmp_path / "d.tif"])


def test_channels_that_are_no_colours(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((5, 6, 7, 4), np.uint8), photometric="rgb")
    assert read_cubes(tmp_path / "a.tif").channels == 4
    with pytest.raises(InputError, match="4 channels cannot be brought"):
        read_cubes(tmp_path / "a.tif", color="grey")


@pytest.fixture
def array_raw(tmp_path, monkeypatch):
    """Two signals in one file, read through a stand-in for the reader of array files."""
    np.save(tmp_path / "a.npy", np.zeros((6, 8, 10, 3), np.uint8))
    stored = RNG.integers(0, 256, (2, 6, 8, 10, 3), dtype=np.uint8)
    pieces = [stored[s, t : t + 4] for s in range(2) for t in (0, 4)]
    asked = []
    raw = RawSignals(
        ("a-0", "a-1"), (6, 8, 10), 3, "uint8", Scaling.of_integers("uint8"), False, lambda: iter(pieces), lambda: stored
    )

    def read_arrays(paths, num_axes, key=None, value_range=None):
        asked.append((list(paths), num_axes, key, value_range))
        return raw

    monkeypatch.setattr(cubes, "read_arrays", read_arrays)
    return tmp_path / "a.npy", stored, raw, asked


def test_array_files_are_passed_on(array_raw):
    path, _, raw, asked = array_raw
    assert read_cubes(path, key="x", value_range=[0, 9]).array is raw.array
    assert asked == [([path], 3, "x", [0, 9])]
    assert read_cubes(path, fps=12).rate == 12


@pytest.mark.parametrize("sliced", [True, False])
def test_array_files_are_shaped(array_raw, monkeypatch, sliced):
    path, stored, raw, _ = array_raw
    if not sliced:
        monkeypatch.setattr(cubes, "read_arrays", lambda *_, **__: replace(raw, array=None))
    monkeypatch.setattr(clips, "SLAB_BYTES", 2 * stored[0, 0].nbytes)
    got = read_cubes(path, frames=[1, 6, 2], center_crop=[2, 4, 6], color="grey", fps=10)
    luma = np.rint(stored @ np.array([0.299, 0.587, 0.114]))[..., None]
    assert (got.names, got.array, got.rate, got.media) == (("a-0", "a-1"), None, 5, "array")
    np.testing.assert_array_equal(values(got), luma[:, 1:5:2, 2:6, 2:8])


def test_real_array_files(tmp_path):
    stored = RNG.integers(0, 256, (6, 8, 10, 3), dtype=np.uint8)
    np.save(tmp_path / "a.npy", stored)
    np.savez(tmp_path / "b.npz", x=stored)
    for name in ("a.npy", "b.npz"):
        np.testing.assert_array_equal(
            values(read_cubes(tmp_path / name, frames=[2, 6], center_crop=4))[0], stored[2:, 2:6, 3:7]
        )


def test_direct(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((4, 5, 6)))
    np.savez(tmp_path / "b.npz", x=np.zeros((4, 5, 6)))
    (tmp_path / "c.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    a, b, c = (tmp_path / name for name in ("a.npy", "b.npz", "c.h5"))
    assert direct([a, c])
    assert not direct([a, b])
    assert not direct(tmp_path)
    for setting in ({"frames": [0, 2]}, {"center_crop": 4}, {"resize": 4}, {"preset": "papers"}, {"color": "grey"}):
        assert not direct(a, **setting)


def test_preset_of_the_papers(tmp_path):
    frames = write_video(tmp_path / "a.mp4", pictures(132, 40, 72))
    raw = read_cubes(tmp_path / "a.mp4", preset="papers")
    assert (raw.shape, raw.rate) == ((1, 128, 128, 128, 3), 25)
    got = values(raw)[0]
    square = frames[2:130, :, 16:56]
    for number in (0, 127):
        whole = np.asarray(Image.fromarray(square[number]).resize((256, 256), Image.Resampling.BICUBIC))
        np.testing.assert_allclose(got[number].astype(int), whole[64:192, 64:192], atol=1)
    with pytest.raises(InputError, match=r"needs 128 frames, and .*a\.mp4' has 100 after frames \[0, 100\]"):
        read_cubes(tmp_path / "a.mp4", preset="papers", frames=[0, 100])
    for setting in ({"resize": 256}, {"center_crop": 128}):
        with pytest.raises(InputError, match="preset papers sets resize and center_crop itself"):
            read_cubes(tmp_path / "a.mp4", preset="papers", **setting)
    with pytest.raises(InputError, match="preset must be one of papers"):
        read_cubes(tmp_path / "a.mp4", preset="paper")


@pytest.mark.parametrize(
    ("setting", "match"),
    [
        ({"center_crop": [1, 2, 3]}, r"center_crop \[t, h, w\] must be"),
        ({"center_crop": [1, 2, 3, 4]}, "center_crop must be"),
        ({"resize": 1}, "resize must be"),
        ({"resize": [4, 4, 4]}, "resize must be"),
        ({"color": "gray"}, "color must be one of"),
        ({"fps": 0}, "fps must be"),
        ({"max_pixels": 0}, "max_pixels must be"),
    ],
)
def test_settings_are_checked_before_any_file_is_read(setting, match):
    with pytest.raises(InputError, match=match):
        read_cubes("not there.mp4", **setting)


def test_the_sample_video():
    path = video_sample_path("samples://bigbuckbunny")
    notes = (Path(path).parent / "README.md").read_text()
    assert hashlib.sha256(path.read_bytes()).hexdigest() in notes
    raw = read_cubes("samples://bigbuckbunny", frames=[0, 2], resize=[36, 64])
    assert (raw.names, raw.shape, raw.rate) == (("bigbuckbunny",), (1, 2, 36, 64, 3), 25)
    assert read_cubes("samples://bigbuckbunny").grid == (132, 720, 1280)
    assert path.suffix in CUBE_SUFFIXES


def test_samples_of_the_other_kind(monkeypatch, tmp_path):
    with pytest.raises(InputError, match="bigbuckbunny is a video or volume: use VideoDataModule, or choose a picture: a"):
        sample_path("samples://bigbuckbunny")
    with pytest.raises(InputError, match="astronaut is a picture: use ImageDataModule, or choose: bigbuckbunny, phantom3d"):
        read_cubes("samples://astronaut")
    with pytest.raises(InputError, match="did you mean 'bigbuckbunny'"):
        read_cubes("samples://bigbuckbuny")
    monkeypatch.setattr(samples, "video_samples", lambda: {name: tmp_path / "gone.mp4" for name in video_samples()})
    with pytest.raises(InputError, match="Clone the repository"):
        read_cubes("samples://bigbuckbunny")
