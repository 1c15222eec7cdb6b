"""Two processes: collectives at the same moments, numbers of all of them, files of the first alone."""

import json

import pytest
from stopping import run_command

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
