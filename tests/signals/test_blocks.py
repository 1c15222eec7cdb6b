"""Blocks of a grid, and values that are read block by block."""

from __future__ import annotations

import pickle

import h5py
import numpy as np
import pytest
import torch

from pe_lightning.errors import InputError
from pe_lightning.signals.blocks import file_blocks, grid_blocks, load, shape_of, whole_grid
from pe_lightning.signals.raw import RawSignals, ValueRange


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
    assert list(grid_blocks(grid, grid)) == [whole_grid(grid)]


def raw_of(values: np.ndarray, scaling: ValueRange, array=None) -> RawSignals:
    return RawSignals(values if array is None else array, tuple(f"s{i}" for i in range(len(values))), scaling)


@pytest.mark.parametrize(
    ("dtype", "scaling"),
    [
        ("uint8", ValueRange.of_integers("uint8")),
        ("int16", ValueRange.of_integers("int16")),
        ("float64", ValueRange("float64", (-3.0, 0.0), (5.0, 2.0))),
        ("float32", ValueRange("float32")),
    ],
)
def test_blocks_of_a_file_are_those_of_what_is_loaded(dtype, scaling):
    array = np.random.default_rng(0).integers(0, 3, (2, 7, 5, 3)).astype(dtype)
    array.flags.writeable = False
    raw = raw_of(array, scaling)
    whole = load(raw)
    assert whole.dtype == torch.float32
    for signal in range(2):
        low, high = scaling.limits(signal)
        np.testing.assert_allclose(whole[signal], (array[signal].astype(float) - low) / (high - low), rtol=1e-6)
    raw = pickle.loads(pickle.dumps(raw))
    block = (slice(2, 6), slice(1, 4))
    np.testing.assert_array_equal(raw.read(block), whole[:, 2:6, 1:4])
    np.testing.assert_array_equal(raw.read(block, (3, 2)), whole[:, 2:6:3, 1:4:2])
    raw.read(block)[:] = 0
    assert torch.from_numpy(raw.read(block)).equal(whole[:, 2:6, 1:4]), "what is read is the reader's own"


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_values_that_are_not_finite_are_found_where_they_are_read(bad):
    array = np.zeros((1, 6, 4, 1), np.float32)
    array[0, 5, 3, 0] = bad
    values = raw_of(array, ValueRange("float32"))
    values.read((slice(0, 5), slice(0, 4)))
    with pytest.raises(InputError, match=r"the block that starts at sample \[4, 2\] holds missing samples"):
        values.read((slice(4, 6), slice(2, 4)))


@pytest.mark.parametrize("limit", [1, 100, 10**9])
@pytest.mark.parametrize("chunks", [(1, 9, 5), (4, 4, 5), (11, 9, 5)])
def test_blocks_cover_the_grid_once_and_follow_the_chunks(chunks, limit):
    grid = (11, 9, 5)
    seen = np.zeros(grid, int)
    for block in file_blocks(grid, chunks, 4, limit):
        seen[block] += 1
        for part, chunk, n in zip(block, chunks, grid, strict=True):
            assert part.start % chunk == 0
            assert part.stop % chunk == 0 or part.stop == n
        assert seen[block].size * 4 <= max(limit, 4 * int(np.prod(chunks)))
    assert (seen == 1).all()


def test_the_chunks_of_a_file(tmp_path):
    array = np.zeros((1, 8, 6, 1), np.float32)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=array, chunks=(1, 2, 3, 1))
        assert raw_of(array, ValueRange("float32"), array=file["x"]).chunks == (2, 3)
    assert raw_of(array, ValueRange("float32")).chunks == (1, 6)
