"""Run directories are found, each once, and broken ones are named."""

import json

import pytest

from pe_lightning.studies.compare.reading import find_runs


def test_a_run_named_twice_is_one_and_its_evaluation_is_no_other(make_run, tmp_path):
    run = make_run("exp/a/1")
    evaluation = make_run("exp/a/1/test")
    link = tmp_path / "link"
    link.symlink_to(run)
    found = find_runs([run, tmp_path / "exp", f"{run}/../1/", link])
    assert [r.path for r in found.runs] == [run]
    assert found.problems == ()
    assert [r.label for r in find_runs([evaluation]).runs] == ["1/test"]


def test_labels_are_as_long_as_it_takes(make_run, tmp_path):
    for name in ("x/a/2", "x/a/3", "y/a/2", "x/b/1"):
        make_run(name)
    assert [run.label for run in find_runs([tmp_path]).runs] == ["x/a/2", "a/3", "b/1", "y/a/2"]


BROKEN = {
    "stopped": (None, "the run did not reach its end"),
    "cut": (b'{"schema": 1, "test/ps', "cannot be read"),
    "not text": (b"\xff\xfe\x00", "cannot be read"),
    "foreign": (b'{"accuracy": 0.9}', "schema"),
    "later schema": (b'{"schema": 2}', "is 2; this version reads 1"),
    "validate": (b'{"schema": 1, "val/psnr": 3.0}', "scores of a fit or a test"),
    "unknown metric": (b'{"schema": 1, "metric": "psn"}', "psnr"),
    "too few scores": (b'{"schema": 1, "signals": ["a", "b"], "test/psnr_per_signal": [1.0]}', "one per signal"),
    "digits": (b'{"schema": 1, "steps": ' + b"9" * 5000 + b"}", "is not a finite number"),
    "deep": (b'{"schema": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too many levels"),
    "list": (b"[1]", "it holds [1], not a mapping"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_run_is_named_and_the_others_are_read(make_run, tmp_path, case):
    content, reason = BROKEN[case]
    make_run("good/1")
    path = make_run("bad/1") / "metrics.json"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    found = find_runs([tmp_path])
    assert [run.label for run in found.runs] == ["good/1"]
    (problem,) = found.problems
    assert str(path.parent) in problem
    assert reason in problem


@pytest.mark.parametrize("content", ["a: [1", "!!python/object/apply:os.getcwd []"])
def test_a_broken_configuration_costs_only_itself(make_run, tmp_path, content):
    (make_run("a/1") / "config.yaml").write_text(content)
    found = find_runs([tmp_path])
    assert found.runs[0].config is None
    assert "compared without its configuration" in found.problems[0]


def test_paths_that_hold_no_run(tmp_path):
    (tmp_path / "empty").mkdir()
    found = find_runs([tmp_path / "empty", tmp_path / "nothing"])
    assert found.runs == ()
    assert "holds no run" in found.problems[0]
    assert found.problems[1].endswith("nothing is not a directory")


def test_signals_of_the_same_name_are_told_apart_and_shown_on_one_line(make_run, tmp_path):
    make_run("a/1", signals=["x", "y\n\x1b\udcff", "x"])
    (run,) = find_runs([tmp_path]).runs
    assert run.test == {"x": 20.0, "y���": 22.0, "x (2)": 24.0}


def test_runs_of_an_earlier_version_are_scored_in_psnr(make_run, tmp_path):
    path = make_run("a/1") / "metrics.json"
    metrics = json.loads(path.read_text())
    del metrics["metric"], metrics["grid"], metrics["baselines"]
    path.write_text(json.dumps(metrics))
    (path.parent / "config.yaml").unlink()
    (run,) = find_runs([tmp_path]).runs
    assert (run.config, run.metric.name, run.metric.unit, run.grid) == (None, "psnr", "dB", ())
