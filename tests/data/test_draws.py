"""Random samples of a grid, whole and in parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pe_lightning.data import GridSampling, RandomSampling
from pe_lightning.data.draws import CHUNK, draw, drawn_in, threshold


def test_a_draw_is_the_same_for_ever():
    # seeds mean the same samples in every version: these were drawn by the first one
    assert draw(0, 0, 20, 5).tolist() == [2, 3, 11, 13, 15]
    assert draw(7, 2, 20, 5).tolist() == [6, 8, 10, 11, 14]


@pytest.mark.parametrize(("size", "count"), [(1, 1), (10, 10), (1000, 1), (1000, 250), (CHUNK + 3, CHUNK // 3)])
def test_the_threshold_is_the_counted_key(size, count):
    keys = np.random.PCG64(np.random.SeedSequence((5, 1))).random_raw(size)
    assert threshold(5, 1, size, count) == np.sort(keys)[count - 1]
    found = draw(5, 1, size, count)
    assert len(found) == count
    assert (np.diff(found) > 0).all()


@pytest.mark.parametrize("count", [1, 2_000_000, 2 * CHUNK + 10, 2 * CHUNK + 11])
def test_the_threshold_of_many_keys_keeps_few(count, monkeypatch):
    # 24 million bytes of keys, looked for near where they are expected; the extremes are the hardest
    size = 2 * CHUNK + 11
    keys = np.random.PCG64(np.random.SeedSequence((5, 1))).random_raw(size)
    assert threshold(5, 1, size, count) == np.partition(keys, count - 1)[count - 1]


@pytest.mark.parametrize(
    "box",
    [
        (slice(2, 7), slice(3, 9), slice(1, 5)),
        (slice(2, 7), slice(0, 17), slice(0, 9)),
        (slice(2, 3), slice(1, 9), slice(0, 9)),
        (slice(0, 13), slice(0, 17), slice(0, 9)),
        (slice(12, 13), slice(16, 17), slice(8, 9)),
    ],
)
def test_a_part_of_a_grid_has_the_samples_of_the_whole(box):
    grid = (13, 17, 9)
    sampling = RandomSampling(0.3, seed=3, shared=True)
    whole, parts = sampling.split(grid, 1), sampling.stream(grid, 1)
    assert parts.num_train == whole.num_train
    index = (slice(None), *box)
    assert parts.train_mask_of(box).equal(whole.train_mask()[index])
    assert whole.train_mask_of(box).equal(whole.train_mask()[index])
    assert parts.test_mask_of("rest", box).equal(~whole.train_mask()[index])
    assert drawn_in(3, 0, parts.limit, grid, box).sum() == whole.train_mask()[index].sum()


def test_fingerprints_do_not_tell_lists_from_draws():
    sampling = RandomSampling(0.3, seed=3)
    whole, parts = sampling.split((50, 40), 1), sampling.stream((50, 40), 1)
    assert torch.cat(list(parts.train_indices), 1).equal(torch.cat(list(whole.train_indices), 1))


@pytest.mark.parametrize("protocol", ["rest", "odd", "all", "none"])
def test_masks_of_parts_of_a_training_grid(protocol):
    split = GridSampling(2).split((7, 9), 3)
    box = (slice(1, 6), slice(2, 9))
    assert split.test_mask_of(protocol, box).equal(split.test_mask(protocol)[:, 1:6, 2:9])
    assert split.train_mask_of(box).equal(split.train_mask()[:, 1:6, 2:9])
