"""Parts of configurations for sweeps on a cluster: they act in the process that runs the cell."""

import os
import signal
import warnings
from pathlib import Path

import torch
from lightning.pytorch import Callback

from pe_lightning.data import ImageDataModule


class CountedImages(ImageDataModule):
    """Adds a line to the file ``reads`` whenever signals are read."""

    def read(self):
        """Reads them."""
        with open("reads", "a") as file:
            file.write(f"{os.getpid()}\n")
        return super().read()


class Act(Callback):
    """Does something after a step of the cell with one encoder, the first time only.

    Args:
        cell: Name of the encoder.
        step: The optimiser step.
        deed: ``die``: this process; ``interrupt``, ``interrupt twice``, ``kill``: the one in the file ``driver``; ``warn``.
    """

    def __init__(self, cell: str, step: int, deed: str) -> None:
        self.cell = cell
        self.step = step
        self.deed = deed

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        """Does it."""
        with open("workers", "a") as workers, open("threads", "a") as threads:
            workers.write(f"{os.getpid()}\n")
            threads.write(f"{torch.get_num_threads()}\n")
        if trainer.global_step != self.step or pl_module.prototypes[0].name != self.cell or Path("done").exists():
            return
        Path("done").touch()
        if self.deed == "warn":
            warnings.warn("the cell has something to say", stacklevel=1)
        elif self.deed == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.deed == "kill":
            os.kill(int(Path("driver").read_text()), signal.SIGKILL)
            while True:  # Ray takes some seconds to end this process
                signal.pause()
        else:  # to all processes of the group, as a terminal does
            os.killpg(int(Path("driver").read_text()), signal.SIGINT)
            if self.deed == "interrupt twice":
                while not Path("heard").exists():  # two signals at once are one
                    pass
                os.killpg(int(Path("driver").read_text()), signal.SIGINT)
