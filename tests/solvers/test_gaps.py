"""Wide gaps told apart from random missing samples."""

import numpy as np
import pytest

from pe_lightning.solvers.gaps import has_wide_gaps, mean_distance


@pytest.mark.parametrize("share", [0.1, 0.7])
@pytest.mark.parametrize("grid", [(120,), (24, 48), (320, 300), (12, 12, 18)])
def test_gaps_are_wide_if_samples_are_missing_in_cubes_and_not_if_they_are_random(grid, share):
    """Random numbers of another seed; one of the grids is larger than the one on which random samples are drawn."""
    coarse = np.random.default_rng(3).permutation(int(np.prod([n // 6 for n in grid]))) < share * np.prod(grid) / 6 ** len(
        grid
    )
    cubes = coarse.reshape([n // 6 for n in grid])
    for axis in range(len(grid)):
        cubes = cubes.repeat(6, axis)
    random = np.random.default_rng(4).permutation(cubes.flatten()).reshape(cubes.shape)
    for missing, wide in ((cubes, True), (random, False)):
        assert has_wide_gaps(mean_distance(missing), float(missing.mean()), missing.shape) == wide


@pytest.mark.parametrize("share", [0.0, 1e-9, 1.0])
def test_none_a_single_one_or_all_samples_missing_are_no_wide_gap(share):
    assert not has_wide_gaps(1.0 if 0 < share < 1 else 0.0, share, (20, 20))
