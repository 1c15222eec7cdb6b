"""Fits in this process: one parser for all of them, and data that is decoded once for fits that share it."""

from __future__ import annotations

import json
import logging
import shutil
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import wandb
import yaml
from lightning.pytorch import Callback, LightningDataModule, Trainer, seed_everything
from lightning.pytorch.cli import ArgsType, LightningArgumentParser

from pe_lightning import naming, runs
from pe_lightning.checkpoints import read_model
from pe_lightning.cli import CoordinateCLI, prepare
from pe_lightning.errors import InputError, root_message
from pe_lightning.experiments.sweep.cells import differences
from pe_lightning.experiments.sweep.record import Outcome, read_config

__all__ = ["Fits"]


class _ParserMade(Exception):
    """Ends the constructor of LightningCLI."""


class Fits(CoordinateCLI):
    """Parses and runs any number of fits, one after the other.

    A DataModule is kept until a fit has other data options, so that signals are decoded once for all fits in between.

    Args:
        callbacks: Further callbacks of every fit.
        pictures: Whether reconstructions are drawn beside the truth.
    """

    def __init__(self, callbacks: Sequence[Callback] = (), pictures: bool = True) -> None:
        prepare()
        self._pictures = pictures
        self._more_callbacks = list(callbacks)
        self._data: tuple[str, LightningDataModule] | None = None
        # LightningCLI parses, instantiates and runs in its constructor; here that only makes the parser
        with suppress(_ParserMade):
            super().__init__([])
        self.subcommand = "fit"

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parses, but for the constructor."""
        if not args:
            raise _ParserMade
        super().parse_arguments(parser, args)

    def instantiate_classes(self) -> None:
        """Makes data, model and Trainer, with the data of the last fit if it has the same options."""
        super().instantiate_classes()
        self._share_data()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Leaves out the callbacks that draw on the terminal or handle Ctrl-C: both are the caller's."""
        self.config_init["fit"].trainer.enable_progress_bar = False
        trainer = super().instantiate_trainer(**kwargs)
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        callbacks[:] = [*(callback for callback in callbacks if callback is not self.stop), *self._more_callbacks]
        return trainer

    def _share_data(self) -> None:
        options = json.dumps(self._tree()["data"], sort_keys=True)
        if self._data is None or self._data[0] != options:
            self._data = options, self.datamodule
        self.datamodule = self._data[1]

    def _tree(self) -> dict[str, Any]:
        """The parsed configuration as plain values."""
        return dict(yaml.safe_load(self.parser.dump(self.config, skip_none=False))["fit"])

    def resolve(self, arguments: Sequence[str]) -> dict[str, Any]:
        """The complete configuration of options of ``fit``, as plain values.

        Raises:
            InputError: If the parser or a constructor refuses them.
        """
        self.parse_arguments(self.parser, ["fit", *naming.expand_arguments(arguments)])
        try:
            self.parser.instantiate_classes(self.config)
        except ValueError as error:
            raise InputError(root_message(error)) from error
        return self._tree()

    def load(self, tree: Mapping[str, Any]) -> LightningDataModule:
        """The DataModule of a complete configuration, loaded; it is kept for the fits that follow.

        Raises:
            InputError: If the data cannot be read.
        """
        self.parse_arguments(self.parser, ["fit", "--config", json.dumps(tree)])
        self.datamodule = self.parser.instantiate_classes(self.config)["fit"]["data"]
        self._share_data()
        data: LightningDataModule = self.datamodule
        data.prepare_data()
        return data

    def run(self, tree: Mapping[str, Any], folder: Path) -> Outcome:
        """Runs a complete configuration as ``pe-lightning fit`` does; errors become the outcome.

        Args:
            tree: The result of :meth:`resolve`.
            folder: The run directory. A fit of the same configuration that was interrupted there is resumed.

        Raises:
            KeyboardInterrupt: If the user ends it.
            SystemExit: If it ends itself with status 0, as a fit that a scheduler stops does.
        """
        began, metrics, error, trace = time.perf_counter(), {}, None, None
        checkpoint = _checkpoint(folder) if not differences(read_config(folder), tree) else None
        if checkpoint is None and folder.exists():
            shutil.rmtree(folder)
        logging.disable(logging.INFO)  # what Lightning says about every fit
        with warnings.catch_warnings(record=True) as caught:
            try:
                metrics = self._fit(tree, folder, checkpoint)
            except InputError as refused:
                error = str(refused)
            except SystemExit as ended:
                if isinstance(ended.__context__, KeyboardInterrupt):  # Lightning turns an interrupt into an exit status
                    raise KeyboardInterrupt from None
                if not ended.code:
                    raise
                error, trace = f"the fit ended the process with status {ended.code}", traceback.format_exc()
            except Exception as failed:  # the other cells are run all the same
                message = " ".join(str(failed).split())[:500]
                error, trace = f"{type(failed).__name__}: {message}", traceback.format_exc()
            finally:
                logging.disable(logging.NOTSET)
        texts = dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught)
        return Outcome(time.perf_counter() - began, metrics, error, trace, checkpoint is not None, tuple(texts))

    def _fit(self, tree: Mapping[str, Any], folder: Path, checkpoint: Path | None) -> dict[str, Any]:
        self.recorder_options = {"folder": folder, "table": False, "pictures": self._pictures}
        path = None if checkpoint is None else str(checkpoint)
        self.parse_arguments(self.parser, ["fit", "--config", json.dumps({**tree, "ckpt_path": path})])
        if tree["seed_everything"] is not False:
            seed_everything(tree["seed_everything"], workers=True)
        try:
            self.instantiate_classes()
            self.before_fit()
            options = {"ckpt_path": path, "weights_only": tree["weights_only"]}
            self.trainer.fit(self.model, datamodule=self.datamodule, **options)
            self.after_fit()
        except BaseException:
            if wandb.run is not None:
                wandb.finish(exit_code=1)
            raise
        return dict(self.save_config_kwargs["recorder"].metrics)


def _checkpoint(folder: Path) -> Path | None:
    """The last checkpoint of an interrupted run, if it can be read."""
    path = folder / runs.CHECKPOINTS / "last.ckpt"
    try:
        read_model(path)
    except InputError:
        return None  # killed before the first was written: the cell is run from the start
    return path
