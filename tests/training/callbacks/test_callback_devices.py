"""Two processes: collectives at the same moments, numbers of all of them, files of the first alone."""

import csv
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

class Keep(TimeToPSNR):
    # also keeps what it saw
    seen = []
    def _note(self, kind, value, step):
        if kind == "train":
            self.seen.append(value)
        super()._note(kind, value, step)


torch.set_num_threads(1)
seed_everything(0, verbose=False)
x = torch.arange(17)[:, None, None] / 17 + torch.arange(12)[:, None] / 12 + torch.arange(3)
values = 0.5 + 0.4 * torch.stack([torch.sin(3 * x), torch.cos(9 * x)])  # an odd number of rows, two qualities
watch = [StableRank(5), Keep([8, 12, 200], every_n_steps=1), PeakMemory(), Snapshots(5)]
recorder = RunRecorder(root="runs", wandb=WandbSettings(enabled=False), table=False)
model = ComplexLinear({"name": "gau", "num_features": 8, "sigma": 0.1}, depth=1, hidden_size=8)
devices = int(sys.argv[2])
trainer = Trainer(accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto", max_steps=20,
                  callbacks=[*watch, recorder], logger=False, enable_checkpointing=False, enable_progress_bar=False,
                  enable_model_summary=False, num_sanity_val_steps=0, log_every_n_steps=1)
trainer.fit(model, TensorDataModule(values, batching=Batching(steps_per_epoch=10)))
if trainer.is_global_zero:
    print("REPORT" + json.dumps({"seen": Keep.seen, **reports(trainer)}))
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
    assert two["stable_rank"]["layer0"] == pytest.approx(one["stable_rank"]["layer0"], rel=1e-3)
    both = two["peak_memory"]["resident_bytes_per_process"]
    assert len(set(both)) == 2, "of each process its own"
    assert max(both) == two["peak_memory"]["resident_bytes"]
    for processes in found:  # the module logs the PSNR of all processes' samples; here an odd number of rows
        with next((tmp_path / str(processes)).glob("runs/*/*/logs/version_0/metrics.csv")).open() as file:
            logged = [float(row["train/psnr"]) for row in csv.DictReader(file) if row["train/psnr"]]
        assert len(logged) == 20
        assert found[processes]["seen"][:20] == pytest.approx(logged, abs=1e-4)
    assert one["time_to_psnr"]["train"]["8dB"]["steps"] == two["time_to_psnr"]["train"]["8dB"]["steps"]
    assert two["time_to_psnr"]["train"]["200dB"] is None
