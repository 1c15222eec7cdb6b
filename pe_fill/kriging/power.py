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
from collections.abc import Callable, Sequence

import torch
from scipy.spatial import cKDTree
from torch import Tensor

from pe_fill.kriging.neighbours import MAX_NUMBERS, in_groups, neighbours_around, squared_distances

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


def _covariance(power: float) -> Callable[[Tensor], Tensor]:
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
