"""Checkpoints: nothing in one is run, none is lost, and a damaged one is refused."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from lightning.pytorch import Callback, Trainer

from pe_lightning.__main__ import main
from pe_lightning.errors import InputError
from pe_lightning.results.checkpoint_files import read_checkpoint
from pe_lightning.results.runs import ClaimedFolder
from pe_lightning.signals import files
from pe_lightning.training.checkpoints import CheckpointFiles

FIT = ["fit", "--config", "image/demo", "--data.resize", "16", "--model.encoder.num_features", "8"]
FIT += ["--trainer.enable_progress_bar", "false", "--wandb.enabled", "false", "--data.batching.steps_per_epoch", "5"]
FIT += ["--trainer.max_steps", "20", "--trainer.log_every_n_steps", "5"]
FIT += ["--model.optimizer", "Adam", "--model.optimizer.lr", "0.1"]  # with two tensors of state per parameter
PROOF = Path("foreign-code-was-here")


class Evil:
    """Leaves a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path.cwd() / PROOF,)


class FailAt38(Callback):
    """Fails within the eighth epoch."""

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == 38:
            raise RuntimeError("stop")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a small fit."""
    folder = tmp_path_factory.mktemp("made")
    assert main([*FIT, "--trainer.default_root_dir", str(folder)]) == 0
    return next(folder.glob("runs/*/1"))


pytestmark = pytest.mark.usefixtures("empty_folder")


def refused(capsys: pytest.CaptureFixture[str], arguments: list[str], word: str = "") -> str:
    before = {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")}
    assert main(arguments) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("pe-lightning: error: ")]
    assert word in line
    assert {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")} == before, "something was written"
    return line


# -- what a configuration names is not run --------------------------------------------------------------------------------


SLOW = [("option", "test"), ("config", "test"), ("environment", "fit"), ("weights_only", "fit")]


@pytest.mark.parametrize(
    ("how", "verb"), [("option", "fit"), ("config", "fit"), *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW)]
)
def test_foreign_code_is_not_run(
    how: str, verb: str, made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = torch.load(made / "checkpoints/last.ckpt", weights_only=True)
    torch.save({**content, "extra": Evil()}, "evil.ckpt")
    plain = {**yaml.safe_load((made / "config.yaml").read_text()), "ckpt_path": None}
    arguments = {"option": ["--ckpt_path", "evil.ckpt"], "config": [], "environment": [], "weights_only": []}[how]
    if how in ("config", "weights_only"):
        plain |= {"ckpt_path": "evil.ckpt"} | ({"weights_only": False} if how == "weights_only" else {})
    if how == "environment":
        monkeypatch.setenv("JSONARGPARSE_DEFAULT_ENV", "true")
        for name in os.environ.copy():
            if name.startswith("PL_"):
                monkeypatch.delenv(name)
        for program in ("PE_LIGHTNING", "PL", "PYTEST", "__MAIN__", "PE_LIGHTNING_FIT"):
            for middle in ("_FIT_", ""):
                monkeypatch.setenv(f"{program}{middle}_CKPT_PATH", "evil.ckpt")
    if verb == "test" and how != "option":
        arguments = ["--ckpt_path", str(made / "checkpoints/last.ckpt"), *arguments]
    Path("c.yaml").write_text(yaml.safe_dump(plain))
    main([verb, "--config", "c.yaml", *arguments])
    assert not PROOF.exists()
    if how in ("option", "config") and verb == "fit":
        assert "evil.ckpt' is not a checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["last", "http://127.0.0.1:9/evil.ckpt", "/nope/x.ckpt", "."])
def test_only_files_are_checkpoints(name: str, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing is written over a word: the working directory is no run."""
    plain = {**yaml.safe_load((made / "config.yaml").read_text()), "ckpt_path": name}
    Path("config.yaml").write_text(yaml.safe_dump(plain))
    for arguments in (["fit", "--config", "config.yaml"], ["test", "--ckpt_path", name]):
        refused(capsys, arguments, f"no checkpoint at {name!r}")
    assert not Path("/nope").exists()


@pytest.mark.slow
def test_a_job_that_a_cluster_requeues_does_not_run_code_either(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning looks for hpc_ckpt_<n>.ckpt in the root folder by itself."""
    content = torch.load(made / "checkpoints/last.ckpt", weights_only=True)
    torch.save({**content, "extra": Evil()}, "hpc_ckpt_1.ckpt")
    for name in ("NTASKS", "JOB_ID", "JOB_NAME", "PROCID", "LOCALID", "NODEID"):
        monkeypatch.setenv(f"SLURM_{name}", "x" if name == "JOB_NAME" else "1" if name in ("NTASKS", "JOB_ID") else "0")
    assert main([*FIT, "--trainer.default_root_dir", "."]) == 2
    assert not PROOF.exists()


@pytest.mark.slow
def test_a_checkpoint_beside_a_configuration_does_not_make_its_folder_a_run(made: Path) -> None:
    shutil.copy(made / "checkpoints/last.ckpt", "model.ckpt")
    Path("config.yaml").write_text("mine: true\n")
    assert main([*FIT, "--ckpt_path", "model.ckpt", "--trainer.max_steps", "25"]) == 0
    assert Path("config.yaml").read_text() == "mine: true\n"
    assert next(Path().glob("runs/*/1/checkpoints/last.ckpt")).is_file()


# -- nothing is lost --------------------------------------------------------------------------------------------------------


def test_the_last_checkpoint_follows_every_epoch_whatever_the_score_does() -> None:
    """Stopped within the eighth epoch by an error, with a rate at which the score falls after the first."""
    arguments = [*FIT, "--trainer.max_steps", "60", "--model.optimizer", "torch.optim.SGD", "--model.optimizer.lr", "0"]
    assert main([*arguments, "--trainer.callbacks+", f"{__name__}.FailAt38"]) == 1
    (run,) = Path().glob("runs/*/1")
    assert torch.load(run / "checkpoints/last.ckpt", weights_only=True)["global_step"] == 35
    assert torch.load(run / "checkpoints/best.ckpt", weights_only=True)["global_step"] == 5


def test_a_checkpoint_is_written_beside_the_old_one_and_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning writes into the temporary folder, and copies over the old file from there."""
    path = Path("a.ckpt")
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    CheckpointFiles().save_checkpoint({"state_dict": {"a": torch.zeros(3)}}, path)
    old = path.read_bytes()

    def full(*_: object) -> None:
        assert path.read_bytes() == old
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(InputError, match=r"a\.ckpt', which takes .* kB: No space left on device; the disk has"):
        CheckpointFiles().save_checkpoint({"state_dict": {"a": torch.ones(3)}}, path)
    assert list(Path().iterdir()) == [path]
    assert read_checkpoint(path)["state_dict"]["a"].tolist() == [0, 0, 0]


@pytest.mark.slow
def test_a_resumed_run_logs_its_scores_too(made: Path) -> None:
    shutil.copytree(made, "run")
    assert main([*FIT, "--trainer.max_steps", "25", "--ckpt_path", "run/checkpoints/last.ckpt"]) == 0
    (csv,) = Path().glob("run/logs/version_1/metrics.csv")
    header = csv.read_text().splitlines()[0].split(",")
    assert {"test/psnr", "val/psnr"} <= set(header)
    # the best score of a run that was moved is known, and better than any with another rate
    score = torch.load("run/checkpoints/last.ckpt", weights_only=True)["callbacks"]
    (best,) = [state for state in score.values() if "best_model_score" in state]
    assert best["best_model_path"] == str(Path("run/checkpoints/best.ckpt").absolute())


def no_loops(content: dict[str, Any]) -> None:
    content["loops"] = {}


def wrong_shape(content: dict[str, Any]) -> None:
    """A fused optimiser writes past the end of such a state."""
    content["optimizer_states"][0]["state"][0]["exp_avg"] = torch.zeros(1)


@pytest.mark.parametrize(
    ("more", "alter", "words"),
    [
        (["--data.sampling.stride", "4"], None, "is of a fit of other data: sampling {'name': 'grid', 'stride': 2"),
        (["--data.eval_mask", "all"], None, "other data: protocol rest, now all"),
        ([], no_loops, "does not fit the model, or is damaged: KeyError"),
        ([], wrong_shape, "exp_avg in the state of the optimiser has shape (1,)"),
        (["--trainer.max_steps", "-1", "--trainer.max_epochs", "1"], None, "raise --trainer.max_epochs"),
    ],
)
def test_a_resumption_that_is_refused_changes_no_file(
    more: list[str],
    alter: Callable[[dict[str, Any]], None] | None,
    words: str,
    made: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(made, "run")
    if alter is not None:
        content = torch.load("run/checkpoints/last.ckpt", weights_only=True)
        alter(content)
        torch.save(content, "run/checkpoints/last.ckpt")
    again = [*FIT, "--trainer.max_steps", "25", "--ckpt_path", "run/checkpoints/last.ckpt", *more]
    refused(capsys, again, words)
    if alter is no_loops:  # of no run: nothing is left of the new one
        shutil.copy("run/checkpoints/last.ckpt", "alone.ckpt")
        assert main([*again[:-1], "alone.ckpt"]) == 2
        assert not list(Path().glob("runs/*/*"))


def test_a_changed_learning_rate_is_applied_and_recorded(made: Path) -> None:
    shutil.copytree(made, "run")
    again = [*FIT, "--trainer.max_steps", "25", "--ckpt_path", "run/checkpoints/last.ckpt", "--model.optimizer.lr", "0.01"]
    assert main(again) == 0
    (state,) = torch.load("run/checkpoints/last.ckpt", weights_only=True)["optimizer_states"]
    assert state["param_groups"][0]["lr"] == 0.01
    assert json.loads(Path("run/metrics.json").read_text())["optimizer"]["lr"] == 0.01
    assert yaml.safe_load(Path("run/config.yaml").read_text())["model"]["init_args"]["optimizer"]["init_args"]["lr"] == 0.01


def test_a_fit_that_diverges_ends_with_words_and_keeps_its_checkpoint(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(made, "run")
    before = Path("run/checkpoints/last.ckpt").read_bytes(), Path("run/metrics.json").read_bytes()
    again = [*FIT, "--trainer.max_steps", "40", "--ckpt_path", "run/checkpoints/last.ckpt", "--model.optimizer.lr", "1e38"]
    assert main(again) == 2
    assert "the weights are not finite after step 25, and were after step 20" in capsys.readouterr().err
    assert before == (Path("run/checkpoints/last.ckpt").read_bytes(), Path("run/metrics.json").read_bytes())
    assert main(["test", "--ckpt_path", "run/checkpoints/last.ckpt"]) == 0


def test_a_run_is_resumed_by_one_process_at_a_time(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(made, "runs/a/1")
    again = [*FIT, "--trainer.max_steps", "25", "--ckpt_path", "runs/a/1/checkpoints/last.ckpt"]
    held = ClaimedFolder(Path("runs/a/1"), lock=True)
    assert "another fit writes to" in refused(capsys, again)
    held.release()
    assert main(again) == 0


# -- damage -----------------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_of_the_content_is_found(made: Path) -> None:
    data = (made / "checkpoints/last.ckpt").read_bytes()
    with zipfile.ZipFile(made / "checkpoints/last.ckpt") as archive:
        sizes = {entry.filename: (entry.header_offset, entry.file_size) for entry in archive.infolist()}
    for name, (offset, size) in sizes.items():
        if size == 0:
            continue
        start = data.index(b"PK", offset) + 30 + len(name)
        start += int.from_bytes(data[offset + 28 : offset + 30], "little")
        altered = bytearray(data)
        altered[start + size // 2] ^= 0x10
        Path("altered.ckpt").write_bytes(altered)
        with pytest.raises(InputError, match="is damaged"):
            read_checkpoint("altered.ckpt")


def test_a_pickle_is_not_a_checkpoint() -> None:
    Path("old.ckpt").write_bytes(pickle.dumps({"state_dict": {}}))
    with pytest.raises(InputError, match="not a checkpoint of pe_lightning, or is damaged"):
        read_checkpoint("old.ckpt")
    with zipfile.ZipFile("bomb.ckpt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 10_000_000)
    with pytest.raises(InputError, match="is damaged"):
        read_checkpoint("bomb.ckpt")
