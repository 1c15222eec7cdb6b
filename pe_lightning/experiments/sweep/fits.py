"""Fits in this process: the options of ``pe-lightning fit`` parsed by one parser, data that does not change loaded once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import wandb
import yaml
from jsonargparse import dict_to_namespace
from lightning.pytorch import LightningDataModule, Trainer, seed_everything
from lightning.pytorch.cli import ArgsType, LightningArgumentParser

from pe_lightning import naming
from pe_lightning.cli import CoordinateCLI, prepare
from pe_lightning.errors import InputError
from pe_lightning.explain import root_message

__all__ = ["Fits"]


class Fits(CoordinateCLI):
    """Parses and runs any number of fits, one after the other.

    A DataModule is kept until a fit has other data options; signals are decoded once for all fits in between.
    """

    def __init__(self) -> None:
        prepare()
        self._ready = False
        self._data: tuple[str, LightningDataModule] | None = None
        super().__init__(["fit"])
        self._ready = True
        self.subcommand = "fit"

    # -- LightningCLI parses, instantiates and runs in its constructor; here that only makes the parser --------------------

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parses, but not while the parser is being made."""
        if self._ready:
            super().parse_arguments(parser, args)
        else:
            self.config = dict_to_namespace({"subcommand": "fit", "fit": {"seed_everything": False}})

    def instantiate_classes(self) -> None:
        """Makes data, model and Trainer, but not while the parser is being made."""
        if self._ready:
            super().instantiate_classes()
            self._keep_data()

    def after_instantiate_classes(self) -> None:
        """Runs nothing while the parser is being made."""
        if not self._ready:
            self.subcommand = None

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Leaves out what listens to the user or draws on the terminal: both are the caller's."""
        self.config_init["fit"].trainer.enable_progress_bar = False
        trainer = super().instantiate_trainer(**kwargs)
        trainer.callbacks = [callback for callback in trainer.callbacks if callback is not self.stop]  # type: ignore[attr-defined]
        return trainer

    def _keep_data(self) -> None:
        options = json.dumps(self._tree()["data"], sort_keys=True)
        if self._data is not None and self._data[0] == options:
            self.datamodule = self._data[1]
        else:
            self._data = options, self.datamodule

    def _tree(self) -> dict[str, Any]:
        """What was parsed, as plain values."""
        plain = yaml.safe_load(self.parser.dump(self.config, skip_none=False))
        return dict(plain["fit"])

    # -- for callers ------------------------------------------------------------------------------------------------------

    def resolve(self, arguments: Sequence[str]) -> dict[str, Any]:
        """The complete configuration that options of ``fit`` stand for, as plain values.

        Raises:
            InputError: If the parser or a constructor refuses them.
        """
        self.parse_arguments(self.parser, ["fit", *naming.expand_arguments(arguments)])
        try:
            self.parser.instantiate_classes(self.config)
        except ValueError as error:
            raise InputError(root_message(error)) from error
        return self._tree()

    def load(self, tree: dict[str, Any]) -> LightningDataModule:
        """The DataModule of a complete configuration, loaded; it is kept for the fits that follow.

        Raises:
            InputError: If the data cannot be read.
        """
        self.parse_arguments(self.parser, ["fit", "--config", json.dumps(tree)])
        self.config_init = self.parser.instantiate_classes(self.config)
        self.datamodule = self.config_init["fit"]["data"]
        self._keep_data()
        data: LightningDataModule = self.datamodule
        data.prepare_data()
        return data

    def fit(self, tree: dict[str, Any], folder: Path, checkpoint: Path | None = None) -> dict[str, Any]:
        """Runs a complete configuration as ``pe-lightning fit`` does.

        Args:
            tree: What :meth:`resolve` returned.
            folder: The run directory.
            checkpoint: Where an earlier fit of the same configuration, in the same directory, is taken up again.

        Returns:
            The content of ``metrics.json``.

        Raises:
            InputError: If something in the configuration, or the data, has to be changed.
        """
        self.recorder_options = {"folder": folder, "table": False}
        given = {**tree, "ckpt_path": None if checkpoint is None else str(checkpoint)}
        self.parse_arguments(self.parser, ["fit", "--config", json.dumps(given)])
        if tree["seed_everything"] is not False:
            seed_everything(tree["seed_everything"], workers=True)
        try:
            self.instantiate_classes()
            if self.trainer.world_size > 1:
                raise InputError("fits in one process take one device: set --trainer.devices 1 and --trainer.num_nodes 1")
            self.before_fit()
            options = {"ckpt_path": given["ckpt_path"], "weights_only": tree["weights_only"]}
            self.trainer.fit(self.model, datamodule=self.datamodule, **options)
            self.after_fit()
        except BaseException:
            if wandb.run is not None:
                wandb.finish(exit_code=1)
            raise
        return dict(self.save_config_kwargs["recorder"].metrics)
