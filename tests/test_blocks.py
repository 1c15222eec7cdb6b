"""Boxes of a grid."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from pe_lightning import blocks as tiling
from pe_lightning.blocks import shape_of, tiles, whole
from pe_lightning.errors import InputError


def test_examples():
    assert doctest.testmod(tiling).failed == 0


@pytest.mark.parametrize(("grid", "tile"), [((7,), (3,)), ((7, 4), (2, 9)), ((5, 4, 3), (2, 2, 3))])
def test_tiles_cover_the_grid_once_and_in_order(grid, tile):
    seen = np.zeros(grid, int)
    boxes = list(tiles(grid, tile))
    for box in boxes:
        assert seen[box].shape == shape_of(box)
        assert all(0 < size <= limit for size, limit in zip(shape_of(box), tile, strict=True))
        seen[box] += 1
    assert (seen == 1).all()
    firsts = [tuple(part.start for part in box) for box in boxes]
    assert firsts == sorted(firsts)


def test_the_box_of_everything():
    assert list(tiles((5, 4), (5, 4))) == [whole((5, 4))]
    assert shape_of(whole((5, 4))) == (5, 4)
    assert shape_of(whole((0, 4))) == (0, 4)


@pytest.mark.parametrize("tile", [(3,), (3, 0), (3, 3, 3), (3, -1)])
def test_tiles_that_are_refused(tile):
    with pytest.raises(InputError, match="one size >= 1 per axis of the grid"):
        list(tiles((5, 4), tile))
