"""Two gloo processes against one."""

import subprocess
import sys
import textwrap

import pytest
import torch

from pe_lightning.solvers import solve_grid

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from pe_lightning.solvers import solve_blocks
from pe_lightning.errors import InputError

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
values = torch.load(f"{folder}/values.pt")
axes = [torch.arange(n, dtype=torch.float64) / n for n in values.shape[1:-1]]
first, last = [(0, 30), (30, 101)][rank]  # uneven
solution = solve_blocks([((first, 0), values[:, first:last])], {"name": "gau", "num_features": 40}, axes, ridge=1e-3)
torch.save({"weight": solution.weight, "mean": solution.mean, "error": solution.squared_error}, f"{folder}/{rank}.pt")
try:
    solve_blocks([((0, 0), values)], {"name": "gau", "num_features": 40}, axes, ridge=1e-3)
except InputError as error:
    assert "cover 9696 of the grid's 4848" in str(error), error
else:
    raise AssertionError("samples that two processes hold were counted once")
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    values = torch.rand(2, 101, 48, 3, generator=torch.Generator().manual_seed(0))
    torch.save(values, tmp_path / "values.pt")
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    workers = [
        subprocess.Popen([sys.executable, tmp_path / "script.py", str(rank), tmp_path], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    errors = [worker.communicate(timeout=120)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], errors
    expected = solve_grid(values, {"name": "gau", "num_features": 40}, ridge=1e-3)
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for result in results:
        torch.testing.assert_close(result["weight"], expected.weight, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(result["mean"], expected.mean)
        torch.testing.assert_close(result["error"], expected.squared_error, rtol=1e-4, atol=0)
        assert all(torch.equal(result[key], results[0][key]) for key in result)
