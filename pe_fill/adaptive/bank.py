"""A bank of encoders: the similarity of one encoder in rotated and stretched coordinates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, EncoderLike, Laplace, resolve
from pe_lightning.encodings import EncoderList, Encoding
from pe_lightning.errors import InputError

REFERENCE_FEATURES = 64
"""Number of features that a default width is computed for; in units of the spacing the width does not depend on it."""


class AnisotropicKernels(Encoding):
    r"""The similarity of one encoder in rotated and stretched coordinates: :math:`k_m(\Delta) = D(|T_m \Delta|) / D(0)`.

    The first member has :math:`T = I`. The others are longer along a direction ``d`` than across it, by an aspect
    :math:`\rho`, with equal volume: :math:`T = \rho^{1/D} (I + (1/\rho - 1) d d^T)`.

    - 1-D: no directions; lengths :math:`\sqrt\rho` and :math:`1/\sqrt\rho` times the length of the encoder. - 2-D:
    ``angles`` directions, evenly spread over half a turn. - 3-D: the 13 directions to the neighbours of a voxel; for each a
    member that is long along it, and a member that is short
      along it and long across it, as lines and edges in space and time.

    Args:
        encoder: An encoder with a closed form of :math:`D`; its ``num_features`` is not used.
        num_axes: Number of coordinate axes ``D``, 1 to 3.
        angles: Number of directions in 2-D; with 0 there is only the first member.
        aspects: Aspects of the other members, each above 1.
    """

    name: ClassVar[str] = "bank"

    def __init__(self, encoder: EncoderLike, num_axes: int, angles: int, aspects: Sequence[float]) -> None:
        super().__init__(num_axes)
        if num_axes > 3:
            raise InputError(f"a bank of rotated encoders takes 1 to 3 axes, the signals have {num_axes}; use ComplexLinear")
        self.encoders = EncoderList([resolve(encoder)])
        try:
            self.encoders[0].distance(torch.zeros(1))
        except NotImplementedError as error:
            raise InputError(f"{error}; a bank needs one: use laplace, gau, bspline or tri") from error
        eye = torch.eye(num_axes, dtype=torch.float64)
        stretches, sparse = [eye], [0]
        for rho in aspects if angles else ():
            first = len(stretches)
            if num_axes == 1:
                stretches += [eye * math.sqrt(rho), eye / math.sqrt(rho)]
            directions = _directions(num_axes, angles)
            along = directions[:, None, :, None] * directions[:, None, None, :]
            aspect = torch.tensor((rho, 1 / rho)[: num_axes - 1], dtype=torch.float64)[:, None, None]
            # in 2-D, short in a direction is long across it
            stretches += (aspect ** (1 / num_axes) * (eye + (1 / aspect - 1) * along)).flatten(0, 1)
            sparse += range(first, len(stretches), 2 if num_axes == 2 and rho < max(aspects) else 1)
        stretch = torch.stack(stretches)
        self.forms = (stretch.mT @ stretch).flatten(1)
        """Quadratic forms of :math:`|T \\Delta|^2`, ``(M, D * D)``; not a buffer, so that they stay float64."""
        self.sparse_forms = self.forms[sparse]
        """In 2-D without every second direction of the aspects that are not the largest."""

    def similarity(self, delta: Tensor, spacing: float, domain: float) -> Tensor:
        """Similarities of points from their differences in samples of the signal: ``(*batch, D)`` -> ``(*batch, M)``.

        Args:
            delta: The differences.
            spacing: Distance of trained samples, in samples; the ``1/K`` of the encoder's default width.
            domain: Length of the unit interval in samples, for a given width.
        """
        products = (delta[..., :, None] * delta[..., None, :]).flatten(-2)
        return self.scaled_profile(spacing, domain)(products @ self.forms.T.to(delta))

    @property
    def has_given_width(self) -> bool:
        """Whether the encoder has a width of its own; by default it follows the distance of the trained samples."""
        encoder = self.encoders[0]
        given = encoder.width is not None and encoder.arguments[encoder.width.argument]
        return bool(given) and given != "auto"

    def scaled_profile(self, spacing: float, domain: float) -> Callable[[Tensor], Tensor]:
        r"""Similarities as a function of squared lengths :math:`|T \Delta|^2` of any shape, in squared samples."""
        encoder = self.encoders[0]
        if not self.has_given_width:
            encoder, domain = encoder.copy(num_features=REFERENCE_FEATURES), REFERENCE_FEATURES * spacing
        return partial(correlation, encoder, unit=domain)


def correlation(encoder: Encoder, squared: Tensor, unit: float = 1.0) -> Tensor:
    r""":math:`D(\Delta) / D(0)` from squared lengths of any shape, in a unit that the [0, 1] domain has so many of."""
    learns = torch.is_grad_enabled() and (squared.requires_grad or any(True for _ in encoder.parameters()))
    if isinstance(encoder, Laplace) and not learns:
        u = (squared * (encoder.scale * unit) ** -2).clamp_min_(0).sqrt_()  # in few passes
        falling = torch.neg(u).exp_()
        return u.add_(1).mul_(falling)
    # the derivative of the root is infinite at zero; rounding makes some squares negative
    length = (squared.clamp_min(0) + 1e-12).sqrt() / unit
    return encoder.distance(length) / encoder.distance(length.new_zeros(1)).detach()


def _directions(num_axes: int, angles: int) -> Tensor:
    """Unit vectors in distinct directions up to sign, ``(K, num_axes)``; none of one axis."""
    if num_axes == 2:
        turns = math.pi * torch.arange(angles, dtype=torch.float64) / angles
        return torch.stack([turns.cos(), turns.sin()], 1)
    steps = [step for step in itertools.product((-1, 0, 1), repeat=num_axes) if step > (0,) * num_axes]
    vectors = torch.tensor(steps if num_axes == 3 else [], dtype=torch.float64).reshape(-1, num_axes)
    units: Tensor = vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return units
