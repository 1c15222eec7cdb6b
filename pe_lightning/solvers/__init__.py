"""Exact fits of the linear layer of a complex encoding: on grids and on scattered points."""

from pe_lightning.solvers.choose import Choice, choose_grid
from pe_lightning.solvers.closed_form import solve_blocks, solve_grid
from pe_lightning.solvers.grid import GridSolver
from pe_lightning.solvers.shapes import tiles
from pe_lightning.solvers.solution import GridSolution, LowRankWarning

__all__ = [
    "Choice",
    "GridSolution",
    "GridSolver",
    "LowRankWarning",
    "choose_grid",
    "solve_blocks",
    "solve_grid",
    "tiles",
]
