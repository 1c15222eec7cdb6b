"""Truth and reconstruction on the page: lossless, each once, within its size; damaged files are named."""

import base64
import io

import h5py
import numpy as np
import pytest
from PIL import Image

from pe_lightning.results.pictures import to_levels
from pe_lightning.results.reconstructions import write_comparison
from pe_lightning.signals.axes import Axis
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.raw import ValueRange
from pe_lightning.studies.compare.page import collect
from pe_lightning.studies.compare.reading import find_runs
from pe_lightning.studies.compare.scores import compare

VIDEO = (40, 6, 10)


def picture(uri):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB"))


def floats(text):
    return np.frombuffer(base64.b64decode(text), "<f4")


@pytest.fixture
def show(tmp_path):
    """The viewer of the only table, and what it names."""

    def collected(signals=16, frames=16, megapixels=24.0):
        (viewer,), contents = collect(compare(find_runs([tmp_path]).runs), signals, frames, megapixels)
        return viewer, contents

    return collected


@pytest.fixture
def files(make_run):
    """The files of two runs on a signal of this grid, the better one first."""

    def make(grid, name="run", **changes):
        of_runs = ((f"{name}/{letter}/1", score) for letter, score in (("a", 20.0), ("b", 19.0)))
        runs = [make_run(name, (score,), noise=0.1, grid=grid, **changes) for name, score in of_runs]
        return [run / "reconstructions" / "signal-0_comparison.h5" for run in runs]

    return make


def test_rows_have_axes_in_the_units_of_the_user(files, show):
    """Sample 2 of an axis from 40 to 20 degrees, and the values that 0 and 1 stand for."""
    for path in files((5,), channels=1):
        axis = Axis("latitude", 40.0, 20.0, 5)
        info = SignalInfo(("a",), (5,), 1, ValueRange("float32", (270.0,), (310.0,)), axes=(axis,))
        row = np.linspace(0, 1, 5, dtype=np.float32)[:, None]
        write_comparison(path, {"truth": row, "reconstruction": row}, info)
    tile = show()[0].signals["signal 0"][0]
    assert tile["x"] == {"name": "latitude", "start": 40.0, "delta": -5.0, "time": False}
    assert (tile["low"], tile["high"]) == (270.0, 310.0)
    files((5,), channels=1, name="sound", rate=8.0)
    tile = next(tile for tile in show()[0].signals["signal 0"] if tile["run"].startswith("sound"))
    assert (tile["x"], tile["low"], tile["high"]) == ({"name": "seconds", "start": 0, "delta": 0.125, "time": False}, 0, 1)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_pictures_are_lossless_and_each_is_there_once(make_run, show, signals, channels):
    make_run("a/1", noise=0.1, channels=channels)
    make_run("b/1", noise=0.2, channels=channels)
    viewer, contents = show(signals=2)
    assert viewer.notes[0] == "2 of 3 signals."
    assert list(viewer.signals) == ["signal 0", "signal 1"]
    assert len(contents) == 2 + 2 * 2
    for place, tiles in enumerate(viewer.signals.values()):
        assert tiles[0]["truth"] == tiles[1]["truth"]
        shown = [tiles[0]["truth"][0], *(tile["reconstruction"][0] for tile in tiles)]
        for key, noise in zip(shown, (0.0, 0.1, 0.2), strict=True):
            levels = to_levels(signals(3, (12, 20), channels, noise)[place])
            assert np.array_equal(picture(contents[key]), levels[..., :3] if channels > 2 else levels[..., :1].repeat(3, -1))


def test_frames_are_those_of_the_fit_evenly_spaced(files, show, signals):
    files(VIDEO, media="video", rate=25.0)
    viewer, contents = show(frames=5)
    one, other = viewer.signals["signal 0"]
    assert one["frames"] == other["frames"]
    assert one["truth"] == other["truth"]
    assert (len(set(one["truth"])), one["size"], one["count"], one["rate"], one["what"]) == (5, [10, 6], 40, 25.0, "frame")
    assert {frame % 2 for frame in one["frames"]} == {0, 1}  # with a stride of 2, some were trained on
    for frame, key in zip(one["frames"], one["reconstruction"], strict=True):
        assert np.array_equal(picture(contents[key]), to_levels(signals(1, VIDEO, 3, 0.1)[0, frame]))
    assert f"5 of 40 frames: {', '.join(str(frame + 1) for frame in one['frames'])}." in viewer.notes


def test_fewer_frames_come_before_smaller_ones(files, show):
    files(VIDEO)
    frame = 2 * 6 * 10 * 1e-6  # megapixels of both runs
    for budget, count, scale in ((16.1, 16, 1), (9.5, 9, 1), (4.1, 4, 1), (1, 4, 0.5)):
        viewer, contents = show(megapixels=budget * frame)
        assert len(viewer.first["frames"]) == count
        assert picture(contents[viewer.first["truth"][0]]).shape == (6 * scale, 10 * scale, 3)
        assert any("50% of their size" in note for note in viewer.notes) == (scale < 1)


def test_short_rows_are_exact(files, show, signals):
    files((1000,), channels=11)
    viewer, contents = show()
    assert "Channels 1 to 8 of 11." in viewer.notes
    truth, made = signals(1, (1000,), 11)[0], signals(1, (1000,), 11, 0.1)[0]
    for name, values in (("truth", truth), ("reconstruction", made), ("error", made - truth)):
        assert np.array_equal(floats(contents[viewer.first[name]]).reshape(8, 1000).T, values[:, :8])
    trained = np.frombuffer(base64.b64decode(contents[viewer.first["trained"]]), np.uint8)
    assert np.array_equal(trained, np.arange(1000) % 2 == 0)


def test_long_rows_are_ranges_of_what_is_a_number(files, show, signals):
    truth, made = signals(1, (1000,), 2)[0], signals(1, (1000,), 2, 0.1)[0]
    made[:7] = np.nan
    for path in files((1000,), channels=2):
        with h5py.File(path, "r+") as file:
            file["reconstruction"][...] = made
    viewer, contents = show(megapixels=0.02)
    assert "Drawn as the range of every 4 samples, without markers of trained samples." in viewer.notes
    made[4:7] = made[7]  # the first range has no number, the second has one
    for name, values in (("truth", truth), ("reconstruction", made)):
        parts = values.reshape(250, 4, 2)
        expected = np.stack([parts.min(1), parts.max(1)]).transpose(2, 0, 1)
        assert np.array_equal(floats(contents[viewer.first[name]]).reshape(2, 2, 250), expected, equal_nan=True)


def change(path, spoil):
    with h5py.File(path, "r+") as file:
        spoil(file)


@pytest.mark.parametrize(
    ("grid", "spoil", "reason"),
    [
        ((12, 20), lambda path: path.unlink(), "no signal-0_comparison.h5"),
        ((12, 20), lambda path: path.write_bytes(path.read_bytes()[:3000]), "cannot be read"),
        ((64,), lambda path: change(path, lambda file: file.pop("truth")), "cannot be read"),
        (VIDEO, lambda path: change(path, lambda file: file.attrs.pop("frames")), "cannot be read"),
    ],
)
def test_a_damaged_file_is_named_and_the_other_is_shown(files, show, grid, spoil, reason):
    spoil(files(grid)[1])
    other, one = show()[0].signals["signal 0"]
    assert reason in one["reason"]
    assert one["score"] == "19.00 dB"
    assert "reason" not in other


@pytest.mark.parametrize(("grid", "reason"), [((2, 2, 2, 2), "of 4 axes are not shown"), ((), "of unknown axes")])
def test_what_is_not_shown(make_run, show, grid, reason):
    make_run("a/1", grid=grid)
    viewer, contents = show()
    assert (viewer.signals, contents) == ({}, {})
    assert reason in viewer.notes[0]
    assert show(signals=0)[0].notes == []


@pytest.mark.parametrize("grid", [(12, 20), (64,)])
def test_the_best_interpolation_is_shown_as_it_is_in_the_files(files, show, signals, grid):
    made = signals(1, grid, 3, 0.3)[0]
    for path in files(grid):
        with h5py.File(path, "r+") as file:
            values = made if len(grid) == 1 else to_levels(made)[None]
            file.create_dataset("interpolation", data=values)
    viewer, contents = show()
    *_, last = viewer.signals["signal 0"]
    name = "bicubic interpolation" if len(grid) == 2 else "cubic convolution interpolation"
    assert (last["group"], last["score"]) == (name, "20.00 dB")
    assert [tile["run"] for tile in viewer.signals["signal 0"]] == ["a/1", "b/1", name]
    if len(grid) == 2:
        np.testing.assert_array_equal(picture(contents[last["reconstruction"][0]]), to_levels(made))
    else:
        error = floats(contents[last["error"]]).reshape(3, 64).T
        np.testing.assert_allclose(error, made - signals(1, grid, 3)[0], atol=1e-6)
