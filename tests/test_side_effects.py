"""No public function changes its arguments, or anything of the process that others read."""

from __future__ import annotations

import importlib
import inspect
import locale
import os
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pe_fill
import pe_lightning
from pe_lightning.encoders import Samples, create
from pe_lightning.encodings import Complex
from pe_lightning.signals import grid_axes
from pe_lightning.training import ComplexLinear, SimpleMLP, TensorDataModule

PACKAGES = ("", ".encoders", ".encodings", ".estimators", ".signals", ".solvers", ".training")
CHANGE_THEIR_ARGUMENT = ("register", "set_width", "warm_up_and_cosine")
"""By what they are for: a registry, the width of an encoder, the rates of an optimiser."""


def values(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def axis() -> Tensor:
    return torch.arange(12) / 12


def grid() -> list[Tensor]:
    return list(grid_axes((12, 10)))


def holes() -> dict[str, Any]:
    lost = np.zeros((12, 10), bool)
    lost[2:4, 3] = True
    return {"missing": lost, "sampling": values(12, 10).numpy() < 0.6}


def levels() -> np.ndarray:
    return (255 * values(24, 30)).numpy().astype(np.uint8) // 4


def columns() -> tuple[dict[str, Any], dict[str, Any]]:
    return {"x": np.ma.masked_array(values(40).numpy(), np.arange(40) == 3)}, {"v": values(40).numpy()}


LEARNED = {"name": "gau", "num_features": 6, "trainable": True}
CASES: dict[str, list[Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]]] = {
    "fit": [
        lambda: ((values(2, 12, 10, 1), {"name": "gau", "width": "auto"}), {}),
        lambda: ((values(1, 12, 10, 1).numpy(), create("rff", num_features=8)), holes()),
        lambda: ((values(1, 20, 18, 1), LEARNED), {}),
        lambda: ((values(1, 12, 10, 1),), {}),
        lambda: (([*values(2, 12, 10, 1)],), {"model": SimpleMLP("hash", 1, 8), "max_steps": 3}),
        lambda: ((TensorDataModule(values(1, 12, 10, 1)),), {"model": ComplexLinear("gau", solver="exact")}),
    ],
    "load": [],  # of a file, in tests/training/test_checkpoints.py
    "create": [lambda: (("gau",), {"num_features": 8})],
    "create_encoder": [lambda: (("gau",), {"num_features": 8})],
    "list_encoders": [lambda: ((), {})],
    "names": [lambda: ((), {})],
    "automatic": [lambda: ((create("gau", width="auto"),), {})],
    "automatic_width": [lambda: (({"name": "gau"},), {}), lambda: (([create("gau"), "rff"],), {})],
    "bandwidth": [lambda: ((create("bspline", num_features=8),), {})],
    "cell_means": [lambda: (([create("gau", num_features=8)], [0.1]), {})],
    "for_data": [lambda: ((create("gau"), Samples((12.0,))), {})],
    "interpolates": [lambda: ((create("tri", num_features=12), axis()), {})],
    "is_local": [lambda: ((create("tri", num_features=12),), {})],
    "local_features": [lambda: ((create("tri", num_features=12), axis()), {})],
    "per_axis": [lambda: ((create("gau"), 2), {}), lambda: ((["gau", {"name": "rff"}], 2), {})],
    "resolve": [lambda: (({"name": "gau", "num_features": 8},), {})],
    "sample_value": [lambda: ((create("gau"), "sigma", 0.1), {})],
    "samples_per_unit": [lambda: ((axis(),), {})],
    "sized": [lambda: (([create("gau")], [0.1], [12.0]), {})],
    "widened": [lambda: ((create("gau", num_features=8, sigma=0.1), 12.0, 2.0), {})],
    "with_seed": [lambda: ((create("rff"), 3), {})],
    "encoder_rank": [lambda: ((create("gau", num_features=8, sigma=0.1), axis()), {})],
    "evaluating": [lambda: ((nn.Sequential(nn.Dropout(), nn.Dropout().eval()),), {})],
    "feature_rank": [lambda: ((Complex([create("gau", num_features=8, sigma=0.1)] * 2, 2), values(9, 2)), {})],
    "stable_rank": [lambda: ((values(9, 4),), {})],
    "grid_axes": [lambda: (((12, 10),), {})],
    "permutation": [lambda: ((12, 0, 1), {})],
    "point_coordinates": [lambda: ((grid(), torch.arange(9)[None]), {})],
    "run_seed": [lambda: ((), {})],
    "sample_coordinates": [lambda: ((TensorDataModule(values(1, 12, 10, 1)).train_batch(), 9), {})],
    "choose_grid": [
        lambda: ((values(1, 12, 10, 1), grid(), [create("gau", num_features=8)] * 2), {"sigma": "auto"}),
        lambda: ((values(1, 12, 10, 1), grid(), [create("rff", num_features=8, sigma=2.0)] * 2), {}),
    ],
    "choose_points": [lambda: ((values(1, 40, 1), "gau"), {"coords": values(1, 40, 2), "sigma": "auto"})],
    "grid_blocks": [lambda: (([12, 10], [5, 5]), {})],
    "learn_encoders": [lambda: ((values(1, 12, 1), LEARNED), {"axes": [axis()]})],
    "solve_blocks": [lambda: (([((0, 0), values(1, 12, 10, 1))], "gau", grid()), {})],
    "solve_grid": [
        lambda: ((values(1, 12, 10, 1), "gau"), {}),
        lambda: ((values(1, 12, 10, 1), "gau"), {"mask": values(1, 12, 10) < 0.9}),
    ],
    "solve_points": [lambda: ((values(1, 40, 1), "gau"), {"coords": values(1, 40, 2)})],
    "datamodule_of": [lambda: ((None, TensorDataModule), {})],
    "make_datamodule": [lambda: ((values(1, 12, 10, 1).numpy(),), holes())],
    "pe_fill.fill": [
        lambda: ((np.ma.masked_array(levels(), levels() == 7), 9), {"seed": 3}),
        lambda: ((values(24, 30), levels() == 7), {"std": True, "model": "exact"}),
        lambda: ((levels(),), {"smooth": True, "seed": 3}),
        lambda: ((levels(),), {"upscale": 2, "seed": 3}),
    ],
    "pe_fill.fit_points": [
        lambda: ((values(40, 2).numpy(), values(40)), {"seed": 3}),
        lambda: (columns(), {"model": "exact"}),
    ],
    "trainer_of": [lambda: ((ComplexLinear("gau"),), {})],
}


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for package in PACKAGES:
        module = importlib.import_module(f"pe_lightning{package}")
        for name in module.__all__:
            if inspect.isroutine(function := getattr(module, name)) and name not in CHANGE_THEIR_ARGUMENT:
                yield f"pe_lightning{package}.{name}", function
    yield from (("pe_fill.fill", pe_fill.fill), ("pe_fill.fit_points", pe_fill.fit_points))


def of_process() -> dict[str, Any]:
    return {
        "PyTorch's generator": torch.get_rng_state().tolist(),
        "NumPy's generator": repr(np.random.get_state()),  # noqa: NPY002  # the one that others read
        "Python's generator": random.getstate(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "dtype and modes": (torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "NumPy's errors": np.geterr(),
        "filters of warnings": list(warnings.filters),
        "locale": locale.setlocale(locale.LC_ALL),
        "working folder": os.getcwd(),
        "environment": {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"},
    }


def content(value: Any) -> Any:
    """What an argument holds, to compare before and after; models that a fit trains are its result."""
    if isinstance(value, Tensor):
        return ("tensor", value.dtype, value.requires_grad, value.detach().clone().numpy().tobytes())
    if isinstance(value, np.ndarray):
        return ("array", value.dtype, np.asarray(value).tobytes(), np.ma.getmaskarray(value).tobytes())
    if isinstance(value, pe_lightning.Encoder):
        return (value.name, value.training, repr(value), [content(tensor) for tensor in value.state_dict().values()])
    if isinstance(value, nn.Sequential):
        return [part.training for part in value.modules()]
    if isinstance(value, dict):
        return {key: content(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [content(entry) for entry in value]
    return repr(value) if isinstance(value, (str, int, float)) or value is None else type(value)


@pytest.mark.filterwarnings("ignore:.*too few points of a signal could be held out")
@pytest.mark.parametrize(("path", "function"), list(functions()))
def test_a_call_leaves_everything_as_it_was(path: str, function: Callable[..., Any]) -> None:
    for case in CASES.get(path) or CASES[path.rpartition(".")[2]]:  # a new function needs a case
        arguments, options = case()
        before, given = of_process(), (content(arguments), content(options))
        result = function(*arguments, **options)
        if isinstance(result, AbstractContextManager):
            with result:
                pass
        for name, found in of_process().items():
            assert found == before[name], name
        assert (content(arguments), content(options)) == given
