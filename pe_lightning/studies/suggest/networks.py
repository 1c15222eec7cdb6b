"""Trials of models that are trained, or whose encoder is learned by variable projection, with an equal time limit each."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import yaml
from lightning.pytorch import Trainer, seed_everything

from pe_lightning.cli import recipes
from pe_lightning.cli.arguments import rewrite
from pe_lightning.cli.cli import instantiate, parse
from pe_lightning.studies.suggest.search import Candidate, SearchResult, Trial, TrialScore, measure, reason
from pe_lightning.training import CoordinateModule
from pe_lightning.training.datamodule import SignalDataModule


@dataclass(frozen=True)
class Network:
    """The model of a recipe.

    Args:
        label: Name in the table.
        recipe: Name of the recipe, which also says whether the model is trained.
        encoder: Encoder that replaces that of the recipe.
    """

    label: str
    recipe: str
    encoder: dict[str, Any] | None = None

    def model(self) -> dict[str, Any]:
        section: dict[str, Any] = self._recipe()["model"]
        if self.encoder is not None:
            section["init_args"]["encoder"] = self.encoder
        return section

    @property
    def solved(self) -> bool:
        """Whether the model is fitted without training steps."""
        return bool(self._recipe()["trainer"]["max_steps"] == 0)

    def _recipe(self) -> dict[str, Any]:
        return dict(yaml.safe_load(Path(recipes.find(self.recipe)).read_text()))


NETWORKS: tuple[Network, ...] = (
    Network("variable projection, gau", "image/varpro"),
    Network("variable projection, laplace", "image/varpro", {"name": "laplace", "trainable": True}),
    Network("planes + MLP", "image/planes"),
    Network("hash + MLP", "image/hash"),
    Network("lff + MLP", "image/lff"),
    Network("rff + MLP", "image/lff", {"name": "rff", "num_features": 256, "sigma": 7}),
    Network("SIREN", "image/siren"),
    Network("WIRE", "image/wire"),
    Network("FINER", "image/finer"),
)
"""The models that ``suggest --networks`` tries, in this order."""


def train_networks(
    networks: Sequence[Network],
    result: SearchResult,
    data: SignalDataModule,
    seed: int,
    seconds: float,
    progress: Callable[[str], None],
) -> None:
    """Adds a trial of each network to the result; networks that fail, or for which no time is left, are listed as skipped.

    Args:
        networks: The networks.
        result: The result of a search on signals in memory.
        data: The signals.
        seed: Seed of each fit.
        seconds: Time limit for all networks. Time that one does not use is divided among the following ones.
        progress: Called with the description of the next trial.
    """
    end = time.perf_counter() + seconds
    for place, network in enumerate(networks):
        share = (end - time.perf_counter()) / (len(networks) - place)
        if share <= 0:
            result.skipped[network.label] = "no time left; give more --seconds"
            continue
        progress(f"{network.label}, {share:.0f} s")
        try:
            found = _train(network, result, data, seed, share)
        except Exception as error:  # the other networks are still tried
            result.skipped[network.label] = reason(error)
        else:
            result.trials.append(Trial(Candidate(network.label), whole=found))
    result.sort()


def _train(network: Network, result: SearchResult, data: SignalDataModule, seed: int, seconds: float) -> TrialScore:
    began, signals = time.perf_counter(), result.signals
    assert signals is not None
    config = parse("fit", rewrite("fit", [f"--config={network.recipe}", *_options(network)]))
    seed_everything(seed, workers=True, verbose=False)
    module = instantiate("fit", config, ["model"]).model
    assert isinstance(module, CoordinateModule)
    logging.disable(logging.INFO)  # messages of Lightning about every fit
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = Trainer(
            max_steps=0 if network.solved else -1,
            max_time=timedelta(seconds=max(0.1, seconds - (time.perf_counter() - began))),
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            limit_val_batches=0,
        )
        trainer.fit(module, datamodule=data)
    logging.disable(logging.NOTSET)
    spent = time.perf_counter() - began
    with torch.no_grad():
        prediction = module.eval().predict_grid([axis.to(module.device) for axis in signals.dataset.axes])
    steps = trainer.global_step
    notes = () if network.solved else (f"{steps} steps",)
    found = TrialScore((), spent, module.num_params, notes=notes, model=network.model(), steps=steps)
    return replace(found, per_signal=measure(prediction, signals))


def _options(network: Network) -> list[str]:
    return [] if network.encoder is None else [f"--model.encoder={yaml.safe_dump(network.encoder, default_flow_style=True)}"]
