"""What all estimators share: :class:`Estimator` fits signals, and returns a :class:`Field`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pe_lightning.encoders import Encoder
from pe_lightning.encodings.base import POINTS_AT_ONCE, check_points
from pe_lightning.errors import InputError
from pe_lightning.evaluation.scores import held_out_psnr
from pe_lightning.linalg import full_precision
from pe_lightning.registry import Registry
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.split_signals import Signals
from pe_lightning.signals.splits import Split
from pe_lightning.solvers.solution import FitReport


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

        About 90 % of unseen values are within 1.645 standard deviations. With a level, half the widths of intervals around
        the
        predictions that hold this share of the values.
        """

    def state_dict(self) -> dict[str, Any]:
        """The tensors of the fit by name."""


class Spread(Protocol):
    """Standard deviations of the predictions of one signal."""

    def std(self, coords: Tensor, level: float | None = None) -> Tensor:
        """As :meth:`Field.std`, at finite points: ``(P, D)`` in [0, 1) -> ``(P, C)``."""


class Fits(Protocol):
    """What the scores of folds fit: an :class:`Estimator`, or a model that is solved for."""

    def fit(self, signals: Signals) -> Field:
        """Fits signals."""


class FittedField(ABC):
    """Base of the fields of estimators; methods without a description are as in :class:`Field`.

    Args:
        label: Name of the model in tables.
        solution: Results of the fit.
        device: Where it computes.
        num_axes: Number of coordinates ``D``.
        spread: Makes the standard deviations of a single signal; ``None`` where there are none.
    """

    prefers_points = False
    notes: tuple[str, ...] = ()
    """Short notes for the table of ``suggest``."""

    def __init__(
        self,
        label: str,
        solution: FitReport,
        device: torch.device,
        num_axes: int,
        spread: Callable[[], Spread] | None = None,
    ) -> None:
        self.label, self.solution, self.device, self.num_axes = label, solution, device, num_axes
        self.scores: dict[str, Tensor] = {}
        """The scores of each signal ``(S,)``, of :func:`pe_lightning.fit`: ``train/psnr``, and ``test/psnr`` if samples are
        held out."""
        self._make_spread = spread
        self._spread: Spread | None = None

    def __call__(self, coords: npt.ArrayLike | Tensor) -> Tensor:
        """Values at any coordinates: ``(*batch, D)`` in [0, 1) -> ``(S, *batch, C)``; differentiable in them."""
        points = coords if isinstance(coords, Tensor) else torch.as_tensor(np.asarray(coords))
        check_points(points, self.num_axes)
        values = self.at(points.reshape(-1, self.num_axes))
        return values.reshape(len(values), *points.shape[:-1], values.shape[-1])

    @property
    def psnr(self) -> float:
        """PSNR of the held-out samples in dB, mean over signals."""
        return held_out_psnr(self.label, self.scores)

    @property
    def train_psnr(self) -> float:
        """PSNR of the trained samples in dB, mean over signals."""
        return float(self.scores["train/psnr"].mean())

    def __repr__(self) -> str:
        return f"<{self.label} of {self.num_axes} axes, fitted: {', '.join(self.scores) or 'without scores'}>"

    @abstractmethod
    def evaluate(self, points: Tensor) -> Tensor:
        """Values at points on the device of the fit, ``(P, D)`` -> ``(S, P, C)``; NaN where these are not finite."""

    @abstractmethod
    def grid(self, axes: Sequence[Tensor]) -> Tensor: ...

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The tensors of the fit by name, with one entry per signal, and nested plain values."""

    @property
    def num_params(self) -> int:
        """Numbers that the fit holds of one signal."""
        return sum(value[0].numel() for value in self.state_dict().values() if isinstance(value, Tensor))

    def of_cells(self, sizes: Sequence[float]) -> FittedField:
        """This field: means over cells are values at their centres."""
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
    """Points ``(P, D)`` with zeros in place of points that are not finite, and where these are, ``(P,)``."""
    unknown = ~points.isfinite().all(-1)
    return points.masked_fill(unknown[:, None], 0), unknown


def fits_of(state_dict: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The states of the fits in the ``state_dict`` of an :class:`~pe_lightning.training.EstimatorModule`."""
    found: list[dict[str, Any]] = state_dict.get("_extra_state", {}).get("fits", [])
    return found


@dataclass(frozen=True)
class Variant:
    """An estimator as a candidate of ``pe-lightning suggest``.

    Args:
        label: Name in the table.
        arguments: Arguments of the estimator.
        remark: A line below the table.
    """

    label: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    remark: str = ""


class Estimator(ABC):
    """Fits signals exactly, without training steps.

    A subclass defines :meth:`fit`, and its constructor stores the arguments under their names. With :meth:`restore`,
    :class:`~pe_lightning.training.EstimatorModule` can host it, whose checkpoints hold the state of the field.
    """

    variants: ClassVar[tuple[Variant, ...]] = ()
    """What ``pe-lightning suggest`` tries: by default nothing."""
    model: ClassVar[str] = "pe_lightning.EstimatorModule"
    """Import path of the LightningModule that hosts it, or fits the same."""
    takes_periodic: ClassVar[bool] = False
    """Whether an axis may be periodic."""

    @property
    def label(self) -> str:
        """Name of the model in tables and ``metrics.json``."""
        return type(self).__name__

    @abstractmethod
    def fit(self, train: Signals, device: torch.device | None = None) -> FittedField:
        """Fits the trained samples, by default on a GPU if there is one."""

    def restore(self, state: Mapping[str, Any], info: SignalInfo, device: torch.device) -> FittedField:
        """The field of this :meth:`FittedField.state_dict`, for signals of this shape."""
        raise InputError(f"{self.label} does not restore its fits from checkpoints: use {self.model}")

    def check(self, train: Signals) -> None:  # noqa: B027  # optional
        """Refuses signals that cannot be fitted, before a run directory is made."""

    def applies_to(self, split: Split) -> bool:
        """Whether ``pe-lightning suggest`` tries the estimator on signals with this split."""
        return True

    def describe(self, info: SignalInfo, fields: Sequence[FittedField]) -> dict[str, Any]:
        """Further entries of ``metrics.json``, such as ``encoder``, from fits of consecutive signals, if any."""
        return {}

    def arguments(self) -> dict[str, Any]:
        """The arguments of the constructor as plain values."""
        values = {name: getattr(self, name) for name in estimators.parameters(type(self))}
        return {name: value.spec() if isinstance(value, Encoder) else value for name, value in values.items()}

    @classmethod
    def section(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The section ``model`` of a configuration that fits it."""
        if cls.model == Estimator.model:
            arguments = {"estimator": {"name": estimators.name_of(cls), **arguments}}
        return {"class_path": cls.model, "init_args": dict(arguments)}


estimators: Registry[Estimator] = Registry(
    "estimator",
    Estimator,  # type: ignore[type-abstract]
    "pe_lightning.estimators",
    modules=["pe_lightning.estimators.linear"],
)
"""Exact methods by name, for ``pe_lightning.fit``, ``suggest`` and ``--model EstimatorModule --model.estimator NAME``."""


def suggested_estimators() -> dict[str, type[Estimator]]:
    """The estimators that ``pe-lightning suggest`` tries, by the label of their first variant."""
    classes = [estimators.get(name) for name in estimators]
    return {cls.variants[0].label: cls for cls in classes if cls.variants}


def default_device(device: torch.device | None = None) -> torch.device:
    """The device, or by default a GPU if there is one, else the CPU."""
    return device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
