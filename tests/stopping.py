"""A callback for commands in processes of their own: sends its process a signal at a step."""

import os

from lightning.pytorch import Callback


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
