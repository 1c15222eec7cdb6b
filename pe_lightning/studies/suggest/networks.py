"""Trials of models that are trained, or whose encoder is learned by variable projection, with an equal time limit each."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning.pytorch import seed_everything

from pe_lightning.cli import recipes
from pe_lightning.cli.cli import instantiate, parse
from pe_lightning.results.config_files import read_config
from pe_lightning.studies.suggest.search import Candidate, SearchResult, Trial, TrialScore, measure, reason
from pe_lightning.training.datamodule import SignalDataModule
from pe_lightning.training.quiet_fits import fit_quietly


class Network(NamedTuple):
    """Name in the table; recipe, which also says whether the model is trained; encoder in place of that of the recipe."""

    label: str
    recipe: str
    encoder: dict[str, Any] | None = None


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
    """Adds a trial of each network to the result of a search on signals in memory; those that fail are listed as skipped.

    ``seconds`` limits all networks together: time that one does not use is divided among the following ones.
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
    recipe = read_config(Path(recipes.find(network.recipe)))
    if network.encoder is not None:
        recipe["model"]["init_args"]["encoder"] = network.encoder
    solved = recipe["trainer"]["max_steps"] == 0
    config = parse("fit", recipe)
    seed_everything(seed, workers=True, verbose=False)
    module = instantiate("fit", config, ["model"]).model
    limit = timedelta(seconds=max(0.1, seconds - (time.perf_counter() - began)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = fit_quietly(module, data, 0 if solved else -1, max_time=limit)
    spent, steps = time.perf_counter() - began, module.trainer.global_step
    with torch.no_grad():
        scores = measure(module.predict_grid(signals.dataset.axes), signals)
    notes = () if solved else (f"{steps} steps",)
    return TrialScore(scores, spent, module.num_params, notes=notes, model=recipe["model"], steps=steps)
