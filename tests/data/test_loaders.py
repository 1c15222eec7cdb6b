"""Training batches, from memory and from files: every sample once in a pass, the same for any number of processes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from pe_lightning.data import GridBatch, GridSampling, RandomSampling, TensorDataModule
from pe_lightning.data.dataset import SignalDataset
from pe_lightning.data.point_stream import PointStream
from pe_lightning.data.signals import RawSignals, Scaling
from pe_lightning.data.values import FileValues
from pe_lightning.distributed import Process
from pe_lightning.errors import InputError

GRID = (23, 14)
SAMPLINGS = {
    "grid": GridSampling([2, 3]),
    "all": GridSampling(1),
    "random": RandomSampling(0.4, seed=5, shared=True),
    "own": RandomSampling(0.4, seed=5),
}
CPU = torch.device("cpu")


def dataset(sampling: str, kind: str, signals: int = 2, chunks: tuple[int, int] = (4, 5)) -> SignalDataset:
    values = torch.rand(signals, *GRID, 3, generator=torch.Generator().manual_seed(0))
    chosen = SAMPLINGS[sampling]
    if kind == "memory":
        return SignalDataset(values, chosen.split(GRID, signals), "rest")
    raw = RawSignals.in_memory(values.numpy(), tuple("ab"[:signals]), Scaling("float32"))
    return SignalDataset(
        FileValues(replace(raw, array=lambda: Chunked(values.numpy(), chunks))), chosen.stream(GRID, signals), "rest"
    )


class Chunked:
    """An array with the chunks of a file."""

    def __init__(self, array: np.ndarray, chunks: tuple[int, int]) -> None:
        self.array = array
        self.shape = array.shape
        self.chunks = (1, *chunks, 3)

    def __getitem__(self, index):
        return self.array[index]


def loader(data: SignalDataset, batch="points", size=None, shuffle=True, steps=None, seed=1, process=None):
    return data.train_loader(batch, size, shuffle, steps, seed, process or Process(), CPU)


def samples(data: SignalDataset, batch) -> list[tuple]:
    """What a batch holds, as tuples of signal, position in the grid and value: found by the coordinates."""
    if isinstance(batch, GridBatch):
        coords = torch.cartesian_prod(*batch.axes).reshape(1, -1, 2)
        values = batch.values.flatten(1, -2)
    else:
        coords, values = batch.coords, batch.values
    found = []
    for signal, part in enumerate(values):
        own = coords[min(signal, len(coords) - 1)]
        rows = (own * torch.tensor(GRID)).round().long()
        found += [(signal, *position, *value) for position, value in zip(rows.tolist(), part.tolist(), strict=True)]
    return found


def expected(data: SignalDataset) -> list[tuple]:
    values = data.values.read(tuple(slice(0, n) for n in GRID)) if isinstance(data.values, FileValues) else data.values
    mask = data.split.train_mask().expand(len(values), *GRID)
    return sorted((s, i, j, *values[s, i, j].tolist()) for s, i, j in mask.nonzero().tolist())


CASES = [
    (sampling, kind, batch)
    for sampling, kind, batch in itertools.product(SAMPLINGS, ("memory", "file"), ("points", "blocks"))
    if not (kind == "file" and sampling == "own") and not (batch == "blocks" and sampling in ("random", "own"))
]


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize(("sampling", "kind", "batch"), CASES)
def test_a_pass_has_every_training_sample_once(sampling, kind, batch, size):
    data = dataset(sampling, kind)
    made = loader(data, batch, size)
    batches = list(made)
    assert len(batches) == len(made)
    assert sorted(itertools.chain(*(samples(data, b) for b in batches))) == expected(data)
    if batch == "points":
        assert {b.values.shape[1] for b in batches[:-1]} <= {size}


@pytest.mark.parametrize("world_size", [2, 3, 40])
@pytest.mark.parametrize(("sampling", "kind", "batch"), [*CASES, ("grid", "memory", "full"), ("own", "memory", "full")])
def test_processes_share_the_batches_of_one(sampling, kind, batch, world_size):
    data = dataset(sampling, kind)
    size = None if batch == "full" else 6
    alone = list(loader(data, batch, size, steps=4))
    together = [list(loader(data, batch, size, steps=4, process=Process(rank, world_size))) for rank in range(world_size)]
    for step, whole in enumerate(alone):
        parts = [part[step] for part in together]
        joined = list(itertools.chain(*(samples(data, part) for part in parts)))
        assert sorted(joined) == sorted(samples(data, whole))
        count = whole.values[0, ..., 0].numel()
        assert {part.total for part in parts} == {count}
        assert {(len(part.values), part.values.shape[-1]) for part in parts} == {(2, 3)}, "empty parts have their shape"


@pytest.mark.parametrize("world_size", [1, 2, 3, 40])
@pytest.mark.parametrize("sampling", ["grid", "random"])
def test_processes_share_the_evaluation_of_a_file(sampling, world_size):
    data = dataset(sampling, "file")
    seen, mask, train = torch.zeros(2, *GRID, 3), torch.zeros(1, *GRID, dtype=int), torch.zeros(1, *GRID, dtype=int)
    for rank in range(world_size):
        loader = data.evaluation_loader(Process(rank, world_size))
        assert len(loader) >= 1, "Lightning wants a batch from every process"
        for batch in loader:
            box = tuple(slice(a, a + len(x)) for a, x in zip(batch.start, batch.axes, strict=True))
            seen[:, box[0], box[1]] += batch.values
            mask[:, box[0], box[1]] += batch.mask
            train[:, box[0], box[1]] += batch.train_mask
    assert seen.equal(data.values.read(tuple(slice(0, n) for n in GRID)))
    assert train.equal(data.split.train_mask().long())
    assert mask.equal(data.split.test_mask("rest").long())


def test_passes_differ_and_seeds_repeat():
    for kind in ("memory", "file"):
        data = dataset("random", kind)
        length = len(loader(data, size=16))
        first, again, other = (
            [samples(data, b) for b in loader(data, size=16, steps=2 * length, seed=seed)] for seed in (1, 1, 2)
        )
        assert first == again
        assert first[0] != other[0]
        assert first[:length] != first[length:]
        assert sorted(itertools.chain(*first[:length])) == sorted(itertools.chain(*first[length:]))


def test_blocks_in_order():
    data = dataset("all", "memory")
    starts = [b.start for b in loader(data, "blocks", [10, 14], shuffle=False)]
    assert starts == [(0, 0), (10, 0), (20, 0)]
    assert [b.start for b in loader(dataset("all", "file"), "blocks", [10, 14], shuffle=False)] == starts
    shuffled = [[b.start for b in loader(data, "blocks", [4, 14], seed=seed)] for seed in range(3)]
    assert len({tuple(order) for order in shuffled}) > 1


@pytest.mark.parametrize(("sampling", "kind", "batch"), CASES)
@pytest.mark.parametrize("stop", [0, 1, 5, 6, 13])
def test_a_loader_goes_on_where_it_stood(sampling, kind, batch, stop):
    data = dataset(sampling, kind)
    whole, made = loader(data, batch, 8, steps=7), loader(data, batch, 8, steps=7)
    straight = [samples(data, b) for _ in range(2) for b in whole]
    first = list(itertools.islice(itertools.chain.from_iterable(made for _ in range(2)), stop))
    resumed = loader(data, batch, 8, steps=7)
    resumed.load_state_dict(made.state_dict())
    rest = list(resumed)
    assert len(rest) == 7 - stop % 7
    while len(first) + len(rest) < 14:
        rest += list(resumed)
    assert [samples(data, b) for b in [*first, *rest]] == straight


def test_a_part_of_a_part_of_a_grid_knows_its_place():
    values, mask = torch.rand(2, *GRID, 3), torch.rand(1, *GRID) > 0.5
    whole = GridBatch((torch.arange(23.0), torch.arange(14.0)), values, mask, ~mask)
    part = whole.part((slice(4, 20), slice(3, 14))).part((slice(2, 5), slice(1, 9)))
    assert part.start == (6, 4)
    assert [x.tolist() for x in part.axes] == [[6, 7, 8], list(range(4, 12))]
    assert part.values.equal(values[:, 6:9, 4:12])
    assert part.values.untyped_storage().data_ptr() == values.untyped_storage().data_ptr(), "a view"
    assert part.mask.equal(mask[:, 6:9, 4:12])
    assert part.train_mask.equal(~part.mask)


def test_a_buffer_mixes_pieces_of_the_file():
    data = dataset("all", "file", chunks=(1, 14))
    stream = PointStream(data.values, data.split, 40, seed=0, buffer_bytes=1 << 12)
    assert len(stream.pieces) == 23, "a small buffer reads small pieces"
    batches = [samples(data, b) for b in stream]
    assert 3 < len({row for _, row, *_ in batches[0]}) < 23
    assert sorted(itertools.chain(*batches)) == expected(data)


@pytest.mark.parametrize("world_size", [1, 3])
def test_a_buffer_is_emptied_in_rounds_of_all_its_pieces(monkeypatch, world_size):
    monkeypatch.setattr("pe_lightning.data.point_stream.ROUND", 20)
    data = dataset("all", "file", chunks=(1, 14))
    streams = [
        PointStream(data.values, data.split, 20, process=Process(rank, world_size), buffer_bytes=1 << 12)
        for rank in range(world_size)
    ]
    found = []
    for batches in zip(*streams, strict=True):
        batch = list(itertools.chain(*(samples(data, part) for part in batches)))
        assert len(batch) // 2 in (20, 23 * 14 % 20)
        assert len(batch) < 40 or len({row for _, row, *_ in batch}) > 4, "one round sees most pieces of the buffer"
        found += batch
    assert sorted(found) == expected(data)
    assert all(batch.index.flatten().equal(_row_major(batch.coords[0])) for batch in streams[0])


def _row_major(coords: torch.Tensor) -> torch.Tensor:
    rows, columns = (coords * torch.tensor(GRID)).round().long().unbind(-1)
    return rows * GRID[1] + columns


def test_a_fit_by_points_needs_no_more_than_the_batch():
    data = TensorDataModule(torch.rand(1, 8, 8, 1), batch="points", batch_size=5, sampling=GridSampling(1))
    made = data.train_dataloader()
    assert len(made) == 13
    assert [b.values.shape[1] for b in made] == [5] * 12 + [4]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"batch": "some"}, "batch must be one of full, points, blocks"),
        ({"batch_size": 5}, "a full batch has no batch_size"),
        ({"batch": "points", "batch_size": 0}, "batch_size of batch: points must be an integer >= 1"),
        ({"batch": "points", "batch_size": [3, 3]}, "batch_size of batch: points"),
        ({"batch": "blocks", "batch_size": [3, -1]}, "or one per axis"),
        ({"batch": "blocks", "sampling": "random"}, "blocks are parts of a training grid"),
    ],
)
def test_settings_that_are_refused(settings, match):
    with pytest.raises(InputError, match=match):
        TensorDataModule(torch.rand(1, 8, 8, 1), **settings).prepare()


def test_a_block_size_for_other_axes():
    data = TensorDataModule(torch.rand(1, 8, 8, 1), batch="blocks", batch_size=[2, 2, 2])
    with pytest.raises(InputError, match=r"batch_size \[2, 2, 2\] is for 3 axes, the signals have 2"):
        data.train_dataloader()


def test_own_points_of_several_signals_are_not_streamed():
    with pytest.raises(InputError, match="shared: true"):
        SAMPLINGS["own"].stream(GRID, 2)
