"""Exact fits of the linear layer of a complex encoding: on grids and on scattered points."""

from pe_lightning.blocks import tiles
from pe_lightning.solvers.choose import Choice, choose_grid
from pe_lightning.solvers.closed_form import solve_blocks, solve_grid
from pe_lightning.solvers.grid import GridSolver
from pe_lightning.solvers.scattered import ConvergenceWarning, ScatteredSolution, solve_points
from pe_lightning.solvers.scattered_choice import ChoiceWarning, PointChoice, choose_points
from pe_lightning.solvers.solution import GridSolution, LowRankWarning

__all__ = [
    "Choice",
    "ChoiceWarning",
    "ConvergenceWarning",
    "GridSolution",
    "GridSolver",
    "LowRankWarning",
    "PointChoice",
    "ScatteredSolution",
    "choose_grid",
    "choose_points",
    "solve_blocks",
    "solve_grid",
    "solve_points",
    "tiles",
]
