"""Commands in processes of their own, and a callback that sends such a process a signal."""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from lightning.pytorch import Callback

TESTS = Path(__file__).parent
QUICK = ["--data.resize", "32", "--model.encoder.num_features", "16", "--trainer.log_every_n_steps", "5"]
QUICK += ["--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false"]


def run_fit(folder: Path, recipe: str, *arguments: str, wandb: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs a recipe for images in a folder. Further processes run the same command line again."""
    folder.mkdir(exist_ok=True)
    config = str(TESTS.parent / "configs/image" / recipe)
    command = [sys.executable, "-m", "pe_lightning", "fit", "--config", config, *QUICK]
    command += ["--wandb.enabled", str(wandb).lower(), *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300, env=environment)


def fit(folder: Path, recipe: str, *arguments: str, wandb: bool = False) -> dict:
    """The metrics of a fit that succeeds."""
    done = run_fit(folder, recipe, *arguments, wandb=wandb)
    assert done.returncode == 0, done.stderr
    return metrics(only_run(folder))


def only_run(folder: Path) -> Path:
    (run,) = folder.glob("runs/*/*")
    return run


def metrics(run: Path) -> dict:
    return json.loads((run / "metrics.json").read_text())


def checkpoint(run: Path) -> dict:
    return torch.load(run / "checkpoints/last.ckpt", weights_only=True)


class SignalAt(Callback):
    """Sends a signal to this process after a step.

    Args:
        step: The optimiser step.
        signum: The signal: 2 is Ctrl-C, 9 a kill.
        rank: Of the process that it is sent to; -1 for every one.
    """

    def __init__(self, step: int, signum: int, rank: int = -1) -> None:
        self.step = step
        self.signum = signum
        self.rank = rank

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        """Sends it."""
        if trainer.global_step == self.step and self.rank in (-1, trainer.global_rank):
            os.kill(os.getpid(), self.signum)
