"""PSNR of all samples of a signal against the numbers of an exact fit that are kept, in the basis of an encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch import Tensor

from pe_lightning.encoders import Encoder
from pe_lightning.encodings import samples_per_unit
from pe_lightning.encodings.complex import sized
from pe_lightning.evaluation.metrics import psnr
from pe_lightning.linalg import LiftingName
from pe_lightning.networks.sparse import Coefficients, axis_norms
from pe_lightning.solvers import solve_grid
from pe_lightning.solvers.solution import encode

SHARES = (0.01, 0.03, 0.1, 0.3)
"""Shares of the numbers of a signal that are kept."""
DENSE_RIDGE = 1e-6
"""Relative ridge for encoders that are not shifted, whose features at all samples may be nearly dependent."""


def sparsity(
    values: Tensor, encoder: Encoder, transform: LiftingName = "9/7", shares: Sequence[float] = SHARES
) -> dict[str, Any]:
    """PSNR of all samples of a signal by its largest numbers.

    The weights of shifted encoders are taken into the multi-resolution basis. Those of others are ranked as they are, by
    what they add to the samples.

    Args:
        values: ``(N_1, ..., N_D, C)`` in [0, 1].
        encoder: For all axes; ``num_features: auto`` is one per sample.
        transform: The multi-resolution transform.
        shares: What is kept, as shares of the samples' numbers.

    Returns:
        Plain values: ``encoder``, ``transform`` (``None`` without one), ``numbers`` and ``psnr`` for each share; and
        ``psnr_of_all``, that of the whole fit.
    """
    axes = [torch.arange(n, dtype=torch.float64) / n for n in values.shape[:-1]]
    samples = [samples_per_unit(x) for x in axes]
    encoders = sized([encoder] * len(axes), [1 / n for n in samples], samples, values.shape[-1])
    shifted = encoder.resolution is not None
    with torch.no_grad():
        found = solve_grid(values[None], encoders, axes, ridge=0.0 if shifted else DENSE_RIDGE)
        features = encode(found.encoders, axes, values.device)
        weight = found.weight[0]

        def score(kept: Tensor) -> float:
            prediction = replace(found, weight=kept[None]).evaluate(features)[0]
            squared = (prediction - values).square().sum(dtype=torch.float64)
            return float(psnr(squared, torch.tensor(float(values.numel()))))

        counts = [max(1, min(round(share * values.numel()), weight.numel())) for share in shares]
        if shifted:
            norms = [axis_norms(transform, *pair) for pair in zip(found.encoders, features, strict=True)]
            coefficients = Coefficients(weight, transform, norms)
            scores = [score(coefficients.keep(count).weight()) for count in counts]
        else:
            lengths = [matrix.dense().norm(dim=0) for matrix in features]
            joint = reduce(lambda one, other: one[..., None] * other, lengths).to(weight)
            order = (weight.abs() * joint).flatten()
            least = [order.kthvalue(order.numel() - count + 1).values for count in counts]
            scores = [score(torch.where(order.view_as(weight) >= value, weight, 0.0)) for value in least]
        whole = score(weight)
    return {
        "encoder": encoder.name,
        "transform": transform if shifted else None,
        "numbers": counts,
        "psnr": scores,
        "psnr_of_all": whole,
    }


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
        table.add_row(report["encoder"], report["transform"] or "its own", *scores)
    return table
