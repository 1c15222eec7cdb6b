"""The network that divides cells: means over parts, turned pictures, steps of larger factors."""

from __future__ import annotations

import pytest
import torch

from pe_fill.estimators.priors import read_prior, shipped_file
from pe_fill.networks.cells import CellPrior
from pe_lightning.errors import InputError


@pytest.mark.parametrize("factors", [(2, 2), (3, 3), (4, 4), (6, 6), (1, 2)])
def test_means_over_the_parts_are_the_cells_and_turned_pictures_have_turned_results(factors: tuple[int, int]) -> None:
    prior, values = read_prior("pictures", "cells"), torch.rand(9, 11, 2, generator=torch.Generator().manual_seed(0))
    shares: list[float] = []
    found = prior.enlarge(values, factors, shares.append)
    assert found.shape == (9 * factors[0], 11 * factors[1], 2)
    assert shares[-1] == 1
    torch.testing.assert_close(found.reshape(9, factors[0], 11, factors[1], 2).mean((1, 3)), values)
    turned = prior.enlarge(values.flip(0).transpose(0, 1), (factors[1], factors[0]))
    torch.testing.assert_close(turned, found.flip(0).transpose(0, 1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(prior.enlarge(1 - values, factors), 1 - found, atol=1e-5, rtol=1e-5)


def test_factors_without_a_network_have_no_steps() -> None:
    prior = CellPrior([2, 3], width=4)
    assert [prior.steps(factor) for factor in (2, 3, 4, 6, 8, 5)] == [[2], [3], [2, 2], [3, 2], [2, 2, 2], []]


def test_a_network_for_points_is_refused_for_cells() -> None:
    with pytest.raises(InputError, match="is not for samples that are cells"):
        read_prior(str(shipped_file("pictures")), "cells")
    with pytest.raises(InputError, match="is not for samples that are points"):
        read_prior(str(shipped_file("cells")))
