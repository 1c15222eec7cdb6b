"""Boxes of a grid."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from pe_lightning.errors import InputError
from pe_lightning.signals import blocks
from pe_lightning.signals.blocks import grid_blocks, shape_of, whole


def test_examples():
    assert doctest.testmod(blocks).failed == 0


@pytest.mark.parametrize(("grid", "size"), [((7,), (3,)), ((7, 4), (2, 9)), ((5, 4, 3), (2, 2, 3))])
def test_blocks_cover_the_grid_once_and_in_order(grid, size):
    seen = np.zeros(grid, int)
    blocks = list(grid_blocks(grid, size))
    for block in blocks:
        assert seen[block].shape == shape_of(block)
        seen[block] += 1
    assert (seen == 1).all()
    firsts = [tuple(part.start for part in block) for block in blocks]
    assert firsts == sorted(firsts)
    assert list(grid_blocks(grid, grid)) == [whole(grid)]


@pytest.mark.parametrize("size", [(3,), (3, 0)])
def test_blocks_that_are_refused(size):
    with pytest.raises(InputError, match="one size >= 1 per axis of the grid"):
        list(grid_blocks((5, 4), size))
