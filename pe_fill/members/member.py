"""What a member of a mixture is given, and what it declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock

import torch
from scipy.ndimage import distance_transform_edt
from torch import Tensor

NEAR = 8.0
"""Distance from wanted samples, in samples, of the known samples that kriging takes."""
FAILURES = (ArithmeticError, IndexError, RuntimeError, ValueError)
"""Errors of a member that cannot be computed, such as of known samples on one line: it drops out of the mixture."""


@dataclass
class Gaps:
    """One signal ``(N_1, ..., N_D, C)``, zero at missing samples, and which samples are known and wanted, booleans.

    A ``dense`` picture (:func:`is_dense`) has larger blocks and fewer patches. Members by kriging among ``members``, the
    predicted ones, are computed together. ``step`` is the distance of neighbouring samples in samples of the signal.
    """

    values: Tensor
    known: Tensor
    wanted: Tensor
    periodic: Sequence[bool] = ()
    dense: bool = False
    members: Sequence[str] = ()
    step: int = 1
    _results: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    _locks: dict[str, Lock] = field(default_factory=dict, init=False, repr=False)

    def once(self, name: str, compute: Callable[[Gaps], Tensor]) -> Tensor:
        """The result of a computation that several members share: the first thread computes it."""
        with self._locks.setdefault(name, Lock()):
            if name not in self._results:
                self._results[name] = compute(self)
            return self._results[name]


@dataclass(frozen=True)
class Member:
    """A method that predicts missing samples, and what it needs.

    Args:
        predict: Values ``(N_1, ..., N_D, C)`` with at least the wanted samples predicted.
        axes: Numbers of axes of the signals that it fills.
        least_known: Fewest known samples.
        least_slabs: Fewest positions of the first axis, as frames, with a known sample.
        least_side: Fewest samples of every axis.
        order: Order of the continuation that it passes into far from known samples; 0 for none.
        suits: Whether it is a member by default, from the known samples.
    """

    predict: Callable[[Gaps], Tensor]
    axes: tuple[int, ...] = (1, 2, 3)
    least_known: int = 1
    least_slabs: int = 1
    least_side: int = 1
    order: int = 1
    suits: Callable[[Tensor], bool] = lambda known: True

    def __call__(self, gaps: Gaps) -> Tensor:
        """The prediction; a :class:`ValueError` says what is lacking."""
        known = gaps.known
        counts = int(known.sum()), int(known.flatten(1).any(1).sum()) if known.ndim > 1 else len(known), min(known.shape)
        needed = self.least_known, self.least_slabs, self.least_side
        for what, count, least in zip(("known samples", "known frames", "samples per axis"), counts, needed, strict=True):
            if count < least:
                raise ValueError(f"it needs {least} {what}, and there are {count}")
        return self.predict(gaps)


def distance_to(wanted: Tensor) -> Tensor:
    """Distance of every sample from the wanted ones, in samples."""
    return torch.from_numpy(distance_transform_edt(~wanted.cpu().numpy())).to(wanted.device)


def near_samples(gaps: Gaps, least: int) -> Tensor:
    """Known samples near wanted ones; all if these are fewer than ``least``."""
    near = gaps.known & (distance_to(gaps.wanted) <= NEAR)
    return near if int(near.sum()) >= least else gaps.known
