r"""Learns the parameters of encoders by variable projection: the linear layer is solved exactly at every step.

With weights :math:`w(\theta)` fitted to some of the training samples, the loss is the error at the rest. The error at the
fitted samples would decrease with the width of the features, since narrow features fit any samples.

Let :math:`A, B` be the joint features of the fitted and of the held-out samples, :math:`r = y - Aw` and :math:`g` the
gradient
of the loss with respect to the predictions :math:`Bw`. With the adjoint :math:`z = (A^T A + \rho)^{-1} B^T g`, one more
solve
with the same factorisation,

.. math:: \mathrm{d}\,\mathrm{loss} = \langle g, \mathrm{d}B\, w \rangle + \langle r, \mathrm{d}A\, z \rangle
    - \langle A z, \mathrm{d}A\, w \rangle - \langle z, w \rangle \,\mathrm{d}\rho .

Autograd differentiates the features alone: derivatives of decompositions would fail for equal singular values.

Reference: Golub and Pereyra, *The differentiation of pseudo-inverses and nonlinear least squares problems whose variables
separate*, 1973. The held-out loss is an addition, and so is its penalty: on a grid, held-out samples cannot tell a wave from
its alias, so the roughness of the fit between samples is added (:class:`~pe_lightning.solvers.between.Between`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.optimize
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from pe_lightning.encoders import Encoder, EncoderLike
from pe_lightning.encoders.configured import changed
from pe_lightning.encoders.resolution import leading_features, without_parameters
from pe_lightning.errors import InputError
from pe_lightning.linalg import factor_axes, full_precision, mode_products
from pe_lightning.linalg.threads import threads_for_values
from pe_lightning.solvers import choice, held_out
from pe_lightning.solvers.between import MIN_COORDINATES, Between
from pe_lightning.solvers.iterative import PointProblem
from pe_lightning.solvers.samples import FittedSamples, MaskedGrid, point_samples

START_FACTORS = (1.0, 2.0, 0.5, 4.0, 0.25, 8.0, 0.125)
"""Widths that the search may start from, relative to the given one. Far from the best width the error may have a local
minimum, or, for Fourier features, change too fast for gradients."""
START_RIDGES = {True: (1e-6, 1e-4, 1e-2, 0.3), False: (0.03, 0.1, 0.3, 1.0)}
"""Ridges that each start is scored with, for direct (True) and iterative solves."""
RIDGE_LIMITS = {True: (1e-8, 10.0), False: (1e-4, 10.0)}
"""Least and largest ridge of the search, for direct (True) and iterative solves."""
SEARCH_TOLERANCE = 3e-4
"""Relative decrease of the held-out error below which the search ends."""
MAX_ITERATIONS, TOLERANCE, PRECISION = {True: 40, False: 15}, 1e-4, torch.float32
"""Solves at scattered points: most iterations, with gradients (True) and without, tolerance and dtype."""
MAX_FRACTION = 0.25
"""Largest share of the samples at random places that is held out."""
MAX_COMPARED = 2000
"""Samples that are predicted, at most, to compare learned parameters with the given ones."""
Solve: TypeAlias = Callable[..., Tensor]


@dataclass(frozen=True)
class Learned:
    """The result of :func:`learn_encoders`."""

    encoders: tuple[Encoder, ...]
    """One encoder per axis, with the best parameters."""
    ridge: float
    """The relative ridge for a fit of all training samples."""
    start: float
    """Held-out PSNR in dB of the given encoders at the best of the start ridges."""
    curve: tuple[float, ...]
    """Held-out PSNR in dB of every evaluation of the search, in order."""
    kept_start: bool = False
    """Whether the encoders have the given parameters, because the learned ones were no better."""

    def report(self) -> dict[str, Any]:
        """Plain JSON values."""
        scores = {"start_psnr": self.start, "held_out_psnr": max(self.curve)}
        return {"evaluations": len(self.curve), **scores, "kept_start": self.kept_start}


class ValidationProblem:
    """The loss of held-out samples, predicted from a fit to other samples of the same signals.

    Args:
        samples: All samples, with the encoders.
        values: ``(S, C, P)`` float64.
        fitted: Samples that are fitted, ``(S or 1, P)`` booleans.
        weight: Weight of each sample in the loss, ``(S or 1, P)``; zero for samples that are not held out.
        strides: Stride per axis of the fitted samples if they are a regular part of a grid; the solves are then direct.
        center: Whether the mean of the fitted samples is subtracted.
        between: Places whose excess is added to the loss, for solves that are not direct.
    """

    def __init__(
        self,
        samples: FittedSamples,
        values: Tensor,
        fitted: Tensor,
        weight: Tensor,
        strides: Sequence[int] | None = None,
        center: bool = True,
        between: Between | None = None,
    ) -> None:
        self.samples, self.strides, self.between = samples, strides, between
        self.fitted = fitted.expand(len(values), -1)
        self.weight = weight.double().expand(len(values), -1)
        self.counts = self.fitted.sum(1, dtype=torch.float64)
        mean = torch.where(self.fitted[:, None], values, 0.0).sum(2) / self.counts[:, None] * center
        self.values = values - mean[..., None]
        self.total = float(self.weight.sum()) * values.shape[1]

    def loss(self, ridge: float, gradient: bool = True) -> tuple[float, float]:
        """The loss, and its derivative with respect to the logarithm of the ridge.

        The loss is the weighted mean squared error plus the excess between samples. With ``gradient``, gradients with
        respect to the encoders' parameters are added to their ``grad``; without, the derivative is zero. The ridge is
        relative to the mean of the joint diagonal over the fitted samples.
        """
        fitted, weight = self.fitted[:, None], self.weight[:, None] / self.total
        with full_precision(self.values.device):
            samples = self.samples.to(torch.float64)  # features of the present parameters
            unit, solve = self._direct(samples, ridge) if self.strides else self._iterative(ridge, gradient)
            w = solve(None)
            error = samples.matvec(w.flatten(2)) - self.values
            excess, places = self._excess(w)
            loss = float((error.square() * weight).sum()) + excess
            if not gradient:
                return loss, 0.0
            g = 2 * weight * error
            z = solve(g, places)
            inner = (z * w).flatten(1).sum(1)
            g -= torch.where(fitted, samples.matvec(z.flatten(2)), 0.0)
            residual = torch.where(fitted, -error, 0.0)
            with torch.enable_grad():
                for some, where, features in samples.blocks(math.prod(samples.widths[1:])):
                    predicted, adjoint = (samples.product(x[some], features) for x in (w, z))
                    change = (g[some, :, where] * predicted + residual[some, :, where] * adjoint).sum()
                    norms = samples.squared_norms(features) * self.fitted[some, where]
                    torch.autograd.backward(change - ridge * (norms.sum(1) * (inner / self.counts)[some]).sum())
                for between, slope in places:
                    for some, where, features in between.blocks(math.prod(between.widths[1:])):
                        torch.autograd.backward((slope[some, :, where] * between.product(w[some], features)).sum())
            return loss, -float((ridge * unit * inner).sum())

    def deviation(self, ridge: float) -> float:
        """Mean squared difference between samples from their cubic interpolation; of a whole grid that is fitted."""
        assert self.between is not None
        assert isinstance(self.samples, MaskedGrid)
        with full_precision(self.values.device):
            w = self._iterative(ridge, False)[1](None)
            predictions = self.between.samples.to(torch.float64).matvec(w.flatten(2)).detach()
            return self.between.deviation(predictions, self.values.reshape(*self.values.shape[:2], *self.samples.grid))

    def _excess(self, w: Tensor) -> tuple[float, list[tuple[FittedSamples, Tensor]]]:
        """The excess between samples, and the places with its gradient with respect to the predictions."""
        if self.between is None:
            return 0.0, []
        places = self.between.samples.to(torch.float64)
        predictions = places.matvec(w.flatten(2)).detach().requires_grad_()
        with torch.enable_grad():
            excess = self.between.excess(predictions)
        return float(excess.detach()), [(places, torch.autograd.grad(excess, predictions)[0])]

    def _direct(self, samples: FittedSamples, ridge: float) -> tuple[Tensor | float, Solve]:
        """The unit of the ridge, and the map of ``None`` to weights, and of a gradient ``(S, C, P)`` to its adjoint."""
        assert isinstance(samples, MaskedGrid)
        features, transposed = samples.features
        parts = tuple(slice(None, None, stride) for stride in self.strides or ())
        whole = (slice(None), slice(None))
        factors = factor_axes([f[part] for f, part in zip(features, parts, strict=True)])
        left, right = [f.left().T for f in factors], [f.right for f in factors]
        singular = reduce(torch.kron, [f.singular_values for f in factors]).reshape([f.rank for f in factors])
        unit = math.prod(f.mean_diagonal for f in factors)
        damped = (singular.square() + ridge * unit).clamp_min(1e-300)

        def solve(g: Tensor | None, places: Sequence[tuple[FittedSamples, Tensor]] = ()) -> Tensor:
            assert not places
            if g is None:
                known = self.values.reshape(*self.values.shape[:2], *samples.grid)[whole + parts]
                return mode_products(mode_products(known, left) * singular / damped, right)
            b = mode_products(g.reshape(*g.shape[:2], *samples.grid), transposed)
            inside = mode_products(b, [v.T for v in right])
            # outside the range of the fitted samples the normal equations are the ridge times the identity
            return b / (ridge * unit) + mode_products(inside * (1 / damped - 1 / (ridge * unit)), right)

        return unit, solve

    def _iterative(self, ridge: float, gradient: bool) -> tuple[Tensor | float, Solve]:
        """As :meth:`_direct`, by conjugate gradients; the adjoint is restricted to the range of the fitted samples."""
        population = math.prod(self.samples.grid) if isinstance(self.samples, MaskedGrid) else math.inf
        fitted = self.samples.to(torch.float64).with_mask(self.fitted)
        problem = PointProblem(fitted, self.values.to(PRECISION), population, center=False, distributed=False)

        def solve(g: Tensor | None, places: Sequence[tuple[FittedSamples, Tensor]] = ()) -> Tensor:
            adjoint = None if g is None else [(fitted.with_mask(self.weight > 0), g), *places]
            found = problem.solve(ridge, MAX_ITERATIONS[gradient], TOLERANCE, True, right=adjoint)
            return problem.decode([part.z for part in found]).double()

        return problem.unit, solve


@threads_for_values(passes=360)
def learn_encoders(
    values: Tensor,
    encoder: EncoderLike | Sequence[EncoderLike],
    *,
    axes: Sequence[Tensor] | None = None,
    coords: Tensor | None = None,
    mask: Tensor | None = None,
    index: Tensor | None = None,
    ridge: float | Literal["auto"] = "auto",
    center: bool = True,
    evaluations: int = 60,
    full_size: Sequence[int] | None = None,
) -> Learned:
    """Learns the parameters of encoders by variable projection; all signals share them.

    Samples of a grid are given by ``axes`` alone, scattered ones as for :func:`~pe_lightning.solvers.solve_points`. The same
    samples are held out as in :func:`~pe_lightning.solvers.choose_grid` and :func:`~pe_lightning.solvers.choose_points`.

    For features without a width, such as a table or waves, a tenth of all samples is held out instead. On a grid it cannot
    tell a frequency from its alias: the loss then also has the roughness between samples that no frequency up to the Nyquist
    frequency has.

    Parameters besides a width have to be better than the given ones, which are fitted with their own ridge: in the
    prediction of other tenths of the samples and, on a whole grid, in the distance from the cubic interpolation of the
    samples, at random places between these. Otherwise the given parameters are kept.

    The search is SciPy's L-BFGS-B on the logarithm of the loss, with respect to the encoders' parameters and the logarithm
    of the ridge.

    Args:
        values: ``(S, N_1, ..., N_D, C)`` of a grid or with a mask, otherwise ``(S, P, C)``.
        encoder: With parameters, such as ``{"name": "gau", "trainable": True}``: one for all axes or one per axis.
        axes: Coordinate vectors ``(N_a,)``; default ``i / N_a``.
        coords: As for :func:`~pe_lightning.solvers.solve_points`, like ``mask``, ``index`` and ``center``.
        mask: Training samples.
        index: Positions in the grid.
        ridge: Relative ridge, or ``auto``: optimised with the encoders, and finally chosen as by the solvers.
        center: Whether the mean is subtracted.
        evaluations: Most evaluations of loss and gradient.
        full_size: Samples per axis of the whole grid, if ``values`` are a part of it.

    Example:
        >>> import torch
        >>> from pe_lightning.solvers import learn_encoders, solve_grid
        >>> x = torch.arange(64) / 64
        >>> row = torch.sin(20 * x)[None, :, None]
        >>> learned = learn_encoders(row, {"name": "gau", "trainable": True, "sigma": 0.005}, axes=[x])
        >>> float(learned.encoders[0].sigma) > 0.01
        True
    """
    strength = choice.check_ridge(ridge, values.dtype)
    if strength == 0:
        raise InputError("variable projection needs a positive ridge; set ridge: auto, or 1e-6 or more")
    on_grid = coords is None and mask is None and index is None
    if on_grid and axes is None:
        axes = [torch.arange(n, dtype=torch.float64) / n for n in values.shape[1:-1]]
    where: dict[str, Any] = {"coords": coords, "axes": axes, "mask": mask, "index": index}
    num_axes = coords.shape[-1] if axes is None and coords is not None else len(axes or ())
    density = None if on_grid else held_out.point_density(values, axes, mask, num_axes, False)
    given = copy.deepcopy(choice.axis_encoders(encoder, axes, density, values.shape[-1], values.device))
    learned, working = copy.deepcopy(given), [entry.double().eval() for entry in copy.deepcopy(given)]
    parameters = list(dict.fromkeys(p for entry in working for p in entry.parameters() if p.requires_grad))
    if not parameters:
        names = ", ".join(sorted({entry.name for entry in given}))
        raise InputError(f"there is nothing to learn: {names} has no parameter; set trainable: true")
    learning = [entry for entry in working if any(True for _ in entry.parameters())]
    placed = any(entry.width is None for entry in learning)  # features with a position, as in a table
    several = placed or any(sum(p.numel() for p in entry.parameters() if p.requires_grad) > 1 for entry in learning)
    if on_grid:
        where["mask"] = torch.ones(values.shape[1:-1], dtype=torch.bool)
    parts = None if on_grid and not placed else _Parts(values, working, where, center, windows=not placed)
    if parts is None:
        problem = _thinned(values, axes or (), working, full_size or values.shape[1:-1], center)
    elif parts.are_few:
        raise InputError(
            f"{parts.count} training samples are too few to hold any out; set trainable: false, or solver: null"
        )
    else:
        problem = parts.problem(0)
    search = _Search(problem, learning, parameters, strength)
    found = search.run(evaluations)
    _copy_parameters(working, learned)
    for entry in (*given, *learned):
        entry.requires_grad_(False)

    def chosen(encoders: Sequence[Encoder]) -> float:
        if strength is not None:
            return strength
        if on_grid:
            return choice.choose_grid(values, axes or (), encoders, "auto", "given", full_size, center).ridge
        return choice.choose_points(values, encoders, ridge="auto", center=center, **where).ridge

    # a hole in a grid is predicted best with a larger ridge than places between samples
    ridges = {found} if placed and not on_grid else {chosen(learned), *([found] if placed else [])}
    kept = False
    if several:
        if parts is None or not placed:
            parts = _Parts(values, working, where, center, windows=False)
        comparison = _Comparison(parts, on_grid)
        scores = {r: comparison.errors(r) for r in ridges}
        _copy_parameters(given, working)
        start_ridge = chosen(changed(given, without_parameters))
        start = comparison.errors(start_ridge)
        better = {r: math.prod(errors) for r, errors in scores.items() if all(map(_is_less, errors, start))}
        kept, ridges = not better, {min(better, key=lambda r: better[r], default=start_ridge)}
    return Learned(tuple(given if kept else learned), ridges.pop(), search.start, tuple(search.curve), kept)


def _is_less(error: float, other: float) -> bool:
    return error < other or (math.isfinite(error) and not math.isfinite(other))


@torch.no_grad()
def _copy_parameters(source: Sequence[Encoder], target: Sequence[Encoder]) -> None:
    for one, other in zip(source, target, strict=True):
        for parameter, copied in zip(one.parameters(), other.parameters(), strict=True):
            copied.copy_(parameter)


def _thinned(
    values: Tensor, axes: Sequence[Tensor], encoders: Sequence[Encoder], sizes: Sequence[int], center: bool
) -> ValidationProblem:
    """Every second sample of each axis of windows of a grid held out."""
    grid = held_out.thinned_grid(values, axes, sizes)
    if 2 not in grid.strides:
        raise InputError(
            f"a grid of {list(grid.values.shape[3:])} training samples is too small to hold any out: one axis needs at "
            f"least {held_out.MIN_AXIS_SAMPLES}; set trainable: false, or solver: null"
        )
    ratios = [stride * ratio for stride, ratio in zip(grid.strides, grid.enlarged, strict=True)]
    near = [(x / ratio).to(values.device) for x, ratio in zip(grid.coords, ratios, strict=True)]
    samples = MaskedGrid(changed(encoders, leading_features, ratios), near)
    flat = grid.values.flatten(0, 1).flatten(2).double()
    fitted, weight = grid.fitted.flatten()[None] > 0, grid.weight.flatten()[None]
    return ValidationProblem(samples, flat, fitted, weight, grid.strides, center)


class _Parts:
    """Random tenths of the samples, or larger parts of few samples, to be held out in turn.

    With ``windows``, of windows of a large grid; else the loss has the excess between the samples of a grid.
    """

    def __init__(
        self, values: Tensor, encoders: Sequence[Encoder], where: dict[str, Any], center: bool, windows: bool
    ) -> None:
        mask, index, axes = (where[key] for key in ("mask", "index", "axes"))
        self.count, self.center = values[..., 0].numel() if mask is None else int(mask.sum()), center
        self.are_few = MAX_FRACTION * self.count < held_out.MIN_HELD_OUT_POINTS
        share = MAX_FRACTION if self.are_few else held_out.MIN_HELD_OUT_POINTS / self.count
        self.fraction = max(held_out.HELD_OUT_FRACTION, share)
        samples, points, _ = point_samples(values, encoders, **where, distributed=False)
        small = held_out.point_windows(values, axes, mask, index, False) if axes is not None and windows else None
        if small is not None:
            values, where, ratios = small
            near = [x / ratio for x, ratio in zip(where["axes"], ratios, strict=True)]
            encoders = changed(encoders, leading_features, ratios)
            samples, points, _ = point_samples(values, encoders, **{**where, "axes": near}, distributed=False)
        self.samples, coords = samples, samples.coordinates()
        self.drawn = held_out.draw_fractions(coords.unbind(-1)).expand(len(points), -1)
        every = torch.ones_like(self.drawn, dtype=torch.bool)
        self.trained = every if samples.mask is None else samples.mask.expand(len(points), -1)
        self.values, self.between = torch.where(self.trained[:, None], points, 0.0).double(), None
        if axes is not None and not windows:
            known = [torch.unique(x) for x in coords.expand(len(points), -1, -1)[self.trained].unbind(-1)]
            self.between = Between(encoders, known) if max(map(len, known)) >= MIN_COORDINATES else None

    def problem(self, part: int | None) -> ValidationProblem:
        """All parts but one fitted, or all."""
        inside = torch.floor(self.drawn / self.fraction) == (-1 if part is None else part)
        fitted, held = self.trained & ~inside, self.trained & inside
        return ValidationProblem(self.samples, self.values, fitted, held, center=self.center, between=self.between)


class _Comparison:
    """Compares fits at samples that the search has not scored, and between the samples of a whole grid."""

    def __init__(self, parts: _Parts, on_grid: bool) -> None:
        number = min(int(1 / parts.fraction) - 1, math.ceil(MAX_COMPARED / (parts.fraction * parts.count)))
        problems = [parts.problem(part) for part in range(1, number + 1)]
        self.problems = [problem for problem in problems if problem.total]
        self.whole = parts.problem(None) if on_grid and parts.between else None

    def errors(self, ridge: float) -> tuple[float, ...]:
        """The loss, and the deviation from the interpolation."""
        losses = [problem.loss(ridge, gradient=False)[0] for problem in self.problems]
        mean = float(np.average(losses, weights=[problem.total for problem in self.problems]))
        return (mean,) if self.whole is None else (mean, self.whole.deviation(ridge))


class _Search:
    """The search for the parameters with the least held-out error."""

    def __init__(
        self,
        problem: ValidationProblem,
        encoders: Sequence[Encoder],
        parameters: Sequence[nn.Parameter],
        ridge: float | None,
    ) -> None:
        self.problem, self.encoders, self.parameters, self.ridge = problem, tuple(dict.fromkeys(encoders)), parameters, ridge
        self.start, self.curve = -math.inf, list[float]()
        self.best, self.found = math.inf, np.zeros(0)

    def run(self, evaluations: int) -> float:
        """Sets the best parameters in the encoders and returns the ridge."""
        direct = self.problem.strides is not None
        ridges = START_RIDGES[direct] if self.ridge is None else (self.ridge,)
        looks: dict[tuple[float, float], float] = {}
        vectors = dict(self._starts())
        for factor, vector in vectors.items():
            self._set(vector)
            looks |= {(factor, r): self.problem.loss(r, gradient=False)[0] for r in ridges}
        looks = {key: loss for key, loss in looks.items() if math.isfinite(loss)}
        factor, ridge = min(looks or [(1.0, ridges[0])], key=lambda key: looks.get(key, math.inf))
        self.start = _decibels(min((loss for (f, _), loss in looks.items() if f == 1), default=math.inf))
        start = vectors[factor]
        bounds: list[tuple[float | None, float | None]] = [(None, None)] * len(start)
        if self.ridge is None:
            start = np.append(start, math.log(ridge))
            bounds.append((math.log(RIDGE_LIMITS[direct][0]), math.log(RIDGE_LIMITS[direct][1])))
        options = {"maxfun": evaluations, "maxiter": evaluations, "ftol": SEARCH_TOLERANCE, "gtol": SEARCH_TOLERANCE}
        scipy.optimize.minimize(self.evaluate, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        if not len(self.found):
            raise InputError("the encoder's features, or the values, are not finite; start from another width")
        return self._set(self.found)

    def _starts(self) -> Iterator[tuple[float, np.ndarray]]:
        """Widths relative to the given ones, and the parameters of the encoders of these widths."""
        for factor in START_FACTORS if all(encoder.width for encoder in self.encoders) else (1.0,):
            made = []
            for encoder in self.encoders:
                if factor != 1 and encoder.width is not None:
                    name = encoder.width.argument
                    encoder = encoder.copy(**{name: encoder.width.scaled(encoder.resolved()[name], factor)})
                made.append(encoder)
            yield factor, _vector(p for encoder in made for p in encoder.parameters() if p.requires_grad)

    def evaluate(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """The logarithm of the loss, penalties included, and its gradient."""
        ridge = self._set(vector)
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        try:
            loss, slope = self.problem.loss(ridge)
        except InputError:  # features that are not finite, after too long a step
            loss = slope = math.nan
        with torch.enable_grad():
            penalty = torch.stack([encoder.penalty().double().cpu() for encoder in self.encoders]).sum()
            if penalty.requires_grad:
                torch.autograd.backward(penalty)
        total = max(loss + float(penalty.detach()), 1e-12)
        gradient = _vector(p.grad for p in self.parameters if p.grad is not None)
        gradient = np.append(gradient, [slope] if self.ridge is None else []) / total
        if not (math.isfinite(total) and np.isfinite(gradient).all()):
            return max(1.0, math.log(self.best) + 1 if self.best < math.inf else 1.0), np.zeros_like(vector)
        self.curve.append(_decibels(loss))
        if total < self.best:
            self.best, self.found = total, vector.copy()
        return math.log(total), gradient

    def _set(self, vector: np.ndarray) -> float:
        """Sets the encoders' parameters from a vector and returns the ridge."""
        vector_to_parameters(torch.tensor(vector, device=self.parameters[0].device), self.parameters)
        return float(math.exp(vector[-1])) if self.ridge is None else self.ridge


def _decibels(error: float) -> float:
    """PSNR in dB of a mean squared error, at most 120."""
    return -10 * math.log10(max(error, 1e-12))


def _vector(tensors: Iterable[Tensor]) -> np.ndarray:
    vector: np.ndarray = parameters_to_vector(tensors).detach().cpu().double().numpy()
    return vector
