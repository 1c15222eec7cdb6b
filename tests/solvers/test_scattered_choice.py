"""The ridge and the width that holding out points chooses."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from pe_lightning import encoders
from pe_lightning.data import grid_axes
from pe_lightning.encodings import Complex
from pe_lightning.errors import InputError
from pe_lightning.solvers.scattered import solve_points
from pe_lightning.solvers.scattered_choice import RULE_RIDGE, ChoiceWarning, choose_points


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def picture(noise: float = 0.0, size: int = 64) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """A smooth signal, a random third of whose samples are trained on."""
    generator = torch.Generator().manual_seed(0)
    axes = grid_axes((size, size))
    x, y = torch.meshgrid(*axes, indexing="ij")
    values = (0.5 + 0.3 * torch.sin(7 * x) * torch.cos(5 * y) + 0.2 * torch.sin(11 * x * y))[None, ..., None]
    values = values + noise * torch.randn(values.shape, generator=generator)
    return values, torch.rand(1, size, size, generator=generator) < 0.33, axes


def held_out_psnr(values: Tensor, mask: Tensor, axes: tuple[Tensor, ...], encoder: Any, ridge: float) -> float:
    solution = solve_points(values, encoder, axes=axes, mask=mask, ridge=ridge, iterations=200)
    prediction = (
        Complex(encoder, 2, normalize=False).grid(solution.weight, axes).movedim(1, -1) + solution.mean[:, None, None]
    )
    return -10 * math.log10((prediction - values)[~mask].square().mean().item())


@pytest.mark.parametrize("name", ["gau", "laplace", "rff", "linf"])
@pytest.mark.parametrize("noise", [0.02, 0.1])
def test_the_chosen_ridge_is_near_the_best(name: str, noise: float) -> None:
    values, mask, axes = picture(noise)
    encoder = encoders.create(name, num_features=24)
    chosen = solve_points(values, encoder, axes=axes, mask=mask, iterations=200)
    ridges = [10.0**k for k in range(-7, 1)]
    scores = {ridge: held_out_psnr(values, mask, axes, encoder, ridge) for ridge in ridges}
    assert chosen.choice is not None
    assert chosen.ridge == chosen.choice.ridge
    assert held_out_psnr(values, mask, axes, encoder, chosen.ridge) > max(scores.values()) - 0.6


def test_a_width_far_off_is_corrected() -> None:
    values, mask, axes = picture(0.02)
    narrow = encoders.create("gau", num_features=24, sigma=0.2 / 24)
    choice = choose_points(values, narrow, axes=axes, mask=mask)
    (first, second) = choice.encoders
    assert first is second
    assert first.resolved()["sigma"] > 0.4 / 24
    before = held_out_psnr(
        values, mask, axes, narrow, choose_points(values, narrow, axes=axes, mask=mask, width=False).ridge
    )
    assert held_out_psnr(values, mask, axes, first, choice.ridge) > before + 1
    widths = {row["width"]["sigma"] for row in choice.curve}
    assert len(widths) <= 7
    # every step is one of the square root of two
    assert all(math.isclose(2 * math.log2(w * 24 / 0.2), round(2 * math.log2(w * 24 / 0.2)), abs_tol=1e-6) for w in widths)


def test_exponents_move_by_halves_and_other_axes_keep_their_encoder() -> None:
    values, mask, axes = picture()
    made = [encoders.create("linf", num_features=24, sigma=1.0), encoders.create("keys", num_features=24)]
    choice = choose_points(values, made, axes=axes, mask=mask)
    assert choice.encoders[1] is made[1]
    assert all((2 * row["width"]["sigma"]).is_integer() for row in choice.curve)
    best = max(choice.curve, key=lambda row: row["psnr"])
    assert choice.encoders[0].resolved()["sigma"] == best["width"]["sigma"]


def test_a_given_ridge_is_kept() -> None:
    values, mask, axes = picture()
    choice = choose_points(values, {"name": "gau", "num_features": 24}, axes=axes, mask=mask, ridge=0.01)
    assert {row["ridge"] for row in choice.curve} == {0.01}
    assert choice.ridge == 0.01


def test_the_choice_is_plain_data() -> None:
    values, mask, axes = picture()
    choice = choose_points(values, {"name": "gau", "num_features": 16}, axes=axes, mask=mask)
    plain = json.loads(json.dumps(choice.to_dict()))
    assert plain["ridge"] == choice.ridge
    assert plain["curve"] == choice.curve
    assert plain["encoders"][0]["name"] == "gau"
    assert "10% of the training points" in plain["rule"]


def test_the_choice_does_not_depend_on_how_points_are_given() -> None:
    values, mask, axes = picture()
    coords = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)[mask[0]]
    index = mask[0].flatten().nonzero().T
    at_points = values[:, mask[0]]
    encoder = {"name": "gau", "num_features": 16}
    by_mask = choose_points(values, encoder, axes=axes, mask=mask, width=False)
    by_coords = choose_points(at_points, encoder, coords=coords, width=False)
    by_index = choose_points(at_points, encoder, axes=axes, index=index, width=False)
    for other in (by_coords, by_index):
        for row, expected in zip(other.curve, by_mask.curve, strict=True):
            assert row["psnr"] == pytest.approx(expected["psnr"], abs=0.05)


def test_four_signals_stand_for_many() -> None:
    values, mask, axes = picture()
    many = values.repeat(9, 1, 1, 1) * torch.linspace(0.5, 1, 9).reshape(-1, 1, 1, 1)
    choice = choose_points(many, {"name": "gau", "num_features": 16}, axes=axes, mask=mask, width=False)
    assert "of 4 signal(s)" in choice.rule


def test_too_few_points_take_the_rule_and_say_so() -> None:
    values, coords = torch.rand(1, 30, 1), torch.rand(30, 2)
    with pytest.warns(ChoiceWarning, match=f"relative ridge {RULE_RIDGE}"):
        solution = solve_points(values, {"name": "gau", "num_features": 8}, coords=coords)
    assert solution.ridge == RULE_RIDGE
    assert solution.choice is not None
    assert solution.choice.curve == []


def test_an_encoder_without_width_has_none_to_choose() -> None:
    values, mask, axes = picture()
    with pytest.raises(InputError, match="no width to choose: keys"):
        choose_points(values, {"name": "keys", "num_features": 16}, axes=axes, mask=mask)
    assert choose_points(values, {"name": "keys", "num_features": 16}, axes=axes, mask=mask, width=False).ridge > 0


@pytest.mark.parametrize("changes", [{"fraction": 0.0}, {"fraction": 1.0}, {"max_signals": 0}])
def test_wrong_settings_are_refused(changes: dict[str, Any]) -> None:
    values, mask, axes = picture()
    with pytest.raises(InputError, match="fraction must be in"):
        choose_points(values, {"name": "gau", "num_features": 16}, axes=axes, mask=mask, **changes)
