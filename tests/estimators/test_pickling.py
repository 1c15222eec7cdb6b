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

import pe_fill
import pe_lightning
from pe_lightning.encoders import names

RNG = np.random.default_rng(0)
GRID = torch.from_numpy(RNG.random((1, 30, 24, 2), np.float32))
PLACES = RNG.random((80, 2))
PICTURE = np.where(np.pad(np.ones((3, 5), bool), ((8, 13), (4, 15))), np.nan, RNG.random((24, 24)))
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
    return [result(QUESTIONS).detach(), result.psnr, *([result.std(QUESTIONS)] if result.field.has_std else [])]


def of_points(result: Any) -> list[Any]:
    return [result.predict(PLACES[:5]), result.std(PLACES[:5])]


@pytest.mark.filterwarnings("ignore::pe_lightning.solvers.LowRankWarning")
@pytest.mark.parametrize("name", [None, *names()])
def test_fits(name: str | None) -> None:
    check(pe_lightning.fit(GRID, name), of_fit)


@pytest.mark.filterwarnings("ignore:.*too few points of a signal could be held out")
@pytest.mark.parametrize("options", [{}, {"model": "exact"}, {"periodic": "y=1"}])
def test_points(options: dict[str, Any]) -> None:
    check(pe_fill.fit_points(PLACES, np.sin(5 * PLACES[:, 0]), **options), of_points)


@pytest.mark.parametrize(
    "options", [{"std": True}, {"model": "adaptive"}, {"model": "exact"}, {"smooth": True}, {"upscale": 2}]
)
def test_filled_arrays(options: dict[str, Any]) -> None:
    check(pe_fill.fill(PICTURE, **options), lambda result: [result.values, result.missing])


@pytest.mark.parametrize("model", [pe_fill.Adaptive(), pe_fill.Local(), pe_lightning.SimpleMLP("hash")])
def test_modules(model: Any) -> None:
    fitted = pe_lightning.fit(GRID[..., :1], model=model, max_steps=0 if model.solves else 1)
    check(fitted, lambda result: [result(QUESTIONS).detach(), result.psnr])
