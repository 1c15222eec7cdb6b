"""Values in memory and in files, and the boxes in which files are read."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from pe_lightning.data.signals import RawSignals, Scaling
from pe_lightning.data.values import FileValues, boxes, load
from pe_lightning.errors import InputError


def raw_of(array: np.ndarray, scaling: Scaling, unit: bool = False) -> RawSignals:
    return RawSignals(
        tuple(f"s{i}" for i in range(len(array))), array.shape[1:-1], array.shape[-1], str(array.dtype), scaling, unit,
        blocks=lambda: (part for signal in array for part in np.array_split(signal, 3)), array=lambda: array,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "scaling"),
    [
        ("uint8", Scaling.of_integers("uint8")),
        ("int16", Scaling.of_integers("int16")),
        ("float64", Scaling("float64", (-3.0, 0.0), (5.0, 2.0))),
        ("float32", Scaling("float32")),
    ],
)
def test_boxes_of_a_file_are_parts_of_what_is_loaded(dtype, scaling):
    generator = np.random.default_rng(0)
    array = generator.integers(0, 3, (2, 7, 5, 3)).astype(dtype)
    raw = raw_of(array, scaling)
    whole = load(raw)
    assert whole.dtype == torch.float32
    for signal in range(2):
        low, high = scaling.of(signal)
        np.testing.assert_allclose(whole[signal], (array[signal].astype(float) - low) / (high - low), rtol=1e-6)
    values = pickle.loads(pickle.dumps(replace_array(raw)))
    assert values.read((slice(2, 6), slice(1, 4))).equal(whole[:, 2:6, 1:4])


@pytest.mark.parametrize("unit", [True, False])
def test_every_nth_sample_of_a_box_and_memory_that_is_read_only(unit):
    array = np.random.default_rng(0).random((2, 9, 8, 3), dtype=np.float32)
    array.flags.writeable = False
    values = FileValues(raw_of(array, Scaling("float32"), unit))
    box = (slice(1, 9), slice(2, 7))
    assert values.read(box, (3, 2)).equal(torch.tensor(array)[:, 1:9:3, 2:7:2])
    values.read(box).zero_()
    assert array.all(), "what is read is the reader's own"


def replace_array(raw: RawSignals) -> FileValues:
    """Picklable, with nothing open."""
    return FileValues(replace(raw, blocks=iter, array=_Held(raw.array())))


class _Held:
    def __init__(self, array):
        self.array = array

    def __call__(self):
        return self.array


def test_the_round_trip_to_the_source_is_exact():
    for dtype in ("uint8", "uint16", "int16", "int32"):
        info = np.iinfo(dtype)
        array = np.array([info.min, -1 if info.min else 1, 0, 1, info.max // 3, info.max], dtype)
        scaling = Scaling.of_integers(dtype)
        unit = scaling.to_unit(array, 0)
        assert unit.min() >= 0
        assert unit.max() <= 1
        if dtype != "int32":  # 24 bits of float32 hold no 32-bit integer
            np.testing.assert_array_equal(scaling.restore(unit, 0), array)
    assert Scaling("uint8", (0.0,), (255.0,)).restore(np.array([np.nan, -1.0, 2.0]), 0).tolist() == [0, 0, 255]
    assert Scaling("float32", (-2.0,), (2.0,)).restore(np.array([1.5], np.float32), 0).tolist() == [4.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_found_where_they_are_read(bad):
    array = np.zeros((1, 6, 4, 1), np.float32)
    array[0, 5, 3, 0] = bad
    values = FileValues(raw_of(array, Scaling("float32")))
    values.read((slice(0, 5), slice(0, 4)))
    with pytest.raises(InputError, match=r"not finite in the part that starts at sample \[4, 2\]"):
        values.read((slice(4, 6), slice(2, 4)))


@pytest.mark.parametrize(
    "low_high", [((1.0,), (1.0,)), ((2.0,), (1.0,)), ((0.0,), (np.inf,)), ((np.nan,), (1.0,)), ((), ())]
)
def test_ranges_that_are_refused(low_high):
    with pytest.raises(InputError, match=r"Scaling|range needs two finite numbers"):
        Scaling("float32", *low_high)


@pytest.mark.parametrize("limit", [1, 100, 1000, 10**9])
@pytest.mark.parametrize("chunks", [(1, 9, 5), (4, 4, 5), (3, 9, 2), (11, 9, 5)])
def test_boxes_cover_the_grid_once_and_follow_the_chunks(chunks, limit):
    grid = (11, 9, 5)
    seen = np.zeros(grid, int)
    for box in boxes(grid, chunks, 4, limit):
        seen[box] += 1
        for part, chunk, n in zip(box, chunks, grid, strict=True):
            assert part.start % chunk == 0
            assert part.stop % chunk == 0 or part.stop == n
        size = seen[box].size * 4
        assert size <= max(limit, 4 * int(np.prod(chunks)))
    assert (seen == 1).all()


def test_the_chunks_of_a_file(tmp_path: Path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.zeros((1, 8, 6, 1), np.float32), chunks=(1, 2, 3, 1))
        raw = replace(raw_of(np.zeros((1, 8, 6, 1), np.float32), Scaling("float32")), array=lambda: file["x"])
        assert FileValues(raw).chunks == (2, 3)
    assert FileValues(raw_of(np.zeros((1, 8, 6, 1), np.float32), Scaling("float32"))).chunks == (1, 6)
