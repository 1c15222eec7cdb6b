"""``pe-lightning compare`` from its arguments to its exit status, output and files."""

import csv
import json
import re
import subprocess
import sys

import pytest

from pe_lightning.__main__ import main

FILES = {"index.html", "table.csv", "table.md", "psnr_vs_seconds.png", "psnr_vs_parameters.png"}


def test_the_table(make_run, tmp_path, capsys):
    make_run("a/1", (30.0, 31.0, 35.0))
    make_run("b/1", (29.0, 31.0, 33.0))
    assert main(["compare", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = [re.split(r"\s{2,}", line.strip()) for line in shown.out.splitlines()]
    assert lines[lines.index(next(line for line in lines if line[0] == "a/1")) :][:3] == [
        ["a/1", "32.00 ± 2.16", "baseline", "1,000", "2.00"],
        ["b/1", "31.00 ± 1.63", "-1.00 [-3.48, +1.48]", "1,000", "2.00"],
        ["bicubic interpolation", "21.00 ± 0.82", "-11.00 [-15.30, -6.70]", "–", "–"],
    ]
    assert "against a/1, paired by signal, with 95% t intervals over 3 signals" in shown.out


def test_nothing_heavy_is_imported(make_run, tmp_path):
    make_run("a/1", pictures=True)
    code = f"""
import sys
from pe_lightning.__main__ import main
assert main(["compare", {str(tmp_path)!r}, "--out", {str(tmp_path / "report")!r}]) == 0
heavy = {{"torch", "lightning", "pytorch_lightning", "wandb", "jsonargparse", "skimage", "selenium"}}
assert not heavy & {{name.split(".")[0] for name in sys.modules}}
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_files(make_run, tmp_path, capsys):
    run = make_run("runs/a/1", (30.0, 31.0, 35.0), pictures=True)
    make_run("runs/b/1", (29.0, 31.0, 33.0), pictures=True)
    (run / "logs" / "version_0").mkdir(parents=True)
    (run / "logs" / "version_0" / "metrics.csv").write_text("step,val/psnr\n49,10.0\n99,20.0\n")
    out = tmp_path / "report"
    assert main(["compare", str(tmp_path / "runs"), "--out", str(out)]) == 0
    assert f"report: {out / 'index.html'}" in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == FILES | {"psnr_vs_step.png"}
    assert all(path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for path in out.glob("*.png"))
    rows = list(csv.DictReader((out / "table.csv").read_text().splitlines()))
    assert [row["name"] for row in rows] == ["a/1", "b/1", "bicubic interpolation"]
    assert [float(rows[1][key]) for key in ("test_psnr", "difference", "difference_low")] == pytest.approx(
        [31, -1, -3.484138]
    )
    assert rows[0]["run_dirs"] == str(run)
    assert rows[2]["num_params_min"] == ""
    markdown = (out / "table.md").read_text()
    assert "| b/1 | 1 | 31.00 ± 1.63 | -1.00 [-3.48, +1.48] | 0.5000 | 40.00 | 1,000 | 2.00 |" in markdown


def test_an_existing_report_is_replaced_and_nothing_else(make_run, tmp_path):
    make_run("runs/a/1")
    out = tmp_path / "report"
    out.mkdir()
    ours = ["index.html", "table.csv", "psnr_vs_step.png", "psnr_vs_seconds_2.png"]
    theirs = ["notes.txt", "psnr_vs_time.png", "psnr_vs_step_2.png.bak"]
    for name in ours + theirs:
        (out / name).write_text("old")
    assert main(["compare", str(tmp_path / "runs"), "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == FILES | set(theirs)
    assert {name for name in FILES | set(theirs) if (out / name).read_bytes() == b"old"} == set(theirs)


def test_what_cannot_be_read_is_named_and_the_rest_compared(make_run, tmp_path, capsys):
    make_run("a/1")
    (make_run("b/1") / "metrics.json").write_text("{")
    assert main(["compare", str(tmp_path), str(tmp_path / "no such")]) == 0
    shown = capsys.readouterr()
    assert "a/1" in shown.out
    assert len(shown.err.splitlines()) == 2
    assert f"warning: {tmp_path / 'b/1'}: metrics.json is not JSON" in shown.err
    assert "no such is not a directory" in shown.err


def test_a_broken_log_is_named(make_run, tmp_path, capsys):
    (make_run("a/1") / "logs" / "version_0").mkdir(parents=True)
    (tmp_path / "a/1/logs/version_0/metrics.csv").write_text("step,val/psnr\n1,x\n")
    assert main(["compare", str(tmp_path), "--out", str(tmp_path / "report")]) == 0
    assert "warning: a/1: metrics.csv of version_0 cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "compare needs run directories"),
        (["{empty}"], "there is no run to compare"),
        (["{runs}", "--baselin", "x"], "unknown option '--baselin'; did you mean '--baseline'?"),
        (["{runs}", "--by"], "expected one argument"),
        (["{runs}", "--by", "encoder.nam"], "did you mean 'encoder.name'"),
        (["{runs}", "--baseline", "a/2"], "did you mean 'a/1'?"),
        (["{runs}", "--pictures", "-1"], "--pictures is at least 0, got -1"),
        (["{runs}", "--pictures", "few"], "invalid int value"),
        (["{runs}", "--frames", "0"], "--frames is at least 1, got 0"),
        (["{runs}", "--megapixels", "0"], "--megapixels is a positive number, got 0"),
        (["{runs}", "--megapixels", "nan"], "--megapixels is a positive number, got nan"),
        (["{runs}", "--out", "{runs}/a/1/metrics.json"], "is not a directory"),
        (["{runs}", "--out", "{runs}/a/1/metrics.json/deeper"], "cannot write the report"),
    ],
)
def test_wrong_input(make_run, tmp_path, capsys, arguments, message):
    make_run("runs/a/1")
    (tmp_path / "empty").mkdir()
    places = {"runs": tmp_path / "runs", "empty": tmp_path / "empty"}
    assert main(["compare", *(argument.format(**places) for argument in arguments)]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("pe-lightning: error: ")
    assert message in last


def test_help(capsys):
    assert main(["compare", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(option in shown for option in ("--by", "--baseline", "--out", "--pictures", "--megapixels", "--frames"))


def test_several_tables_say_why(make_run, tmp_path, capsys):
    make_run("a/1")
    make_run("b/1", protocol="all")
    out = tmp_path / "report"
    assert main(["compare", str(tmp_path), "--out", str(out)]) == 0
    reason = "2 tables: the runs differ in protocol. Across tables nothing is averaged, paired or ranked."
    assert reason in capsys.readouterr().out
    assert reason in (out / "index.html").read_text()
    assert reason in (out / "table.md").read_text()
    assert {row["table"] for row in csv.DictReader((out / "table.csv").read_text().splitlines())} == {"1", "2"}
    assert (out / "psnr_vs_parameters_2.png").exists()


def test_names_reach_a_terminal_as_text(make_run, tmp_path, capsys):
    make_run("a/1", signals=["\x1b[31mred", "[bold]b[/bold]", "c\nd"], encoder={"name": "[red]x"})
    assert main(["compare", str(tmp_path), "--by", "encoder.name"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "[bold]b[/bold]" in shown
    assert "[red]x" in shown


def test_names_that_are_not_unicode(make_run, tmp_path, capsys):
    make_run("a/1", signals=["\ud800", "\x00", ""], config={"\udcff": "\x07"}, encoder={"name": "\udfff"}, pictures=True)
    make_run("b/1", signals=["\ud800", "\x00", ""], config={"x": 1})
    for options in ([], ["--by", "encoder.name"]):
        assert main(["compare", str(tmp_path), "--out", str(tmp_path / "report"), *options]) == 0
    assert capsys.readouterr().err == ""


def test_names_in_markdown(make_run, tmp_path):
    make_run("a/1", encoder={"name": "<b>|*x*"})
    main(["compare", str(tmp_path), "--by", "encoder.name", "--out", str(tmp_path / "report")])
    assert "| &lt;b&gt;\\|\\*x\\* | 1 |" in (tmp_path / "report" / "table.md").read_text()


def test_a_test_of_a_checkpoint_has_no_seconds(make_run, tmp_path, capsys):
    path = make_run("a/1/test") / "metrics.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"fit_seconds": None}))
    assert main(["compare", str(path.parent), "--out", str(tmp_path / "report")]) == 0
    assert not (tmp_path / "report" / "psnr_vs_seconds.png").exists()
    assert "1/test" in capsys.readouterr().out
