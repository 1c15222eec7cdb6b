"""Samplings, splits and protocols: exact values, properties, and what is refused."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pe_lightning.errors import InputError
from pe_lightning.signals import GridSampling, MaskSampling, RandomSampling, samplings
from pe_lightning.signals.blocks import grid_axes, point_coordinates
from pe_lightning.signals.splits import KEYS_AT_ONCE, chosen_positions, largest_chosen_key

grids = st.lists(st.integers(2, 9), min_size=1, max_size=3).map(tuple)
quick = settings(deadline=None, max_examples=50)


@st.composite
def grid_cases(draw):
    grid = draw(grids)
    stride = [draw(st.integers(1, size - 1)) for size in grid]
    offset = [draw(st.integers(0, min(s - 1, size - s - 1))) for s, size in zip(stride, grid, strict=True)]
    return grid, stride, offset


@st.composite
def blocks_of(draw, grid):
    ends = [sorted((draw(st.integers(0, n)), draw(st.integers(0, n)))) for n in grid]
    return tuple(slice(a, b) for a, b in ends)


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0,)])
def test_point_coordinates_follow_row_major_positions(shape):
    grid = (3, 5, 4)
    index = torch.randint(60, shape, generator=torch.Generator().manual_seed(0))
    positions = torch.unravel_index(index, grid)
    columns = [axis[along] for axis, along in zip(grid_axes(grid), positions, strict=True)]
    assert point_coordinates(grid_axes(grid), index).equal(torch.stack(columns, -1))


def check_split(split, grid, data):
    """Trained and held-out samples are disjoint and together everything, in the whole grid and in any block of it."""
    train, rest = split.train_mask(), split.test_mask("rest")
    assert train.shape == rest.shape
    assert train.shape[1:] == grid
    assert (train ^ rest).all()
    assert (train.flatten(1).sum(1) == split.num_train).all()
    block = data.draw(blocks_of(grid))
    for mask_of in (split.train_mask, *(lambda part=None, p=p: split.test_mask(p, part) for p in ("rest", "all"))):
        whole = mask_of()
        assert mask_of(block).equal(whole[(slice(None), *block)])
    if len(train) == 1:
        inside, index = split.train_index(block)
        assert inside.equal(train[0][block].flatten().nonzero()[:, 0])
        marked = torch.zeros(train[0].numel(), dtype=torch.bool)
        marked[index] = True
        assert marked.view(grid)[block].equal(train[0][block])
        assert marked.sum() == len(inside)
    return train


@quick
@given(grid_cases(), st.integers(1, 3), st.data())
def test_a_grid_trains_on_every_strideth_sample(case, channels, data):
    grid, stride, offset = case
    split = GridSampling(stride, offset).split(grid, 2)
    train = check_split(split, grid, data)
    expected = np.zeros(grid, bool)
    expected[tuple(slice(a, None, s) for a, s in zip(offset, stride, strict=True))] = True
    np.testing.assert_array_equal(train[0].numpy(), expected)
    values = torch.rand(2, *grid, channels)
    assert split.take(values).is_contiguous()
    assert split.take(values).flatten(1, -2).equal(values[:, train[0]])


@quick
@given(grids, st.floats(0.001, 1), st.integers(0, 2**40), st.integers(1, 4), st.booleans(), st.data())
def test_random_samples(grid, fraction, seed, signals, shared, data):
    sampling = RandomSampling(fraction, seed, shared)
    split, count = sampling.split(grid, signals), max(round(fraction * int(np.prod(grid))), 1)
    assert split.index.shape == (1 if shared else signals, count)
    assert (split.index.diff(dim=1) > 0).all(), "sorted, and without repetition"
    train = check_split(split, grid, data)
    values = torch.rand(signals, *grid, 2)
    for signal, taken in enumerate(split.take(values)):
        assert taken.equal(values[signal][train[0 if shared else signal]])
    if shared or signals == 1:
        unlisted = sampling.stream(grid, signals)
        assert check_split(unlisted, grid, data).equal(train)
        assert torch.cat(list(unlisted.train_indices), 1).equal(split.index)


def test_midpoints_are_halfway_between_trained_samples():
    split = GridSampling([4, 2], [1, 0]).split((10, 5), 1)
    rows, columns = np.arange(10) % 4 == 3, np.arange(5) % 2 == 1
    assert split.test_mask("midpoints")[0].numpy().tolist() == (rows[:, None] & columns).tolist()
    assert not (split.test_mask("midpoints") & split.train_mask()).any()
    two = GridSampling(2).split((7, 8), 1)
    assert two.test_mask("midpoints").equal(two.test_mask("odd"))
    for sampling in (GridSampling(3), RandomSampling()):
        with pytest.raises(InputError, match="'midpoints' needs sampling"):
            sampling.split((9, 9), 1).test_mask("midpoints")


def test_random_choices_are_the_same_for_ever():
    # written down once: other machines, processes and versions of NumPy must choose the same
    split = RandomSampling(0.25, seed=3).split((4, 8), 2)
    assert split.index.tolist() == [[0, 1, 4, 7, 9, 20, 28, 31], [0, 14, 15, 18, 19, 24, 28, 31]]
    assert RandomSampling(0.25, seed=3, shared=True).split((4, 8), 2).index.tolist() == [[0, 1, 4, 7, 9, 20, 28, 31]]
    assert chosen_positions(7, 2, 20, 5).tolist() == [6, 8, 10, 11, 14]


def test_random_choices_depend_on_seed_and_signal_alone():
    before = torch.get_rng_state()
    own = RandomSampling(seed=0).split((16, 16), 3).index
    assert torch.get_rng_state().equal(before)
    assert not own[0].equal(own[1])
    assert not any(a.equal(b) for a in own for b in RandomSampling(seed=1).split((16, 16), 3).index)
    assert RandomSampling().split((16, 16), 5).index[:3].equal(own), "a signal keeps its points when others join"
    small, large = (RandomSampling(fraction).split((32, 32), 1).train_mask() for fraction in (0.1, 0.3))
    assert (small & large).equal(small), "a smaller fraction is a subset"


def test_random_choices_are_uniform():
    counts = sum(RandomSampling(0.25, seed).split((8, 8), 1).train_mask()[0].int() for seed in range(400))
    # 64 binomial counts of 400 trials at 1/4: mean 100, standard deviation 8.7
    assert counts.float().mean() == 100
    assert counts.min() > 60
    assert counts.max() < 140


@pytest.mark.parametrize("count", [1, 2_000_000, KEYS_AT_ONCE + 3])
def test_the_largest_chosen_key_of_many_is_found_near_where_it_is_expected(count):
    size = KEYS_AT_ONCE + 3  # the extremes are the hardest
    keys = np.random.PCG64(np.random.SeedSequence((5, 1))).random_raw(size)
    assert largest_chosen_key(5, 1, size, count) == np.partition(keys, count - 1)[count - 1]


def test_a_count_instead_of_a_share():
    assert RandomSampling(count=15).split((5, 6), 1).index.equal(RandomSampling(0.5).split((5, 6), 1).index)
    assert RandomSampling(count=7, shared=True).stream((5, 6), 2).num_train == 7


@pytest.mark.parametrize(
    ("name", "arguments", "match"),
    [
        *(("grid", {"stride": s}, "stride must be an integer >= 1") for s in (0, 1.5, True, "2", [], [2, 0])),
        *(("grid", {"stride": 3, "offset": o}, "offset") for o in (3, -1, 0.5, [0, 3])),
        ("grid", {"stride": 5}, r"5x9 samples.* stride of at most 4"),
        ("grid", {"stride": [2, 9]}, "does not suit"),
        ("grid", {"stride": [2, 2, 2]}, "does not suit signals of 2 axes"),
        ("grid", {"stride": 3, "offset": [0, 1, 2]}, "one number or one per axis"),
        ("grid", {"stride": [2, 4], "offset": [3, 0]}, "offset must be less than its stride"),
        ("grid", {"stride": 4, "offset": 3}, "at least 2 samples"),
        *(("random", {"fraction": f}, r"fraction must be a number in \(0, 1\]") for f in (0, 1.01, float("nan"), "1")),
        *(("random", {"seed": s}, "seed must be an integer >= 0") for s in (-1, 1.5, None)),
        *(("random", {"count": c}, "count must be an integer >= 1") for c in (0, True)),
        ("random", {"shared": "yes"}, "shared must be true or false"),
        ("random", {"count": 46}, "more than the 45 samples"),
        ("mask", {}, "path is the mask file"),
        ("mask", {"path": "a.png", "invert": 1}, "invert must be true or false"),
        ("folds", {"kind": "rows"}, "folds.kind must be random or blocks"),
        ("folds", {"number": 1}, "folds.number must be an integer >= 2"),
        ("folds", {"fold": 5}, "folds count from 0 to 4"),
        ("folds", {"size": 3}, "size of blocks"),
        ("folds", {"kind": "blocks", "size": 5}, r"5 folds of 2 block\(s\) of 5x5 samples"),
        ("folds", {"kind": "blocks", "size": [3]}, "has 1 numbers for signals of 2 axes"),
        ("gird", {}, "unknown sampling 'gird'; did you mean 'grid'"),
    ],
)
def test_arguments_that_are_refused(name, arguments, match):
    with pytest.raises(InputError, match=match):
        samplings.create(name, **arguments).split((5, 9), 1)


def test_a_specification_is_plain_and_complete(tmp_path):
    mask = MaskSampling(["a.png", tmp_path / "b.png"], invert=True)
    assert mask.spec() == {"name": "mask", "path": ["a.png", str(tmp_path / "b.png")], "invert": True}
    assert RandomSampling().spec() == {"name": "random", "fraction": 0.25, "seed": 0, "shared": False, "count": None}
    for sampling in (GridSampling([2, 3]), RandomSampling(1, 7, True), GridSampling(np.int64(2)), mask):
        spec = json.loads(json.dumps(sampling.spec()))
        assert samplings.resolve(spec) == sampling
        assert hash(samplings.resolve(spec)) == hash(sampling)
    assert repr(GridSampling([2, 3])) == "GridSampling(stride=[2, 3], offset=0)"
    assert GridSampling() != "grid"


def save(path, mask):
    if path.suffix == ".npy":
        np.save(path, mask, allow_pickle=True)
    else:
        Image.fromarray(mask).save(path)
    return str(path)


def trained(path, grid=(5, 7), **arguments):
    return MaskSampling(path, **arguments).split(grid, 1).train_mask()[0].numpy()


@pytest.mark.parametrize("grid", [(35,), (3, 4, 5)])
@pytest.mark.parametrize("dtype", [bool, ">f8"])
def test_mask_arrays_of_any_number_of_axes(tmp_path, grid, dtype):
    mask = np.random.default_rng(0).random(grid) < 0.3
    path = save(tmp_path / "m ü.npy", np.asfortranarray((mask * 3).astype(dtype)))
    np.testing.assert_array_equal(trained(path, grid), mask)
    np.testing.assert_array_equal(trained(path, grid, invert=True), ~mask)


def test_mask_images(tmp_path):
    mask = np.random.default_rng(0).random((5, 7)) < 0.3
    red, drawn = np.zeros((5, 7, 3), np.uint8), np.full((5, 7, 4), 255, np.uint8)
    red[mask, 0] = 9
    drawn[..., 3] = mask * 255
    images = {"a.png": mask.astype(np.uint8), "b.bmp": mask * np.uint8(255), "c.png": red, "d.png": drawn, "e.png": mask}
    for name, image in images.items():
        np.testing.assert_array_equal(trained(save(tmp_path / name, image)), mask, err_msg=name)


def test_one_mask_per_signal(tmp_path):
    masks = np.zeros((3, 35), bool)
    for seed, mask in enumerate(masks):
        mask[np.random.default_rng(seed).choice(35, 8, replace=False)] = True
    paths = [save(tmp_path / f"{n}.npy", mask.reshape(5, 7)) for n, mask in enumerate(masks)]
    for given_as in (paths, str(tmp_path)):
        split = MaskSampling(given_as).split((5, 7), 3)
        np.testing.assert_array_equal(split.train_mask().numpy(), masks.reshape(3, 5, 7))
    assert MaskSampling(paths[:1]).split((5, 7), 3).index.shape == (1, 8)
    with pytest.raises(InputError, match=r"3 masks for 2 signal\(s\)"):
        MaskSampling(paths).split((5, 7), 2)
    with pytest.raises(InputError, match="the same trained samples; give one mask for all"):
        MaskSampling(paths).split((5, 7), 3).train_index((slice(0, 5), slice(0, 7)))
    save(tmp_path / "1.npy", np.ones((5, 7), bool))
    with pytest.raises(InputError, match=r"different numbers of samples that masks mark.*8: .*0.npy.*35: .*1.npy"):
        MaskSampling(paths).split((5, 7), 3)


@pytest.mark.parametrize(
    ("name", "mask", "match"),
    [
        ("a.npy", np.zeros((5, 7), bool), "marks no sample; set invert: true"),
        ("a.npy", np.ones((5, 8), bool), "has 5x8 samples, but the signals have 5x7"),
        ("a.npy", np.full((5, 7), np.nan), "NaN"),
        ("a.npy", np.array([[None]]), "Python objects"),
        ("a.jpg", np.ones((5, 7), np.uint8), "marks no sample"),  # below half of the range
        ("a.png", np.ones((7, 5), np.uint8), "has 7x5 samples"),
    ],
)
def test_bad_masks(tmp_path, name, mask, match):
    with pytest.raises(InputError, match=match):
        trained(save(tmp_path / name, mask))
