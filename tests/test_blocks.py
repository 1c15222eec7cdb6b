"""Boxes of a grid."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from pe_lightning import blocks
from pe_lightning.blocks import shape_of, tiles, whole
from pe_lightning.errors import InputError


def test_examples():
    assert doctest.testmod(blocks).failed == 0


@pytest.mark.parametrize(("grid", "tile"), [((7,), (3,)), ((7, 4), (2, 9)), ((5, 4, 3), (2, 2, 3))])
def test_tiles_cover_the_grid_once_and_in_order(grid, tile):
    seen = np.zeros(grid, int)
    boxes = list(tiles(grid, tile))
    for box in boxes:
        assert seen[box].shape == shape_of(box)
        seen[box] += 1
    assert (seen == 1).all()
    firsts = [tuple(part.start for part in box) for box in boxes]
    assert firsts == sorted(firsts)
    assert list(tiles(grid, grid)) == [whole(grid)]


@pytest.mark.parametrize("tile", [(3,), (3, 0)])
def test_tiles_that_are_refused(tile):
    with pytest.raises(InputError, match="one size >= 1 per axis of the grid"):
        list(tiles((5, 4), tile))
