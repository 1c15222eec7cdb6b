"""A bank of encoders: one similarity, seen through rotated and stretched coordinates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from pe_lightning.encoders import EncoderLike, resolve
from pe_lightning.encodings.base import EncoderList, Encoding
from pe_lightning.errors import InputError

__all__ = ["Bank"]

RULE = 64
"""Features for which the rule of the width is asked; any number gives the same width in spacings."""


class Bank(Encoding):
    r"""The similarity of one encoder in rotated and stretched coordinates: :math:`k_m(\Delta) = D(|T_m \Delta|) / D(0)`.

    The first member has :math:`T = I`. The others are longer along a direction ``d`` than across it, by an aspect
    :math:`\rho`, at the same volume: :math:`T = \rho^{1/D} (I + (1/\rho - 1) d d^T)`.

    - 1-D: no directions; lengths :math:`\sqrt\rho` and :math:`1/\sqrt\rho` times the encoder's.
    - 2-D: ``angles`` directions, evenly spread over half a turn.
    - 3-D: the 13 directions to the neighbours of a voxel; along each a member that is long in it, and one that is short in
      it and long in both others, as an edge that stands still or moves is.

    Args:
        encoder: An encoder with a closed form of :math:`D`. Its ``num_features`` plays no part.
        num_axes: Number of coordinate axes ``D``, 1 to 3.
        angles: Number of directions in 2-D; 0: the first member alone.
        aspects: The aspects of the others, each above 1.

    Raises:
        InputError: If the encoder has no closed form of :math:`D`, or another argument is out of range.
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
        stretches = [eye]
        for rho in aspects if angles else ():
            if num_axes == 1:
                stretches += [eye * math.sqrt(rho), eye / math.sqrt(rho)]
            for d in _directions(num_axes, angles):
                for aspect in (rho, 1 / rho)[: num_axes - 1]:  # in 2-D, short in d is long across it
                    stretches.append(aspect ** (1 / num_axes) * (eye + (1 / aspect - 1) * torch.outer(d, d)))
        self.forms = torch.stack([t.T @ t for t in stretches]).flatten(1)
        """Of the squared length :math:`|T \\Delta|^2`, ``(M, D * D)`` float64; no buffer, so that it stays what it is."""

    def similarity(self, delta: Tensor, spacing: float, domain: float, forms: Tensor | None = None) -> Tensor:
        """The similarities of two points that are ``delta`` apart: ``(*batch, D)`` -> ``(*batch, M)``.

        Args:
            delta: In samples of the signal.
            spacing: Distance of trained samples, in samples: the ``1/K`` that the encoder's rule for its width goes by.
            domain: What 1 is in the units of a width that was given, in samples.
            forms: Of the members to use, ``(*batch, D * D, M)``; all by default.
        """
        encoder = self.encoders[0]
        given = encoder.width is not None and encoder.spec()["init_args"][encoder.width.argument]
        if not given or given == "auto":  # the rule
            encoder, domain = encoder.copy(num_features=RULE), RULE * spacing
        products = (delta[..., :, None] * delta[..., None, :]).flatten(-2)
        squared = products @ (self.forms.T if forms is None else forms).to(delta)
        # away from zero, where the derivative of the root is infinite
        length = (squared.clamp_min(0) + 1e-12).sqrt() / domain
        return encoder.distance(length) / encoder.distance(length.new_zeros(1)).detach()


def _directions(num_axes: int, angles: int) -> list[Tensor]:
    """Unit vectors, none the opposite of another."""
    if num_axes == 2:
        turns = [math.pi * k / angles for k in range(angles)]
        return [torch.tensor([math.cos(t), math.sin(t)], dtype=torch.float64) for t in turns]
    steps = [step for step in itertools.product((-1, 0, 1), repeat=num_axes) if step > (0,) * num_axes]
    vectors = torch.tensor(steps if num_axes == 3 else [], dtype=torch.float64).reshape(-1, num_axes)
    return list(vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True))
