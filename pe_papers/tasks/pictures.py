"""Small pictures as sequences of pixels: classified, or generated pixel by pixel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jsonargparse.typing import NonNegativeInt, PositiveInt
from lightning.pytorch import Trainer
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from pe_lightning.errors import InputError
from pe_lightning.evaluation.metrics import SignalMetric
from pe_lightning.signals.sources import read_pictures
from pe_lightning.training.callbacks import RunRecorder
from pe_papers.tasks.base import AttentionTask
from pe_papers.tasks.data import Examples, TaskDataModule, task_data_of
from pe_papers.tasks.transformer import Transformer, table

TEXTURES = ("brick", "grass", "gravel")
"""Pictures of scikit-image, of 512 x 512 grey values."""
SAMPLES = 16
"""Generated pictures in the file of a run."""
COLUMNS = 8
"""Generated pictures in a row of the file."""
ZOOM = 4
"""Pixels of the file per pixel of a generated picture and axis."""


def digits(generator: torch.Generator) -> dict[str, dict[str, Tensor]]:
    """Pictures ``(M, 8, 8)`` of 17 levels and classes ``(M,)``, in three parts.

    ``test`` is the last quarter, ``val`` a random tenth of the rest, and ``train`` all others.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise InputError(f'the digits are part of scikit-learn ({error}): pip install "pe-lightning[tasks]"') from error
    data = load_digits()
    pixels, classes = torch.from_numpy(data.images).long(), torch.from_numpy(data.target).long()
    cut = len(pixels) * 3 // 4
    order = torch.randperm(cut, generator=generator)
    parts = {"train": order[cut // 10 :], "val": order[: cut // 10], "test": torch.arange(cut, len(pixels))}
    return {name: {"pixels": pixels[where], "classes": classes[where]} for name, where in parts.items()}


def textures(side: int = 16, levels: int = 16, step: int = 8) -> dict[str, dict[str, Tensor]]:
    """Patches of :data:`TEXTURES` and the index of the texture of each, in three parts that share no pixel.

    From top to bottom: ``train``, ``val``, and the lowest quarter, ``test``.

    Args:
        side: Pixels of a patch per axis.
        levels: Grey values.
        step: Pixels from one training patch to the next, which overlap; patches of the other parts do not.
    """
    parts: dict[str, list[Tensor]] = {"train": [], "val": [], "test": []}
    for _, values in read_pictures([f"samples://{name}" for name in TEXTURES]):
        grey = torch.from_numpy(np.rint(values[..., 0] * 255)).long() * levels // 256
        low, high = len(grey) * 21 // 32, len(grey) * 3 // 4
        for part, rows in (("train", grey[:low]), ("val", grey[low:high]), ("test", grey[high:])):
            stride = step if part == "train" else side
            parts[part].append(rows.unfold(0, side, stride).unfold(1, side, stride).reshape(-1, side, side))
    return {
        name: {"pixels": torch.cat(part), "classes": torch.arange(len(part)).repeat_interleave(len(part[0]))}
        for name, part in parts.items()
    }


class PixelDataModule(TaskDataModule):
    """Pictures of digits (8 x 8, 17 levels), or patches of textures (16 x 16, 16 levels), as sequences of pixels.

    Digits are from scikit-learn, ``pip install "pe-lightning[tasks]"``, and the last quarter is held out; textures are
    in scikit-image, and the lowest quarter of each is held out. Validation uses a tenth of the other digits, and the rows
    of the textures above those held out.

    A second test set of classification has larger pictures: digits at random places of an empty canvas of 12 x 12, and
    patches of 24 x 24. Positions are in units of the larger side, so that training has no positions in its last third.

    Args:
        pictures: ``digits`` or ``textures``.
        goal: The target: the ``class`` of a picture, or each ``pixel`` from the pixels before it, row by row.
        permuted: Whether the positions of the pixels are permuted, in the same way in all pictures: a control experiment, in
            which positions identify pixels, but nearby positions are not neighbours. There are no larger pictures then.
        batch_size: Pictures in a training batch.
        seed: Seed of the choice of digits for validation, and of the permutation.
    """

    task: ClassVar[str] = "pixels"

    def __init__(
        self,
        pictures: Literal["digits", "textures"] = "digits",
        goal: Literal["class", "pixel"] = "class",
        permuted: bool = False,
        batch_size: PositiveInt = 32,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(batch_size, seed)
        self.pictures = pictures
        self.goal = goal
        self.permuted = permuted

    def make_info(self) -> dict[str, Any]:
        side, levels, classes = (8, 17, 10) if self.pictures == "digits" else (16, 16, len(TEXTURES))
        subsets = [f"{self.pictures}{'-permuted' * self.permuted}"]
        if self.has_large:
            subsets.append(f"{self.pictures}-large")
        side = large_side(side) if self.goal == "class" else side
        return {"samples": [side] * 2, "levels": levels, "classes": classes, "goal": self.goal, "subsets": subsets}

    @property
    def has_large(self) -> bool:
        """Whether larger pictures than in training are tested."""
        return self.goal == "class" and not self.permuted

    def make_examples(self) -> dict[str, Examples]:
        generator = torch.Generator().manual_seed(self.seed)
        parts = digits(generator) if self.pictures == "digits" else textures()
        side = parts["train"]["pixels"].shape[-1]
        order = torch.randperm(side**2, generator=generator) if self.permuted else slice(None)
        if self.has_large:
            test = parts["test"] if self.pictures == "digits" else textures(large_side(side))["test"]
            placed = at_random_places(test["pixels"], large_side(side), generator)
            parts[self.info["subsets"][1]] = {**test, "pixels": placed}
        parts[self.info["subsets"][0]] = parts.pop("test")
        examples: dict[str, Examples] = {}
        for name, part in parts.items():
            rows = torch.arange(part["pixels"].shape[-1])
            grid = torch.cartesian_prod(rows, rows)[order] / self.info["samples"][0]
            pixels = part["pixels"].flatten(1)
            targets = part["classes"][:, None] if self.goal == "class" else pixels
            examples[name] = {"pixels": pixels, "targets": targets, "positions": grid.expand(len(pixels), -1, -1)}
        return examples


def large_side(side: int) -> int:
    """The side of the larger test pictures, from the side of training pictures."""
    return side * 3 // 2


def at_random_places(pixels: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Puts pictures ``(M, h, h)`` on empty canvases ``(M, side, side)``, ``side >= h``, each at a random place."""
    height = pixels.shape[-1]
    canvas = pixels.new_zeros(len(pixels), side, side)
    corners = torch.randint(side - height + 1, (len(pixels), 2), generator=generator)
    for picture, (top, left), empty in zip(pixels, corners.tolist(), canvas, strict=True):
        empty[top : top + height, left : left + height] = picture
    return canvas


def _check_goal(module: AttentionTask, info: Mapping[str, Any], goal: str) -> None:
    if info["goal"] != goal:
        raise InputError(f"{type(module).__name__} needs a PixelDataModule with goal: {goal}, got {info['goal']}")


class PixelClassification(AttentionTask):
    """A vision Transformer whose tokens are single pixels; it predicts the class of a picture from the mean of its tokens.

    Without positions its only input is the histogram of grey values. Arguments as for
    :class:`~pe_papers.tasks.AttentionTask`.

    Reference: Dosovitskiy et al., *An Image is Worth 16x16 Words*, ICLR 2021; here with patches of one pixel.
    """

    task: ClassVar[str] = "pixels"
    metric: ClassVar[str] = "accuracy"

    def make_layers(self, info: Mapping[str, Any]) -> None:
        _check_goal(self, info, "class")
        self.level = table(info["levels"], self.width)
        self.transformer = Transformer(self.width, self.heads, self.depth)
        self.output = nn.Linear(self.width, info["classes"])

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The logits of classes, ``(B, 1, classes)``."""
        positions = batch["positions"]
        tokens = self.positions(self.level(batch["pixels"]), positions)
        logits: Tensor = self.output(self.transformer(tokens, self.positions.angles(positions)).mean(1, keepdim=True))
        return logits


class PixelGeneration(AttentionTask):
    """Generates pixels one after the other: the probabilities of the levels from the pixels before and the position.

    A run also has ``samples.png``, pictures that the model generated. Arguments as for
    :class:`~pe_papers.tasks.AttentionTask`.

    Reference: Li et al., *Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding*, NeurIPS 2021,
    Sec. 4.1, with full attention and other data.
    """

    task: ClassVar[str] = "pixels"
    metric: ClassVar[str] = "bpd"

    def make_layers(self, info: Mapping[str, Any]) -> None:
        _check_goal(self, info, "pixel")
        self.levels = int(info["levels"])
        self.level = table(self.levels + 1, self.width)
        self.transformer = Transformer(self.width, self.heads, self.depth, causal=True)
        self.output = nn.Linear(self.width, self.levels)

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The logits of each pixel's levels, ``(B, T, levels)``, from the pixels before it; the last pixel is not used."""
        positions = batch["positions"]
        before = F.pad(batch["pixels"][:, :-1], (1, 0), value=self.levels)  # the start is an additional level
        tokens = self.positions(self.level(before), positions)
        logits: Tensor = self.output(self.transformer(tokens, self.positions.angles(positions)))
        return logits

    def nats(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Negative log-probability of each pixel in nats, ``(B, T)``."""
        return F.cross_entropy(self(batch).movedim(-1, 1), batch["targets"], reduction="none")

    def loss_sum(self, batch: Mapping[str, Tensor]) -> Tensor:
        return self.nats(batch).sum()

    def update(self, metric: SignalMetric, batch: Mapping[str, Tensor], mask: Tensor) -> None:
        bits = (self.nats(batch) / math.log(2))[None, ..., None].expand(len(mask), -1, -1, -1)
        metric.update(-bits, torch.zeros_like(bits), mask[..., None].expand(bits.shape[:-1]))

    @torch.no_grad()
    def sample(self, count: int, positions: Tensor, seed: int = 0) -> Tensor:
        """Generates pictures.

        Args:
            count: Number of pictures.
            positions: Positions of the pixels, ``(T, 2)``.
            seed: Seed of the random draws.

        Returns:
            Levels ``(count, T)``.
        """
        generator = torch.Generator(self.device).manual_seed(seed)
        pixels = torch.zeros(count, len(positions), dtype=torch.long, device=self.device)
        where = positions.to(self.device).expand(count, -1, -1)
        for number in range(len(positions)):
            # without the pixels that are not generated yet
            seen = {"pixels": pixels[:, : number + 1], "positions": where[:, : number + 1]}
            chances = self(seen)[:, -1].nan_to_num().softmax(-1)  # finite even if the fit has diverged
            pixels[:, number] = torch.multinomial(chances, 1, generator=generator)[:, 0]
        return pixels

    def on_test_end(self) -> None:
        trainer: Trainer = self.trainer
        folder = RunRecorder.run_dir_of(trainer)
        data = task_data_of(trainer)
        if folder is None or not trainer.is_global_zero or data is None:
            return
        drawn = self.sample(SAMPLES, data.examples["val"]["positions"][0])
        path = write_pictures(folder / "samples.png", drawn.cpu(), self.levels)
        for logger in trainer.loggers:
            if hasattr(logger, "log_image"):
                logger.log_image("samples", [str(path)], step=trainer.global_step)


def write_pictures(path: Path, pixels: Tensor, levels: int) -> Path:
    """Writes square pictures ``(M, side * side)`` side by side as a PNG, and returns its path."""
    side = math.isqrt(pixels.shape[1])
    rows = pixels.reshape(-1, COLUMNS, side, side)
    framed = F.pad(rows, (1, 1, 1, 1)).movedim(1, 2).reshape(len(rows) * (side + 2), COLUMNS * (side + 2))
    grey = (framed * 255 // (levels - 1)).byte().repeat_interleave(ZOOM, 0).repeat_interleave(ZOOM, 1)
    Image.fromarray(grey.numpy()).save(path)
    return path
