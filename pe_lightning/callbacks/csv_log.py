"""The CSV log of a run: ``metrics.csv`` and ``hparams.yaml``, of which a kill or a full disk leaves no part of a line."""

from __future__ import annotations

import csv
import io
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.core.saving import save_hparams_to_yaml
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from pe_lightning.callbacks.base import TrainingClock
from pe_lightning.errors import InputError
from pe_lightning.files import append_lines, replacing, write_atomically

__all__ = ["CSVLog"]

FLUSH_EVERY_ROWS = 100


class CSVLog(Logger):
    """Logs to ``logs/version_<n>/`` of a run directory, in the format of Lightning's ``CSVLogger``.

    Every row has the seconds of the fit, in the column ``seconds``. Rows of a validation are exact. On a GPU those of a
    training step may be a little early: nothing waits for the device.

    Args:
        run_dir: The run directory.
        clock: Of the fit, the one of ``fit_seconds``.
    """

    def __init__(self, run_dir: Path, clock: TrainingClock) -> None:
        super().__init__()
        self.clock = clock
        self._root = run_dir / "logs"
        taken = [path.name.removeprefix("version_") for path in self._root.glob("version_*")]
        self._version = max((int(number) + 1 for number in taken if number.isdecimal()), default=0)
        self._hparams: dict[str, Any] = {}
        self._columns: list[str] = []
        self._rows: list[dict[str, Any]] = []

    @property
    def name(self) -> str:
        """The name of the folder of all versions."""
        return self._root.name

    @property
    def version(self) -> int:
        """The number of this log; a resumed fit has a further one."""
        return self._version

    @property
    def experiment(self) -> CSVLog:
        """The object that writes, as of every logger of Lightning: this one."""
        return self

    @property
    def save_dir(self) -> str:
        """The run directory."""
        return str(self._root.parent)

    @property
    def log_dir(self) -> str:
        """The folder of the files."""
        return str(self._root / f"version_{self._version}")

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Tensor | float], step: int | None = None) -> None:
        """Adds a row."""
        values = {name: value.item() if isinstance(value, Tensor) else value for name, value in metrics.items()}
        self._rows.append({**values, "seconds": self.clock.seconds, "step": step})
        if len(self._rows) >= FLUSH_EVERY_ROWS:
            self.save()

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Writes ``hparams.yaml``, with what was logged before.

        Raises:
            InputError: If it cannot be written.
        """
        self._hparams |= vars(params) if isinstance(params, Namespace) else params
        with replacing(Path(self.log_dir) / "hparams.yaml") as temporary:
            save_hparams_to_yaml(temporary, self._hparams)

    @rank_zero_only
    def save(self) -> None:
        """Writes the rows since the last time: whole lines behind the others, or with a new column the whole file.

        Raises:
            InputError: If they cannot be written.
        """
        path, rows = Path(self.log_dir) / "metrics.csv", self._rows
        if not rows:
            return
        columns = sorted({*self._columns}.union(*rows))
        if columns == self._columns:
            append_lines(path, _csv_text(rows, columns))
        else:
            if self._columns:
                with path.open(newline="") as file:
                    rows = [*csv.DictReader(file), *rows]
            write_atomically(path, _csv_text(rows, columns, header=True))
        self._columns, self._rows = columns, []

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Writes what is left; of a fit that failed, its own error is the one to show."""
        try:
            self.save()
        except InputError:
            if status == "success":
                raise


def _csv_text(rows: list[dict[str, Any]], columns: list[str], header: bool = False) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
