"""Truth and reconstruction on the page: lossless, each once, within its size; what is damaged is named."""

import base64
import io
import json

import h5py
import numpy as np
import pytest
from PIL import Image
from small_runs import levels, signals

from pe_lightning.experiments.compare.reading import find_runs
from pe_lightning.experiments.compare.reconstructions import collect, ranges
from pe_lightning.experiments.compare.scores import compare

VIDEO = (40, 6, 10)


def picture(uri):
    assert uri.startswith("data:image/webp;base64,")
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

    def make(grid, **changes):
        runs = [
            make_run(f"{name}/1", (score,), noise=0.1, grid=grid, **changes) for name, score in (("a", 20.0), ("b", 19.0))
        ]
        return [run / "reconstructions" / "signal-0_comparison.h5" for run in runs]

    return make


def test_pictures_are_lossless_and_each_is_there_once(make_run, show):
    make_run("a/1", noise=0.1)
    make_run("b/1", noise=0.2)
    viewer, contents = show(signals=2)
    assert list(viewer.signals) == ["signal 0", "signal 1"]
    assert len(contents) == 2 + 2 * 2
    for place, tiles in enumerate(viewer.signals.values()):
        assert tiles[0]["truth"] == tiles[1]["truth"]
        for tile, noise in zip(tiles, (0.1, 0.2), strict=True):
            assert np.array_equal(picture(contents[tile["truth"][0]]), levels(signals(3, (12, 20), 3)[place]))
            assert np.array_equal(
                picture(contents[tile["reconstruction"][0]]), levels(signals(3, (12, 20), 3, noise)[place])
            )
    assert viewer.notes[0] == "2 of 3 signals."


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_grey_pictures_and_transparent_ones(files, show, channels):
    files((5, 7), channels=channels)
    viewer, contents = show()
    colours = levels(signals(1, (5, 7), channels)[0])[..., :3]
    assert np.array_equal(
        picture(contents[viewer.first["truth"][0]]), colours if channels == 4 else colours[..., :1].repeat(3, -1)
    )


def test_frames_are_those_of_the_fit_evenly_spaced(files, show):
    files(VIDEO, media="video", rate=25.0)
    viewer, contents = show(frames=5)
    one, other = viewer.signals["signal 0"]
    assert one["frames"] == other["frames"]
    assert one["truth"] == other["truth"]
    assert (len(set(one["truth"])), one["size"], one["count"], one["rate"], one["what"]) == (5, [10, 6], 40, 25.0, "frame")
    assert {frame % 2 for frame in one["frames"]} == {0, 1}  # with a stride of 2, some were trained on
    for frame, key in zip(one["frames"], one["reconstruction"], strict=True):
        assert np.array_equal(picture(contents[key]), levels(signals(1, VIDEO, 3, 0.1)[0, frame]))
    assert f"5 of 40 frames: {', '.join(str(frame + 1) for frame in one['frames'])}." in viewer.notes


def test_fewer_frames_come_before_smaller_ones(files, show):
    files(VIDEO)
    frame = 2 * 6 * 10 * 1e-6  # megapixels of both runs
    for budget, count, scale in ((16.1, 16, 1), (9.5, 9, 1), (4.1, 4, 1), (1, 4, 0.5)):
        viewer, contents = show(megapixels=budget * frame)
        assert len(viewer.first["frames"]) == count
        assert picture(contents[viewer.first["truth"][0]]).shape == (6 * scale, 10 * scale, 3)
        assert any("50% of their size" in note for note in viewer.notes) == (scale < 1)


def test_short_rows_are_exact(files, show):
    files((1000,), channels=2)
    viewer, contents = show()
    one, other = viewer.signals["signal 0"]
    assert (one["truth"], one["trained"], one["step"]) == (other["truth"], other["trained"], 1)
    truth, made = signals(1, (1000,), 2)[0], signals(1, (1000,), 2, 0.1)[0]
    for name, values in (("truth", truth), ("reconstruction", made), ("error", made - truth)):
        assert np.array_equal(floats(contents[one[name]]).reshape(2, 1000).T, values)
    trained = np.frombuffer(base64.b64decode(contents[one["trained"]]), np.uint8)
    assert np.array_equal(trained, np.arange(1000) % 2 == 0)


def test_of_many_channels_the_first_are_shown(files, show):
    files((30,), channels=11)
    viewer, contents = show()
    assert floats(contents[viewer.first["reconstruction"]]).shape == (8 * 30,)
    assert "Channels 1 to 8 of 11." in viewer.notes


def test_long_rows_are_ranges(files, show):
    files((1000,), channels=2)
    viewer, contents = show(megapixels=0.02)
    assert "Drawn as the range of every 4 samples, without the trained ones." in viewer.notes
    truth, made = signals(1, (1000,), 2)[0], signals(1, (1000,), 2, 0.1)[0]
    for name, values in (("truth", truth), ("reconstruction", made), ("error", made - truth)):
        parts = values.reshape(250, 4, 2)
        expected = np.stack([parts.min(1), parts.max(1)]).transpose(2, 0, 1)
        assert np.array_equal(floats(contents[viewer.first[name]]).reshape(2, 2, 250), expected)


def test_what_is_no_number_is_left_out_of_ranges():
    lines = np.array([[1, np.nan, 3, np.nan, np.nan, np.inf]], dtype=np.float32)
    assert np.array_equal(ranges(lines, 2), [[[1, 3, np.inf], [1, 3, np.inf]]], equal_nan=True)
    assert np.isnan(ranges(lines[:, 3:5], 2)).all()


def change(path, spoil):
    with h5py.File(path, "r+") as file:
        spoil(file)


def replace(file, name, values):
    del file[name]
    file[name] = values


@pytest.mark.parametrize(
    ("grid", "spoil", "reason"),
    [
        ((12, 20), lambda path: path.unlink(), "no signal-0_comparison.h5"),
        ((12, 20), lambda path: path.write_bytes(path.read_bytes()[:3000]), "cannot be read"),
        ((12, 20), lambda path: change(path, lambda f: f.pop("truth")), "cannot be read"),
        (VIDEO, lambda path: change(path, lambda f: f.attrs.pop("frames")), "cannot be read"),
        (
            VIDEO,
            lambda path: change(path, lambda f: f.attrs.update({"frames": [5, 40]})),
            "frames [5, 40] are not some of 40",
        ),
        (VIDEO, lambda path: change(path, lambda f: f.attrs.update({"frames": [5]})), "is not uint8 of 1 x 6 x 10 samples"),
        (
            (12, 20),
            lambda path: change(path, lambda f: replace(f, "truth", np.zeros((1, 12, 20, 3)))),
            "float64 of (1, 12, 20",
        ),
        ((64,), lambda path: change(path, lambda f: replace(f, "truth", np.zeros((64, 1), "f4"))), "is not float32 of 64"),
    ],
)
def test_a_damaged_file_is_named_and_the_other_is_shown(files, show, grid, spoil, reason):
    spoil(files(grid)[0])
    one, other = show()[0].signals["signal 0"]
    assert reason in one["reason"]
    assert one["score"] == "20.00 dB"
    assert "reason" not in other


def test_other_frames_are_not_shown_beside_these(files, show):
    with h5py.File(files(VIDEO)[1], "r+") as file:
        for name in ("truth", "reconstruction"):
            replace(file, name, file[name][:2])
        file.attrs["frames"] = [0, 2]
    assert show()[0].signals["signal 0"][1]["reason"] == "not of the size, or not the frames, of the others"


@pytest.mark.parametrize(
    ("grid", "reason"),
    [
        ([2, 2, 2, 2], "signals of 4 axes are not shown"),
        (None, "the grid is not known"),
        ([0, True], "the grid is not known"),
    ],
)
def test_what_is_not_shown(make_run, show, grid, reason):
    path = make_run("a/1") / "metrics.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"grid": grid}))
    viewer, contents = show()
    assert (viewer.signals, viewer.notes, contents) == ({}, [f"No reconstructions: {reason}."], {})
    assert show(signals=0)[0].notes == []
