"""The schema of ``metrics.json``: the same for what is written and for what is compared."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pe_lightning.errors import InputError
from pe_lightning.results.metrics_file import read_metrics, write_metrics

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

BAD = {
    "signals": (["a", 3], 'signals is ["a", 3]; it must be a list of names'),
    "metric": (None, "metric is null; it must be text"),
    "test/psnr": ("20", 'test/psnr is "20"; it must be a number or null'),
    "test/psnr_per_signal": ([1.0], "has 1 values for 2 signals"),
    "train/psnr_per_signal": ({"a": 1}, "must be a list of numbers or nulls or null"),
    "grid": ([1.5], "must be a list of integers"),
    "encoder": ("gau", "must be a mapping, or one per axis or null"),
    "steps": (-1, "must be an integer >= 0"),
    "baselines": ({"linear": {"test/psnr_per_signal": [1.0]}}, "linear.test/psnr_per_signal has 1 values for 2 signals"),
    "of_a_callback": ({"x": [1, float("inf")]}, "of_a_callback: Out of range float values are not JSON compliant"),
    "schema": (True, "its schema is true; this version reads 1"),
}


@pytest.mark.parametrize("key", BAD)
def test_a_field_of_another_type_is_named_by_reader_and_writer(key: str, tmp_path: Path) -> None:
    value, words = BAD[key]
    with pytest.raises(InputError, match=rf"cannot write metrics\.json: .*{re.escape(words)}"):
        write_metrics(tmp_path / "metrics.json", {**GOOD, key: value})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400", "9" * 400])
def test_numbers_that_are_not_finite_are_refused(number: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text(json.dumps(GOOD).replace("1.5", number))
    with pytest.raises(ValueError, match=f"{number[:9]}.* is not a finite number"):
        read_metrics(tmp_path / "metrics.json")


def test_written_metrics_are_read_back(tmp_path: Path) -> None:
    write_metrics(tmp_path / "metrics.json", GOOD)
    assert read_metrics(tmp_path / "metrics.json") == GOOD
