"""Which DataModule files are for, by what they are called."""

from __future__ import annotations

from collections.abc import Sequence

from pe_lightning.data.sources import kind_of
from pe_lightning.errors import InputError

__all__ = ["data_module_for"]

_MODULES = {"images": "ImageDataModule", "rows": "RowDataModule", "video": "VideoDataModule"}
HOW = "say which with --data ImageDataModule, RowDataModule or VideoDataModule"


def data_module_for(paths: Sequence[str]) -> str:
    """The name of the DataModule for files, folders or samples; folders are judged by the files in them.

    Raises:
        InputError: If they are of several kinds, of a kind that is not known, or one of which several could be meant.
    """
    try:
        modules = {path: _MODULES[kind_of(path)] for path in paths}
    except InputError as error:
        raise InputError(f"{error}; {HOW}") from error
    if len(set(modules.values())) > 1:
        shown = ", ".join(f"{path!r} ({module})" for path, module in list(modules.items())[:4])
        raise InputError(f"the paths are of several kinds: {shown}; suggest looks at one kind at a time, or {HOW}")
    return next(iter(modules.values()))
