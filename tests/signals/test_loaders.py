"""Training batches, from memory and from files: every sample once in a pass, the same for any number of processes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from lightning.pytorch.plugins.precision import DoublePrecision

from pe_lightning.errors import InputError
from pe_lightning.signals import Axis, Batching, GridBatch, GridSampling, RandomSampling, Signals, Source, Splitting, Storage
from pe_lightning.signals import loaders as loaders_module
from pe_lightning.signals.distributed import Process
from pe_lightning.signals.loaders import FilePointLoader
from pe_lightning.signals.raw import RawSignals, ValueRange
from pe_lightning.signals.sources.tensor import TensorSource
from pe_lightning.training import TensorDataModule

GRID = (23, 14)
SAMPLINGS = {
    "grid": GridSampling([2, 3]),
    "all": GridSampling(1),
    "random": RandomSampling(0.4, seed=5, shared=True),
    "own": RandomSampling(0.4, seed=5),
}


class Chunked:
    """An array with the chunks of a file."""

    def __init__(self, array: np.ndarray, chunks: tuple[int, int]) -> None:
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype
        self.chunks = (1, *chunks, 3)

    def __getitem__(self, index):
        return self.array[index]


class Given(Source):
    def __init__(self, raw: RawSignals) -> None:
        self.raw = raw

    def read(self) -> RawSignals:
        return self.raw


def dataset(sampling: str, kind: str, chunks: tuple[int, int] = (4, 5)) -> Signals:
    values = torch.rand(2, *GRID, 3, generator=torch.Generator().manual_seed(0))
    raw = RawSignals(Chunked(values.numpy(), chunks), ("a", "b"), ValueRange("float32"), unit=True)
    splitting = Splitting(SAMPLINGS[sampling], storage=Storage(in_memory=kind == "memory", cache="off"))
    return Signals.read(Given(raw), splitting)


def loader(data: Signals, kind="points", size=None, shuffle=True, steps=None, seed=1, process=None):
    return data.train_loader(Batching(kind, size, shuffle, steps), seed, process or Process(), torch.device("cpu"))


def samples(batch) -> list[tuple]:
    """What a batch holds, as tuples of signal, position in the grid and value: found by the coordinates."""
    if isinstance(batch, GridBatch):
        coords = torch.cartesian_prod(*batch.axes).reshape(1, -1, 2)
        values = batch.values.flatten(1, -2)
    else:
        coords, values = batch.coords, batch.values
    found = []
    for signal, part in enumerate(values):
        rows = (coords[min(signal, len(coords) - 1)] * torch.tensor(GRID)).round().long()
        found += [(signal, *position, *value) for position, value in zip(rows.tolist(), part.tolist(), strict=True)]
    return found


def joined(batches) -> list[tuple]:
    return sorted(itertools.chain.from_iterable(map(samples, batches)))


def expected(data: Signals) -> list[tuple]:
    values = torch.from_numpy(data.raw.read(tuple(slice(0, n) for n in GRID)))
    mask = data.split.train_mask().expand(len(values), *GRID)
    return sorted((s, i, j, *values[s, i, j].tolist()) for s, i, j in mask.nonzero().tolist())


CASES = [
    (sampling, kind, batch)
    for sampling, kind, batch in itertools.product(SAMPLINGS, ("memory", "file"), ("points", "blocks"))
    if not (kind == "file" and sampling == "own") and not (batch == "blocks" and sampling in ("random", "own"))
]


FULL = [(sampling, "memory", "full") for sampling in SAMPLINGS]


@pytest.mark.parametrize("size", [7, 10_000])
@pytest.mark.parametrize(("sampling", "kind", "batch"), [*CASES, *FULL])
def test_a_pass_has_every_training_sample_once(sampling, kind, batch, size):
    data = dataset(sampling, kind)
    made = loader(data, batch, None if batch == "full" else size, steps=1 if batch == "full" else None)
    batches = list(made)
    assert len(batches) == len(made)
    assert joined(batches) == expected(data)
    if batch == "points":
        assert {b.values.shape[1] for b in batches[:-1]} <= {size}


@pytest.mark.parametrize("world_size", [3, 40])
@pytest.mark.parametrize(("sampling", "kind", "batch"), [*CASES, *FULL])
def test_processes_share_the_batches_of_one(sampling, kind, batch, world_size):
    data = dataset(sampling, kind)
    size = None if batch == "full" else 6
    alone = list(loader(data, batch, size, steps=4))
    together = [list(loader(data, batch, size, steps=4, process=Process(rank, world_size))) for rank in range(world_size)]
    for step, whole in enumerate(alone):
        parts = [part[step] for part in together]
        assert joined(parts) == sorted(samples(whole))
        assert {part.total for part in parts} == {whole.values[0, ..., 0].numel()}
        assert {(len(part.values), part.values.shape[-1]) for part in parts} == {(2, 3)}, "empty parts have their shape"


@pytest.mark.parametrize("world_size", [1, 2, 40])
@pytest.mark.parametrize("sampling", ["grid", "random"])
def test_processes_share_the_evaluation_of_a_file(sampling, world_size):
    data = dataset(sampling, "file")
    seen, mask, train = torch.zeros(2, *GRID, 3), torch.zeros(1, *GRID, dtype=int), torch.zeros(1, *GRID, dtype=int)
    for rank in range(world_size):
        batches = list(data.evaluation_loader(Process(rank, world_size)))
        assert batches, "Lightning wants a batch from every process"
        for batch in batches:
            rows, columns = (slice(a, a + len(x)) for a, x in zip(batch.start, batch.axes, strict=True))
            seen[:, rows, columns] += batch.values
            mask[:, rows, columns] += batch.mask
            train[:, rows, columns] += batch.train_mask
    assert seen.equal(torch.from_numpy(data.raw.read(tuple(slice(0, n) for n in GRID))))
    assert train.equal(data.split.train_mask().long())
    assert mask.equal(data.split.test_mask("rest").long())


@pytest.mark.parametrize("world_size", [1, 3])
def test_processes_share_the_trained_grid_for_a_solver(world_size):
    in_memory, in_file = dataset("grid", "memory"), dataset("grid", "file")
    for data in (in_memory, in_file):
        shared = [batch for rank in range(world_size) for batch in data.train_blocks(Process(rank, world_size))]
        assert joined(shared) == expected(in_memory)
    assert in_file.central_block().values.equal(in_memory.central_block().values)
    assert set(samples(in_file.calibration_batch())) <= set(expected(in_file))
    with pytest.raises(InputError, match="needs a training grid"):
        dataset("random", "file").central_block()


@pytest.mark.parametrize(("kind", "batching"), [("memory", "full"), ("memory", "points"), ("file", "points")])
def test_a_batch_says_whether_it_comes_in_every_step(kind, batching):
    """Also where Lightning makes a batch of another dtype; not where somebody changes it."""
    for batch in loader(dataset("random", kind), batching, steps=2):
        step = DoublePrecision().convert_input(batch)
        assert step.values.dtype == torch.float64
        assert step.repeated == (batching == "full")
        assert not replace(step, values=step.values + 1).repeated


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_passes_differ_and_seeds_repeat(kind):
    data = dataset("random", kind)
    length = len(loader(data, size=16))
    first, again, other = ([samples(b) for b in loader(data, size=16, steps=2 * length, seed=seed)] for seed in (1, 1, 2))
    assert first == again
    assert first[0] != other[0]
    assert first[:length] != first[length:]


def test_blocks_in_order():
    data = dataset("all", "memory")
    for kind in ("memory", "file"):
        starts = [b.start for b in loader(dataset("all", kind), "blocks", [10, 14], shuffle=False)]
        assert starts == [(0, 0), (10, 0), (20, 0)]
    shuffled = [[b.start for b in loader(data, "blocks", [4, 14], seed=seed)] for seed in range(3)]
    assert len({tuple(order) for order in shuffled}) > 1


@pytest.mark.parametrize(("sampling", "kind", "batch"), CASES)
@pytest.mark.parametrize("stop", [0, 5, 13])
def test_a_loader_resumes_within_an_epoch(sampling, kind, batch, stop):
    data = dataset(sampling, kind)
    whole, made = loader(data, batch, 8, steps=7), loader(data, batch, 8, steps=7)
    straight = [samples(b) for _ in range(2) for b in whole]
    first = list(itertools.islice(itertools.chain.from_iterable(made for _ in range(2)), stop))
    resumed = loader(data, batch, 8, steps=7)
    resumed.load_state_dict(made.state_dict())
    rest = list(resumed)
    assert len(rest) == 7 - stop % 7
    while len(first) + len(rest) < 14:
        rest += list(resumed)
    assert [samples(b) for b in [*first, *rest]] == straight


def test_a_block_of_a_block_of_a_grid_knows_its_place():
    values, mask = torch.rand(2, *GRID, 3), torch.rand(1, *GRID) > 0.5
    whole = GridBatch((torch.arange(23.0), torch.arange(14.0)), values, mask=mask, train_mask=~mask)
    part = whole.block((slice(4, 20), slice(3, 14))).block((slice(2, 5), slice(1, 9)))
    assert part.start == (6, 4)
    assert [x.tolist() for x in part.axes] == [[6, 7, 8], list(range(4, 12))]
    assert part.values.equal(values[:, 6:9, 4:12])
    assert part.values.untyped_storage().data_ptr() == values.untyped_storage().data_ptr(), "a view"
    assert part.mask.equal(mask[:, 6:9, 4:12])
    assert part.train_mask.equal(~part.mask)


@pytest.mark.parametrize("world_size", [1, 3])
def test_a_small_buffer_holds_some_blocks_and_mixes_them(monkeypatch, world_size):
    monkeypatch.setattr(loaders_module, "SHUFFLED_POINTS", 20)
    data = dataset("all", "file", chunks=(1, 14))
    loaders = [
        FilePointLoader(data.raw, data.split, data.axes, 20, None, 0, Process(rank, world_size), buffer_bytes=1 << 12)
        for rank in range(world_size)
    ]
    assert len(loaders[0].blocks) == 23, "a small buffer reads small blocks"
    found = []
    for batches in zip(*loaders, strict=True):
        batch = joined(batches)
        assert len(batch) // 2 in (20, 23 * 14 % 20)
        assert len(batch) < 40 or 4 < len({row for _, row, *_ in batch}) < 23, "a batch has points of most blocks held"
        found += batch
    assert sorted(found) == expected(data)
    for batch in loaders[0]:
        rows, columns = (batch.coords[0] * torch.tensor(GRID)).round().long().unbind(-1)
        assert batch.index.flatten().equal(rows * GRID[1] + columns)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"kind": "some"}, "batching.kind must be one of full, points, blocks"),
        ({"size": 5}, "leave it out for full"),
        ({"kind": "points", "size": 0}, "batching.size must be an integer >= 1; got 0"),
        ({"kind": "points", "size": [3, 3]}, r"batching.size must be an integer >= 1; got \[3, 3\]"),
        ({"kind": "blocks", "size": [3, -1]}, "or a list of one per axis"),
        ({"steps_per_epoch": True}, "steps_per_epoch must be an integer >= 1"),
    ],
)
def test_options_that_are_refused(settings, match):
    with pytest.raises(InputError, match=match):
        TensorDataModule(torch.rand(1, 8, 8, 1), batching=settings)


def test_options_that_do_not_suit_the_signals():
    with pytest.raises(InputError, match="batches of blocks need a training grid"):
        TensorDataModule(torch.rand(1, 8, 8, 1), sampling="random", batching=Batching("blocks")).prepare()
    data = TensorDataModule(torch.rand(1, 8, 8, 1), batching=Batching("blocks", [2, 2, 2]))
    with pytest.raises(InputError, match=r"batching.size \[2, 2, 2\] is for 3 axes, the signals have 2"):
        data.train_dataloader()
    with pytest.raises(InputError, match="shared: true"):
        SAMPLINGS["own"].stream(GRID, 2)


def test_points_of_a_file_have_the_coordinates_of_uneven_axes():
    axes = (Axis.from_values("x", np.arange(6.0) ** 2), Axis.from_values("y", np.arange(5.0)))
    source = TensorSource(torch.rand(1, 6, 5, 1), axes=axes)
    found = []
    for kept in (True, False):
        batches = loader(Signals.read(source, Splitting(storage=Storage(in_memory=kept))), size=4)
        found.append({tuple(place) for batch in batches for place in batch.coords[0].tolist()})
    assert found[0] == found[1]
