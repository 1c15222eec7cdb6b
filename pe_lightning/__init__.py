"""Functions of position from samples: fill, enlarge, denoise, compress signals, and compare positional encodings.

``pe_lightning`` fits signals (rows, images, video cubes) with coordinate networks. A signal is a function from
coordinates in [0, 1] to values in [0, 1]; an *encoder* turns one coordinate into features, an *encoding* combines the
axes, and a *module* maps the features to values.

``docs/architecture.md`` says what is where, and which part may import which.

Importing this package imports neither torch nor Lightning; the names below are imported when they are used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from pe_lightning import _moved  # noqa: F401  # modules are found by their old paths too

__version__ = "0.2.0"

if TYPE_CHECKING:
    from pe_lightning.callbacks import RunRecorder
    from pe_lightning.data import (
        ImageDataModule,
        LabelledDataModule,
        PointsDataModule,
        RowDataModule,
        TensorDataModule,
        VideoDataModule,
    )
    from pe_lightning.encoders import Encoder
    from pe_lightning.export import load
    from pe_lightning.filling import fill
    from pe_lightning.interface import create_encoder, fit, list_encoders
    from pe_lightning.modules import Adaptive, ComplexLinear, Local, SimpleMLP
    from pe_lightning.point_fit import fit_points

MODULE_OF_NAME = {
    "Adaptive": "modules",
    "ComplexLinear": "modules",
    "Encoder": "encoders",
    "ImageDataModule": "data",
    "LabelledDataModule": "data",
    "Local": "modules",
    "PointsDataModule": "data",
    "RowDataModule": "data",
    "RunRecorder": "callbacks",
    "SimpleMLP": "modules",
    "TensorDataModule": "data",
    "VideoDataModule": "data",
    "create_encoder": "interface",
    "fill": "filling",
    "fit": "interface",
    "fit_points": "point_fit",
    "list_encoders": "interface",
    "load": "export",
}

SUBMODULES = frozenset({"xarray"})
"""Modules of functions that are named with their module: ``pe_lightning.xarray.fill``."""

__all__ = [
    "Adaptive",
    "ComplexLinear",
    "Encoder",
    "ImageDataModule",
    "LabelledDataModule",
    "Local",
    "PointsDataModule",
    "RowDataModule",
    "RunRecorder",
    "SimpleMLP",
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


def __getattr__(name: str) -> Any:
    if name in SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{MODULE_OF_NAME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
