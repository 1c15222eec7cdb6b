"""Small solves take one thread, and give the others back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from pe_lightning.encoders.shifted import Gaussian
from pe_lightning.errors import InputError
from pe_lightning.solvers import solve_blocks, solve_grid, solve_points
from pe_lightning.threads import OPERATIONS_PER_THREAD, sized_threads


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
