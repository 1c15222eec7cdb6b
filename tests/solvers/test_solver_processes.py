"""Two processes that share the points, unevenly, find what one finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from stopping import FORKS
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.signals import grid_axes
from pe_lightning.solvers import solve_blocks, solve_grid, solve_points

GAU = {"name": "gau", "num_features": 40}
ENCODERS = [{"name": "gau", "num_features": 9}, {"name": "linf", "num_features": 8}]
CASES: dict[str, dict[str, Any]] = {
    "mask": {"ridge": 1e-2},
    "index": {"ridge": 1e-2},
    "coords": {"ridge": 1e-2},
    "none for one": {"ridge": 1e-2},
    "auto": {"ridge": "auto"},
    "width": {"ridge": "auto", "sigma": "auto"},
}


def problem() -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    grid = (40, 40)
    x, y = torch.meshgrid(*grid_axes(grid, torch.float64), indexing="ij")
    values = torch.stack([torch.sin(5 * x + y), torch.cos(4 * y) * x])[..., None]
    noise = torch.rand(2, *grid, 1, generator=generator, dtype=torch.float64)
    return values + 0.1 * noise, torch.rand(2, *grid, generator=generator) < 0.5, grid_axes(grid, torch.float64)


def grid_problem() -> tuple[Tensor, tuple[Tensor, ...]]:
    values = torch.rand(2, 101, 48, 3, generator=torch.Generator().manual_seed(0))
    return values, grid_axes((101, 48), torch.float64)


def share(case: str, rank: int | None) -> dict[str, Any]:
    """The arguments of one process, or of all together; the first process has about a tenth of the points."""
    values, mask, axes = problem()
    arguments: dict[str, Any] = {"encoder": ENCODERS, "axes": axes, "tolerance": 1e-9, "iterations": 300, **CASES[case]}
    if case == "mask":
        if rank is not None:
            mine = torch.arange(40)[:, None] < 4
            mask = mask & (mine if rank == 0 else ~mine)
        return {"values": values, "mask": mask, **arguments}
    size = 700  # as many points of each signal, so that they are a tensor
    index = torch.stack([m.flatten().nonzero().flatten()[:size] for m in mask])
    if rank is not None:
        cut = 0 if case == "none for one" else 71
        index = index[:, :cut] if rank == 0 else index[:, cut:]
    at_points = values.flatten(1, 2).gather(1, index[..., None])
    if case in ("index", "none for one"):
        return {"values": at_points, "index": index, **arguments}
    coords = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)[index]
    del arguments["axes"]
    return {"values": at_points, "coords": coords, **arguments}


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    found = {}
    for case in CASES:
        solution = solve_points(**share(case, rank), distributed=True)
        found[case] = [solution.weight, solution.mean, solution.squared_error, solution.count, solution.ridge]
    values, axes = grid_problem()
    first, last = [(0, 30), (30, 101)][rank]  # uneven
    solution = solve_blocks([((first, 0), values[:, first:last])], GAU, axes, ridge=1e-3)
    found["grid"] = [solution.weight, solution.mean, solution.squared_error]
    try:
        solve_blocks([((0, 0), values)], GAU, axes, ridge=1e-3)
    except InputError as error:
        found["twice"] = str(error)
    torch.save(found, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("processes")
    processes = [FORKS.Process(target=work, args=(rank, str(folder))) for rank in (0, 1)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_processes_find_what_one_finds(case: str, by_two: list[dict[str, Any]]) -> None:
    alone = solve_points(**share(case, None))
    first, second = by_two[0][case], by_two[1][case]
    for mine, other in zip(first[:4], second[:4], strict=True):
        assert torch.equal(mine, other)  # bit for bit between processes
    weight, mean, squared_error, count, ridge = first
    assert ridge == pytest.approx(alone.ridge, rel=1e-6)
    torch.testing.assert_close(weight, alone.weight, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(mean, alone.mean)
    torch.testing.assert_close(squared_error, alone.squared_error, rtol=1e-6, atol=1e-9)
    assert torch.equal(count, alone.count)


@pytest.mark.slow
def test_two_processes_solve_a_grid_as_one_does(by_two: list[dict[str, Any]]) -> None:
    values, axes = grid_problem()
    alone = solve_grid(values, GAU, axes, ridge=1e-3)
    for found in by_two:
        weight, mean, error = found["grid"]
        torch.testing.assert_close(weight, alone.weight, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(mean, alone.mean)
        torch.testing.assert_close(error, alone.squared_error, rtol=1e-4, atol=0)
        assert all(torch.equal(a, b) for a, b in zip(found["grid"], by_two[0]["grid"], strict=True))
        assert "cover 9696 of the grid's 4848" in found["twice"], "samples that two processes hold are not counted once"
