"""Sweeps on Ray: the same runs as in one process, a process that dies, and Ctrl-C."""

import importlib.util
import json
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from stopping import act

# looked up, not imported: these tests are collected with all others, and Ray takes a second
missing = importlib.util.find_spec("ray") is None
pytestmark = [
    pytest.mark.stress,
    pytest.mark.skipif(missing, reason='Ray is not installed: pip install "pe-lightning[ray]"'),
]

ROOT = Path(__file__).parents[3]
FIXED = ["--config", str(ROOT / "configs/image/demo.yaml"), "--data.resize", "32", "--model.encoder.num_features", "16"]
FIXED += ["--trainer.accelerator", "cpu", "--data.batching.steps_per_epoch", "10", "--trainer.log_every_n_steps", "5"]
FIXED += ["--wandb.enabled", "false", "--out", "s", "--trainer.max_steps", "90"]
DRIVER = """
import os, sys, ray
start = ray.init
ray.init = lambda **options: start(num_cpus=2, **options)
open("driver", "w").write(str(os.getpid()))
from pe_lightning.__main__ import main
sys.exit(main())
"""
"""``pe-lightning`` with a cluster of two CPUs, however many the machine has."""


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """Runs ``pe-lightning sweep`` in a process group of its own; clusters leave no token in the user's home."""
    monkeypatch.chdir(tmp_path)
    token = tmp_path.parent / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "RAY_AUTH_TOKEN_PATH": str(token)}
    environment |= {"OMP_NUM_THREADS": "1"}
    environment.pop("RAY_ADDRESS", None)

    def run(*arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-c", DRIVER, "sweep", *FIXED, *arguments]
        options = {"capture_output": True, "text": True, "check": False, "timeout": 300, "start_new_session": True}
        return subprocess.run(command, env=environment, **options)

    return run


def record() -> dict:
    cells = json.loads(Path("s/sweep.json").read_text())["cells"]
    return {cell["name"].removeprefix("encoder-"): cell for cell in cells}


def statuses() -> dict:
    return {name: cell["status"] for name, cell in record().items()}


def test_a_process_that_dies_fails_its_cell_and_ctrl_c_and_resuming_give_the_runs_of_one_process(sweep):
    """The cell with rff dies at step 27; Ctrl-C comes in the one with tri; the other launcher resumes the sweep."""
    command = ["--vary", "model.encoder=gau,rff,tri,rect,keys", *act("rff", 27, "die"), *act("tri", 12, "interrupt")]
    command += act("gau", 3, "warn")
    first = sweep(*command, "--launcher", "ray", "--cpus_per_cell", "2")
    assert first.returncode == 130, first.stderr
    assert statuses() == {"gau": "done", "rff": "failed", "tri": "done", "rect": "waiting", "keys": "waiting"}
    assert "its process died" in record()["rff"]["error"]
    assert "Stopping after the running fits" in first.stderr
    assert "2 cell(s) left" in first.stderr
    assert "encoder-gau: warning: the cell has something to say" in first.stderr
    pids, threads = zip(*(line.split() for line in Path("workers").read_text().splitlines()), strict=True)
    assert len(set(pids)) >= 2, "another process in place of the dead one"
    assert set(threads) == {"2"}
    again = sweep(*command)
    assert again.returncode == 0, again.stderr
    assert [line for line in again.stderr.splitlines() if "encoder-rff: " in line and "resumed" in line]
    assert again.stderr.count("finished before") == 2
    assert set(statuses().values()) == {"done"}


def test_a_cell_whose_process_dies_is_resumed_in_another_and_has_the_scores_of_one_process(sweep):
    command = ["--vary", "model.encoder=rff,tri", *act("rff", 27, "die")]
    first = sweep(*command, "--launcher", "ray", "--retries", "1")
    assert first.returncode == 0, first.stderr
    assert set(statuses().values()) == {"done"}
    assert [line for line in first.stderr.splitlines() if "encoder-rff: " in line and "resumed" in line]
    assert "usage stat" not in first.stdout + first.stderr
    Path("s").rename("on-ray")
    assert sweep(*command).returncode == 0
    for name in ("encoder-rff", "encoder-tri"):
        swept, expected = (json.loads((Path(folder) / name / "metrics.json").read_text()) for folder in ("on-ray", "s"))
        for key in ("test/psnr_per_signal", "train/psnr_per_signal", "test/ssim", "steps", "seed", "encoder", "baselines"):
            assert swept[key] == expected[key], key
        found, here = ((Path(folder) / name / "config.yaml").read_text() for folder in ("on-ray", "s"))
        assert yaml.safe_load(found) == yaml.safe_load(here)
        assert re.search("^# .* sweep .*--vary model.encoder=rff,tri.* --launcher ray", found, re.MULTILINE)
