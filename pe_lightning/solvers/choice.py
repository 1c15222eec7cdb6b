"""Ridge, width, padding and number of features of an exact fit, chosen by prediction of held-out training samples.

Every second sample of each axis of a grid is held out, and the features are made for the coarser grid
(:mod:`~pe_lightning.solvers.held_out`). This measures what is predicted later, samples halfway between fitted ones, but at
twice the spacing. Smooth signals are other signals there: where samples that are left out one at a time are missed by less
than half as much, these errors and the evidence decide (:mod:`~pe_lightning.solvers.leave_one_out`).

Of ridges within 0.05 dB of the best, a grid takes the least: a signal is rougher on the coarser grid of the fitted samples,
and its best ridge larger. Scattered points take the largest: their solves are short, which smooths too and hides how much a
small ridge would overfit.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Literal

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, EncoderLike, per_axis, samples_per_unit, sized, widened
from pe_lightning.encoders.cells import resized
from pe_lightning.encoders.configured import changed
from pe_lightning.encoders.resolution import MAX_WEIGHTS, keeps_its_arguments, shrunk
from pe_lightning.errors import InputError
from pe_lightning.linalg import factor_axes, full_precision, ridge_response
from pe_lightning.linalg.threads import threads_for_values
from pe_lightning.signals import validation
from pe_lightning.solvers.features import on_host
from pe_lightning.solvers.held_out import (
    HELD_OUT_FRACTION,
    LEAVE_ONE_OUT_SAMPLES,
    MAX_LEAVE_ONE_OUT_SIGNALS,
    MAX_POINT_SIGNALS,
    MIN_HELD_OUT_POINTS,
    MIN_WINDOW_SAMPLES,
    GridValues,
    ThinnedGrid,
    draw_fractions,
    grid_windows,
    point_density,
    point_windows,
    thinned_grid,
)
from pe_lightning.solvers.iterative import PointProblem
from pe_lightning.solvers.leave_one_out import Evidence, LeaveOneOut
from pe_lightning.solvers.line import LineProblem, point_problem
from pe_lightning.solvers.samples import point_samples
from pe_lightning.solvers.scorers import GridScorer, PointScorer
from pe_lightning.solvers.search import MAX_FEATURES_PER_SAMPLE, MAX_RIDGE, RULES, Candidate, Scorer, Search, Space, tunable

SMOOTH_DB = 6.0
"""Difference of leave-one-out and held-out PSNR above which a signal is another one at twice the spacing."""
SEARCH_DB = 2.0
"""The same difference of the encoders that held-out samples choose, above which leave-one-out errors search for others."""
INFORMED_DB = 3.0
"""Gain over the mean of a signal below which held-out samples do not choose where leave-one-out errors can."""
MEAN_RIDGE = 1e9
"""Ridge with which a fit predicts the mean."""
MAX_WIDER_WEIGHTS = 1 << 24
"""Most weights of a signal with more than one feature per sample and axis."""
DRAWS = 3
"""Draws of random features whose held-out scores are averaged to choose widths."""
FALLBACK_POINT_RIDGE = 0.1
"""Near the best for shifted encoders at scattered points; also for features that do not connect points, with which every
ridge predicts held-out ones alike.
"""


class ChoiceWarning(UserWarning):
    """No sample could be held out, and a default ridge was used."""


@dataclass(frozen=True)
class Choice:
    """The chosen ridge and encoders, and the scores that led to them."""

    ridge: float
    encoders: tuple[Encoder, ...]
    """One per axis, with the chosen width, padding and number of features."""
    rule: Literal["held-out", "leave-one-out", "evidence", "fallback", "given"]
    """``held-out``: by prediction of held-out samples; of smooth signals ``evidence``, by the marginal likelihood, or
    ``leave-one-out``; ``fallback``: there are too few; ``given``: no choice.
    """
    curve: tuple[tuple[float, float], ...] = ()
    """Ridge and held-out PSNR in dB, mean over signals, of the chosen encoders; ascending."""
    factors: tuple[tuple[float, float], ...] = ()
    """Widths relative to the default width, and the best held-out PSNR of each; ascending."""
    candidate: Candidate = RULES
    """What was chosen, relative to the rules of the encoder."""
    tried: tuple[Mapping[str, Any], ...] = ()
    """Everything that was tried, in order: ``{"ridge": ..., "psnr": ..., "width": {argument: value} or None, ...}``."""

    @property
    def factor(self) -> float:
        """The chosen width, relative to the default one."""
        return self.candidate.factor

    def report(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "rule": self.rule,
            "ridge": self.ridge,
            "parameter": [tunable(encoder) for encoder in self.encoders],
            "value": [encoder.resolved().get(tunable(encoder) or "") for encoder in self.encoders],
            "num_features": [encoder.num_features for encoder in self.encoders],
            "padding": self.candidate.padding,
            "features_per_sample": self.candidate.per_sample,
            "curve": [list(point) for point in self.curve],
            "factors": [list(point) for point in self.factors],
            "factor": self.factor,
            "tried": [dict(row) for row in self.tried],
        }


def check_ridge(ridge: object, dtype: torch.dtype = torch.float64) -> float | None:
    """:func:`used_ridge` of a checked ridge, ``None`` for ``auto``."""
    if ridge == "auto":
        return None
    text = " or 'auto' (1e-3 is moderate, 0 plain least squares)"
    return used_ridge(validation.number("ridge", ridge, "[0, inf)", hint=text), dtype)


def used_ridge(ridge: float, dtype: torch.dtype) -> float:
    """``ridge``, or zero below the square of ``eps`` of the data's dtype: it would damp rounding errors alone."""
    return ridge if ridge >= torch.finfo(torch.promote_types(dtype, torch.float32)).eps ** 2 else 0.0


def _given(encoders: Sequence[Encoder], ridge: float | None, sigma: str) -> Choice | None:
    if sigma == "auto" and not any(tunable(encoder) for encoder in encoders):
        names = ", ".join(sorted({encoder.name for encoder in encoders}))
        raise InputError(f"sigma: auto: {names} has no width to choose; leave sigma out")
    return Choice(ridge, tuple(encoders), "given") if sigma == "given" and ridge is not None else None


# -- grids ------------------------------------------------------------------------------------------------------------


@threads_for_values(passes=6)
def choose_grid(
    values: GridValues,
    axes: Sequence[Tensor],
    encoders: Sequence[Encoder],
    ridge: float | Literal["auto"] = "auto",
    sigma: Literal["given", "auto"] = "given",
    full_size: Sequence[int] | None = None,
    center: bool = True,
    mask: Tensor | None = None,
    max_weights: int = MAX_WEIGHTS,
    features: Literal["given", "auto"] = "auto",
) -> Choice:
    """Chooses one ridge, and one width of the features, for a set of signals on a grid.

    Costs a few solves, however large the grid is: windows of it are fitted, with one factorisation per axis and candidate.
    The search climbs from the rules of the encoder (:class:`~pe_lightning.solvers.search.Search`).

    Args:
        values: Training values ``(S, N_1, ..., N_D, C)``, or a part of them that is a grid itself; or samples in a file, of
            which windows are read.
        axes: Their coordinates, ``(N_a,)`` per axis, evenly spaced.
        encoders: One encoder per axis.
        ridge: ``auto``, or the relative ridge to use.
        sigma: ``auto`` to choose the width that the encoders declare, by one factor for all axes; ``given`` to keep it.
        full_size: Samples per axis of the whole grid, if ``values`` are a part of it.
        center: Whether the mean of each signal and channel is subtracted.
        mask: The known samples, ``(S or 1, N_1, ..., N_D)``; leave-one-out errors ignore the others, which are interpolated.
        max_weights: Most weights of a signal with ``num_features: auto``.
        features: ``auto`` to choose with ``sigma: auto`` also the padding and the number of features of encoders that leave
            them to the data; ``given`` to keep to the rule.
    """
    strength = check_ridge(ridge, values.dtype)
    channels, device = values.shape[-1], values.device
    resolved = _on_device(
        sized(encoders, [1 / samples_per_unit(x) for x in axes], _densities(axes), channels, max_weights), device
    )
    given = _given(resolved, strength, sigma)
    if given is not None:
        return given
    space = Space(lambda _: tuple(resolved))
    if sigma == "auto":
        space = _grid_space(encoders, axes, channels, device, max_weights, features)
    sizes = [len(x) for x in axes] if full_size is None else list(full_size)
    thinned = thinned_grid(values, axes, sizes)
    if 2 not in thinned.strides:
        start = space.make(space.start) or tuple(resolved)
        fallback = max(encoder.fallback_ridge for encoder in start)
        return Choice(fallback if strength is None else strength, start, "fallback", candidate=space.start)
    with full_precision(device):
        search = Search("grid", space, strength, partial(_grid_scorer, thinned, center, DRAWS if sigma == "auto" else 1))
        best, chosen = search.run()
        rule: Literal["held-out", "leave-one-out", "evidence"] = "held-out"
        side = LEAVE_ONE_OUT_SAMPLES.get(len(axes), MIN_WINDOW_SAMPLES)
        windows = grid_windows(values, axes, sizes, side, MAX_LEAVE_ONE_OUT_SIGNALS, mask)
        closer = Search("grid", space, strength, lambda made: LeaveOneOut(windows, made, center))
        near = best
        if sigma == "auto" and not _is_informed(search, best):
            near = closer.run()[0]
        elif sigma == "auto" and closer.value(best) > search.value(best) + SEARCH_DB:
            near = closer.run(best)[0]
        bar = search.value(best) + SMOOTH_DB
        if closer.value(near) > bar:
            best, chosen = closer.run(near)
            likely = Search("grid", space, strength, lambda made: Evidence(windows, made, center), handicaps=False)
            other, ridge_of_other = likely.run(best)
            # the evidence tells more of wide features than errors near rounding do, but it takes tones for noise
            if closer.value(other) > bar:
                search, rule, best, chosen = likely, "evidence", other, ridge_of_other
            else:
                search, rule = closer, "leave-one-out"
        made = search.encoders[best]
        assert made is not None
        if strength is None and any(encoder.drawn for encoder in made):
            small = [x[:n].to(torch.float64) for x, n in zip(axes, thinned.values.shape[3:], strict=True)]
            chosen = _ridge_for_noise(chosen, *on_host(made, small, device))
    curve = tuple(sorted(search.curves[best].items()))
    return Choice(chosen, made, rule, curve, search.factors, best, tuple(search.tried))


def _is_informed(search: Search, best: Candidate) -> bool:
    """Whether held-out samples tell more than the mean does: half of the samples of a wave near the band limit do not."""
    return search.value(best) > search.scorers[best]([MEAN_RIDGE])[0] + INFORMED_DB


def _grid_scorer(thinned: ThinnedGrid, center: bool, draws: int, encoders: tuple[Encoder, ...]) -> Scorer:
    """Of features that are drawn at random the mean of several draws: the coarser grid has another one anyway."""
    if draws == 1 or not any(encoder.drawn for encoder in encoders):
        return GridScorer(thinned, encoders, center)

    def drawn(number: int) -> GridScorer:
        def again(encoder: Encoder) -> Encoder:
            return encoder.copy(seed=encoder.arguments["seed"] + number) if encoder.drawn else encoder

        return GridScorer(thinned, changed(encoders, again), center)

    scorers = [drawn(number) for number in range(draws)]

    def score(ridges: Sequence[float], ahead: Sequence[float] = ()) -> list[float]:
        every = [scorer(ridges, ahead) for scorer in scorers]
        return [sum(scores) / len(every) for scores in zip(*every, strict=True)]

    return score


def _densities(axes: Sequence[Tensor]) -> list[float]:
    return [samples_per_unit(x) for x in axes]


def _grid_space(
    encoders: Sequence[Encoder],
    axes: Sequence[Tensor],
    channels: int,
    device: torch.device,
    max_weights: int,
    features: Literal["given", "auto"],
) -> Space:
    """The candidates of encoders whose arguments may be left to the data."""
    samples = _densities(axes)
    open_ones = [encoder for encoder in encoders if encoder.is_open] if features == "auto" else []
    paddings = any(encoder.arguments.get("padding") == "auto" for encoder in open_ones)

    def make(candidate: Candidate) -> tuple[Encoder, ...] | None:
        def padded(encoder: Encoder) -> Encoder:
            is_free = encoder.is_open and encoder.arguments.get("padding") == "auto"
            return encoder.copy(padding=candidate.padding) if is_free and candidate.padding is not None else encoder

        spacing = [1 / (n * (candidate.per_sample if e.is_open else 1)) for e, n in zip(encoders, samples, strict=True)]
        if candidate.per_sample > 1 and channels * math.prod(1 / s for s in spacing) > min(max_weights, MAX_WIDER_WEIGHTS):
            return None
        made = sized(changed(encoders, padded), spacing, samples, channels, max_weights)
        return tuple(_on_device(_with_width(made, samples, candidate), device))

    most = MAX_FEATURES_PER_SAMPLE if open_ones else 1
    start = Candidate(per_sample=most if all(e.drawn for e in open_ones) else 1)
    if make(start) is None:
        start, most = Candidate(), 1
    return Space(make, any(tunable(encoder) for encoder in encoders), paddings, start, most)


def _ridge_for_noise(ridge: float, encoders: Sequence[Encoder], axes: Sequence[Tensor]) -> float:
    """The ridge, or the least larger one at which noise of the samples is not amplified between them.

    For features that are drawn at random: the coarser grid has another draw, which does not show a frequency that
    vanishes at the samples alone. The variance of unit noise at a point is the squared norm of the weights that the samples
    have there, about 1/2 without such a frequency.
    """
    factors, at, both = factor_axes([encoder(x) for encoder, x in zip(encoders, axes, strict=True)]), [], []
    for encoder, x, factor in zip(encoders, axes, factors, strict=True):
        half = x + (x[min(1, len(x) - 1)] - x[0]) / 2
        norms = [(encoder(points) @ factor.right).square().mean(0) for points in (x, half)]
        at.append(norms[0])
        both.append(norms[0] + norms[1])
    between = (reduce(torch.kron, both) - reduce(torch.kron, at)) / (2 ** len(factors) - 1)

    def noise(r: float) -> float:
        return float((ridge_response(factors, r, torch.float64)[1].square() * between).sum())

    while noise(ridge) > 0.75 and ridge < MAX_RIDGE:
        ridge *= 10**0.125
    return ridge


# -- scattered points -------------------------------------------------------------------------------------------------


@threads_for_values(passes=100)
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
    Ridges are tried from the largest on until the score falls twice, each with at most 20 iterations from the weights of
    the ridge before. The arguments are as for :func:`~pe_lightning.solvers.solve_points`.

    Warns:
        ChoiceWarning: If there are too few points to hold any out; the ridge is then 0.1.
    """
    strength = check_ridge(ridge, values.dtype)
    num_axes = len(axes) if axes is not None else (coords.shape[-1] if coords is not None else 1)
    density = point_density(values, axes, mask, num_axes, distributed)
    encoders = tuple(axis_encoders(encoder, axes, density, values.shape[-1], values.device))
    given = _given(encoders, strength, sigma)
    if given is not None:
        return given
    location: dict[str, Any] = {"coords": coords, "axes": axes, "mask": mask, "index": index}
    ratios = [1.0] * num_axes
    if axes is not None and not any(keeps_its_arguments(encoder) for encoder in encoders):
        point_samples(values, encoders, distributed=distributed, **location)  # for its checks
        if windows := point_windows(values, axes, mask, index, distributed):
            values, location, ratios = windows
    in_windows = max(ratios) > 1

    def build(candidate: tuple[Encoder, ...]) -> PointProblem | LineProblem:
        each = zip(candidate, ratios, strict=True)
        small = [encoder if ratio == 1 else shrunk(resized(encoder, ratio), ratio) for encoder, ratio in each]
        return point_problem(values, small, center=center, distributed=distributed, **location)  # type: ignore[arg-type]

    with full_precision(values.device):
        problem = build(encoders)
        signals = slice(0, None, 1 if in_windows else -(-len(values) // MAX_POINT_SIGNALS))
        samples = problem.samples.select(signals)
        held = draw_fractions(samples.coordinates().unbind(-1)) < HELD_OUT_FRACTION
        fitted = ~held
        if samples.mask is not None:
            held, fitted = held & samples.mask, fitted & samples.mask
        few = len(values[signals])
        counts = problem.summed(torch.stack([part.sum(1).double().expand(few) for part in (held, fitted)]))
        if in_windows:  # one PSNR of all windows: nearly constant windows would dominate a mean
            counts = counts.sum(1, keepdim=True)
        space = Space(lambda _: encoders)
        if sigma == "auto":
            space = Space(partial(_with_width, encoders, density), widths=True)
        if int(counts.min()) < MIN_HELD_OUT_POINTS:
            if strength is None:
                used = f"ridge: auto uses the relative ridge {FALLBACK_POINT_RIDGE}"
                warnings.warn(f"{used}: too few points of a signal could be held out", ChoiceWarning, stacklevel=2)
            start = space.make(space.start)
            assert start is not None
            return Choice(FALLBACK_POINT_RIDGE if strength is None else strength, start, "fallback")

        def scorer(candidate: tuple[Encoder, ...]) -> PointScorer:
            rest = (problem if candidate is encoders else build(candidate)).select(signals, fitted)
            return PointScorer(rest, held, counts[0])

        search = Search("points", space, strength, scorer)
        best, chosen = search.run()
        made, points = search.encoders[best], search.scorers[best]
        assert made is not None
        assert isinstance(points, PointScorer)
        rule: Literal["held-out", "fallback"] = "held-out"
        if strength is None and not points.predicts_waves([n / ratio for n, ratio in zip(density, ratios, strict=True)]):
            chosen, rule = FALLBACK_POINT_RIDGE, "fallback"
    curve = tuple(sorted(search.curves[best].items()))
    return Choice(chosen, made, rule, curve, search.factors, best, tuple(search.tried))


def _with_width(encoders: Sequence[Encoder], samples: Sequence[float], candidate: Candidate) -> tuple[Encoder, ...]:
    return tuple(changed(encoders, lambda encoder, n: widened(encoder, n, candidate.factor), samples))


# -- the encoders of the axes -----------------------------------------------------------------------------------------


def axis_encoders(
    encoder: EncoderLike | Sequence[EncoderLike],
    axes: Sequence[Tensor] | None,
    density: Sequence[float] | None,
    channels: int,
    device: torch.device,
) -> list[Encoder]:
    """One encoder of one axis per axis on a device, from the argument of a solver; the caller's own are not moved.

    ``density`` are the trained samples per unit length of each axis, by default all of the grid ``axes``.
    """
    per_unit = [samples_per_unit(x) for x in axes] if axes is not None else density or ()
    encoders = per_axis(encoder, len(per_unit))
    return _on_device(sized(encoders, [1 / n for n in per_unit], density or per_unit, channels), device)


def _on_device(encoders: Sequence[Encoder], device: torch.device) -> list[Encoder]:
    def moved(entry: Encoder) -> Encoder:
        elsewhere = any(part.device != device for part in (*entry.parameters(), *entry.buffers()))
        return copy.deepcopy(entry).to(device) if elsewhere else entry

    return changed(encoders, moved)
