"""The number of threads of a computation, chosen by the size of its work.

Threads that wait for each other cost more than they save where the work is small: a factorisation of a few hundred columns
synchronises its threads thousands of times, and each time waits for the operating system if another program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar, cast

import torch
from torch import Tensor

__all__ = ["OPERATIONS_PER_THREAD", "sized_threads", "solve_operations", "threads_for_values"]

OPERATIONS_PER_THREAD = 1e10
"""Floating-point operations that are worth a thread: about half a second of one core."""
MAX_COUNTED_FEATURES = 1024
"""Features per axis that the estimate assumes at most: longer axes have fewer features than samples, or local ones."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@contextmanager
def sized_threads(operations: float) -> Iterator[None]:
    """Limits the threads of PyTorch, and of the BLAS and LAPACK it calls, to what the work is worth; then restores them.

    Never raises the number: ``OMP_NUM_THREADS``, :func:`torch.set_num_threads` and an enclosing context are upper limits.

    Args:
        operations: Estimated number of floating-point operations.
    """
    before = torch.get_num_threads()
    number = max(1, min(before, int(operations / OPERATIONS_PER_THREAD)))
    if number == before:
        yield
        return
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def solve_operations(shape: Sequence[int], passes: int) -> float:
    """Estimated floating-point operations of a solver.

    Args:
        shape: Of the values, ``(S, *samples, C)``.
        passes: How often the values are multiplied by the features of all axes.
    """
    numbers = float(torch.Size(shape).numel())
    return 2.0 * passes * numbers * sum(min(n, MAX_COUNTED_FEATURES) for n in shape[1:-1])


def threads_for_values(passes: int) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Decorates a function whose first parameter is ``values`` ``(S, *samples, C)``: it runs in :func:`sized_threads`.

    Args:
        passes: As for :func:`solve_operations`.
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @wraps(function)
        def in_sized_threads(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            values = cast(Tensor, args[0] if args else kwargs["values"])
            with sized_threads(solve_operations(values.shape, passes)):
                return function(*args, **kwargs)

        return in_sized_threads

    return decorate
