"""The CSV log of a run: its columns, and what a full disk leaves of it."""

import csv
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from pe_lightning.errors import InputError
from pe_lightning.training.callbacks.base import TrainingClock
from pe_lightning.training.callbacks.loggers import CSVLog


def rows(log: CSVLog) -> list[dict[str, str]]:
    with Path(log.log_dir, "metrics.csv").open(newline="") as file:
        return [{name: value for name, value in row.items() if value and name != "seconds"} for row in csv.DictReader(file)]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_rows_are_appended_and_new_columns_added(tmp_path: Path) -> None:
    log = CSVLog(tmp_path, TrainingClock())
    for step, values in enumerate([{"a": 1.0}, {"a": 2.0}, {"b": 3.0}, {"a": 4.0}]):
        log.log_metrics(values, step)
        log.save()
    log.finalize("success")
    assert rows(log) == [
        {"a": "1.0", "step": "0"}, {"a": "2.0", "step": "1"}, {"b": "3.0", "step": "2"}, {"a": "4.0", "step": "3"},
    ]  # fmt: skip
    log.log_hyperparams({"x": 1})
    log.log_hyperparams({"y": [2]})
    assert yaml.safe_load(Path(log.log_dir, "hparams.yaml").read_text()) == {"x": 1, "y": [2]}
    assert CSVLog(tmp_path, TrainingClock()).version == 1


def test_a_full_disk_leaves_whole_lines_and_is_named(tmp_path: Path) -> None:
    log = CSVLog(tmp_path, TrainingClock())
    log.log_metrics({"a": 1.0}, 0)
    log.save()
    log.log_hyperparams({"x": 1})
    for step in range(1, 30):
        log.log_metrics({"a": step / 3}, step)
    with largest_file(200):
        with pytest.raises(InputError, match=r"cannot write '.*metrics\.csv', which takes .*; the disk has"):
            log.save()
        with pytest.raises(InputError, match=r"cannot write '.*hparams\.yaml'"):
            log.log_hyperparams({"long": "x" * 300})
        log.finalize("failed")
    assert rows(log) == [{"a": "1.0", "step": "0"}]
    assert yaml.safe_load(Path(log.log_dir, "hparams.yaml").read_text()) == {"x": 1}
    log.save()  # there is space again
    assert len(rows(log)) == 30
    assert sorted(path.name for path in Path(log.log_dir).iterdir()) == ["hparams.yaml", "metrics.csv"]
