"""The callback StableRank beside others: by command and in YAML, on an emulated device and in two processes."""

import json
from pathlib import Path

import pytest
import yaml
from commands import DEMO, NO_WANDB, fit, metrics
from device_cases import check_on_an_emulated_device
from stopping import run_command

from pe_lightning.__main__ import main


def configured(run: Path) -> list[tuple[str, dict]]:
    """Class names and arguments of the callbacks in ``config.yaml``."""
    given = yaml.safe_load((run / "config.yaml").read_text())["trainer"]["callbacks"]
    entries = [{"class_path": one} if isinstance(one, str) else one for one in given]
    return [(entry["class_path"].rpartition(".")[2], entry.get("init_args", {})) for entry in entries]


@pytest.mark.usefixtures("empty_folder")
def test_all_of_them_by_name_and_in_yaml_and_again_from_the_saved_configuration():
    rank = "pe_papers.analysis.StableRank"
    Path("one.yaml").write_text(f"trainer: {{callbacks: [{{class_path: {rank}, init_args: {{every_n_steps: 10}}}}]}}")
    arguments = ["--config", "one.yaml", "--trainer.callbacks+", "Snapshots", "--trainer.callbacks.every_n_steps", "10"]
    run = fit(*DEMO, *NO_WANDB, *arguments, "--trainer.callbacks+=MatmulPrecision")
    assert (run / "snapshots/astronaut/20.png").is_file()
    assert [name for name, _ in configured(run)] == ["StableRank", "Snapshots", "MatmulPrecision", "RunRecorder"]
    assert dict(configured(run))["StableRank"] == {"every_n_steps": 10, "points": 2048}
    assert metrics(run)["stable_rank"]["steps"] == [0, 10, 20]
    again = fit("--config", str(run / "config.yaml"))
    assert (again / "snapshots/astronaut/20.png").read_bytes() == (run / "snapshots/astronaut/20.png").read_bytes()
    assert configured(again) == configured(run)
    assert main(["test", "--ckpt_path", str(run / "checkpoints/last.ckpt")]) == 0, "callbacks of a fit do not disturb"


@pytest.mark.slow
def test_no_tensor_stays_on_the_cpu(tmp_path):
    check_on_an_emulated_device("papers.papers_device_cases", 1, tmp_path)


SCRIPT = """
import json, sys
import torch
from lightning.pytorch import Trainer, seed_everything
from pe_lightning.training.callbacks import *
from pe_lightning.training import TensorDataModule
from pe_lightning.signals.loaders import Batching
from pe_lightning.training import ComplexLinear
from pe_papers.analysis import StableRank
from torchmetrics.image import UniversalImageQualityIndex

torch.set_num_threads(1)
seed_everything(0, verbose=False)
x = torch.arange(17)[:, None, None] / 17 + torch.arange(12)[:, None] / 12 + torch.arange(3)
values = 0.5 + 0.4 * torch.stack([torch.sin(3 * x), torch.cos(9 * x)])  # an odd number of rows, two qualities
recorder = RunRecorder(root="runs", wandb=WandbSettings(enabled=False), table=False,
                       metrics=[UniversalImageQualityIndex()])
model = ComplexLinear({"name": "gau", "num_features": 8, "sigma": 0.1}, depth=1, hidden_size=8)
devices = int(sys.argv[2])
trainer = Trainer(accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto", max_steps=20,
                  callbacks=[StableRank(5), Snapshots(5), recorder], logger=False, enable_checkpointing=False,
                  enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, log_every_n_steps=1)
data = TensorDataModule(values, batching=Batching(steps_per_epoch=10))
trainer.fit(model, data)
trainer.test(model, data, verbose=False)
if trainer.is_global_zero:
    quality = recorder.metrics["test/UniversalImageQualityIndex_per_signal"]
    print("REPORT" + json.dumps(reports(trainer) | {"quality": quality}))
"""


@pytest.mark.slow
def test_two_processes(tmp_path):
    found = {}
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        folder.mkdir()
        (folder / "script.py").write_text(SCRIPT)
        done = run_command(folder, "script.py", "--trainer.devices", str(processes))
        assert done.returncode == 0, done.stderr
        (line,) = [line for line in done.stdout.splitlines() if line.startswith("REPORT")]
        found[processes] = json.loads(line[6:])
        (run,) = folder.glob("runs/*/*")
        assert sorted(path.name for path in run.glob("snapshots/signal1/*")) == ["10.png", "15.png", "20.png", "5.png"]
    one, two = found[1], found[2]
    assert two["stable_rank"]["steps"] == one["stable_rank"]["steps"] == [0, 5, 10, 15, 20]
    assert two["quality"] == pytest.approx(one["quality"], rel=1e-3)
    assert two["stable_rank"]["layer0"] == pytest.approx(one["stable_rank"]["layer0"], rel=1e-3)
