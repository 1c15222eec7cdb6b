"""Relative ridge, and width of the features, chosen by prediction of held-out training samples.

Of ridges within 0.05 dB of the best, a grid takes the least: a signal is rougher on the coarser grid of the fitted samples,
and its best ridge larger. Scattered points take the largest: their solves are short, which smooths too and hides how much a
small ridge would overfit.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, EncoderLike, per_axis, samples_per_unit, sized, widened
from pe_lightning.encoders.cells import resized
from pe_lightning.encoders.configured import changed
from pe_lightning.encoders.resolution import keeps_its_arguments, shrunk
from pe_lightning.errors import InputError
from pe_lightning.evaluation.scores import psnr
from pe_lightning.linalg import factor_axes, full_precision, ridge_response
from pe_lightning.linalg.threads import threads_for_values
from pe_lightning.signals import validation
from pe_lightning.solvers.features import on_host
from pe_lightning.solvers.grid_scorer import GridScorer
from pe_lightning.solvers.held_out import (
    HELD_OUT_FRACTION,
    MAX_POINT_SIGNALS,
    MIN_HELD_OUT_POINTS,
    draw_fractions,
    point_density,
    point_windows,
    thinned_grid,
)
from pe_lightning.solvers.iterative import PointProblem
from pe_lightning.solvers.line import LineProblem, point_problem
from pe_lightning.solvers.samples import point_samples

TIE_DB = 0.05
"""Ridges whose held-out PSNR is less than this below the best count as equally good."""
WIDTH_FACTORS = (0.5, 2**-0.5, 1.0, 2**0.5, 2.0)
"""Widths that are tried on a grid, relative to the default width."""

Scorer: TypeAlias = Callable[..., list[float]]
"""Held-out PSNR in dB of relative ridges, mean over signals; on a grid also takes the ridges that may be scored next."""

GRID_RIDGES = (1e-7, 1e-5, 1e-3, 1e-2, 1e-1, 10**-0.5)
"""Ridges of every width on a grid, where one costs a product: the factorisation of a width serves all of them."""
FINAL_RIDGES = tuple(10.0**k for k in range(-8, 2))
"""Ridges of the best width on a grid, besides those around the best one."""
POINT_RIDGES = tuple(10 ** (-k / 2) for k in range(-2, 14))
"""Ridges at points, 10 to 3e-7, where one costs an iterative solve that starts from the weights of the ridge before."""


class ChoiceWarning(UserWarning):
    """No sample could be held out, and a default ridge was used."""


@dataclass(frozen=True)
class Choice:
    """The chosen ridge and encoders, and the scores that led to them."""

    ridge: float
    encoders: tuple[Encoder, ...]
    """One per axis, with the chosen width."""
    rule: Literal["held-out", "fallback", "given"]
    """``held-out``: by prediction of held-out samples; ``fallback``: there are too few; ``given``: no choice."""
    curve: tuple[tuple[float, float], ...] = ()
    """Ridge and held-out PSNR in dB, mean over signals, at the chosen width; ascending."""
    factors: tuple[tuple[float, float], ...] = ()
    """Widths relative to the default width, and the best held-out PSNR of each; ascending."""
    factor: float = 1.0
    """The chosen width, relative to the default one."""
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


def tied(curve: Sequence[tuple[float, float]]) -> dict[Literal["least", "largest"], float]:
    """The least and the largest ridge within :data:`TIE_DB` of the best of an ascending curve; the least is interpolated."""
    ridges, scores = zip(*curve, strict=True)
    bar = max(scores) - TIE_DB
    good = [i for i, score in enumerate(scores) if score >= bar]
    first, last = good[0], good[-1]
    least = float(ridges[first])
    if first > 0:
        share = (bar - scores[first - 1]) / (scores[first] - scores[first - 1])
        least = float(ridges[first - 1] * (ridges[first] / ridges[first - 1]) ** share)
    return {"least": least, "largest": float(ridges[last])}


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


@dataclass
class _Search:
    """The search for a width, then for the ridge of that width.

    On a grid all widths within a factor of two are tried. At points the search climbs from the default width while the score
    improves, with the best ridge of the widths before and its neighbours.
    """

    on_grid: bool
    encoders: tuple[Encoder, ...]
    """One per axis, with the default width."""
    samples: Sequence[float]
    """Samples per unit length of each axis, as many as a grid of their density has."""
    ridge: float | None
    """Fixed ridge; ``None`` to choose one."""
    widths: bool
    """Whether to choose a width."""
    scorer: Callable[[tuple[Encoder, ...]], Scorer]
    best: float = -math.inf
    candidates: dict[float, tuple[Encoder, ...]] = field(default_factory=dict)
    curves: dict[float, dict[float, float]] = field(default_factory=dict)
    tried: list[dict[str, Any]] = field(default_factory=list)

    def run(self, fallback: float | None) -> Choice:
        """Scores widths and ridges, and chooses; the fallback is the ridge if no sample can be held out."""
        if fallback is not None:
            return Choice(fallback if self.ridge is None else self.ridge, self._widened(1.0), "fallback")
        self.ridges = GRID_RIDGES if self.on_grid else POINT_RIDGES
        if self.widths and self.on_grid:
            for factor in WIDTH_FACTORS:
                self._score(factor, self.ridges)
        elif self.widths:
            for ratio in (2**0.5, 2**-0.5):  # wider, then narrower
                best = self._score(1.0, self.ridges)
                for step in range(1, 7):
                    found = self._score(ratio**step, self.ridges)
                    if not found > best:
                        break
                    best = found
        factors = {factor: max(curve.values()) for factor, curve in self.curves.items()}
        # of widths within 0.01 dB of the best the one nearest to the default
        good = [f for f in factors if factors[f] >= max(factors.values()) - 0.01]
        factor = min(good, key=lambda f: abs(math.log(f)), default=1.0)
        if self.on_grid:
            self._score(factor, FINAL_RIDGES, refine=True)
        else:
            self._score(factor, self.ridges)
        curve = tuple(sorted(self.curves[factor].items()))
        return Choice(
            ridge=tied(curve)["least" if self.on_grid else "largest"] if self.ridge is None else self.ridge,
            encoders=self.candidates[factor],
            rule="held-out",
            curve=curve,
            factors=tuple(sorted(factors.items())),
            factor=factor,
            tried=tuple(self.tried),
        )

    def _widened(self, factor: float) -> tuple[Encoder, ...]:
        if not self.widths:
            return self.encoders
        return tuple(changed(self.encoders, lambda encoder, n: widened(encoder, n, factor), self.samples))

    def _score(self, factor: float, ridges: Sequence[float], refine: bool = False) -> float:
        if factor not in self.curves or refine:
            made = self.candidates[factor] = self.candidates.get(factor) or self._widened(factor)
            curve = self.curves[factor] = self._curve(self.scorer(made), ridges, refine)
            names = {tunable(e): e.resolved()[str(tunable(e))] for e in reversed(made) if tunable(e)}
            self.tried.extend({"ridge": r, "psnr": score, "width": names or None} for r, score in curve.items())
            best = max(curve, key=lambda r: curve[r])
            if not self.on_grid and self.ridge is None and curve[best] > self.best:
                self.best, self.ridges = curve[best], (best * 10**0.5, best, best / 10**0.5)
        return max(self.curves[factor].values())

    def _curve(self, score: Scorer, ridges: Sequence[float], refine: bool) -> dict[float, float]:
        """Scores of ridges; at points in order, until they get worse."""
        if self.ridge is not None:
            return {self.ridge: score([self.ridge])[0]}
        if self.on_grid:
            return self._grid_curve(score, ridges, refine)
        found: dict[float, float] = {}
        best, worse = -math.inf, 0
        for r in ridges:
            found[r] = score([r])[0]
            best, worse = (found[r], 0) if found[r] > best else (best, worse + 1)
            if worse == 2:
                break
        return found

    @staticmethod
    def _grid_curve(score: Scorer, ridges: Sequence[float], refine: bool) -> dict[float, float]:
        found = dict(zip(ridges, score(ridges), strict=True))
        if refine:  # half and quarter decades around the best, and the least ridge that is tied with it
            half, quarter = 10**0.5, 10**0.25
            top = max(found, key=lambda r: found[r])
            near = (top / half, top * half)
            ahead = [r for other in (top, *near) for r in (other / quarter, other * quarter)]
            found.update(zip(near, score(near, ahead), strict=True))
            top = max(found, key=lambda r: found[r])
            near = (top / quarter, top * quarter)
            found.update(zip(near, score(near), strict=True))
            edge = tied(sorted(found.items()))["least"]
            if edge not in found:
                found[edge] = score([edge])[0]
        return found


# -- grids ------------------------------------------------------------------------------------------------------------


@threads_for_values(passes=6)
def choose_grid(
    values: Tensor,
    axes: Sequence[Tensor],
    encoders: Sequence[Encoder],
    ridge: float | Literal["auto"] = "auto",
    sigma: Literal["given", "auto"] = "given",
    full_size: Sequence[int] | None = None,
) -> Choice:
    """Chooses one ridge, and one width of the features, for a set of signals on a grid.

    Costs a few solves, however large the grid is: windows of it are fitted, with one factorisation per axis and width.

    Args:
        values: Training values ``(S, N_1, ..., N_D, C)``, or a part of them that is a grid itself.
        axes: Their coordinates, ``(N_a,)`` per axis, evenly spaced.
        encoders: One encoder per axis.
        ridge: ``auto``, or the relative ridge to use.
        sigma: ``auto`` to choose the width that the encoders declare, by one factor for all axes; ``given`` to keep it.
        full_size: Samples per axis of the whole grid, if ``values`` are a part of it.
    """
    strength = check_ridge(ridge, values.dtype)
    given = _given(encoders, strength, sigma)
    if given is not None:
        return given
    sizes = [len(x) for x in axes] if full_size is None else list(full_size)
    thinned = thinned_grid(values, axes, sizes)
    fallback = None if 2 in thinned.strides else max(encoder.fallback_ridge for encoder in encoders)
    with full_precision(values.device):
        samples = [samples_per_unit(x) for x in axes]
        scorer = partial(GridScorer, thinned)
        chosen = _Search(True, tuple(encoders), samples, strength, sigma == "auto", scorer).run(fallback)
        if strength is None and any(encoder.drawn for encoder in chosen.encoders):
            small = [x[:n].to(torch.float64) for x, n in zip(axes, thinned.values.shape[3:], strict=True)]
            return replace(chosen, ridge=_ridge_for_noise(chosen.ridge, *on_host(chosen.encoders, small, values.device)))
        return chosen


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

    while noise(ridge) > 0.75 and ridge < FINAL_RIDGES[-1]:
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
        # near the best for shifted encoders
        fallback = 0.1 if int(counts.min()) < MIN_HELD_OUT_POINTS else None
        if fallback is not None and strength is None:
            text = f"ridge: auto uses the relative ridge {fallback}: too few points of a signal could be held out"
            warnings.warn(text, ChoiceWarning, stacklevel=2)

        def scorer(candidate: tuple[Encoder, ...]) -> Scorer:
            # solves of at most 20 iterations, to a relative residual of 3e-4
            rest = (problem if candidate is encoders else build(candidate)).select(signals, fitted)
            z: list[Tensor] | None = None

            def score(ridges: Sequence[float]) -> list[float]:
                nonlocal z
                scores = []
                for r in ridges:
                    z = [part.z for part in rest.solve(r, 20, 3e-4, True, z)]
                    errors = rest.squared_error(z, held).reshape(counts.shape[1], -1).sum(1)
                    scores.append(float(psnr(errors, counts[0] * values.shape[-1]).mean()))
                return scores

            return score

        return _Search(False, encoders, density, strength, sigma == "auto", scorer).run(fallback)


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

    def moved(entry: Encoder) -> Encoder:
        elsewhere = any(part.device != device for part in (*entry.parameters(), *entry.buffers()))
        return copy.deepcopy(entry).to(device) if elsewhere else entry

    return changed(sized(encoders, [1 / n for n in per_unit], density or per_unit, channels), moved)


def tunable(encoder: Encoder) -> str | None:
    """The argument that ``sigma: auto`` chooses: the declared width."""
    return None if encoder.width is None else encoder.width.argument
