"""Rows on the page: float32 as the run has it, or the range of every so many samples."""

import base64

import numpy as np
import pytest

from pe_lightning.experiments.compare.album import collect
from pe_lightning.experiments.compare.reading import Signal, find_runs
from pe_lightning.experiments.compare.rows import points_per_row, put_rows, ranges
from pe_lightning.experiments.compare.scores import compare
from pe_lightning.experiments.compare.shelf import Entry, Shelf
from pe_lightning.experiments.compare.values import find, read_row
from pe_lightning.experiments.compare.viewers import about, viewers_of

FIRST = Signal("signal 0")


def floats(text):
    return np.frombuffer(base64.b64decode(text), "<f4")


@pytest.fixture
def two(make_run, tmp_path):
    """Two runs on one row of 1000 samples."""
    make_run("a/1", (20.0,), pictures=True, grid=(1000,), channels=2, noise=0.1)
    make_run("b/1", (19.0,), pictures=True, grid=(1000,), channels=2, noise=0.2)

    def runs():
        return find_runs([tmp_path / "a", tmp_path / "b"]).runs

    return runs


def test_short_rows_are_exact(two):
    runs = two()
    album = collect(runs, 16, 24)
    one, other = (album.shown[run][FIRST] for run in runs)
    assert (one.truth, one.trained, one.step, one.error) == (other.truth, other.trained, 1, "")
    made, truth = (floats(album.contents[key]).reshape(2, 1000).T for key in (one.values, one.truth))
    assert np.array_equal(made, np.load(runs[0].path / "reconstructions" / "signal-0.npy"))
    assert np.array_equal(truth, np.random.default_rng(0).random((1, 1000, 2), dtype=np.float32)[0])
    bits = np.unpackbits(np.frombuffer(base64.b64decode(album.contents[one.trained]), np.uint8))[:1000]
    assert np.array_equal(bits, np.arange(1000) % 2 == 0)
    assert len(album.contents) == 4


def test_long_rows_are_ranges_with_the_range_of_their_error(two):
    entries = [Entry(run, FIRST, "signal-0", (1000,)) for run in two()]
    sources, shelf = {entry: find(entry) for entry in entries}, Shelf()
    curve = put_rows(sources, 300, shelf)[entries[0]]
    assert curve.step == 7
    assert curve.trained == ""
    made, truth = (read_row(sources[entries[0]], truth=which) for which in (False, True))
    texts = {digest: shelf.key(digest) for digest in (curve.values, curve.truth, curve.error)}
    for digest, values in ((curve.values, made), (curve.truth, truth), (curve.error, made - truth)):
        found = floats(shelf.contents[texts[digest]]).reshape(2, 2, 143)
        for channel in range(2):
            parts = [values[start : start + 7, channel] for start in range(0, 1000, 7)]
            assert np.array_equal(found[channel], [[part.min() for part in parts], [part.max() for part in parts]])


def test_what_is_no_number_is_left_out_of_ranges():
    lines = np.array([[1, np.nan, 3, np.nan, np.nan, np.inf]], dtype=np.float32)
    assert np.array_equal(ranges(lines, 2), [[[1, 3, np.inf], [1, 3, np.inf]]], equal_nan=True)
    assert np.isnan(ranges(lines[:, 3:5], 2)).all()


def test_the_budget_limits_values(two):
    sources = {entry: find(entry) for entry in (Entry(run, FIRST, "signal-0", (1000,)) for run in two())}
    assert points_per_row([sources], 1e9) == 65_536
    assert points_per_row([sources], 16_000) == 1000
    assert points_per_row([sources], 1) == 512
    (table,) = compare(two(), None, None)
    album = collect(table.runs, 16, 0.02)
    assert "every 4 samples" in about(table, album)
    assert "every" not in about(table, collect(table.runs, 16, 24))


def test_without_a_truth_of_its_own_a_run_is_held_against_that_of_another(two):
    runs = two()
    (runs[0].path / "reconstructions" / "signal-0_comparison.h5").unlink()
    album = collect(runs, 16, 24)
    one, other = (album.shown[run][FIRST] for run in runs)
    assert one.truth == other.truth != ""
    assert one.note == "from signal-0.npy, whose range is not known"
    (runs[1].path / "reconstructions" / "signal-0.npy").unlink()
    (runs[1].path / "reconstructions" / "signal-0_comparison.h5").unlink()
    album = collect(runs, 16, 24)
    assert album.shown[runs[0]][FIRST].truth == ""
    assert album.shown[runs[1]][FIRST] == "no signal-0_comparison.h5"
    (table,) = compare(runs, None, None)
    (viewer,) = viewers_of(table, album)
    assert viewer["signals"][0]["truth"] == ""
    assert viewer["signals"][0]["tiles"][1]["reason"] == "no signal-0_comparison.h5"


def test_of_many_channels_the_first_are_shown(make_run, tmp_path):
    make_run("a/1", (20.0,), pictures=True, grid=(30,), channels=11)
    (table,) = compare(find_runs([tmp_path]).runs, None, None)
    album = collect(table.runs, 16, 24)
    curve = album.shown[table.runs[0]][FIRST]
    assert floats(album.contents[curve.values]).shape == (8 * 30,)
    assert "Channels 1 to 8 of 11." in about(table, album)
