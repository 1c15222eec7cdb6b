"""What a run leaves for W&B, read back from its offline files."""

import logging
import os
import struct
from pathlib import Path

import pytest
from commands import DEMO, fit, metrics
from stopping import run_command
from wandb.proto.wandb_internal_pb2 import Record

from pe_lightning.__main__ import main

ROOT = Path(__file__).parents[2]


def records(path: Path) -> list[Record]:
    """The records of an offline run: LevelDB's log format, blocks of 32 KiB after seven bytes of W&B's own."""
    data, place, pending, found = path.read_bytes(), 7, b"", []
    while place < len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        pending += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = Record()
            record.ParseFromString(pending)
            found.append(record)
            pending = b""
    return found


def plain(items) -> dict[str, str]:
    return {item.key or "/".join(item.nested_key): item.value_json for item in items}


@pytest.fixture(scope="module")
def offline(tmp_path_factory) -> tuple[Path, list[Record]]:
    folder = tmp_path_factory.mktemp("wandb")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for variable in ("WANDB_MODE", "WANDB_API_KEY"):
            patch.delenv(variable, raising=False)
        patch.setenv("NETRC", str(folder / "no-netrc"))
        settings = ["--wandb.group", "study", "--wandb.job_type", "fit", "--wandb.tags", "[a, b]", "--wandb.artifact=true"]
        settings += ["--trainer.callbacks+=Snapshots", "--trainer.callbacks.every_n_steps=10"]
        (record,) = fit(*DEMO, *settings, root=folder).glob("wandb/offline-run-*/*.wandb")
    return record.parent, records(record)


def test_the_configuration_is_flat_and_stable(offline):
    config: dict[str, str] = {}
    for record in offline[1]:
        if record.HasField("run"):
            config |= plain(record.run.config.update)
        if record.HasField("config"):
            config |= plain(record.config.update)
    assert config["encoder.name"] == '"gau"'
    assert float(config["encoder.sigma"]) == 0.64 / 16
    assert config["encoding"] == '"complex"'
    assert config["sampling.name"] == '"grid"'
    assert config["sampling.stride"] == "2"
    assert len(config["data.fingerprint"]) == 18
    assert config["seed"] == "0"


def test_the_run_is_named_and_grouped(offline):
    (run,) = (record.run for record in offline[1] if record.HasField("run"))
    assert run.display_name == "astronaut-ComplexLinear-gau-1"
    assert (run.run_group, run.job_type, list(run.tags)) == ("study", "fit", ["a", "b"])
    note = next(offline[0].parents[1].glob("wandb/run-id.txt"))
    assert note.read_text().strip() == run.run_id


def test_history_and_summary(offline):
    history = [plain(record.history.item) for record in offline[1] if record.HasField("history")]
    rows = [row for row in history if any("psnr" in key for key in row)]
    assert {key for row in rows for key in row if "psnr" in key} == {"train/psnr", "val/psnr", "test/psnr", "test/psnr_std"}
    seconds = [float(row["seconds"]) for row in rows]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0
    steps = [row["trainer/global_step"] for row in history if "train/loss" in row]
    assert steps == ["4", "9", "14", "19"]
    assert sum("val/psnr" in row for row in history) == 2
    # every score is logged once, by the module or by the recorder, and W&B's summary is the last value
    logged = [key for row in history for key in row]
    for name in ("test/psnr", "test/ssim", "num_params", "fit_seconds", "baseline/bicubic"):
        assert logged.count(name) == 1, name
    # the summary of a curve is its best value, and curves are over optimiser steps
    defined = {
        record.metric.name or record.metric.glob_name: record.metric for record in offline[1] if record.HasField("metric")
    }
    assert defined["val/psnr"].summary.max
    assert defined["train/loss"].summary.min
    assert {metric.step_metric for metric in defined.values()} == {"trainer/global_step"}


def test_an_offline_fit_that_is_resumed_stays_offline_and_its_steps_go_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checkpoint = fit(*DEMO) / "checkpoints/last.ckpt"
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)  # the user has logged in meanwhile
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    assert main(["fit", *DEMO, "--trainer.max_steps", "40", "--ckpt_path", str(checkpoint)]) == 0
    files = sorted(tmp_path.glob("runs/*/1/wandb/*run-*/*.wandb"), key=lambda file: file.stat().st_mtime)
    assert ["offline" in file.parent.name for file in files] == [True, True]
    parts = [records(file) for file in files]
    (run,) = {record.run.run_id for part in parts for record in part if record.HasField("run")}
    assert [file.stem for file in files] == [f"run-{run}"] * 2
    groups = {record.run.run_group for part in parts for record in part if record.HasField("run")}
    assert groups == {"astronaut"}, "single fits are grouped by data"
    rows = [plain(record.history.item) for part in parts for record in part if record.HasField("history")]
    steps = [int(row["trainer/global_step"]) for row in rows if "val/psnr" in row]
    assert steps == [10, 20, 30, 40]
    artifacts = [record.request.log_artifact.artifact.type for part in parts for record in part]
    assert "model" not in artifacts, "checkpoints are kept there where that is asked for"


def test_folders_that_cannot_be_written_end_no_fit(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "file/folder"))
    with caplog.at_level(logging.INFO):
        run = fit(*DEMO, "--wandb.artifact", "true")
    assert "W&B failed (PermissionError" in caplog.text
    assert metrics(run)["test/psnr"]
    assert list(run.glob("reconstructions/*_comparison.png"))


@pytest.mark.slow
def test_several_processes_are_one_run_with_what_an_agent_gives(tmp_path):
    """An agent of ``wandb sweep`` runs the command with ``--parameter=value`` at its end: for every process the same."""
    (tmp_path / "early.py").write_text(
        "from pathlib import Path\n"
        "from lightning.pytorch import Callback\n"
        "class Early(Callback):\n"
        "    def on_fit_start(self, trainer, pl_module):\n"
        "        assert [logger.experiment for logger in trainer.loggers]\n"
        "        found = type(pl_module.encoder).__name__, trainer.datamodule.split.num_train\n"
        "        Path(f'rank{trainer.global_rank}').write_text(str(found))\n"
    )
    command = ["fit", *DEMO, "--trainer.devices", "2", "--trainer.strategy", "ddp"]
    command += ["--trainer.callbacks+=early.Early", "--model.encoder=tri", "--data.sampling.stride=4"]
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(tmp_path)]), "WANDB_MODE": "offline"}
    environment |= {"WANDB_SWEEP_ID": "s1", "WANDB_RUN_ID": "of-the-agent"}
    done = run_command(tmp_path, *command, environment=environment)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.rglob("*.wandb")
    config = {}
    for record in records(file):
        config |= plain(record.config.update) if record.HasField("config") else {}
    assert config["encoder.name"] == '"tri"'
    assert file.stem == "run-of-the-agent"
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["('Triangle', 64)"] * 2


def test_media_and_checkpoint(offline):
    assert list(offline[0].glob("files/media/images/reconstructions_*.png"))
    assert len(list(offline[0].glob("files/media/images/snapshots_*.png"))) == 2
    assert list(offline[0].glob("files/media/table/test/signals_*.json"))
    artifacts = [record.request.log_artifact.artifact for record in offline[1] if record.request.HasField("log_artifact")]
    artifacts += [record.artifact for record in offline[1] if record.HasField("artifact")]
    assert any(artifact.type == "model" for artifact in artifacts)
