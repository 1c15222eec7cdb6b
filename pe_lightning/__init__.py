"""A Lightning-based framework that trains and exactly solves coordinate networks on positional encodings.

Signals are rows, images and video cubes. A signal is a function from
coordinates in [0, 1] to values in [0, 1]; an *encoder* turns one coordinate into features, an *encoding* combines the
axes, and a *module* maps the features to values.

``docs/architecture.md`` says what is where, and which part may import which.

Importing this package imports neither torch nor Lightning; the names below are imported when they are used.
"""

from typing import TYPE_CHECKING

import lazy_loader

__version__ = "0.3.0.dev0"

if TYPE_CHECKING:
    from pe_lightning.encoders import Encoder, create_encoder, list_encoders
    from pe_lightning.estimators.filling import fill
    from pe_lightning.estimators.point_fit import fit_points
    from pe_lightning.training import (
        Adaptive,
        ComplexLinear,
        EstimatorModule,
        ImageDataModule,
        LabelledDataModule,
        Local,
        PointsDataModule,
        RowDataModule,
        SimpleMLP,
        SparseLinear,
        TensorDataModule,
        VideoDataModule,
    )
    from pe_lightning.training.callbacks import RunRecorder
    from pe_lightning.training.export import load
    from pe_lightning.training.fit import fit

__all__ = [
    "Adaptive",
    "ComplexLinear",
    "Encoder",
    "EstimatorModule",
    "ImageDataModule",
    "LabelledDataModule",
    "Local",
    "PointsDataModule",
    "RowDataModule",
    "RunRecorder",
    "SimpleMLP",
    "SparseLinear",
    "TensorDataModule",
    "VideoDataModule",
    "__version__",
    "create_encoder",
    "fill",
    "fit",
    "fit_points",
    "list_encoders",
    "load",
]

__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    {"xarray"},
    {
        "encoders": ["Encoder", "create_encoder", "list_encoders"],
        "estimators.filling": ["fill"],
        "estimators.point_fit": ["fit_points"],
        "training": [
            "Adaptive",
            "ComplexLinear",
            "EstimatorModule",
            "ImageDataModule",
            "LabelledDataModule",
            "Local",
            "PointsDataModule",
            "RowDataModule",
            "SimpleMLP",
            "SparseLinear",
            "TensorDataModule",
            "VideoDataModule",
        ],
        "training.callbacks": ["RunRecorder"],
        "training.export": ["load"],
        "training.fit": ["fit"],
    },
)
