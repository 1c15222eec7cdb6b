"""The program of docs/how.md predicts what ``pe_lightning.fit`` and its solver predict."""

import re
from pathlib import Path

import torch

import pe_lightning
from pe_lightning.solvers import solve_grid

PAGE = Path(__file__).parents[2] / "docs/how.md"
ENCODER = {"name": "gau", "num_features": 32, "sigma": 0.03}


def test_the_nine_lines_are_the_exact_fit():
    y, x = torch.meshgrid(torch.arange(64) / 64, torch.arange(64) / 64, indexing="ij")
    noise = torch.rand(64, 64, 3, generator=torch.Generator().manual_seed(0))  # so that the ridge matters
    values = torch.stack([0.4 + 0.3 * torch.sin(9 * x * (y + k)) for k in range(3)], -1) + 0.3 * noise
    fitted = pe_lightning.fit(values[None], ENCODER)
    ridge = fitted.solution.ridge

    program = re.search(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)[1]
    names = {"values": values.double(), "ridge": ridge}
    exec(compile(program, str(PAGE), "exec"), names)
    prediction, axis = names["prediction"], names["x"]

    assert (prediction - fitted.grid([axis, axis])[0]).abs().max() < 2e-6  # the fit is of float32
    solution = solve_grid(values[None, ::2, ::2].double(), ENCODER, [axis[::2]] * 2, ridge=ridge)
    assert (prediction - solution.predict([axis, axis])[0]).abs().max() < 1e-10
