"""What a run keeps of rows and cubes is read back, from the best file there is; what is damaged is named."""

import h5py
import numpy as np
import pytest

from pe_lightning.data.batches import SignalInfo
from pe_lightning.data.signals import Scaling
from pe_lightning.experiments.compare.reading import Run, Signal
from pe_lightning.experiments.compare.shelf import Entry
from pe_lightning.experiments.compare.values import find, read_frames, read_row, read_trained
from pe_lightning.media.pictures import to_levels
from pe_lightning.media.reconstructions import COMPARED_FRAMES, write_comparison
from pe_lightning.media.signals import write_signal
from pe_lightning.runs import frames_of

CUBE, ROW = (10, 8, 12), (50,)
WHOLE = {"uint8": (0.0, 255.0), "int16": (-32768.0, 32767.0)}


def random(*shape):
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def smooth(*shape):
    """What a video codec changes little."""
    places = np.meshgrid(*(np.linspace(0, 1, n) for n in shape[:-1]), indexing="ij")
    return np.repeat((sum(places) / 3)[..., None], shape[-1], -1).astype(np.float32)


def info(media, grid, channels, dtype, rate=None):
    low, high = WHOLE[dtype]
    return SignalInfo(("x",), grid, channels, Scaling(dtype, (low,), (high,)), rate, media)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "reconstructions").mkdir()
    return tmp_path / "reconstructions"


def entry(folder, grid):
    return Entry(Run(folder.parent, "a/1", {"signals": ["x"]}), Signal("x"), "x", grid)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
def test_frames_of_a_pair_are_exact(folder, channels):
    made, truth = random(*CUBE, channels) * 1.2 - 0.1, random(*CUBE, channels)
    write_comparison(folder / "x_comparison.h5", made, truth, info("video", CUBE, channels, "uint8", 25.0))
    source = find(entry(folder, CUBE))
    assert (source.frames, source.rate, source.media, source.note) == (tuple(range(10)), 25.0, "video", "")
    kept = channels if channels <= 4 else 1
    for values, which in ((made, False), (truth, True)):
        frames = list(read_frames(source, [2, 7], truth=which))
        assert np.array_equal(frames, to_levels(values[[2, 7]][..., :kept]))


def test_of_a_long_or_large_cube_some_frames_are_kept(folder):
    values = random(100, 4, 4, 1)
    write_comparison(folder / "x_comparison.h5", values, values)
    source = find(entry(folder, (100, 4, 4)))
    assert source.frames == tuple(frames_of(100, COMPARED_FRAMES))
    assert np.array_equal(next(read_frames(source, [source.frames[5]])), to_levels(values[source.frames[5]]))
    write_comparison(folder / "x_comparison.h5", values, values, most=2 * 16 * 3)
    assert find(entry(folder, (100, 4, 4))).frames == tuple(frames_of(100, 3))
    write_comparison(folder / "x_comparison.h5", values, values, most=1)
    assert len(find(entry(folder, (100, 4, 4))).frames) == 1


@pytest.mark.parametrize("stride", [2, 4])
def test_frames_that_stand_for_a_cube_are_not_all_trained(stride):
    kept = frames_of(128, 32)
    for step in (1, 2, 4, 8):
        assert len({frame % stride == 0 for frame in kept[step // 2 :: step]}) == (2 if stride == 2 else 1)
        assert any(frame % stride for frame in kept[step // 2 :: step])


def test_a_row_is_kept_as_it_is(folder):
    made, truth, trained = random(*ROW, 3) * 3 - 1, random(*ROW, 3), np.arange(50) % 3 == 0
    made[4, 1] = np.nan
    assert write_comparison(folder / "x_comparison.h5", made, truth, info("audio", ROW, 3, "int16", 8000.0), trained)
    source = find(entry(folder, ROW))
    assert (source.rate, source.channels) == (8000.0, 3)
    assert np.array_equal(read_row(source), made, equal_nan=True)
    assert np.array_equal(read_row(source, truth=True), truth)
    assert np.array_equal(read_trained(source), trained)
    assert write_comparison(folder / "y.h5", made, truth, most=8 * 150 - 1) is None
    assert not (folder / "y.h5").exists()


@pytest.mark.parametrize("form", ["npy", "h5"])
@pytest.mark.parametrize("grid", [CUBE, ROW])
def test_values_are_read_where_there_is_no_pair(folder, form, grid):
    values = random(*grid, 3)
    write_signal(folder / "x", values, info("array", grid, 3, "uint8"), formats=form)
    if grid == CUBE:
        write_signal(folder / "x", smooth(*grid, 3), info("video", grid, 3, "uint8"), formats="mp4")
    source = find(entry(folder, grid))
    assert source.path.suffix == f".{form}"  # not the film
    assert not source.truth
    found = np.stack(list(read_frames(source, range(10)))) / 255 if grid == CUBE else read_row(source)
    assert np.abs(found - values).max() <= 0.5001 / 255


@pytest.mark.parametrize(("low", "high", "scaled"), [(0.0, 1.0, False), (-0.2, 1.3, False), (-1000.0, 3000.0, True)])
def test_the_range_of_floating_point_values_is_looked_for(folder, low, high, scaled):
    values = (low + random(*CUBE, 1) * (high - low)).astype(np.float32)
    np.save(folder / "x.npy", values)
    source = find(entry(folder, CUBE))
    assert source.note == "from x.npy, whose range is not known"
    assert source.bounds == ((values.min(), values.max()) if scaled else (0, 1))


@pytest.mark.parametrize("form", ["mp4", "gif"])
def test_a_film_is_the_last_resort_and_said_to_be_lossy(folder, form):
    values = smooth(10, 9, 13, 3)
    write_signal(folder / "x", values, info("video", (10, 9, 13), 3, "uint8", 25.0), formats=form)
    source = find(entry(folder, (10, 9, 13)))
    assert source.note == f"from x.{form}, which is lossy"
    frames = list(read_frames(source, [1, 8]))
    assert np.abs(np.stack(frames) / 255 - values[[1, 8]]).max() < 0.05


def test_sound_says_what_it_lost(folder):
    values = random(*ROW, 2)
    write_signal(folder / "x", values, info("audio", ROW, 2, "int16", 8000.0), formats="wav")
    source = find(entry(folder, ROW))
    assert (source.rate, source.note) == (8000.0, "from x.wav, in whole steps and clipped")
    assert np.abs(read_row(source) - values).max() <= 0.51 / 65535


def change(path, spoil):
    with h5py.File(path, "r+") as file:
        spoil(file)


def replaced(file, name, values):
    del file[name]
    file[name] = values


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.write_bytes(b"nothing"), "x_comparison.h5 cannot be read: "),
        (lambda path: path.write_bytes(path.read_bytes()[:3000]), "x_comparison.h5 cannot be read: "),
        (lambda path: change(path, lambda f: f.pop("truth")), "x_comparison.h5 cannot be read: "),
        (lambda path: change(path, lambda f: f.attrs.pop("frames")), "x_comparison.h5 cannot be read: "),
        (lambda path: change(path, lambda f: f.attrs.update({"frames": [3, 2]})), "frames [3, 2] are not some of 10"),
        (lambda path: change(path, lambda f: f.attrs.update({"frames": [5, 10]})), "frames [5, 10] are not some of 10"),
        (lambda path: change(path, lambda f: f.attrs.update({"frames": [5]})), "not those of 10 x 8 x 12 samples"),
        (lambda path: change(path, lambda f: replaced(f, "truth", random(10, 8, 12, 3))), "3 channels of float32"),
        (lambda path: change(path, lambda f: replaced(f, "truth", np.zeros((10, 8, 12, 1), "u1"))), "are not those of"),
    ],
)
def test_a_damaged_pair_is_named(folder, spoil, reason):
    write_comparison(folder / "x_comparison.h5", random(*CUBE, 3), random(*CUBE, 3))
    spoil(folder / "x_comparison.h5")
    with pytest.raises(ValueError, match=r"^x_comparison\.h5 cannot be read: ") as caught:
        find(entry(folder, CUBE))
    assert reason in str(caught.value)


def test_other_damage_is_named(folder):
    with pytest.raises(ValueError, match=r"^no x_comparison\.h5$"):
        find(entry(folder, CUBE))
    (folder / "x.mp4").write_bytes(b"no film")
    with pytest.raises(ValueError, match=r"^x\.mp4 cannot be read"):
        list(read_frames(find(entry(folder, CUBE)), [0]))
    write_signal(folder / "x", smooth(4, 8, 12, 3), info("video", (4, 8, 12), 3, "uint8"), formats="mp4")
    with pytest.raises(ValueError, match=r"^x\.mp4 cannot be read: it has no frame 10$"):
        list(read_frames(find(entry(folder, CUBE)), [0, 9]))
    np.save(folder / "x.npy", random(3, 8, 12, 3))
    with pytest.raises(ValueError, match="3 x 8 x 12 x 3 is not a signal of 10 x 8 x 12 samples"):
        find(entry(folder, CUBE))
    (folder / "x.npy").unlink()
    (folder / "x.wav").write_bytes(b"RIFF")
    with pytest.raises(ValueError, match=r"^x\.wav cannot be read"):
        find(entry(folder, ROW))


def test_arrays_of_objects_are_not_loaded(folder):
    np.save(folder / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"^x\.npy cannot be read"):
        find(entry(folder, CUBE))
