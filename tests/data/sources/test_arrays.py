"""Array files as signals: layouts, ranges, lazy reading, and every kind of bad file."""

import fcntl
import io
import logging
import multiprocessing
import os
import pickle
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest

from pe_lightning.data.sources import array_view
from pe_lightning.data.sources.array_view import FileArrays
from pe_lightning.data.sources.arrays import direct, read_arrays
from pe_lightning.data.values import load
from pe_lightning.errors import InputError

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


def refused(*parts, **arguments):
    with pytest.raises(InputError) as error:
        list(read_arrays(**{"num_axes": 1, **arguments}).blocks())
    for part in parts:
        assert part in str(error.value), str(error.value)


def unit(raw):
    return load(raw).numpy()


# -- layouts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["npy", "npz", "h5", "hdf5"])
@pytest.mark.parametrize(
    ("shape", "num_axes", "channels", "expected"),
    [
        ((9,), 1, "auto", (1, 9, 1)),
        ((9, 4), 1, "auto", (1, 9, 4)),
        ((9, 5), 1, "auto", (9, 5, 1)),
        ((9, 5), 1, "last", (1, 9, 5)),
        ((9, 4), 1, "none", (9, 4, 1)),
        ((3, 9, 5), 1, "auto", (3, 9, 5)),
        ((6, 7), 2, "auto", (1, 6, 7, 1)),
        ((6, 7), 2, "none", (1, 6, 7, 1)),
        ((6, 7, 3), 2, "auto", (1, 6, 7, 3)),
        ((6, 7, 8), 2, "auto", (6, 7, 8, 1)),
        ((6, 7, 8), 2, "last", (1, 6, 7, 8)),
        ((6, 7, 3), 2, "none", (6, 7, 3, 1)),
        ((2, 6, 7, 9), 2, "last", (2, 6, 7, 9)),
        ((6, 7, 8), 3, "auto", (1, 6, 7, 8, 1)),
        ((6, 7, 8, 3), 3, "auto", (1, 6, 7, 8, 3)),
        ((2, 6, 7, 8, 3), 3, "auto", (2, 6, 7, 8, 3)),
    ],
)
def test_layouts(tmp_path, suffix, shape, num_axes, channels, expected):
    array = RNG.integers(0, 256, shape, dtype=np.uint8)
    raw = read_arrays(save(tmp_path / f"a.{suffix}", array), num_axes, channels=channels)
    assert raw.shape == expected
    assert (raw.grid, raw.channels, raw.stored, raw.media, raw.rate) == (
        expected[1:-1],
        expected[-1],
        "uint8",
        "array",
        None,
    )
    assert raw.names == (("a",) if expected[0] == 1 else tuple(f"a-{n}" for n in range(expected[0])))
    np.testing.assert_array_equal(unit(raw), array.reshape(expected).astype(np.float32) / 255)
    assert (raw.array is None) == (suffix == "npz")
    if raw.array is not None:
        opened = raw.array()
        assert opened.shape == expected
        whole = opened[(slice(None),) * len(expected)]
        np.testing.assert_array_equal(whole, array.reshape(expected))
        box = (slice(0, 1), slice(1, 4), *(slice(2, None) for _ in expected[2:-1]), slice(0, 1))
        np.testing.assert_array_equal(opened[box], array.reshape(expected)[box])


@pytest.mark.parametrize(
    ("shape", "num_axes", "channels", "parts"),
    [
        ((4, 5, 6, 7, 8), 2, "auto", ["shape (4, 5, 6, 7, 8)", "(N1, N2) or (N1, N2, channels) or (signals, N1, N2)"]),
        ((9,), 2, "auto", ["shape (9,)", "another number of axes"]),
        ((6, 7), 2, "last", ["are (N1, N2, channels) or (signals, N1, N2, channels)", "Set channels: none"]),
        ((2, 6, 7, 3), 2, "none", ["are (N1, N2) or (signals, N1, N2).", "Set channels: last"]),
        ((6, 7, 8, 9), 1, "auto", ["signals of 1 axes", "(N1,)"]),
        ((9, 1), 1, "none", ["9 signal(s) of 1 samples", "set channels: last or none"]),
        ((1, 7), 2, "auto", ["1x7 samples", "at least 2 samples"]),
        ((0, 7), 2, "auto", ["is empty: its shape is (0, 7)"]),
        ((), 1, "auto", ["holds a single number"]),
    ],
)
def test_wrong_shapes(tmp_path, shape, num_axes, channels, parts):
    refused(*parts, paths=save(tmp_path / "a.npy", np.zeros(shape, np.uint8)), num_axes=num_axes, channels=channels)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"num_axes": 4}, "1, 2 or 3; got 4"),
        ({"channels": "first"}, "channels must be one of auto, last, none; got 'first'"),
        ({"value_range": [1, 0]}, "value_range must be [low, high]"),
        ({"value_range": [0]}, "got [0]"),
        ({"value_range": [0, float("nan")]}, "two finite numbers"),
        ({"value_range": "0,1"}, "got '0,1'"),
        ({"value_range": [False, 1]}, "got [False, 1]"),
        ({"length": 1}, "an integer >= 2; got 1"),
        ({"length": 10}, "length 10 is more than the 9 samples of"),
        ({"key": "a"}, "leave key out"),
    ],
)
def test_bad_arguments(tmp_path, arguments, part):
    refused(part, paths=save(tmp_path / "a.npy", np.zeros(9, np.uint8)), **arguments)


# -- several files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["npy", "npz", "h5"])
def test_several_files_are_stacked_in_order(tmp_path, suffix):
    arrays = [RNG.integers(0, 256, shape, dtype=np.uint8) for shape in ((6, 7), (2, 6, 7, 1), (6, 7, 1))]
    paths = [save(tmp_path / f"{name}.{suffix}", array) for name, array in zip("bca", arrays, strict=True)]
    raw = read_arrays(paths, 2)
    expected = np.concatenate([array.reshape(-1, 6, 7, 1) for array in arrays])
    assert raw.names == ("b", "c-0", "c-1", "a")
    np.testing.assert_array_equal(unit(raw), expected.astype(np.float32) / 255)
    if raw.array is not None:
        opened = raw.array()
        for box in (slice(None), slice(1, 3), slice(0, 4, 2), slice(2, None), slice(1, 1), slice(-1, None)):
            np.testing.assert_array_equal(opened[(box, slice(1, 5))], expected[box, 1:5])


def test_names_stay_distinct(tmp_path):
    (tmp_path / "x").mkdir()
    array = np.zeros((6, 7), np.uint8)
    paths = [save(tmp_path / "a.npy", array), save(tmp_path / "a-0.npy", array[0]), save(tmp_path / "x" / "a.npy", array)]
    names = read_arrays(paths, 1).names
    assert len({name.casefold() for name in names}) == 13
    assert names[1] == f"{tmp_path.name}_a-1"
    assert names[-1] == "x_a-5"


def test_a_folder_odd_names_and_links(tmp_path):
    folder = tmp_path / "ein Ordner – ü"
    folder.mkdir()
    save(folder / "größe 1.npy", np.arange(9, dtype=np.uint8))
    (folder / "link.npy").symlink_to(folder / "größe 1.npy")
    (folder / "readme.md").write_text("not an array")
    assert read_arrays(str(folder), 1).names == ("größe 1", "link")
    save(folder / "größe 2.h5", np.arange(9, dtype=np.uint8))
    assert direct(str(folder))
    save(folder / "größe 3.npz", np.arange(9, dtype=np.uint8))
    assert not direct(str(folder))
    refused("no array file in the folder", paths=str(tmp_path))


@pytest.mark.parametrize(
    ("second", "parts"),
    [
        (np.zeros((6, 8), np.uint8), ["2 different shapes", "(6, 7, 1): ", "a.npy", "(6, 8, 1): ", "b.npy"]),
        (np.zeros((6, 7, 3), np.uint8), ["2 different shapes", "(6, 7, 3)"]),
        (np.zeros((6, 7), np.uint16), ["2 different dtypes", "uint8: ", "uint16: "]),
    ],
)
def test_files_that_do_not_fit_together(tmp_path, second, parts):
    save(tmp_path / "a.npy", np.zeros((6, 7), np.uint8)), save(tmp_path / "b.npy", second)
    refused(*parts, paths=str(tmp_path), num_axes=2)


def test_length_brings_signals_together(tmp_path):
    a, b = RNG.integers(0, 256, 9, dtype=np.uint8), RNG.integers(0, 256, (2, 12, 1), dtype=np.uint8)
    paths = [save(tmp_path / "a.npy", a), save(tmp_path / "b.h5", b)]
    refused("2 different lengths", "9: ", "12: ", "Set length: 9", paths=paths)
    raw = read_arrays(paths, 1, length=8)
    expected = np.stack([a[:8], *b[:, :8, 0]])[..., None]
    np.testing.assert_array_equal(unit(raw), expected.astype(np.float32) / 255)
    opened = raw.array()
    np.testing.assert_array_equal(opened[slice(None), slice(None)], expected)
    np.testing.assert_array_equal(opened[slice(None), slice(-3, None)], expected[:, -3:])
    refused("set length: 9", paths=paths, length=10)


# -- ranges ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
def test_small_integers_fill_their_range(tmp_path, dtype):
    info = np.iinfo(dtype)
    array = np.array([info.min, info.max, 3, 0], dtype)
    raw = read_arrays(save(tmp_path / "a.npy", array), 1)
    expected = (array.astype(np.float64) - info.min) / (info.max - info.min)
    np.testing.assert_allclose(unit(raw)[0, :, 0], expected, rtol=1e-6)
    np.testing.assert_array_equal(raw.scaling.restore(unit(raw)[0], 0)[:, 0], array)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_wide_integers_need_a_range(tmp_path, dtype):
    path = save(tmp_path / "a.npy", np.array([3, 255, 7], dtype))
    refused(f"values from 3 to 255 as {dtype}", "set value_range: [3, 255]", paths=path)
    raw = read_arrays(path, 1, value_range=[0, 255])
    np.testing.assert_allclose(unit(raw)[0, :, 0], np.array([3, 255, 7]) / 255, rtol=1e-6)
    assert raw.scaling.restore(unit(raw)[0], 0).dtype == dtype


def test_booleans_are_zero_and_one(tmp_path):
    array = np.array([True, False, True])
    raw = read_arrays(save(tmp_path / "a.h5", array), 1)
    assert raw.stored == "bool"
    np.testing.assert_array_equal(unit(raw)[0, :, 0], [1, 0, 1])
    np.testing.assert_array_equal(raw.scaling.restore(unit(raw)[0], 0)[:, 0], array)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "longdouble"])
def test_floats_in_the_unit_interval_are_kept(tmp_path, dtype, caplog):
    array = np.array([0.25, 0.5, 1, 0], dtype)
    with caplog.at_level(logging.INFO):
        raw = read_arrays(save(tmp_path / "a.npy", array), 1)
    assert raw.stored == ("float64" if dtype == "longdouble" else dtype)
    assert (raw.scaling.low, raw.scaling.high) == ((0,), (1,))
    np.testing.assert_array_equal(unit(raw)[0, :, 0], array.astype(np.float32))
    assert not caplog.records


def test_other_floats_are_scaled_file_by_file_with_one_notice(tmp_path, caplog):
    a, b, c = np.array([[-1.0, 3, 1], [0, 0, 0]]), np.array([[0.5, 1, 0]]), np.array([[0, 10.0, 5]])
    paths = [save(tmp_path / f"{name}.npy", array) for name, array in zip("abc", (a, b, c), strict=True)]
    with caplog.at_level(logging.INFO):
        raw = read_arrays(paths, 1, channels="none")
    assert (raw.scaling.low, raw.scaling.high) == ((-1, -1, 0, 0), (3, 3, 1, 10))
    np.testing.assert_allclose(unit(raw)[..., 0], [[0, 1, 0.5], [0.25] * 3, [0.5, 1, 0], [0, 1, 0.5]])
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1
    for part in ("a.npy", "-1.0 to 3.0", "1 more files", "value_range: [low, high]"):
        assert part in messages[0]


def test_a_given_range(tmp_path, caplog):
    path = save(tmp_path / "a.npy", np.array([-1.0, 3, 1]))
    with caplog.at_level(logging.INFO):
        raw = read_arrays(path, 1, value_range=[-2, 3])
    assert not caplog.records
    np.testing.assert_allclose(unit(raw)[0, :, 0], [0.2, 1, 0.6], rtol=1e-6)
    refused("values from -1.0 to 3.0, outside of value_range [0.0, 2.0]", "[-1.0, 3.0]", paths=path, value_range=[0, 2])
    refused("values from 3 to 9, outside", paths=save(tmp_path / "b.npy", np.uint8([3, 9])), value_range=[0, 5])
    refused("the value 5.0 alone; set value_range", paths=save(tmp_path / "c.npy", np.full(4, 5.0)))
    assert read_arrays(str(tmp_path / "c.npy"), 1, value_range=[0, 10]).scaling.high == (10,)


@pytest.mark.parametrize("suffix", ["npy", "npz", "h5"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("value_range", [None, [0, 1]])
def test_values_that_are_not_finite(tmp_path, monkeypatch, suffix, order, value_range):
    monkeypatch.setattr(array_view, "_BYTES", 64)
    array = np.asarray(RNG.random((6, 7, 8)), order=order)
    array[4, 0, 0], array[2, 5, 7], array[2, 6, 1] = np.nan, np.inf, -np.inf
    path = save(tmp_path / f"a.{suffix}", array)
    refused(
        "3 value(s) that are not finite", "first at (2, 5, 7) of its shape", paths=path, num_axes=3, value_range=value_range
    )


def test_values_beyond_the_length_do_not_count(tmp_path):
    array = np.array([0.5, 0.25, np.nan, 7])
    raw = read_arrays(save(tmp_path / "a.npy", array), 1, length=2)
    np.testing.assert_array_equal(unit(raw)[0, :, 0], [0.5, 0.25])


# -- how files are stored -------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["npy", "npz", "h5"])
@pytest.mark.parametrize("dtype", [">f4", "<f4", ">u2", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_byte_and_axis_order(tmp_path, monkeypatch, suffix, dtype, order):
    monkeypatch.setattr(array_view, "_BYTES", 100)
    array = np.asarray(RNG.random((3, 9, 7)) * 50, dtype=dtype, order=order)
    raw = read_arrays(save(tmp_path / f"a.{suffix}", array), 2, channels="none", value_range=[0, 50])
    assert raw.stored == np.dtype(dtype).newbyteorder("=").name
    slabs = list(raw.blocks())
    assert len(slabs) > 3
    assert all(slab.dtype.isnative and slab.flags.c_contiguous for slab in slabs)
    np.testing.assert_array_equal(np.concatenate(slabs).reshape(array.shape), array)
    if raw.array is not None:
        np.testing.assert_array_equal(raw.array()[:, 2:4, 1:3][..., 0], array[:, 2:4, 1:3])


def test_pieces_of_a_file_are_known(tmp_path):
    array = np.zeros((2, 40, 30, 3), np.uint8)
    path = save(tmp_path / "a.h5", array, chunks=(1, 8, 10, 2), compression="gzip")
    assert read_arrays(path, 2).array().chunks == (1, 8, 10, 3)
    assert read_arrays(save(tmp_path / "b.h5", array[0, ..., 0], chunks=(16, 30)), 2, length=12).array().chunks == (
        1,
        12,
        30,
        1,
    )
    assert read_arrays(save(tmp_path / "c.npy", array), 2).array().chunks is None
    assert read_arrays(save(tmp_path / "d.npy", np.asfortranarray(array[0, ..., 0])), 2).array().chunks == (1, 40, 1, 1)


def test_slabs_follow_the_pieces_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(array_view, "_BYTES", 20 * 30)
    path = save(tmp_path / "a.h5", np.zeros((40, 30), np.uint8), chunks=(8, 30))
    assert [len(slab) for slab in read_arrays(path, 2).blocks()] == [16, 16, 8]


@pytest.mark.parametrize("suffix", ["npy", "h5"])
def test_nothing_is_loaded(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(array_view, "_BYTES", 1 << 20)
    array = RNG.random((64, 512, 256)).astype(np.float32)  # 32 MB
    path = save(tmp_path / f"a.{suffix}", array)
    tracemalloc.start()
    try:
        raw = read_arrays(path, 3)  # a pass over all of it, because it is floating point
        part = raw.array()[:, 5:7]
        for slab in raw.blocks():
            assert slab.nbytes <= 1 << 20
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(part[0, ..., 0], array[5:7])
    assert peak < 8 << 20


def read_in_child(raw, opened, queue):
    queue.put((raw.array()[:, 1:3].sum().item(), opened[:, 1:3].sum().item()))


@pytest.mark.parametrize(("method", "suffix"), [("spawn", "h5"), ("fork", "h5"), ("fork", "npy")])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_other_processes_open_the_file_for_themselves(tmp_path, method, suffix):
    array = RNG.integers(0, 256, (6, 7), dtype=np.uint8)
    raw = read_arrays(save(tmp_path / f"a.{suffix}", array), 2)
    opened = raw.array()
    opened[:, :1]  # the parent has the file open
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=read_in_child, args=(raw, opened, queue))
    child.start()
    assert queue.get(timeout=60) == (array[1:3].sum(), array[1:3].sum())
    child.join(60)
    assert child.exitcode == 0


def test_a_process_does_not_use_the_handles_of_another(tmp_path, monkeypatch):
    opened = read_arrays(save(tmp_path / "a.h5", np.arange(9, dtype=np.uint8)), 1).array()
    opened[:, :1]
    before = opened._handles[0]
    opened[:, :1]
    assert opened._handles[0] is before
    monkeypatch.setattr(os, "getpid", lambda: -1)
    opened[:, :1]
    assert opened._handles[0] is not before


@pytest.mark.parametrize("suffix", ["npy", "npz", "h5"])
def test_descriptions_can_be_pickled(tmp_path, suffix):
    array = RNG.integers(0, 256, (600, 700), dtype=np.uint8)
    raw = read_arrays(save(tmp_path / f"a.{suffix}", array), 2)
    if raw.array is not None:
        opened = raw.array()
        opened[:, :1]
        assert len(pickle.dumps(opened)) < 5000
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(opened))[:, 3:5, 2:4], opened[:, 3:5, 2:4])
    assert len(pickle.dumps(raw)) < 5000
    np.testing.assert_array_equal(unit(pickle.loads(pickle.dumps(raw))), unit(raw))


@pytest.mark.parametrize("suffix", ["npy", "h5"])
def test_threads_and_more_files_than_are_kept_open(tmp_path, suffix):
    arrays = RNG.integers(0, 256, (9, 40), dtype=np.uint8)
    raw = read_arrays([save(tmp_path / f"{place}.{suffix}", array) for place, array in enumerate(arrays)], 1)
    opened = FileArrays(raw.array().parts, most_open=2)
    starts = list(range(0, 40, 2)) * 5
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda start: opened[:, start : start + 2], starts))
    for start, part in zip(starts, found, strict=True):
        np.testing.assert_array_equal(part[..., 0], arrays[:, start : start + 2])
    assert len(opened._handles) <= 2


# -- keys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_keys(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    arrays = {"ct": np.arange(9, dtype=np.uint8), "mask": np.ones((9, 5), bool)}
    if suffix == "npz":
        np.savez(path, **arrays)
    else:
        for key, array in arrays.items():
            save(path, array, key=key)
    raw = read_arrays(str(path), 1, key="ct")
    assert raw.names == ("a",)
    np.testing.assert_array_equal(unit(raw)[0, :, 0], np.arange(9, dtype=np.float32) / 255)
    refused("holds 2 arrays; choose one by key, such as key: ct", "ct (9,)", "mask (9, 5)", paths=str(path))
    refused("no array 'tc'", "ct (9,)", paths=str(path), key="tc")
    refused("did you mean 'mask'?", paths=str(path), key="Mask")


def test_keys_of_hdf5(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["volumes/ct"] = np.arange(9, dtype=np.uint8)
        file["link"] = h5py.SoftLink("/volumes/ct")
        file["empty"] = h5py.Empty("f4")
        file.create_group("nothing")
    for key in ("volumes/ct", "/volumes/ct", "link"):
        assert read_arrays(str(path), 1, key=key).grid == (9,)
    refused("'volumes' is a group, not an array", "volumes/ct (9,)", paths=str(path), key="volumes")
    refused("'empty'", "holds a single number", paths=str(path), key="empty")
    refused("no array 'nothing'", paths=str(path), key="nothing")
    with h5py.File(tmp_path / "none.h5", "w"):
        pass
    refused("holds no array", paths=str(tmp_path / "none.h5"))
    with zipfile.ZipFile(tmp_path / "none.npz", "w") as file:
        file.writestr("readme.md", "x")
    refused("holds no array", paths=str(tmp_path / "none.npz"))


def test_many_arrays_make_a_short_message(tmp_path):
    np.savez(tmp_path / "a.npz", **{f"array{n}": np.zeros(3) for n in range(50)})
    refused("holds 50 arrays", "and 30 more", paths=str(tmp_path / "a.npz"))


# -- bad files ------------------------------------------------------------------------------------------


def test_objects_are_never_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "trapped"),)

    array = np.array([Trap(), 2], dtype=object)
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    np.savez(tmp_path / "a.npz", a=array)
    for name in ("a.npy", "a.npz"):
        refused("Python objects", "unpickling runs", "numpy.stack", paths=str(tmp_path / name))
    (tmp_path / "b.npy").write_bytes(pickle.dumps(Trap()))
    refused("truncated or damaged", paths=str(tmp_path / "b.npy"))
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize("suffix", ["npy", "npz", "h5"])
@pytest.mark.parametrize(
    ("array", "part"),
    [
        (np.zeros(4, complex), "complex numbers"),
        (np.array([b"a", b"b"]), "a signal holds booleans, integers or floating point"),
        (np.zeros(4, [("x", "f4"), ("y", "f4")]), "a signal holds booleans"),
    ],
)
def test_values_of_other_kinds(tmp_path, suffix, array, part):
    refused(part, "a." + suffix, paths=save(tmp_path / f"a.{suffix}", array))


@pytest.mark.parametrize("suffix", ["npy", "npz", "h5"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.98])
def test_truncated_files(tmp_path, suffix, share):
    path = tmp_path / f"a.{suffix}"
    save(path, RNG.random((50, 60)))
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    refused("truncated or damaged", str(path), paths=str(path), num_axes=2)


def test_damage_inside(tmp_path):
    paths = [tmp_path / "a.npz", tmp_path / "a.h5"]
    array = RNG.integers(0, 256, (200, 200), dtype=np.uint8)
    np.savez_compressed(paths[0], a=array)
    save(paths[1], array, chunks=(50, 200), compression="gzip")
    for path in paths:
        data = bytearray(path.read_bytes())
        data[len(data) // 2 : len(data) // 2 + 400] = bytes(400)
        path.write_bytes(data)
        refused("truncated or damaged", str(path), paths=str(path), num_axes=2)


def test_files_that_are_something_else(tmp_path):
    for name in ("a.npy", "a.npz", "a.h5"):
        (tmp_path / name).write_text("hello")
        refused("truncated or damaged", paths=str(tmp_path / name))
        (tmp_path / name).write_bytes(b"")
        refused("truncated or damaged", paths=str(tmp_path / name))
    (tmp_path / "a.txt").write_text("1 2 3")
    refused("is not an array file", ".h5, .hdf5, .npy, .npz", paths=str(tmp_path / "a.txt"))
    buffer = io.BytesIO()
    np.save(buffer, np.arange(9, dtype=np.uint8))
    (tmp_path / "a.bin").write_bytes(buffer.getvalue())
    assert read_arrays(str(tmp_path / "a.bin"), 1).grid == (9,)  # the content decides
    assert direct(str(tmp_path / "a.bin"))
    assert not direct(str(tmp_path / "a.txt"))


@pytest.mark.parametrize("suffix", ["npy", "h5"])
def test_a_file_that_changes_while_it_is_read(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    raw = read_arrays(save(path, np.arange(9, dtype=np.uint8)), 1)
    path.unlink()
    with pytest.raises(InputError, match=r"cannot open .*No such file"):
        raw.array()[:, :3]
    save(path, np.arange(8, dtype=np.uint8))
    with pytest.raises(InputError, match="was changed while it was read"):
        raw.array()[:, :3]


def test_a_file_that_may_not_be_opened(tmp_path, monkeypatch):
    path = save(tmp_path / "a.h5", np.arange(9, dtype=np.uint8))

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(h5py, "File", refuse)
    refused("cannot open", "Permission denied", paths=path)


def test_a_file_that_another_program_holds_open(tmp_path, monkeypatch):
    monkeypatch.delenv("HDF5_USE_FILE_LOCKING", raising=False)
    path = save(tmp_path / "a.h5", np.arange(9, dtype=np.uint8))
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert len(list(read_arrays(path, 1).blocks())) == 1
