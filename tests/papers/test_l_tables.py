"""``reproduce l-tables``: its rows are models that there are, and its numbers are means over seeds."""

import math
from pathlib import Path

import pytest

from pe_papers.reproduce.definition import load
from pe_papers.reproduce.layout import over_seeds
from pe_papers.reproduce.tables import as_markdown


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
