"""What shares a table, means over signals, paired differences."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from pe_lightning.errors import InputError
from pe_lightning.studies.compare.reading import find_runs
from pe_lightning.studies.compare.scores import compare
from pe_lightning.studies.compare.texts import as_csv, as_json, as_latex, as_markdown, print_score_tables
from pe_lightning.studies.statistics import standard_error, t_interval, welch_interval


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
    scored = "scored on samples that are not trained on (rest)"
    assert table.title == f"signal 0, signal 1, signal 2 (12 x 20), {scored}, grid sampling, stride 2"
    assert table.baseline.name == "high/1"
    high, bicubic, _ = table.rows
    assert (high.mean, high.deviation) == (32.0, pytest.approx(np.std([30, 31, 35], ddof=1)))
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


def test_a_single_signal_is_compared_over_seeds(make_run, tmp_path):
    """Paired where two seeds or more agree; else by Welch's test; of several signals over the runs of the common seeds."""
    scores = {"gau": {0: 30.0, 1: 31.0, 2: 33.0}, "tri": {0: 28.0, 2: 32.0, 5: 10.0}, "rff": {7: 20.0, 8: 22.0, 9: 27.0}}
    for name, by_seed in scores.items():
        for seed, score in by_seed.items():
            make_run(f"{name}/{seed}", (score,), encoder={"name": name}, seed=seed)
    (table,) = tables(tmp_path, by="encoder.name", baseline="gau")
    paired, independent = stats.ttest_rel([28, 32], [30, 33]), stats.ttest_ind([20, 22, 27], [30, 31, 33], equal_var=False)
    for name, test, pairs in (("tri", paired, 2), ("rff", independent, 0)):
        low, high = test.confidence_interval(0.95)
        assert difference(table, name) == pytest.approx(((low + high) / 2, low, high, pairs))
    assert difference(table, "bicubic interpolation").pairs == 3
    assert any(note.startswith("rff: not paired") for note in table.notes)
    gau = table.baseline
    assert (gau.mean, gau.run_deviation, len(gau.runs)) == pytest.approx((94 / 3, np.std([30, 31, 33], ddof=1), 3))
    for name, by_seed in scores.items():
        for seed, score in by_seed.items():
            make_run(f"two/{name}/{seed}", (score, 2 * score), encoder={"name": name}, seed=seed, data_fingerprint="two")
    two = next(table for table in tables(tmp_path, by="encoder.name", baseline="gau") if table.fingerprint == "two")
    assert difference(two, "tri").mean == pytest.approx((30 - 31.5) * 1.5)


def test_signals_of_several_data_sets_have_one_mean_with_its_standard_error(make_run, tmp_path):
    for picture, (gau, tri) in enumerate(((30.0, 29.0), (25.0, 21.0), (35.0, None))):
        for name, score in (("gau", gau), ("tri", tri), ("rff", 20.0)):
            if score is not None:
                about = {"grid": [12 + picture, 9], "data_fingerprint": str(picture), "encoder": {"name": name}}
                make_run(f"{picture}/{name}", (score,), signals=[f"picture {picture}"], **about)
    *single, whole = tables(tmp_path, by="encoder.name", baseline="gau")
    assert [table.data_sets for table in (*single, whole)] == [1, 1, 1, 3]
    gau, rff, tri = (next(row for row in whole.rows if row.name == name) for name in ("gau", "rff", "tri"))
    cell = next(cell for cell in whole.cells(gau) if cell.key == "test_psnr")
    assert cell.text == f"30.00 ± {stats.sem([30, 25, 35]):.2f}"
    expected = stats.ttest_rel([20, 20, 20], [30, 25, 35]).confidence_interval(0.95)
    assert difference(whole, "rff") == pytest.approx((-10, expected.low, expected.high, 3))
    assert math.isnan(tri.mean)
    assert (difference(whole, "tri").mean, difference(whole, "tri").pairs) == (-2.5, 2)
    assert {"Means ± standard error over 3 signals.", "tri has no mean: it has no scores of picture 2"} <= set(whole.notes)
    assert len(rff.test) == 3
    assert [table.data_sets for table in tables(tmp_path)] == [1, 1, 1], "without keys, no row is in two tables"


def test_keys_are_of_metrics_of_a_sweep_or_of_the_configuration(make_run, tmp_path):
    for size in (8, 16):
        make_run(f"s/cell-{size}", config={"model": {"init_args": {"depth": size // 8}}})
    cells = [
        {"name": f"cell-{size}", "settings": {"model.encoder": f"{{name: gau, num_features: {size}}}"}} for size in (8, 16)
    ]
    (tmp_path / "s/sweep.json").write_text(json.dumps({"cells": cells}))
    for by, names in (("model.depth", {"1", "2"}), ("model.encoder", {cell["settings"]["model.encoder"] for cell in cells})):
        (table,) = tables(tmp_path, by=by)
        assert {row.name for row in table.fitted} == names
    (tmp_path / "s/sweep.json").write_text("{")
    assert "sweep.json cannot be read" in find_runs([tmp_path]).problems[0]


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
        of_runs = [table for table in tables(tmp_path, by=by) if table.data_sets == 1]
        assert [{run.label for run in table.runs} for table in of_runs] == [{"a/1", "a/2"}, {"b/1"}]


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
    assert (difference(table, "b/1").mean, difference(table, "b/1").pairs) == (20.0, 2)
    assert {
        "b/1 has no mean: infinite: a signal is reproduced exactly",
        "c/1 has no mean: no reason recorded",
        "delaunay interpolation has no mean: left out",
        "b/1: 2 of 3 signals have a value both in it and in a/1",
    } <= set(table.notes)
    group = tables(tmp_path, by="model")[0].fitted[0]
    assert math.isnan(group.mean)
    assert group.reason == "b/1: infinite: a signal is reproduced exactly; c/1: no reason recorded"


def test_infinite_and_missing_scores_of_some_signals_leave_a_table(make_run, tmp_path, capsys):
    """Over signals, over runs and over data sets; a signal that is reproduced exactly has no finite PSNR."""
    for data, scores in (("one", (30.0, None)), ("two", (20.0, 21.0))):
        for encoder, change in (("gau", 0), ("tri", 1)):
            for seed in (0, 1):
                values = tuple(None if score is None else score + change + seed for score in scores)
                make_run(f"{data}-{encoder}/{seed}", values, data_fingerprint=data, encoder={"name": encoder}, seed=seed)
    for by in ("encoder.name", "method", None):
        found = tables(tmp_path, by)
        assert all(math.isnan(row.mean) for row in found[-1].fitted if by)
        print_score_tables(found)
        assert "has no mean" in capsys.readouterr().out
        for write in (as_csv, as_json, as_markdown, as_latex):
            assert "Infinity" not in write(found)
    found = find_runs([tmp_path]).runs
    exact = replace(found[0], metrics=found[0].metrics | {"test/psnr_per_signal": [math.inf, 30.0]})
    (table,) = compare([exact, next(run for run in found[1:] if run.label == "one-gau/1")])
    assert table.rows[0].mean == math.inf
    assert math.isnan(table.rows[0].deviation)
    assert '"test_psnr": null' in as_json([table])


def test_statistics_are_those_of_scipy_where_numbers_are_finite():
    first, second = [1.0, 2.0, 4.0], [2.0, 5.0]
    low, high = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    middle, half = welch_interval(first, second)
    assert (middle - half, middle + half) == pytest.approx((low, high))
    for values in ([], [1.0], [1.0, math.inf], [math.inf, -math.inf], [1.0, math.nan]):
        assert math.isnan(t_interval(values)[1])
        assert math.isnan(standard_error(values))
        assert math.isnan(welch_interval(values, first)[1])


def test_runs_outside_of_sweeps_have_a_method(make_run, tmp_path):
    for name, network, encoder, model in (
        ("SIREN", "sine", "identity", "SimpleMLP"),
        ("rff MLP", "relu", "rff", "SimpleMLP"),
        ("MFN", "MFN", None, "NetworkModule"),
        ("gau complex", None, "gau", "ComplexLinear"),
        ("Adaptive laplace", None, "laplace", "Adaptive"),
    ):
        about = {"network": network and {"name": network}, "encoder": encoder and {"name": encoder}, "model": model}
        make_run(f"{name}/1", **about)
    make_run("gau exact/1", steps=0, solve_seconds=0.1)
    (table,) = tables(tmp_path, "method")
    assert {row.name for row in table.fitted} == {run.label.partition("/")[0] for run in table.runs}


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
