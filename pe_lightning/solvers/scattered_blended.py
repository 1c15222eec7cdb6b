"""Scattered samples through the papers' blending, so that the approximation can be compared with exact evaluation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pe_lightning.encodings.blending import Blended, BlendingPlan
from pe_lightning.solvers.scattered_free import FreeSamples
from pe_lightning.solvers.scattered_samples import GridOperator, Operator

__all__ = ["BlendedSamples"]


class BlendedSamples(FreeSamples):
    """Samples at any coordinates, blended from the nodes of a virtual grid: mode products, then ``2^D`` neighbours.

    Args:
        blended: The virtual grid and its encoders.
        coords: ``(S or 1, P, D)``.
        mask: ``(S or 1, P)`` booleans; ``None``: every sample.
    """

    def __init__(self, blended: Blended, coords: Tensor, mask: Tensor | None = None) -> None:
        super().__init__(blended.encoders, coords, mask)
        self.blended = blended

    def _encode(self, coords: Tensor) -> list[Tensor]:
        return self.blended.axis_features(coords)

    def operator(self, signals: slice, bases: Sequence[Tensor], dtype: torch.dtype) -> Operator:
        """The nodes by mode products, then the neighbours of each point."""
        coords = self.coords if len(self.coords) == 1 else self.coords[signals]
        nodes = self.blended.node_features(torch.float64)
        factors = [(f.to(basis.device) @ basis).to(dtype) for f, basis in zip(nodes, bases, strict=True)]
        return _BlendedOperator(GridOperator(factors), self.blended.plan(coords, dtype), self.blended)


class _BlendedOperator(Operator):
    def __init__(self, nodes: GridOperator, plan: BlendingPlan, blended: Blended) -> None:
        self.nodes = nodes
        self.plan = plan
        self.blended = blended

    def forward(self, weight: Tensor) -> Tensor:
        return self.plan.gather(self.nodes.forward(weight))

    def adjoint(self, values: Tensor) -> Tensor:
        return self.nodes.adjoint(self.plan.scatter(values).reshape(*values.shape[:2], *self.blended.nodes))
