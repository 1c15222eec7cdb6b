"""What shares a table, means over signals, paired differences."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from pe_lightning.errors import InputError
from pe_lightning.studies.compare.reading import find_runs
from pe_lightning.studies.compare.scores import compare


def tables(tmp_path, by=None, baseline=None):
    return compare(find_runs([tmp_path]).runs, by, baseline)


def names(table):
    return [row.name for row in table.rows]


def difference(table, name):
    return next(table.difference(row) for row in table.rows if row.name == name)


def test_rows_are_sorted_and_interpolations_are_among_them(make_run, tmp_path):
    make_run("low/1", (10.0, 11.0, 12.0))
    make_run("high/1", (30.0, 31.0, 35.0))
    (table,) = tables(tmp_path)
    assert names(table) == ["high/1", "bicubic interpolation", "low/1"]
    assert table.title == "signal 0, signal 1, signal 2 (12 x 20), protocol rest, grid sampling, stride 2"
    assert table.baseline.name == "high/1"
    high, bicubic, _ = table.rows
    assert (high.mean, high.deviation) == (32.0, pytest.approx(np.std([30, 31, 35])))
    assert high.params == (1000, 1000)
    assert all(map(math.isnan, bicubic.params))
    assert difference(table, "low/1").mean == -21.0


def test_runs_of_a_group_are_averaged_per_signal_first(make_run, tmp_path):
    make_run("a/1", (10.0, 20.0, 30.0))
    make_run("a/2", (20.0, 20.0, 20.0), num_params=3000)
    make_run("b/1", (14.0, 21.0, 26.0), encoder={"name": "tri"})
    (table,) = tables(tmp_path, by="encoder.name", baseline="gau")
    gau = table.baseline
    assert list(gau.test.values()) == [15.0, 20.0, 25.0]
    assert (gau.params, len(gau.runs)) == ((1000, 3000), 2)
    expected = stats.ttest_rel([14, 21, 26], [15, 20, 25]).confidence_interval(0.95)
    assert difference(table, "tri").high == pytest.approx(expected.high)


def test_the_interval_is_that_of_the_t_test_of_signals_paired_by_name(make_run, tmp_path):
    generator = np.random.default_rng(0)
    a, b = generator.normal(30, 3, 7), generator.normal(29, 3, 7)
    for name, values, signals in (("a/1", a, "abcdefg"), ("b/1", b[::-1], "gfedcba")):
        make_run(name, values.tolist(), signals=list(signals), baselines={})
    expected = stats.ttest_rel(b, a).confidence_interval(0.95)
    (table,) = tables(tmp_path, baseline="a/1")
    assert difference(table, "b/1") == pytest.approx(((b - a).mean(), expected.low, expected.high, 7))


def test_one_encoder_in_several_networks_is_a_row_per_network(make_run, tmp_path):
    for folder, network in (("a/1", "sine"), ("b/1", "gabor"), ("c/1", "sine")):
        make_run(folder, (10.0,), encoder={"name": "identity"}, network={"name": network}, baselines={})
    make_run("d/1", (9.0,), network={"name": "relu"}, baselines={})
    make_run("e/1", (8.0,), encoder={"name": "tri"}, network=None, baselines={})
    (table,) = tables(tmp_path, by="encoder.name")
    assert {row.name: len(row.runs) for row in table.rows} == {"identity, sine": 2, "identity, gabor": 1, "gau": 1, "tri": 1}


OTHER = [{"data_fingerprint": "f"}, {"data_fingerprint": None}, {"protocol": "all"}, {"sampling": {"name": "random"}}]


@pytest.mark.parametrize("other", OTHER)
def test_other_samples_are_another_table(make_run, tmp_path, other):
    make_run("a/1")
    make_run("a/2")
    make_run("b/1", (99.0, 99.0, 99.0), **other)
    for by in (None, "encoder.name"):
        assert [{run.label for run in table.runs} for table in tables(tmp_path, by=by)] == [{"a/1", "a/2"}, {"b/1"}]


def test_another_metric_is_another_table_and_says_what_is_better(make_run, tmp_path, monkeypatch):
    known = {name: SimpleNamespace(unit="", higher_is_better=name == "iou") for name in ("iou", "loss")}
    monkeypatch.setattr("pe_lightning.evaluation.metrics.metrics", known)
    make_run("a/1")
    for name, values in (("b/1", (0.5, 0.6)), ("b/2", (0.7, 0.8))):
        for metric in known:
            make_run(f"{metric}/{name}", values, metric=metric, baselines={})
    by_metric = {table.metric.name: table for table in tables(tmp_path)}
    assert names(by_metric["psnr"]) == ["a/1", "bicubic interpolation"]
    assert names(by_metric["iou"]) == ["iou/b/2", "iou/b/1"]
    assert names(by_metric["loss"]) == ["loss/b/1", "loss/b/2"]
    assert by_metric["iou"].metric.text(0.5, unit=True) == "0.5000"


def test_a_missing_value_leaves_no_mean_and_says_why(make_run, tmp_path):
    make_run("a/1", (10.0, 11.0, 13.0))
    make_run("b/1", (30.0, None, 33.0), **{"test/psnr_reason": "infinite: a signal is reproduced exactly"})
    make_run("c/1", (None, None, None), baselines={"delaunay": {"test/psnr": None, "test/psnr_reason": "left out"}})
    (table,) = tables(tmp_path)
    assert names(table)[-3:] == ["b/1", "c/1", "delaunay interpolation"]
    assert table.baseline.name == "a/1"
    assert (difference(table, "b/1").mean, difference(table, "b/1").signals) == (20.0, 2)
    assert {
        "b/1 has no mean: infinite: a signal is reproduced exactly",
        "c/1 has no mean: no reason recorded",
        "delaunay interpolation has no mean: left out",
        "b/1: 2 of 3 signals have a value both in it and in a/1",
    } <= set(table.notes)
    group = tables(tmp_path, by="model")[0].fitted[0]
    assert math.isnan(group.mean)
    assert group.reason == "b/1: infinite: a signal is reproduced exactly; c/1: no reason recorded"


@pytest.mark.parametrize("spelling", ["b/1", "bicubic", "bicubic interpolation", "PATH"])
def test_the_baseline_is_a_row_or_a_path(make_run, tmp_path, spelling):
    make_run("a/1", (30.0, 30.0, 30.0))
    path = make_run("b/1")
    make_run("c/1", protocol="all", baselines={})
    first, second = tables(tmp_path, baseline=str(path) if spelling == "PATH" else spelling)
    assert first.baseline.name == {"PATH": "b/1", "bicubic": "bicubic interpolation"}.get(spelling, spelling)
    assert second.baseline.name == "c/1"
    assert any("is not in this table" in note for note in second.notes)


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("encoder.name", {"gau", "rff+tri"}),
        ("encoder.sigma", {"0.1", "no encoder.sigma"}),
        ("encoder", {'{"name": "gau", "num_features": 8, "sigma": 0.1}', '[{"name": "rff"}, {"name": "tri"}]'}),
        ("sampling.stride", {"2"}),
    ],
)
def test_groups(make_run, tmp_path, by, groups):
    make_run("a/1")
    make_run("b/1", encoder=[{"name": "rff"}, {"name": "tri"}])
    (table,) = tables(tmp_path, by=by)
    assert {row.name for row in table.fitted} == groups


def test_unknown_labels_and_baselines_are_refused(make_run, tmp_path):
    make_run("a/1", sampling={"name": "grid", "stride": 2, "<b>\x1b": 1})
    with pytest.raises(InputError, match=r"did you mean 'encoder\.name'") as refused:
        tables(tmp_path, by="encoder.nmae")
    assert "sampling.stride" in str(refused.value)
    assert "\x1b" not in str(refused.value)
    with pytest.raises(InputError, match=r"--baseline 'a/2' is not a row; did you mean 'a/1'\?"):
        tables(tmp_path, baseline="a/2")
