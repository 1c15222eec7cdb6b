"""Callbacks: the run directory and what it holds, the progress bar, and what looks at a fit while it goes on."""

from pe_lightning.callbacks.interrupt import GracefulStop
from pe_lightning.callbacks.loggers import WandbSettings
from pe_lightning.callbacks.memory import PeakMemory
from pe_lightning.callbacks.monitors import check_monitors
from pe_lightning.callbacks.progress import PSNRProgressBar
from pe_lightning.callbacks.recorder import RunRecorder
from pe_lightning.callbacks.reporting import Reporting, reports
from pe_lightning.callbacks.snapshots import Snapshots
from pe_lightning.callbacks.stable_rank import StableRank
from pe_lightning.callbacks.thresholds import TimeToPSNR

__all__ = [
    "GracefulStop",
    "PSNRProgressBar",
    "PeakMemory",
    "Reporting",
    "RunRecorder",
    "Snapshots",
    "StableRank",
    "TimeToPSNR",
    "WandbSettings",
    "check_monitors",
    "reports",
]
