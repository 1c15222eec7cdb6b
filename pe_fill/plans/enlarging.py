"""Signals whose samples are means over cells, divided into smaller cells.

Several members divide the cells: a network that was trained on other pictures, and a fit of the signal. The signal is
reduced to means over larger cells, and each member divides these again: their errors there give the weights of the mixture
and its score. The means of the result over the cells are the samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from pe_fill.mixture.weights import least_variance
from pe_fill.networks.cells import CellPrior
from pe_lightning.estimators import Field
from pe_lightning.linalg.threads import sized_threads
from pe_lightning.signals import grid_axes

Enlarger = Callable[[Tensor], Tensor]
"""Means over cells ``(n_1, ..., n_D, C)`` -> means over their parts ``(f_1 n_1, ..., f_D n_D, C)``."""
MIN_REDUCED_SAMPLES = 16
"""Fewest samples per axis of a reduced signal from which members are weighted and scored."""
MARGIN = 2
"""Samples at the edges of a reduced signal that weights and scores leave out."""
NEGLIGIBLE_ERROR = 1e-6
"""Errors of means that are left, of values in [0, 1]."""

_report: ContextVar[Callable[[float], None]] = ContextVar("report", default=lambda share: None)


@contextmanager
def reporting(report: Callable[[float], None], start: float = 0.0, end: float = 1.0) -> Iterator[None]:
    """Within it, ``report`` is called with the share of the work that is done, from ``start`` to ``end``."""
    token = _report.set(lambda share: report(start + (end - start) * share))
    try:
        yield
    finally:
        _report.reset(token)


@dataclass
class Enlargement:
    """An enlarged signal.

    Args:
        values: ``(f_1 n_1, ..., f_D n_D, C)``.
        weights: Weight of each member, by its name.
        held_out: The signal reduced and enlarged again, by members, their mixture (``""``) and alternatives, without edges.
        truth: The signal without edges; ``None`` if it is too small.
    """

    values: Tensor
    weights: dict[str, float]
    held_out: dict[str, Tensor] = field(default_factory=dict)
    truth: Tensor | None = None

    @property
    def label(self) -> str:
        return " + ".join(f"{weight:.2f} {name}" for name, weight in self.weights.items())


def enlarge_cells(
    values: Tensor,
    factors: Sequence[int],
    members: Mapping[str, Enlarger],
    alternatives: Mapping[str, Enlarger] | None = None,
    limited: bool = False,
) -> Enlargement:
    """Divides cells, finite means ``(n_1, ..., n_D, C)``, by a mixture of members, the last a fit of the signal.

    Signals too small for weights are divided by the first member alone. Alternatives are only scored. A ``limited`` result
    is within [0, 1].
    """
    weights, held_out, truth = {next(iter(members)): 1.0}, dict[str, Tensor](), None
    if not too_small(values.shape, factors):
        small = reduced(values, factors)
        inner = tuple(slice(MARGIN * f, -MARGIN * f) if f > 1 else slice(None) for f in factors)
        truth = values[tuple(slice(0, f * n) for f, n in zip(factors, small.shape, strict=False))][inner]
        for name, member in {**members, **(alternatives or {})}.items():
            found = member(small)
            held_out[name] = (back_projected(found, small, factors) if name in members else found)[inner]
        errors = {name: held_out[name] - truth for name in members}
        weights = _weights(errors, repeated(small, factors)[inner] - truth)
        held_out[""] = sum((weight * held_out[name] for name, weight in weights.items()), torch.zeros_like(truth))
    result, report = torch.zeros(()), _report.get()
    for place, (name, weight) in enumerate(weights.items()):
        with reporting(report, place / len(weights), (place + 1) / len(weights)):
            result = result + weight * back_projected(members[name](values), values, factors)
    return Enlargement(_clamped(result, values, factors) if limited else result, weights, held_out, truth)


def _weights(errors: Mapping[str, Tensor], repeated: Tensor) -> dict[str, float]:
    """Weights of least squared error that sum to one and are not negative; members without weight are left out.

    Where no member is better than cells that are repeated, the reduced signal shows other frequencies than the signal: then
    the last member, a fit of the signal alone, has all weight.
    """
    rows = torch.stack([error.flatten() for error in errors.values()]).double()
    moments = rows @ rows.T / rows.shape[1]
    if float(moments.diagonal().min()) >= float(repeated.double().square().mean()):
        return {list(errors)[-1]: 1.0}
    found = least_variance(moments.numpy()[None])[0][0]
    return {name: float(weight) for name, weight in zip(errors, found, strict=True) if weight > 0}


def too_small(shape: Sequence[int], factors: Sequence[int]) -> bool:
    """Whether a signal ``(n_1, ..., n_D, C)`` cannot be reduced for weights and scores."""
    return min(n // f for n, f in zip(shape, factors, strict=False) if f > 1) < MIN_REDUCED_SAMPLES


def repeated(values: Tensor, factors: Sequence[int]) -> Tensor:
    """Cells as the means over all of their parts."""
    for axis, factor in enumerate(factors):
        values = values.repeat_interleave(factor, axis)
    return values


def reduced(values: Tensor, factors: Sequence[int]) -> Tensor:
    """Means over ``factors`` samples per axis, from the first on: ``(n_1, ..., C)`` -> ``(n_1 // f_1, ..., C)``."""
    sizes = [n // f for n, f in zip(values.shape, factors, strict=False)]
    values = values[tuple(slice(0, n * f) for n, f in zip(sizes, factors, strict=True))]
    for axis, (n, f) in enumerate(zip(sizes, factors, strict=True)):
        values = values.reshape(*values.shape[:axis], n, f, *values.shape[axis + 1 :]).mean(axis + 1) if f > 1 else values
    return values


def by_network(prior: CellPrior, factors: Sequence[int]) -> Enlarger:
    """Divides two axes at a time by the network, and a remaining one by itself."""

    def enlarge(values: Tensor) -> Tensor:
        numbers = values.numel() * math.prod(factors) * prior.num_params * 2.0 / len(prior.factors)
        with sized_threads(numbers):
            return _by_planes(values, factors, partial(prior.enlarge, report=_report.get()))

    return enlarge


def by_fit(fit: Callable[[Tensor], Field], factors: Sequence[int]) -> Enlarger:
    """Divides by a fit of the samples, which predicts means over the parts, or values at their centres."""

    @torch.no_grad()
    def enlarge(values: Tensor) -> Tensor:
        sizes, cells = values.shape[:-1], [1 / n for n in values.shape[:-1]]
        rows, *others = grid_axes([f * n for f, n in zip(factors, sizes, strict=True)], cells=cells)
        field = fit(values).of_cells([cell / factor for cell, factor in zip(cells, factors, strict=True)])
        result, start = [], 0
        for some in torch.split(rows, max(1, (1 << 22) * len(rows) // (values.numel() * math.prod(factors)))):
            result.append(field.grid([some, *others])[0].cpu())
            start += len(some)
            _report.get()(start / len(rows))
        return torch.cat(result)

    return enlarge


def by_pillow(method: Image.Resampling, factors: Sequence[int]) -> Enlarger:
    """Resamples by a filter of Pillow."""

    def plane(values: Tensor, each: tuple[int, int]) -> Tensor:
        return resized_by_pillow(values, [n * f for n, f in zip(values.shape, each, strict=False)], method)

    return lambda values: _by_planes(values, factors, plane)


def resized_by_pillow(values: Tensor, size: Sequence[int], method: Image.Resampling) -> Tensor:
    """A picture ``(H, W, C)`` resampled by a filter of Pillow to ``size``, rows and columns."""
    channels = [Image.fromarray(channel.numpy()) for channel in values.movedim(-1, 0).contiguous()]
    return torch.from_numpy(np.stack([np.asarray(channel.resize((size[1], size[0]), method)) for channel in channels], -1))


def _by_planes(values: Tensor, factors: Sequence[int], enlarge: Callable[[Tensor, tuple[int, int]], Tensor]) -> Tensor:
    """Applies a function of planes ``(n_1, n_2, C)`` to two axes at a time, from the last; other axes are channels."""
    axes = [axis for axis, factor in enumerate(factors) if factor > 1]
    while axes:
        pair = axes[-2:] if len(axes) > 1 and factors[axes[-1]] == factors[axes[-2]] else axes[-1:]
        axes = axes[: -len(pair)]
        plane = values.movedim(tuple(pair), tuple(range(len(pair))))
        rest = plane.shape[len(pair) :]
        flat = plane.reshape(*plane.shape[: len(pair)], -1)
        each = [factors[axis] for axis in pair]
        found = enlarge(flat, (each[0], each[1])) if len(pair) == 2 else enlarge(flat[:, None], (each[0], 1))[:, 0]
        values = found.reshape(*found.shape[: len(pair)], *rest).movedim(tuple(range(len(pair))), tuple(pair))
    return values


def back_projected(values: Tensor, known: Tensor, factors: Sequence[int]) -> Tensor:
    """Values ``(f_1 n_1, ..., C)`` with errors of their means over the known cells ``(n_1, ..., C)`` subtracted.

    Errors are subtracted interpolated, a few times, which is smooth; then as constants, after which there are none.
    Reference: Irani and Peleg, *Improving Resolution by Image Registration*, CVGIP 1991.
    """
    smooth, scale = {1: "linear", 2: "bilinear", 3: "trilinear"}.get(len(factors)), [float(factor) for factor in factors]
    for _ in range(3 if smooth else 0):
        errors = known - reduced(values, factors)
        if float(errors.abs().max()) < NEGLIGIBLE_ERROR:
            return values
        between = functional.interpolate(errors.movedim(-1, 0)[None], scale_factor=scale, mode=str(smooth))
        values = values + between[0].movedim(0, -1)
    return values + repeated(known - reduced(values, factors), factors)


def _clamped(values: Tensor, known: Tensor, factors: Sequence[int]) -> Tensor:
    """Values in [0, 1] with, nearly, the means over the cells that are known."""
    values = values.clamp(0, 1)
    for _ in range(8):
        errors = known - reduced(values, factors)
        if float(errors.abs().max()) < NEGLIGIBLE_ERROR:
            break
        values = (values + repeated(errors, factors)).clamp_(0, 1)
    return values
