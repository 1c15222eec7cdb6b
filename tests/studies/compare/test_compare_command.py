"""``pe-lightning compare`` from its arguments to its exit status, output and files."""

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pe_lightning.__main__ import main

ROOT = Path(__file__).parents[3]
FILES = {"index.html", "table.csv", "table.json", "table.md", "table.tex", "psnr_vs_seconds.png", "psnr_vs_parameters.png"}


def test_the_table(make_run, tmp_path, capsys):
    make_run("a/1", (30.0, 31.0, 35.0))
    make_run("b/1", (29.0, 31.0, 33.0), encoder={"name": "[red]tri\x1b"})
    for options, names in (([], ("a/1", "b/1")), (["--by=encoder.name", "--baseline", "gau"], ("gau", "[red]tri�"))):
        assert main(["compare", str(tmp_path), *options]) == 0
        shown = capsys.readouterr()
        assert shown.err == ""
        assert "\x1b" not in shown.out
        lines = [re.split(r"\s{2,}", line.strip()) for line in shown.out.splitlines()]
        first = lines.index(next(line for line in lines if line[0] == names[0]))
        runs = {"a/1": [], "gau": ["1"]}[names[0]]
        assert lines[first : first + 3] == [
            [names[0], *runs, "32.00 ± 2.65", "baseline", "1,000", "2.00"],
            [names[1], *runs, "31.00 ± 2.00", "-1.00 [-3.48, +1.48]", "1,000", "2.00"],
            ["bicubic interpolation", *(["–"] if runs else []), "21.00 ± 1.00", "-11.00 [-15.30, -6.70]", "–", "–"],
        ]
        assert f"against {names[0]}, paired by signal, with 95% t intervals over 3 signals" in shown.out


def test_keys_in_any_spelling_group_runs_in_all_outputs(make_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, size, seed, score in (
        ("gau", 8, 0, 30),
        ("gau", 8, 1, 32),
        ("gau", 16, 0, 33),
        ("rff", 8, 0, 20),
        ("rff", 8, 1, 23),
    ):
        encoder = {"name": name, "num_features": size}
        config = {"seed_everything": seed, "model": {"init_args": {"encoder": encoder}}}
        make_run(f"runs/{name}-{size}-{seed}", (score,), config, encoder=encoder, seed=seed, baselines={})
    texts = []
    first, second = "encoder.name", "encoder.num_features"
    for by in (
        [f"{first},{second}"],
        [first, "--by", second],
        [first, second],
        [f"[{first}, {second}]"],
        [first, second, "runs"],
    ):
        assert main(["compare", *(["runs"] if by[-1] != "runs" else []), "--by", *by]) == 0
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1
    rows = [line.split()[:4] for line in texts[0].splitlines() if line.startswith((" gau", " rff"))]
    assert rows == [["gau", "16", "1", "33.00"], ["gau", "8", "2", "31.00"], ["rff", "8", "2", "21.50"]]
    assert "31.00 ± 1.41" in texts[0]
    assert "averaged over seed: 0, 1" in texts[0]
    assert main(["compare", "runs", "--by", "encoder.name", "--out", "report", "--baseline", "gau"]) == 0
    shown = capsys.readouterr().out
    assert "gau: averaged over encoder.num_features: 8, 16" in shown
    page, markdown = Path("report/index.html").read_text(), Path("report/table.md").read_text()
    assert all("gau: averaged over encoder.num_features: 8, 16" in text for text in (page, markdown.replace("\\_", "_")))
    assert ">encoder.<wbr>name<" in page, "long keys wrap at their dots"
    (table,) = json.loads(Path("report/table.json").read_text())["tables"]
    gau, rff = table["rows"]
    assert [gau[key] for key in ("encoder.name", "runs", "test_psnr_std_runs")] == ["gau", 3, pytest.approx(1.527525)]
    assert [(run["seed"], run["score"]) for run in rff["run_scores"]] == [(0, 20), (1, 23)]
    assert rff["difference"] == pytest.approx((20 - 31.5 + 23 - 32) / 2), "paired by seed"
    (_, line) = csv.DictReader(Path("report/table.csv").read_text().splitlines())
    assert (float(line["difference_low"]), line["difference_pairs"]) == (pytest.approx(rff["difference_low"]), "2")


def test_runs_without_held_out_samples_show_trained_ones_and_bytes(make_run, tmp_path, capsys):
    make_run("dense/1", (None,), checkpoint_bytes=123_456, baselines={})
    make_run("sparse/1", (None,), checkpoint_bytes=7_890, baselines={})
    assert main(["compare", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("40.00", "0.5000", "123,456", "7,890"))
    assert "held-out" not in shown


@pytest.mark.slow  # starts a process
def test_the_files(make_run, tmp_path, capsys):
    run = make_run("runs/a/1", (30.0, 31.0, 35.0), noise=0.1)
    make_run("runs/b|_1", (29.0, 31.0, 33.0), noise=0.2, num_params=2000)
    (run / "logs" / "version_0").mkdir(parents=True)
    (run / "logs" / "version_0" / "metrics.csv").write_text("step,val/psnr\n49,10.0\n99,20.0\n")
    out = tmp_path / "report"
    out.mkdir()
    theirs = {"notes.txt", "psnr_vs_time.png", "psnr_vs_step_2.png"}
    for name in theirs:
        (out / name).write_text("old")
    assert main(["compare", str(tmp_path / "runs"), "--out", str(out)]) == 0
    assert f"report: {out / 'index.html'}" in capsys.readouterr().out
    visible = {path.name: path for path in out.iterdir() if path.name[0] != "."}
    assert set(visible) == FILES | theirs | {"psnr_vs_step.png"}
    assert {name for name, path in visible.items() if path.read_bytes() == b"old"} == theirs
    assert all(np.asarray(Image.open(out / name)).std() > 0 for name in FILES if name.endswith(".png"))
    rows = list(csv.DictReader((out / "table.csv").read_text().splitlines()))
    assert [row["name"] for row in rows] == ["a/1", "runs/b|_1", "bicubic interpolation"]
    values = [float(rows[1][key]) for key in ("test_psnr", "difference", "difference_low", "fit_seconds")]
    assert values == pytest.approx([31, -1, -3.484138, 2])
    assert (rows[0]["run_dirs"], rows[2]["num_params_min"]) == (str(run), "")
    markdown = (out / "table.md").read_text()
    assert r"| runs/b\|\_1 | 1 | 31.00 ± 2.00 | -1.00 [-3.48, +1.48] | 0.5000 | 40.00 | 2,000 | 2.00 |" in markdown
    assert "bytes of the file" not in markdown, "no run has a value"
    assert "checkpoint_bytes" not in rows[0]
    latex = (out / "table.tex").read_text()
    assert r"\toprule" in latex
    assert r"runs/b|\_1 & 1 & 31.00 $\pm$ 2.00 & $-$1.00 [$-$3.48, +1.48] & 0.5000 & 40.00 & 2,000 & 2.00 \\" in latex


def test_columns_that_are_equal_in_all_rows_are_a_note(make_run, tmp_path, capsys):
    for name in ("a/1", "b/1"):
        make_run(name, (30.0,), baselines={})
    assert main(["compare", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "The same in all rows: SSIM of all samples 0.5000, train PSNR (dB) 40.00, parameters 1,000" in shown
    assert "1,000" not in shown.partition("The same")[0]
    assert shown.count("30.00") == 2, "scores stay"


@pytest.mark.parametrize(("form", "start"), [("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_the_format_of_plots(make_run, tmp_path, form, start):
    make_run("runs/a/1")
    assert main(["compare", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--format", form]) == 0
    assert (tmp_path / f"out/psnr_vs_seconds.{form}").read_bytes().startswith(start)
    assert "data:image/png" in (tmp_path / "out/index.html").read_text()


def test_only_files_of_an_earlier_report_are_replaced(make_run, tmp_path, capsys):
    runs, out = make_run("runs/a/1", (30.0, 31.0)).parent, tmp_path / "report"
    command = ["compare", str(runs), "--out", str(out)]
    (runs / "1/logs/version_0").mkdir(parents=True)
    (runs / "1/logs/version_0/metrics.csv").write_text("step,val/psnr\n49,10.0\n99,20.0\n")
    assert main(command) == 0
    assert (out / "psnr_vs_step.png").is_file()
    shutil.rmtree(runs / "1/logs")
    (out / "psnr_vs_seconds.png").unlink()
    assert main(command) == 0
    assert not (out / "psnr_vs_step.png").exists(), "a plot of the earlier report that this one does not have"
    (out / "table.md").write_text("edited by hand")
    (out / "index.html").unlink()
    (out / "index.html").symlink_to(runs / "1/metrics.json")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for name in ("index.html", "table.md"):
        assert main(command) == 2
        assert f"{name}' was not written by pe-lightning compare, or was changed since" in capsys.readouterr().err
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before
        (out / name).unlink()
        del before[name]
    assert main(command) == 0


def test_unreadable_runs_are_named_and_the_others_compared(make_run, tmp_path, capsys):
    log = make_run("a/1", fit_seconds=None) / "logs" / "version_0" / "metrics.csv"
    log.parent.mkdir(parents=True)
    log.write_text("step,val/psnr\n1,x\n")
    (make_run("b/1") / "metrics.json").write_text("{")
    out = tmp_path / "report"
    assert main(["compare", str(tmp_path), str(tmp_path / "no such"), "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert "a/1" in shown.out
    problems = shown.err.splitlines()
    assert len(problems) == 3
    assert "no such is not a directory" in problems[0]
    assert f"warning: {tmp_path / 'b/1'}: metrics.json cannot be read" in problems[1]
    assert "a/1: metrics.csv of version_0 cannot be read" in problems[2]
    assert not (out / "psnr_vs_seconds.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is no run to compare: give run directories"),
        (["empty"], "there is no run to compare"),
        (["runs", "--by", "encoder.nam"], "did you mean 'encoder.name'"),
        (["runs", "--pictures", "-1"], "-1 does not conform to restriction v>=0"),
        (["runs", "--out", "runs/a/1/metrics.json"], "cannot write"),
    ],
)
def test_wrong_input(make_run, tmp_path, monkeypatch, capsys, arguments, message):
    make_run("runs/a/1")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *arguments]) == 2
    error = capsys.readouterr().err
    assert "pe-lightning: error: " in error
    assert message in error


def test_several_tables_say_why(make_run, tmp_path, capsys):
    make_run("a/1")
    make_run("b/1", protocol="all")
    out = tmp_path / "report"
    assert main(["compare", str(tmp_path), "--out", str(out)]) == 0
    reason = "2 tables: the runs differ in protocol. Across tables nothing is averaged, paired or ranked."
    for text in (capsys.readouterr().out, (out / "index.html").read_text(), (out / "table.md").read_text()):
        assert reason in text
    assert {row["table"] for row in csv.DictReader((out / "table.csv").read_text().splitlines())} == {"1", "2"}
    assert (out / "psnr_vs_seconds_2.png").exists()


def test_a_real_fit_of_two_pictures_is_shown(tmp_path, monkeypatch, capsys, signals):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    for name, values in zip("ab", signals(2, (16, 24), 3), strict=True):
        Image.fromarray((255 * values).astype(np.uint8)).save(f"pictures/{name}.png")
    fit = ["fit", "--config", str(ROOT / "configs/image/closed_form.yaml"), "--data.paths", "pictures"]
    fit += ["--model.encoder.num_features", "16", "--model.encoder.sigma", "0.1"]
    assert main([*fit, "--trainer.accelerator", "cpu", "--wandb.enabled", "false"]) == 0
    capsys.readouterr()
    assert main(["compare", "runs", "--by", "encoder.sigma", "--out", "report"]) == 0
    assert capsys.readouterr().err == ""
    rows = list(csv.DictReader(Path("report/table.csv").read_text().splitlines()))
    assert [row["name"] for row in rows if row["interpolation"] == "False"] == ["0.1"]
    page = Path("report/index.html").read_text()
    assert '<div class="viewer pictures"' in page
    (found,) = re.findall(r'id="signals">(.*?)</script>', page)
    for _, (tile, interpolated) in json.loads(found)[0]:
        assert interpolated["run"].endswith("interpolation")
        assert interpolated["reconstruction"] != tile["reconstruction"]
        assert "reason" not in tile
        assert tile["size"] == [24, 16]
        assert all(f'id="{key}">data:image/webp;base64,' in page for key in tile["truth"] + tile["reconstruction"])
