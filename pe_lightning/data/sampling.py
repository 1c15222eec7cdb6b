"""Which samples of a signal are trained on: samplings by name, each of which makes a split."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Integral, Real
from os import PathLike, fspath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pe_lightning.data.random_keys import chosen_positions, largest_chosen_key
from pe_lightning.data.sources.arrays import find_array
from pe_lightning.data.sources.paths import ARRAYS, PICTURES, SourceFile, expand, format_of, reading
from pe_lightning.data.sources.pictures import decode_image
from pe_lightning.data.splits import GridSplit, PointSplit, RandomSplit, Split
from pe_lightning.errors import InputError
from pe_lightning.registry import Registry

__all__ = ["GridSampling", "MaskSampling", "RandomSampling", "Sampling", "samplings"]


class Sampling(ABC):
    """Chooses the samples of a set of signals that are trained on.

    A subclass keeps every constructor argument as an attribute of the same name, with plain values.
    """

    @abstractmethod
    def split(self, grid: Sequence[int], num_signals: int) -> Split:
        """The trained samples of ``num_signals`` signals on a grid of ``(N_1, ..., N_D)`` samples.

        Raises:
            InputError: If the sampling does not suit the grid.
        """

    def stream(self, grid: Sequence[int], num_signals: int) -> Split:
        """As :meth:`split`, for signals that stay in their file: the result should hold nothing of the size of the grid."""
        return self.split(grid, num_signals)

    @property
    def name(self) -> str:
        """The registered name, or the full class path of an unregistered sampling."""
        return samplings.name_of(type(self))

    def spec(self) -> dict[str, Any]:
        """A plain description with every value in force, which ``samplings.resolve`` turns back into an equal sampling."""
        return {"name": self.name, **{key: getattr(self, key) for key in inspect.signature(type(self)).parameters}}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.spec().items() if key != "name")
        return f"{type(self).__name__}({arguments})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sampling) and self.spec() == other.spec()

    def __hash__(self) -> int:
        return hash(repr(self))


samplings: Registry[Sampling] = Registry("sampling", Sampling)  # type: ignore[type-abstract]


@samplings.register("grid")
class GridSampling(Sampling):
    """Every ``stride``-th sample of each axis: the trained samples are a grid too.

    Args:
        stride: Distance between trained samples, in samples: one number for all axes, or one per axis. 1 trains on
            every sample.
        offset: The first trained sample, less than the stride: one number for all axes, or one per axis.

    Raises:
        InputError: If a stride is less than 1, an offset is no position within it, or (at :meth:`split`) a stride leaves
            fewer than 2 samples on an axis.
    """

    def __init__(self, stride: int | list[int] = 2, offset: int | list[int] = 0) -> None:
        strides = stride if isinstance(stride, (list, tuple)) else [stride]
        if not strides or any(not _is_whole(s) or s < 1 for s in strides):
            raise InputError(f"GridSampling: stride must be an integer >= 1, or a list of one per axis; got {stride!r}")
        offsets = offset if isinstance(offset, (list, tuple)) else [offset]
        # one number stands for all axes; lists of different lengths are refused where the number of axes is known
        count = max(len(offsets), len(strides))
        of_axes = zip(offsets * (count // max(len(offsets), 1)), strides * (count // len(strides)), strict=False)
        if not offsets or any(not _is_whole(o) or not 0 <= o < s for o, s in of_axes):
            raise InputError(
                f"GridSampling: offset is the first trained sample, an integer from 0 to stride - 1, or a list of one per "
                f"axis; got {offset!r} with stride {stride!r}"
            )
        # plain numbers, whatever kind was given: they go into metrics.json
        self.stride = [int(s) for s in strides] if isinstance(stride, (list, tuple)) else int(stride)
        self.offset = [int(o) for o in offsets] if isinstance(offset, (list, tuple)) else int(offset)

    def split(self, grid: Sequence[int], num_signals: int) -> GridSplit:
        """The sub-grid that all signals share."""
        strides, offsets = self._per_axis("stride", self.stride, grid), self._per_axis("offset", self.offset, grid)
        if any(first + stride >= size for first, stride, size in zip(offsets, strides, grid, strict=True)):
            raise InputError(
                f"GridSampling: stride {_by(strides)} leaves fewer than 2 trained samples on an axis of the signals, "
                f"which have {_by(grid)} samples; each stride must be smaller than its axis: set at most "
                f"{[max(size - 1, 1) for size in grid]}"
            )
        index = tuple(torch.arange(*along) for along in zip(offsets, grid, strides, strict=True))
        return GridSplit(tuple(grid), index, tuple(strides))

    @staticmethod
    def _per_axis(name: str, given: int | list[int], grid: Sequence[int]) -> list[int]:
        numbers = given if isinstance(given, list) else [given] * len(grid)
        if len(numbers) != len(grid):
            raise InputError(
                f"GridSampling: {name} {given} is for {len(numbers)} axes, but the signals have {len(grid)} "
                f"({_by(grid)} samples); give one number or {len(grid)}"
            )
        return numbers


@samplings.register("random")
class RandomSampling(Sampling):
    """A random share of the samples, without replacement: for each signal its own, as in the papers.

    The choice depends on the seed, the signal's position and the grid alone: the same on every process, machine and
    version of NumPy, whatever the global random state. A smaller fraction is a subset of a larger one.

    Args:
        fraction: Share of the samples that is trained on, in (0, 1]; rounded to whole samples, at least one.
        count: How many samples are trained on, instead of a share.
        seed: Of the choice, a non-negative integer.
        shared: Whether all signals are trained on the same samples.

    Raises:
        InputError: If the fraction or the seed is out of range.
    """

    def __init__(self, fraction: float = 0.25, seed: int = 0, shared: bool = False, count: int | None = None) -> None:
        if not _is_number(fraction) or not 0 < fraction <= 1:
            raise InputError(
                f"RandomSampling: fraction is the trained share of the samples, in (0, 1]; got {fraction!r}. "
                "For a quarter of them set fraction: 0.25"
            )
        if not _is_whole(seed) or seed < 0:
            raise InputError(f"RandomSampling: seed must be an integer >= 0, got {seed!r}")
        if not isinstance(shared, bool):
            raise InputError(f"RandomSampling: shared must be true or false, got {shared!r}")
        if count is not None and (not _is_whole(count) or count < 1):
            raise InputError(f"RandomSampling: count must be an integer >= 1, got {count!r}")
        self.fraction = float(fraction)
        self.seed = int(seed)
        self.shared = shared
        self.count = None if count is None else int(count)

    def split(self, grid: Sequence[int], num_signals: int) -> PointSplit:
        """The chosen points, per signal or shared."""
        size, count = self._sizes(grid)
        signals = range(1 if self.shared else num_signals)
        index = np.stack([chosen_positions(self.seed, signal, size, count) for signal in signals])
        return PointSplit(tuple(grid), torch.from_numpy(index))

    def stream(self, grid: Sequence[int], num_signals: int) -> RandomSplit:
        """The same points, not listed.

        Raises:
            InputError: If several signals have points of their own.
        """
        if num_signals > 1 and not self.shared:
            raise InputError(
                f"{num_signals} signals that stay in their file are trained on the same points: set "
                "sampling: {name: random, shared: true}, or give one signal"
            )
        size, count = self._sizes(grid)
        return RandomSplit(tuple(grid), self.seed, count, largest_chosen_key(self.seed, 0, size, count))

    def _sizes(self, grid: Sequence[int]) -> tuple[int, int]:
        """The samples of a signal, and how many of them are trained on."""
        size = math.prod(grid)
        if self.count is None:
            return size, min(max(round(self.fraction * size), 1), size)
        if self.count > size:
            raise InputError(f"RandomSampling: count {self.count} is more than the {size} samples of a signal ({_by(grid)})")
        return size, self.count


@samplings.register("mask")
class MaskSampling(Sampling):
    """The samples that are not zero in a mask file, of the shape of the signals' grid.

    Args:
        path: An image (for signals of 2 axes; a pixel is marked if a colour channel is not zero and it is not
            transparent) or a ``.npy`` file of booleans or numbers. One file for all signals; or a list of one per signal,
            in their order, which all mark equally many samples.
        invert: Whether the samples that are zero are trained on instead.

    Raises:
        InputError: If no path is given; at :meth:`split`, if a file is missing or damaged, its shape is not that of the
            grid, it marks nothing, or the masks of several signals mark different numbers of samples.
    """

    def __init__(self, path: str | list[str] = "", invert: bool = False) -> None:
        given = [path] if isinstance(path, (str, PathLike)) else list(path) if isinstance(path, (list, tuple)) else []
        if not given or not all(isinstance(one, (str, PathLike)) and fspath(one) for one in given):
            raise InputError(
                f"MaskSampling: path is the mask file, or a list of one per signal; got {path!r}. Set "
                "sampling: {name: mask, path: FILE}"
            )
        if not isinstance(invert, bool):
            raise InputError(f"MaskSampling: invert must be true or false, got {invert!r}")
        plain = [fspath(one) for one in given]
        self.path: str | list[str] = plain[0] if isinstance(path, (str, PathLike)) else plain
        self.invert = invert

    def split(self, grid: Sequence[int], num_signals: int) -> PointSplit:
        """The marked samples, per signal or shared."""
        files = expand(self.path, PICTURES | {"npy"}, "mask")
        if len(files) not in (1, num_signals):
            raise InputError(
                f"MaskSampling: {len(files)} masks for {num_signals} signal(s); give one for all, or one for each"
            )
        indices = [self._marked(file, tuple(grid)) for file in files]
        counts = [len(index) for index in indices]
        if len(set(counts)) > 1:
            listed = ", ".join(f"{file.given}: {count}" for file, count in list(zip(files, counts, strict=True))[:8])
            raise InputError(
                f"MaskSampling: the masks mark different numbers of samples ({listed}{', ...' if len(counts) > 8 else ''}), "
                "but signals that are fitted together are trained on equally many. Fit these signals in runs of their own"
            )
        return PointSplit(tuple(grid), torch.from_numpy(np.stack(indices)))

    def _marked(self, file: SourceFile, grid: tuple[int, ...]) -> NDArray[np.int64]:
        """Row-major positions that are trained on, ascending, ``(P,)``."""
        mask = _read_mask(file, len(grid))
        if mask.shape != grid:
            turned = ": it is transposed" if mask.shape == grid[::-1] else ""
            raise InputError(
                f"the mask {file.given!r} has {_by(mask.shape)} samples, but the signals have {_by(grid)}{turned}. A mask "
                "has the shape of the signals after crop and resize"
            )
        index = np.flatnonzero(~mask if self.invert else mask).astype(np.int64, copy=False)
        if not len(index):
            wrong = "marks every sample, and invert is on" if self.invert else "marks no sample: all of it is zero"
            raise InputError(
                f"the mask {file.given!r} {wrong}, so nothing would be trained on; set invert: "
                f"{str(not self.invert).lower()}, or give another mask"
            )
        return index


def _read_mask(file: SourceFile, num_axes: int) -> NDArray[np.bool_]:
    kind = format_of(file.path)
    if kind == "npy":
        values: NDArray[Any] = find_array(file).load()
        if values.dtype.kind == "f" and np.isnan(values).any():
            raise InputError(f"the mask {file.given!r} holds NaN; save it as booleans: numpy.save(path, mask)")
        return np.asarray(values != 0)
    if kind in ARRAYS:
        raise InputError(f"the mask {file.given!r} is an {kind} file; a mask is an image or a .npy file")
    if num_axes != 2:
        raise InputError(
            f"the mask {file.given!r} is taken for an image, but the signals have {num_axes} axes; save it as a .npy file "
            "of their shape: numpy.save(path, mask)"
        )
    with reading(file.given), file.path.open("rb") as opened:
        lossy = opened.read(2) == b"\xff\xd8"
    if lossy:
        raise InputError(
            f"the mask {file.given!r} is a JPEG, which does not keep zeros as zeros; save it as PNG, as drawn originally"
        )
    image = decode_image(file)
    marked = image[..., :-1].any(axis=-1) & (image[..., -1] > 0) if image.shape[-1] in (2, 4) else image.any(axis=-1)
    return np.asarray(marked)


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _by(numbers: Sequence[int]) -> str:
    return "x".join(map(str, numbers))
