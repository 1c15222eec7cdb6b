"""What ``suggest`` tries where every sample is trained on: exact fits of which few numbers are kept."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pe_lightning import encoders as known
from pe_lightning.cli.verbs import console
from pe_lightning.encoders import Encoder
from pe_lightning.errors import InputError
from pe_lightning.estimators.sparsity import SHARES, sparsity, sparsity_table
from pe_lightning.linalg import LIFTINGS
from pe_lightning.solvers import LowRankWarning
from pe_lightning.studies.suggest.report import as_text
from pe_lightning.training.datamodule import SignalDataModule

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
    return as_text([verdict, how], model, 0, data, tree, out)
