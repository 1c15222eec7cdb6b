"""Complex encoding: the Kronecker product of the axes' features, never formed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, EncoderLike, cell_means, is_local, local_features, per_axis
from pe_lightning.encodings.base import EncoderList, Encoding, check_axes, check_points, largest_row_norm
from pe_lightning.linalg import Identity, Operator, encode_axis, mode_products, rowwise_products

MAX_VALUES_AT_ONCE = 1 << 24
"""Features, and values of a hidden layer, that are held at a time outside training: 64 MB in float32."""


class Complex(Encoding):
    r"""Kronecker product of per-axis features: :math:`\Psi = \psi_1(x_1) \otimes \dots \otimes \psi_D(x_D)`.

    The product has :math:`\prod_a K_a` entries and is never formed. A linear layer on it holds one weight per entry,
    ``(*batch, K_1, ..., K_D)``, and is evaluated on a separable grid by mode products
    :math:`W \times_1 \Psi_1 \dots \times_D \Psi_D` and at scattered points one axis after another; both are exact.

    Args:
        encoder: One encoder for all axes, or a sequence with one per axis. Axes that share an encoder share its random
            frequencies and its learned parameters too, as in the papers.
        num_axes: Number of coordinate axes ``D``.
        normalize: Divide each axis's features by their largest row norm over the training coordinates, so that gradient
            descent sees features of one size whatever the encoder.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eqs. 17-18.
    """

    name: ClassVar[str] = "complex"

    def __init__(self, encoder: EncoderLike | Sequence[EncoderLike], num_axes: int, normalize: bool = True) -> None:
        super().__init__(num_axes)
        encoders = per_axis(encoder, num_axes)
        self.encoders = EncoderList(encoders)
        self.num_features: tuple[int, ...] = tuple(axis_encoder.num_features for axis_encoder in encoders)
        self.normalize = normalize
        self.scales: Tensor
        self.register_buffer("scales", torch.ones(num_axes))

    @property
    def axis_encoders(self) -> list[Encoder]:
        """One encoder per axis, with the means over :attr:`cells` if there are any."""
        return cell_means(list(self.encoders), self.cells)

    @torch.no_grad()
    def calibrate(self, axes: Sequence[Tensor]) -> None:
        """Sets the scales of normalisable encoders from the training coordinates ``(N_a,)`` per axis."""
        check_axes(axes, self.num_axes)
        for a, (encoder, x) in enumerate(zip(self.axis_encoders, axes, strict=True)):
            if self.normalize and encoder.normalizable:
                encode = (lambda x, encoder=encoder: local_features(encoder, x).values) if self.is_line else encoder
                self.scales[a] = 1 / largest_row_norm(encode, x)

    def axis_features(self, axes: Sequence[Tensor]) -> list[Tensor]:
        """The features of each axis, ``(N_a, K_a)``, scaled."""
        check_axes(axes, self.num_axes)
        return self._scaled(axes)

    def _scaled(self, coords: Sequence[Tensor]) -> list[Tensor]:
        """The features of each axis at its coordinates; without copies of encoders, which a compiled program cannot make."""
        sizes = self.cells or (0.0,) * self.num_axes
        axes = enumerate(zip(self.encoders, coords, sizes, strict=True))
        return [encoder(x, size) * self.scales[a] for a, (encoder, x, size) in axes]

    def operators(self, axes: Sequence[Tensor], dtype: torch.dtype, find_identity: bool = False) -> list[Tensor | Operator]:
        """The scaled features of each axis as matrices or operators of a dtype; one long axis has a banded operator.

        With ``find_identity``, features that interpolate at these coordinates are :class:`~pe_lightning.linalg.Identity`.
        """
        check_axes(axes, self.num_axes)
        if self.is_line:
            return [local_features(self.axis_encoders[0], axes[0], dtype, float(self.scales[0]))]
        if not find_identity:
            return [features.to(dtype) for features in self.axis_features(axes)]
        matrices: list[Tensor | Operator] = []
        for encoder, x, scale in zip(self.axis_encoders, axes, self.scales.tolist(), strict=True):
            square = encoder.support is not None and encoder.num_features == len(x) and scale == 1
            matrix = encode_axis(encoder, x) if square else None
            matrices.append(matrix.to(dtype) if isinstance(matrix, Identity) else (encoder(x) * scale).to(dtype))
        return matrices

    @property
    def is_line(self) -> bool:
        """Whether there is a single axis with many local features."""
        # the copy for cells is made of local features alone: they are fixed, a compiled program has trained ones
        return self.num_axes == 1 and is_local(self.encoders[0]) and is_local(self.axis_encoders[0])

    def point_features(self, coords: Tensor) -> list[Tensor]:
        """The features of scattered points per axis: ``(*batch, D)`` -> ``D`` tensors ``(*batch, K_a)``, scaled."""
        check_points(coords, self.num_axes)
        return self._scaled([coords[..., a] for a in range(self.num_axes)])

    def points(self, weight: Tensor, coords: Tensor, limit: int = MAX_VALUES_AT_ONCE) -> Tensor:
        """The linear layer at scattered points ``(P, D)``: weights ``(*batch, K_1, ..., K_D)`` -> ``(*batch, P)``.

        Points are evaluated in chunks of about ``limit`` intermediate values at most.
        """
        if self.is_line:
            return mode_products(weight, self.operators([coords[:, 0]], weight.dtype))
        # a compiled or exported program takes any number of points, which a split would fix
        compiling = torch.compiler.is_compiling()
        some = (coords,) if compiling else torch.split(coords, self._points_at_once(weight, limit))
        feature_lists = ([features.to(weight.dtype) for features in self.point_features(points)] for points in some)
        return torch.cat([rowwise_products(weight, features) for features in feature_lists], -1)

    def samples(
        self, weight: Tensor, features: Sequence[Tensor], positions: Sequence[Tensor], limit: int = MAX_VALUES_AT_ONCE
    ) -> Tensor:
        """The linear layer at samples of a grid, from their positions ``(P,)`` and the features ``(N_a, K_a)`` per axis."""
        count = self._points_at_once(weight, limit)
        some = zip(*(torch.split(position, count) for position in positions), strict=True)
        return torch.cat(
            [rowwise_products(weight, [f[i] for f, i in zip(features, index, strict=True)]) for index in some], -1
        )

    def _points_at_once(self, weight: Tensor, limit: int) -> int:
        # intermediate values per point: its features, and the weight after the contraction of the first axis
        return max(1, limit // max(sum(self.num_features), weight.numel() // self.num_features[0]))

    def forward(self, coords: Tensor) -> Tensor:
        """The Kronecker product itself, for small sizes: ``(*batch, D)`` -> ``(*batch, K_1 * ... * K_D)``."""
        product, *rest = self.point_features(coords)
        for features in rest:
            product = (product[..., :, None] * features[..., None, :]).flatten(-2)
        return product
