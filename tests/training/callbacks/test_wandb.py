"""What a fit gives W&B: the settings of its run, its configuration, history, media and checkpoint."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import wandb
from commands import DEMO, fit, metrics
from stopping import run_command
from wandb.sdk.wandb_run import Run

from pe_lightning.__main__ import main
from pe_lightning.training.callbacks import loggers

ROOT = Path(__file__).parents[3]


def spied(patch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The runs that are begun with their settings, rows of the history, definitions of metrics, kinds of artifacts."""
    found = SimpleNamespace(runs=[], settings=[], rows=[], defined={}, artifacts=[])
    init, log, define, artifact = wandb.init, Run.log, Run.define_metric, Run.log_artifact

    def begin(**settings):
        found.settings.append(settings)
        found.runs.append(init(**settings))
        return found.runs[-1]

    patch.setattr(wandb, "init", begin)
    patch.setattr(Run, "log", lambda self, row, *a, **k: (found.rows.append(row), log(self, row, *a, **k))[1])
    patch.setattr(Run, "define_metric", lambda self, n, **k: (found.defined.update({n: k}), define(self, n, **k))[1])
    kept = lambda self, *a, **k: (found.artifacts.append(k.get("type")), artifact(self, *a, **k))[1]  # noqa: E731
    patch.setattr(Run, "log_artifact", kept)
    return found


@pytest.fixture(scope="module")
def offline(tmp_path_factory) -> SimpleNamespace:
    folder = tmp_path_factory.mktemp("wandb")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for variable in ("WANDB_MODE", "WANDB_API_KEY"):
            patch.delenv(variable, raising=False)
        patch.setenv("NETRC", str(folder / "no-netrc"))
        settings = ["--wandb.group", "study", "--wandb.job_type", "fit", "--wandb.tags", "[a, b]", "--wandb.artifact=true"]
        settings += ["--trainer.callbacks+=Snapshots", "--trainer.callbacks.every_n_steps=10"]
        found = spied(patch)
        found.folder = fit(*DEMO, *settings, root=folder)
    return found


def test_the_run_is_named_and_grouped_and_its_configuration_is_nested(offline):
    (run,) = offline.runs
    assert offline.settings[0]["name"] == "astronaut-ComplexLinear-gau-1"
    assert (run.group, run.job_type, run.tags) == ("study", "fit", ("a", "b"))
    assert (offline.folder / "wandb/run-id.txt").read_text().strip() == run.id
    config = dict(run.config)
    assert (config["encoder"]["name"], config["encoder"]["sigma"], config["sampling"]["stride"]) == ("gau", 0.04, 2)
    assert (config["encoding"], config["seed"], len(config["data"]["fingerprint"])) == ("complex", 0, 16)


def test_history_and_summary(offline):
    rows = [row for row in offline.rows if any("psnr" in key for key in row)]
    assert {key for row in rows for key in row if "psnr" in key} == {"train/psnr", "val/psnr", "test/psnr", "test/psnr_std"}
    seconds = [row["seconds"] for row in rows]
    assert seconds[0] > 0
    assert seconds == sorted(seconds)
    assert [row["trainer/global_step"] for row in offline.rows if "train/loss" in row] == [4, 9, 14, 19]
    # every score is logged once, by the module or by the recorder, and W&B's summary is the last value
    logged = [key for row in offline.rows for key in row]
    for name in ("test/psnr", "test/ssim", "num_params", "fit_seconds", "baseline/bicubic"):
        assert logged.count(name) == 1, name
    # the summary of a curve is its best value, and curves are over optimiser steps
    assert (offline.defined["val/psnr"]["summary"], offline.defined["train/loss"]["summary"]) == ("max", "min")
    assert offline.defined["val/psnr"]["step_metric"] == offline.defined["*"]["step_metric"] == "trainer/global_step"


def test_media_and_checkpoint(offline):
    (folder,) = offline.folder.glob("wandb/offline-run-*/files/media")
    assert list(folder.glob("images/reconstructions_*.png"))
    assert len(list(folder.glob("images/snapshots_*.png"))) == 2
    assert list(folder.glob("table/test/signals_*.json"))
    assert "model" in offline.artifacts


def test_an_offline_fit_that_is_resumed_stays_offline_and_its_steps_go_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = spied(monkeypatch)
    checkpoint = fit(*DEMO) / "checkpoints/last.ckpt"
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)  # the user has logged in meanwhile
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    assert main(["fit", *DEMO, "--trainer.max_steps", "40", "--ckpt_path", str(checkpoint)]) == 0
    files = sorted(tmp_path.glob("runs/*/1/wandb/*run-*/*.wandb"))
    assert ["offline" in file.parent.name for file in files] == [True, True]
    assert len({run.id for run in found.runs} | {file.stem.removeprefix("run-") for file in files}) == 1
    assert {run.group for run in found.runs} == {"astronaut"}, "single fits are grouped by data"
    assert [row["trainer/global_step"] for row in found.rows if "val/psnr" in row] == [10, 20, 30, 40]
    assert "model" not in found.artifacts, "checkpoints are kept there where that is asked for"


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_wandb")
def test_runs_are_kept_on_disk_if_the_server_does_not_answer(tmp_path, monkeypatch, caplog):
    """The first fit waits once; each names its folder for ``wandb sync``, and a resumed one stays the same run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(loggers, "START_SECONDS", 1)
    monkeypatch.setattr(loggers, "_UNREACHABLE", {})
    found = spied(monkeypatch)
    first = fit(*DEMO, "--wandb.group", "study")
    fit(*DEMO)
    assert main(["fit", *DEMO, "--trainer.max_steps", "40", "--ckpt_path", str(first / "checkpoints/last.ckpt")]) == 0
    assert [settings["mode"] for settings in found.settings] == [None, "offline", "offline", "offline"]
    assert found.settings[0]["settings"].init_timeout == 1
    assert found.runs[0].id == found.runs[2].id != found.runs[1].id
    assert found.runs[0].group == "study"
    named = re.findall(r"connection refused\). The run is kept on disk; to upload it: wandb sync (.+)", caplog.text)
    assert len(named) == 2
    assert [len(list(Path(folder).glob("*.wandb"))) for folder in named] == [1, 1]


@pytest.mark.usefixtures("fresh_wandb")
def test_who_asks_for_online_gets_no_other(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    given = {"MODE": "online", "API_KEY": "0" * 40, "BASE_URL": "http://127.0.0.1:9", "INIT_TIMEOUT": "1"}
    for name, value in given.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    assert not list(fit(*DEMO).glob("wandb/offline-run-*"))
    assert "W&B failed (CommError" in caplog.text


@pytest.mark.slow
def test_several_processes_are_one_run_with_what_an_agent_gives(tmp_path):
    """An agent of ``wandb sweep`` runs the command with ``--parameter=value`` at its end: for every process the same."""
    (tmp_path / "early.py").write_text(
        "from pathlib import Path\n"
        "from lightning.pytorch import Callback\n"
        "class Early(Callback):\n"
        "    def on_fit_start(self, trainer, pl_module):\n"
        "        assert [logger.experiment for logger in trainer.loggers]\n"
        "        found = type(pl_module.encoder).__name__, trainer.datamodule.signals.split.num_train\n"
        "        Path(f'rank{trainer.global_rank}').write_text(str(found))\n"
    )
    command = ["fit", *DEMO, "--trainer.devices", "2", "--trainer.strategy", "ddp"]
    command += ["--trainer.callbacks+=early.Early", "--model.encoder=tri", "--data.sampling.stride=4"]
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(tmp_path)]), "WANDB_MODE": "offline"}
    environment |= {"WANDB_SWEEP_ID": "s1", "WANDB_RUN_ID": "of-the-agent"}
    done = run_command(tmp_path, *command, environment=environment)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.rglob("*.wandb")
    assert file.stem == "run-of-the-agent"
    assert metrics(file.parents[2])["encoder"]["name"] == "tri"
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["('Triangle', 64)"] * 2


@pytest.mark.usefixtures("fresh_wandb")
@pytest.mark.parametrize("recipe", ["image/demo", "image/simple_mlp"])
def test_histograms_of_gradients_and_weights(recipe, tmp_path, monkeypatch):
    """Also where steps are taken without Lightning's loop, and gradients of a quadratic loss without autograd."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    found = spied(monkeypatch)
    fit(*DEMO, "--config", recipe, "--trainer.max_steps", "20", "--data.resize", "16", "--wandb.watch", "all")
    rows = [row for row in found.rows if any(key.startswith("gradients/") for key in row)]
    assert [row["trainer/global_step"] for row in rows] == [4, 9, 14, 19]
    for kind in ("gradients", "parameters"):
        histograms = [value for row in rows for key, value in row.items() if key.startswith(f"{kind}/networks.")]
        assert len(histograms) % 4 == 0
        assert all(sum(histogram.histogram) for histogram in histograms)
    assert list(tmp_path.glob("runs/*/1/wandb/offline-run-*/*.wandb"))


def test_the_environment_of_wandb_is_followed_where_no_option_is_given(tmp_path, monkeypatch, fresh_wandb):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    own = {
        "PROJECT": "mine",
        "NAME": "first",
        "RUN_GROUP": "ours",
        "TAGS": "a,b",
        "ENTITY": "team",
        "DIR": str(tmp_path / "w"),
    }
    (tmp_path / "w").mkdir()
    for name, value in own.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    found = spied(monkeypatch)
    folder = fit(*DEMO)
    fit(*DEMO, "--wandb.project", "given", "--wandb.name", "second", "--wandb.group", "other", "--wandb.tags", "[c]")
    first, second = found.runs
    assert (first.project, first.name, first.group, first.tags, first.entity) == (
        "mine",
        "first",
        "ours",
        ("a", "b"),
        "team",
    )
    assert (second.project, second.name, second.group, second.tags) == ("given", "second", "other", ("c",))
    assert len(list((tmp_path / "w/wandb").glob("offline-run-*"))) == 2
    assert (folder / "wandb/run-id.txt").is_file()
