"""Sparse fits, which ``suggest`` compares where every sample is trained on."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch import Tensor

from pe_fill.sparse.lifting import LiftingName
from pe_fill.sparse.network import Coefficients, axis_norms
from pe_lightning import encoders as known
from pe_lightning.encoders import Encoder, Shifted, samples_per_unit, sized
from pe_lightning.errors import InputError, console
from pe_lightning.evaluation.scores import psnr
from pe_lightning.solvers import LowRankWarning, solve_grid
from pe_lightning.solvers.features import encode
from pe_lightning.studies.suggest.report import as_text
from pe_lightning.training import SignalDataModule

SHARES = (0.01, 0.03, 0.1, 0.3)
"""Shares of the numbers of a signal that are kept."""
JUDGED = 2
"""Place of the share by whose PSNR encoders and transforms are compared."""
MAX_SIGNALS = 4
"""Of more signals than this, so many are looked at, evenly spread."""
PREFERRED = "keys"
"""The encoder of the sparse recipes, which interpolates smoothly between the samples. It wins ties, such as with
``impulse``."""
TIE_DB = 0.005
"""Scores that differ by less are equal."""


class SparsityCurve(NamedTuple):
    """PSNR of all samples of signals by the largest numbers of their exact fit, in a multi-resolution basis.

    Args:
        encoder: Its name.
        transform: The basis.
        numbers: Kept numbers of each signal.
        psnr: Mean over the signals in dB for each of these numbers; infinite if the samples are reproduced.
        psnr_of_all: Mean of the exact fits, in dB.
    """

    encoder: str
    transform: LiftingName
    numbers: tuple[int, ...]
    psnr: tuple[float, ...]
    psnr_of_all: float

    @property
    def rank(self) -> float:
        return self.psnr[JUDGED] + (TIE_DB if self.encoder == PREFERRED else 0.0)


def suggest_sparse(data: SignalDataModule, names: Sequence[str], tree: dict[str, Any], out: Path) -> str:
    """Tries shifted encoders, all or the named ones, and every transform with the best of them; prints a table.

    Returns the best configuration, for the file ``out``, from the complete one of the signals, ``tree``.
    """
    encoders = {name: known.create(name) for name in names or known.names()}
    shifted = {
        name: encoder
        for name, encoder in encoders.items()
        if isinstance(encoder, Shifted) and not any(True for _ in encoder.parameters())
    }
    if not shifted:
        raise InputError(f"every sample is trained on, and {', '.join(names)} are no shifted encoders: try keys, tri, gau")
    values = data.values
    chosen = values[torch.linspace(0, len(values) - 1, min(len(values), MAX_SIGNALS)).long()]
    first, *others = get_args(LiftingName)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LowRankWarning)  # the table shows it
        curves = [sparsity(chosen, encoder, first) for encoder in shifted.values()]
        best = max(curves, key=lambda curve: curve.rank)
        curves += [sparsity(chosen, shifted[best.encoder], transform) for transform in others]
    curves.sort(key=lambda curve: curve.rank, reverse=True)
    best = curves[0]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title="PSNR in dB of all samples, by numbers kept of the exact fit")
    for title in ("encoder", "basis"):
        table.add_column(title)
    for title in (*(f"{count:,}" for count in best.numbers), "all"):
        table.add_column(title, justify="right")
    for curve in curves:
        scores = [f"{score:.2f}" for score in (*curve.psnr, curve.psnr_of_all)]
        table.add_row(curve.encoder, curve.transform, *scores)
    console().print(table)
    verdict = f"{best.psnr[JUDGED]:.2f} dB of all samples by {best.numbers[JUDGED]:,} numbers."
    how = "num_coefficients is a share of all numbers; or a count, {psnr: 40}, or auto for noisy signals."
    arguments = {"encoder": best.encoder, "ridge": 0, "num_coefficients": SHARES[JUDGED], "transform": best.transform}
    model = {"class_path": "pe_fill.SparseLinear", "init_args": arguments}
    return as_text([verdict, how], model, tree, out)


@torch.no_grad()
def sparsity(
    signals: Tensor, encoder: Encoder, transform: LiftingName = "9/7", shares: Sequence[float] = SHARES
) -> SparsityCurve:
    """The curve of signals ``(S, N_1, ..., N_D, C)`` in [0, 1], for shares of the numbers of the samples."""
    axes = [torch.arange(n, dtype=torch.float64) / n for n in signals.shape[1:-1]]
    samples = [samples_per_unit(x) for x in axes]
    encoders = sized([encoder] * len(axes), [1 / n for n in samples], samples, signals.shape[-1])
    scores: list[list[float]] = []
    for values in signals:
        found = solve_grid(values[None], encoders, axes, ridge=0.0)
        features, weight = encode(found.encoders, axes, values.device), found.weight[0]
        numbers = [max(1, min(round(share * values.numel()), weight.numel())) for share in shares]
        norms = [axis_norms(transform, *pair) for pair in zip(found.encoders, features, strict=True)]
        coefficients, scored = Coefficients(weight, transform, norms), []
        for kept in (*(coefficients.keep(count).weight() for count in numbers), weight):
            squared = (found.with_weight(kept[None]).evaluate(features)[0] - values).square().sum(dtype=torch.float64)
            scored.append(float(psnr(squared, torch.tensor(float(values.numel())))))
        scores.append(scored)
    *means, of_all = (sum(column) / len(scores) for column in zip(*scores, strict=True))
    return SparsityCurve(encoder.name, transform, tuple(numbers), tuple(means), of_all)
