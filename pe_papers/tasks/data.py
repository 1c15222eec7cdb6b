"""DataModules of the tasks: tensors in memory, in batches that do not depend on the number of processes."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import torch
from lightning.pytorch import LightningDataModule, Trainer
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.signals import Process, TrainLoader, permutation, run_seed
from pe_lightning.training import datamodule_of

Examples = Mapping[str, Tensor]
"""Tensors by name, ``(M, ...)`` each; ``targets`` are predicted, and are -1 where there is no target."""


class TaskDataModule(LightningDataModule, ABC):
    """Examples of a task: tensors that are generated or read once, equal for equal arguments.

    A batch is a dictionary of tensors, with ``total``: the number of targets in the batches of all processes.

    Args:
        batch_size: Examples in a training batch of all processes; the last batch of an epoch may be smaller.
        seed: Seed of the examples. Their order in training follows ``seed_everything``.
    """

    task: ClassVar[str]
    """Name of the task, in run directories and tables."""

    def __init__(self, batch_size: int, seed: int) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.seed = seed

    @abstractmethod
    def make_examples(self) -> dict[str, Examples]:
        """The examples of ``train``, of ``val``, and of each test set in ``subsets``."""

    @abstractmethod
    def make_info(self) -> dict[str, Any]:
        """Sizes that models need, as plain values: at least ``samples`` (positions per axis) and ``subsets`` (names)."""

    @cached_property
    def info(self) -> dict[str, Any]:
        """The values of :meth:`make_info`, with the name of the task."""
        return {"task": self.task, **self.make_info()}

    @cached_property
    def examples(self) -> dict[str, Examples]:
        """The examples, made at the first access."""
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
        _ = self.examples

    @property
    def process(self) -> Process:
        """This process."""
        return Process() if self.trainer is None else Process(self.trainer.global_rank, self.trainer.world_size)

    def train_dataloader(self) -> _Shuffled:
        return _Shuffled(self.examples["train"], self.batch_size, run_seed(), self.process)

    def val_dataloader(self) -> _InOrder:
        return _InOrder([self.examples["val"]], 4 * self.batch_size, self.process)

    def test_dataloader(self) -> _InOrder:
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
