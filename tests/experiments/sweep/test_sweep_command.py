"""Sweeps from end to end, on small pictures and exact fits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pe_lightning.__main__ import main
from pe_lightning.callbacks import report
from pe_lightning.data import ImageDataModule
from pe_lightning.errors import InputError
from pe_lightning.experiments.sweep.ray_launcher import check_cells
from pe_lightning.experiments.sweep.share import Share

ROOT = Path(__file__).parents[3]
SMALL = ["--data.resize", "32", "--model.encoder.num_features", "16", "--trainer.accelerator", "cpu"]
QUIET = ["--wandb.enabled", "false"]
EXACT = ["--config", str(ROOT / "configs/image/closed_form.yaml"), *SMALL, "--model.ridge", "0.01"]
TRAINED = ["--config", str(ROOT / "configs/image/demo.yaml"), *SMALL, "--data.steps_per_epoch", "10"]
TRAINED += ["--trainer.log_every_n_steps", "5"]
ENCODERS = ["--vary", "model.encoder=gau,rff", "--out", "s"]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for variable in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


def record(folder: str = "s") -> dict:
    content = json.loads((Path(folder) / "sweep.json").read_text())
    return {cell["name"]: cell for cell in content["cells"]}


def statuses(folder: str = "s") -> dict:
    return {name: cell["status"] for name, cell in record(folder).items()}


def metrics(run: str) -> dict:
    return json.loads((Path("s") / run / "metrics.json").read_text())


def test_every_combination_is_a_run_and_the_data_is_read_once(capsys, monkeypatch):
    loaded = []
    monkeypatch.setattr(ImageDataModule, "read", lambda self, read=ImageDataModule.read: (loaded.append(1), read(self))[1])
    vary = ["--vary", "model.encoder.num_features=8,12", "--data.cache", "off"]
    fixed = [argument for argument in EXACT if argument not in ("--model.encoder.num_features", "16")]
    assert main(["sweep", *fixed, *QUIET, *ENCODERS, *vary]) == 0
    names = [f"encoder-{encoder}_num_features-{k}" for encoder in ("gau", "rff") for k in (8, 12)]
    assert statuses() == dict.fromkeys(names, "done")
    assert len(loaded) == 1
    for name in names:
        found, config = metrics(name), yaml.safe_load((Path("s") / name / "config.yaml").read_text())
        assert name == f"encoder-{found['encoder']['name']}_num_features-{found['encoder']['num_features']}"
        assert config["wandb"]["group"] == "s"
        assert record()[name]["test/psnr"] == found["test/psnr"]
        assert (Path("s") / name / "reconstructions/astronaut.png").is_file()
    shown = capsys.readouterr()
    table = [line.split()[0] for line in shown.out.splitlines() if line.startswith(" s/")]
    assert sorted(table, key=lambda line: -metrics(line[2:])["test/psnr"]) == table, "best first"
    assert len(table) == 4
    assert "4/4 encoder-rff_num_features-12" in shown.err
    assert "test PSNR (rest)" not in shown.out, "the runs' own tables are left out"


def test_interpolation_is_scored_once_for_all_cells_with_the_same_data(monkeypatch):
    scored = []
    monkeypatch.setattr(
        report, "interpolate", lambda *given, do=report.interpolate: (scored.append(given[0]), do(*given))[1]
    )
    assert main(["sweep", *EXACT, *QUIET, *ENCODERS, "--vary", "data.sampling.stride=2,4"]) == 0
    assert sorted(scored) == 2 * ["bicubic"] + 2 * ["linear"] + 2 * ["nearest"] + 2 * ["spline"]
    found = {(name[8:11], name[-1]): metrics(name)["baselines"] for name in record()}
    assert found["gau", "2"] == found["rff", "2"] != found["gau", "4"] == found["rff", "4"]


def test_a_cell_is_the_same_as_a_fit_with_the_arguments_in_the_record(capsys):
    assert (
        main(["sweep", *TRAINED, *QUIET, "--trainer.max_steps", "7", *ENCODERS, "--vary", "model.encoder.sigma=0.02,3"]) == 0
    )
    cell = record()["encoder-rff_sigma-3"]
    assert main(["fit", *cell["arguments"]]) == 0
    (alone,) = Path("runs").glob("*/1/metrics.json")
    found = json.loads(alone.read_text())
    swept = metrics("encoder-rff_sigma-3")
    assert found["encoder"] == swept["encoder"]
    assert found["encoder"]["sigma"] == 3
    assert found["test/psnr_per_signal"] == swept["test/psnr_per_signal"]
    assert found["data_fingerprint"] == swept["data_fingerprint"]
    assert found["steps"] == swept["steps"] == 7


def test_the_same_command_again_runs_nothing_and_more_values_only_those(capsys):
    assert main(["sweep", *EXACT, *QUIET, *ENCODERS]) == 0
    before = {path: path.stat().st_mtime_ns for path in Path("s").glob("*/metrics.json")}
    assert main(["sweep", *EXACT, *QUIET, *ENCODERS]) == 0
    assert "finished before" in capsys.readouterr().err
    assert main(["sweep", *EXACT, *QUIET, "--vary", "model.encoder=tri,rff", "--out", "s"]) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert statuses() == dict.fromkeys(["encoder-gau", "encoder-rff", "encoder-tri"], "done")


def test_a_finished_sweep_with_other_settings_is_refused_and_left_alone(capsys):
    assert main(["sweep", *EXACT, *QUIET, *ENCODERS]) == 0
    before = {path: path.stat().st_mtime_ns for path in Path("s").rglob("*")}
    other = [*EXACT[:-1], "0.02"]
    assert main(["sweep", *other, *QUIET, *ENCODERS]) == 2
    message = capsys.readouterr().err
    assert "model.ridge: 0.01, now 0.02" in message
    assert "--out" in message
    assert {path: path.stat().st_mtime_ns for path in Path("s").rglob("*")} == before


def test_refused_and_failing_cells_are_reported_and_the_others_finish(capsys):
    vary = ["--vary", "model.encoder.sigma=-1,0.05", "--vary", "data.sampling.stride=2,500", "--out", "s"]
    assert main(["sweep", *EXACT, *QUIET, *vary]) == 1
    assert statuses() == {
        "sigma--1_stride-2": "refused",
        "sigma--1_stride-500": "refused",
        "sigma-0.05_stride-2": "done",
        "sigma-0.05_stride-500": "failed",
    }
    assert "must be a positive number" in record()["sigma--1_stride-2"]["error"]
    assert "500" in record()["sigma-0.05_stride-500"]["error"]
    shown = capsys.readouterr().err
    assert "sigma--1_stride-2: refused: Gaussian: sigma must be a positive number" in shown
    assert "3 of 4 cells failed" in shown
    assert main(["sweep", *EXACT, *QUIET, *vary]) == 1, "what failed is tried again, and fails again"


def test_a_cell_that_breaks_leaves_its_traceback_in_the_record(monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("out of luck")

    assert main(["sweep", *TRAINED, *QUIET, "--trainer.max_steps", "2", "--vary", "model.ridge=1", "--out", "s"]) == 0
    monkeypatch.setattr("pe_lightning.modules.complex_linear.solve_data", broken)
    vary = ["--vary", "model.warm_start=true,false", "--out", "t"]
    assert main(["sweep", *TRAINED, *QUIET, "--trainer.max_steps", "2", *vary]) == 1
    cell = record("t")["warm_start-true"]
    assert cell["error"] == "RuntimeError: out of luck"
    assert "in broken" in cell["traceback"]
    assert record("t")["warm_start-false"]["status"] == "done"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--vary", "model.encodr=gau,tri"], ["encodr"]),
        (["--vary", "model.encoder.sigm=1,2"], ["Gaussian has no argument 'sigm'", "'sigma'"]),
        (["--vary", "model.encoder=gua"], ["unknown encoder 'gua'", "did you mean 'gau'?"]),
        (["--vary", "trainer.max_step=1,2"], ["max_step"]),
        (["--vary", "model.ridge=wide,high"], ["ridge"]),
        (["--vary", "model.ridge=0.1", "--data.paths", "nowhere.png"], ["nowhere.png"]),
        (["--vary", "model.ridge=0.1", "--config", "nowhere.yaml"], ["nowhere.yaml"]),
        (["--config", "nowhere.yaml"], ["varies something"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and value[0].startswith("--") else "",
)
def test_nothing_to_run_is_an_error_before_anything_starts(capsys, arguments, words):
    config = ["--config", str(ROOT / "configs/image/closed_form.yaml")]
    assert main(["sweep", *config, *QUIET, *arguments]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("pe-lightning: error: ")
    for word in words:
        assert word in lines[-1]
    assert not list(Path().iterdir())


def test_a_cluster_without_ray_is_an_error_before_anything_starts(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("pe_lightning.experiments.sweep.command.Fits", None)
    assert main(["sweep", *EXACT, *QUIET, *ENCODERS, "--launcher", "ray"]) == 2
    assert 'pip install "pe-lightning[ray]"' in capsys.readouterr().err
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    ("trainer", "gpus", "words"),
    [
        ({"accelerator": "gpu"}, 0, "needs --gpus_per_cell 1"),
        ({"accelerator": "cuda"}, 0, "needs --gpus_per_cell 1"),
        ({"accelerator": "cpu"}, 0.5, "leaves no use for --gpus_per_cell"),
        ({"devices": [1]}, 1, r"--trainer.devices 1 \(now \[1\]\)"),
    ],
)
def test_ray_chooses_the_devices(trainer, gpus, words):
    plain = {"trainer": {"accelerator": "auto", "devices": 1}}
    check_cells([plain], Share(1, gpus))
    with pytest.raises(InputError, match=words):
        check_cells([plain, {"trainer": plain["trainer"] | trainer}], Share(1, gpus))


def test_a_folder_of_something_else_is_left_alone(capsys):
    Path("s").mkdir()
    Path("s/thesis.tex").write_text("years of work")
    assert main(["sweep", *EXACT, *QUIET, *ENCODERS]) == 2
    assert "is no sweep" in capsys.readouterr().err
    assert [path.name for path in Path("s").iterdir()] == ["thesis.tex"]
    Path("t").mkdir()
    Path("t/sweep.json").write_text("{")
    assert main(["sweep", *EXACT, *QUIET, *ENCODERS[:-1], "t"]) == 2
    assert "cannot be read as the record" in capsys.readouterr().err


def test_a_run_in_the_way_is_not_overwritten(capsys):
    assert main(["sweep", *EXACT, *QUIET, "--vary", "model.encoder=gau", "--out", "s"]) == 0
    Path("s/encoder-rff").mkdir()
    Path("s/encoder-rff/notes.txt").write_text("mine")
    assert main(["sweep", *EXACT, *QUIET, *ENCODERS]) == 2
    assert "is in the way" in capsys.readouterr().err
    assert Path("s/encoder-rff/notes.txt").is_file()


def test_repeats_count_seeds_up_and_are_averaged(capsys):
    assert main(["sweep", *EXACT, *QUIET, *ENCODERS, "--repeats", "2", "--seed_everything", "5"]) == 0
    found = {name: metrics(name) for name in record()}
    assert {name: m["seed"] for name, m in found.items()} == {
        "encoder-gau_repeat-0": 5,
        "encoder-gau_repeat-1": 6,
        "encoder-rff_repeat-0": 5,
        "encoder-rff_repeat-1": 6,
    }
    assert [found[f"encoder-rff_repeat-{n}"]["encoder"]["seed"] for n in (0, 1)] == [0, 1]
    assert found["encoder-rff_repeat-0"]["test/psnr"] != found["encoder-rff_repeat-1"]["test/psnr"]
    assert found["encoder-gau_repeat-0"]["test/psnr"] == found["encoder-gau_repeat-1"]["test/psnr"]
    assert len({m["data_fingerprint"] for m in found.values()}) == 1
    shown = capsys.readouterr().out
    mean = sum(found[f"encoder-rff_repeat-{n}"]["test/psnr"] for n in (0, 1)) / 2
    assert f"{mean:.2f} ±" in shown


def test_every_cell_is_a_wandb_run_of_the_group():
    assert main(["sweep", *EXACT, *ENCODERS]) == 0
    ids = set()
    for name in ("encoder-gau", "encoder-rff"):
        (offline,) = (Path("s") / name / "wandb").glob("offline-run-*")
        (file,) = offline.glob("*.wandb")
        content = file.read_bytes()
        assert f"s-{name}".encode() in content
        assert len(content) > 5_000
        assert (offline / "files/wandb-summary.json").is_file() or b"test/psnr" in content, "finished"
        ids.add(offline.name.rpartition("-")[2])
    assert len(ids) == 2


def stopped(step: int, signum: int) -> list[str]:
    return [
        "--trainer.callbacks+", "stopping.SignalAt", "--trainer.callbacks.step", str(step),
        "--trainer.callbacks.signum", str(signum),
    ]  # fmt: skip


def test_an_interrupt_lets_the_cell_finish_and_the_same_command_goes_on(capsys, monkeypatch):
    command = ["sweep", *TRAINED, *QUIET, *ENCODERS, "--trainer.max_steps", "20", *stopped(12, 2)]
    assert main(command) == 130
    assert metrics("encoder-gau")["steps"] == 20, "all of them"
    assert statuses() == {"encoder-gau": "done", "encoder-rff": "waiting"}
    assert "1 cell(s) left" in capsys.readouterr().err
    assert main(command) == 0, "an interrupt in the last cell leaves nothing to do"
    assert statuses() == {"encoder-gau": "done", "encoder-rff": "done"}


def sweep(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pe_lightning", "sweep", *arguments]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300, env=environment)


@pytest.mark.slow
def test_a_killed_sweep_goes_on_where_it_was(tmp_path):
    """The second cell is killed at step 27 of 40 and resumed from step 20; both commands are the same."""
    helper = "import os\nfrom lightning.pytorch import Callback\n\nclass KillOnce(Callback):\n"
    helper += "    def on_train_batch_end(self, trainer, module, *_):\n"
    helper += (
        "        if trainer.global_step == 27 and module.prototypes[0].name == 'rff' and not os.path.exists('killed'):\n"
    )
    helper += "            open('killed', 'w').close()\n            os.kill(os.getpid(), 9)\n"
    Path("killing.py").write_text(helper)
    command = [*TRAINED, *QUIET, "--vary", "model.encoder=gau,rff,tri", "--out", "s", "--trainer.max_steps", "40"]
    command += ["--trainer.callbacks+", "killing.KillOnce"]
    assert sweep(tmp_path, *command).returncode == -9
    assert statuses() == {"encoder-gau": "done", "encoder-rff": "running", "encoder-tri": "waiting"}
    first = Path("s/encoder-gau/metrics.json").stat().st_mtime_ns
    again = sweep(tmp_path, *command)
    assert again.returncode == 0, again.stderr
    assert "encoder-rff: " in again.stderr
    assert "resumed" in again.stderr
    assert set(statuses().values()) == {"done"}
    assert Path("s/encoder-gau/metrics.json").stat().st_mtime_ns == first
    whole = sweep(tmp_path, *command[: command.index("--out")], "--out", "whole", *command[command.index("--out") + 2 :])
    assert whole.returncode == 0, whole.stderr
    expected = json.loads(Path("whole/encoder-rff/metrics.json").read_text())
    assert metrics("encoder-rff")["test/psnr"] == expected["test/psnr"]
