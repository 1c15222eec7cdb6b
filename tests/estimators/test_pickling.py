"""Results as other processes and files hold them: by pickle, copy.deepcopy and torch.save."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pe_lightning

RNG = np.random.default_rng(0)
GRID = torch.from_numpy(RNG.random((1, 20, 18, 1), np.float32))
QUESTIONS = torch.from_numpy(RNG.random((5, 2), np.float32))


def saved(result: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(result, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def check(result: Any, values: Callable[[Any], list[Any]]) -> None:
    """Copies made before and after standard deviations were computed answer alike."""
    before = pickle.loads(pickle.dumps(result))
    expected = values(result)
    for copied in (before, pickle.loads(pickle.dumps(result)), copy.deepcopy(result), saved(result)):
        for found, one in zip(values(copied), expected, strict=True):
            np.testing.assert_array_equal(found, one)


def of_fit(result: Any) -> list[Any]:
    return [result(QUESTIONS).detach(), result.psnr, *([result.std(QUESTIONS)] if result.has_std else [])]


@pytest.mark.filterwarnings("ignore::pe_lightning.solvers.LowRankWarning")
@pytest.mark.parametrize("name", [None, "gau", "keys", "rff", "lff", "hash"])  # encoders alone: their contract
def test_fits(name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pe_lightning.solvers.variable_projection.SEARCH_TOLERANCE", 1.0)  # learns for one step
    check(pe_lightning.fit(GRID, name), of_fit)


def test_a_module() -> None:
    fitted = pe_lightning.fit(GRID, model=pe_lightning.SimpleMLP("hash"), max_steps=1)
    check(fitted, lambda result: [result(QUESTIONS).detach(), result.psnr])
