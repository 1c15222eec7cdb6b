"""Results of an exact fit and of the choice of a width, as plain values for ``metrics.json`` and checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ChoiceReport:
    """How width and ridge were chosen (:class:`pe_lightning.solvers.Choice`)."""

    rule: str
    ridge: float
    parameter: list[str | None]
    """Per axis, the argument of the encoder that sets its width."""
    value: list[Any]
    """Per axis, its value."""
    curve: list[list[float]]
    """Ridge and held-out PSNR in dB at the chosen width."""
    factors: list[list[float]]
    """Width relative to its default, and the best held-out PSNR in dB."""
    factor: float
    tried: list[dict[str, Any]]
    """Everything that was tried: ``ridge``, ``psnr`` in dB, ``width`` by argument."""


@dataclass(frozen=True)
class LearnedReport:
    """How the encoders of one signal were learned by variable projection; held-out PSNR in dB before and after."""

    ridge: float
    evaluations: int
    start_psnr: float
    held_out_psnr: float


@dataclass(frozen=True)
class SparseReport:
    """Which part of an exact fit is kept: ``kept`` numbers of each signal, ``of`` the numbers of its whole layer."""

    kept: list[int]
    of: int
    transform: str
    kept_as: str
    noise: list[Any] | None = None
    """The estimated noise of each signal, where it is removed."""
    denoised: list[bool] | None = None


@dataclass(frozen=True)
class FitReport:
    """Results of an exact fit and of a choice; ``None`` for parts that were not done."""

    solver: str | None = None
    """``grid``, ``line``, ``dense``, ``points`` or ``adaptive``; ``None`` if nothing was solved."""
    ridge: float | None = None
    """Relative ridge; ``None`` too if signals have different ones."""
    solve_seconds: float | None = None
    absolute_ridge: float | None = None
    ranks: list[int] | None = None
    joint_rank: int | None = None
    effective_rank: float | None = None
    methods: list[str] | None = None
    iterations: list[int] | None = None
    converged: bool | None = None
    relative_residual: float | None = None
    exact: bool | None = None
    """Whether a direct solver found the minimum, to rounding; ``None`` if that was not checked."""
    excess_error: float | None = None
    """Squared error above the least one, relative to it; the largest of all signals."""
    optimality: float | None = None
    """Relative gradient, see ``Solution.optimality``; the largest of all signals."""
    members: int | None = None
    """Encoders in the bank of the adaptive fit."""
    choice: ChoiceReport | None = None
    learned: list[LearnedReport] | None = None
    """One per signal, or one for all that share their encoders."""
    sparse: SparseReport | None = None

    @property
    def is_solved(self) -> bool:
        """Whether the weights are an exact solution."""
        return self.solver is not None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without ``None``; ``ridge`` is included whenever something was solved."""
        plain = dataclasses.asdict(self, dict_factory=_without_none)
        return {**plain, "ridge": self.ridge} if self.is_solved else plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> FitReport:
        """The report that :meth:`to_dict` described; also takes the ``report()`` of a solver's solution."""
        kinds = {"choice": ChoiceReport, "learned": LearnedReport, "sparse": SparseReport}
        parts = dict(plain)
        for name, kind in kinds.items():
            if (part := plain.get(name)) is not None:
                parts[name] = [kind(**entry) for entry in part] if isinstance(part, list) else kind(**part)
        return cls(**parts)


def _without_none(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in items if value is not None}
