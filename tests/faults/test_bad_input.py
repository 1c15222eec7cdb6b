"""Options, configurations and files that cannot be right: one paragraph, and nothing is read that was not meant."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from commands import error_of
from PIL import Image

from pe_lightning.__main__ import main
from pe_lightning.encoders import Encoder
from pe_lightning.errors import InputError
from pe_lightning.solvers import ConvergenceWarning, solve_points
from pe_lightning.training import ImageDataModule, RowDataModule
from pe_lightning.training.callbacks import RunRecorder, WandbSettings
from pe_lightning.training.callbacks.loggers import TolerantWandbLogger

FIT = ["fit", "--config", "image/demo", "--data.resize", "16", "--model.encoder.num_features", "8"]
FIT += ["--trainer.enable_progress_bar", "false", "--wandb.enabled", "false", "--data.batching.steps_per_epoch", "5"]
FIT += ["--trainer.max_steps", "5", "--trainer.log_every_n_steps", "5"]


pytestmark = pytest.mark.usefixtures("empty_folder")


def test_a_pipe_is_no_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("c.yaml")
    assert "is neither a file" in error_of(capsys, ["fit", "--config", "c.yaml"])


@pytest.mark.slow
def test_options(capsys: pytest.CaptureFixture[str]) -> None:
    cases = {
        "--seed_everything -1": "seed_everything must be an integer from 0 to 4294967295",
        "--trainer.devices -1": "devices",
        "--trainer.check_val_every_n_epoch 0": "check_val_every_n_epoch must be above 0",
        "--trainer.accumulate_grad_batches 0": "accumulate_grad_batches must be above 0",
        "--trainer.gradient_clip_val 1 --trainer.precision bf16-mixed": "--model.optimizer.fused false",
        "--output_shape 3": "unknown option '--output_shape'. --help lists the options",
        "--data.resize 1000000": "Set a smaller resize",
        "--model.encoder.num_features 10000000000": "of memory are free: set a smaller num_features",
        "--trainer.default_root_dir " + "x" * 5000: "File name too long",
        "--data.paths " + "x" * 5000: "File name too long",
        "--data.paths /dev/zero": "neither a file nor a folder",
    }
    for given, words in cases.items():
        assert words in error_of(capsys, [*FIT, *given.split()])


@pytest.mark.slow
def test_an_output_that_cannot_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FIT, "--trainer.default_root_dir", "a: b"]) == 0  # a folder that looks like YAML
    (checkpoint,) = Path().glob("a: b/runs/*/1/checkpoints/last.ckpt")
    capsys.readouterr()
    arguments = ["predict", "--ckpt_path", str(checkpoint), "--output_shape", "10000000", "10000000"]
    assert "TB" in error_of(capsys, arguments)
    assert not list(Path().rglob("*.part"))


def test_an_unexpected_exception_is_a_paragraph_and_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(Encoder, "resolved", lambda self: 1 / 0)
    line = error_of(capsys, [*FIT, "--data.storage.cache", "off"], status=1)
    assert "unexpected ZeroDivisionError: division by zero" in line
    written = Path(line.rpartition(" ")[2])
    assert "Traceback" in written.read_text()
    assert "in <lambda>" in written.read_text()


@pytest.mark.parametrize("given", [{"tags": ["x" * 100]}, {"project": "a/b?"}, {}], ids=["tag", "project", "mode"])
def test_settings_that_wandb_refuses_are_refused_before_any_work(
    given: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not given:
        monkeypatch.setenv("WANDB_MODE", "bogus")
    with pytest.raises(InputError, match=r"W&B: .*--wandb\.enabled false leaves it out"):
        RunRecorder(wandb=WandbSettings(**given))  # type: ignore[arg-type]
    RunRecorder(wandb=WandbSettings(enabled=False, **given))  # type: ignore[arg-type]


@pytest.mark.usefixtures("fresh_wandb")
@pytest.mark.parametrize("where", ["init", *(pytest.param(where, marks=pytest.mark.slow) for where in ("log", "finish"))])
def test_trouble_with_wandb_ends_no_fit(
    where: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("read-only home")

    monkeypatch.setenv("WANDB_MODE", "disabled")
    if where == "log":
        monkeypatch.setattr(TolerantWandbLogger.__base__, "log_metrics", fail)
    else:
        monkeypatch.setattr(f"wandb.{where}", fail)
    with caplog.at_level("INFO"):
        assert main([*FIT, "--wandb.enabled", "true"]) == 0
    assert "W&B failed (OSError, read-only home)" in caplog.text
    (metrics,) = Path().glob("runs/*/1/metrics.json")
    assert "test/psnr" in metrics.read_text()


def test_no_program_is_started_for_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow draws EPS with Ghostscript, whatever the name of the file."""
    Path("a.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 16 16\n(x) print\n%%EOF\n")
    started: list[object] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: started.append(a))
    with pytest.raises(InputError, match=r"cannot read 'a\.jpg'"):
        _ = ImageDataModule("a.jpg").values
    assert not started


def test_damage_that_a_checksum_shows() -> None:
    Image.new("L", (12, 12)).save("a.png")
    data = Path("a.png").read_bytes()
    Path("c.png").write_bytes(data[:-20] + bytes(20))
    with pytest.raises(InputError, match=r"cannot read 'c\.png'; it is truncated, damaged"):
        _ = ImageDataModule("c.png").values


def test_hdf5_reads_no_other_file() -> None:
    Path("secret").write_bytes(np.arange(256, dtype=np.uint8).tobytes())
    with h5py.File("other.h5", "w") as file:
        file["v"] = np.zeros((16, 16), np.uint8)
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("raw", (16, 16), "u1", external=[("secret", 0, 256)])
        file["link"] = h5py.ExternalLink("other.h5", "v")
        layout = h5py.VirtualLayout((16, 16), "u1")
        layout[:] = h5py.VirtualSource("other.h5", "v", (16, 16))
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("huge", (10**6, 10**6), "f4", chunks=(1000, 1000))
        file["soft"] = h5py.SoftLink("/fine")
        file["fine"] = np.arange(256, dtype=np.uint8).reshape(16, 16)
    elsewhere = dict.fromkeys(("raw", "link", "virtual"), "is stored in other files, which are not read")
    for key, words in {**elsewhere, "huge": "claims the shape"}.items():
        with pytest.raises(InputError, match=words):
            _ = ImageDataModule("a.h5", key=key).values
    assert ImageDataModule("a.h5", key="soft").values.shape == (1, 16, 16, 1)


def test_a_picture_that_claims_more_than_its_file_can_hold() -> None:
    Image.new("RGB", (20, 24)).save("a.tif")
    data = bytearray(Path("a.tif").read_bytes())
    place = data.index(b"\x00\x01\x04\x00") if b"\x00\x01\x04\x00" in data else data.index(b"\x00\x01\x03\x00")
    data[place + 2 : place + 12] = b"\x04\x00\x01\x00\x00\x00" + (7_000_000).to_bytes(4, "little")  # the width
    Path("a.tif").write_bytes(data)
    with pytest.raises(InputError, match=r"claims the shape 24x7000000x3, 504\.0 MB, in a file of"):
        _ = ImageDataModule("a.tif").values


def test_a_table_of_very_many_columns() -> None:
    row = ",".join("1" for _ in range(20_000))
    Path("a.csv").write_text("".join(f"{row.replace('1', value)}\n" for value in "1221"))
    with pytest.raises(InputError, match=r"has 20000 columns, more than 10000: choose columns by select"):
        _ = RowDataModule("a.csv").values
    assert RowDataModule("a.csv", select=[3]).values.shape == (1, 4, 1)


def test_a_baseline_that_cannot_be_computed_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Two points have no triangulation; the fit has its scores all the same."""
    arguments = [*FIT, "--data.sampling", "random", "--data.sampling.count", "2"]
    assert main(arguments) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "delaunay interpolation: left out: delaunay cannot interpolate these samples (at least 3 points that span" in said
    (run,) = Path().glob("runs/*/1")
    assert list(run.glob("reconstructions/*.png"))
    assert (run / "checkpoints/last.ckpt").is_file()


def test_a_damaged_configuration_beside_a_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = Path("run/checkpoints/last.ckpt")
    checkpoint.parent.mkdir(parents=True)
    torch.save({"state_dict": {}, "hyper_parameters": {}}, checkpoint)
    Path("run/config.yaml").write_bytes(b"a: [")
    line = error_of(capsys, ["test", "--ckpt_path", str(checkpoint)])
    assert "cannot read" in line
    assert "config.yaml" in line


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("devices", "100000", "100000 processes are too many"),
        ("gradient_clip_val", ".nan", "clip_gradients"),
        ("default_root_dir", "a\0b", "a path holds a zero byte"),
    ],
)
def test_arguments_of_the_trainer(option: str, value: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in error_of(capsys, [*FIT, f"--trainer.{option}", value])


def test_a_solver_that_cannot_move_does_not_say_that_it_has_converged() -> None:
    values, points = torch.rand(1, 30, 1), torch.rand(30, 2)
    with pytest.warns(UserWarning, match="the solver stopped after 0 iterations at a relative residual of 1"):
        found = solve_points(values, {"name": "gau", "num_features": 8}, coords=points, ridge=0.1, iterations=0)
    assert not found.converged.any()
    assert found.weight.isfinite().all()
    features = {"name": "sine", "frequency": 1e-9, "num_features": 8}  # which hardly differ from zero
    with pytest.warns(ConvergenceWarning, match="times the least squared error"):
        assert solve_points(values, features, coords=points, ridge=0.0).weight.isfinite().all()
