"""DataModules of the tasks: tensors in memory, and batches that do not depend on the number of processes."""

from __future__ import annotations

import hashlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import torch
from lightning.pytorch import LightningDataModule, Trainer
from torch import Tensor

from pe_lightning.data.loaders import TrainLoader, permutation
from pe_lightning.distributed import Process
from pe_lightning.encoders.base import check_count
from pe_lightning.errors import InputError
from pe_lightning.modules.base import datamodule_of

__all__ = ["Examples", "TaskDataModule", "task_data_of"]

Examples = Mapping[str, Tensor]
"""Tensors by name, ``(M, ...)`` each; ``targets`` are what is predicted, -1 where nothing is."""


class TaskDataModule(LightningDataModule, ABC):
    """Examples of a task: tensors that are made or read once, the same for the same arguments.

    A batch is a dictionary of tensors, with ``total``: the number of targets in the batches of all processes together.

    Args:
        batch_size: Examples in a training batch, of all processes together; the last one of an epoch may be smaller.
        seed: Of the examples. Their order in training follows ``seed_everything``.
    """

    task: ClassVar[str]
    """The name of the task, for run directories and tables."""

    def __init__(self, batch_size: int, seed: int) -> None:
        super().__init__()
        self.batch_size = check_count(self, "batch_size", batch_size)
        self.seed = check_count(self, "seed", seed, minimum=0)

    @abstractmethod
    def make_examples(self) -> dict[str, Examples]:
        """The examples for ``train``, for ``val``, and for each of the ``subsets``, the test sets."""

    @abstractmethod
    def make_info(self) -> dict[str, Any]:
        """What a model has to know, as plain values: at least ``samples`` (positions per axis) and ``subsets`` (names)."""

    @cached_property
    def info(self) -> dict[str, Any]:
        """As :meth:`make_info`."""
        return {"task": self.task, **self.make_info()}

    @cached_property
    def examples(self) -> dict[str, Examples]:
        """The examples, made when they are first asked for."""
        return self.make_examples()

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with any example."""
        digest = hashlib.sha256()
        for name, part in self.examples.items():
            for key, tensor in part.items():
                digest.update(f"{name}/{key} {tuple(tensor.shape)} {tensor.dtype};".encode())
                digest.update(tensor.contiguous().numpy().data.cast("B"))
        return digest.hexdigest()[:16]

    def prepare_data(self) -> None:
        """Makes the examples, so that bad input fails before anything else happens."""
        _ = self.examples

    @property
    def process(self) -> Process:
        """This process, of those that train together."""
        return Process() if self.trainer is None else Process(self.trainer.global_rank, self.trainer.world_size)

    def train_dataloader(self) -> _Shuffled:
        """This process's share of batches in random order; the order of an epoch follows the seed and its number."""
        # Lightning's seed_everything leaves the seed there
        seed = int(os.environ.get("PL_GLOBAL_SEED", 0))
        return _Shuffled(self.examples["train"], self.batch_size, seed, self.process)

    def val_dataloader(self) -> _InOrder:
        """This process's share of the validation examples."""
        return _InOrder([self.examples["val"]], 4 * self.batch_size, self.process)

    def test_dataloader(self) -> _InOrder:
        """This process's share of the test examples; a batch has the number of its test set in ``subset``."""
        return _InOrder([self.examples[name] for name in self.info["subsets"]], 4 * self.batch_size, self.process)


def task_data_of(trainer: Trainer | None) -> TaskDataModule | None:
    """The DataModule of a Trainer, if it is one of a task."""
    return datamodule_of(trainer, TaskDataModule)  # type: ignore[type-abstract]


class _Shuffled(TrainLoader):
    def __init__(self, examples: Examples, size: int, seed: int, process: Process) -> None:
        self.examples = examples
        self.size = size
        super().__init__(math.ceil(len(examples["targets"]) / size), None, process, seed)

    def one_pass(self, number: int, first: int) -> Iterator[Any]:
        order = permutation(len(self.examples["targets"]), self.seed, number)
        for chosen in torch.split(order, self.size)[first:]:
            total = int((self.examples["targets"][chosen] >= 0).sum())
            own = chosen[self.process.share(len(chosen))]
            yield {key: tensor[own] for key, tensor in self.examples.items()} | {"total": total}


class _InOrder:
    def __init__(self, sets: Sequence[Examples], size: int, process: Process) -> None:
        self.batches: list[dict[str, Any]] = []
        for number, examples in enumerate(sets):
            if (count := len(examples["targets"])) < process.world_size:
                raise InputError(f"{process.world_size} processes cannot share {count} example(s); lower trainer.devices")
            share = process.share(count)
            for start in range(share.start, share.stop, size):
                part = slice(start, min(start + size, share.stop))
                self.batches.append({key: tensor[part] for key, tensor in examples.items()} | {"subset": number})

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.batches)
