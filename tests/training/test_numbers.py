"""What a fit computes with: no subnormal numbers, and a rate at which training longer never ends lower."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
import torch
from fits import MakeTrainer, fit
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pe_lightning import encoders
from pe_lightning.solvers import solve_grid
from pe_lightning.training import ComplexLinear, SimpleMLP, TensorDataModule

VIEWS = ("select", "slice", "view", "empty", "alias", "expand", "reshape", "permute", "transpose", "as_strided", "unsqueeze")
"""Operations that compute nothing; some of their memory is not written yet."""


class Subnormals(TorchDispatchMode):
    """Counts subnormal operands and results of all operations, backward passes and optimisers included."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, name = function(*args, **(kwargs or {})), str(function)
        if not any(view in name for view in VIEWS):
            read = args[1:] if "copy_" in name or ".out" in name else args  # the first is written to
            for x in tree_leaves((read, result)):
                if isinstance(x, Tensor) and x.is_floating_point() and x.layout == torch.strided:
                    self.found[name] += int(((x != 0) & (x.abs() < torch.finfo(x.dtype).tiny)).sum())
        return result


def picture(size: int = 64) -> Tensor:
    """``(1, size, size, 1)``, smooth and rough."""
    x = torch.arange(size) / size
    noise = torch.rand(size, size, generator=torch.Generator().manual_seed(0))
    return (0.5 + 0.3 * torch.sin(9 * x[:, None] + 5 * x) + 0.1 * noise)[None, ..., None]


MORE: dict[str, dict[str, Any]] = {
    "gau of 256": {"num_features": 256},  # most of them between the samples, where none sees them
    "gau of 40 and 3": {"num_features": 40, "padding": 3},
    "laplace of 0.002": {"num_features": 64, "scale": 0.002},
}
CASES = {name: {} for name in encoders.registry} | MORE


@pytest.mark.slow  # counts in every operation of 51 fits
@pytest.mark.filterwarnings("ignore:the fit has .* degrees of freedom")
@pytest.mark.parametrize(
    ("route", "case"),
    [("gram", case) for case in CASES]
    + list(itertools.product(("papers-adam", "samples"), ("gau", "laplace", "rff", "hash", *MORE)))
    + list(itertools.product(("mlp", "solver"), ("gau", "laplace", "rff", "hash"))),
)
def test_no_number_is_subnormal(route: str, case: str, make_trainer: MakeTrainer) -> None:
    encoder = {"name": case.split()[0], **CASES[case]}
    sampling = {"name": "random", "fraction": 0.25, "seed": 0} if route == "samples" else {"name": "grid", "stride": 2}
    data = TensorDataModule(picture(), sampling=sampling)
    adam = {"optimizer": lambda parameters: torch.optim.Adam(parameters, lr=0.1, weight_decay=1e-8, fused=True)}
    with Subnormals() as counter:
        if route == "solver":
            solve_grid(data.values[:, ::2, ::2], [encoders.resolve(encoder)] * 2, ridge=1e-3)
        elif route == "mlp":
            fit(SimpleMLP(encoder, depth=1, hidden_size=8), data, make_trainer, 3, limit_val_batches=0)
        else:
            more = adam if route == "papers-adam" else {}
            fit(ComplexLinear(encoder, **more), data, make_trainer, 6, limit_val_batches=0)
    # a solver's singular vectors to zero may hold a few, once
    assert sum(counter.found.values()) <= (20 if route == "solver" else 0), counter.found
