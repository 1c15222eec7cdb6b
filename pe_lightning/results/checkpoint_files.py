"""Checkpoint files, read without running code and without Lightning."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pe_lightning import __version__
from pe_lightning.errors import InputError
from pe_lightning.results import runs
from pe_lightning.signals.files import user_path

LAST, BEST = "last.ckpt", "best.ckpt"
VERSION_KEY = "pe_lightning/version"
"""Key of the version that wrote a checkpoint."""
READABLE = (("0", "3"), ("0", "4"))
"""The first two numbers of versions whose checkpoints are read; ``tests/golden`` has some of the first."""


def locate(path: str | Path) -> Path:
    """The absolute path of a checkpoint file; of a run directory, its last checkpoint."""
    found = user_path(path)
    found = found / runs.CHECKPOINTS / LAST if os.path.isdir(found) else found
    if not os.path.isfile(found):
        raise InputError(
            f"no checkpoint at {str(path)!r}: give a run directory, which has "
            f"{runs.CHECKPOINTS}/{LAST}, or a checkpoint on this machine"
        )
    return found.absolute()


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Reads a checkpoint to the CPU without running its code."""
    found = locate(path)
    try:
        with zipfile.ZipFile(found) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError("PyTorch does not compress")
            if (damaged := archive.testzip()) is not None:
                raise ValueError(f"the checksum of {damaged} is wrong")
        checkpoint: dict[str, Any] = torch.load(found, map_location="cpu", weights_only=True)
        checkpoint = {"hyper_parameters": {}, **checkpoint, "state_dict": dict(checkpoint["state_dict"])}
        ours = "_class_path" in checkpoint["hyper_parameters"]
    except Exception as error:  # damaged files make zipfile and torch raise anything
        if isinstance(error, OSError) and error.errno is not None:
            raise InputError(f"cannot open {str(path)!r}: {error.strerror}") from error
        reason = "its pickle names code" if isinstance(error, pickle.UnpicklingError) else type(error).__name__
        raise InputError(
            f"{str(path)!r} is not a checkpoint of pe_lightning, or is damaged ({reason} while it was read)"
        ) from error
    if ours:
        refuse_other_version(checkpoint, str(path))
    return checkpoint


def refuse_other_version(checkpoint: Mapping[str, Any], path: str = "the checkpoint") -> None:
    """Checks that a checkpoint was written by one of the :data:`READABLE` versions."""
    written = str(checkpoint.get(VERSION_KEY, "0.1.0"))  # the first version did not write its number
    if tuple(written.split(".")[:2]) not in READABLE:
        raise InputError(
            f"{path!r} was written by pe_lightning {written}, this is {__version__}: fit again with the config.yaml of its "
            f"run (pe-lightning fit --config RUN/config.yaml), or install that version (pip install pe-lightning=={written})"
        )
