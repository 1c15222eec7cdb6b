"""``metrics.json`` is written and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pe_lightning.errors import InputError
from pe_lightning.results.runs import read_metrics, write_metrics

GOOD: dict[str, Any] = {
    "schema": 1,
    "metric": "psnr",
    "signals": ["a", "b"],
    "test/psnr": 20.0,
    "test/psnr_std": None,
    "test/psnr_per_signal": [20.0, None],
    "test/psnr_reason": "infinite",
    "num_params": 10,
    "grid": [4, 4],
    "encoder": [{"name": "gau"}, {"name": "tri"}],
    "steps": 3,
    "baselines": {"linear": {"test/psnr_per_signal": [1, 2]}},
    "of_a_callback": {"anything": [True, "x", None, {"y": 1.5}]},
}


def test_a_value_that_json_cannot_hold_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write metrics\.json: of_a_callback: Out of range float values"):
        write_metrics(tmp_path / "metrics.json", {**GOOD, "of_a_callback": {"x": [1, float("inf")]}})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400", "9" * 400])
def test_numbers_that_are_not_finite_are_refused(number: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text(json.dumps(GOOD).replace("1.5", number))
    with pytest.raises(ValueError, match=f"{number[:9]}.* is not a finite number"):
        read_metrics(tmp_path / "metrics.json")


def test_written_metrics_are_read_back(tmp_path: Path) -> None:
    write_metrics(tmp_path / "metrics.json", GOOD)
    assert read_metrics(tmp_path / "metrics.json") == GOOD
