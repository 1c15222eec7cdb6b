"""Degenerate masks: no exception but a sentence, no NaN, and known samples unchanged to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pe_fill import fill
from pe_lightning.errors import InputError

pytestmark = [  # so few samples
    pytest.mark.filterwarnings("ignore::pe_lightning.solvers.choice.ChoiceWarning"),
    pytest.mark.filterwarnings("ignore::pe_lightning.solvers.grid.LowRankWarning"),
]

Mask = NDArray[np.bool_]
SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    "row": ((160,), 1),
    "short row": ((9,), 1),
    "table": ((160, 3), 1),
    "picture": ((40, 160), 2),
    "small picture": ((7, 12), 2),
    "colours": ((24, 33, 3), 2),
    "clip": ((5, 18, 20), 3),
    "volume": ((10, 9, 11), 3),
}
"""Shape of an array, and its number of axes."""


def every_nth(rng: np.random.Generator, grid: tuple[int, ...]) -> Mask:
    known, step = np.zeros(grid, bool), int(rng.choice([8, 16, 40, 64]))
    known[:: min(step, grid[0] - 1)] = True
    return known


def first_columns(rng: np.random.Generator, grid: tuple[int, ...]) -> Mask:
    known = np.zeros(grid, bool)
    known[..., : int(rng.choice([1, 2, 3, 10]))] = True
    return known


def one_row(rng: np.random.Generator, grid: tuple[int, ...]) -> Mask:
    """A row of a picture, a frame of a clip, a sample of a row."""
    known = np.zeros(grid, bool)
    known[rng.integers(grid[0])] = True
    return known


def diagonal(rng: np.random.Generator, grid: tuple[int, ...]) -> Mask:
    known, index = np.zeros(grid, bool), np.arange(min(grid))
    known[tuple(index for _ in grid)] = True
    return known


def slanted_plane(rng: np.random.Generator, grid: tuple[int, ...]) -> Mask:
    """A line of a picture, a plane of a volume, across their axes."""
    return np.asarray(np.indices(grid).sum(0) == min(grid) // 2 + int(rng.integers(3)))


def few_samples(rng: np.random.Generator, grid: tuple[int, ...]) -> Mask:
    known = np.zeros(grid, bool)
    known.flat[rng.choice(known.size, int(rng.choice([1, 2, 3, 30])) % known.size, replace=False)] = True
    return known


def all_but_one(rng: np.random.Generator, grid: tuple[int, ...]) -> Mask:
    known = np.ones(grid, bool)
    known.flat[rng.integers(known.size)] = False
    return known


MASKS = (every_nth, first_columns, one_row, diagonal, slanted_plane, few_samples, all_but_one)


def check_draw(seed: int) -> None:
    """Fills a signal of one kind with a mask of one kind."""
    rng = np.random.default_rng(seed)
    name = list(SHAPES)[seed % len(SHAPES)]
    mask = MASKS[seed // len(SHAPES) % len(MASKS)]
    shape, axes = SHAPES[name]
    places = np.indices(shape)
    values: NDArray[Any] = np.sin(places.sum(0) / 3) + [0.0, 0.3, 10.0][int(rng.integers(3))] * rng.standard_normal(shape)
    known = mask(rng, shape[:axes])
    missing = np.broadcast_to(~known.reshape(*known.shape, *[1] * (len(shape) - axes)), shape).copy()
    if len(shape) > axes and rng.random() < 0.3:  # one channel alone
        missing[..., :2] = False
    if rng.random() < 0.5:
        values = np.clip(100 + 50 * values, 0, 255).astype(np.uint8)
    options: dict[str, Any] = {"axes": axes, "seed": seed, "folds": str(rng.choice(["auto", "none"]))}
    options |= [{}, {"std": True}, {"smooth": True}][int(rng.choice(3, p=[0.5, 0.4, 0.1]))]
    try:
        found = fill(values, missing, **options)
    except InputError:
        return
    case = f"{seed}: {name}, {mask.__name__}, {options}"
    assert np.isfinite(found.values).all(), case
    if "smooth" not in options:
        np.testing.assert_array_equal(found.values[~missing], values[~missing], case)
    if found.std is not None:
        assert (found.std[~missing] == 0).all(), case
        assert not (found.std < 0).any(), case


@pytest.mark.slow
def test_degenerate_masks() -> None:
    for seed in range(0, 56, 5):
        check_draw(seed)


@pytest.mark.stress
@pytest.mark.parametrize("part", range(10))
def test_many_degenerate_masks(part: int) -> None:
    for seed in range(part, 500, 10):
        check_draw(seed)


def test_nothing_is_missing_or_everything() -> None:
    for values in (np.zeros((9, 9)), np.full((9, 9), np.nan)):
        with pytest.raises(InputError):
            fill(values)
