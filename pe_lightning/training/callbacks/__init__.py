"""Lightning callbacks: the recorder of a run, the progress bar, and callbacks that measure a fit while it runs."""

from pe_lightning.training.callbacks.base import check_monitors
from pe_lightning.training.callbacks.devices import MatmulPrecision, PeakMemory
from pe_lightning.training.callbacks.loggers import WandbSettings
from pe_lightning.training.callbacks.recorder import RunRecorder, reports
from pe_lightning.training.callbacks.scores import Describes
from pe_lightning.training.callbacks.snapshots import Snapshots
from pe_lightning.training.callbacks.stable_rank import StableRank, encoding_rank, layer_ranks
from pe_lightning.training.callbacks.terminal import GracefulStop, PSNRProgressBar
from pe_lightning.training.callbacks.time_to_psnr import TimeToPSNR

__all__ = [
    "Describes",
    "GracefulStop",
    "MatmulPrecision",
    "PSNRProgressBar",
    "PeakMemory",
    "RunRecorder",
    "Snapshots",
    "StableRank",
    "TimeToPSNR",
    "WandbSettings",
    "check_monitors",
    "encoding_rank",
    "layer_ranks",
    "reports",
]
