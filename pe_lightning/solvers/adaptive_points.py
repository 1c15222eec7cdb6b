"""The adaptive exact fit at scattered samples: members are fitted to the nearest samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from scipy.spatial import cKDTree
from torch import Tensor

from pe_lightning.encodings.bank import Bank
from pe_lightning.errors import InputError
from pe_lightning.solvers.adaptive import ERROR_FLOOR, ERROR_POWER

__all__ = ["RIDGE", "AdaptivePoints"]

NUM_NEIGHBOURS = (6, 16, 32)
"""Number of nearest samples that a member is fitted to, for 1, 2 and 3 axes."""
RIDGE = 2.0**-4
"""Ridge of the local fits without noise; larger than on a grid, since some samples nearly coincide."""
MAX_MEMBERS = 8
"""Members that predict a point: those of the largest weight."""
MIXTURE_WIDTH = 0.5
"""Standard deviation of the mean of the samples' mixtures around a point, in spacings."""
MAX_NUMBERS = 1 << 22
"""Intermediate numbers that are held at once."""


class AdaptivePoints:
    """One signal at scattered samples, as a function of coordinates.

    As :class:`~pe_lightning.solvers.adaptive.AdaptiveGrid`; members are fitted to the nearest samples, and weighted by
    leave-one-out errors. The function is differentiable except where the nearest samples change.

    Args:
        bank: The encoders.
        values: The trained samples ``(P, C)``.
        coords: Their coordinates, ``(P, D)`` in [0, 1).
        grid: Samples of the whole signal per axis, ``N_a``: the unit of lengths.
        window: Standard deviation of the local mean of errors, in mean spacings.
        ridge: Ridge of the local fits.

    Raises:
        InputError: If there are fewer samples than a fit takes.
    """

    def __init__(self, bank: Bank, values: Tensor, coords: Tensor, grid: Sequence[int], window: float, ridge: float) -> None:
        self.bank, self.values, self.grid, self.window, self.ridge = bank, values, grid, window, ridge
        self.count, self.num_members = NUM_NEIGHBOURS[len(grid) - 1], len(bank.forms)
        if len(values) <= self.count:
            raise InputError(f"Adaptive needs more than {self.count} samples of {len(grid)} axes, got {len(values)}")
        self.scale = torch.tensor(grid, dtype=torch.float64, device=values.device)
        self.places = coords.double() * self.scale
        self.spacing = (math.prod(grid) / len(values)) ** (1 / len(grid))
        self.tree = cKDTree(self.places.cpu().numpy())
        nearest, distance = self._nearest(self.places, self.count + 1)
        per_sample = len(bank.forms) * self.count**2
        errors = torch.cat([self._errors(some) for some in torch.split(nearest, max(1, MAX_NUMBERS // per_sample))])
        bell = self._bell(distance, window)
        local = torch.einsum("pk,pkm->pm", bell.to(errors), errors[nearest])
        self.mixture = torch.softmax(-ERROR_POWER * (local + ERROR_FLOOR).log(), 1)
        """Weight of each member at each sample, ``(P, M)``; they sum to one."""
        self.error = float((self.mixture * local).sum(1).mean())
        """Mean squared leave-one-out error of the members with the weights of the mixture."""

    def _nearest(self, places: Tensor, count: int) -> tuple[Tensor, Tensor]:
        distance, index = self.tree.query(places.detach().cpu().numpy(), count)
        return torch.from_numpy(index).to(places.device), torch.from_numpy(distance).to(places.device)

    def _bell(self, distance: Tensor, width: float) -> Tensor:
        return torch.softmax(-0.5 * (distance / (width * self.spacing)) ** 2, 1)

    def weights(self, samples: Tensor, places: Tensor, members: Tensor | None = None) -> Tensor:
        """Weights of the samples ``(B, k, D)`` for values at places ``(B, D)``: ``(B, M, k)``.

        Ordinary kriging, solved for one place. ``members`` ``(B, J)`` are those to use; all by default.
        """
        forms = None if members is None else self.bank.forms.to(places.device)[members].mT

        def similarity(delta: Tensor) -> Tensor:  # (B, pairs, D) -> (B, M, pairs)
            delta = delta.to(self.values.dtype)
            found = self.bank.similarity(delta, self.spacing, max(self.grid), forms)
            return found.mT.double()

        i, j = torch.triu_indices(self.count, self.count, 1, device=places.device)
        with torch.no_grad():
            among = similarity(samples[:, i] - samples[:, j])
            matrix = among.new_empty(*among.shape[:2], self.count, self.count)
            matrix[..., i, j] = matrix[..., j, i] = among
            matrix.diagonal(dim1=-2, dim2=-1).fill_(1 + self.ridge)
        to_place = similarity(places[:, None] - samples)
        solved = torch.linalg.solve(matrix, torch.stack([to_place, torch.ones_like(to_place)], -1))
        inner, ones = solved.unbind(-1)
        weights: Tensor = inner + ones * (1 - inner.sum(-1, keepdim=True)) / ones.sum(-1, keepdim=True)
        return weights

    @torch.no_grad()
    def _errors(self, nearest: Tensor) -> Tensor:
        """Mean squared leave-one-out errors ``(B, M)`` of samples, given them and their nearest others ``(B, 1 + k)``."""
        itself, others = nearest[:, 0], nearest[:, 1:]
        weights = self.weights(self.places[others], self.places[itself]).to(self.values)
        return (weights @ self.values[others] - self.values[itself][:, None]).square().mean(-1)

    def at(self, points: Tensor) -> Tensor:
        """Values at points ``(P, D)`` in [0, 1), differentiable: ``(P, C)``."""
        if len(points) == 0:
            return self.values.new_zeros(0, self.values.shape[-1])
        per_point = MAX_MEMBERS * self.count**2
        return torch.cat([self._at(some) for some in torch.split(points, max(1, MAX_NUMBERS // per_point))])

    def _at(self, points: Tensor) -> Tensor:
        places = points.double() * self.scale
        nearest, _ = self._nearest(places, self.count)
        samples = self.places[nearest]
        distance = ((places[:, None] - samples).square().sum(-1) + 1e-12).sqrt()
        mixture = torch.einsum("pk,pkm->pm", self._bell(distance, MIXTURE_WIDTH), self.mixture[nearest].double())
        shares, members = mixture.topk(min(MAX_MEMBERS, mixture.shape[1]), 1)
        weights = torch.einsum("pj,pjk->pk", shares / shares.sum(1, keepdim=True), self.weights(samples, places, members))
        return torch.einsum("pk,pkc->pc", weights.to(self.values), self.values[nearest])

    @torch.no_grad()
    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on the grid of one coordinate vector ``(N_a,)`` per axis: ``(N_1, ..., N_D, C)``."""
        points = torch.cartesian_prod(*axes).reshape(-1, len(axes)).to(self.values.device)
        return self.at(points).reshape(*(len(x) for x in axes), -1)
