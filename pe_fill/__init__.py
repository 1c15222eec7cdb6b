"""Tools for files of one's own: gaps are filled, pictures enlarged and denoised, scattered points and series fitted.

This package uses the documented interface of :mod:`pe_lightning` alone, and joins its command by entry points, as any other
package can: the verb ``fill``, models, estimators, sources, DataModules, a medium and recipes.

Importing this package imports neither torch nor Lightning; the names below are imported when they are used.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from pe_fill import xarray
    from pe_fill.datamodules import LabelledDataModule, PointsDataModule
    from pe_fill.estimators.point_fit import fit_points
    from pe_fill.filling import fill
    from pe_fill.modules import Adaptive, Local
    from pe_fill.sparse.module import SparseLinear

RECIPES = Path(__file__).parent / "configs"
"""Folder of the recipes: adaptive and sparse fits, scattered points, labelled arrays."""

__all__ = [
    "RECIPES",
    "Adaptive",
    "LabelledDataModule",
    "Local",
    "PointsDataModule",
    "SparseLinear",
    "fill",
    "fit_points",
    "xarray",
]

__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    {"xarray"},
    {
        "datamodules": ["LabelledDataModule", "PointsDataModule"],
        "filling": ["fill"],
        "estimators.point_fit": ["fit_points"],
        "modules": ["Adaptive", "Local"],
        "sparse.module": ["SparseLinear"],
    },
)
