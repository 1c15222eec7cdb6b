"""Width and ridge chosen for data, from the training samples alone: what predicts held-out ones best.

On a grid every second sample of each axis is held out, and the features are shrunk with the grid (:func:`shrunk`), so that
the held-out samples lie where predictions will be asked for: half a spacing away. Of scattered points a tenth is held out.

Ridges within 0.05 dB of the best count as equally good. On the coarser grid a signal is rougher and the best ridge larger:
the least is taken. On scattered points the solves are short, which smooths too, and hides how much a small ridge would
overfit: the largest is taken.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, EncoderLike
from pe_lightning.encodings.complex import changed, per_axis, samples_per_unit, sized
from pe_lightning.errors import InputError
from pe_lightning.linalg import factor_axis, full_precision, mode_products
from pe_lightning.metrics import psnr
from pe_lightning.solvers.line import LineProblem, point_problem
from pe_lightning.solvers.points import PointProblem, point_samples

__all__ = ["Choice", "ChoiceWarning", "axis_encoders", "check_ridge", "choose_grid", "choose_points", "tunable"]

TIE = 0.05
"""Ridges whose held-out PSNR is less than this below the best, in dB, count as equally good."""
DECADES = tuple(10.0**k for k in range(-8, 2))
SCAN = (1e-7, 1e-5, 1e-3, 1e-2, 1e-1, 10**-0.5)
"""Ridges that each width is tried with on a grid, before the full curve of the best one."""
FACTORS = (0.5, 2**-0.5, 1.0, 2**0.5, 2.0)
"""Widths that are tried on a grid, times the default in units of the spacing."""
NOISE = 0.75
"""How much of the variance of noise may pass to the points between the samples, for features that are drawn at random."""
MIN_SAMPLES = 8
"""Axes with fewer samples are not thinned out."""
WINDOW = {1: 1024, 2: 256, 3: 64}
"""Samples per axis of the windows that are looked at."""
MOST = {1: 32}
"""Windows per axis, at most, by number of axes; else two. Sound is never the same for long."""
MAX_SIGNALS = 16
"""Of more signals than this, so many are looked at, evenly spread."""

POINT_RIDGES = tuple(10 ** (-k / 2) for k in range(-2, 14))
"""From 10 down to 3e-7, two per decade; a sweep stops early once it gets worse twice."""
POINT_FALLBACK = 0.1
"""The relative ridge of scattered points of which none can be held out: near the best for shifted encoders."""
POINT_SIGNALS = 4
POINT_WINDOW = {1: 2048, 2: 128, 3: 32}
"""As :data:`WINDOW`, of grids that points lie on."""
FRACTION = 0.1
"""Share of scattered training points that is held out, drawn by their coordinates."""
MIN_HELD = 16
"""Fewest points per signal that are worth scoring on."""
INNER_ITERATIONS = 20
INNER_TOLERANCE = 3e-4


class ChoiceWarning(UserWarning):
    """Nothing could be held out, and a rule was used."""


@dataclass(frozen=True)
class Choice:
    """What was chosen and why, as plain data."""

    ridge: float
    """The relative ridge."""
    encoders: tuple[Encoder, ...]
    """The encoders, one per axis, with the chosen width."""
    rule: Literal["held-out", "fallback", "given"]
    """``held-out``: by prediction of held-out samples; ``fallback``: there are too few; ``given``: no choice."""
    curve: tuple[tuple[float, float], ...] = ()
    """Ridge and held-out PSNR in dB, mean over signals, at the chosen width; ascending."""
    factors: tuple[tuple[float, float], ...] = ()
    """Where the width was chosen: relative to its default in units of the spacing, and the best held-out PSNR of each."""
    factor: float = 1.0
    """The chosen one of them."""
    tried: tuple[Mapping[str, Any], ...] = ()
    """Everything that was tried, in order: ``{"ridge": ..., "psnr": ..., "width": {argument: value} or None}``."""

    def report(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "rule": self.rule,
            "ridge": self.ridge,
            "parameter": [tunable(encoder) for encoder in self.encoders],
            "value": [encoder.resolved().get(tunable(encoder) or "") for encoder in self.encoders],
            "curve": [list(point) for point in self.curve],
            "factors": [list(point) for point in self.factors],
            "factor": self.factor,
            "tried": [dict(row) for row in self.tried],
        }


def tied(curve: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The least and the largest ridge within the tie of the best of an ascending curve.

    The least is interpolated between the points of the curve, the largest is one of them.
    """
    ridges, scores = zip(*curve, strict=True)
    bar = max(scores) - TIE
    good = [i for i, score in enumerate(scores) if score >= bar]
    first, last = good[0], good[-1]
    least = float(ridges[first])
    if first > 0:
        share = (bar - scores[first - 1]) / (scores[first] - scores[first - 1])
        least = float(ridges[first - 1] * (ridges[first] / ridges[first - 1]) ** share)
    return least, float(ridges[last])


def check_ridge(ridge: object) -> float | None:
    """``ridge`` as a number, ``None`` for ``auto``; an InputError if it is neither."""
    if ridge == "auto":
        return None
    if isinstance(ridge, (int, float)) and not isinstance(ridge, bool) and 0 <= ridge < math.inf:
        return float(ridge)
    raise InputError(f"ridge must be 'auto' or a number >= 0, relative to the mean joint diagonal; got {ridge!r}")


def _given(encoders: Sequence[Encoder], ridge: float | None, sigma: str) -> Choice | None:
    """What was given, if nothing is to be chosen."""
    if sigma == "auto" and not any(tunable(encoder) for encoder in encoders):
        names = ", ".join(sorted({encoder.name for encoder in encoders}))
        raise InputError(f"sigma: auto: {names} has no width to choose; leave sigma out")
    return Choice(ridge, tuple(encoders), "given") if sigma == "given" and ridge is not None else None


def _choose(
    encoders: tuple[Encoder, ...],
    samples: Sequence[float],
    ridge: float | None,
    sigma: Literal["given", "auto"],
    fallback: float | None,
    curve: Callable[[tuple[Encoder, ...], bool], dict[float, float]],
    scattered: bool,
) -> Choice:
    """The width by a coarse look at some candidates, then the ridge.

    Args:
        encoders: One per axis.
        samples: Samples per unit length of each axis, as many as a grid of their density has.
        ridge: The ridge to keep to; ``None`` to choose one.
        sigma: ``auto`` to choose a width.
        fallback: The ridge if nothing can be held out; ``None`` if something can.
        curve: Held-out PSNR by ridge, of encoders at the ridges that are worth a coarse or a fine look.
        scattered: At scattered points a look is expensive: widths are climbed, coarse looks are final, and the largest of
            the tied ridges is taken. On a grid all :data:`FACTORS` are tried, and the least is taken.
    """
    widths: dict[float, tuple[Encoder, ...]] = {}
    curves: dict[float, dict[float, float]] = {}
    tried: list[dict[str, Any]] = []

    def widened(factor: float) -> tuple[Encoder, ...]:
        if sigma == "given":
            return encoders
        return tuple(changed(encoders, lambda encoder, n: encoder.widened(n, factor), samples))

    def look(factor: float, coarse: bool = True) -> float:
        if not coarse or factor not in curves:
            made = widths[factor] = widths.get(factor) or widened(factor)
            found = curves[factor] = curve(made, coarse)
            names = {tunable(e): e.resolved()[str(tunable(e))] for e in reversed(made) if tunable(e)}
            tried.extend({"ridge": r, "psnr": score, "width": names or None} for r, score in found.items())
        return max(curves[factor].values())

    if fallback is not None:
        return Choice(fallback if ridge is None else ridge, widened(1.0), "fallback")
    if sigma == "auto" and scattered:
        for step in (2**0.5, 2**-0.5):  # wider, then narrower, as long as that helps
            steps, before = 1, look(1.0)
            while look(step**steps) > before and steps < 6:
                before = look(step**steps)
                steps += 1
    elif sigma == "auto":
        for factor in FACTORS:
            look(factor)
    factors = {factor: max(found.values()) for factor, found in curves.items()}
    # of equally good widths the one nearest to the default
    good = [f for f in factors if factors[f] >= max(factors.values()) - TIE / 5]
    chosen = min(good, key=lambda f: abs(math.log(f)), default=1.0)
    if not (scattered and curves):
        look(chosen, coarse=False)
    points = tuple(sorted(curves[chosen].items()))
    strength = tied(points)[1 if scattered else 0] if ridge is None else ridge
    return Choice(strength, widths[chosen], "held-out", points, tuple(sorted(factors.items())), chosen, tuple(tried))


# -- grids ------------------------------------------------------------------------------------------------------------


def choose_grid(
    values: Tensor,
    axes: Sequence[Tensor],
    encoders: Sequence[Encoder],
    ridge: float | Literal["auto"] = "auto",
    sigma: Literal["given", "auto"] = "given",
    full_size: Sequence[int] | None = None,
) -> Choice:
    """Chooses one ridge, and one width of the features, for a set of signals on a grid.

    Costs a few solves, however large the grid is: windows of it are looked at, with one factorisation per axis and width.

    Args:
        values: Training values ``(S, N_1, ..., N_D, C)``, or a part of them that is a grid itself.
        axes: Their coordinates, ``(N_a,)`` per axis, evenly spaced.
        encoders: One encoder per axis.
        ridge: ``auto``, or the relative ridge to use.
        sigma: ``auto`` to choose the width that the encoders declare, by one common factor for all axes; ``given`` to keep
            the encoders.
        full_size: Samples per axis of the whole grid, if ``values`` are a part of it.
    """
    strength = check_ridge(ridge)
    given = _given(encoders, strength, sigma)
    if given is not None:
        return given
    sizes = [len(x) for x in axes] if full_size is None else list(full_size)
    thinned = [n >= MIN_SAMPLES for n in values.shape[1:-1]]
    windows, coords = grid_windows(values, axes)

    def curve(some: Sequence[Encoder], coarse: bool) -> dict[float, float]:
        score = _thinned_grid(windows, coords, some, sizes, thinned)
        if strength is not None:
            return {strength: score(strength)}
        found = {r: score(r) for r in (SCAN if coarse else DECADES)}
        if not coarse:  # the half and quarter decades around the best, and the least that is tied with it
            for step in (10**0.5, 10**0.25):
                best = max(found, key=lambda r: found[r])
                found.update({r: score(r) for r in (best / step, best * step)})
            edge, _ = tied(sorted(found.items()))
            if edge not in found:
                found[edge] = score(edge)
        return found

    fallback = None if any(thinned) else max(encoder.fallback_ridge for encoder in encoders)
    with full_precision(values.device):
        samples = [samples_per_unit(x) for x in axes]
        chosen = _choose(tuple(encoders), samples, strength, sigma, fallback, curve, scattered=False)
        if strength is None and any(encoder.drawn for encoder in chosen.encoders):
            return replace(chosen, ridge=_steady(chosen.ridge, chosen.encoders, [x.to(values.device) for x in coords]))
        return chosen


def _steady(ridge: float, encoders: Sequence[Encoder], axes: Sequence[Tensor]) -> float:
    """The ridge, or the least larger one at which noise of the samples is not amplified between them.

    Features that are drawn anew for a thinned grid cannot show what the draw itself does: one frequency that vanishes on the
    samples, but not between them, makes 13 dB of 22 at a small ridge. What noise becomes needs no held-out samples: the
    squared norm of the weights that the samples have at the points half-way between them, whose mean is about 1/2 otherwise.
    """
    factors, at, both = [], [], []
    for encoder, x in zip(encoders, axes, strict=True):
        factors.append(factor_axis(encoder(x)))
        half = x + (x[min(1, len(x) - 1)] - x[0]) / 2
        norms = [(encoder(points) @ factors[-1].right).square().mean(0) for points in (x, half)]
        at.append(norms[0])
        both.append(norms[0] + norms[1])
    joint = reduce(torch.kron, [f.singular_values for f in factors])
    between = (reduce(torch.kron, both) - reduce(torch.kron, at)) / (2 ** len(factors) - 1)
    unit = math.prod(f.mean_diagonal for f in factors)

    def noise(r: float) -> float:
        return float(((joint / (joint.square() + r * unit).clamp_min(1e-300)).square() * between).sum())

    while noise(ridge) > NOISE and ridge < DECADES[-1]:
        ridge *= 10**0.125
    return ridge


def grid_windows(values: Tensor, axes: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Parts of the data ``(W, S', C, n_1, ..., n_D)``, and coordinates of one of them per axis."""
    side = WINDOW.get(len(axes), 16)
    some = values[:: -(-len(values) // MAX_SIGNALS) or 1]
    parts, coords = [some.movedim(-1, 1)], []
    for a, x in enumerate(axes):
        n = len(x)
        parts = [
            part.narrow(2 + a, start, min(n, side)) for part in parts for start in _starts(n, side, MOST.get(len(axes), 2))
        ]
        coords.append(x[:side].to(torch.float64))
    return torch.stack(parts).to(torch.promote_types(values.dtype, torch.float32)), coords


def _starts(n: int, side: int, most: int) -> list[int]:
    """First samples of the windows of an axis, evenly spread: at least two of a longer axis, which may then overlap."""
    count = 1 if n <= side else min(most, max(2, n // side))
    return [(2 * turn + 1) * (n - min(n, side)) // (2 * count) for turn in range(count)]


def held_out(sizes: Sequence[int], thinned: Sequence[bool], device: torch.device) -> tuple[Tensor, Tensor]:
    """Of a grid, the weights of the samples that a thinned one leaves out, else zero; and which it keeps, one or zero."""
    weights, known = [], []
    for n, thin in zip(sizes, thinned, strict=True):
        # the samples past the last trained one are twice as large a share of the thinned grid as of the real one
        weights.append(torch.ones(n, device=device, dtype=torch.float64))
        weights[-1][-1] = 0.5 if thin and n % 2 == 0 else 1.0
        known.append((torch.arange(n, device=device) % (2 if thin else 1) == 0).double())
    kept = reduce(torch.kron, known)
    return (reduce(torch.kron, weights) * (1 - kept)).reshape(*sizes), kept.reshape(*sizes)


def _thinned_grid(
    windows: Tensor, coords: Sequence[Tensor], encoders: Sequence[Encoder], sizes: Sequence[int], thinned: Sequence[bool]
) -> Callable[[float], float]:
    """The score of a ridge: PSNR in dB of predictions of the samples that a thinned grid leaves out, mean over signals."""
    device, dtype = windows.device, windows.dtype
    factors, bases = [], []
    made: dict[tuple[object, ...], Any] = {}
    for x, encoder, size, thin in zip(coords, encoders, sizes, thinned, strict=True):
        key, stride = (id(encoder), tuple(x.tolist()), size, thin), 2 if thin else 1
        if key not in made:
            whole = (x - x[0]) * (size / len(x)) + x[0]  # a window becomes a small grid of its own
            features = shrunk(encoder, stride * size / len(x))(whole.to(device))
            factor = factor_axis(features[::stride])
            made[key] = factor, (features @ factor.right).to(dtype)
        factors.append(made[key][0])
        bases.append(made[key][1])
    weight = held_out([len(x) for x in coords], thinned, device)[0].to(dtype)
    joint = reduce(torch.kron, [f.singular_values for f in factors]).reshape([f.rank for f in factors])
    unit = math.prod(f.mean_diagonal for f in factors)
    sparse = windows[(slice(None),) * 3 + tuple(slice(None, None, 2 if thin else 1) for thin in thinned)]
    mean = sparse.mean(tuple(range(3, windows.ndim)), keepdim=True, dtype=torch.float64).to(dtype)
    target, projection = windows - mean, mode_products(sparse - mean, [f.left().to(dtype).T.contiguous() for f in factors])

    def score(ridge: float) -> float:
        # the floor only keeps 0/0 out: features that are all zero predict the mean
        response = joint / (joint.square() + ridge * unit).clamp_min(1e-300)
        error = mode_products(projection * response.to(dtype), bases).sub_(target).square_().mul_(weight)
        total = error.transpose(0, 1).flatten(1).sum(1, dtype=torch.float64)
        count = weight.sum(dtype=torch.float64) * (error[:, 0, :].numel() // weight.numel())
        return float(psnr(total, count.expand_as(total)).clamp(-1000, 120).mean())  # a perfect prediction counts as 120 dB

    return score


# -- scattered points -------------------------------------------------------------------------------------------------


def choose_points(
    values: Tensor,
    encoder: EncoderLike | Sequence[EncoderLike],
    *,
    coords: Tensor | None = None,
    axes: Sequence[Tensor] | None = None,
    mask: Tensor | None = None,
    index: Tensor | None = None,
    ridge: float | Literal["auto"] = "auto",
    sigma: Literal["given", "auto"] = "given",
    center: bool = True,
    distributed: bool = False,
) -> Choice:
    """Chooses one ridge, and one width of the features, for a set of signals at scattered points.

    A tenth of the training points of at most four signals is held out; of a large grid, of the points in windows of it.
    Ridges go down from the largest, each solve starting from the last one's weights and taking at most 20 iterations, until
    they get worse: half a dozen ridges.
    The arguments are those of :func:`~pe_lightning.solvers.solve_points`.

    Warns:
        ChoiceWarning: If there are too few points to hold any out; the ridge is then 0.1.
    """
    strength = check_ridge(ridge)
    num_axes = len(axes) if axes is not None else (coords.shape[-1] if coords is not None else 1)
    density = density_of(values, axes, mask, num_axes, distributed)
    spacing = [1 / n for n in density] if axes is None else [1 / samples_per_unit(x) for x in axes]
    encoders = axis_encoders(encoder, spacing, density, values.shape[-1], values.device)
    given = _given(encoders, strength, sigma)
    if given is not None:
        return given
    where: dict[str, Any] = {"coords": coords, "axes": axes, "mask": mask, "index": index}
    ratios = [1.0] * num_axes
    if axes is not None and not any(_sees_coordinates_closer(encoder) for encoder in encoders):
        point_samples(values, encoders, distributed=distributed, **where)  # for its checks
        values, where, ratios = point_windows(values, axes, mask, index, distributed) or (values, where, ratios)

    def build(some: Sequence[Encoder]) -> PointProblem | LineProblem:
        small = [encoder if ratio == 1 else shrunk(encoder, ratio) for encoder, ratio in zip(some, ratios, strict=True)]
        return point_problem(values, small, center=center, distributed=distributed, **where)  # type: ignore[arg-type]

    with full_precision(values.device):
        problem = build(encoders)
        signals = slice(0, None, -(-len(values) // POINT_SIGNALS) if max(ratios) == 1 else 1)
        samples = problem.samples.select(signals)
        held = fractions(samples.coordinates().unbind(-1)) < FRACTION
        kept = ~held
        if samples.mask is not None:
            held, kept = held & samples.mask, kept & samples.mask
        few = len(values[signals])
        counts = problem.summed(torch.stack([part.sum(1).double().expand(few) for part in (held, kept)]))
        if max(ratios) > 1:  # windows are scored together, or those where hardly anything happens would decide
            counts = counts.sum(1, keepdim=True)
        fallback = POINT_FALLBACK if int(counts.min()) < MIN_HELD else None
        if fallback is not None and strength is None:
            text = f"ridge: auto takes the relative ridge {fallback}; too few points of a signal could be held out"
            warnings.warn(text, ChoiceWarning, stacklevel=2)
        record, near = -math.inf, POINT_RIDGES if strength is None else (strength,)

        def curve(some: Sequence[Encoder], _: bool) -> dict[float, float]:
            nonlocal near, record
            rest = (problem if some is encoders else build(some)).select(signals, kept)
            found: dict[float, float] = {}
            z: list[Tensor] | None = None
            best, worse = -math.inf, 0
            for r in near:
                z = [part.z for part in rest.solve(r, INNER_ITERATIONS, INNER_TOLERANCE, True, z)]
                errors = rest.squared_error(z, held).reshape(counts.shape[1], -1).sum(1)
                found[r] = float(psnr(errors, counts[0] * values.shape[-1]).mean())
                best, worse = (found[r], 0) if found[r] > best else (best, worse + 1)
                if worse == 2:
                    break
            if best > record and strength is None:  # the ridges of the next width
                record, top = best, max(found, key=lambda r: found[r])
                near = (top * 10**0.5, top, top / 10**0.5)
            return found

        return _choose(tuple(encoders), density, strength, sigma, fallback, curve, scattered=True)


def point_windows(
    values: Tensor, axes: Sequence[Tensor], mask: Tensor | None, index: Tensor | None, distributed: bool
) -> tuple[Tensor, dict[str, Any], list[float]] | None:
    """Windows of a grid as signals ``(W * S', n_1, ..., n_D, C)``, where their points are, and how much larger the grid is.

    Windows with hardly any points are left out; ``None`` if the grid is small, or if there is no other window.
    """
    grid, side = [len(x) for x in axes], POINT_WINDOW.get(len(axes), 16)
    if max(grid) <= side:
        return None
    some = slice(0, None, -(-len(values) // POINT_SIGNALS))
    if mask is None:
        assert index is not None  # or the problem would have been refused
        places = index.to(values.device).expand(len(values), -1)[some]
        mask = torch.zeros(len(places), math.prod(grid), dtype=torch.bool, device=values.device).scatter_(1, places, True)
        whole = values.new_zeros(*mask.shape, values.shape[-1])
        whole.scatter_(1, places[..., None].expand(-1, -1, values.shape[-1]), values[some])
        values = whole.reshape(len(whole), *grid, -1)
    else:
        mask = mask.to(values.device).expand(len(values), *grid)[some]
        values = values[some]
    parts = [(values, mask.reshape(-1, *grid))]
    for a, n in enumerate(grid):
        width = min(n, side)
        starts = _starts(n, side, MOST.get(len(grid), 2))
        parts = [(v.narrow(1 + a, start, width), m.narrow(1 + a, start, width)) for v, m in parts for start in starts]
    found, where = torch.cat([v for v, _ in parts]), torch.cat([m for _, m in parts])
    counts = where.flatten(1).sum(1)
    if distributed:
        torch.distributed.all_reduce(counts)
    enough = counts >= MIN_HELD / FRACTION
    if not enough.any():
        return None
    ratios = [n / min(n, side) for n in grid]
    small = [(x[:side] - x[0]) * ratio + x[0] for x, ratio in zip(axes, ratios, strict=True)]
    return found[enough], {"coords": None, "axes": small, "mask": where[enough], "index": None}, ratios


def density_of(
    values: Tensor, axes: Sequence[Tensor] | None, mask: Tensor | None, num_axes: int, distributed: bool
) -> list[float]:
    """Samples per unit length of each axis, of a grid with as many samples as there are points; mean over signals."""
    count = torch.tensor(float(values.shape[1]) if mask is None else mask.float().mean().item() * values[0, ..., 0].numel())
    if distributed and torch.distributed.is_initialized():
        torch.distributed.all_reduce(count)
    if axes is None:
        return [max(float(count), 1.0) ** (1 / num_axes)] * num_axes
    share = max(float(count), 1.0) / math.prod(len(x) for x in axes)
    return [samples_per_unit(x) * share ** (1 / num_axes) for x in axes]


def fractions(coords: Sequence[Tensor]) -> Tensor:
    """A fraction in [0, 1) that looks random, from coordinates per axis; the same on every device and process."""
    state = torch.ones_like(coords[0], dtype=torch.int64)
    for x in coords:
        # multiply and fold, as in splitmix64; products wrap around
        state = (state ^ (x.double() * 2**40).long()) * -7046029254386353131
        state = state ^ (state >> 32)
        state = state * -4658895280553007687
        state = state ^ (state >> 29)
    return (state & 0xFFFFFFFF).double() / 2**32


# -- the encoders of the axes -----------------------------------------------------------------------------------------


def axis_encoders(
    encoder: EncoderLike | Sequence[EncoderLike],
    spacing: Sequence[float],
    samples: Sequence[float],
    channels: int,
    device: torch.device,
) -> list[Encoder]:
    """One encoder of one axis per axis on a device, from what a solver takes; the caller's own are not moved.

    The arguments are those of :func:`~pe_lightning.encodings.complex.sized`.
    """
    encoders = per_axis(encoder, len(spacing))
    for axis, entry in enumerate(encoders):
        if entry.num_axes != 1:
            raise InputError(f"axis {axis}: the solvers take encoders of one axis, {entry.name!r} has {entry.num_axes}")

    def moved(entry: Encoder) -> Encoder:
        elsewhere = any(part.device != device for part in (*entry.parameters(), *entry.buffers()))
        return copy.deepcopy(entry).to(device) if elsewhere else entry

    return changed(sized(encoders, spacing, samples, channels), moved)


def tunable(encoder: Encoder) -> str | None:
    """The argument that ``sigma: auto`` chooses: the width that the encoder declares, if it does."""
    return None if encoder.width is None else encoder.width.argument


def shrunk(encoder: Encoder, ratio: float) -> Callable[[Tensor], Tensor]:
    """The features for an axis with ``1 / ratio`` of the samples: the same picture, seen with fewer, larger pixels.

    Features per sample, and widths in units of the sample spacing, stay what they are. An encoder that declares neither
    width nor support, or that has parameters of its own, sees its coordinates closer together instead, which keeps
    everything in units of the spacing but for the number of features per sample.
    """
    if _sees_coordinates_closer(encoder):
        near = squeezed(encoder, ratio)
        return lambda x: near(x / ratio)
    width = encoder.width
    arguments, changes = encoder.resolved(), dict[str, Any]()
    if width is not None:
        changes[width.argument] = width.scaled(arguments[width.argument], ratio)
    if "num_features" in arguments:
        changes["num_features"] = encoder.multiple * math.ceil(arguments["num_features"] / (encoder.multiple * ratio) - 1e-6)
    if "spacing" in arguments:
        changes["spacing"] = min(arguments["spacing"] * ratio, 1.0)
    return encoder.copy(**changes)


def squeezed(encoder: Encoder, ratio: float) -> Encoder:
    """The encoder for coordinates up to ``1 / ratio``: of shifted features of one width only those that are there."""
    if encoder.resolution is None or encoder.per_feature or ratio == 1:
        return encoder
    shifts = int(encoder.resolved().get("num_features", encoder.num_features))
    return encoder.leading(math.ceil(shifts / ratio - 1e-6) + encoder.num_features - shifts)


def _sees_coordinates_closer(encoder: Encoder) -> bool:
    """Whether the encoder cannot be made for a smaller grid from its arguments."""
    return (encoder.width is None and encoder.support is None) or any(True for _ in encoder.parameters())
