"""A process of a Ray cluster that runs fits; imported there, so without what is slow or asks for a GPU at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pe_lightning.experiments.sweep.attempts import Job, Outcome, attempt

if TYPE_CHECKING:
    from pe_lightning.experiments.sweep.fits import Fits

__all__ = ["Worker"]


class Worker:
    """Runs fits one after the other and keeps the parser and the data from one to the next."""

    fits: Fits

    def start(self, folder: str, threads: int, gpu: bool) -> None:
        """Gets ready.

        Args:
            folder: That paths in configurations are relative to.
            threads: That torch computes with.
            gpu: Whether Ray gave this process a GPU, or a part of one.

        Raises:
            OSError: If the folder does not exist on this machine.
        """
        os.chdir(folder)
        if not gpu:  # some versions of Ray leave all GPUs visible to a process that asked for none
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        import torch

        from pe_lightning.experiments.sweep.fits import Fits

        torch.set_num_threads(threads)
        self.fits = Fits()

    def run(self, job: Job) -> tuple[Outcome, list[str]]:
        """Runs a fit; gives its outcome and its warnings."""
        texts: list[str] = []
        return attempt(self.fits, job, texts.append), texts
