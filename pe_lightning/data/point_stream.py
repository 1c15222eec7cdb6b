"""Points of signals that stay in their file, which is read in pieces that follow its chunks.

Random points come from a buffer that is filled with randomly chosen pieces of the file, as many as its memory holds, and
emptied in random order: each piece is read once in a pass. Which points make a batch does not depend on the number of
processes; each reads only its own pieces.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pe_lightning.blocks import Block, shape_of
from pe_lightning.data.batches import PointBatch
from pe_lightning.data.coordinates import grid_axes, point_coordinates, row_major, unravelled
from pe_lightning.data.loaders import TrainLoader, permutation
from pe_lightning.data.splits import GridSplit, Split
from pe_lightning.data.values import FileValues, boxes
from pe_lightning.distributed import Process
from pe_lightning.errors import InputError

__all__ = ["PointStream", "sample_points"]

BUFFER_BYTES = 1 << 27
"""Memory of the buffer that random points are drawn from, of all processes together."""
PIECES = 128
"""Pieces of the file in a full buffer, unless its chunks are larger."""
ROUND = 1 << 16
"""Points that are brought into random order at once."""
TABLES = 32
"""Tables of positions within pieces of one shape that are kept."""
SAMPLED = 16
"""Pieces that are looked at for means and scales."""
SAMPLE_BYTES = 1 << 22
"""Size of these pieces, unless the chunks of the file are larger."""


class _Buffer:
    """Memory for trained samples, filled again and again: fresh memory costs more than what is written to it."""

    def __init__(self, signals: int, channels: int) -> None:
        self.index = torch.empty(0, dtype=torch.int64)  # (P,) row-major positions in the whole grid
        self.values = torch.empty(signals, 0, channels)  # (S, P, C), also where this process reads nothing
        self.used = 0

    def reserve(self, signals: int, count: int, channels: int) -> None:
        """Makes room for ``count`` more samples."""
        if self.used + count > len(self.index):
            room = (self.used + count) * 5 // 4
            index, values = self.index.new_empty(room), self.values.new_empty(signals, room, channels)
            index[: self.used] = self.index[: self.used]
            if self.used:
                values[:, : self.used] = self.values[:, : self.used]
            self.index, self.values = index, values


@dataclass
class _Piece:
    """The trained samples of a piece of the file: how many, and where they start in the buffer; -1: others read them."""

    count: int
    start: int = -1


class PointStream(TrainLoader):
    """Random training samples from a file, each once in a pass.

    Args:
        values: The signals.
        split: Their training samples, the same for all signals.
        size: Points per signal in a batch, of all processes together; the last one of a pass may be smaller.
        steps_per_epoch: Batches in one epoch; by default one pass.
        seed: Of the order.
        process: This process.
        buffer_bytes: Memory of the buffer, of all processes together; two are held, one being filled.
    """

    def __init__(
        self,
        values: FileValues,
        split: Split,
        size: int,
        steps_per_epoch: int | None = None,
        seed: int = 0,
        process: Process | None = None,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self.values = values
        self.split = split
        self.size = min(size, split.num_train)
        self.seed = seed
        self.process = process or Process()
        signals, *grid, channels = values.shape
        self.axes = grid_axes(grid)
        self._tables: dict[tuple[Any, ...], Tensor] = {}
        per_sample = 4 * signals * channels
        share = split.num_train / math.prod(grid)
        self.pieces = boxes(grid, values.chunks, per_sample, int(buffer_bytes / PIECES / share))
        point = per_sample + 8  # its values and its position
        self._per_group = max(1, int(buffer_bytes / max(share * point * math.prod(shape_of(self.pieces[0])), 1)))
        super().__init__(math.ceil(split.num_train / self.size), steps_per_epoch)

    def one_pass(self, number: int, first: int) -> Iterator[PointBatch]:
        """The points of all pieces, ``size`` at a time."""
        order = permutation(len(self.pieces), self.seed, number).tolist()
        groups = [order[start : start + self._per_group] for start in range(0, len(order), self._per_group)]
        skip = first * self.size
        rest: list[tuple[Tensor, Tensor]] = []
        waiting = 0
        signals, channels = self.values.shape[0], self.values.shape[-1]
        filling, full = _Buffer(signals, channels), _Buffer(signals, channels)
        with ThreadPoolExecutor(1) as reader:
            pending = reader.submit(self._read, groups[0], number, filling)
            for place in range(len(groups)):
                pieces = pending.result()
                filling, full = full, filling
                if place + 1 < len(groups):
                    pending = reader.submit(self._read, groups[place + 1], number, filling)
                for total, index, values in self._shuffled(pieces, full, number, place, waiting):
                    rest.append((index, values))
                    waiting += total
                    if waiting < self.size:
                        continue
                    if skip:
                        skip -= waiting
                    else:
                        yield self._batch(rest, waiting)
                    rest, waiting = [], 0
        if waiting and not skip:
            yield self._batch(rest, waiting)

    def _batch(self, parts: Sequence[tuple[Tensor, Tensor]], total: int) -> PointBatch:
        index, values = parts[0]
        if len(parts) > 1:
            index, values = torch.cat([i for i, _ in parts]), torch.cat([v for _, v in parts], 1)
        return PointBatch(point_coordinates(self.axes, index[None]), values, self.axes, index[None], total)

    def _read(self, places: Sequence[int], number: int, buffer: _Buffer) -> list[_Piece]:
        """Fills the buffer with pieces, each in an order of its own: one fits in the processor's cache, not all of them."""
        pieces = []
        buffer.used = 0
        signals, *grid, channels = self.values.shape
        for turn, place in enumerate(places):
            box, own = self.pieces[place], turn % self.process.world_size == self.process.rank
            if isinstance(self.split, GridSplit) and not own:
                pieces.append(_Piece(math.prod(len(p) for p in self.split.positions_in(box))))
                continue
            inside = self._inside(box)
            count, start = len(inside), buffer.used
            pieces.append(_Piece(count, start if own else -1))
            if not own or not count:
                continue
            buffer.reserve(signals, count, channels)
            buffer.used = start + count
            order = permutation(count, self.seed + 1, number * len(self.pieces) + place)
            inside = inside.index_select(0, order)
            buffer.values[:, start : start + count] = self.values.read(box).flatten(1, -2).index_select(1, inside)
            torch.index_select(self._offsets(box), 0, inside, out=buffer.index[start : start + count])
            buffer.index[start : start + count] += row_major([part.start for part in box], grid)
        return pieces

    def _inside(self, box: Block) -> Tensor:
        """:func:`_trained`; that of a grid is the same for most boxes."""
        if not isinstance(self.split, GridSplit):
            return _trained(self.split, box)
        sizes = shape_of(box)
        phases = tuple(part.start % step for part, step in zip(box, self.split.stride, strict=True))
        return self._kept(("inside", sizes, phases), lambda: _trained(self.split, box))

    def _offsets(self, box: Block) -> Tensor:
        """Row-major positions in the grid of all samples of a box, less that of its first one."""
        sizes = shape_of(box)
        return self._kept(
            ("offsets", sizes), lambda: row_major(unravelled(torch.arange(math.prod(sizes)), sizes), self.split.grid)
        )

    def _kept(self, key: tuple[Any, ...], compute: Callable[[], Tensor]) -> Tensor:
        if key not in self._tables:
            while len(self._tables) >= TABLES:
                del self._tables[next(iter(self._tables))]
            self._tables[key] = compute()
        return self._tables[key]

    def _shuffled(
        self, pieces: Sequence[_Piece], buffer: _Buffer, number: int, place: int, waiting: int
    ) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The points of a buffer in random order, cut where batches end: how many there are, and this process's.

        They come in rounds, to each of which every piece gives the same share of its points.
        """
        rounds = math.ceil(sum(piece.count for piece in pieces) / ROUND)
        for turn in range(rounds):
            parts = [(piece, piece.count * turn // rounds, piece.count * (turn + 1) // rounds) for piece in pieces]
            count = sum(end - start for _, start, end in parts)
            order = permutation(count, self.seed + 2, (number * len(self.pieces) + place) * 1_000_003 + turn)
            if self.process.world_size > 1:
                # where each point of the round lies among those that this process read, -1 for the others
                own = torch.cat([torch.full((end - start,), piece.start >= 0) for piece, start, end in parts])
                order = torch.where(own, own.cumsum(0) - 1, -1)[order]
            mine = [slice(piece.start + start, piece.start + end) for piece, start, end in parts if piece.start >= 0]
            index = torch.cat([buffer.index[part] for part in mine or [slice(0, 0)]])
            values = torch.cat([buffer.values[:, part] for part in mine or [slice(0, 0)]], 1)
            start = 0
            while start < count:
                end = min(count, start + self.size - waiting)
                chosen = order[start:end]
                if self.process.world_size > 1:
                    chosen = chosen[chosen >= 0]
                yield end - start, index.index_select(0, chosen), values.index_select(1, chosen)
                waiting, start = (waiting + end - start) % self.size, end


def sample_points(values: FileValues, split: Split, count: int) -> PointBatch:
    """About ``count`` training samples from pieces spread evenly over the file, always the same."""
    signals, *grid, channels = values.shape
    pieces = boxes(grid, values.chunks, 4 * signals * channels, SAMPLE_BYTES)
    axes = grid_axes(grid)
    some = [pieces[place * len(pieces) // SAMPLED] for place in range(SAMPLED)] if len(pieces) > SAMPLED else pieces
    indices, parts = [], []
    for box in some:
        inside = _trained(split, box)
        inside = inside[:: max(1, len(inside) * len(some) // count)]
        first = row_major([part.start for part in box], grid)
        indices.append(row_major(unravelled(inside, shape_of(box)), grid) + first)
        parts.append(values.read(box).flatten(1, -2).index_select(1, inside))
    index = torch.cat(indices)
    return PointBatch(point_coordinates(axes, index[None]), torch.cat(parts, 1), axes, index[None])


def _trained(split: Split, box: Block) -> Tensor:
    """Row-major positions within a box of its trained samples, ``(P,)`` int64, ascending."""
    if isinstance(split, GridSplit):
        position = torch.zeros(1, dtype=torch.int64)
        for size, along in zip(shape_of(box), split.positions_in(box), strict=True):
            position = (position[:, None] * size + along).flatten()
        return position
    mask = split.train_mask_of(box)
    if len(mask) > 1:
        raise InputError(
            "signals that stay in their file are trained on the same points; set sampling: {name: random, shared: true}"
        )
    return mask.flatten().nonzero().flatten()
