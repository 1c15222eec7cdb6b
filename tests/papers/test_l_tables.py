"""``reproduce l-tables``: its rows are models that there are, and its numbers are means over seeds."""

import math
from pathlib import Path

import pytest

from pe_papers import tasks
from pe_papers.reproduce.definition import load
from pe_papers.reproduce.layout import over_seeds
from pe_papers.reproduce.tables import as_markdown

DATA = {
    "LayoutRelations": tasks.LayoutDataModule(),
    "PixelClassification": tasks.PixelDataModule(),
    "PixelGeneration": tasks.PixelDataModule(goal="pixel"),
    "Detection": tasks.ShapesDataModule(),
}


@pytest.mark.slow  # 74 models
def test_every_row_is_a_model_of_its_name():
    counts = {}
    for entry in load("l-tables").entries():
        if entry.repeat == 0:
            name = entry.settings["model"]
            given = entry.tree()["model"]["init_args"]
            model = getattr(tasks, name)(**given)
            model.build(DATA[name].info)
            label, encoder = entry.labels["encoder"], model.encoder
            counts[entry.labels["block"]] = counts.get(entry.labels["block"], 0) + 1
            assert ("MLP" in label) == (getattr(encoder, "modulator", None) is not None), label
            assert ("KL" in label) == (getattr(encoder, "kl", 0) == 1), label
            if label[-4:-1] in ("-1/", "-2/", "-4/"):
                assert (encoder.groups, encoder.num_axes // encoder.groups) == (int(label[-3]), int(label[-1]))
    assert counts == {"layout": 18, "classification": 15, "permuted": 15, "generation": 15, "detection": 11}


def test_a_table_over_seeds_by_hand():
    """Scores 0.5, 0.6, 0.7: mean 0.6, deviation 0.1, and 4.3027 of its standard error."""
    rows = [
        {"block": "layout", "encoder": "gau", "seed": seed, "paper": 94.9, "folder": Path(), "metric": "accuracy",
         "accuracy seen": 0.5 + seed / 10, "accuracy new": 0.25, "signals": ["seen", "new"], "steps": 100, "seconds": 2.5}
        for seed in range(3)
    ]  # fmt: skip
    (found,) = over_seeds(rows).values()
    assert found["scores"]["seen"] == pytest.approx((0.6, 4.302653 * 0.1 / math.sqrt(3)))
    assert found["scores"]["new"] == pytest.approx((0.25, 0))
    assert found["steps_per_second"] == pytest.approx(20)
    markdown = as_markdown(load("l-tables"), rows, [])
    assert "| gau | 0.600 ± 0.248 | 0.250 ± 0.000 | 3 | 20.0 | 94.90 |" in markdown
    assert "nan" not in as_markdown(load("l-tables"), rows[:1], [])
