"""Array files as signals: layouts, ranges, reading by slices, and every kind of bad file."""

import logging
import pickle
import tracemalloc

import h5py
import numpy as np
import pytest
from source_checks import refused as refused_call
from source_checks import stored, unit

from pe_lightning.signals.files import ARRAYS
from pe_lightning.signals.raw import Decoded, ValueRange
from pe_lightning.signals.sources import arrays
from pe_lightning.signals.sources import paths as source_paths

RNG = np.random.default_rng(0)


def save(path, array, key="volumes/ct", **options):
    if path.suffix == ".npz":
        np.savez(path, **{key: array})
    elif path.suffix in (".h5", ".hdf5"):
        with h5py.File(path, "a") as file:
            file.create_dataset(key, data=array, **options)
    else:
        np.save(path, array)
    return str(path)


def read_arrays(paths, num_axes=1, *args, **arguments):
    return arrays.read_arrays(source_paths.expand(paths, ARRAYS, "array file"), num_axes, *args, **arguments)


def refused(*parts, **arguments):
    refused_call(lambda: list(read_arrays(**arguments).blocks()), *parts)


@pytest.mark.parametrize("suffix", ["npy", "npz", "h5"])
@pytest.mark.parametrize(
    ("shape", "num_axes", "channels", "expected"),
    [
        ((9,), 1, "auto", (1, 9, 1)),
        ((9, 4), 1, "auto", (1, 9, 4)),
        ((9, 5), 1, "auto", (9, 5, 1)),
        ((9, 5), 1, "last", (1, 9, 5)),
        ((9, 4), 1, "none", (9, 4, 1)),
        ((6, 7, 8), 2, "auto", (6, 7, 8, 1)),
        ((6, 7, 8), 3, "auto", (1, 6, 7, 8, 1)),
        ((2, 6, 7, 8, 3), 3, "auto", (2, 6, 7, 8, 3)),
    ],
)
def test_layouts(tmp_path, suffix, shape, num_axes, channels, expected):
    array = RNG.integers(0, 256, shape, dtype=np.uint8)
    raw = read_arrays(save(tmp_path / f"a.{suffix}", array), num_axes, channels=channels)
    assert (raw.shape, raw.stored, raw.media, raw.rate) == (expected, "uint8", "array", None)
    assert raw.names == (("a",) if expected[0] == 1 else tuple(f"a-{n}" for n in range(expected[0])))
    np.testing.assert_array_equal(stored(raw), array.reshape(expected))
    np.testing.assert_array_equal(unit(raw), array.reshape(expected).astype(np.float32) / 255)
    assert isinstance(raw.values, Decoded) == (suffix == "npz")
    if not isinstance(raw.values, Decoded):
        opened = raw.values
        assert opened.shape == expected
        block = (slice(0, 1), slice(1, 4), *(slice(2, None) for _ in expected[2:-1]), slice(0, 1))
        np.testing.assert_array_equal(opened[block], array.reshape(expected)[block])


@pytest.mark.parametrize("suffix", ["npy", "npz", "h5"])
def test_several_files_are_stacked_in_order(tmp_path, suffix):
    found = [RNG.integers(0, 256, shape, dtype=np.uint8) for shape in ((6, 7), (2, 6, 7, 1), (6, 7, 1))]
    raw = read_arrays([save(tmp_path / f"{name}.{suffix}", array) for name, array in zip("bca", found, strict=True)], 2)
    expected = np.concatenate([array.reshape(-1, 6, 7, 1) for array in found])
    assert raw.names == ("b", "c-0", "c-1", "a")
    np.testing.assert_array_equal(stored(raw), expected)
    if not isinstance(raw.values, Decoded):
        opened = raw.values
        for part in (slice(None), slice(1, 3), slice(0, 4, 2), slice(-1, None)):
            np.testing.assert_array_equal(opened[(part, slice(1, 5))], expected[part, 1:5])


def test_length_brings_signals_together(tmp_path):
    a, b = RNG.integers(0, 256, 9, dtype=np.uint8), RNG.integers(0, 256, (2, 12, 1), dtype=np.uint8)
    paths = [save(tmp_path / "a.npy", a), save(tmp_path / "b.h5", b)]
    raw = read_arrays(paths, 1, length=8)
    expected = np.stack([a[:8], *b[:, :8, 0]])[..., None]
    np.testing.assert_array_equal(stored(raw), expected)
    np.testing.assert_array_equal(raw.values[slice(None), slice(-3, None)], expected[:, -3:])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16"])
def test_small_integers_fill_their_range(tmp_path, dtype):
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    array = np.array([low, high, 1, 0], dtype)
    raw = read_arrays(save(tmp_path / "a.npy", array), 1)
    np.testing.assert_allclose(unit(raw)[0, :, 0], (array.astype(np.float64) - low) / (high - low), rtol=1e-6)
    np.testing.assert_array_equal(raw.scaling.restore(unit(raw)[0], 0)[:, 0], array)


def test_other_floats_are_scaled_file_by_file_with_one_notice(tmp_path, caplog):
    found = np.array([[-1.0, 3, 1], [0, 0, 0]]), np.array([[0.5, 1, 0]]), np.array([[0, 10.0, 5]])
    paths = [save(tmp_path / f"{name}.npy", array) for name, array in zip("abc", found, strict=True)]
    with caplog.at_level(logging.INFO):
        raw = read_arrays(paths, 1, channels="none")
    assert (raw.scaling.low, raw.scaling.high) == ((-1, -1, 0, 0), (3, 3, 1, 10))
    np.testing.assert_allclose(unit(raw)[..., 0], [[0, 1, 0.5], [0.25] * 3, [0.5, 1, 0], [0, 1, 0.5]])
    (message,) = caplog.messages
    for part in ("a.npy", "-1 to 3", "1 more files exceed", "value_range: [low, high]"):
        assert part in message


@pytest.mark.parametrize("suffix", ["npy", "npz", "h5"])
def test_values_that_are_not_finite_are_left_out_of_the_range(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(arrays, "BLOCK_VALUES", 16)
    array = RNG.random((6, 7, 8)) * 5
    array[4, 0, 0], array[2, 5, 7] = np.nan, np.inf
    raw = read_arrays(save(tmp_path / f"a.{suffix}", array), 3)
    known = np.isfinite(array)
    assert raw.scaling == ValueRange("float64", (array[known].min(),), (array[known].max(),))
    np.testing.assert_array_equal(np.isfinite(unit(raw)[0, ..., 0]), known)


def test_fill_values_of_a_file_and_given_ones_are_missing(tmp_path):
    array = RNG.integers(0, 900, (5, 6)).astype(np.int16)
    array[1, 2], array[3, 4] = -99, 901
    path = save(tmp_path / "a.h5", array)
    with h5py.File(path, "r+") as file:
        file["volumes/ct"].attrs["_FillValue"] = np.int16(-99)
    raw = read_arrays(path, 2, fills=[901])
    assert raw.stored == "float32"
    assert raw.scaling.dtype == "int16"
    values = unit(raw)[0, ..., 0]
    np.testing.assert_array_equal(np.isnan(values), np.isin(array, [-99, 901]))
    np.testing.assert_array_equal(raw.scaling.restore(values, 0)[array != -99][0:1], array[array != -99][0:1])


@pytest.mark.parametrize("suffix", ["npy", "npz", "h5"])
@pytest.mark.parametrize("dtype", [">f4", "<u2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_byte_and_axis_order(tmp_path, monkeypatch, suffix, dtype, order):
    monkeypatch.setattr(arrays, "BLOCK_VALUES", 25)
    array = np.asarray(RNG.random((3, 9, 7)) * 50, dtype=dtype, order=order)
    raw = read_arrays(save(tmp_path / f"a.{suffix}", array), 2, channels="none", value_range=[0, 50])
    assert raw.stored == np.dtype(dtype).newbyteorder("=").name
    blocks = list(raw.blocks())
    assert len(blocks) > 3
    assert all(block.dtype.isnative and block.flags.c_contiguous for block in blocks)
    np.testing.assert_array_equal(np.concatenate(blocks).reshape(array.shape), array)
    if not isinstance(raw.values, Decoded):
        np.testing.assert_array_equal(raw.values[:, 2:4, 1:3][..., 0], array[:, 2:4, 1:3])


def test_chunks_of_a_file_are_known_and_blocks_follow_them(tmp_path, monkeypatch):
    array = np.zeros((2, 40, 30, 3), np.uint8)
    path = save(tmp_path / "a.h5", array, chunks=(1, 8, 10, 2), compression="gzip")
    assert read_arrays(path, 2).values.chunks == (1, 8, 10, 3)
    path = save(tmp_path / "b.h5", array[0, ..., 0], chunks=(16, 30))
    assert read_arrays(path, 2, length=12).values.chunks == (1, 12, 30, 1)
    assert read_arrays(save(tmp_path / "c.npy", array), 2).values.chunks is None
    assert read_arrays(save(tmp_path / "d.npy", np.asfortranarray(array[0, ..., 0])), 2).values.chunks == (1, 40, 1, 1)
    monkeypatch.setattr(arrays, "BLOCK_VALUES", 20 * 30)
    path = save(tmp_path / "e.h5", np.zeros((40, 30), np.uint8), chunks=(8, 30))
    assert [len(block) for block in read_arrays(path, 2).blocks()] == [16, 16, 8]


@pytest.mark.parametrize("suffix", ["npy", "h5"])
def test_nothing_is_loaded(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(arrays, "BLOCK_VALUES", 1 << 18)
    array = RNG.random((64, 512, 256)).astype(np.float32)  # 32 MB
    path = save(tmp_path / f"a.{suffix}", array)
    tracemalloc.start()
    try:
        raw = read_arrays(path, 3)  # a pass over all of it, because it is floating point
        part = raw.values[:, 5:7]
        for block in raw.blocks():
            assert block.nbytes <= 1 << 20
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(part[0, ..., 0], array[5:7])
    assert peak < 8 << 20


class Trap:
    def __reduce__(self):
        return (open, ("trapped", "w"))


def test_python_objects_are_never_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    array = np.array([Trap(), 1], dtype=object)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", a=array)
    refused("truncated, damaged", paths=str(tmp_path / "a.npy"))
    refused("holds object values", paths=str(tmp_path / "a.npz"))
    (tmp_path / "b.npy").write_bytes(pickle.dumps(Trap()))
    refused("truncated, damaged", paths=str(tmp_path / "b.npy"))
    assert not (tmp_path / "trapped").exists()


def test_a_file_that_is_gone_is_named(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(9, dtype=np.uint8))
    raw = read_arrays(str(tmp_path / "a.npy"), 1)
    (tmp_path / "a.npy").unlink()
    refused_call(lambda: raw.values[:, :3], "cannot open", "No such file")
