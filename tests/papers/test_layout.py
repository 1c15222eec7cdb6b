"""Scenes of boxes: their relations, and which positions the test sets have."""

import numpy as np
from scipy.spatial import ConvexHull
from training.test_logging import check_steps

from pe_papers.tasks import LayoutDataModule, LayoutRelations
from pe_papers.tasks.layout import RELATIONS, SUBSETS


def small(**changes) -> LayoutDataModule:
    return LayoutDataModule(**{"num_train": 3000, "num_test": 100, **changes})


def answer(relation: str, boxes: list, names: list, queried: int) -> int:
    """The name of the only box that is in the relation to the queried one, by pixels; -1 if there is none or several."""

    def cells(box):
        left, top, right, bottom = box
        return {(x, y) for x in range(left, right) for y in range(top, bottom)}

    left, top, _, bottom = boxes[queried]
    beside = cells((0, top, left, bottom))
    fitting = {
        "left": lambda box: cells(box) & beside and box[2] <= left,
        "inside": lambda box: cells(box) <= cells(boxes[queried]),
        "aligned": lambda box: box[0] == left,
    }[relation]
    others = [(box, name) for number, (box, name) in enumerate(zip(boxes, names, strict=True)) if number != queried]
    found = [name for box, name in others if fitting(box)]
    return found[0] if len(found) == 1 else -1


def test_targets_are_the_relations_of_the_boxes():
    for part in small(num_train=100).examples.values():
        counts = dict.fromkeys(RELATIONS, 0)
        for scene in range(20):
            boxes = (part["positions"][scene] * 32).long().tolist()
            names, relation = part["names"][scene].tolist(), RELATIONS[part["relation"][scene]]
            targets = [answer(relation, boxes, names, queried) for queried in range(len(boxes))]
            assert part["targets"][scene].tolist() == targets
            assert len(set(names)) == len(names)
            counts[relation] += sum(target >= 0 for target in targets)
        assert min(counts.values()) > 0


def test_unseen_boxes_are_unseen_and_where_they_are_said_to_be():
    """Against the convex hull of the boxes that occur in training."""
    examples = small().examples
    boxes = {name: part["positions"].flatten(0, 1).double().numpy() for name, part in examples.items()}
    trained = {tuple(box) for box in boxes["train"]}
    values = {value for box in trained for value in box}
    hull = ConvexHull(np.unique(boxes["train"], axis=0)).equations
    for name in SUBSETS:
        beyond = (boxes[name] @ hull[:, :-1].T + hull[:, -1]).max(1)
        new = np.array([not set(box) <= values for box in boxes[name]])
        assert np.all(new == (name != "seen"))
        assert np.all((beyond > 1e-9) == (name == "unseen-outside"))


def test_values_are_logged_at_optimiser_steps(make_trainer, tmp_path):
    def make():
        data = LayoutDataModule(num_train=64, num_test=4, batch_size=16)
        return LayoutRelations("rff", width=16, depth=1, heads=2), data

    check_steps(make, make_trainer, tmp_path)
