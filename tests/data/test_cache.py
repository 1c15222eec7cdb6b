"""The cache of decoded signals: what goes in comes out, nothing damaged is used, nothing is decoded twice."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import pickle
import shutil
import signal
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
from filelock import FileLock

from pe_lightning.data import cache as cache_module
from pe_lightning.data import cache_file
from pe_lightning.data.cache import CacheError, CacheNotice, SignalCache
from pe_lightning.data.cache_file import HEADER_BYTES, Layout, paths_in_use
from pe_lightning.data.signals import RawSignals, Scaling
from pe_lightning.errors import InputError

SHAPE = (3, 20, 7, 2)
KEY = "ab" * 32
ALL = (slice(None),) * len(SHAPE)
fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def numbers(shape=SHAPE, dtype="uint8", seed=0):
    return (np.random.default_rng(seed).random(shape) * 200).astype(dtype)


class Reader:
    """Signals that count how often they are described and decoded."""

    def __init__(self, values=None, rows=6, **changes):
        self.values = numbers() if values is None else values
        self.rows = rows
        self.changes = changes
        self.decoded = 0

    def __call__(self) -> RawSignals:
        names = tuple(f"signal {place}" for place in range(len(self.values)))
        plain = {
            "names": names,
            "grid": self.values.shape[1:-1],
            "channels": self.values.shape[-1],
            "stored": self.values.dtype.name,
            "scaling": Scaling.of_integers("uint8"),
            "unit": False,
            "blocks": self.slabs,
        }
        return RawSignals(**{**plain, **self.changes})

    def slabs(self):
        self.decoded += 1
        for signal_values in self.values:
            for row in range(0, len(signal_values), self.rows):
                yield signal_values[row : row + self.rows]


def in_order(raw: RawSignals) -> np.ndarray:
    return np.concatenate([slab.reshape(-1) for slab in raw.blocks()]).reshape(raw.shape)


def never():
    raise AssertionError("decoded again")


@pytest.fixture
def cache(tmp_path):
    return SignalCache(tmp_path / "cache")


@pytest.fixture
def small(monkeypatch):
    """Chunks of 64 bytes and reads of 256, so that small arrays have many."""
    monkeypatch.setattr(cache_file, "CHUNK_BYTES", 64)
    monkeypatch.setattr(cache_file, "READ_BYTES", 256)
    monkeypatch.setattr(cache_file, "LONG_ROW_BYTES", 100)


# What goes in comes out


@pytest.mark.parametrize("dtype", ["uint8", "bool", "int16", "uint16", "float16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("shape", [SHAPE, (1, 1, 1), (40, 3, 1), (2, 5, 3, 11, 1), (1, 301, 2)])
@pytest.mark.usefixtures("small")
def test_round_trip(cache, dtype, shape):
    values = numbers(shape, dtype)
    raw = cache.store(KEY, Reader(values))
    for found in (raw, cache.find(KEY)):
        assert found.shape == shape
        array = found.array()
        assert array.shape == shape
        assert array.dtype == values.dtype
        assert np.array_equal(array[(slice(None),) * len(shape)], values)
        assert np.array_equal(in_order(found), values)
        assert {slab.dtype.name for slab in found.blocks()} == {dtype}
        assert all(slab.shape[1:] == shape[2:] for slab in found.blocks())


def test_description_is_kept_exactly(cache):
    told = {
        "names": ("été 1.png", "b\udcff", "c"),  # the second is a file name that is not UTF-8
        "scaling": Scaling("int16", (-1.1, 0.0, 0.3), (2.0, 1 / 3, 1e300)),
        "unit": True,
        "rate": 29.97002997002997,
        "media": "video",
    }
    cache.store(KEY, Reader(**told))
    found = cache.find(KEY)
    assert {name: getattr(found, name) for name in told} == told
    assert (found.grid, found.channels, found.stored) == ((20, 7), 2, "uint8")


def test_boxes_at_any_step(cache, small):
    rng = np.random.default_rng(1)
    for number, shape in enumerate([(2, 61, 5, 1), (2, 9, 20, 6, 1)]):
        values = numbers(shape)
        array = cache.store(f"{number:064x}", Reader(values)).array()
        for _ in range(60):
            ends = [sorted(rng.integers(0, size + 1, 2)) for size in shape]
            box = tuple(slice(int(a), int(b), int(rng.integers(1, 5))) for a, b in ends)
            assert np.array_equal(array[box], values[box]), box
        assert np.array_equal(array[:, ::-3], values[:, ::-3])


def test_chunks_are_runs_of_at_most_a_mebibyte():
    for shape, dtype in [
        ((9, 1000, 1000, 3), "u1"),
        ((60000, 28, 28, 1), "u1"),
        ((2, 30, 2000, 3000, 3), "f4"),
        ((1, 10**7, 2), "i2"),
    ]:
        layout = Layout.chunked(shape, np.dtype(dtype))
        size = np.prod(layout.chunks) * layout.dtype.itemsize
        assert 2**19 <= size <= 2**20
        partial = next(axis for axis, chunk in enumerate(layout.chunks) if chunk > 1)
        assert layout.chunks == (*[1] * partial, layout.chunks[partial], *shape[partial + 1 :])
        assert layout.bytes <= 1.01 * np.prod(shape) * layout.dtype.itemsize


def test_it_is_plain_hdf5(cache):
    cache.store(KEY, Reader())
    with h5py.File(cache.entry(KEY), "r") as file:
        assert np.array_equal(file["values"][()], numbers())


def test_arrays(cache):
    arrays = {
        "index": np.arange(12).reshape(2, 6),
        "empty": np.empty((0, 3), np.float32),
        "one": np.array(3.5),
        "ja/nein": np.array([True, False]),
    }
    assert cache.find_arrays(KEY) is None
    cache.store_arrays(KEY, lambda: arrays)
    for found in (cache.find_arrays(KEY), cache.store_arrays(KEY, never)):
        assert list(found) == list(arrays)
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype
            assert np.array_equal(found[name], array)
            assert found[name].shape == array.shape


def test_decoded_once(cache):
    reader = Reader()
    assert cache.find(KEY) is None
    cache.store(KEY, reader)
    assert reader.decoded == 1
    in_order(cache.find(KEY))
    in_order(SignalCache(cache.path).store(KEY, never))
    assert reader.decoded == 1


def test_folder_with_spaces_and_letters(tmp_path):
    cache = SignalCache(tmp_path / "mein Ordner" / "日本語 %20")
    cache.store(KEY, Reader())
    assert np.array_equal(cache.find(KEY).array()[ALL], numbers())


def test_default_folder_and_limit(tmp_path, monkeypatch):
    for name in ("PE_LIGHTNING_CACHE", "PE_LIGHTNING_CACHE_GB", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert SignalCache().path == tmp_path / ".cache" / "pe_lightning"
    assert SignalCache().limit == 20 * 10**9
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert SignalCache().path == tmp_path / "xdg" / "pe_lightning"
    monkeypatch.setenv("PE_LIGHTNING_CACHE", "~/mine")
    monkeypatch.setenv("PE_LIGHTNING_CACHE_GB", "0.5")
    assert SignalCache().path == tmp_path / "mine"
    assert SignalCache().limit == 5 * 10**8
    assert SignalCache(tmp_path / "given", 7).path == tmp_path / "given"
    for wrong in ("much", "0", "-3", "inf", "nan"):
        monkeypatch.setenv("PE_LIGHTNING_CACHE_GB", wrong)
        with pytest.raises(InputError, match="PE_LIGHTNING_CACHE_GB is the limit"):
            SignalCache()


# Keys


def test_key_depends_on_parameters_content_names_and_order(tmp_path, cache):
    a, b, elsewhere = tmp_path / "a.png", tmp_path / "b.png", tmp_path / "other" / "a.png"
    elsewhere.parent.mkdir()
    a.write_bytes(b"1" * 10_000)
    b.write_bytes(b"2")
    shutil.copyfile(a, elsewhere)
    os.utime(elsewhere, (1, 1))
    parameters = {"resize": [64, 64], "colour": None, "é": 1.5}
    key = cache.key(parameters, [a, b])
    assert key == cache.key(dict(reversed(parameters.items())), [elsewhere, b])
    others = [
        cache.key({**parameters, "resize": [64, 65]}, [a, b]),
        cache.key(parameters, [b, a]),
        cache.key(parameters, [a]),
        cache.key(parameters, [a, a]),
    ]
    b.write_bytes(b"3")
    others.append(cache.key(parameters, [a, b]))
    b.write_bytes(b"2")
    assert cache.key(parameters, [a, b]) == key
    b.rename(tmp_path / "c.png")
    others.append(cache.key(parameters, [a, tmp_path / "c.png"]))
    assert len({key, *others}) == 7


def test_key_depends_on_the_format(cache, monkeypatch):
    before = cache.key({}, [])
    monkeypatch.setattr(cache_module, "FORMAT", 2)
    assert cache.key({}, []) != before


def test_key_of_a_file_that_is_missing(cache, tmp_path):
    with pytest.raises(InputError, match=r"cannot read '.*gone\.png': No such file"):
        cache.key({}, [tmp_path / "gone.png"])


# Damage


@pytest.mark.parametrize("where", [0, 30, 60, 120, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 60, 0.3, 0.5, 0.8, -1])
def test_a_flipped_byte_anywhere_is_found(cache, where):
    cache.store(KEY, Reader())
    content = bytearray(cache.entry(KEY).read_bytes())
    content[int(where * len(content)) if isinstance(where, float) else where] ^= 4
    cache.entry(KEY).write_bytes(content)
    with pytest.warns(CacheNotice, match=r"is not an entry|is damaged|another version"):
        assert cache.find(KEY) is None
    assert not cache.entry(KEY).exists()
    reader = Reader()
    assert np.array_equal(in_order(cache.store(KEY, reader)), numbers())
    assert reader.decoded == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda content: content[:-1], "is damaged: its checksum is wrong"),
        (lambda content: content + b"\0", "is damaged: its checksum is wrong"),
        (lambda content: content[:700], "is damaged: its checksum is wrong"),
        (lambda content: b"", "is not an entry of the cache"),
        (lambda content: b"\x89HDF\r\n\x1a\n and so on", "is not an entry of the cache"),
        (
            lambda content: content.replace(b"format 1\n", b"format 0\n", 1),
            r"another version of pe_lightning \(format '0'\)",
        ),
    ],
)
def test_truncated_foreign_and_older_files_are_made_anew(cache, change, told):
    cache.store(KEY, Reader())
    cache.entry(KEY).write_bytes(change(cache.entry(KEY).read_bytes()))
    reader = Reader()
    with pytest.warns(CacheNotice, match=told + "; it is made anew"):
        found = cache.store(KEY, reader)
    assert np.array_equal(in_order(found), numbers())
    assert reader.decoded == 1


def test_an_entry_under_another_key_is_not_used(cache):
    cache.store(KEY, Reader())
    other = "cd" * 32
    cache.entry(KEY).rename(cache.entry(other))
    with pytest.warns(CacheNotice, match="damaged"):
        assert cache.find(other) is None


def test_arrays_are_not_taken_for_signals(cache):
    cache.store_arrays(KEY, lambda: {"index": np.arange(3)})
    with pytest.warns(CacheNotice, match="holds arrays, not signals"):
        assert cache.find(KEY) is None


def test_damage_is_left_to_who_holds_the_lock(cache):
    cache.store(KEY, Reader())
    cache.entry(KEY).write_bytes(b"half of another")
    with FileLock(cache.lock_path(KEY)):
        assert cache.find(KEY) is None
    assert cache.entry(KEY).exists()


def test_a_folder_in_place_of_an_entry(cache):
    cache.entry(KEY).mkdir(parents=True)
    with pytest.warns(CacheNotice, match="cannot be read"):
        assert cache.find(KEY) is None
    with pytest.warns(CacheNotice, match="cannot be deleted"), pytest.raises(CacheError, match="cannot use the cache"):
        cache.store(KEY, Reader())


# Sources that are not what they said


@pytest.mark.parametrize(
    ("reader", "told"),
    [
        (Reader(grid=(21, 7)), "6x7x2 of dtype uint8 were read at sample 20 of 'signal 0'"),
        (Reader(names=("a", "b")), "after 'b', the last"),
        (Reader(names=("a", "b", "c", "d")), "'d' ended after 0 of 20 samples"),
        (Reader(grid=(20, 8)), "6x7x2 of dtype uint8 were read at sample 0 of 'signal 0'"),
        (Reader(stored="float32"), "of dtype uint8 were read"),
    ],
)
def test_slabs_that_are_not_what_was_announced(cache, reader, told):
    with pytest.raises(InputError, match=told) as raised:
        cache.store(KEY, reader)
    assert "changed or cut short" in str(raised.value)
    assert not isinstance(raised.value, CacheError)
    assert cache.entries() == []
    assert cache.parts() == []


def test_an_error_of_the_source_stays_what_it_is(cache):
    def slabs():
        yield numbers()[0]
        raise OSError(errno.EIO, "the disc is scratched")

    with pytest.raises(OSError, match="the disc is scratched"):
        cache.store(KEY, Reader(blocks=slabs))
    assert cache.parts() == []
    cache.store(KEY, Reader())


def test_nothing_to_store(cache):
    with pytest.raises(InputError, match="nothing to store"):
        cache.store(KEY, Reader(np.zeros((2, 0, 3), "uint8")))


# Processes


def cache_size(cache):
    return sum(entry.bytes for entry in cache.entries())


def start(target, *arguments):
    process = multiprocessing.get_context("fork").Process(target=target, args=arguments)
    process.start()
    return process


def write_and_hang(path, ready):
    def slabs():
        yield numbers()[0]
        ready.set()
        signal.pause()

    SignalCache(path).store(KEY, Reader(blocks=slabs))


@fork
def test_a_killed_writer_leaves_nothing_behind(cache):
    ready = multiprocessing.get_context("fork").Event()
    process = start(write_and_hang, cache.path, ready)
    assert ready.wait(30)
    assert len(cache.parts()) == 1

    cache.store("cd" * 32, Reader())  # a living writer is left alone
    assert [part.key for part in cache.parts()] == [KEY]
    size = cache_size(cache)
    assert cache.clear() == (1, size, 0)
    assert [part.key for part in cache.parts()] == [KEY]

    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert cache.find(KEY) is None
    cache.store("ef" * 32, Reader())  # another key: the rest of the dead one is removed all the same
    assert cache.parts() == []
    reader = Reader()
    assert np.array_equal(in_order(cache.store(KEY, reader)), numbers())
    assert reader.decoded == 1


@fork
def test_a_killed_writer_of_the_same_key(cache):
    ready = multiprocessing.get_context("fork").Event()
    process = start(write_and_hang, cache.path, ready)
    assert ready.wait(30)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert np.array_equal(in_order(cache.store(KEY, Reader())), numbers())
    assert cache.parts() == []


def store_together(path, log, barrier):
    warnings.simplefilter("ignore")
    cache = SignalCache(path)

    def slabs():
        with log.open("a") as file:
            file.write("decoded\n")
        yield from Reader().slabs()

    barrier.wait()
    if cache.find(KEY) is None:
        cache.store(KEY, Reader(blocks=slabs))
    if not np.array_equal(in_order(cache.find(KEY)), numbers()):
        os._exit(3)


@fork
def test_processes_on_a_cold_cache_decode_once(cache, tmp_path):
    barrier = multiprocessing.get_context("fork").Barrier(4)
    log = tmp_path / "log"
    processes = [start(store_together, cache.path, log, barrier) for _ in range(4)]
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert log.read_text() == "decoded\n"


@fork
def test_waiting_is_told(cache, monkeypatch):
    monkeypatch.setattr(cache_module, "PATIENCE", 0.05)
    context = multiprocessing.get_context("fork")
    held, told = context.Event(), context.Event()

    def hold():
        with FileLock(cache.lock_path(KEY)):
            held.set()
            told.wait(30)

    cache.path.mkdir()
    process = start(hold)
    assert held.wait(30)
    monkeypatch.setattr(warnings, "warn", lambda message, category, stacklevel: told.set())
    cache.store(KEY, Reader())
    process.join()
    assert told.is_set()


def open_files(path):
    return [name for name in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{name}") == str(path)]


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files in /proc")


@needs_proc
def test_the_file_is_opened_at_the_first_read_and_closed_when_collected(cache):
    raw = cache.store(KEY, Reader())
    array = raw.array()
    assert array.shape == SHAPE
    assert open_files(cache.entry(KEY)) == []
    array[:1,]
    assert len(open_files(cache.entry(KEY))) == 1
    del array
    gc.collect()
    assert open_files(cache.entry(KEY)) == []
    slabs = raw.blocks()
    next(slabs)
    slabs.close()
    del slabs
    gc.collect()
    assert open_files(cache.entry(KEY)) == []


@fork
def test_each_process_opens_the_file_itself(cache, monkeypatch):
    array = cache.store(KEY, Reader()).array()
    array[ALL]
    opened = []
    real = h5py.File

    def count(*arguments, **keywords):
        opened.append(keywords)
        return real(*arguments, **keywords)

    monkeypatch.setattr(cache_file.h5py, "File", count)

    def child():
        good = np.array_equal(array[ALL], numbers()) and np.array_equal(array[:1,], numbers()[:1])
        os._exit(0 if good and opened == [{"locking": False}] else 3)

    process = start(child)
    process.join(30)
    assert process.exitcode == 0
    assert np.array_equal(array[ALL], numbers())
    assert opened == []


def test_signals_and_arrays_can_be_pickled(cache):
    raw = cache.store(KEY, Reader())
    array = raw.array()
    array[:1,]
    assert np.array_equal(pickle.loads(pickle.dumps(array))[ALL], numbers())
    copy = pickle.loads(pickle.dumps(raw))
    assert np.array_equal(in_order(copy), numbers())
    assert copy.names == raw.names


def test_an_entry_that_is_gone(cache):
    array = cache.store(KEY, Reader()).array()
    cache.clear()
    with pytest.raises(CacheError, match=r"gone or unreadable .* run again"):
        array[ALL]


# Limits and full disks

SIZE = 200_000
BIG = (1, SIZE, 1)


def fill(cache, *names):
    """Entries of a little more than SIZE bytes, used one after another, none of them in use any more."""
    for place, name in enumerate(names):
        cache.store(name * 64, Reader(numbers(BIG), rows=SIZE))
        os.utime(cache.entry(name * 64), (1000 + place, 1000 + place))
    gc.collect()


def kept(cache):
    return {entry.key[0] for entry in cache.entries()}


def test_what_was_used_longest_ago_makes_room(tmp_path):
    cache = SignalCache(tmp_path, int(3.5 * SIZE))
    fill(cache, "a", "b", "c")
    assert cache.find("a" * 64) is not None  # now the latest
    fill(cache, "d")
    assert kept(cache) == {"a", "c", "d"}
    assert cache_size(cache) <= cache.limit


def test_room_is_never_made_of_a_locked_entry(tmp_path):
    cache = SignalCache(tmp_path, int(2.5 * SIZE))
    fill(cache, "a", "b")
    with FileLock(cache.lock_path("a" * 64)):
        fill(cache, "c")
    assert "a" in kept(cache)


def test_room_is_never_made_of_what_this_process_reads(tmp_path):
    cache = SignalCache(tmp_path, int(2.5 * SIZE))
    fill(cache, "a", "b")
    array = cache.find("a" * 64).array()
    os.utime(cache.entry("a" * 64), (1, 1))
    gc.collect()
    assert paths_in_use() == {cache.entry("a" * 64)}
    fill(cache, "c")
    assert kept(cache) == {"a", "c"}
    assert np.array_equal(array[:, :], numbers(BIG))

    tight = SignalCache(tmp_path, int(1.5 * SIZE))
    with pytest.raises(CacheError, match=r"beside the 20\d\.\d kB that this process reads"):
        tight.store_arrays("d" * 64, lambda: {"index": np.zeros(SIZE, "uint8")})
    assert kept(cache) == {"a", "c"}
    del array
    gc.collect()
    tight.store_arrays("d" * 64, lambda: {"index": np.zeros(SIZE, "uint8")})
    assert kept(cache) == {"d"}


def test_an_entry_above_the_limit(tmp_path):
    cache = SignalCache(tmp_path, int(1.5 * SIZE))
    fill(cache, "a")
    reader = Reader(numbers((1, 2 * SIZE, 1)), rows=SIZE)
    with pytest.raises(CacheError) as raised:
        cache.store(KEY, reader)
    for part in ("needs 412.", "its limit is 300.0 kB", "PE_LIGHTNING_CACHE_GB=1", "--data.cache off"):
        assert part in str(raised.value)
    assert reader.decoded == 0
    assert kept(cache) == {"a"}


def test_too_little_space_is_told_before_decoding(cache, monkeypatch):
    fill(cache, "a")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**6, 10**6 - 1000, 1000))
    reader = Reader(numbers(BIG))
    with pytest.raises(CacheError) as raised:
        cache.store(KEY, reader)
    for part in (
        "are needed and 1.0 kB are free",
        "pe-lightning cache clear --cache_dir",
        "--data.cache_dir DIR",
        "PE_LIGHTNING_CACHE",
    ):
        assert part in str(raised.value)
    assert reader.decoded == 0
    assert kept(cache) == {"a"}


def test_a_disk_that_fills_up(cache):
    """A real failing write, after part of the file is there, and the process goes on."""
    resource = pytest.importorskip("resource")
    fill(cache, "a")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    values = numbers((8, SIZE, 1))

    def slabs():
        for number, slab in enumerate(values):
            if number == 4:
                resource.setrlimit(resource.RLIMIT_FSIZE, (3 * SIZE, before[1]))
            yield slab

    try:
        with pytest.raises(CacheError, match=r"File too large; 1\.6 MB are needed and .* are free: remove"):
            cache.store(KEY, Reader(values, blocks=slabs))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert cache.parts() == []
    assert kept(cache) == {"a"}
    assert np.array_equal(in_order(cache.store(KEY, Reader(values, rows=SIZE))), values)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_no_space_left_on_device(cache, monkeypatch, call):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(CacheError, match="No space left on device") as raised:
            cache.store(KEY, Reader())
    assert "--data.cache off" in str(raised.value)
    assert cache.parts() == []
    cache.store(KEY, Reader())


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    cache = SignalCache(tmp_path / "file" / "cache")
    assert cache.find(KEY) is None
    assert cache.entries() == []
    reader = Reader()
    with pytest.raises(CacheError, match=r"cannot use the cache in .*--data\.cache_dir DIR"):
        cache.store(KEY, reader)
    assert reader.decoded == 0


def test_a_folder_that_may_only_be_read_serves_what_it_holds(cache, monkeypatch):
    cache.store(KEY, Reader())

    def refuse(*arguments, **keywords):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(FileLock, "acquire", refuse)
    assert np.array_equal(in_order(cache.find(KEY)), numbers())
    with pytest.raises(CacheError, match="Permission denied"):
        cache.store("cd" * 32, Reader())


def test_clear_leaves_other_files(cache):
    fill(cache, "a", "b")
    others = [cache.path / name for name in ("notes.txt", "mine.h5", ".x.part")]
    for path in others:
        path.write_text("mine")
    cache.entry(KEY).mkdir()
    cache.temporary(KEY).write_text("of a killed writer")
    size = cache_size(cache) + 18
    assert cache.clear() == (2, size, 0)
    assert cache.entries() == []
    assert cache.parts() == []
    assert all(path.read_text() == "mine" for path in others)
    assert cache.entry(KEY).is_dir()
