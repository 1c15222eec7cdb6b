r"""Kriging with power variograms: predictions between samples and in wide gaps from the samples in all directions.

The variogram :math:`r^p` has no length: the members differ in smoothness alone. :math:`p = 1` is linear interpolation in
one dimension and the linear radial basis function in others; :math:`r^2 \log r` is the thin plate spline and :math:`r^3`
the cubic one, both with a linear drift, the other members with a constant one. Places that are next to each other share one
system, of the nearest samples in each octant of directions around them.

Reference: Matheron, *The intrinsic random functions and their applications*, Advances in Applied Probability 5, 1973;
Deutsch and Journel, *GSLIB*, Oxford University Press 1998, Sec. II.4 (octant search).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from pe_lightning.linalg.threads import side_by_side

POWERS = (0.5, 1.0, 2.0, 3.0)
"""Powers of the variograms; 2 is :math:`r^2 \\log r`."""
LINEAR_DRIFT_POWER = 2.0
"""Least power with a linear drift."""
NUM_NEIGHBOURS = (16, 40, 64)
"""Samples of a system, for 1, 2 and 3 axes."""
CANDIDATES = (64, 192, 512)
"""Nearest samples among which those in each octant are searched, for 1, 2 and 3 axes."""
NUGGET = 1e-9
"""Least addition to the diagonal, in units of a variogram at the mean distance of the neighbours."""
POINTS_PER_BLOCK = 128
"""Most points of a group that are predicted at once."""
MAX_NUMBERS = 1 << 18
"""Numbers of the matrices that are held at once: few enough for the cache of a CPU."""


class Block(NamedTuple):
    """Points of some groups."""

    groups: Tensor
    """``(B,)``."""
    points: Tensor
    """Numbers of the points of each group, ``(B, Q)``; padded."""
    valid: Tensor
    """Which are not padding, ``(B, Q)`` booleans."""


def blocks_of(group: Tensor, count: int, size: int) -> Iterator[Block]:
    """Points in blocks of up to ``size`` groups, by the group of each, ``(Q,)`` below ``count``.

    Groups with as many points are together.
    """
    order = group.argsort(stable=True)
    counts = group.bincount(minlength=count)
    first = counts.cumsum(0) - counts
    parts = (counts + POINTS_PER_BLOCK - 1) // POINTS_PER_BLOCK
    groups = torch.arange(len(counts), device=group.device).repeat_interleave(parts)
    part = torch.arange(len(groups), device=group.device) - (parts.cumsum(0) - parts)[groups]
    start = first[groups] + part * POINTS_PER_BLOCK
    sizes = (counts[groups] - part * POINTS_PER_BLOCK).clamp_max(POINTS_PER_BLOCK)
    for some in torch.split(sizes.argsort(stable=True), size):
        column = torch.arange(int(sizes[some[-1]]), device=group.device)
        valid = column < sizes[some][:, None]
        yield Block(groups[some], order[(start[some][:, None] + column).clamp_max(len(order) - 1)], valid)


def in_groups(places: Tensor, group: Tensor, size: int, system: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Predictions at places ``(Q, D)`` float64, by groups ``(Q,)`` from zero that share one system: ``(M, Q, C)``.

    Up to ``size`` systems are computed at once: centres ``(B, D)``, places ``(B, q, D)`` -> predictions ``(M, B, q, C)``.
    """
    _, group, counts = torch.unique(group, return_inverse=True, return_counts=True)
    centres = torch.zeros(len(counts), places.shape[1], dtype=places.dtype, device=places.device)
    centres = centres.index_add_(0, group, places.detach()) / counts[:, None]

    def predictions(block: Block) -> Tensor:
        return system(centres[block.groups], places[block.points])[:, block.valid]

    blocks = list(blocks_of(group, len(counts), size))
    everything = torch.cat(side_by_side(predictions, blocks, places.device), 1)
    indices = torch.cat([block.points[block.valid] for block in blocks])
    return torch.empty_like(everything).index_copy(1, indices, everything)


def neighbours_around(tree: cKDTree, places: Tensor, centres: Tensor, count: int, searched: int) -> Tensor:
    """As many samples from each octant of directions as there are, the nearest first: centres ``(B, D)`` -> ``(B, count)``.

    They are among the nearest ``searched`` samples of the places ``(P, D)``, which the tree holds.
    """
    axes = centres.shape[1]
    searched = min(searched, len(places))
    if searched <= count:
        return torch.arange(count, device=centres.device).expand(len(centres), -1)
    found = tree.query(centres.cpu().numpy(), np.arange(1, searched + 1))[1]
    near = torch.from_numpy(found).to(centres.device)
    offsets = places[near] - centres[:, None]
    octant = ((offsets > 0) * 2 ** torch.arange(axes, device=centres.device)).sum(-1)
    octants = 2**axes
    if axes == 2:  # the halves of a quadrant
        octant, octants = octant + 4 * (offsets[..., 0].abs() > offsets[..., 1].abs()), 8
    rank = torch.zeros_like(octant)
    for number in range(octants):
        inside = octant == number
        rank = torch.where(inside, inside.cumsum(1), rank)
    key = torch.arange(searched, device=near.device) + searched * (rank > count // octants)
    return near.gather(1, key.argsort(1)[:, :count])


class PowerKriging:
    """Kriging of one signal, samples ``(P, C)`` at ``(P, D)`` float64, by every power variogram.

    The nugget is the variance of the noise, in units of a variogram at the mean distance of the neighbours.
    """

    def __init__(self, values: Tensor, places: Tensor, tree: cKDTree, nugget: float = 0.0) -> None:
        self.values, self.places, self.tree, self.nugget = values, places, tree, max(nugget, NUGGET)
        self.count = min(NUM_NEIGHBOURS[places.shape[1] - 1], len(places))

    def at(self, places: Tensor, group: Tensor, members: Sequence[int]) -> Tensor:
        """Predictions of members, by numbers in :data:`POWERS`, at places ``(Q, D)`` float64, differentiable: ``(M, Q, C)``.

        Places of a group, numbers from zero ``(Q,)``, share one system.
        """

        def system(centres: Tensor, points: Tensor) -> Tensor:
            near = neighbours_around(self.tree, self.places, centres, self.count, CANDIDATES[places.shape[1] - 1])
            around = self.places[near]
            centre = around.mean(1, keepdim=True)
            offsets = around - centre
            unit = offsets.square().sum(-1).mean(1).sqrt()[:, None, None]
            unit = torch.where(unit > 0, unit, 1.0)
            values = self.values[near].double()
            found = self._solve(offsets / unit, values, (points - centre) / unit, members)
            low, high = values.amin(1, keepdim=True), values.amax(1, keepdim=True)
            margin = high - low  # of extrapolation
            return found.clamp(low - margin, high + margin).to(self.values)

        return in_groups(places, group, max(1, MAX_NUMBERS // self.count**2), system)

    def _solve(self, offsets: Tensor, values: Tensor, points: Tensor, members: Sequence[int]) -> Tensor:
        """Predictions at points ``(B, Q, D)`` from samples ``(B, n, D)`` and values ``(B, n, C)``: ``(M, B, Q, C)``."""
        count, axes = offsets.shape[1:]
        mean = values.mean(1, keepdim=True)
        among, to_points = squared_distances(offsets.detach(), offsets), squared_distances(points, offsets)
        found = []
        for power in (POWERS[member] for member in members):
            covariance, drift = _covariance(power), 1 + (axes if power >= LINEAR_DRIFT_POWER else 0)
            with torch.no_grad():
                matrix = offsets.new_zeros(len(offsets), count + drift, count + drift)
                matrix[:, :count, :count] = covariance(among)
                matrix[:, :count, count] = matrix[:, count, :count] = 1
                matrix[:, :count, count + 1 :] = offsets[..., : drift - 1]
                matrix[:, count + 1 :, :count] = offsets[..., : drift - 1].mT
                diagonal = matrix.diagonal(dim1=-2, dim2=-1)
                diagonal[:, :count] += self.nugget
                diagonal[:, count:] -= NUGGET  # samples on a line leave the drift across it free
                right = torch.cat([values - mean, values.new_zeros(len(values), drift, values.shape[-1])], 1)
                coefficients = torch.linalg.solve_ex(matrix, right)[0].nan_to_num(0.0, 0.0, 0.0)
            rows = torch.cat([covariance(to_points), torch.ones_like(points[..., :1]), points[..., : drift - 1]], -1)
            found.append(rows @ coefficients + mean)
        return torch.stack(found)


def squared_distances(points: Tensor, offsets: Tensor) -> Tensor:
    """``(B, q, D)`` and ``(B, n, D)`` -> ``(B, q, n)``."""
    along = ((x[:, :, None] - y[:, None]).square() for x, y in zip(points.unbind(-1), offsets.unbind(-1), strict=True))
    total: Tensor = sum(along, start=torch.zeros((), dtype=points.dtype, device=points.device))
    return total


def _covariance(power: float) -> Callable[[Tensor], Tensor]:
    """The generalised covariance of a power as a function of squared distances."""
    tiny = torch.finfo(torch.float64).tiny
    if power == LINEAR_DRIFT_POWER:
        return lambda squared: squared * (squared.clamp_min(tiny).log() / 2)
    if power > LINEAR_DRIFT_POWER:
        return lambda squared: squared.clamp_min(tiny).sqrt() * squared
    roots = round(math.log2(2 / power))

    def negative_root(squared: Tensor) -> Tensor:
        found = squared.clamp_min(tiny)
        for _ in range(roots):
            found = found.sqrt()
        return -found

    return negative_root
