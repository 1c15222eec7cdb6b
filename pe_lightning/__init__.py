"""A Lightning-based training framework with a plugin registry of positional encoders for coordinate networks.

Signals are rows, images and video cubes. A signal is a function from
coordinates in [0, 1] to values in [0, 1]; an *encoder* turns one coordinate into features, an *encoding* combines the
axes, and a *module* maps the features to values.

``docs/architecture.md`` describes the parts. Importing this package imports neither torch nor Lightning; the names below are
imported when they are used.
"""

from typing import TYPE_CHECKING, Any

import lazy_loader

__version__ = "0.4.0"

if TYPE_CHECKING:
    from pe_lightning.encoders import Encoder, create_encoder, list_encoders
    from pe_lightning.training import (
        ComplexLinear,
        EstimatorModule,
        ImageDataModule,
        NetworkModule,
        RowDataModule,
        SimpleMLP,
        TensorDataModule,
        VideoDataModule,
    )
    from pe_lightning.training.callbacks import RunRecorder
    from pe_lightning.training.export import load
    from pe_lightning.training.fit import fit

__all__ = [
    "ComplexLinear",
    "Encoder",
    "EstimatorModule",
    "ImageDataModule",
    "NetworkModule",
    "RowDataModule",
    "RunRecorder",
    "SimpleMLP",
    "TensorDataModule",
    "VideoDataModule",
    "__version__",
    "create_encoder",
    "fit",
    "list_encoders",
    "load",
]

MOVED = {"Adaptive", "LabelledDataModule", "Local", "PointsDataModule", "fill", "fit_points", "xarray"}
"""Names of version 0.2 that are in another package of this distribution."""

_attribute, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "encoders": ["Encoder", "create_encoder", "list_encoders"],
        "training": [
            "ComplexLinear",
            "EstimatorModule",
            "ImageDataModule",
            "NetworkModule",
            "RowDataModule",
            "SimpleMLP",
            "TensorDataModule",
            "VideoDataModule",
        ],
        "training.callbacks": ["RunRecorder"],
        "training.export": ["load"],
        "training.fit": ["fit"],
    },
)


def __getattr__(name: str) -> Any:
    if name in MOVED:
        raise ImportError(f"pe_lightning.{name} is pe_fill.{name} now: from pe_fill import {name}")
    return _attribute(name)
