"""What ``suggest`` tries where every sample is trained on: exact fits of which few numbers are kept."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch import Tensor

from pe_lightning import encoders as known
from pe_lightning.cli.verbs import console
from pe_lightning.encoders import Encoder
from pe_lightning.encodings import samples_per_unit, sized
from pe_lightning.errors import InputError
from pe_lightning.evaluation.metrics import psnr
from pe_lightning.linalg import LIFTINGS, LiftingName
from pe_lightning.networks.sparse import Coefficients, axis_norms
from pe_lightning.solvers import LowRankWarning, solve_grid
from pe_lightning.solvers.solution import encode
from pe_lightning.studies.suggest.report import as_text
from pe_lightning.training.datamodule import SignalDataModule

SHARES = (0.01, 0.03, 0.1, 0.3)
"""Shares of the numbers of a signal that are kept."""
JUDGED = 0.1
"""The share of kept numbers by whose PSNR encoders and transforms are compared."""
MAX_SIGNALS = 4
"""Of more signals than this, so many are looked at, evenly spread."""
PREFERRED = "keys"
"""The encoder of the sparse recipes. It is taken where others have the same score, such as ``impulse``, because it
interpolates smoothly between the samples."""
TIE_DB = 0.005
"""Scores that differ by less are the same."""


def suggest_sparse(data: SignalDataModule, names: Sequence[str], tree: dict[str, Any], out: Path) -> str:
    """Tries shifted encoders, all or those named, and every transform with the best of them; prints a table.

    Returns the configuration of the best, for the file ``out``; ``tree`` is the complete one of the signals.
    """
    made = {name: known.create(name) for name in names or known.names()}
    trained = {name for name, encoder in made.items() if any(True for _ in encoder.parameters())}
    shifted = {name: made[name] for name in made if name not in trained and made[name].resolution is not None}
    if not shifted:
        raise InputError(f"every sample is trained on, and {', '.join(names)} are no shifted encoders: try keys, tri, gau")
    values = data.dataset.in_memory()
    chosen = values[torch.linspace(0, len(values) - 1, min(len(values), MAX_SIGNALS)).long()]

    def tried(encoder: Encoder, transform: Any) -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LowRankWarning)  # the table shows it
            each = [sparsity(signal, encoder, transform) for signal in chosen]
        mean = [sum(report["psnr"][place] for report in each) / len(each) for place in range(len(SHARES))]
        whole = sum(report["psnr_of_all"] for report in each) / len(each)
        return {**each[0], "psnr": mean, "psnr_of_all": whole}

    judge = SHARES.index(JUDGED)

    def score(report: dict[str, Any]) -> float:
        psnr = float(report["psnr"][judge])
        return psnr if math.isfinite(psnr) else math.inf

    def rank(report: dict[str, Any]) -> float:
        return score(report) + (TIE_DB if report["encoder"] == PREFERRED else 0.0)

    first, *others = LIFTINGS
    reports = [tried(encoder, first) for encoder in shifted.values()]
    best = max(reports, key=rank)
    reports += [tried(shifted[best["encoder"]], transform) for transform in others]
    reports.sort(key=rank, reverse=True)
    best = reports[0]
    console().print(sparsity_table(reports))
    verdict = f"{score(best):.2f} dB of all samples by {best['numbers'][judge]:,} numbers."
    how = "num_coefficients is a share of all numbers; or a count, {psnr: 40}, or auto for noisy signals."
    arguments = {"encoder": best["encoder"], "ridge": 0, "num_coefficients": JUDGED, "transform": best["transform"]}
    model = {"class_path": "pe_lightning.ComplexLinear", "init_args": arguments}
    return as_text([verdict, how], model, data, tree, out)


@torch.no_grad()
def sparsity(
    values: Tensor, encoder: Encoder, transform: LiftingName = "9/7", shares: Sequence[float] = SHARES
) -> dict[str, Any]:
    """PSNR of all samples of a signal by the largest numbers of its exact fit, in the multi-resolution basis.

    Args:
        values: ``(N_1, ..., N_D, C)`` in [0, 1].
        encoder: A shifted encoder, for all axes; ``num_features: auto`` is one per sample.
        transform: The multi-resolution transform.
        shares: What is kept, as shares of the samples' numbers.

    Returns:
        Plain values: ``encoder``, ``transform``, ``numbers`` and ``psnr`` for each share, and ``psnr_of_all`` of the fit.
    """
    axes = [torch.arange(n, dtype=torch.float64) / n for n in values.shape[:-1]]
    samples = [samples_per_unit(x) for x in axes]
    encoders = sized([encoder] * len(axes), [1 / n for n in samples], samples, values.shape[-1])
    found = solve_grid(values[None], encoders, axes, ridge=0.0)
    features, weight = encode(found.encoders, axes, values.device), found.weight[0]

    def score(kept: Tensor) -> float:
        prediction = replace(found, weight=kept[None]).evaluate(features)[0]
        squared = (prediction - values).square().sum(dtype=torch.float64)
        return float(psnr(squared, torch.tensor(float(values.numel()))))

    counts = [max(1, min(round(share * values.numel()), weight.numel())) for share in shares]
    norms = [axis_norms(transform, *pair) for pair in zip(found.encoders, features, strict=True)]
    coefficients = Coefficients(weight, transform, norms)
    scores = [score(coefficients.keep(count).weight()) for count in counts]
    report = {"encoder": encoder.name, "transform": transform, "numbers": counts}
    return {**report, "psnr": scores, "psnr_of_all": score(weight)}


def sparsity_table(reports: Sequence[Mapping[str, Any]]) -> Table:
    """The curves side by side, PSNR in dB in columns of numbers kept."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title="PSNR in dB of all samples, by numbers kept of the exact fit")
    table.add_column("encoder")
    table.add_column("basis")
    for count in reports[0]["numbers"]:
        table.add_column(f"{count:,}", justify="right")
    table.add_column("all", justify="right")
    for report in reports:
        scores = [f"{score:.2f}" for score in (*report["psnr"], report["psnr_of_all"])]
        table.add_row(report["encoder"], report["transform"], *scores)
    return table
