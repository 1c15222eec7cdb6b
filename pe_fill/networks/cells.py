r"""A network of one cell of a picture: means over its parts from the means over the cells around it.

The cell is divided into ``f x f`` parts. Their means, in units of the samples, are

.. math:: m + s\,\bigl(F p + N(p) - \bar{\cdot}\bigr)

where ``m`` is the mean over the cell, ``p`` the 7 x 7 cells around it minus ``m`` and divided by the deviation ``s`` of the
inner 5 x 5, ``F`` a linear filter, ``N`` a perceptron, which also has the logarithm of ``s``, and the last term their mean
over the parts: the means over the parts of a cell always average to the cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pe_lightning.networks import MLP

CELL_PATCH = 7
"""Cells of a patch along each axis: three on each side of the divided cell."""
CELL_INNER = slice(1, 6)
"""The inner cells of a patch, whose standard deviation normalises it."""
DEVIATION_OFFSET = 0.01
"""Added to the standard deviation of a patch, so that noise of flat patches is not enlarged."""
MAX_PATCHES, MAX_PATCHES_GPU = 1 << 14, 1 << 18
"""Patches that the perceptron takes at once, on a CPU and on a GPU."""
UP, LEFT, TRANSPOSED = 4, 2, 1
"""Flags of an orientation: the upper half is brighter, the left half is, their difference is the larger one."""
ROUNDING = 1e-5
"""Difference of brightness that counts as none, relative to the largest number of a patch: rounding decides nothing."""


def moments(inner: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of every patch, ``(B, n, n)`` -> ``(B,)`` each; several times faster than torch.std."""
    mean = inner.mean((1, 2))
    return mean, (inner - mean[:, None, None]).square().mean((1, 2)).clamp_min(1e-20).sqrt()


def cell_contrast(inner: Tensor) -> Tensor:
    """Scale of a patch, of its inner cells: ``(B, 5, 5)`` -> ``(B,)``."""
    return moments(inner)[1] + DEVIATION_OFFSET


def orientations(patches: Tensor, negated: bool = True) -> tuple[Tensor, Tensor]:
    """Orientations of patches ``(B, n, n)``, by all but the outermost numbers, and signs, -1 of dark patches: ``(B,)`` each.

    An orientation, from 0 to 7, has the flags :data:`UP`, :data:`LEFT` and :data:`TRANSPOSED`. A patch is dark if its middle
    is darker than its mean; its orientation is then the orientation of its negative. Unless ``negated``, all signs are 1.
    """
    flat = patches.flatten(1)
    down, right, brighter = (flat @ torch.from_numpy(_differences(patches.shape[-1])).to(patches)).unbind(1)
    equal = ROUNDING * flat.abs().amax(1)
    sign = torch.where(brighter < -equal, -1.0, 1.0).to(patches) if negated else torch.ones_like(brighter)
    down, right = sign * down, sign * right
    return UP * (down < -equal) + LEFT * (right < -equal) + TRANSPOSED * (right.abs() > down.abs() + equal), sign


@cache
def _differences(size: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Weights ``(size^2, 3)`` of a patch: lower minus upper half, right minus left half, middle minus mean."""
    position = np.arange(size) - (size - 1) / 2
    inner, middle = (abs(position) < position[-1] - margin for margin in (0, 1))
    from_mean = np.outer(middle, middle) / middle.sum() ** 2 - np.outer(inner, inner) / inner.sum() ** 2
    side = np.sign(position) * inner
    columns = np.stack([np.outer(side, inner), np.outer(inner, side), from_mean], -1)
    return columns.reshape(-1, 3).astype(np.float32)


class CellPrior(nn.Module):
    """Divides the cells of pictures, by one perceptron for each factor.

    Every patch is seen in one of its eight orientations: the lower half brighter than the upper, the right half brighter
    than the left, their difference the smaller one; and negated where its middle is darker than its mean. Reflected,
    transposed and negative pictures thus have the same results.

    Args:
        factors: Parts of a cell along each axis, of each network.
        width: Units per hidden layer.
        depth: Number of hidden layers.
        activation: Name of the activation.

    Reference: inputs and aim after Romano, Isidoro, Milanfar, *RAISR*, IEEE Trans. Computational Imaging 3, 2017.
    """

    def __init__(self, factors: Sequence[int] = (2, 3), width: int = 128, depth: int = 2, activation: str = "relu") -> None:
        super().__init__()
        self.factors = list(factors)
        self.width, self.depth = width, depth
        self.activation = activation
        size = CELL_PATCH**2
        self.trunks = nn.ModuleDict({str(f): MLP(size + 1, f * f, depth, width, activation) for f in self.factors})
        self.filters = nn.ModuleDict({str(f): nn.Linear(size, f * f, bias=False) for f in self.factors})
        for f in map(str, self.factors):
            for layer in (self.trunks[f].layers[-1], self.filters[f]):  # type: ignore[index]
                for parameter in layer.parameters():  # type: ignore[union-attr]
                    nn.init.zeros_(parameter)

    def spec(self) -> dict[str, Any]:
        """The constructor's arguments as plain values."""
        return {"factors": self.factors, "width": self.width, "depth": self.depth, "activation": self.activation}

    @property
    def num_params(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def steps(self, factor: int) -> list[int]:
        """Factors of the networks whose product is a factor, the largest first; none if there are no such factors."""
        steps = []
        for step in sorted(self.factors, reverse=True):
            while factor % step == 0:
                steps.append(step)
                factor //= step
        return steps if factor == 1 else []

    @torch.no_grad()
    def enlarge(
        self, values: Tensor, factors: tuple[int, int], report: Callable[[float], None] = lambda share: None
    ) -> Tensor:
        """Means over the parts of all cells, which average to the cells; the picture is mirrored beyond its borders.

        Args:
            values: Means over cells, ``(n_1, n_2, C)``.
            factors: Parts of a cell along each axis: two equal factors, or one of them 1.
            report: Called with the share of the work that is done.

        Returns:
            ``(f_1 n_1, f_2 n_2, C)``.
        """
        steps = [tuple(min(step, factor) for factor in factors) for step in self.steps(max(factors))]
        for step in steps[:-1]:
            values = self._divided(values, step, lambda share: report(0.0))  # the last step takes most of the time
        return self._divided(values, steps[-1], report)

    def _divided(self, values: Tensor, factors: tuple[int, ...], report: Callable[[float], None]) -> Tensor:
        factor, (height, width, channels) = max(factors), values.shape
        rows, columns = (_mirrored(n, CELL_PATCH // 2, values.device) for n in (height, width))
        windows = values[rows][:, columns].unfold(0, CELL_PATCH, 1).unfold(1, CELL_PATCH, 1)
        result = values.new_empty(height, factors[0], width, factors[1], channels)
        along = tuple(axis for axis, own in zip((3, 4), factors, strict=True) if own < factor)
        size = max(1, MAX_PATCHES // (width * channels))
        for start in range(0, height, size):
            patches = windows[start : start + size]
            groups = torch.split(patches.reshape(-1, *patches.shape[3:]), MAX_PATCHES)
            parts = torch.cat([self(some, factor) for some in groups])
            parts = parts.reshape(*patches.shape[:3], factor, factor)
            parts = parts.mean(along, keepdim=True) if along else parts
            result[start : start + size] = parts.permute(0, 3, 1, 4, 2)
            report(min(1.0, (start + size) / height))
        return result.reshape(height * factors[0], width * factors[1], channels)

    def forward(self, patches: Tensor, factor: int) -> Tensor:
        """Means over the parts of the middle cells: ``(B, 7, 7)`` -> ``(B, f, f)``."""
        orientation, sign = orientations(patches)
        flat, scale = patches.flatten(1), sign * cell_contrast(patches[:, CELL_INNER, CELL_INNER])
        index = turns(CELL_PATCH, patches.device)[orientation]
        centre = flat[:, CELL_PATCH**2 // 2, None]
        x = ((flat - centre) / scale[:, None]).gather(1, index)
        level = scale.abs()[:, None].log()
        parts: Tensor = self.trunks[str(factor)](torch.cat([x, level], 1)) + self.filters[str(factor)](x)
        parts = centre + scale[:, None] * (parts - parts.mean(1, keepdim=True))
        back = turns(factor, patches.device).argsort(1)[orientation]
        return parts.gather(1, back).reshape(-1, factor, factor)


def _mirrored(size: int, margin: int, device: torch.device) -> Tensor:
    """Places of an axis, continued by its mirror image: ``(size + 2 margin,)``."""
    position = torch.arange(-margin, size + margin, device=device) % (2 * size)
    return torch.minimum(position, 2 * size - 1 - position)


def turns(size: int, device: torch.device | None = None) -> Tensor:
    """Row-major places of the numbers of a patch in its eight reflections and rotations: ``(8, size^2)``."""
    places = torch.arange(size * size, device=device).reshape(size, size)
    result = []
    for orientation in range(8):
        turned = places.flip([axis for axis, flag in ((0, UP), (1, LEFT)) if orientation & flag])
        result.append((turned.T if orientation & TRANSPOSED else turned).flatten())
    return torch.stack(result)
