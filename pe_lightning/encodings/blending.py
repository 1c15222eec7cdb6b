"""Blending: features at scattered points, approximated by weighted sums of those at the nodes of a grid."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from pe_lightning.encoders import Encoder
from pe_lightning.encodings.complex import Complex
from pe_lightning.errors import InputError

MAX_COORDINATE = 0.999
"""Coordinates are clamped to this, as in the papers' experiments, so that every point has a node to its right."""


class Blended(nn.Module):
    r"""A complex encoding at scattered points, approximated from a virtual grid.

    Per axis, :math:`\psi(x) \approx \alpha_0 \psi(x_0) + \alpha_1 \psi(x_1)` between the nodes :math:`x_0 \le x \le x_1`
    of spacing ``d``. With :math:`x = x_0 + \beta d` and the encoder's similarity ``D``, least squares gives

    .. math::
        \alpha_0 = \frac{D(0) D(\beta d) - D(d) D((1 - \beta) d)}{D(0)^2 - D(d)^2}, \quad
        \alpha_1 = \frac{D(0) D((1 - \beta) d) - D(d) D(\beta d)}{D(0)^2 - D(d)^2},

    and the pair is divided by its sum, as in the papers' experiments. In ``D`` dimensions the weights of the ``2^D``
    neighbours are products: :math:`\alpha_0\beta_0, \alpha_1\beta_0, \alpha_0\beta_1, \alpha_1\beta_1` in two. (The paper
    prints :math:`\alpha_0\beta_0` twice at the end of its Eq. 49.) The triangle's ``D`` is exact, unlike the printed one.

    For many points that are not on a grid it needs far fewer operations than an exact evaluation. Samples of a grid are
    evaluated exactly at the same cost, by mode products.

    Args:
        encoding: The complex encoding, with its scales.
        nodes: Number of nodes on each axis, on ``linspace(0, 1, nodes)``. Default: as many as the axis has features, as in
            the papers.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eqs. 13-15
    and 43-49.
    """

    def __init__(self, encoding: Complex, nodes: int | None = None) -> None:
        super().__init__()
        self.encoding = encoding
        self.nodes: tuple[int, ...] = encoding.num_features if nodes is None else (nodes,) * encoding.num_axes
        for axis, (encoder, n) in enumerate(zip(encoding.encoders, self.nodes, strict=True)):
            _check(encoder, 1 / (n - 1), axis)

    def node_features(self, dtype: torch.dtype) -> list[Tensor]:
        """Features of the nodes with the scales of the encoding, ``(n_a, K_a)`` per axis."""
        device = self.encoding.scales.device
        axes = [torch.linspace(0, 1, n, dtype=torch.float64, device=device).to(dtype) for n in self.nodes]
        return self.encoding.axis_features(axes)

    def neighbours(self, coords: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """The nodes around points and their weights: the entries of the papers' matrix ``B``.

        Args:
            coords: ``(S or 1, P, D)``, or ``(P, D)`` for points that all signals share.
            dtype: Of the weights; default that of ``coords``.

        Returns:
            Row-major positions of the nodes and their weights, ``(S or 1, 2^D, P)``; the weights of a point sum to one.
        """
        self.encoding.check_points(coords)
        coords = coords.reshape(-1, *coords.shape[-2:])
        encoders = self.encoding.encoders
        sides = [blending_weights(encoders[axis], n, coords[..., axis]) for axis, n in enumerate(self.nodes)]
        index, weight = [], []
        for corner in itertools.product((0, 1), repeat=len(self.nodes)):
            position = torch.zeros_like(sides[0][0])
            product = torch.ones_like(sides[0][1])
            for n, side, (left, *alphas) in zip(self.nodes, corner, sides, strict=True):
                position = position * n + (left + side)
                product = product * alphas[side]
            index.append(position)
            weight.append(product.to(dtype or coords.dtype))
        return torch.stack(index, 1), torch.stack(weight, 1)

    def forward(self, weight: Tensor, coords: Tensor) -> Tensor:
        """The linear layer at scattered points, approximately; differentiable with respect to weights and encoders.

        Shape:
            Weights ``(S, C, K_1, ..., K_D)`` and coordinates ``(P, D)`` or ``(S, P, D)`` -> ``(S, C, P)``.
        """
        index, shares = self.neighbours(coords, weight.dtype)
        nodes = self.encoding.products(weight, self.node_features(weight.dtype)).flatten(2)
        return (torch.take_along_dim(nodes[:, :, None], index[:, None], -1) * shares[:, None]).sum(2)


def blending_weights(encoder: Encoder, nodes: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""The left of the two nodes around each coordinate, and the weights :math:`\alpha_0` and :math:`\alpha_1` of the pair.

    Args:
        encoder: Its ``distance`` is the similarity ``D``.
        nodes: Number of nodes on ``linspace(0, 1, nodes)``.
        x: Coordinates ``(*batch,)``, clamped to [0, 0.999].

    Returns:
        Indices, int64, and weights that sum to one, float64, each ``(*batch,)``.
    """
    cells = nodes - 1
    position = x.double().clamp(0, MAX_COORDINATE) * cells
    left = position.floor().clamp_(0, cells - 1)
    beta, spacing = position - left, 1 / cells
    here, there = encoder.distance(torch.tensor([0.0, spacing], dtype=torch.float64, device=x.device)).unbind()
    near, far = encoder.distance(beta * spacing), encoder.distance((1 - beta) * spacing)
    # the common factor 1 / (D(0)^2 - D(d)^2) drops out of the rescaled pair
    first, second = here * near - there * far, here * far - there * near
    return left.long(), first / (first + second), second / (first + second)


@torch.no_grad()
def _check(encoder: Encoder, spacing: float, axis: int) -> None:
    """Raises :class:`InputError` for encoders whose weights are 0/0 somewhere between two nodes."""
    try:
        distance = encoder.distance(torch.linspace(0, 1, 65, dtype=torch.float64) * spacing)
    except NotImplementedError as error:
        raise InputError(
            f"axis {axis}: {encoder.name!r} cannot be blended: {error}; use gau, tri, laplace, rff, linf or logf"
        ) from error
    here, there = distance[0], distance[-1]
    # the sum of a pair before rescaling, relative to its value at the nodes
    sums = (distance + distance.flip(0)) / (here + there)
    if not (bool(distance.isfinite().all()) and here > 0 and here - there > 1e-9 * here and sums.min() > 1e-3):
        raise InputError(
            f"axis {axis}: {encoder.name!r} cannot be blended: its features at neighbouring nodes, {spacing:.4g} apart, do "
            "not overlap (or do not differ). Make the encoder wider, use more nodes, or evaluate exactly"
        )
