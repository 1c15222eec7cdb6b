"""The weight of a prediction that is mixed with a fit: known mixtures are found, and no weight where nothing supports it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pe_lightning.solvers.prior_weight import WEIGHT_OFFSET, WEIGHT_PER_OCTAVE, WEIGHT_SLOPE, MixedGrid, held_out_weight

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


def test_independent_errors_have_the_weights_of_their_variances():
    found = weight(lambda s: random(1, 0.2), lambda s: random(2, 0.1))
    assert found == pytest.approx(final(0.8), abs=0.05)


def test_the_weight_follows_how_much_less_both_differ_at_the_spacing_itself():
    for factor, octaves in ((0.5, -2), (1.5, 1.17)):
        found = weight(
            lambda s, f=factor: random(1, 0.2 * (f if s < 4 else 1)),
            lambda s, f=factor: random(2, 0.2 * (f if s < 4 else 1)),
        )
        assert found == pytest.approx(final(0.5, octaves), abs=0.08)


def test_a_weight_that_falls_towards_smaller_spacings_is_reduced_where_larger_ones_explain_little():
    def falling(scale: float) -> float:  # 0.5 at twice and more at four times the spacing
        at_four = lambda s: random(1, scale if s > 4 else 0.2)  # noqa: E731
        return weight(at_four, lambda s: random(2, 0.2))

    assert falling(0.2) == pytest.approx(final(0.5), abs=0.05)
    assert falling(0.8) == pytest.approx(final(0.5 - 0.64 * (0.94 - 0.5)), abs=0.08)
    assert falling(1.2) == 0  # the fit explains nothing
    rising = weight(lambda s: random(1, 0.2), lambda s: random(2, 0.4 if s > 4 else 0.2))
    assert rising == pytest.approx(final(0.5), abs=0.05)


def test_no_weight_where_the_fit_is_better_or_explains_nothing_or_samples_are_few():
    assert weight(lambda s: random(1, 0.1), lambda s: random(1, 0.3)) == 0
    assert weight(lambda s: random(1, 1.0), lambda s: random(2, 0.1)) == 0
    oscillates = weight(lambda s: random(1, 0.2 if s > 4 else 1.0), lambda s: random(2, 0.1))  # not shown at four times
    assert oscillates == 0
    few = torch.rand(15, 40, 1)
    assert held_out_weight(*many(few), few, (15, 40), (0, 0), (1, 1)) == 0


def test_constant_samples_have_a_finite_mixture():
    flat = torch.full((*GRID, 1), 0.5)
    found = held_out_weight(*many(flat), flat, GRID, (0, 0), (1, 1))
    assert found == 0


def test_a_mixture_is_between_its_fields():
    mixed = MixedGrid(Flawed(random(0, 1), random(1, 1)), Flawed(random(0, 1), random(2, 1)), 0.25, random(0, 1))
    axes = [torch.arange(n) / n for n in GRID]
    expected = random(0, 1) + 0.75 * random(1, 1) + 0.25 * random(2, 1)
    torch.testing.assert_close(mixed.predict(axes), expected.double(), rtol=1e-5, atol=1e-5)
    points = torch.rand(3, 2)
    both = mixed.fit.at(points), mixed.prediction.at(points)
    torch.testing.assert_close(mixed.at(points), 0.75 * both[0] + 0.25 * both[1])
