"""Layout relations: the box that is left of, inside, or aligned with another. A small substitute for widget captioning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from jsonargparse.typing import NonNegativeInt, PositiveInt
from torch import Tensor, nn

from pe_papers.tasks.base import AttentionTask
from pe_papers.tasks.data import Examples, TaskDataModule
from pe_papers.tasks.transformer import Transformer, table

RELATIONS = ("left", "inside", "aligned")
SUBSETS = ("seen", "unseen-inside", "unseen-outside")
"""Test sets: boxes as in training; boxes with coordinates that do not occur in training, inside and outside of the convex
hull of the training boxes."""

NUM_POSITIONS = 32
"""Positions per axis: coordinates are i/32."""
MIN_TRAINED, MAX_TRAINED = 6, 25
"""Range of the coordinates in training."""
NUM_NAMES = 16
"""Number of names."""
BOXES_PER_SCENE = 8
"""Boxes of a scene, each with another name."""
DRAWS = 100_000
"""Boxes that are drawn at a time."""


def related(boxes: Tensor) -> Tensor:
    """Relations between all pairs of boxes.

    Args:
        boxes: ``(*batch, N, 4)``: left, top, right, bottom.

    Returns:
        ``(*batch, 3, N, N)``: whether box ``j`` is in relation ``r`` of :data:`RELATIONS` to box ``i``: ``j`` ends left of
        ``i`` and overlaps it vertically; ``j`` is inside ``i``; both have the same left edge.
    """
    left, top, right, bottom = boxes.unsqueeze(-2).unbind(-1)
    other_left, other_top, other_right, other_bottom = boxes.unsqueeze(-3).unbind(-1)
    beside = (other_right <= left) & (other_top < bottom) & (top < other_bottom)
    inside = (left <= other_left) & (other_right <= right) & (top <= other_top) & (other_bottom <= bottom)
    relations = torch.stack([beside, inside, other_left == left], -3)
    return relations & ~torch.eye(boxes.shape[-2], dtype=torch.bool)


def subset_of(boxes: Tensor) -> Tensor:
    """Index in :data:`SUBSETS` of boxes ``(*batch, 4)`` of integer coordinates, ``(*batch,)``.

    ``seen``: every coordinate occurs in training. ``unseen-outside``: one is outside of the range of training.
    ``unseen-inside``: all others.
    """
    outside = ((boxes < MIN_TRAINED) | (boxes > MAX_TRAINED)).any(-1)
    # coordinates in that range that no training box has. Both ends and their neighbours are trained, so that the convex
    # hull of the training boxes contains all boxes of the range
    new = torch.isin(boxes, torch.tensor((8, 13, 18, 23))).any(-1)
    return torch.where(outside, 2, new.long())


class LayoutDataModule(TaskDataModule):
    """Scenes of 8 boxes with names, and a relation; the target of a box is the name of the one box with that relation to it.

    Positions are 4-D, (left, top, right, bottom). A box has no target (-1) if no box or several boxes have the relation to
    it. Training coordinates are in the middle of the axes, with some values left out; test boxes are like training boxes,
    or unseen inside or outside of the convex hull of the training boxes (App. E of the paper).

    Args:
        num_train: Training scenes.
        num_test: Scenes of the validation set, and of each of the three test sets.
        batch_size: Scenes in a training batch.
        seed: Seed of the scenes.
    """

    task: ClassVar[str] = "layout"

    def __init__(
        self,
        num_train: PositiveInt = 16384,
        num_test: PositiveInt = 1024,
        batch_size: PositiveInt = 64,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(batch_size, seed)
        self.num_train = num_train
        self.num_test = num_test

    def make_info(self) -> dict[str, Any]:
        return {"samples": [NUM_POSITIONS] * 4, "names": NUM_NAMES, "subsets": list(SUBSETS)}

    def make_examples(self) -> dict[str, Examples]:
        generator = torch.Generator().manual_seed(self.seed)
        tests = {name: _scenes(generator, kind, self.num_test) for kind, name in enumerate(SUBSETS)}
        return {**tests, "val": _scenes(generator, 0, self.num_test), "train": _scenes(generator, 0, self.num_train)}


def _scenes(generator: torch.Generator, kind: int, count: int) -> Examples:
    """Scenes of boxes of one subset, each with at least one target."""
    scenes: list[dict[str, Tensor]] = []
    while sum(len(part["targets"]) for part in scenes) < count:
        # two different coordinates on each axis, in ascending order
        first = torch.randint(0, NUM_POSITIONS, (DRAWS, 2), generator=generator)
        second = (first + torch.randint(1, NUM_POSITIONS, (DRAWS, 2), generator=generator)) % NUM_POSITIONS
        boxes = torch.cat([torch.minimum(first, second), torch.maximum(first, second)], -1)
        boxes = boxes[subset_of(boxes) == kind]
        boxes = boxes[: len(boxes) // BOXES_PER_SCENE * BOXES_PER_SCENE].reshape(-1, BOXES_PER_SCENE, 4)
        names = torch.rand(len(boxes), NUM_NAMES, generator=generator).argsort(-1)[:, :BOXES_PER_SCENE]
        relation = torch.randint(0, len(RELATIONS), (len(boxes),), generator=generator)
        matrix = related(boxes)[torch.arange(len(boxes)), relation]
        targets = torch.where(matrix.sum(-1) == 1, names.gather(1, matrix.int().argmax(-1)), -1)
        kept = (targets >= 0).any(-1)
        scene = {"positions": boxes / NUM_POSITIONS, "names": names, "relation": relation, "targets": targets}
        scenes.append({key: tensor[kept] for key, tensor in scene.items()})
    return {key: torch.cat([part[key] for part in scenes])[:count] for key in scenes[0]}


class LayoutRelations(AttentionTask):
    """Predicts the name of the box that has a relation to each box of a scene; guessing is right in 1 of 7 cases.

    A token is a box: its name, the relation of the scene, and its 4-D position. The output of a token is the name of the box
    related to it. Arguments as for :class:`~pe_papers.tasks.AttentionTask`.

    Reference: Li et al., *Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding*, NeurIPS 2021,
    Sec. 4.4 and App. E, on other data.
    """

    task: ClassVar[str] = "layout"
    metric: ClassVar[str] = "accuracy"

    def make_layers(self, info: Mapping[str, Any]) -> None:
        self.name = table(info["names"], self.width)
        self.relation = table(len(RELATIONS), self.width)
        self.transformer = Transformer(self.width, self.heads, self.depth)
        self.output = nn.Linear(self.width, info["names"])

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """The logits of names for each box, ``(B, N, names)``."""
        positions = batch["positions"]
        tokens = self.name(batch["names"]) + self.relation(batch["relation"])[:, None]
        logits: Tensor = self.output(self.transformer(self.positions(tokens, positions), self.positions.angles(positions)))
        return logits
