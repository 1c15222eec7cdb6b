"""Results of an exact fit, as plain values for ``metrics.json`` and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FitReport:
    """Results of an exact fit and of a choice; ``None`` for parts that were not done. All are plain values."""

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
    choice: dict[str, Any] | None = None
    """How width and ridge were chosen: :meth:`pe_lightning.solvers.Choice.report`."""
    learned: list[dict[str, Any]] | None = None
    """How encoders were learned, per signal or once for all: the ridge and :meth:`pe_lightning.solvers.Learned.report`."""
    sparse: dict[str, Any] | None = None
    """Which part of the layer is kept (``num_coefficients``)."""

    @property
    def is_solved(self) -> bool:
        """Whether the weights are an exact solution."""
        return self.solver is not None

    def to_dict(self) -> dict[str, Any]:
        """The results without ``None``; ``ridge`` is included whenever something was solved."""
        plain = {key: value for key, value in vars(self).items() if value is not None}
        return {**plain, "ridge": self.ridge} if self.is_solved else plain
