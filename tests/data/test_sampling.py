"""Samplings, splits and protocols: exact values, properties, and what is refused."""

import json
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_lightning.data.coordinates import grid_axes, point_coordinates, row_major, unravelled
from pe_lightning.data.sampling import GridSampling, RandomSampling, Sampling, resolve, samplings
from pe_lightning.data.splits import GridSplit, PointSplit
from pe_lightning.errors import InputError

grids = st.lists(st.integers(2, 9), min_size=1, max_size=3).map(tuple)
quick = settings(deadline=None, max_examples=60)


@st.composite
def grid_cases(draw):
    grid = draw(grids)
    return grid, [draw(st.integers(1, size - 1)) for size in grid]


# -- coordinates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 7, 100, 512, 1000, 4099])
def test_coordinates_are_those_of_the_papers_and_never_reach_one(size):
    (axis,) = grid_axes([size])
    expected = (np.arange(size, dtype=np.float64) / size).astype(np.float32)
    np.testing.assert_array_equal(axis.numpy(), expected)
    np.testing.assert_allclose(axis.numpy(), np.linspace(0, 1, size + 1)[:-1], atol=1e-7)
    assert axis.dtype == torch.float32
    assert axis.max() < 1


def test_point_coordinates_follow_row_major_positions():
    axes = grid_axes((2, 4))
    coords = point_coordinates(axes, torch.tensor([[0, 3], [5, 7]]))
    assert coords.tolist() == [[[0, 0], [0, 0.75]], [[0.5, 0.25], [0.5, 0.75]]]
    assert grid_axes((2,), torch.float64)[0].dtype == torch.float64


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0,)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_row_major_positions_and_those_along_the_axes(shape, dtype):
    grid = (3, 5, 4)
    index = torch.randint(60, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    along = list(unravelled(index, grid))
    assert all(a.equal(b) and a.dtype == dtype for a, b in zip(along, torch.unravel_index(index, grid), strict=True))
    assert row_major(along, grid).equal(index)
    assert point_coordinates(grid_axes(grid), index).shape == (*shape, 3)


# -- grid -----------------------------------------------------------------------------------------------------


def test_grid_of_stride_two_by_hand():
    split = GridSampling(2).split((5, 4), 3)
    assert isinstance(split, GridSplit)
    assert [index.tolist() for index in split.index] == [[0, 2, 4], [0, 2]]
    assert split.num_train == 6
    assert split.train_mask().int().tolist() == [[[1, 0, 1, 0], [0] * 4, [1, 0, 1, 0], [0] * 4, [1, 0, 1, 0]]]
    assert split.test_mask("odd").int().tolist() == [[[0] * 4, [0, 1, 0, 1], [0] * 4, [0, 1, 0, 1], [0] * 4]]
    assert split.test_mask("all").all()
    assert not split.test_mask("none").any()
    assert split.test_mask("none").shape == split.test_mask("all").shape == (1, 5, 4)


@quick
@given(grid_cases())
def test_grid_train_and_rest_are_disjoint_and_everything(case):
    grid, stride = case
    split = GridSampling(stride).split(grid, 2)
    train, rest = split.train_mask(), split.test_mask("rest")
    assert train.shape == rest.shape == (1, *grid)
    assert not (train & rest).any()
    assert (train | rest).all()
    assert train.sum() == split.num_train == np.prod([-(-n // s) for n, s in zip(grid, stride, strict=True)])
    expected = np.zeros(grid, bool)
    expected[tuple(slice(None, None, s) for s in stride)] = True
    np.testing.assert_array_equal(train[0].numpy(), expected)


@quick
@given(st.lists(st.integers(3, 9), min_size=1, max_size=3).map(tuple))
def test_odd_is_within_rest(grid):
    split = GridSampling(2).split(grid, 1)
    odd, rest = split.test_mask("odd"), split.test_mask("rest")
    assert (odd & rest).equal(odd)
    assert odd.sum() == np.prod([n // 2 for n in grid])


@quick
@given(grid_cases(), st.integers(1, 3))
def test_grid_takes_what_its_mask_marks(case, channels):
    grid, stride = case
    values = torch.rand(2, *grid, channels)
    split = GridSampling(stride).split(grid, 2)
    taken = split.take(values)
    assert taken.is_contiguous()
    assert taken.flatten(1, -2).equal(values[:, split.train_mask()[0]])


@pytest.mark.parametrize("stride", [1, 3, [2, 3]])
def test_odd_needs_a_stride_of_two(stride):
    with pytest.raises(InputError, match=r"protocol 'odd'.* stride is .*set sampling: \{name: grid, stride: 2\}"):
        GridSampling(stride).split((9, 9), 1).test_mask("odd")
    with pytest.raises(InputError, match=r"protocol 'odd' needs sampling: \{name: grid, stride: 2\}"):
        RandomSampling().split((9, 9), 1).test_mask("odd")
    assert GridSampling([2, 2]).split((9, 9), 1).test_mask("odd").any()


@pytest.mark.parametrize("stride", [0, -1, 1.5, True, "2", None, [], [2, 0], [2, True]])
def test_strides_that_are_none(stride):
    with pytest.raises(InputError, match="stride must be an integer >= 1"):
        GridSampling(stride)


@pytest.mark.parametrize(
    ("stride", "parts"),
    [
        (5, ["stride 5x5", "5x9 samples", "at most [4, 8]"]),
        ([2, 9], ["stride 2x9", "5x9 samples"]),
        ([2, 2, 2], ["for 3 axes", "have 2 (5x9 samples)", "one number or 2"]),
    ],
)
def test_strides_that_do_not_suit_the_grid(stride, parts):
    with pytest.raises(InputError) as error:
        GridSampling(stride).split((5, 9), 1)
    for part in parts:
        assert part in str(error.value)


# -- random ---------------------------------------------------------------------------------------------------


@quick
@given(grids, st.floats(0.001, 1), st.integers(0, 2**40), st.integers(1, 4), st.booleans())
def test_random_train_and_rest_are_disjoint_and_everything(grid, fraction, seed, signals, shared):
    split = RandomSampling(fraction, seed, shared).split(grid, signals)
    size = int(np.prod(grid))
    count = max(round(fraction * size), 1)
    assert isinstance(split, PointSplit)
    assert split.index.shape == (1 if shared else signals, count)
    assert split.index.dtype == torch.int64
    assert (split.index.diff(dim=1) > 0).all()  # sorted, and without repetition
    assert split.index.min() >= 0
    assert split.index.max() < size
    train, rest = split.train_mask(), split.test_mask("rest")
    assert train.shape == rest.shape == (1 if shared else signals, *grid)
    assert not (train & rest).any()
    assert (train | rest).all()
    assert (train.flatten(1).sum(1) == count).all()
    values = torch.rand(signals, *grid, 2)
    taken = split.take(values)
    for signal in range(signals):
        mask = train[0 if shared else signal]
        assert taken[signal].equal(values[signal][mask])


def test_random_draws_are_the_same_for_ever():
    # written down once: other machines, processes and versions of NumPy must draw the same
    split = RandomSampling(0.25, seed=3).split((4, 8), 2)
    assert split.index.tolist() == [[0, 1, 4, 7, 9, 20, 28, 31], [0, 14, 15, 18, 19, 24, 28, 31]]
    assert RandomSampling(0.25, seed=3, shared=True).split((4, 8), 2).index.tolist() == [[0, 1, 4, 7, 9, 20, 28, 31]]


def test_random_draws_do_not_touch_or_read_global_state():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = RandomSampling(seed=5).split((16, 16), 3).index
    assert torch.get_rng_state().equal(before)
    torch.manual_seed(1)
    assert RandomSampling(seed=5).split((16, 16), 3).index.equal(first)


def test_random_draws_differ_between_signals_and_seeds():
    own = RandomSampling(seed=0).split((16, 16), 3).index
    assert not own[0].equal(own[1])
    assert not own[1].equal(own[2])
    other = RandomSampling(seed=1).split((16, 16), 3).index
    assert not any(a.equal(b) for a in own for b in other)


def test_a_signal_keeps_its_points_when_others_join():
    assert RandomSampling().split((16, 16), 5).index[:2].equal(RandomSampling().split((16, 16), 2).index)


def test_a_smaller_fraction_is_a_subset():
    small, large = (RandomSampling(fraction).split((32, 32), 1).train_mask() for fraction in (0.1, 0.3))
    assert (small & large).equal(small)


def test_random_draws_are_uniform():
    counts = sum(RandomSampling(0.25, seed).split((8, 8), 1).train_mask()[0].int() for seed in range(400))
    # 64 binomial counts of 400 trials at 1/4: mean 100, standard deviation 8.7
    assert counts.float().mean() == 100
    assert counts.min() > 60
    assert counts.max() < 140


def test_masks_of_sixteen_photographs_are_fast():
    start = time.perf_counter()
    RandomSampling().split((512, 512), 16).test_mask("rest")
    assert time.perf_counter() - start < 2  # 0.1 s on an idle machine


@pytest.mark.parametrize("fraction", [0, -0.1, 1.01, 25, float("nan"), float("inf"), "0.5", True, None])
def test_fractions_that_are_none(fraction):
    with pytest.raises(InputError, match=r"fraction is the trained share of the samples, in \(0, 1\].*fraction: 0.25"):
        RandomSampling(fraction)


def test_other_arguments_of_random():
    for seed in (-1, 1.5, None, True):
        with pytest.raises(InputError, match="seed must be an integer >= 0"):
            RandomSampling(seed=seed)
    with pytest.raises(InputError, match="shared must be true or false, got 'yes'"):
        RandomSampling(shared="yes")


# -- by name --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_as", "expected"),
    [
        ("grid", GridSampling(2)),
        ("random", RandomSampling(0.25, 0, False)),
        ("GridSampling", GridSampling(2)),
        ("pe_lightning.data.sampling.RandomSampling", RandomSampling()),
        ({"name": "grid", "stride": [2, 3]}, GridSampling([2, 3])),
        ({"name": "random", "fraction": 0.5, "shared": True}, RandomSampling(0.5, shared=True)),
        ({"class_path": "RandomSampling", "init_args": {"seed": 4}}, RandomSampling(seed=4)),
        (GridSampling(5), GridSampling(5)),
    ],
)
def test_resolve(given_as, expected):
    assert resolve(given_as) == expected
    assert hash(resolve(given_as)) == hash(expected)


@pytest.mark.parametrize(
    ("given_as", "match"),
    [
        ("gird", "unknown sampling 'gird'; did you mean 'grid'"),
        ({"name": "grid", "strid": 3}, "no argument 'strid'; did you mean 'stride'"),
        ({"stride": 3}, "a mapping with a 'name' such as {name: grid, stride: 2}"),
        (3, "got 3"),
    ],
)
def test_resolve_refuses(given_as, match):
    with pytest.raises(InputError) as error:
        resolve(given_as)
    assert match in str(error.value)


@pytest.mark.parametrize(
    "sampling", [GridSampling(3), GridSampling([2, 3]), RandomSampling(1, 7, True), GridSampling(np.int64(2))]
)
def test_spec_is_plain_complete_and_can_be_resolved(sampling):
    spec = json.loads(json.dumps(sampling.spec()))
    assert resolve(spec) == sampling
    assert set(spec) == {"name", *samplings.parameters(type(sampling))}


def test_spec_examples():
    assert GridSampling().spec() == {"name": "grid", "stride": 2, "offset": 0}
    assert RandomSampling().spec() == {"name": "random", "fraction": 0.25, "seed": 0, "shared": False, "count": None}
    assert repr(GridSampling([2, 3])) == "GridSampling(stride=[2, 3], offset=0)"
    assert GridSampling() != "grid"


@pytest.mark.parametrize("name", samplings.names())
def test_every_sampling_is_typed_and_documented(name):
    cls = samplings.get(name)
    assert issubclass(cls, Sampling)
    for argument, parameter in samplings.parameters(cls).items():
        assert parameter.annotation is not parameter.empty
        assert parameter.default is not parameter.empty
        assert f"{argument}: " in cls.__doc__


def test_unknown_protocol():
    with pytest.raises(InputError, match=r"unknown protocol 'rst'; did you mean 'rest'.* Protocols: rest, odd, all, none"):
        GridSampling().split((4, 4), 1).test_mask("rst")


@pytest.mark.parametrize(("offset", "first"), [(1, [1, 1]), ([0, 2], [0, 2]), (0, [0, 0])])
def test_an_offset_moves_the_grid(offset, first):
    split = GridSampling(3, offset).split((10, 9), 2)
    assert [index.tolist() for index in split.index] == [list(range(a, n, 3)) for a, n in zip(first, (10, 9), strict=True)]
    assert split.train_mask().sum() == split.num_train
    box = (slice(2, 8), slice(1, 9))
    assert split.train_mask_of(box).equal(split.train_mask()[:, 2:8, 1:9])
    values = torch.rand(2, 10, 9, 1)
    assert split.take(values).equal(values[:, first[0] :: 3, first[1] :: 3])


@pytest.mark.parametrize("offset", [3, -1, 0.5, True, [0, 3], []])
def test_offsets_that_are_refused(offset):
    with pytest.raises(InputError, match="offset is the first trained sample"):
        GridSampling(3, offset)


def test_an_offset_that_does_not_suit():
    with pytest.raises(InputError, match=r"offset .* is for 3 axes"):
        GridSampling(3, [0, 1, 2]).split((9, 9), 1)
    with pytest.raises(InputError, match="fewer than 2 trained samples"):
        GridSampling(5, 4).split((9, 12), 1)
    with pytest.raises(InputError, match="the offset trains on them"):
        GridSampling(2, 1).split((9, 9), 1).test_mask("odd")


def test_a_count_instead_of_a_share():
    assert RandomSampling(count=7).split((5, 6), 2).index.shape == (2, 7)
    assert RandomSampling(count=15).split((5, 6), 1).index.equal(RandomSampling(0.5).split((5, 6), 1).index)
    assert RandomSampling(count=7, shared=True).stream((5, 6), 2).num_train == 7
    with pytest.raises(InputError, match="more than the 30 samples"):
        RandomSampling(count=31).split((5, 6), 1)
    for count in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="count must be an integer >= 1"):
            RandomSampling(count=count)
