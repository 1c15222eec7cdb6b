"""Exact fits of the linear layer of a complex encoding: on grids and on scattered points."""

from pe_lightning.signals.blocks import grid_blocks
from pe_lightning.solvers.choice import Choice, ChoiceWarning, choose_grid, choose_points
from pe_lightning.solvers.grid import GridSolver, LowRankWarning
from pe_lightning.solvers.solution import Solution
from pe_lightning.solvers.solve import ConvergenceWarning, solve_blocks, solve_grid, solve_points
from pe_lightning.solvers.variable_projection import Learned, learn_encoders

__all__ = [
    "Choice",
    "ChoiceWarning",
    "ConvergenceWarning",
    "GridSolver",
    "Learned",
    "LowRankWarning",
    "Solution",
    "choose_grid",
    "choose_points",
    "grid_blocks",
    "learn_encoders",
    "solve_blocks",
    "solve_grid",
    "solve_points",
]
