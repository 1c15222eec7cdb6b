"""Detection: boxes and classes of rendered shapes, as a set of queries that is matched to the truth (a small DETR)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from jsonargparse.typing import NonNegativeInt, PositiveInt
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional as F

from pe_lightning.evaluation.metrics import SignalMetric
from pe_papers.tasks.base import AttentionTask
from pe_papers.tasks.data import Examples, TaskDataModule
from pe_papers.tasks.transformer import Transformer

SHAPE_CLASSES = ("square", "disc", "triangle")
MAX_SHAPES = 3
"""Most shapes of a picture."""
MIN_SHAPE_SIDE, MAX_SHAPE_SIDE = 10, 20
"""Range of the side of a shape, in pixels."""
CANVAS_SIDE = 48
"""Side of the pictures in training, in pixels."""
LARGE_CANVAS_SIDE = 72
"""Side of the larger pictures of a test set, in pixels; the unit of positions."""
TOKEN_SIDE = 8
"""Side of a token, in pixels."""
NO_OBJECT_WEIGHT, BOX_WEIGHT, OVERLAP_WEIGHT = 0.2, 5.0, 2.0
"""Weights in the loss: of queries without a shape, of the distance of boxes, of their generalised overlap."""


class ShapesDataModule(TaskDataModule):
    """Up to three squares, discs and triangles on a noisy canvas of 48 x 48 pixels; a second test set has 72 x 72 pixels.

    Boxes are (centre x, centre y, width, height) in units of the larger canvas, so that positions in its right and lower
    third do not occur in training.

    Args:
        num_train: Training pictures.
        num_test: Pictures of the validation set, and of each test set.
        batch_size: Pictures in a training batch.
        seed: Seed of the pictures.
    """

    task: ClassVar[str] = "shapes"

    def __init__(
        self,
        num_train: PositiveInt = 8192,
        num_test: PositiveInt = 512,
        batch_size: PositiveInt = 32,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(batch_size, seed)
        self.num_train = num_train
        self.num_test = num_test

    def make_info(self) -> dict[str, Any]:
        return {
            "samples": [LARGE_CANVAS_SIDE // TOKEN_SIDE] * 2,
            "classes": len(SHAPE_CLASSES),
            "subsets": ["trained-canvas", "large-canvas"],
        }

    def make_examples(self) -> dict[str, Examples]:
        generator = torch.Generator().manual_seed(self.seed)
        return {
            "trained-canvas": _pictures(generator, CANVAS_SIDE, self.num_test),
            "large-canvas": _pictures(generator, LARGE_CANVAS_SIDE, self.num_test),
            "val": _pictures(generator, CANVAS_SIDE, self.num_test),
            "train": _pictures(generator, CANVAS_SIDE, self.num_train),
        }


def _pictures(generator: torch.Generator, side: int, count: int) -> Examples:
    """Pictures ``(M, 1, side, side)``, boxes ``(M, 3, 4)`` and classes ``(M, 3)``, -1 where there is no shape."""
    pictures = torch.rand(count, side, side, generator=generator) * 0.2
    sizes = torch.randint(MIN_SHAPE_SIDE, MAX_SHAPE_SIDE + 1, (count, MAX_SHAPES), generator=generator)
    corner = (torch.rand(count, MAX_SHAPES, 2, generator=generator) * (side - sizes[..., None] + 1)).long()
    kinds = torch.randint(0, len(SHAPE_CLASSES), (count, MAX_SHAPES), generator=generator)
    values = 0.5 + 0.5 * torch.rand(count, MAX_SHAPES, generator=generator)
    pixel = torch.arange(side)
    taken = torch.zeros(count, side, side, dtype=torch.bool)
    for number in range(MAX_SHAPES):
        size = sizes[:, number, None, None]
        x, y = pixel - corner[:, number, 0, None, None], pixel[:, None] - corner[:, number, 1, None, None]
        box = (x >= 0) & (x < size) & (y >= 0) & (y < size)
        kinds[:, number] = torch.where((box & taken).any((1, 2)), -1, kinds[:, number])  # no free place
        across, down = (x + 0.5) / size * 2 - 1, (y + 0.5) / size * 2 - 1
        inside = torch.stack([box, box & (across**2 + down**2 <= 1), box & (across.abs() * 2 <= down + 1)], 1)
        drawn = inside[torch.arange(count), kinds[:, number]] & (kinds[:, number] >= 0)[:, None, None]
        pictures = torch.where(drawn, values[:, number, None, None], pictures)
        taken |= box & (kinds[:, number] >= 0)[:, None, None]
    boxes = torch.cat([corner + sizes[..., None] / 2, sizes[..., None].expand(-1, -1, 2)], -1) / LARGE_CANVAS_SIDE
    return {"pictures": pictures[:, None], "boxes": boxes, "targets": kinds}


def corners(boxes: Tensor) -> Tensor:
    """(centre x, centre y, width, height) as (left, top, right, bottom), ``(*batch, 4)`` each."""
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat([centre - half, centre + half], -1)


def generalized_iou(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Intersection over union of boxes given by corners, plain and generalised.

    Args:
        one: ``(*batch, 4)``.
        other: ``(*batch, 4)``.

    Returns:
        The overlap in [0, 1] and the generalised one in [-1, 1], ``(*batch,)`` each.

    Reference: Rezatofighi et al., *Generalized Intersection over Union*, CVPR 2019.
    """

    def area(low: Tensor, high: Tensor) -> Tensor:
        return (high - low).clamp(min=0).prod(-1)

    (low, high), (other_low, other_high) = one.chunk(2, -1), other.chunk(2, -1)
    inter = area(torch.maximum(low, other_low), torch.minimum(high, other_high))
    union = area(low, high) + area(other_low, other_high) - inter
    hull = area(torch.minimum(low, other_low), torch.maximum(high, other_high))
    overlap = inter / union.clamp(min=1e-9)
    return overlap, overlap - (hull - union) / hull.clamp(min=1e-9)


@torch.no_grad()
def match(logits: Tensor, boxes: Tensor, targets: Tensor, true_boxes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The assignment of queries to shapes with the least cost, picture by picture (the Hungarian method).

    Args:
        logits: ``(B, Q, classes + 1)``, the last one for no object.
        boxes: ``(B, Q, 4)``.
        targets: ``(B, N)``; negative ones are no shapes.
        true_boxes: ``(B, N, 4)``.

    Returns:
        Indices of the picture, the query and the shape of each pair.

    Reference: Carion et al., *End-to-End Object Detection with Transformers*, ECCV 2020, Sec. 3.1.
    """
    pairs: list[tuple[int, int, int]] = []
    chances = logits.softmax(-1)
    distances = (boxes[:, :, None] - true_boxes[:, None]).abs().sum(-1)
    overlap = generalized_iou(corners(boxes)[:, :, None], corners(true_boxes)[:, None])[1]
    likely = chances.gather(-1, targets.clamp(min=0)[:, None].expand(-1, chances.shape[1], -1))
    # not finite if the fit has diverged
    costs = (BOX_WEIGHT * distances - OVERLAP_WEIGHT * overlap - likely).float().nan_to_num().cpu()
    for picture, present in enumerate((targets >= 0).cpu()):
        shapes = present.nonzero()[:, 0]
        queries, columns = linear_sum_assignment(costs[picture][:, shapes].numpy())
        pairs += [(picture, int(query), int(shapes[column])) for query, column in zip(queries, columns, strict=True)]
    matched = torch.tensor(pairs, dtype=torch.long, device=logits.device).reshape(-1, 3)
    return matched[:, 0], matched[:, 1], matched[:, 2]


class Detection(AttentionTask):
    """Predicts classes and boxes of shapes from tokens of convolutions, with a Transformer and a query per shape.

    As in DETR, positions are added to the tokens before the encoder and to the memory of the decoder. Arguments as for
    :class:`~pe_papers.tasks.AttentionTask`. The score is the average precision of COCO.

    Reference: Carion et al., *End-to-End Object Detection with Transformers*, ECCV 2020; Li et al., 2021, Sec. 4.2.
    """

    task: ClassVar[str] = "shapes"
    metric: ClassVar[str] = "ap"
    num_queries: ClassVar[int] = 6

    def make_layers(self, info: Mapping[str, Any]) -> None:
        wide, half, quarter = self.width, max(1, self.width // 2), max(1, self.width // 4)
        self.stem = nn.Sequential(
            nn.Conv2d(1, quarter, 3, 2, 1), nn.GELU(),
            nn.Conv2d(quarter, half, 3, 2, 1), nn.GELU(),
            nn.Conv2d(half, wide, 3, 2, 1),
        )  # fmt: skip
        self.reader = Transformer(wide, self.heads, self.depth)
        self.queries = nn.Parameter(torch.randn(self.num_queries, wide))
        self.decoder = Transformer(wide, self.heads, self.depth, cross=True)
        self.kind = nn.Linear(wide, info["classes"] + 1)
        self.box = nn.Sequential(nn.Linear(wide, wide), nn.GELU(), nn.Linear(wide, 4))

    def forward(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Class logits, no object last, ``(B, Q, classes + 1)``, and boxes ``(B, Q, 4)`` in units of the larger canvas."""
        features = self.stem(batch["pictures"])
        rows, columns = (
            (torch.arange(n, device=self.device) + 0.5) * TOKEN_SIDE / LARGE_CANVAS_SIDE for n in features.shape[-2:]
        )
        positions = torch.cartesian_prod(rows, columns).flip(-1)[None]
        angles = self.positions.angles(positions)
        memory = self.reader(self.positions(features.flatten(2).mT, positions), angles)
        queries = self.queries.expand(len(features), -1, -1)
        read = self.decoder(queries, memory=self.positions(memory, positions), memory_angles=angles)
        return self.kind(read), self.box(read).sigmoid()

    def loss_sum(self, batch: Mapping[str, Tensor]) -> Tensor:
        logits, boxes = self(batch)
        picture, query, shape = match(logits, boxes, batch["targets"], batch["boxes"])
        nothing = logits.shape[-1] - 1
        kinds = torch.full(logits.shape[:2], nothing, device=self.device)
        kinds[picture, query] = batch["targets"][picture, shape]
        weight = torch.ones(nothing + 1, device=self.device)
        weight[-1] = NO_OBJECT_WEIGHT
        classes = F.cross_entropy(logits.flatten(0, 1), kinds.flatten(), weight, reduction="sum")
        predicted, true = boxes[picture, query], batch["boxes"][picture, shape]
        overlap = generalized_iou(corners(predicted), corners(true))[1]
        total: Tensor = classes + BOX_WEIGHT * (predicted - true).abs().sum() + OVERLAP_WEIGHT * (1 - overlap).sum()
        return total

    def update(self, metric: SignalMetric, batch: Mapping[str, Tensor], mask: Tensor) -> None:
        logits, boxes = self(batch)
        chances, kinds = logits.softmax(-1)[..., :-1].max(-1)
        detections = torch.cat([corners(boxes), kinds[..., None], chances[..., None]], -1)
        metric.update(detections, torch.cat([corners(batch["boxes"]), batch["targets"][..., None]], -1), mask)
