"""Pictures are cut out of the sheets of runs exactly, each kept once."""

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

from pe_lightning.experiments.compare.album import collect
from pe_lightning.experiments.compare.pictures import Pair, read_panels
from pe_lightning.experiments.compare.reading import Signal, find_runs
from pe_lightning.media.pictures import comparison, to_image


@pytest.mark.parametrize("shape", [(12, 20, 3), (20, 12, 1), (256, 200, 3), (300, 410, 3), (1, 7, 3), (9, 9, 4)])
def test_the_panels_of_a_sheet(tmp_path, shape):
    generator = np.random.default_rng(0)
    truth, made = generator.random((2, *shape), dtype=np.float32)
    comparison(made, truth, "reconstruction, 20.00 dB held out").save(tmp_path / "x_comparison.png")
    left, middle = read_panels(tmp_path / "x_comparison.png", (shape[1], shape[0]))
    assert np.array_equal(left, to_image(truth).convert("RGB"))
    assert np.array_equal(middle, to_image(made).convert("RGB"))


def picture(uri):
    assert uri.startswith("data:image/webp;base64,")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB"))


def test_pictures_are_lossless_and_the_truth_is_kept_once(make_run, tmp_path):
    make_run("a/1", pictures=True, noise=0.1)
    make_run("b/1", pictures=True, noise=0.2)
    runs = find_runs([tmp_path]).runs
    album = collect(runs, most=2, megapixels=16)
    assert album.scale == 1
    assert {str(signal) for pairs in album.shown.values() for signal in pairs} == {"signal 0", "signal 1"}
    assert len(album.contents) == 2 + 2 * 2
    one, other = (album.shown[run][Signal("signal 1")] for run in runs)
    assert isinstance(one, Pair)
    assert one.truth == other.truth
    assert one.size == (20, 12)
    written = Image.open(runs[0].path / "reconstructions" / "signal-1.png")
    assert np.array_equal(picture(album.contents[one.reconstruction[0]]), np.asarray(written))


def test_many_megapixels_are_made_smaller(make_run, tmp_path):
    make_run("a/1", pictures=True)
    runs = find_runs([tmp_path]).runs
    album = collect(runs, most=16, megapixels=3 * 12 * 20 / 4 * 1e-6)
    assert album.scale == pytest.approx(0.5)
    pair = album.shown[runs[0]][Signal("signal 0")]
    assert pair.size == (10, 6)
    assert picture(album.contents[pair.truth[0]]).shape == (6, 10, 3)


def test_no_pictures(make_run, tmp_path):
    make_run("a/1", pictures=True)
    album = collect(find_runs([tmp_path]).runs, most=0, megapixels=16)
    assert album.contents == {}


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda sheet: sheet.unlink(), "no signal-0_comparison.png"),
        (lambda sheet: sheet.write_bytes(b"no picture"), "cannot be read"),
        (lambda sheet: sheet.write_bytes(sheet.read_bytes()[:400]), "cannot be read"),
        (lambda sheet: Image.new("RGB", (30, 30)).save(sheet), "30 x 30 pixels are not those of a sheet"),
    ],
)
def test_a_picture_that_cannot_be_read_leaves_the_others(make_run, tmp_path, spoil, reason):
    run = make_run("a/1", pictures=True)
    spoil(run / "reconstructions" / "signal-0_comparison.png")
    runs = find_runs([tmp_path]).runs
    pairs = collect(runs, most=16, megapixels=16).shown[runs[0]]
    assert reason in pairs[Signal("signal 0")]
    assert isinstance(pairs[Signal("signal 1")], Pair)


@pytest.mark.parametrize(
    ("grid", "reason"),
    [
        ([2, 2, 2, 2], "signals of 4 axes are not shown"),
        (None, "the size of the signals is not known"),
        (["a", "b"], "the size of the signals is not known"),
        ([0, 4], "the size of the signals is not known"),
        ([True, 4], "the size of the signals is not known"),
    ],
)
def test_what_is_not_shown(make_run, tmp_path, grid, reason):
    path = make_run("a/1") / "metrics.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"grid": grid}))
    runs = find_runs([tmp_path]).runs
    assert set(collect(runs, most=16, megapixels=16).shown[runs[0]].values()) == {reason}
