"""What the recorder leaves of any module that describes itself, and the seconds of a fit in its logs."""

import csv
import io
import itertools
import json
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import torch
from fits import signals
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers.logger import DummyLogger
from rich.console import Console
from torch import nn
from torch.utils.data import DataLoader

from pe_lightning.encoders import Encoder
from pe_lightning.errors import InputError
from pe_lightning.evaluation.baselines import interpolate
from pe_lightning.results.runs import frames_of
from pe_lightning.signals.cache import Storage
from pe_lightning.signals.loaders import Batching
from pe_lightning.training import ComplexLinear, ImageDataModule, SimpleMLP, TensorDataModule, VideoDataModule
from pe_lightning.training.callbacks import PSNRProgressBar, RunRecorder, WandbSettings, check_monitors, terminal
from pe_lightning.training.callbacks.baseline_scores import score_baselines


class Silent(LightningModule):
    """A module that does not describe itself."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self.layer(x), y)


class Classifier(Silent):
    """A task without coordinates, signals or PSNR."""

    monitor = "val/accuracy"
    monitor_mode = "max"

    def describe(self):
        return {"model": "Classifier", "num_params": 6, "encoder": {"name": "rope"}}

    def validation_step(self, batch, batch_idx):
        self.log("val/accuracy", self._accuracy(batch).mean())

    def test_step(self, batch, batch_idx):
        self.scores = {"test/accuracy": self._accuracy(batch), "test/loss": torch.tensor([0.5])}

    def _accuracy(self, batch):
        x, y = batch
        return (self.layer(x).argmax(-1) == y).double().mean().reshape(1)


def loader():
    x = torch.randn(16, 2, generator=torch.Generator().manual_seed(0))
    return DataLoader([(point, int(point.sum() > 0)) for point in x], batch_size=16)


def test_any_module_that_describes_itself_is_recorded(make_trainer, tmp_path, capsys, monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(
        "pe_lightning.training.callbacks.terminal.Console", lambda **_: Console(file=terminal, force_terminal=True)
    )
    recorder, module = RunRecorder(root=tmp_path, wandb=WandbSettings(enabled=False)), Classifier()
    callbacks = [recorder, PSNRProgressBar(refresh_every=1)]
    more = {"callbacks": callbacks, "max_steps": 4, "enable_checkpointing": True, "enable_progress_bar": True}
    trainer = make_trainer(**more, log_every_n_steps=1)
    trainer.fit(module, loader(), loader())
    trainer.test(module, loader(), verbose=False)
    assert recorder.run_dir == tmp_path / "data-Classifier-rope" / "1"
    found = json.loads((recorder.run_dir / "metrics.json").read_text())
    accuracy = module.scores["test/accuracy"].item()
    assert (found["metric"], found["test/accuracy"], found["test/accuracy_per_signal"]) == ("accuracy", accuracy, [accuracy])
    assert found["test/loss"] == 0.5
    assert (found["signals"], found["num_signals"], found["steps"], found["baselines"]) == (["data"], 1, 4, {})
    assert found["fit_seconds"] > 0
    assert not any("psnr" in key or "ssim" in key for key in found)
    assert sorted(path.name for path in recorder.run_dir.iterdir()) == [".lock", "checkpoints", "logs", "metrics.json"]
    assert "held-out accuracy" in capsys.readouterr().out
    assert "held out" in terminal.getvalue()


def test_a_module_without_a_description_is_refused(make_trainer, tmp_path):
    trainer = make_trainer(max_steps=1, callbacks=[RunRecorder(root=tmp_path / "runs")])
    with pytest.raises(InputError, match=r"Silent needs describe\(\).*'num_params'.*monitor_mode.*scores"):
        trainer.fit(Silent(), loader())
    assert not (tmp_path / "runs").exists()

    class Unscored(Classifier):
        def test_step(self, batch, batch_idx):
            self.scores = {"test/accuracy": torch.zeros(3)}

    trainer = make_trainer(callbacks=[RunRecorder(root=tmp_path, wandb=WandbSettings(enabled=False))])
    with pytest.raises(InputError, match=r"describe\(\)\['signals'\] names 1; got .*\(3,\)"):
        trainer.test(Unscored(), loader(), verbose=False)


LOGGED = {"val/psnr": "max", "train/psnr": "max", "train/loss": "min"}


@pytest.mark.parametrize(
    ("callback", "held_out"),
    [
        (EarlyStopping("val/psnr"), True),
        (EarlyStopping("val/psrn", mode="max"), True),
        (EarlyStopping("val/psnr", mode="max"), False),
        (ModelCheckpoint(monitor="val/psnr"), True),
    ],
)
def test_monitors_that_would_never_stop_a_fit_are_refused(callback, held_out):
    check_monitors([EarlyStopping("train/loss"), ModelCheckpoint()], LOGGED, held_out)
    with pytest.raises(InputError, match=r"cannot monitor .* There are: .*train/psnr \(mode: max\)"):
        check_monitors([callback], LOGGED, held_out)


class Sharp(ComplexLinear):
    """A user's model that logs another value."""

    @property
    def logged_values(self):
        return {**super().logged_values, "train/sharpness": "max"}


@pytest.mark.parametrize(("cls", "refused"), [(ComplexLinear, True), (Sharp, False)])
def test_a_module_declares_the_values_it_logs(cls, refused, make_trainer, tmp_path):
    stop = EarlyStopping("train/sharpness", mode="max", strict=False)
    recorder = RunRecorder(root=tmp_path / "runs", wandb=WandbSettings(enabled=False), log=False, table=False)
    trainer = make_trainer(callbacks=[stop, recorder], max_steps=1, limit_val_batches=0)
    with pytest.raises(InputError, match="cannot monitor train/sharpness") if refused else nullcontext():
        trainer.fit(cls("gau"), TensorDataModule(signals(1, 8, 6, channels=3)))


def test_signals_that_stay_in_their_file_are_compared_too(fit, tmp_path):
    values = signals(1, 40, 6, 5, channels=1)[0, ..., 0].numpy()
    with h5py.File(tmp_path / "volume.h5", "w") as file:
        file["values"] = values
    batching, storage = Batching("blocks", steps_per_epoch=2), Storage(in_memory=False)
    data = VideoDataModule(str(tmp_path / "volume.h5"), batching=batching, storage=storage)
    run = fit("complex", data, [], steps=2, log_every_n_steps=1)
    run.trainer.test(run.module, data, verbose=False)
    made = np.load(run.folder / "reconstructions/volume.npy")
    with h5py.File(run.folder / "reconstructions/volume_comparison.h5") as file:
        frames = file.attrs["frames"]
        assert list(frames) == frames_of(40, 32)
        for name, expected in (("truth", values[..., None]), ("reconstruction", made)):
            assert np.abs(file[name][...] - 255 * np.clip(expected[frames], 0, 1)).max() <= 0.51, name


# -- seconds ------------------------------------------------------------------------------------------------------------


class Pass(Callback):
    """Lets a step take a second and a validation a thousand."""

    def __init__(self, now):
        self.now = now

    def on_train_batch_end(self, *_):
        self.now[0] += 1

    def on_validation_end(self, *_):
        self.now[0] += 1000


def rows(run: Path, version: int = 0) -> list[dict[str, str]]:
    with (run / f"logs/version_{version}/metrics.csv").open() as file:
        return list(csv.DictReader(file))


def test_rows_have_the_seconds_of_training_and_a_resumed_fit_goes_on(fit, now):
    run = fit("simple", signals(2, 16, 12, channels=3), [Pass(now)], steps=12)  # validated every 6 steps
    found = rows(run.folder)
    assert any(row["train/loss"] for row in found)
    assert [float(row["seconds"]) for row in found if row["val/psnr"]] == [6, 12]
    assert {row["seconds"] for row in found} <= {str(float(row["step"])) for row in found} | {"12.0"}
    checkpoint = run.folder / "checkpoints/last.ckpt"
    run.trainer.save_checkpoint(checkpoint)
    fit("simple", signals(2, 16, 12, channels=3), [Pass(now)], steps=24, ckpt_path=checkpoint)
    assert [float(row["seconds"]) for row in rows(run.folder, 1) if row["val/psnr"]][-2:] == [18, 24]


def test_the_csv_log_is_beside_the_loggers_of_the_trainer(fit):
    own = DummyLogger()
    run = fit("simple", signals(1, 12, 8), [], logger=own)
    assert run.trainer.loggers[0] is own
    assert [row["step"] for row in rows(run.folder) if row["train/psnr"]] == ["4", "9"]


def test_a_file_gets_a_line_now_and_then_and_the_run_directory_is_named(make_trainer, tmp_path, capsys, caplog, monkeypatch):
    caplog.set_level("INFO", "pe_lightning")
    seconds = itertools.count()
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: next(seconds) * 0.7))  # asked for in every step
    recorder = RunRecorder(tmp_path, wandb=WandbSettings(enabled=False))
    options = {"max_steps": 40, "log_every_n_steps": 1, "num_sanity_val_steps": 0, "enable_progress_bar": True}
    data = TensorDataModule(signals(1, 8, 8), batching=Batching(steps_per_epoch=40))
    make_trainer(callbacks=[recorder, PSNRProgressBar()], **options).fit(ComplexLinear("gau"), data)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("step ")]
    assert all(re.match(r"step \d+ of 40, train \d+\.\d\d dB", line) for line in lines)
    assert [int(line.split()[1]) for line in lines] == [4, 8, 12, 16, 20, 24, 28, 32, 36, 40]
    assert f"run directory: {recorder.run_dir}" in caplog.messages
    make_trainer(callbacks=[RunRecorder(tmp_path)], fast_dev_run=2).fit(ComplexLinear("gau"), data)
    assert "fast_dev_run: 2 training step(s) and 1 validation batch(es) ran without an error" in caplog.messages[-1]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (InputError("bicubic needs evenly spaced training samples"), "evenly spaced"),
        (TypeError("a bug"), "left out: unexpected TypeError: a bug. This is a fault of the program"),
    ],
)
def test_a_baseline_that_fails_costs_nothing_but_itself(error, reason, monkeypatch):
    def broken(name, batch, axes):
        if name == "bicubic":
            raise error
        return interpolate(name, batch, axes)

    monkeypatch.setattr("pe_lightning.training.callbacks.baseline_scores.interpolate", broken)
    found, _ = score_baselines(TensorDataModule(torch.rand(1, 16, 1), storage=Storage(cache="off")))
    assert found["bicubic"]["test/psnr"] is None
    said = found["bicubic"]["test/psnr_reason"]
    assert reason in said
    if isinstance(error, TypeError):
        assert "a bug" in Path(said.split("traceback is in ")[1]).read_text()
    assert found["linear"]["test/psnr"] > 0


# -- what a run is called, and what it says it did ----------------------------------------------------------------------


class Decay(Encoder):
    """An encoder of a plug-in, with a learned parameter that is no argument."""

    def __init__(self, num_features: int = 4) -> None:
        super().__init__(num_features)
        self.rate = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return torch.exp(-self.rate * torch.arange(self.num_features, device=x.device) * x[..., None])


@pytest.mark.parametrize(
    ("module", "steps", "name", "optimizer"),
    [
        (lambda: ComplexLinear("gau", solver="exact"), 0, "8x8-ComplexLinear-gau", None),
        (lambda: SimpleMLP("identity", depth=1, hidden_size=4, activation="sine"), 1, "8x8-SimpleMLP-sine-identity", "Adam"),
        (lambda: SimpleMLP(Decay(), depth=0), 1, "8x8-SimpleMLP-Decay", "Adam"),
    ],
)
def test_a_run_is_named_by_its_network_and_records_what_it_used(
    module, steps, name, optimizer, make_trainer, tmp_path, capsys
):
    data = TensorDataModule(signals(1, 8, 8, channels=3), names=["8x8"])
    recorder = RunRecorder(tmp_path, log=False)
    trainer = make_trainer(max_steps=steps, callbacks=[recorder])
    trainer.fit(fitted := module(), data)
    trainer.test(fitted, data, verbose=False)
    assert recorder.run_dir == tmp_path / name / "1"
    report = json.loads((recorder.run_dir / "metrics.json").read_text())
    assert (report["optimizer"] or {}).get("name") == optimizer
    rate = pytest.approx(2.0, abs=0.1)
    learned = {"0.rate": rate, "1.rate": rate} if "Decay" in name else {}
    assert report["learned"] == learned
    assert ("num_features" in report["encoder"]) == ("gau" in name or "Decay" in name)
    printed = capsys.readouterr().out
    solved, values = ("1 steps", "") if steps else ("solved exactly", f": ridge {report['ridge']:.3g}")
    assert re.search(
        rf"{solved} in [\d.]+ s{re.escape(values)}\n[\d.]+ s in all: (start [\d.]+, )?reading .*fit .*scores .*files ",
        printed,
    )


def test_runs_of_arrays_of_one_file_have_different_names(make_trainer, tmp_path):
    path = tmp_path / "three.h5"
    with h5py.File(path, "w") as file:
        for key, shape in (("speed", (8, 9)), ("air/density", (8, 9)), ("stack", (2, 8, 9))):
            file[key] = torch.rand(shape).numpy()
    names = []
    for key in ("speed", "air/density", "stack"):
        recorder = RunRecorder(tmp_path, log=False, table=False)
        data = ImageDataModule(str(path), key=key)
        make_trainer(max_steps=0, callbacks=[recorder]).fit(ComplexLinear("gau", solver="exact"), data)
        names.append((recorder.run_dir.parent.name, data.info.names))
    assert names == [
        ("three-speed-ComplexLinear-gau", ("three-speed",)),
        ("three-air-density-ComplexLinear-gau", ("three-air-density",)),
        ("three-stack-ComplexLinear-gau", ("three-stack-0", "three-stack-1")),
    ]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_fit_that_fails_before_its_first_step_leaves_no_directory(
    failing, make_trainer, tmp_path, monkeypatch, fresh_wandb
):
    monkeypatch.setenv("WANDB_MODE", "offline")

    class Failing(SimpleMLP):
        def training_step(self, batch, batch_idx):
            if self.global_step + 1 == failing:
                raise RuntimeError("shapes differ")
            return super().training_step(batch, batch_idx)

    recorder = RunRecorder(tmp_path, config={"seed_everything": 0})
    with pytest.raises(RuntimeError, match="shapes differ"):
        make_trainer(max_steps=3, callbacks=[recorder]).fit(Failing("identity", depth=0), TensorDataModule(signals(1, 8, 8)))
    assert recorder.run_dir.is_dir() == (failing == 2)
