"""A model and a DataModule of somebody else: fitted, recorded and tested by the same commands."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch.utils.data import DataLoader, TensorDataset

from pe_lightning.__main__ import main


class Numbers(LightningDataModule):
    """Pairs of numbers."""

    def __init__(self, count: int = 8) -> None:
        super().__init__()
        self.count = count

    def loader(self) -> DataLoader:
        x = torch.linspace(0, 1, self.count)[:, None]
        return DataLoader(TensorDataset(x, 2 * x), batch_size=self.count)

    train_dataloader = val_dataloader = test_dataloader = loader


class Line(LightningModule):
    """A straight line.

    Args:
        lr: The learning rate.
    """

    monitor = "val/error"
    monitor_mode = "min"

    def __init__(self, lr: float = 0.1) -> None:
        super().__init__()
        self.lr = lr
        self.linear = torch.nn.Linear(1, 1)
        self.scores: dict[str, torch.Tensor] = {}

    def describe(self) -> dict[str, Any]:
        return {"model": "Line", "num_params": 2, "encoder": None}

    def error(self, batch: list[torch.Tensor]) -> torch.Tensor:
        return (self.linear(batch[0]) - batch[1]).square().mean()

    def training_step(self, batch, batch_idx):
        return self.error(batch)

    def validation_step(self, batch, batch_idx):
        self.log("val/error", self.error(batch))

    def test_step(self, batch, batch_idx):
        self.scores = {"test/error": self.error(batch)[None]}

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), self.lr)


def test_it_is_fitted_recorded_and_tested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["--model", f"{__name__}.Line", "--model.lr", "0.2", "--data", f"{__name__}.Numbers", "--data.count", "6"]
    quick = ["--trainer.max_steps", "9", "--trainer.log_every_n_steps", "1", "--wandb.enabled", "false"]
    assert main(["fit", *arguments, *quick]) == 0
    (run,) = Path("runs").glob("*/1")
    found = json.loads((run / "metrics.json").read_text())
    assert (found["model"], found["num_params"]) == ("Line", 2)
    assert found["test/error"] > 0
    assert (run / "checkpoints/best.ckpt").is_file()
    assert main(["test", "--ckpt_path", str(run / "checkpoints/last.ckpt")]) == 0
    again = json.loads((run / "test/metrics.json").read_text())
    assert again["test/error"] == pytest.approx(found["test/error"])
