"""Callbacks: the run directory and what it holds, the progress bar."""

from pe_lightning.callbacks.loggers import WandbSettings
from pe_lightning.callbacks.progress import PSNRProgressBar
from pe_lightning.callbacks.recorder import RunRecorder

__all__ = ["PSNRProgressBar", "RunRecorder", "WandbSettings"]
