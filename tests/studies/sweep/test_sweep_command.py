"""Sweeps from end to end, on small pictures and exact fits."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from stopping import act, run_command, stopped
from wandb_files import logged, settings

from pe_lightning.__main__ import main
from pe_lightning.results.runs import recorder_of
from pe_lightning.signals.sources.images import ImageSource
from pe_lightning.studies.compare.reading import find_runs
from pe_lightning.studies.compare.scores import compare

ROOT = Path(__file__).parents[3]
SMALL = ["--data.resize", "32", "--model.encoder.num_features", "16", "--trainer.accelerator", "cpu"]
QUIET = ["--wandb.enabled", "false"]
EXACT = ["--config", str(ROOT / "configs/image/closed_form.yaml"), *SMALL, "--model.ridge", "0.01"]
TRAINED = ["--config", str(ROOT / "configs/image/demo.yaml"), *SMALL, "--data.batching.steps_per_epoch", "10"]
TRAINED += ["--trainer.log_every_n_steps", "5"]
ENCODERS = ["--vary", "model.encoder=gau,rff", "--out", "s"]


pytestmark = pytest.mark.usefixtures("empty_folder")


def record(folder: str = "s") -> dict:
    content = json.loads((Path(folder) / "sweep.json").read_text())
    return {cell["name"]: cell for cell in content["cells"]}


def statuses(folder: str = "s") -> dict:
    return {name: cell["status"] for name, cell in record(folder).items()}


def metrics(run: str) -> dict:
    return json.loads((Path("s") / run / "metrics.json").read_text())


@pytest.mark.slow  # four fits
def test_every_combination_is_a_run_and_the_data_is_read_once(capsys, monkeypatch):
    loaded = []
    monkeypatch.setattr(ImageSource, "read", lambda self, read=ImageSource.read: (loaded.append(1), read(self))[1])
    vary = ["--vary", "model.encoder.num_features=8,12", "--data.storage.cache", "off"]
    fixed = [argument for argument in EXACT if argument not in ("--model.encoder.num_features", "16")]
    assert main(["sweep", *fixed, *QUIET, *ENCODERS, *vary]) == 0
    names = [f"encoder-{encoder}_num_features-{k}" for encoder in ("gau", "rff") for k in (8, 12)]
    assert statuses() == dict.fromkeys(names, "done")
    assert len(loaded) == 1
    for name in names:
        found, config = metrics(name), yaml.safe_load((Path("s") / name / "config.yaml").read_text())
        assert name == f"encoder-{found['encoder']['name']}_num_features-{found['encoder']['num_features']}"
        assert recorder_of(config["trainer"]["callbacks"])["wandb"]["group"] == f"s/{name}"
        assert record()[name]["test/psnr"] == found["test/psnr"]
        assert (Path("s") / name / "reconstructions/astronaut.png").is_file()
    shown = capsys.readouterr()
    table = [line.split()[:2] for line in shown.out.splitlines() if line.startswith((" gau", " rff"))]
    scores = [metrics(f"encoder-{encoder}_num_features-{k}")["test/psnr"] for encoder, k in table]
    assert sorted(scores, reverse=True) == scores, "best first"
    assert len(table) == 4
    assert "pe-lightning compare s --by model.encoder,model.encoder.num_features --out s/report" in shown.out
    assert "4/4 encoder-rff_num_features-12" in shown.err
    assert "train PSNR" not in shown.out, "the runs' own tables are left out"


@pytest.mark.slow  # three trained fits
def test_a_cell_is_the_same_as_a_fit_with_the_arguments_in_the_record(capsys):
    vary = [*ENCODERS, "--vary", "model.encoder.sigma=3"]
    assert main(["sweep", *TRAINED, *QUIET, "--trainer.max_steps", "7", *vary]) == 0
    cell = record()["encoder-rff_sigma-3"]
    assert main(["fit", *cell["arguments"]]) == 0
    (alone,) = Path("runs").glob("*/1/metrics.json")
    found = json.loads(alone.read_text())
    swept = metrics("encoder-rff_sigma-3")
    assert found["encoder"] == swept["encoder"]
    assert found["encoder"]["sigma"] == 3
    assert found["test/psnr_per_signal"] == swept["test/psnr_per_signal"]
    assert found["steps"] == swept["steps"] == 7


def test_seeds_alone_are_a_sweep(capsys):
    rff = ["--model.encoder", "{name: rff, num_features: 16, sigma: 0.1}", *QUIET, "--out", "s"]
    assert main(["sweep", *EXACT, *rff]) == 2
    assert "--vary model.encoder=gau,tri, or a number of seeds, --repeats 3" in capsys.readouterr().err
    assert main(["sweep", *EXACT, *rff, "--repeats", "2"]) == 0
    assert statuses() == {"repeat-0": "done", "repeat-1": "done"}
    assert metrics("repeat-0")["test/psnr"] != metrics("repeat-1")["test/psnr"]


@pytest.mark.slow  # four fits
def test_repeats_count_seeds_up_and_are_averaged_in_the_metric_of_the_data(capsys, monkeypatch):
    monkeypatch.setattr(ImageSource, "metric", "snr")
    assert main(["sweep", *EXACT, *QUIET, *ENCODERS, "--repeats", "2", "--seed_everything", "5"]) == 0
    found = {name: metrics(name) for name in record()}
    assert [m["seed"] for m in found.values()] == [5, 6, 5, 6]
    assert [found[f"encoder-rff_repeat-{n}"]["encoder"]["seed"] for n in (0, 1)] == [5, 6]
    assert found["encoder-rff_repeat-0"]["test/snr"] != found["encoder-rff_repeat-1"]["test/snr"]
    assert record()["encoder-rff_repeat-0"]["test/snr"] == found["encoder-rff_repeat-0"]["test/snr"]
    assert len({m["data_fingerprint"] for m in found.values()}) == 1
    shown = capsys.readouterr().out
    mean = sum(found[f"encoder-rff_repeat-{n}"]["test/snr"] for n in (0, 1)) / 2
    assert f"{mean:.2f} ±" in shown
    assert "PSNR" not in shown


@pytest.mark.slow  # four fits
def test_the_same_command_again_runs_nothing_and_another_never_overwrites(capsys):
    command = ["sweep", *EXACT, *QUIET, *ENCODERS]
    assert main(command) == 0
    before = {path: path.stat().st_mtime_ns for path in Path("s").glob("*/metrics.json")}
    assert main([*command[:-4], "--vary", "model.encoder=tri,rff", "--out", "s"]) == 0
    assert capsys.readouterr().err.count("finished before") == 1
    assert statuses() == dict.fromkeys(["encoder-gau", "encoder-rff", "encoder-tri"], "done")
    assert main(["sweep", *EXACT[:-1], "0.02", *QUIET, *ENCODERS]) == 2
    assert "model.ridge: 0.01, now 0.02" in capsys.readouterr().err
    Path("s/encoder-keys").mkdir()
    assert main([*command[:-4], "--vary", "model.encoder=gau,keys", "--out", "s"]) == 2
    assert "is not a run of this sweep" in capsys.readouterr().err
    Path("t").mkdir()
    Path("t/thesis.tex").write_text("years of work")
    assert main([*command[:-1], "t"]) == 2
    assert "is not the folder of a sweep" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(list(Path("t").iterdir())) == 1


def contents(folder: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.slow  # four fits
def test_an_unfinished_cell_is_resumed_started_or_refused_and_never_deleted(capsys):
    cell = Path("s/encoder-gau")
    command = ["sweep", *TRAINED, *QUIET, "--vary", "model.encoder=gau", "--out", "s", "--trainer.max_steps"]
    assert main([*command, "10"]) == 0
    expected = torch.load(cell / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    (cell / "metrics.json").unlink()
    (cell / "mine.txt").write_text("mine")
    before = contents("s")
    assert main([*command, "20"]) == 2
    assert "trainer.max_steps: 10, now 20" in capsys.readouterr().err
    assert contents("s") == before
    (cell / "config.yaml").rename("config.yaml")
    assert main([*command, "10"]) == 2
    assert "does not say with which settings" in capsys.readouterr().err
    Path("config.yaml").rename(cell / "config.yaml")
    assert contents("s") == before
    os.truncate(cell / "checkpoints/last.ckpt", 900)
    assert main([*command, "10"]) == 0
    assert "resumed from best.ckpt" in capsys.readouterr().err
    found = torch.load(cell / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    assert all(torch.equal(found[name], value) for name, value in expected.items() if value is not None)
    (cell / "metrics.json").unlink()
    for path in cell.glob("checkpoints/*.ckpt"):
        os.truncate(path, 900)
    before = contents(str(cell))
    assert main([*command, "10"]) == 1
    assert "move '" in record()["encoder-gau"]["error"]
    assert contents(str(cell)) == before
    for path in (cell / "checkpoints/last.ckpt", cell / "checkpoints/best.ckpt", cell / "config.yaml"):
        path.unlink()
    assert main([*command, "10"]) == 0, "nothing is there to resume from"
    assert (cell / "mine.txt").read_text() == "mine"


@pytest.mark.slow  # several fits
def test_replaced_content_is_not_finished_before(capsys):
    pictures = np.random.default_rng(0).integers(0, 255, (2, 20, 20), dtype=np.uint8)
    Image.fromarray(pictures[0]).save("a.bmp")
    times = Path("a.bmp").stat()
    command = ["sweep", "a.bmp", *SMALL[2:], "--model.ridge", "0.01", *QUIET, *ENCODERS]
    assert main(command) == 0
    before = contents("s")
    Image.fromarray(pictures[1]).save("a.bmp")
    os.utime("a.bmp", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert Path("a.bmp").stat().st_size == times.st_size
    assert main(command) == 2
    assert "content of the data: " in capsys.readouterr().err
    assert contents("s") == before


@pytest.mark.slow  # several fits
def test_refused_failing_and_broken_cells_are_reported_and_the_others_finish(capsys, monkeypatch):
    def broken(self, *arguments):
        raise RuntimeError("out of luck")

    monkeypatch.setattr("pe_lightning.encoders.Triangle.forward", broken)
    vary = ["--vary", "model.encoder={name: gau, sigma: -1},gau,tri", "--vary", "data.sampling.stride=2,500", "--out", "s"]
    assert main(["sweep", *EXACT, *QUIET, *vary]) == 1
    found = list(record().values())
    assert [cell["status"] for cell in found] == ["refused", "refused", "done", "failed", "failed", "failed"]
    assert "must be a positive number" in found[0]["error"]
    assert "500" in record()["encoder-gau_stride-500"]["error"]
    assert record()["encoder-tri_stride-2"]["error"] == "RuntimeError: out of luck"
    assert "in broken" in record()["encoder-tri_stride-2"]["traceback"]
    shown = capsys.readouterr().err
    assert "refused: Gaussian: sigma must be a positive number" in shown
    assert "5 of 6 cells failed" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--vary", "model.encodr=gau,tri"], ["ComplexLinear has no argument 'encodr'; did you mean 'encoder'"]),
        (["--vary", "model.ridge=0.1", "--data.paths", "nowhere.png"], ["no such file or folder: 'nowhere.png'"]),
        (["--vary", "model.ridge=0.1", "--cpus_per_cell", "2"], ["--cpus_per_cell needs --launcher ray"]),
        (["--vary", "model.ridge=0.1", "--launcher", "ray"], ['pip install "pe-lightning[ray]"']),
    ],
)
def test_nothing_to_run_is_an_error_before_anything_starts(capsys, monkeypatch, arguments, words):
    monkeypatch.setitem(sys.modules, "ray", None)
    config = ["--config", str(ROOT / "configs/image/closed_form.yaml")]
    assert main(["sweep", *config, *QUIET, *arguments]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("pe-lightning: error: ")
    for word in words:
        assert word in last
    assert not list(Path().iterdir())


@pytest.mark.slow  # starts processes of W&B
def test_runs_that_are_grouped_in_wandb_have_the_error_bars_of_compare():
    """By the group and by keys of the configuration, which W&B groups by only where no key has a dot."""
    assert main(["sweep", *EXACT, "--vary", "model.encoder=gau,rff", "--repeats", "2"]) == 0
    folder = Path("sweeps/closed_form-encoder")
    groups: dict[tuple, list[tuple[int, float]]] = {}
    for file in folder.glob("*/wandb/offline-run-*/*.wandb"):
        config, group, tags = settings(file)
        assert not any("." in key for tree in (config, config["encoder"], config["solution"]) for key in tree)
        assert len(config["solution"]) <= 6, "the values that one compares"
        name = config["encoder"]["name"]
        assert tags == ["closed_form-encoder", f"encoder={name}"]
        found = groups.setdefault((group, name), [])
        found.append((config["seed"], logged(file)["test/psnr"][0]))
    assert groups.keys() == {(f"closed_form-encoder/encoder-{name}", name) for name in ("gau", "rff")}
    (table,) = compare(find_runs([folder]).runs, "encoder.name")
    for row in table.fitted:
        seeds, scores = zip(*sorted(groups[f"closed_form-encoder/encoder-{row.name}", row.name]), strict=True)
        assert seeds == (0, 1)
        assert (row.mean, row.run_deviation) == pytest.approx((np.mean(scores), np.std(scores, ddof=1)))
        assert (row.run_deviation > 0.01) == (row.name == "rff"), "seeds draw other frequencies"


@pytest.mark.slow  # several fits
def test_an_interrupt_lets_the_cell_finish_and_the_same_command_goes_on(capsys, monkeypatch):
    command = ["sweep", *TRAINED, *QUIET, *ENCODERS, "--trainer.max_steps", "20", *stopped(12, 2)]
    assert main(command) == 130
    assert metrics("encoder-gau")["steps"] == 20, "all of them"
    assert statuses() == {"encoder-gau": "done", "encoder-rff": "waiting"}
    assert "1 cell(s) left" in capsys.readouterr().err
    assert main(command) == 0, "an interrupt in the last cell leaves nothing to do"
    assert statuses() == {"encoder-gau": "done", "encoder-rff": "done"}


@pytest.mark.slow
def test_sigterm_stops_the_fit_of_a_sweep_with_early_stopping_and_the_same_command_resumes_it(capsys):
    command = ["sweep", *TRAINED, *QUIET, "--vary", "model.encoder=gau,rff", *act("gau", 12, "terminate")]
    command += ["--trainer.callbacks+", "EarlyStopping", "--trainer.callbacks.monitor", "val/psnr"]
    command += ["--trainer.callbacks.mode", "max", "--trainer.max_steps", "20", "--out"]
    assert main([*command, "s"]) == 143
    assert statuses() == {"encoder-gau": "waiting", "encoder-rff": "waiting"}
    assert not Path("s/encoder-gau/metrics.json").exists()
    assert "2 cell(s) left; the same command resumes the sweep" in capsys.readouterr().err
    assert main([*command, "s"]) == 0
    assert statuses() == {"encoder-gau": "done", "encoder-rff": "done"}
    assert [line for line in capsys.readouterr().err.splitlines() if "encoder-gau: " in line and "resumed" in line]
    command[command.index("model.encoder=gau,rff")] = "model.encoder=gau"
    assert main([*command, "whole"]) == 0
    expected = json.loads(Path("whole/encoder-gau/metrics.json").read_text())
    assert metrics("encoder-gau")["test/psnr"] == expected["test/psnr"]


@pytest.mark.slow
def test_a_killed_sweep_is_resumed_and_gives_the_runs_of_one_that_was_not(capsys, tmp_path):
    """The second cell is killed at step 17 of 20 and resumed from step 10."""
    command = ["sweep", *TRAINED, *QUIET, "--vary", "model.encoder=gau,rff", *act("rff", 17, "die")]
    command += ["--trainer.max_steps", "20", "--out"]
    paths = os.pathsep.join(map(str, [ROOT, ROOT / "tests"]))
    killed = run_command(Path(), *command, "s", environment={"PYTHONPATH": paths})
    assert killed.returncode == -9
    assert statuses() == {"encoder-gau": "done", "encoder-rff": "running"}
    first = Path("s/encoder-gau/metrics.json").stat().st_mtime_ns
    assert main([*command, "s"]) == 0
    assert [line for line in capsys.readouterr().err.splitlines() if "encoder-rff: " in line and "resumed" in line]
    assert set(statuses().values()) == {"done"}
    assert Path("s/encoder-gau/metrics.json").stat().st_mtime_ns == first
    command[command.index("model.encoder=gau,rff")] = "model.encoder=rff"
    assert main([*command, "whole"]) == 0
    expected = json.loads(Path("whole/encoder-rff/metrics.json").read_text())
    assert metrics("encoder-rff")["test/psnr"] == pytest.approx(expected["test/psnr"], abs=1e-4)
