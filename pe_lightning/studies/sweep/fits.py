"""Fits of a sweep in one process, of which those of the same data share it."""

from __future__ import annotations

import json
import logging
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import wandb
from jsonargparse import Namespace
from lightning.pytorch import LightningDataModule

from pe_lightning.cli.arguments import rewrite
from pe_lightning.cli.cli import CommandLine, instantiate, parse, plain_values, prepare
from pe_lightning.errors import InputError, paragraph
from pe_lightning.results import runs
from pe_lightning.results.checkpoint_files import BEST, LAST
from pe_lightning.studies.sweep.record import Outcome
from pe_lightning.training.interrupts import Interrupted
from pe_lightning.training.saved_models import read_model


class Fits:
    """Runs fits, one after the other; consecutive ones with the same data options share one DataModule.

    Args:
        pictures: Whether to draw reconstructions beside the truth.
    """

    def __init__(self, pictures: bool = True) -> None:
        prepare()
        self._pictures = pictures
        self._data: tuple[str, LightningDataModule] | None = None
        self._job: CommandLine | None = None

    def resolve(self, arguments: Sequence[str]) -> dict[str, Any]:
        """The complete configuration for options of ``fit``, as plain values."""
        config = parse("fit", rewrite("fit", arguments))
        instantiate("fit", config)
        return plain_values("fit", config)

    def load(self, tree: Mapping[str, Any]) -> LightningDataModule:
        """The DataModule of a complete configuration, with its data loaded. The following fits can share it."""
        data = self._data_of(tree, parse("fit", tree))
        data.prepare_data()
        return data

    def fingerprint(self, tree: Mapping[str, Any]) -> str | None:
        """The fingerprint of the data of a complete configuration, as in ``metrics.json``; ``None`` if they have none."""
        return getattr(self.load(tree), "fingerprint", None)

    def _data_of(self, tree: Mapping[str, Any], config: Namespace) -> LightningDataModule:
        options = json.dumps(tree["data"], sort_keys=True)
        if self._data is None or self._data[0] != options:
            self._data = options, instantiate("fit", config, ["data"]).data
        return self._data[1]

    def stop_now(self, signum: int) -> None:
        """Stops the running fit after its current step, so that it can be resumed; raises Interrupted if none is trained."""
        if self._job is None or not self._job.stop.training:
            raise Interrupted(signum)
        self._job.stop.request(signum)

    def run(self, tree: Mapping[str, Any], folder: Path) -> Outcome:
        """Runs a complete configuration as ``pe-lightning fit`` does. Errors are part of the outcome.

        Args:
            tree: The result of :meth:`resolve`.
            folder: The run directory. An interrupted fit of the same configuration is resumed there, by the last checkpoint
                that can be read.

        Raises:
            KeyboardInterrupt: If a signal ends the fit.
        """
        began, metrics, error, trace = time.perf_counter(), {}, None, None
        checkpoint: Path | None = None
        notes: list[str] = []
        logging.disable(logging.INFO)  # messages of Lightning about every fit
        with warnings.catch_warnings(record=True) as caught:
            try:
                checkpoint, notes = _checkpoint(folder)
                metrics = self._fit(tree, folder, checkpoint)
            except InputError as refused:
                error = str(refused)
            except SystemExit as ended:
                if isinstance(ended.__context__, KeyboardInterrupt):  # Lightning turns an interrupt into an exit status
                    raise ended.__context__ from None
                error, trace = f"the fit ended the process with status {ended.code}", traceback.format_exc()
            except Exception as failed:  # the other cells still run
                error, trace = f"{type(failed).__name__}: {paragraph(str(failed), 500)}", traceback.format_exc()
            finally:
                logging.disable(logging.NOTSET)
        texts = dict.fromkeys([*notes, *(" ".join(str(warning.message).split()) for warning in caught)])
        return Outcome(time.perf_counter() - began, metrics, error, trace, checkpoint is not None, tuple(texts))

    def _fit(self, tree: Mapping[str, Any], folder: Path, checkpoint: Path | None) -> dict[str, Any]:
        config = parse("fit", {**tree, "ckpt_path": None if checkpoint is None else str(checkpoint)})
        data = self._data_of(tree, config)
        recorder = {"folder": folder, "table": False, "pictures": self._pictures}
        job = self._job = CommandLine("fit", config, data=data, interactive=False, **recorder)
        try:
            job.execute()
        except BaseException:
            if wandb.run is not None:
                wandb.finish(exit_code=1)
            raise
        return dict(job.recorder.metrics)


def _checkpoint(folder: Path) -> tuple[Path | None, list[str]]:
    """The checkpoint to resume from, ``None`` in a folder that has none; and what was wrong with others."""
    found = [path for name in (LAST, BEST) if (path := folder / runs.CHECKPOINTS / name).exists()]
    problems: list[str] = []
    for path in found:
        try:
            read_model(path)
        except InputError as error:
            problems.append(str(error))
        else:
            return path, [f"{problem}; resumed from {path.name}" for problem in problems]
    if problems:
        raise InputError(f"{'; '.join(problems)}; move {str(folder)!r} away to run the cell again")
    return None, []
