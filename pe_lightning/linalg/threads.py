"""The number of threads of a computation, chosen by the size of its work.

Threads that wait for each other cost more than they save where the work is small: a factorisation of a few hundred columns
synchronises its threads thousands of times. Large products use several threads (:func:`sized_threads`). Small systems that
do not depend on each other are taken in turn by several threads, with one thread inside (:func:`side_by_side`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar, cast

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

OPERATIONS_PER_THREAD = 1e10
"""Floating-point operations that are worth a thread: about half a second of one core."""
HELD_AT_ONCE = 64

Parameters = ParamSpec("Parameters")
Item = TypeVar("Item")
Result = TypeVar("Result")

_available: ContextVar[int | None] = ContextVar("available", default=None)
"""Threads outside the outermost :func:`sized_threads`."""


@contextmanager
def sized_threads(operations: float) -> Iterator[None]:
    """Limits the threads of PyTorch, and of the BLAS and LAPACK it calls, to what so many operations are worth.

    Also a decorator: of a function of many small operations, ``@sized_threads(0)``. Never raises the number:
    ``OMP_NUM_THREADS``, :func:`torch.set_num_threads` and an enclosing context are upper limits.
    """
    before = torch.get_num_threads()
    number = max(1, min(before, int(operations / OPERATIONS_PER_THREAD)))
    if number == before:
        yield
        return
    outside = _available.set(_available.get() or before)
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _available.reset(outside)


def one_blas_thread(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorates a function of many small systems of NumPy and SciPy, between which threads of their BLAS wait busily."""

    @wraps(function)
    def in_one_thread(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with threadpool_limits(1, "blas"):
            return function(*args, **kwargs)

    return in_one_thread


def side_by_side(function: Callable[[Item], Result], items: Iterable[Item], device: torch.device) -> list[Result]:
    """The results of a function for independent items, in their order, computed in as many threads as are available.

    Each item has one thread of PyTorch, BLAS and LAPACK, so that results do not depend on the number of threads.
    The number of threads outside the outermost :func:`sized_threads` is the limit; a call within an item is sequential.
    The caller's modes of autograd apply. The first exception is raised here, after items that have begun. Items on an
    accelerator are computed one after another. The function writes nothing that another call reads.
    """
    items = list(items)
    width = min(len(items), _available.get() or torch.get_num_threads())
    with sized_threads(0):
        if width <= 1 or device.type != "cpu":
            return [function(item) for item in items]
        grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

        def call(item: Item) -> Result:
            with torch.inference_mode(inference), torch.set_grad_enabled(grad):
                return function(item)

        pool = ThreadPoolExecutor(width, initializer=torch.set_num_threads, initargs=(1,))
        try:
            return list(pool.map(call, items))
        finally:
            pool.shutdown(cancel_futures=True)


def in_turns(
    function: Callable[[Item], Result], items: Sequence[Item], device: torch.device
) -> Iterator[tuple[Item, Result]]:
    """Items and their results in order, by :func:`side_by_side`, with :data:`HELD_AT_ONCE` results at most at a time."""
    for start in range(0, len(items), HELD_AT_ONCE):
        some = items[start : start + HELD_AT_ONCE]
        yield from zip(some, side_by_side(function, some, device), strict=True)


def solve_operations(shape: Sequence[int], passes: int) -> float:
    """Estimated floating-point operations of a solver of values ``(S, *samples, C)``.

    ``passes`` is how often the values are multiplied by the features of all axes.
    """
    numbers = float(torch.Size(shape).numel())
    # features per axis that the estimate assumes at most: longer axes have fewer features than samples, or local ones
    return 2.0 * passes * numbers * sum(min(n, 1024) for n in shape[1:-1])


def threads_for_values(passes: int) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Decorates a function whose first parameter is ``values`` ``(S, *samples, C)``: it runs in :func:`sized_threads`.

    ``passes`` is as for :func:`solve_operations`.
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @wraps(function)
        def in_sized_threads(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            values = cast(Tensor, args[0] if args else kwargs["values"])
            with sized_threads(solve_operations(values.shape, passes)):
                return function(*args, **kwargs)

        return in_sized_threads

    return decorate
