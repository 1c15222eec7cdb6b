"""The weight of a prediction that is mixed with a fit: known mixtures are found, and no weight where nothing supports it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pe_fill.adaptive.prior_weight import WEIGHT_OFFSET, WEIGHT_PER_OCTAVE, WEIGHT_SLOPE, MixedGrid, held_out_weight

GRID = (96, 80)


class Flawed:
    """The truth plus an error that depends on the distance of the samples."""

    def __init__(self, truth: torch.Tensor, error: torch.Tensor) -> None:
        self.truth, self.error = truth, error

    def predict(self, axes: list[torch.Tensor]) -> torch.Tensor:
        rows, columns = ((x * n).round().long() for x, n in zip(axes, GRID, strict=True))
        return (self.truth + self.error)[rows][:, columns].double()

    def at(self, points: torch.Tensor) -> torch.Tensor:
        return points.sum(1, keepdim=True) + self.error.mean()


def fields(truth: torch.Tensor, errors: Callable[[float], torch.Tensor]):
    return lambda values, step: Flawed(truth, errors(step[0]))


def random(seed: int, scale: float) -> torch.Tensor:
    return scale * torch.randn(*GRID, 1, generator=torch.Generator().manual_seed(seed))


def weight(own, other) -> float:
    truth = random(0, 1.0)
    first, step = (1.0, 0.0), (2.0, 2.0)
    values = truth[1::2, ::2].contiguous()
    both = fields(truth, own), fields(truth, other)
    return held_out_weight(*both, tuple(make(values, step) for make in both), values, GRID, first, step)


def many(values):
    """The same fields as fit and as prediction, and both of all samples."""
    make = fields(values, lambda s: 0 * values)
    return make, make, (make(values, (1, 1)),) * 2


def final(extrapolated: float, octaves: float = 0.0) -> float:
    return WEIGHT_OFFSET + WEIGHT_SLOPE * extrapolated + WEIGHT_PER_OCTAVE * octaves


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        pytest.param(lambda s: 0.2, lambda s: 0.1, final(0.8), id="weights of the variances"),
        pytest.param(lambda s: 0.1 if s < 4 else 0.2, lambda s: 0.1 if s < 4 else 0.2, final(0.5, -2), id="falls fast"),
        pytest.param(lambda s: 0.3 if s < 4 else 0.2, lambda s: 0.3 if s < 4 else 0.2, final(0.5, 1.17), id="rises"),
        pytest.param(lambda s: 0.2, lambda s: 0.2, final(0.5), id="explains all at four times the spacing"),
        pytest.param(
            lambda s: 0.8 if s > 4 else 0.2, lambda s: 0.2, final(0.5 - 0.64 * (0.94 - 0.5)), id="explains little there"
        ),
        pytest.param(lambda s: 1.2 if s > 4 else 0.2, lambda s: 0.2, 0, id="explains nothing there"),
        pytest.param(lambda s: 0.2, lambda s: 0.4 if s > 4 else 0.2, final(0.5), id="grows towards smaller spacings"),
        pytest.param(lambda s: 1.0, lambda s: 0.1, 0, id="explains nothing"),
        pytest.param(lambda s: 0.2 if s > 4 else 1.0, lambda s: 0.1, 0, id="an oscillation that four times do not show"),
    ],
)
def test_independent_errors_have_the_weight_of_the_formula(own, other, expected):
    found = weight(lambda s: random(1, own(s)), lambda s: random(2, other(s)))
    assert found == pytest.approx(expected, abs=0.08 if expected else 0)


def test_no_weight_where_the_fit_is_better_or_samples_are_constant_or_few():
    assert weight(lambda s: random(1, 0.1), lambda s: random(1, 0.3)) == 0
    few, flat = torch.rand(15, 40, 1), torch.full((*GRID, 1), 0.5)
    assert held_out_weight(*many(few), few, (15, 40), (0, 0), (1, 1)) == 0
    assert held_out_weight(*many(flat), flat, GRID, (0, 0), (1, 1)) == 0


def test_a_mixture_is_between_its_fields():
    mixed = MixedGrid(Flawed(random(0, 1), random(1, 1)), Flawed(random(0, 1), random(2, 1)), 0.25)
    axes = [torch.arange(n) / n for n in GRID]
    expected = random(0, 1) + 0.75 * random(1, 1) + 0.25 * random(2, 1)
    torch.testing.assert_close(mixed.predict(axes), expected.double(), rtol=1e-5, atol=1e-5)
    points = torch.rand(3, 2)
    both = mixed.fit.at(points), mixed.prediction.at(points)
    torch.testing.assert_close(mixed.at(points), 0.75 * both[0] + 0.25 * both[1])
