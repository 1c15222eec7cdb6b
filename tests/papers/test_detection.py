"""Matching of queries to shapes, and average precision."""

import itertools

import pytest
import torch

from pe_lightning.evaluation import metrics
from pe_papers.tasks import ShapesDataModule
from pe_papers.tasks.detection import corners, generalized_iou, match


def test_generalised_overlap_by_hand():
    one, beside = torch.tensor([0.0, 0.0, 2.0, 2.0]), torch.tensor([3.0, 0.0, 4.0, 2.0])
    overlap, generalised = generalized_iou(one, torch.stack([one, one + 1, beside]))
    torch.testing.assert_close(overlap, torch.tensor([1.0, 1 / 7, 0.0]))
    torch.testing.assert_close(generalised, torch.tensor([1.0, 1 / 7 - 2 / 9, -2 / 8]))


def test_the_matching_is_the_cheapest_of_all():
    generator = torch.Generator().manual_seed(0)
    logits, boxes = torch.randn(4, 4, 4, generator=generator), torch.rand(4, 4, 4, generator=generator)
    targets, true = (
        torch.tensor([[0, 1, 2], [2, -1, 2], [-1, -1, 1], [-1, -1, -1]]),
        torch.rand(4, 3, 4, generator=generator),
    )
    picture, query, shape = match(logits, boxes, targets, true)
    assert len(picture) == 6

    def cost(b, q, n):
        overlap = generalized_iou(corners(boxes[b, q]), corners(true[b, n]))[1]
        return float(5 * (boxes[b, q] - true[b, n]).abs().sum() - 2 * overlap - logits[b].softmax(-1)[q, targets[b, n]])

    for b in range(4):
        shapes = [n for n in range(3) if targets[b, n] >= 0]
        assert shape[picture == b].sort().values.tolist() == shapes
        orders = (zip(order, shapes, strict=True) for order in itertools.permutations(range(4), len(shapes)))
        pairs = zip(query[picture == b].tolist(), shape[picture == b].tolist(), strict=True)
        found, *others = (sum(cost(b, q, n) for q, n in order) for order in (pairs, *orders))
        assert found == pytest.approx(min(others), abs=1e-5)


def test_average_precision_by_hand():
    """Two pictures, one class: right, wrong, right at an overlap of 0.6 only; four boxes."""
    box, none = [0.0, 0.0, 10.0, 10.0, 0], [0.0, 0.0, 0.0, 0.0, -1]
    truth = torch.tensor([[box, [20.0, 0.0, 30.0, 10.0, 0]], [box, none]])
    found = torch.tensor(
        [
            [[*box[:4], 0, 0.9], [*box[:4], 0, 0.7]],  # the second one finds its box taken
            [[0.0, 0.0, 10.0, 6.0, 0, 0.5], [0.0, 0.0, 1.0, 1.0, 1, 0.95]],  # overlap 0.6; of a class without boxes
        ]
    )
    metric = metrics.create("ap", 2)
    mask = torch.tensor([[True, True], [False, False]])
    metric.update(found, truth, mask)
    # 3 boxes. Overlaps to 0.6: recall 1/3 at precision 1, 2/3 at 2/3. Above: recall 1/3 at precision 1
    low, high = (34 * 1 + 33 * 2 / 3) / 101, 34 / 101
    score = metric.per_signal()
    assert score[0] == pytest.approx((3 * low + 7 * high) / 10, abs=1e-6)
    assert score[1].isnan()
    halves = metrics.create("ap", 2)
    for part in (slice(0, 1), slice(1, 2)):
        halves.update(found[part], truth[part], mask[:, part])
    assert halves.per_signal()[0] == score[0]


def test_boxes_are_those_of_the_shapes():
    data = ShapesDataModule(num_train=40, num_test=8)
    assert data.fingerprint == ShapesDataModule(num_train=40, num_test=8).fingerprint
    for name, side in (("train", 48), ("large-canvas", 72)):
        part = data.examples[name]
        assert part["pictures"].shape[1:] == (1, side, side)
        alone = (part["targets"] >= 0).sum(1) == 1
        for picture, boxes, kinds in zip(*(part[key][alone] for key in ("pictures", "boxes", "targets")), strict=True):
            rows, columns = (picture[0] > 0.25).nonzero().T
            left, top, right, bottom = (corners(boxes[kinds >= 0][0]) * 72).round().int().tolist()
            assert left <= columns.min() <= left + 1
            assert right - 2 <= columns.max() < right
            assert top <= rows.min() <= top + 2  # the top of a triangle is thin
            assert rows.max() == bottom - 1
    assert (data.examples["large-canvas"]["boxes"][..., :2] > 48 / 72).any()
