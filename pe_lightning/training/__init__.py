"""The only part that imports Lightning: LightningModules, DataModules, callbacks, checkpoints and resumed fits.

Lightning is imported when a name of this package is used.
"""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from pe_lightning.training.base import TaskScores, TrainedModule, datamodule_of, trainer_of
    from pe_lightning.training.complex_linear import ComplexLinear
    from pe_lightning.training.coordinate import CoordinateModule
    from pe_lightning.training.datamodule import (
        FileDataModule,
        ImageDataModule,
        RowDataModule,
        SignalDataModule,
        TensorDataModule,
        VideoDataModule,
        make_datamodule,
    )
    from pe_lightning.training.estimator import EstimatorModule
    from pe_lightning.training.function import FunctionModule
    from pe_lightning.training.network import NetworkModule
    from pe_lightning.training.optimization import warm_up_and_cosine
    from pe_lightning.training.simple_mlp import SimpleMLP

__all__ = [
    "ComplexLinear",
    "CoordinateModule",
    "EstimatorModule",
    "FileDataModule",
    "FunctionModule",
    "ImageDataModule",
    "NetworkModule",
    "RowDataModule",
    "SignalDataModule",
    "SimpleMLP",
    "TaskScores",
    "TensorDataModule",
    "TrainedModule",
    "VideoDataModule",
    "datamodule_of",
    "make_datamodule",
    "trainer_of",
    "warm_up_and_cosine",
]

__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "base": ["TaskScores", "TrainedModule", "datamodule_of", "trainer_of"],
        "complex_linear": ["ComplexLinear"],
        "coordinate": ["CoordinateModule"],
        "datamodule": [
            "FileDataModule",
            "ImageDataModule",
            "RowDataModule",
            "SignalDataModule",
            "TensorDataModule",
            "VideoDataModule",
            "make_datamodule",
        ],
        "estimator": ["EstimatorModule"],
        "function": ["FunctionModule"],
        "network": ["NetworkModule"],
        "optimization": ["warm_up_and_cosine"],
        "simple_mlp": ["SimpleMLP"],
    },
)
