"""Frames of videos and slices of volumes on the page: the same ones of every run, lossless, within the budget."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

from pe_lightning.experiments.compare.album import collect
from pe_lightning.experiments.compare.pictures import Pair
from pe_lightning.experiments.compare.reading import Signal, find_runs
from pe_lightning.experiments.compare.scores import compare
from pe_lightning.experiments.compare.viewers import about, viewers_of
from pe_lightning.media.pictures import to_levels

GRID = (40, 6, 10)
FIRST = Signal("signal 0")


def picture(uri):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB"))


@pytest.fixture
def two(make_run, tmp_path):
    """Two runs on one cube."""
    make_run("a/1", (20.0,), pictures=True, grid=GRID, noise=0.1)
    make_run("b/1", (19.0,), pictures=True, grid=GRID, noise=0.2)

    def runs():
        return find_runs([tmp_path / "a", tmp_path / "b"]).runs

    return runs


def reconstructions(run):
    return run.path / "reconstructions"


def test_frames_are_lossless_and_the_same_for_all(two):
    runs = two()
    album = collect(runs, 16, 24, frames=5)
    one, other = (album.shown[run][FIRST] for run in runs)
    assert one.frames == other.frames
    assert one.truth == other.truth
    assert len(one.frames) == len(set(one.truth)) == 5
    assert (one.size, one.count, len(album.contents)) == ((10, 6), 40, 15)
    values = np.load(reconstructions(runs[0]) / "signal-0.npy")  # float32, not clamped
    for frame, key in zip(one.frames, one.reconstruction, strict=True):
        assert np.array_equal(picture(album.contents[key]), to_levels(values[frame]))
    truth = np.random.default_rng(0).random((1, *GRID, 3), dtype=np.float32)[0]
    for frame, key in zip(one.frames, one.truth, strict=True):
        assert np.array_equal(picture(album.contents[key]), to_levels(truth[frame]))


def test_fewer_frames_come_before_smaller_ones(two):
    frame = 2 * 6 * 10 * 1e-6  # megapixels of both runs
    counts = {}
    for budget in (40, 16.1, 9.5, 5.1, 4.1, 1):
        album = collect(two(), 16, budget * frame)
        pair = next(iter(album.shown.values()))[FIRST]
        counts[budget] = len(pair.frames), album.scale
    assert counts == {40: (16, 1), 16.1: (16, 1), 9.5: (9, 1), 5.1: (5, 1), 4.1: (4, 1), 1: (4, 0.5)}
    assert pair.size == (5, 3)
    assert len(collect(two(), 16, 24, frames=2).contents) == 3 * 2


def test_the_page_says_which_frames(two):
    (table,) = compare(two(), None, None)
    album = collect(table.runs, 16, 24, frames=4)
    numbers = [frame + 1 for frame in album.shown[table.runs[0]][FIRST].frames]
    assert f"4 of 40 slices along the first axis: {', '.join(map(str, numbers))}." in about(table, album)
    assert "of their size" not in about(table, album)
    assert "50% of their size" in about(table, collect(table.runs, 16, 120e-6))
    (viewer,) = viewers_of(table, album)
    assert viewer["kind"] == "pictures"
    assert [frame + 1 for frame in viewer["signals"][0]["frames"]] == numbers


def test_without_a_truth_of_its_own_a_run_is_held_against_that_of_another(two):
    runs = two()
    (reconstructions(runs[0]) / "signal-0_comparison.h5").unlink()
    album = collect(runs, 16, 24, frames=4)
    one, other = (album.shown[run][FIRST] for run in runs)
    assert one.truth == other.truth != ()
    assert one.frames == other.frames
    assert one.note == "from signal-0.npy, whose range is not known"
    values = np.load(reconstructions(runs[0]) / "signal-0.npy")
    assert np.array_equal(picture(album.contents[one.reconstruction[2]]), to_levels(values[one.frames[2]]))
    (reconstructions(runs[1]) / "signal-0_comparison.h5").unlink()
    album = collect(runs, 16, 24, frames=4)
    assert {album.shown[run][FIRST].truth for run in runs} == {()}


def test_a_truth_is_not_lent_to_runs_on_other_data(make_run, tmp_path):
    make_run("a/1", (20.0,), pictures=True, grid=GRID)
    other = make_run("b/1", (20.0,), pictures=True, grid=GRID, data_fingerprint="f" * 16)
    third = make_run("c/1", (20.0,), pictures=True, grid=GRID, data_fingerprint=None)
    for folder in (other, third):
        (folder / "reconstructions" / "signal-0_comparison.h5").unlink()
    runs = find_runs([tmp_path]).runs
    album = collect(runs, 16, 24)
    assert [bool(album.shown[run][FIRST].truth) for run in runs] == [True, False, False]


def test_one_damaged_file_leaves_the_others(two):
    runs = two()
    path = reconstructions(runs[0]) / "signal-0_comparison.h5"
    path.write_bytes(path.read_bytes()[:4000])
    album = collect(runs, 16, 24)
    assert album.shown[runs[0]][FIRST].startswith("signal-0_comparison.h5 cannot be read: ")
    assert isinstance(album.shown[runs[1]][FIRST], Pair)
    assert album.shown[runs[1]][FIRST].truth


def test_runs_without_a_common_frame_say_so(two):
    import h5py

    runs = two()
    for run, frames in zip(runs, ([0, 2], [1, 3]), strict=True):
        with h5py.File(reconstructions(run) / "signal-0_comparison.h5", "r+") as file:
            for name in ("truth", "reconstruction"):
                values = file[name][:2]
                del file[name]
                file[name] = values
            file.attrs["frames"] = frames
    assert {collect(runs, 16, 24).shown[run][FIRST] for run in runs} == {"no frame that all runs have"}


def test_a_grid_that_is_not_that_of_the_files(two):
    path = two()[0].path / "metrics.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"grid": [40, 6, 11]}))
    album = collect(two(), 16, 24)
    assert "are not those of 40 x 6 x 11 samples" in album.shown[next(iter(album.shown))][FIRST]
