"""The cache of decoded signals: what goes in comes out, nothing damaged is used, nothing is decoded twice."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import shutil

import h5py
import numpy as np
import pytest

from benchmarks.cache_entries import KINDS, replace_entry
from pe_lightning.errors import InputError
from pe_lightning.signals import Storage, entries
from pe_lightning.signals.axes import Axis
from pe_lightning.signals.cache import CacheError, SignalCache
from pe_lightning.signals.raw import Decoded, RawSignals, ValueRange
from pe_lightning.signals.sources.base import Source
from pe_lightning.training import SignalDataModule

SHAPE = (3, 20, 7, 2)
KEY = "ab" * 32
fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def numbers(shape=SHAPE, dtype="uint8", seed=0):
    return (np.random.default_rng(seed).random(shape) * 200).astype(dtype)


class Counting(Source):
    """Signals that count how often they are decoded."""

    def __init__(self, values=None, rows=6, paths=(), **changes):
        self.values = numbers() if values is None else values
        self.rows = rows
        self.paths = paths
        self.changes = changes
        self.decoded = 0

    def files(self):
        return self.paths

    def describe(self):
        return {"paths": list(map(str, self.paths)), "rows": self.rows}

    def read(self):
        plain = {
            "names": tuple(f"signal {place}" for place in range(len(self.values))),
            "scaling": ValueRange.of_integers("uint8"),
        }
        changes = dict(self.changes)
        read = {"shape": self.values.shape, "dtype": self.values.dtype, "decode": self.decode}
        read |= {name: changes.pop(name) for name in list(changes) if name in read}
        return RawSignals(Decoded(**read), **{**plain, **changes})

    def decode(self, rows):
        self.decoded += 1
        for values in self.values:
            for row in range(0, len(values), self.rows):
                yield values[row : row + self.rows]


def in_order(raw: RawSignals) -> np.ndarray:
    return np.concatenate([block.reshape(-1) for block in raw.blocks()]).reshape(raw.shape)


def parts(cache: SignalCache) -> list:
    return list(cache.path.glob("*.part"))


@pytest.fixture
def cache(tmp_path):
    return SignalCache(tmp_path / "mein Ordner 日本語 %20" / "cache")


@pytest.mark.parametrize("dtype", ["uint8", "bool", "float16", "float64"])
@pytest.mark.parametrize("shape", [SHAPE, (1, 1, 1), (40, 3, 1), (2, 5, 3, 11, 1)])
def test_round_trip(cache, dtype, shape, monkeypatch):
    for name in ("CHUNK_VALUES", "MIN_CHUNK_SAMPLES", "LAYER_BYTES"):  # small arrays have many chunks
        monkeypatch.setattr(entries, name, 64)
    values = numbers(shape, dtype)
    source = Counting(values)
    assert cache.find(KEY, source) is None
    for raw in (cache.store(KEY, source), cache.find(KEY, source), SignalCache(cache.path).store(KEY, source)):
        block = tuple(slice(n // 3, n) for n in shape)
        assert np.array_equal(raw.values[block], values[block])
        assert np.array_equal(in_order(raw), values)
        assert {block.dtype.name for block in raw.blocks()} == {dtype}
    assert source.decoded == 1


def test_the_description_is_kept_exactly_and_any_tool_reads_it(cache):
    told = {
        "names": ("été 1.png", "b\udcff", "c"),  # the second is a file name that is not UTF-8
        "scaling": ValueRange("int16", (-1.1, 0.0, 0.3), (2.0, 1 / 3, 1e300)),
        "unit": True,
        "rate": 29.97002997002997,
        "media": "video",
        "axes": (Axis("time", 0.1, 1e9 / 3, 20, time=True), Axis.from_values("x", np.arange(7) ** 1.5)),
        "note": 100_000 * "é",
    }
    cache.store(KEY, Counting(**told))
    with h5py.File(cache.entry(KEY)) as file:
        values = file["values"]
        assert np.array_equal(values, numbers())
        assert values.chunks is not None
        assert values.fletcher32
        assert values.attrs["names"][0].decode() == "été 1.png"
        assert [name.decode() for name in values.attrs["axes"]] == ["signal", "axis 1", "axis 2", "channel"]
        assert (values.attrs["samples_per_second"], values.attrs["source_high"].tolist()) == (
            told["rate"],
            [2, 1 / 3, 1e300],
        )
    found = cache.find(KEY, Counting(**told))
    assert {name: getattr(found, name) for name in told} == told
    assert (found.grid, found.channels, found.stored) == ((20, 7), 2, "uint8")


def test_default_folder_and_limit(tmp_path, monkeypatch):
    for name in ("PE_LIGHTNING_CACHE", "PE_LIGHTNING_CACHE_GB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert (SignalCache().path, SignalCache().limit) == (tmp_path / "xdg" / "pe_lightning", 20 * 10**9)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PE_LIGHTNING_CACHE", "~/mine")
    monkeypatch.setenv("PE_LIGHTNING_CACHE_GB", "0.5")
    assert (SignalCache().path, SignalCache().limit) == (tmp_path / "mine", 5 * 10**8)
    assert SignalCache(tmp_path / "given", 7).path == tmp_path / "given"
    for wrong in ("much", "0", "inf", "nan"):
        monkeypatch.setenv("PE_LIGHTNING_CACHE_GB", wrong)
        with pytest.raises(InputError, match="PE_LIGHTNING_CACHE_GB is the limit"):
            SignalCache()


def test_the_key_depends_on_parameters_content_names_and_order(tmp_path, cache):
    a, b, c, elsewhere = tmp_path / "a.png", tmp_path / "b.png", tmp_path / "c.png", tmp_path / "other" / "a.png"
    elsewhere.parent.mkdir()
    for path, content in ((a, b"1" * 10_000), (b, b"2"), (c, b"2"), (elsewhere, b"1" * 10_000)):
        path.write_bytes(content)
    key = cache.key(Counting(paths=[a, b]))
    assert key == cache.key(Counting(paths=[elsewhere, b]))
    others = [cache.key(Counting(paths=files)) for files in ([b, a], [a, a], [a], [a, c])]
    others.append(cache.key(Counting(paths=[a, b], rows=7)))
    b.write_bytes(b"3")
    others.append(cache.key(Counting(paths=[a, b])))
    assert len({key, *others}) == 7
    with pytest.raises(InputError, match=r"gone\.png': No such file"):
        cache.key(Counting(paths=[tmp_path / "gone.png"]))


CUTS = {"shorter": lambda content: content[:-1], "cut": lambda content: content[:700], "text": lambda content: b"text"}


@pytest.mark.parametrize("kind", [*CUTS, *KINDS, "other key"])
def test_what_the_cache_did_not_write_is_made_anew(cache, kind, caplog):
    written, path = "cd" * 32 if kind == "other key" else KEY, cache.entry(KEY)
    cache.store(written, Counting(numbers(seed=1)))
    if kind == "other key":
        cache.entry(written).rename(path)
    elif kind in CUTS:
        path.write_bytes(CUTS[kind](path.read_bytes()))
    else:
        replace_entry(path, kind)
    source = Counting()
    with caplog.at_level("INFO"):
        found = cache.store(KEY, source)
    assert "were damaged" in caplog.text
    assert np.array_equal(in_order(found), numbers())
    assert source.decoded == 1


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (Counting(shape=(3, 21, 7, 2)), r"uint8 of shape \(6, 7, 2\) at row 20"),
        (Counting(shape=(2, 20, 7, 2)), "at row 40"),
        (Counting(shape=(4, 20, 7, 2)), "read no more values at row 60"),
        (Counting(dtype=np.dtype("float32")), "but read uint8"),
    ],
)
def test_blocks_that_are_not_what_was_announced(cache, source, told):
    with pytest.raises(InputError, match=told) as raised:
        cache.store(KEY, source)
    assert "damaged, or was changed" in str(raised.value)
    assert not isinstance(raised.value, CacheError)
    assert cache.entries() == parts(cache) == []


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("opened", [False, True], ids=["before it is opened", "while it is open"])
def test_values_that_are_damaged_are_decoded_again_when_they_are_read(cache, flipped, opened, monkeypatch, caplog):
    monkeypatch.setattr(entries, "CHUNK_VALUES", 300)  # a chunk each
    monkeypatch.setattr(entries, "MIN_CHUNK_SAMPLES", 140)
    source = Counting()
    raw = cache.store(KEY, source)
    assert np.array_equal(raw.values[:1], numbers()[:1])
    content = cache.entry(KEY).read_bytes()
    second = content.index(numbers()[1].tobytes()[:40]) + 20
    with cache.entry(KEY).open("r+b") as file:  # the second signal is changed, or truncated
        file.seek(second)
        if flipped:
            file.write(bytes([content[second] ^ 1]))
        else:
            file.truncate()
    found = raw if opened else cache.find(KEY, source) or cache.store(KEY, source)
    with caplog.at_level("INFO"):
        assert np.array_equal(found.values[1:2], numbers()[1:2])
    assert source.decoded == 2
    assert np.array_equal(in_order(cache.find(KEY, source)), numbers())


@pytest.mark.parametrize("itemsize", [1, 8])
@pytest.mark.parametrize(
    "shape", [(1, 512, 512, 512, 1), (60000, 28, 28, 1), (100, 4000, 3000, 3), (1, 10**8, 2), (3, 5, 10**7, 1), (1, 65, 1)]
)
def test_a_chunk_serves_blocks_and_points(shape, itemsize):
    """It is neither too small to read alone, nor too large to write a layer of them from memory, and little is padding."""
    chunks = entries.chunk_shape(shape, itemsize)
    layer = math.prod(chunks[:2]) * math.prod(shape[2:]) * itemsize
    assert all(1 <= chunk <= size for chunk, size in zip(chunks, shape, strict=True))
    assert layer <= max(entries.LAYER_BYTES, math.prod(shape[2:]) * itemsize)
    assert min(math.prod(shape), 2**13) <= math.prod(chunks) <= 2**18
    assert entries.stored_bytes(shape, itemsize) <= 1.25 * math.prod(shape) * itemsize


def test_a_file_that_is_replaced_while_it_is_decoded_is_not_cached(cache, tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(b"first")

    def decode(rows):
        path.write_bytes(b"second")
        return Counting().decode(rows)

    source = Counting(paths=[path], decode=decode)
    with pytest.raises(InputError, match="a file was changed while it was read"):
        cache.store(cache.key(source), source)
    assert cache.entries() == parts(cache) == []


def test_a_link_is_not_followed(cache, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    cache.path.mkdir(parents=True)
    for name in (f".{KEY}.part", f"{KEY}.h5"):
        (cache.path / name).symlink_to(tmp_path / "mine.txt")
    cache.store(KEY, Counting())
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert not cache.entry(KEY).is_symlink()


def store_together(path, log, barrier):
    def decode(rows):
        with log.open("a") as file:
            file.write("decoded\n")
        yield from Counting().decode(rows)

    barrier.wait()
    raw = SignalCache(path).store(KEY, Counting(decode=decode))
    if not np.array_equal(in_order(raw), numbers()):
        os._exit(3)


@fork
def test_a_handle_is_not_used_across_a_fork(cache, monkeypatch):
    array = cache.store(KEY, Counting()).values
    assert np.array_equal(array[:], numbers())
    opened, open_file = [], h5py.File
    monkeypatch.setattr(h5py, "File", lambda path, **options: opened.append(path) or open_file(path, **options))
    process = os.fork()
    if process == 0:
        os._exit(
            0 if np.array_equal(array[:], numbers()) and np.array_equal(array[:], numbers()) and len(opened) == 1 else 3
        )
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    assert np.array_equal(array[:], numbers())
    assert opened == []
    assert np.array_equal(pickle.loads(pickle.dumps(array))[:], numbers())


@fork
def test_processes_on_a_cold_cache_decode_once(cache, tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, log = context.Barrier(3), tmp_path / "log"
    processes = [context.Process(target=store_together, args=(cache.path, log, barrier)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 3
    assert log.read_text() == "decoded\n"


def test_remains_of_killed_writers_are_removed_after_a_day_and_other_files_never(cache):
    cache.path.mkdir(parents=True)
    old, living, *others = [cache.path / name for name in (f".{'e' * 64}.part", f".{'f' * 64}.part", "notes.txt", ".x.part")]
    for path in (old, living, *others):
        path.write_text("mine")
    os.utime(old, (1, 1))
    cache.store(KEY, Counting())
    assert {entry.key for entry in cache.clear()} == {"e" * 64, KEY}
    assert not old.exists()
    assert all(path.exists() for path in (living, *others))


SIZE = 200_000
BIG = (1, SIZE, 1)


def fill(cache, *names):
    """Entries of a little more than SIZE bytes, used one after another."""
    for place, name in enumerate(names):
        cache.store(name * 64, Counting(numbers(BIG), rows=SIZE))
        os.utime(cache.entry(name * 64), (1000 + place, 1000 + place))


def held(cache):
    return {entry.key[0] for entry in cache.entries()}


def test_the_least_recently_used_entry_is_removed_first(tmp_path):
    cache = SignalCache(tmp_path, int(3.5 * SIZE))
    fill(cache, "a", "b", "c")
    assert cache.find("a" * 64, Counting()) is not None  # now the latest
    fill(cache, "d")
    assert held(cache) == {"a", "c", "d"}


@pytest.mark.parametrize(("limit", "free"), [(int(1.5 * SIZE), 10**9), (10**9, 1000)])
def test_too_little_space_is_told_before_decoding(tmp_path, monkeypatch, limit, free):
    cache = SignalCache(tmp_path, limit)
    fill(cache, "a")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9 - free, free))
    source = Counting(numbers((1, 2 * SIZE, 1)), rows=SIZE)
    with pytest.raises(
        CacheError, match=r"needs 400.0 kB .*its limit.*PE_LIGHTNING_CACHE_GB.*cache clear.*--data.storage.cache off"
    ):
        cache.store(KEY, source)
    assert source.decoded == 0
    assert held(cache) == {"a"}


def test_a_disk_that_fills_up(cache):
    """A real failing write, after part of the file is there, and the process goes on."""
    resource = pytest.importorskip("resource")
    fill(cache, "a")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    values = numbers((8, SIZE, 1))

    def decode(rows):
        for number, block in enumerate(values):
            if number == 4:
                resource.setrlimit(resource.RLIMIT_FSIZE, (3 * SIZE, before[1]))
            yield block

    try:
        with pytest.raises(CacheError, match="File too large; empty the cache"):
            cache.store(KEY, Counting(values, decode=decode))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert parts(cache) == []
    assert held(cache) == {"a"}
    assert np.array_equal(in_order(cache.store(KEY, Counting(values, rows=SIZE))), values)


def test_folders_that_cannot_be_used(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    source = Counting(paths=[tmp_path / "file"])
    named = Storage(cache_dir=str(tmp_path / "file" / "cache"))
    with pytest.raises(CacheError, match=r"cannot use the cache in .*--data\.storage\.cache_dir DIR"):
        SignalDataModule(source, storage=named).prepare()
    monkeypatch.setenv("PE_LIGHTNING_CACHE", named.cache_dir)
    with caplog.at_level("INFO"):
        assert SignalDataModule(source).values.shape == SHAPE
    assert "are not cached: cannot use the cache" in caplog.text
    assert SignalDataModule(source, storage=Storage(cache="off")).values.shape == SHAPE
