"""Lightning callbacks: the recorder of a run, the progress bar, and callbacks that measure a fit while it runs."""

from pe_lightning.callbacks.context import Describes, Reporting, check_monitors, reports
from pe_lightning.callbacks.interrupt import GracefulStop
from pe_lightning.callbacks.loggers import WandbSettings
from pe_lightning.callbacks.memory import PeakMemory
from pe_lightning.callbacks.progress import PSNRProgressBar
from pe_lightning.callbacks.recorder import RunRecorder
from pe_lightning.callbacks.snapshots import Snapshots
from pe_lightning.callbacks.stable_rank import StableRank
from pe_lightning.callbacks.time_to_psnr import TimeToPSNR

__all__ = [
    "Describes",
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
