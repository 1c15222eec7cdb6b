"""Lightning callbacks: the recorder of a run, the progress bar, and callbacks that measure a fit while it runs."""

from pe_lightning.training.callbacks.base import TrainingClock, callbacks, check_monitors
from pe_lightning.training.callbacks.devices import MatmulPrecision
from pe_lightning.training.callbacks.loggers import WandbSettings
from pe_lightning.training.callbacks.recorder import RunRecorder
from pe_lightning.training.callbacks.scores import Describes, reports
from pe_lightning.training.callbacks.snapshots import Snapshots
from pe_lightning.training.callbacks.terminal import GracefulStop, PSNRProgressBar
from pe_lightning.training.checkpoints import FiniteWeights, Resumption
from pe_lightning.training.initialization import InitialWeights

for _callback in (FiniteWeights, InitialWeights, Resumption):  # below the registry
    callbacks.register(_callback.__name__)(_callback)

__all__ = [
    "Describes",
    "FiniteWeights",
    "GracefulStop",
    "InitialWeights",
    "MatmulPrecision",
    "PSNRProgressBar",
    "Resumption",
    "RunRecorder",
    "Snapshots",
    "TrainingClock",
    "WandbSettings",
    "check_monitors",
    "reports",
]
