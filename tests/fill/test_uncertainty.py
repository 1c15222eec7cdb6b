"""Standard deviations that are calibrated by the errors of another fit."""

from __future__ import annotations

import pytest
import torch
from fits import signals

from pe_fill.adaptive.bank import AnisotropicKernels
from pe_fill.adaptive.linear_spread import uncertainty_of_grid
from pe_fill.adaptive.points import RIDGE, AdaptivePoints
from pe_lightning.errors import InputError
from pe_lightning.estimators import LinearRidge
from pe_lightning.training import TensorDataModule


def of_points(values, coords, side, refit) -> AdaptivePoints:  # type: ignore[no-untyped-def]
    bank = AnisotropicKernels("laplace", 2, 0, ())
    return AdaptivePoints(bank, values, coords, (side, side), 0.8, RIDGE, False, refit=refit)


def test_standard_deviations_are_as_large_as_the_errors_of_the_fit() -> None:
    """Errors of a normal distribution, the same everywhere, and errors that are three times as large."""
    random = torch.Generator().manual_seed(0)
    values, coords = torch.rand(600, 1, generator=random), torch.rand(600, 2, generator=random)
    errors, places = 0.2 * torch.randn(600, 1, generator=random), torch.rand(50, 2, generator=random).double()
    found = [of_points(values, coords, 20, lambda _, held, size=size: (values + size * errors)[held]) for size in (1, 3)]
    one, three = (spread.std(places) for spread in found)
    torch.testing.assert_close(three, 3 * one, rtol=1e-4, atol=0)
    assert 0.16 < float(one.square().mean().sqrt()) < 0.25


def test_errors_on_a_grid_are_extrapolated_by_half_of_their_change_with_the_distance() -> None:
    random = torch.Generator().manual_seed(0)
    values, errors = torch.rand(32, 32, 1, generator=random), 0.2 * torch.randn(1024, 1, generator=random)
    coords, places = torch.cartesian_prod(*[torch.arange(32) / 32] * 2), torch.rand(50, 2, generator=random).double()

    def std(change: float) -> torch.Tensor:
        """Errors at four spacings are ``change`` times those at two."""

        def refit(step: tuple[int, ...], held: torch.Tensor) -> torch.Tensor:
            return (values.reshape(-1, 1) + errors * (change if step[0] == 4 else 1))[held]

        return uncertainty_of_grid(values, coords, (32, 32), refit, False).std(places)

    torch.testing.assert_close(std(1.21) * 1.1, std(1.0), rtol=1e-4, atol=0)


def test_errors_in_wide_gaps_are_those_of_the_fit_without_cubes_as_wide() -> None:
    """A fit whose errors are larger by ``change`` where cubes of samples are held out."""
    random = torch.Generator().manual_seed(0)
    missing = (torch.rand(12, 12, generator=random) < 0.25).repeat_interleave(5, 0).repeat_interleave(5, 1)
    coords = torch.cartesian_prod(torch.arange(60) / 60, torch.arange(60) / 60)
    known, gaps = coords[~missing.flatten()], coords[missing.flatten()][::16].double()
    values, errors = torch.rand(len(known), 1, generator=random), 0.2 * torch.randn(len(known), 1, generator=random)

    def std(change: float) -> torch.Tensor:
        def refit(others: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
            assert len(others) + len(held) <= len(known)
            is_cubes = known[held].unique(dim=0).diff(dim=0).abs().sum(1).lt(1.5 / 60).float().mean() > 0.5
            return (values + (change if is_cubes else 1) * errors)[held]

        return of_points(values, known, 60, refit).std(gaps)

    torch.testing.assert_close(std(3.0), 3 * std(1.0), rtol=1e-4, atol=0)
    assert 0.12 < float(std(1.0).square().mean().sqrt()) < 0.4


def test_linear_fits_of_one_signal_have_deviations() -> None:
    """Of points, and of cells."""
    for samples in ("points", "cells"):
        data = TensorDataModule(signals(2, 24, 20), samples=samples)
        assert LinearRidge("gau").fit(data.signals.select(slice(1))).std(torch.rand(5, 2)).isfinite().all()
        with pytest.raises(InputError, match="ComplexLinear has standard deviations of one signal"):
            LinearRidge("gau").fit(data.signals).std(torch.rand(3, 2))
