"""Sweeps on a Ray cluster of two CPUs on this machine."""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pe_lightning.__main__ import main
from pe_lightning.experiments.sweep import ray_launcher

ray = pytest.importorskip("ray", reason='Ray is not installed: pip install "pe-lightning[ray]"')
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
FIXED = ["--config", str(ROOT / "configs/image/demo.yaml"), "--data.resize", "32", "--model.encoder.num_features", "16"]
FIXED += ["--trainer.accelerator", "cpu", "--data.steps_per_epoch", "10", "--trainer.log_every_n_steps", "5"]
FIXED += ["--wandb.enabled", "false", "--out", "s"]
RAY = ["--launcher", "ray"]
VARY = ["--vary", "model.encoder=gau,rff,tri,rect"]
PYTHONPATH = os.pathsep.join(map(str, [ROOT, ROOT / "tests/experiments/sweep"]))

DRIVER = """
import os, sys
open("driver", "w").write(str(os.getpid()))
import ray
ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
from pe_lightning.__main__ import main
from pe_lightning.experiments.sweep import interrupt
hear = interrupt.AfterThis._hear
def heard(self, *signal):
    hear(self, *signal)
    open("heard", "w").close()
interrupt.AfterThis._hear = heard
sys.exit(main(sys.argv[1:]))
"""
"""``pe-lightning`` with a cluster of two CPUs, however many the machine has; it leaves a file when it hears a signal."""


@pytest.fixture(scope="module", autouse=True)
def surroundings(tmp_path_factory):
    """Workers find the parts of these tests; clusters have a token of their own and leave none in the user's home."""
    token = tmp_path_factory.mktemp("ray") / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PYTHONPATH)
        patch.delenv("RAY_AUTH_MODE", raising=False)  # Ray 2.60 makes clusters with a token by itself
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
        patch.delenv("RAY_ADDRESS", raising=False)
        yield


@pytest.fixture(scope="module")
def cluster(surroundings):
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def act(cell: str, step: int, deed: str) -> list[str]:
    options = {"cell": cell, "step": step, "deed": deed}
    given = [part for key, value in options.items() for part in (f"--trainer.callbacks.{key}", str(value))]
    return ["--trainer.callbacks+", "cluster_parts.Act", *given]


def record() -> dict:
    return {cell["name"]: cell for cell in json.loads(Path("s/sweep.json").read_text())["cells"]}


def statuses() -> dict:
    return {name.removeprefix("encoder-"): cell["status"] for name, cell in record().items()}


def metrics(run: str) -> dict:
    return json.loads((Path("s") / run / "metrics.json").read_text())


def process(*command: str, **variables: str) -> subprocess.CompletedProcess:
    options = {"capture_output": True, "text": True, "check": False, "timeout": 300, "env": {**os.environ, **variables}}
    return subprocess.run([sys.executable, *command], start_new_session=True, **options)


def workers_are_gone() -> bool:
    left = []
    for pid in set(map(int, Path("workers").read_text().split())):
        try:
            left.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    return not psutil.wait_procs(left, timeout=30)[1]


def test_scores_are_those_of_one_process_to_the_last_digit_and_data_is_read_once_per_worker(cluster, capsys):
    """With one thread each; with other numbers of threads they agree to rounding."""
    data = ["--data", "cluster_parts.CountedImages", "--data.cache", "off"]
    command = ["sweep", *FIXED, *data, *VARY, "--trainer.max_steps", "20"]
    assert main([*command, *RAY, "--vary", "model.ridge=0.1,0.01"]) == 0
    reads = Path("reads").read_text().split()
    workers = [reader for reader in reads if reader != str(os.getpid())]
    assert 1 <= len(workers) == len(set(workers)) <= 2, "as many as there are CPUs, for eight cells"
    shown = capsys.readouterr()
    assert "8/8 " in shown.err
    assert sum(line.startswith(" s/encoder-") for line in shown.out.splitlines()) == 8
    swept = {name: metrics(name) for name in record()}
    assert set(cell["status"] for cell in record().values()) == {"done"}
    Path("s").rename("on-the-cluster")
    again = process("-m", "pe_lightning", *command, "--vary", "model.ridge=0.1,0.01", OMP_NUM_THREADS="1")
    assert again.returncode == 0, again.stderr
    for name, found in swept.items():
        expected = metrics(name)
        for key in ("test/psnr_per_signal", "train/psnr_per_signal", "test/ssim", "steps", "seed", "encoder", "baselines"):
            assert found[key] == expected[key], (name, key)
        configs = [(Path(folder) / name / "config.yaml").read_text() for folder in ("on-the-cluster", "s")]
        assert configs[0] == configs[1]


def test_finished_cells_are_kept_and_need_no_cluster(cluster, monkeypatch, capsys):
    command = ["sweep", *FIXED, *RAY, "--trainer.max_steps", "5"]
    assert main([*command, "--vary", "model.encoder=gau,rff"]) == 0
    before = {path: path.stat().st_mtime_ns for path in Path("s").glob("*/metrics.json")}
    assert main([*command, "--vary", "model.encoder=gau,rff,tri"]) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert capsys.readouterr().err.count("finished before") == 2
    monkeypatch.setattr(ray_launcher, "cluster", None)
    assert main([*command, "--vary", "model.encoder=gau,rff,tri"]) == 0
    assert main([*[a for a in command if a not in RAY], "--vary", "model.encoder=gau,rff"]) == 0, "nor the same launcher"


def test_a_worker_that_dies_fails_its_cell_and_the_others_finish(cluster, capsys):
    """There is room for one worker: a new one takes its place."""
    command = ["sweep", *FIXED, *RAY, "--cpus_per_cell", "2", *VARY, "--trainer.max_steps", "40", *act("rff", 27, "die")]
    assert main(command) == 1
    assert statuses() == {"gau": "done", "rff": "failed", "tri": "done", "rect": "done"}
    cell = record()["encoder-rff"]
    assert "the worker process died" in cell["error"]
    assert "connection error" in cell["traceback"], "what Ray says"
    shown = capsys.readouterr().err
    assert "encoder-rff: failed: the worker process died" in shown
    assert "1 of 4 cells failed" in shown
    assert main(command) == 0, "the same command tries it again"
    assert "encoder-rff: " in (shown := capsys.readouterr().err)
    assert "resumed" in shown
    assert metrics("encoder-rff")["steps"] == 40
    assert set(Path("threads").read_text().split()) == {"2"}
    assert workers_are_gone()


def test_refused_and_failing_cells_and_warnings_are_told(cluster, capsys):
    vary = ["--vary", "model.encoder=gau,rff", "--vary", "model.encoder.sigma=-1,0.05"]
    vary += ["--vary", "data.sampling.stride=2,500", *act("gau", 3, "warn")]
    assert main(["sweep", *FIXED, *RAY, *vary, "--trainer.max_steps", "5"]) == 1
    found = {name: cell["status"] for name, cell in record().items()}
    for name, status in found.items():
        expected = "refused" if "sigma--1" in name else "failed" if "stride-500" in name else "done"
        assert status == expected, name
    assert "500" in record()["encoder-gau_sigma-0.05_stride-500"]["error"]
    shown = capsys.readouterr().err
    assert set(Path("threads").read_text().split()) == {"1"}
    assert shown.count("encoder-gau_sigma-0.05_stride-2: warning: the cell has something to say") == 1


def test_a_machine_too_small_is_an_error_before_anything_starts(cluster, capsys):
    for option, words in [("--cpus_per_cell=64", "64 CPU(s)"), ("--gpus_per_cell=0.5", "1 CPU(s) and 0.5 GPU(s)")]:
        fixed = [*FIXED[:-2], "--trainer.accelerator=auto"]
        assert main(["sweep", *fixed, "--out", "s", *RAY, *VARY, option]) == 2
        assert f"no machine of the Ray cluster has {words} for a cell: 2 CPU(s) and 0 GPU(s)" in capsys.readouterr().err
    assert not Path("s").exists()


def test_workers_that_cannot_start_leave_the_cells_waiting(cluster, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(ray_launcher.Path, "cwd", lambda *_: tmp_path / "only on the first machine")
    assert main(["sweep", *FIXED, *RAY, *VARY]) == 2
    shown = capsys.readouterr().err
    assert "no worker of the Ray cluster can start: FileNotFoundError" in shown
    assert "only on the first machine" in shown
    assert set(statuses().values()) == {"waiting"}


def test_an_interrupt_lets_the_running_cells_finish(capsys):
    command = ["sweep", *FIXED, *RAY, *VARY, "--trainer.max_steps", "40", *act("gau", 12, "interrupt")]
    first = process("-c", DRIVER, *command)
    assert first.returncode == 130, first.stderr
    found = list(statuses().values())
    assert found.count("done") in (1, 2)
    assert found.count("waiting") == 4 - found.count("done")
    assert "Stopping after what is running now" in first.stderr
    assert "cell(s) left; the same command goes on" in first.stderr
    assert workers_are_gone()
    again = process("-c", DRIVER, *command)
    assert again.returncode == 0, again.stderr
    assert set(statuses().values()) == {"done"}
    assert {metrics(name)["steps"] for name in record()} == {40}, "all of them"


def test_a_second_interrupt_stops_at_once():
    command = ["sweep", *FIXED, *RAY, *VARY, "--trainer.max_steps", "1000000", *act("gau", 12, "interrupt twice")]
    stopped = process("-c", DRIVER, *command)
    assert stopped.returncode == 130, stopped.stderr
    assert statuses()["gau"] == "running"
    assert "done" not in statuses().values()
    assert workers_are_gone()


def test_a_killed_sweep_ends_its_workers_and_goes_on_where_it_was():
    command = ["sweep", *FIXED, *RAY, *VARY, "--trainer.max_steps", "400", *act("gau", 27, "kill")]
    killed = process("-c", DRIVER, *command)
    assert killed.returncode == -9
    assert statuses()["gau"] == "running"
    assert workers_are_gone()
    again = process("-m", "pe_lightning", *[part for part in command if part not in RAY])  # another launcher goes on too
    assert again.returncode == 0, again.stderr
    (line,) = (line for line in again.stderr.splitlines() if "encoder-gau: " in line)
    assert "resumed" in line
    assert set(statuses().values()) == {"done"}
    assert metrics("encoder-gau")["steps"] == 400


def test_without_a_cluster_one_is_started_and_ended():
    alone = process(
        "-m", "pe_lightning", "sweep", *FIXED, *RAY, "--vary", "model.encoder=gau,rff", "--trainer.max_steps", "5"
    )
    assert alone.returncode == 0, alone.stderr
    assert "usage stat" not in alone.stdout + alone.stderr
    assert set(statuses().values()) == {"done"}


def test_the_cluster_that_ray_address_names_is_used_and_left_running(cluster):
    command = ["-m", "pe_lightning", "sweep", *FIXED, *RAY, "--vary", "model.encoder=gau,rff", "--trainer.max_steps", "5"]
    lost = process(*command, RAY_ADDRESS="here:and:there")
    assert lost.returncode == 2
    assert "cannot reach the Ray cluster at RAY_ADDRESS=here:and:there" in lost.stderr.splitlines()[-1]
    assert not Path("s").exists()
    address = ray.get_runtime_context().gcs_address
    here = {"RAY_ADDRESS": address, "RAY_AUTH_MODE": "token"}
    found = process(*command, "--gpus_per_cell", "1", "--trainer.accelerator", "auto", **here)
    assert "no machine of the Ray cluster has 1 CPU(s) and 1 GPU(s) for a cell: 2 CPU(s)" in found.stderr, "it is this one"
    found = process(*command, **here)
    assert found.returncode == 0, found.stderr
    assert set(statuses().values()) == {"done"}
    assert ray.cluster_resources()["CPU"] == 2
