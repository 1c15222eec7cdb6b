"""What shares a table, means over signals, paired differences."""

import numpy as np
import pytest
from scipy import stats

from pe_lightning.errors import InputError
from pe_lightning.experiments.compare.reading import Signal, find_runs
from pe_lightning.experiments.compare.scores import compare, paired


def tables(tmp_path, by=None, baseline=None):
    return compare(find_runs([tmp_path]).runs, by, baseline)


def names(scores):
    return [row.name for row in scores.rows]


def test_the_interval_is_that_of_the_paired_t_test():
    generator = np.random.default_rng(0)
    a, b = generator.normal(30, 3, 7), generator.normal(29, 3, 7)
    signals = [Signal(str(k)) for k in range(7)]
    found = paired(dict(zip(signals, a, strict=True)), dict(zip(reversed(signals), reversed(b), strict=True)))
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert found.count == 7
    assert found.mean == pytest.approx((a - b).mean())
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx((expected.low, expected.high))


def test_pairs_are_signals_that_both_have():
    a, b, c, d = map(Signal, "abcd")
    found = paired({a: 1.0, b: None, c: 5.0, d: 7.0}, {c: 4.0, b: 1.0, a: 3.0})
    assert (found.mean, found.count) == (-0.5, 2)
    assert paired({a: 1.0}, {b: 1.0}) is None
    assert paired({a: 1.0, b: 2.0}, {a: 0.0}).half_width is None


def test_rows_are_sorted_and_interpolations_are_among_them(make_run, tmp_path):
    make_run("low/1", (10.0, 11.0, 12.0))
    make_run("high/1", (30.0, 31.0, 35.0))
    (scores,) = tables(tmp_path)
    assert names(scores) == ["high/1", "bicubic interpolation", "low/1"]
    assert scores.baseline.name == "high/1"
    high, bicubic, _ = scores.rows
    assert (high.mean, high.deviation) == (32.0, pytest.approx(np.std([30, 31, 35])))
    assert high.params == (1000, 1000)
    assert bicubic.params is None
    assert bicubic.seconds is None
    assert scores.differences["low/1"].mean == -21.0
    assert scores.differences["high/1"].half_width == 0.0


def test_runs_of_a_group_are_averaged_per_signal_first(make_run, tmp_path):
    make_run("a/1", (10.0, 20.0, 30.0), seed=1)
    make_run("a/2", (20.0, 20.0, 20.0), seed=2, num_params=3000, fit_seconds=4.0)
    make_run("b/1", (14.0, 21.0, 26.0), encoder={"name": "tri"})
    (scores,) = tables(tmp_path, by="encoder.name", baseline="gau")
    gau = next(row for row in scores.rows if row.name == "gau")
    assert list(gau.psnr.values()) == [15.0, 20.0, 25.0]
    assert gau.deviation == pytest.approx(np.std([15, 20, 25]))
    assert gau.params == (1000, 3000)
    assert gau.seconds == 3.0
    assert len(gau.runs) == 2
    expected = stats.ttest_rel([14, 21, 26], [15, 20, 25]).confidence_interval(0.95)
    difference = scores.differences["tri"]
    assert difference.mean + difference.half_width == pytest.approx(expected.high)


@pytest.mark.parametrize(
    "other",
    [{"data_fingerprint": "f" * 16}, {"protocol": "all"}, {"sampling": {"name": "grid", "stride": 4}}, {"sampling": None}],
)
def test_other_samples_are_another_table(make_run, tmp_path, other):
    make_run("a/1", (10.0, 10.0, 10.0))
    make_run("a/2", (12.0, 12.0, 12.0))
    make_run("b/1", (99.0, 99.0, 99.0), **other)
    for by in (None, "encoder.name"):
        first, second = tables(tmp_path, by=by)
        assert {run.label for run in first.runs} == {"a/1", "a/2"}
        assert {run.label for run in second.runs} == {"b/1"}
        assert "99" not in str([row.mean for row in first.rows])


def test_data_without_a_fingerprint_is_alone(make_run, tmp_path):
    make_run("a/1", data_fingerprint=None)
    make_run("b/1", data_fingerprint=None)
    one, other = tables(tmp_path)
    assert len(one.runs) == len(other.runs) == 1
    assert any("data_fingerprint is null" in note for note in one.notes)


def test_a_missing_value_leaves_no_mean_and_says_why(make_run, tmp_path):
    make_run("a/1", (10.0, 11.0, 13.0))
    make_run("b/1", (30.0, None, 33.0), **{"test/psnr_reason": "infinite: a signal is reproduced exactly"})
    make_run("c/1", (None, None, None), **{"test/psnr": None})
    (scores,) = tables(tmp_path)
    assert names(scores)[-2:] == ["b/1", "c/1"]
    assert scores.baseline.name == "a/1"
    partial = scores.differences["b/1"]
    assert (partial.mean, partial.count) == (20.0, 2)
    assert scores.differences["c/1"] is None
    assert "b/1 has no mean: infinite: a signal is reproduced exactly" in scores.notes
    assert "c/1 has no mean: no reason recorded" in scores.notes
    assert "b/1: 2 of 3 signals have a value in it and in a/1" in scores.notes


def test_nothing_held_out(make_run, tmp_path):
    make_run("a/1", (None,), baselines={}, **{"test/psnr_reason": "nothing is held out (protocol none)"})
    (scores,) = tables(tmp_path)
    assert scores.baseline.name == "a/1"
    assert "nothing is held out" in " ".join(scores.notes)


def test_a_missing_value_of_one_run_is_missing_in_its_group(make_run, tmp_path):
    make_run("a/1", (10.0, None, 30.0), **{"test/psnr_reason": "minus infinite: a prediction is not finite"})
    make_run("a/2", (20.0, 20.0, 20.0))
    (scores,) = tables(tmp_path, by="model")
    group = next(row for row in scores.rows if not row.interpolation)
    assert list(group.psnr.values()) == [15.0, None, 25.0]
    assert group.reason == "a/1: minus infinite: a prediction is not finite"


def test_an_interpolation_that_was_left_out(make_run, tmp_path):
    make_run("a/1", baselines={"delaunay": {"test/psnr": None, "test/psnr_reason": "left out: takes minutes"}})
    (scores,) = tables(tmp_path)
    assert names(scores) == ["a/1", "delaunay interpolation"]
    assert "delaunay interpolation has no mean: left out: takes minutes" in scores.notes


def test_interpolations_that_differ_between_runs_are_reported(make_run, tmp_path):
    make_run("a/1")
    make_run("b/1", baselines={"bicubic": {"test/psnr_per_signal": [20.0, 21.0, 23.0]}})
    (scores,) = tables(tmp_path)
    assert any("bicubic interpolation differs between runs, 21.00 to 21.33 dB" in note for note in scores.notes)


def test_signals_are_paired_by_name_not_by_place(make_run, tmp_path):
    make_run("a/1", (10.0, 20.0, 30.0), signals=["x", "y", "z"], baselines={})
    make_run("b/1", (31.0, 11.0, 21.0), signals=["z", "x", "y"], baselines={})
    (scores,) = tables(tmp_path, baseline="a/1")
    assert (scores.differences["b/1"].mean, scores.differences["b/1"].half_width) == (1.0, 0.0)


def test_signals_without_a_partner_are_reported(make_run, tmp_path):
    make_run("a/1", signals=["x", "y", "z"], baselines={})
    make_run("b/1", signals=["x", "y", "other"], baselines={})
    (scores,) = tables(tmp_path, baseline="a/1")
    assert any("2 of 3 signals" in note for note in scores.notes)


@pytest.mark.parametrize("spelling", ["b/1", "bicubic", "bicubic interpolation", "PATH"])
def test_the_baseline_is_a_row_or_a_path(make_run, tmp_path, spelling):
    make_run("a/1", (30.0, 30.0, 30.0))
    path = make_run("b/1")
    (scores,) = tables(tmp_path, baseline=str(path) if spelling == "PATH" else spelling)
    assert scores.baseline.name == {"PATH": "b/1", "bicubic": "bicubic interpolation"}.get(spelling, spelling)


def test_an_unknown_baseline_is_refused(make_run, tmp_path):
    make_run("a/1")
    with pytest.raises(InputError, match=r"--baseline 'a/2' is no row; did you mean 'a/1'\? Rows: "):
        tables(tmp_path, baseline="a/2")


def test_a_baseline_of_one_table_only(make_run, tmp_path):
    make_run("a/1", (10.0, 10.0, 10.0))
    make_run("a/2")
    make_run("b/1", protocol="all")
    first, second = tables(tmp_path, baseline="a/1")
    assert first.baseline.name == "a/1"
    assert second.baseline.name == "b/1"
    assert any("the baseline a/1 is not in this table" in note for note in second.notes)


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("encoder.name", {"gau", "rff+tri"}),
        ("encoder.sigma", {"0.1", "no encoder.sigma"}),
        ("encoder", {'{"name": "gau", "num_features": 8, "sigma": 0.1}', '[{"name": "rff"}, {"name": "tri"}]'}),
        ("sampling.stride", {"2"}),
        ("seed", {"0"}),
    ],
)
def test_groups(make_run, tmp_path, by, groups):
    make_run("a/1")
    make_run("b/1", encoder=[{"name": "rff"}, {"name": "tri"}])
    (scores,) = tables(tmp_path, by=by)
    assert {row.name for row in scores.rows if not row.interpolation} == groups


def test_a_key_that_no_run_has(make_run, tmp_path):
    make_run("a/1", sampling={"name": "grid", "stride": 2, "<b>\x1b": 1})
    with pytest.raises(InputError, match=r"did you mean 'encoder\.name'") as refused:
        tables(tmp_path, by="encoder.nmae")
    assert "sampling.stride" in str(refused.value)
    assert "per_signal" not in str(refused.value)
    assert "\x1b" not in str(refused.value)


def test_a_group_may_be_called_as_an_interpolation(make_run, tmp_path):
    make_run("a/1", model="bicubic interpolation")
    (scores,) = tables(tmp_path, by="model")
    assert sorted(names(scores)) == ["bicubic interpolation", "bicubic interpolation of the data"]
    assert len(scores.differences) == 2


def test_a_group_of_runs_that_name_other_signals(make_run, tmp_path):
    make_run("a/1", signals=["x", "y", "z"])
    make_run("a/2", signals=["x", "y", "other"])
    (scores,) = tables(tmp_path, by="model")
    assert scores.baseline.mean is None
    assert scores.baseline.reason == "its runs do not name the same signals"


def test_the_title_says_what_was_compared(make_run, tmp_path):
    make_run("a/1", (1.0, 2.0, 3.0, 4.0, 5.0))
    (scores,) = tables(tmp_path)
    assert scores.title == "signal 0, signal 1, signal 2 and 2 more (12 x 20), protocol rest, grid sampling, stride 2"
