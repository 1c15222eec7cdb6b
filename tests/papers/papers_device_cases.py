"""A small fit with the callback of this package, as those of ``device_cases.py``."""

from device_cases import Case
from fits import MODULES

from pe_papers.analysis import StableRank

CASES = {"callbacks": Case(MODULES["simple"], steps=3, callbacks=lambda: [StableRank(2)])}
