"""Small solves take one thread, and give the others back; blocks of small systems are computed side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest
import torch
from threadpoolctl import threadpool_info
from torch import Tensor

from pe_lightning.encoders.shifted import Gaussian
from pe_lightning.errors import InputError
from pe_lightning.linalg.threads import OPERATIONS_PER_THREAD, one_blas_thread, side_by_side, sized_threads
from pe_lightning.solvers import solve_blocks, solve_grid, solve_points

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("threads_worth", "expected"), [(0.0, 1), (1.0, 1), (2.5, 2), (100.0, 4)])
def test_threads_follow_the_size_of_the_work_and_are_restored(threads_worth: float, expected: int) -> None:
    with sized_threads(threads_worth * OPERATIONS_PER_THREAD):
        assert torch.get_num_threads() == expected
        with sized_threads(100 * OPERATIONS_PER_THREAD):  # an enclosing context is an upper limit
            assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == 4


class Probe(Gaussian):
    """Notes the number of threads where features are computed."""

    seen: ClassVar[set[int]] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add(torch.get_num_threads())
        return super().forward(x)


def test_small_solves_run_in_one_thread_and_restore_the_number_also_after_an_error() -> None:
    values, axes = torch.rand(1, 24, 24, 1), [torch.arange(24) / 24] * 2
    solves: list[Callable[[], object]] = [
        lambda: solve_grid(values=values, encoder=Probe()),
        lambda: solve_points(values, Probe(), axes=axes, mask=torch.rand(24, 24) < 0.5),
        lambda: solve_blocks([((0, 0), values)], Probe(), axes),
    ]
    for solve in solves:
        Probe.seen.clear()
        solve()
        assert Probe.seen == {1}
        assert torch.get_num_threads() == 4
    with pytest.raises(InputError):
        solve_grid(values, Probe(), ridge=-1.0)
    assert torch.get_num_threads() == 4


def test_items_run_at_the_same_time_with_one_thread_each_in_the_modes_of_the_caller() -> None:
    meeting = threading.Barrier(4, timeout=30)

    def seen(item: int) -> tuple[int, int, bool, bool]:
        meeting.wait()  # all four items have begun
        inner = side_by_side(lambda _: threading.get_ident(), range(2), CPU)
        assert set(inner) == {threading.get_ident()}
        return item, torch.get_num_threads(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    assert side_by_side(seen, range(4), CPU) == [(item, 1, True, False) for item in range(4)]
    with torch.inference_mode(), sized_threads(0):  # the limit is the number of threads outside
        assert side_by_side(seen, range(4), CPU) == [(item, 1, False, True) for item in range(4)]
    assert torch.get_num_threads() == 4
    new = threading.Thread(target=lambda: threads.append(torch.get_num_threads()))
    threads: list[int] = []
    new.start()
    new.join()
    assert threads == [4]


def test_small_systems_of_numpy_and_scipy_have_one_thread() -> None:
    found = one_blas_thread(threadpool_info)()
    assert {library["num_threads"] for library in found if library["user_api"] == "blas"} == {1}
