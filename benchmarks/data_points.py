"""Number 3: points per second that reach a step that does nothing."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import h5py
import torch
from torch import Tensor

from pe_lightning.signals import Batching, Storage
from pe_lightning.training import TensorDataModule, VideoDataModule

SIDE, CHANNELS, BATCH = 128, 3, 65536


def points(repeats: int) -> None:
    """Prints the table; all sides in one process, in turn."""
    values = torch.rand(SIDE**3, CHANNELS, generator=torch.Generator().manual_seed(0))
    cube = values.view(1, *[SIDE] * 3, CHANNELS)
    everything = {"sampling": {"name": "grid", "stride": 1}, "protocol": "none", "batching": Batching("points", BATCH)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cube.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("values", data=cube[0].numpy(), chunks=(32, 32, 32, CHANNELS))
        sides = {
            "values[order], one tensor": lambda: indexed(values),
            "in memory, PointLoader": TensorDataModule(cube, **everything).train_dataloader,
            "from a file, FilePointLoader": VideoDataModule(
                str(path), storage=Storage(in_memory=False), **everything
            ).train_dataloader,
        }
        turns = [{name: seconds(make()) for name, make in sides.items()} for _ in range(repeats + 1)][
            1:
        ]  # the first warms up
    print(f"\nan epoch of {SIDE}^3 samples of {CHANNELS} channels in batches of {BATCH}, medians of {repeats}")
    print(f"{'':28}{'million points a second':>24}{'of indexing':>13}   what a batch holds")
    for name, holds in zip(sides, ("values", *["values, coordinates, positions"] * 2), strict=True):
        speed = SIDE**3 / statistics.median(turn[name] for turn in turns) / 1e6
        ratio = statistics.median(next(iter(turn.values())) / turn[name] for turn in turns)
        print(f"{name:28}{speed:24.1f}{ratio:13.2f}   {holds}", flush=True)


def indexed(values: Tensor) -> Iterable[Tensor]:
    """The least that random batches cost: a permutation, and the values at it."""
    for chosen in torch.randperm(len(values)).split(BATCH):
        yield values[chosen]


def seconds(loader: Iterable[object]) -> float:
    """Seconds of one epoch."""
    began = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - began
