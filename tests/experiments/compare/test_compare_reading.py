"""Run directories are found, each once, and what is wrong with one is said."""

import json

import pytest

from pe_lightning.experiments.compare.reading import find_runs, printable


def test_a_run_named_twice_is_one(make_run, tmp_path):
    run = make_run("exp/a/1")
    link = tmp_path / "link"
    link.symlink_to(run)
    found = find_runs([run, tmp_path / "exp", f"{run}/../1/", link, run / "metrics.json"])
    assert [r.path for r in found.runs] == [run]
    assert found.problems == ()


def test_an_evaluation_of_a_run_is_not_another_run(make_run, tmp_path):
    make_run("a/1")
    evaluation = make_run("a/1/test")
    assert len(find_runs([tmp_path]).runs) == 1
    assert [run.label for run in find_runs([evaluation]).runs] == ["1/test"]


def test_runs_are_in_natural_order_with_labels_as_long_as_it_takes(make_run, tmp_path):
    for name in ("x/a/10", "x/a/2", "y/a/2", "x/b/1"):
        make_run(name)
    assert [run.label for run in find_runs([tmp_path]).runs] == ["x/a/2", "a/10", "b/1", "y/a/2"]


def change(**changes):
    def write(folder):
        path = folder / "metrics.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return write


def text(content):
    return lambda folder: (folder / "metrics.json").write_bytes(content)


BROKEN = {
    "stopped": (lambda folder: (folder / "metrics.json").unlink(), "the run did not reach its end"),
    "cut": (text(b'{"schema": 1, "test/ps'), "not JSON"),
    "not text": (text(b"\xff\xfe\x00"), "not JSON"),
    "deep": (text(b"[" * 100_000), "not JSON"),
    "foreign": (text(b'{"accuracy": 0.9}'), "not one of a pe-lightning run"),
    "later schema": (change(schema=2), "has the schema 2; this version reads 1"),
    "validate": (text(b'{"schema": 1, "val/psnr": 3.0}'), "scores of a validate"),
    "names": (change(signals=[1, 2, 3]), "'signals' is not a list of names"),
    "no scores": (text(b'{"schema": 1, "signals": ["a"]}'), "no 'test/psnr_per_signal'"),
    "too few scores": (change(**{"test/psnr_per_signal": [1.0]}), "'test/psnr' is not 3 finite numbers"),
    "scores are booleans": (change(**{"test/psnr_per_signal": [True] * 3}), "'test/psnr' is not 3 finite numbers"),
    "infinite": (change(**{"test/psnr_per_signal": [1.0, 2.0, float("inf")]}), "finite numbers"),
    "too large": (change(**{"train/psnr_per_signal": [1.0, 2.0, 10**400]}), "'train/psnr' is not 3 finite"),
    "negative": (change(fit_seconds=-1), "'fit_seconds' is not a number of at least 0"),
    "baselines": (change(baselines=[1]), "'baselines' is not an object"),
    "baseline": (change(baselines={"bicubic": {"test/psnr_per_signal": [1]}}), "'baselines.bicubic' is not 3 finite"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_run_is_named_and_the_others_are_read(make_run, tmp_path, case):
    spoil, reason = BROKEN[case]
    make_run("good/1")
    spoil(make_run("bad/1"))
    found = find_runs([tmp_path])
    assert [run.label for run in found.runs] == ["good/1"]
    assert len(found.problems) == 1
    assert str(tmp_path / "bad/1") in found.problems[0]
    assert reason in found.problems[0]


@pytest.mark.parametrize("content", ["a: &a {b: *a}", "a: [1", "- 1\n", "\x00", "!!python/object/apply:os.getcwd []"])
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


def test_signals_of_the_same_name_are_told_apart(make_run, tmp_path):
    make_run("a/1", signals=["x", "y\n", "x"])
    (run,) = find_runs([tmp_path]).runs
    assert run.test == {"x": 20.0, "y�": 22.0, "x (2)": 24.0}


def test_runs_of_an_earlier_version_are_scored_in_psnr(make_run, tmp_path):
    path = make_run("a/1") / "metrics.json"
    metrics = json.loads(path.read_text())
    del metrics["metric"], metrics["grid"], metrics["baselines"]
    path.write_text(json.dumps(metrics))
    (path.parent / "config.yaml").unlink()
    (run,) = find_runs([tmp_path]).runs
    assert run.config is None
    assert (run.metric.name, run.metric.unit, run.grid, run.interpolations) == ("psnr", "dB", (), [])


def test_printable():
    assert printable("né 猫\x1b[31m\n\u202e\udcff") == "né 猫�[31m���"
