"""Linear ridge regression: the exact fit of a linear layer, of samples in memory or in a file, on a grid or scattered."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, EncoderLike, automatic, cell_means, per_axis, samples_per_unit, sized
from pe_lightning.encoders.configured import changed
from pe_lightning.encoders.resolution import MAX_WEIGHTS, without_parameters
from pe_lightning.errors import InputError, show_bytes
from pe_lightning.estimators.base import Estimator, FittedField, Spread, default_device, estimators
from pe_lightning.registry import load_entry_points
from pe_lightning.signals.batches import PointBatch, to_device
from pe_lightning.signals.distributed import Process, rank_zero_info
from pe_lightning.signals.split_signals import Signals, TrainedGrid
from pe_lightning.signals.validation import free_memory
from pe_lightning.solvers import (
    Choice,
    Learned,
    Solution,
    choose_grid,
    choose_points,
    learn_encoders,
    solve_blocks,
    solve_grid,
    solve_points,
)
from pe_lightning.solvers.choice import check_ridge
from pe_lightning.solvers.holes import choose_with_holes, interpolated

Ridge = float | Literal["auto"]
ONE_PROCESS = Process()
SPREADS = "pe_lightning.spreads"
"""Group of the entry points by which an installed package gives standard deviations."""


class LinearField(FittedField):
    """Signals as linear functions of features, each by the solution of its own solve, or all by one.

    Args:
        solutions: The solutions, of consecutive signals.
        **fit: The other arguments of :class:`~pe_lightning.estimators.base.FittedField`.
    """

    def __init__(self, solutions: Sequence[Solution], **fit: Any) -> None:
        super().__init__(device=solutions[0].mean.device, num_axes=len(solutions[0].encoders), **fit)
        self.solutions = list(solutions)

    def evaluate(self, points: Tensor) -> Tensor:
        return torch.cat([solution.at(points) for solution in self.solutions])

    def grid(self, axes: Sequence[Tensor]) -> Tensor:
        axes = [x.to(self.device) for x in axes]
        return torch.cat([solution.predict(axes) for solution in self.solutions])

    def of_cells(self, sizes: Sequence[float]) -> LinearField:
        """The means of this field over cells of these lengths per axis, around the coordinates."""
        field = copy.copy(self)
        field.solutions = [replace(one, encoders=tuple(cell_means(one.encoders, sizes))) for one in self.solutions]
        return field

    def std(self, coords: Tensor, level: float | None = None) -> Tensor:
        if linear_spread() is None:
            raise InputError("the package pe_fill gives standard deviations of linear fits: install it")
        return super().std(coords, level)

    def state_dict(self) -> dict[str, Any]:
        """Weights ``(S, C, K_1, ..., K_D)`` for raw features, and means ``(S, C)``."""
        return {name: torch.cat([getattr(solution, name) for solution in self.solutions]) for name in ("weight", "mean")}


@estimators.register("linear")
class LinearRidge(Estimator):
    r"""Ridge regression on the Kronecker product of the axes' features: :math:`f(x) = W (\psi(x_1) \otimes \dots)`.

    Args:
        encoder: The encoder, or one per axis. One with parameters is learned first, by variable projection; a width given as
            ``auto`` is chosen by held-out training samples.
        ridge: Ridge relative to the mean squared norm of the features, or ``auto``: chosen like the width.
        center: Whether the mean of each signal and channel is subtracted before the fit.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eqs. 12 and 17.
    """

    max_weights: ClassVar[int] = MAX_WEIGHTS
    """Most weights of a signal with ``num_features: auto``."""
    features: ClassVar[Literal["given", "auto"]] = "auto"
    """Whether padding and number of features that are left to the data are chosen with the width."""
    model = "pe_lightning.ComplexLinear"
    takes_periodic = True

    def __init__(self, encoder: EncoderLike | Sequence[EncoderLike], ridge: Ridge = "auto", center: bool = True) -> None:
        check_ridge(ridge)
        self.encoder, self.ridge, self.center = encoder, ridge, center

    def fit(self, train: Signals, device: torch.device | None = None) -> LinearField:
        """Fits the trained samples, of signals in memory or read block by block."""
        device, began = default_device(device), time.perf_counter()
        encoders, choice = self.choose(train, copy.deepcopy(per_axis(self.encoder, train.info.num_axes)), device)
        field = self.fit_layer(train, encoders, device, choice)
        field.solution = replace(field.solution, solve_seconds=time.perf_counter() - began)
        return field

    def fit_layer(
        self,
        train: Signals,
        encoders: Sequence[Encoder],
        device: torch.device,
        choice: Choice | None = None,
        shard: tuple[Signals, Process] | None = None,
        shared: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> LinearField:
        """Fits the linear layer on encoders of :meth:`choose`, which are learned first if they have parameters.

        Args:
            train: All signals; width and ridge are chosen by them.
            encoders: One per axis.
            device: Where to compute.
            choice: The choice of the encoders, if there was one.
            shard: The signals that this process fits, and the process; by default all signals, and the only process.
            shared: Whether all signals learn one encoder; else each learns its own.
            dtype: Precision of the solver.
        """
        part, process = shard or (train, ONE_PROCESS)
        learned: list[Learned] = []
        if has_parameters(encoders):
            solutions, learned = self._learn(part, encoders, device, process, shared, dtype)
        else:
            solutions = [self._solve(part, encoders, device, choice, process, train, dtype)]
        report = solutions[0].report()
        if learned:
            ridges = {found.ridge for found in learned}
            report = replace(
                report,
                ridge=ridges.pop() if len(ridges) == 1 else None,
                choice=report.choice if choice is None else choice.report(),
                exact=all(solution.exact for solution in solutions),
                learned=[{"ridge": found.ridge, **found.report()} for found in learned],
            )
        spread = self._spread(train, solutions, device)
        return LinearField(solutions, label="ComplexLinear", solution=report, spread=spread)

    def choose(
        self, train: Signals, encoders: Sequence[Encoder], device: torch.device
    ) -> tuple[list[Encoder], Choice | None]:
        """Resolves all arguments that encoders, one per axis, leave to the data; chooses widths given as ``auto``.

        Also returns the choice of the widths and the ridge, if there was one.
        """
        wanted = [automatic(encoder) is not None for encoder in encoders]
        if any(wanted) and not all(wanted):
            raise InputError("width: auto is chosen for all axes together; give it to every axis's encoder, or to none")
        if any(axis.periodic for axis in train.info.axes):
            periodic = [axis.periodic for axis in train.info.axes]
            encoders = changed(encoders, lambda encoder, wraps: encoder.periodic() if wraps else encoder, periodic)
        rules = size_encoders(train, encoders, self.max_weights)
        features = [encoder.num_features for encoder in rules]
        needed, free = 4 * math.prod(features) * train.info.channels * train.info.num_signals, free_memory()
        if needed > free:
            raise InputError(
                f"{'x'.join(map(str, features))} features take {show_bytes(needed)} for their weights, and "
                f"{show_bytes(free)} of memory are free: set a smaller num_features, or auto"
            )
        if not any(wanted):
            return rules, None
        each = any(encoder.arguments.get("per_feature") for encoder in encoders)
        choice = self._choose(train, changed(encoders, without_parameters) if each else encoders, device, "auto")
        if not each:
            return list(choice.encoders), choice
        found = zip(encoders, choice.encoders, strict=True)
        return size_encoders(train, [_with_choice(*pair) for pair in found], self.max_weights), choice

    def _choose(
        self, dataset: Signals, encoders: Sequence[Encoder], device: torch.device, width: Literal["auto", "given"]
    ) -> Choice:
        encoders = cell_means([encoder.to(device) for encoder in encoders], dataset.info.cells)
        options: dict[str, Any] = {"ridge": self.ridge, "sigma": width, "center": self.center}
        of_grid = {"max_weights": self.max_weights, "features": self.features, **options}
        if dataset.streamed:
            in_file = TrainedGrid(dataset, device)
            return choose_grid(in_file, in_file.axes, encoders, **of_grid)
        if dataset.lattice is not None:
            grid = to_device(dataset.lattice, device)
            where = grid.values, grid.axes, encoders
            if grid.mask is None:
                return choose_grid(*where, **of_grid)
            return choose_with_holes(*where, grid.mask, **of_grid)[0]
        points, encoders = _points(dataset, device), size_encoders(dataset, encoders, self.max_weights)
        return choose_points(points.values, encoders, **options, **_where(points))

    def _learn(
        self,
        dataset: Signals,
        encoders: Sequence[Encoder],
        device: torch.device,
        process: Process,
        shared: bool,
        dtype: torch.dtype,
    ) -> tuple[list[Solution], list[Learned]]:
        """Learns encoders with parameters by variable projection, and solves with them, one signal after another.

        Every process learns from all samples of its signals, with equal results; the solves are shared.
        """
        parts = [dataset] if shared else [dataset.select(slice(s, s + 1)) for s in range(dataset.info.num_signals)]
        solutions, every = [], []
        for part in parts:
            own = cell_means([encoder.to(device) for encoder in copy.deepcopy(list(encoders))], part.info.cells)
            options: dict[str, Any] = {"ridge": self.ridge, "center": self.center}
            if part.streamed:
                block = part.central_block()
                sizes = part.grid_split().sizes
                learned = learn_encoders(block.values.to(device), own, axes=block.axes, full_size=sizes, **options)
            elif part.lattice is not None:
                grid = to_device(part.lattice, device)
                values = grid.values if grid.mask is None else interpolated(grid.values, grid.axes, grid.mask)
                learned = learn_encoders(values, own, axes=grid.axes, **options)
            else:
                points = _points(part, device)
                learned = learn_encoders(points.values, own, **options, **_where(points))
            solver = LinearRidge(learned.encoders, learned.ridge, self.center)
            solutions.append(solver._solve(part, learned.encoders, device, None, process, part, dtype))
            every.append(learned)
        if kept := sum(learned.kept_start for learned in every):
            names = ", ".join(sorted({encoder.name for encoder in encoders}))
            of_signals = f" for {kept} of {len(every)} signals" if len(every) > 1 else ""
            rank_zero_info(
                f"The given parameters of {names} are kept{of_signals}: learned ones are no better on unseen samples."
            )
        return solutions, every

    def _solve(
        self,
        dataset: Signals,
        encoders: Sequence[Encoder],
        device: torch.device,
        choice: Choice | None,
        process: Process,
        chosen_by: Signals,
        dtype: torch.dtype,
    ) -> Solution:
        """Fits the linear layer exactly to the training samples; several processes do it together."""
        if choice is None and self.ridge == "auto":
            choice = self._choose(chosen_by, encoders, device, "given")
        encoders, ridge = (encoders, self.ridge) if choice is None else (choice.encoders, choice.ridge)
        assert ridge != "auto"
        encoders = cell_means([encoder.to(device) for encoder in encoders], dataset.info.cells)
        options: dict[str, Any] = {"ridge": ridge, "center": self.center}
        axes, lattice = dataset.trained_axes, dataset.lattice
        if axes is None:
            batch = _points(dataset, device)
            share = process.share(batch.values.shape[1])
            options |= {"distributed": process.world_size > 1, **_where(batch, share)}
            found = solve_points(batch.values[:, share].to(dtype), encoders, **options)
        elif lattice is not None and (process.world_size == 1 or lattice.mask is not None):
            # with missing samples every process solves for all
            grid = to_device(lattice, device)
            found = solve_grid(grid.values.to(dtype), encoders, grid.axes, mask=grid.mask, **options)
        else:
            found = solve_blocks(_blocks(dataset, process, device, dtype), encoders, axes, **options)
        return found if choice is None else replace(found, choice=choice)

    def _spread(self, train: Signals, solutions: Sequence[Solution], device: torch.device) -> Callable[[], Spread] | None:
        make = linear_spread()
        if train.info.num_signals > 1 or len(solutions) > 1 or train.streamed or make is None:
            return None
        return make(train, solutions[0], self.center, device)


@cache
def linear_spread() -> Callable[[Signals, Solution, bool, torch.device], Callable[[], Spread] | None] | None:
    """The entry point ``linear`` of an installed package, which makes the deviations of a linear fit; or ``None``.

    It takes one signal in memory, its solution, whether the mean was subtracted, and the device; and returns ``None`` where
    the samples are too few.
    """
    return next(load_entry_points(SPREADS, "standard deviations", "linear"), None)


def has_parameters(encoders: Sequence[Encoder]) -> bool:
    """Whether encoders are learned before the layer is solved for."""
    return any(parameter.requires_grad for encoder in encoders for parameter in encoder.parameters())


def samples_of(dataset: Signals) -> tuple[list[float], list[float]]:
    """Samples per unit length of each axis: of the grid, and trained ones.

    Scattered samples have the whole grid, and are counted as in a grid of their density.
    """
    if (axes := dataset.trained_axes) is not None:
        per_unit = [samples_per_unit(x) for x in axes]
        return per_unit, per_unit
    per_unit, split = [samples_per_unit(x) for x in dataset.axes], dataset.split
    share = split.num_train / math.prod(split.grid)
    return per_unit, [n * share ** (1 / len(per_unit)) for n in per_unit]


def size_encoders(dataset: Signals, encoders: Sequence[Encoder], max_weights: int = MAX_WEIGHTS) -> list[Encoder]:
    """The encoders of the axes with ``num_features: auto`` and default widths set for the trained samples."""
    per_unit, samples = samples_of(dataset)
    return sized(encoders, [1 / n for n in per_unit], samples, dataset.info.channels, max_weights)


def _with_choice(encoder: Encoder, chosen: Encoder) -> Encoder:
    """An encoder with the arguments that were chosen for one of the same class that learns nothing."""
    taken = {"num_features", "padding", "spacing", str(automatic(encoder))}
    return encoder.copy(**{name: value for name, value in chosen.arguments.items() if name in taken})


def _points(dataset: Signals, device: torch.device) -> PointBatch:
    batch = to_device(dataset.train_batch(), device)
    assert isinstance(batch, PointBatch)
    return batch


def _where(batch: PointBatch, share: slice = slice(None)) -> dict[str, Any]:
    on_grid = {} if batch.index is None else {"axes": batch.axes, "index": batch.index[:, share]}
    return {"coords": batch.coords[:, share], **on_grid}


def _blocks(
    dataset: Signals, process: Process, device: torch.device, dtype: torch.dtype
) -> Iterator[tuple[Sequence[int], Tensor]]:
    none = True
    for block in dataset.train_blocks(process):
        none = False
        yield block.start or (0,) * len(block.axes), block.values.to(device, dtype)
    if none:
        info = dataset.info
        empty = (info.num_signals, *[0] * info.num_axes, info.channels)
        yield [0] * info.num_axes, torch.zeros(empty, device=device, dtype=dtype)
