"""What all estimators share: :class:`Estimator` fits signals, and returns a :class:`Field`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from pe_lightning.encodings.base import check_points
from pe_lightning.errors import InputError
from pe_lightning.estimators.report import FitReport
from pe_lightning.linalg import full_precision
from pe_lightning.signals.split_signals import Signals
from pe_lightning.solvers.adaptive_points import AdaptivePoints

POINTS_AT_ONCE = 1 << 16
"""Points that are predicted at once."""


class Field(Protocol):
    """Fitted signals as functions of coordinates in [0, 1); the LightningModules of signals have the same methods."""

    @property
    def label(self) -> str:
        """Name of the model in tables."""

    @property
    def solution(self) -> FitReport | None:
        """Results of the exact fit."""

    @property
    def prefers_points(self) -> bool:
        """Whether a few samples of a grid are predicted faster one by one than as a part of the whole grid."""

    @property
    def has_std(self) -> bool:
        """Whether :meth:`std` is available."""

    def at(self, points: Tensor) -> Tensor:
        """Values at points: ``(P, D)`` -> ``(S, P, C)``; NaN where a coordinate is not finite."""

    def grid(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on a separable grid: ``D`` coordinate vectors ``(n_a,)`` -> ``(S, n_1, ..., n_D, C)``."""

    def of_cells(self, sizes: Sequence[float]) -> Field:
        """The means over cells of these lengths per axis, around the coordinates, where features have such means."""

    def std(self, coords: Tensor, level: float | None = None) -> Tensor:
        """Standard deviations of values about the predictions, of one signal: ``(*batch, D)`` in [0, 1) -> ``(*batch, C)``.

        The unit is that of the values. Of values that were not seen, about 90 % are within 1.645 standard deviations. With a
        level, half the widths of intervals around the predictions that hold this share of the values.
        """

    def state_dict(self) -> dict[str, Any]:
        """The tensors of the fit by name."""


class Fits(Protocol):
    """What :func:`~pe_lightning.fill` and the scores of folds fit: an :class:`Estimator`, or a model that is solved for."""

    def fit(self, signals: Signals) -> Field:
        """Fits signals."""


class FittedField(ABC):
    """Base of the fields of estimators; methods without a description are those of :class:`Field`.

    Args:
        label: Name of the model in tables.
        solution: Results of the fit.
        device: Where it computes.
        num_axes: Number of coordinates ``D``.
        spread: Makes the local fits that have the standard deviations of a single signal; ``None`` where there are none.
    """

    prefers_points = False

    def __init__(
        self,
        label: str,
        solution: FitReport,
        device: torch.device,
        num_axes: int,
        spread: Callable[[], AdaptivePoints] | None,
    ) -> None:
        self.label, self.solution, self.device, self.num_axes = label, solution, device, num_axes
        self._make_spread = spread
        self._spread: AdaptivePoints | None = None

    @abstractmethod
    def evaluate(self, points: Tensor) -> Tensor:
        """Values at points on the device of the fit, ``(P, D)`` -> ``(S, P, C)``; NaN where these are not finite."""

    @abstractmethod
    def grid(self, axes: Sequence[Tensor]) -> Tensor: ...

    @abstractmethod
    def state_dict(self) -> dict[str, Any]: ...

    def of_cells(self, sizes: Sequence[float]) -> Field:
        """This field: it takes means over cells as values at their centres."""
        return self

    def at(self, points: Tensor) -> Tensor:
        check_points(points, self.num_axes)
        with full_precision(self.device):
            parts = torch.split(points.to(self.device), POINTS_AT_ONCE)
            return torch.cat([self.evaluate(some) for some in parts], 1)

    @property
    def has_std(self) -> bool:
        return self._make_spread is not None

    @torch.no_grad()
    def std(self, coords: Tensor, level: float | None = None) -> Tensor:
        if self._make_spread is None:
            raise InputError(f"{self.label} has standard deviations of one signal with enough samples, in memory")
        check_points(coords, self.num_axes)
        self._spread = self._spread or self._make_spread()
        points, unknown = finite_points(coords.to(self.device).reshape(-1, self.num_axes))
        found = self._spread.std(points, level).masked_fill(unknown[:, None], torch.nan)
        return found.reshape(*coords.shape[:-1], found.shape[-1])


def finite_points(points: Tensor) -> tuple[Tensor, Tensor]:
    """Points ``(P, D)`` with zeros in place of those with a coordinate that is not finite, and which these are, ``(P,)``."""
    unknown = ~points.isfinite().all(-1)
    return points.masked_fill(unknown[:, None], 0), unknown


class Estimator(ABC):
    """Fits signals exactly, without training steps."""

    @abstractmethod
    def fit(self, train: Signals, device: torch.device | None = None) -> FittedField:
        """Fits the trained samples.

        Args:
            train: The signals and their split.
            device: Where to compute; by default a GPU if there is one.
        """


def default_device(device: torch.device | None = None) -> torch.device:
    """The device, or by default a GPU if there is one, else the CPU."""
    return device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
