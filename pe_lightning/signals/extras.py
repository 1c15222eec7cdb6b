"""Optional packages: imported where they are needed, with a message that says what to install."""

from __future__ import annotations

import importlib
from types import ModuleType

from pe_lightning.errors import InputError

EXTRA_OF_PACKAGE = {
    "h5netcdf": "geo",
    "pyarrow": "geo",
    "rasterio": "geo",
    "xarray": "geo",
    "zarr": "geo",
}
"""The extra of this package that installs each optional package."""


def require(module: str, purpose: str) -> ModuleType:
    """Imports a module of an optional package.

    Args:
        module: Name of the module, such as ``pyarrow.parquet``.
        purpose: What needs it, for the message.
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        extra = EXTRA_OF_PACKAGE[package]
        raise InputError(
            f"{purpose} needs the package {package}, which is not installed: pip install 'pe-lightning[{extra}]'"
        ) from error
