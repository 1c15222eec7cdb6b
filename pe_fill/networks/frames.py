"""Frames along an axis that is sampled completely, each predicted by a coordinate network of its cells."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pe_fill.networks.local import SNAP, LocalGrid, LocalPrior, keys_kernel


class LocalFrames:
    """One signal ``(n_1, n_2, n_3, C)``, sampled completely along one axis, as a function of coordinates.

    Every frame, a sample along that axis, is predicted by a :class:`LocalGrid`; values between frames are interpolated by
    Keys' cubic convolution. ``spaced`` are the axes of a frame.
    """

    def __init__(
        self,
        prior: LocalPrior,
        values: Tensor,
        grid: Sequence[int],
        first: Sequence[float],
        step: Sequence[float],
        spaced: Sequence[int],
    ) -> None:
        self.values, self.spaced = values, tuple(spaced)
        (self.axis,) = {0, 1, 2} - set(spaced)
        self.count = grid[self.axis]
        sizes, (start, distance) = [grid[a] for a in spaced], ([along[a] for a in spaced] for along in (first, step))
        self.frames = [LocalGrid(prior, frame, sizes, start, distance) for frame in values.unbind(self.axis)]

    def _between(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The four nearest frames of coordinates ``(N,)``, and differentiable weights of these frames, ``(N, 4)``."""
        position = x * self.count
        frame = (position.detach() + SNAP).floor()
        around = torch.arange(-1, 3, device=x.device)
        taps = (frame.long()[:, None] + around).clamp(0, self.count - 1)
        return taps, keys_kernel((position - frame)[:, None] - around)

    @torch.no_grad()
    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on the grid of one coordinate vector ``(N_a,)`` per axis: ``(N_1, N_2, N_3, C)``."""
        taps, weights = self._between(axes[self.axis].double())
        within, found, planes = [axes[a] for a in self.spaced], dict[int, Tensor](), []
        for near, keys in zip(taps.tolist(), weights.tolist(), strict=True):
            # frames of a smaller weight are left out of a sum over frames
            used = [(frame, weight) for frame, weight in zip(near, keys, strict=True) if abs(weight) > 1e-6]
            found = {frame: found[frame] if frame in found else self.frames[frame].predict(within) for frame, _ in used}
            planes.append(torch.stack([weight * found[frame] for frame, weight in used]).sum(0))
        return torch.stack(planes, self.axis)

    def at(self, points: Tensor) -> Tensor:
        """Values at points ``(P, 3)`` in [0, 1), differentiable: ``(P, C)``."""
        taps, weights = self._between(points[:, self.axis])
        within, result = points[:, list(self.spaced)], self.values.new_zeros(len(points), self.values.shape[-1])
        for near, weight in zip(taps.unbind(1), weights.to(result).unbind(1), strict=True):
            for frame in torch.unique(near).tolist():
                index = (near == frame).nonzero()[:, 0]
                result = result.index_add(0, index, weight[index, None] * self.frames[frame].at(within[index]))
        return result


def spaced_axes(sizes: Sequence[int], grid: Sequence[int]) -> tuple[int, ...] | None:
    """The two axes along which a prior predicts samples; ``None`` if it does not apply.

    They are the axes of a picture, or the two incompletely sampled axes of three: of ``sizes`` out of ``grid`` samples.
    """
    if len(grid) == 2:
        return (0, 1)
    spaced = tuple(axis for axis, (n, whole) in enumerate(zip(sizes, grid, strict=True)) if n < whole)
    return spaced if len(grid) == 3 and len(spaced) == 2 else None


def local_field(
    prior: LocalPrior,
    values: Tensor,
    grid: Sequence[int],
    first: Sequence[float],
    step: Sequence[float],
    spaced: Sequence[int],
) -> LocalGrid | LocalFrames:
    """One signal of two or three axes as a function of coordinates; ``spaced`` is of :func:`spaced_axes`."""
    if len(grid) == 2:
        return LocalGrid(prior, values, grid, first, step)
    return LocalFrames(prior, values, grid, first, step, spaced)
