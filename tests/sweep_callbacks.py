"""A callback for sweeps whose cells run in processes of their own."""

import os
import signal
import warnings
from pathlib import Path

import torch
from lightning.pytorch import Callback


class Act(Callback):
    """Does something after a step of the cell with one encoder, the first time only.

    Args:
        cell: Name of the encoder.
        step: The optimiser step.
        deed: ``die``: this process ends; ``terminate``: it gets SIGTERM; ``interrupt``: Ctrl-C for the process group in the
            file ``driver``; ``warn``.
    """

    def __init__(self, cell: str, step: int, deed: str) -> None:
        self.cell = cell
        self.step = step
        self.deed = deed

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        """Does it."""
        with open("workers", "a") as workers:
            workers.write(f"{os.getpid()} {torch.get_num_threads()}\n")
        if trainer.global_step != self.step or pl_module.encoding.encoders[0].name != self.cell or Path(self.deed).exists():
            return
        Path(self.deed).touch()
        if self.deed == "warn":
            warnings.warn("the cell has something to say", stacklevel=1)
        elif self.deed == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.deed == "terminate":
            os.kill(os.getpid(), signal.SIGTERM)
        else:  # as a terminal does
            os.killpg(int(Path("driver").read_text()), signal.SIGINT)
