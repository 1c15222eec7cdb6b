r"""Choosing sigma and the ridge for data on a grid, from the training samples alone.

Every second sample of each axis is held out, and the features are shrunk with the grid (:func:`shrunk`), so that the
held-out samples lie where predictions will be asked for: half a spacing away. On a coarser grid a signal is rougher than
on its own, and the best ridge larger. Hence the rule: *the least ridge within 0.05 dB of the best*.

Measured on 16 photographs, 256 x 256 of 512 x 512 samples trained on, test PSNR over all the others, papers' sigma: 23.27
(linf), 22.52 (logf), 23.55 (rff), 25.27 (tri) and 25.44 dB (gau), where the best fixed ridges give 23.31, 22.53, 23.60,
25.27 and 25.46. On eleven other pictures, one by one, 0.05 dB behind the best in the mean, at most 0.5, but for rff on a
page of text (2.9), whose frequencies are drawn anew for the thinned grid. Generalised cross-validation and the marginal
likelihood, which hold nothing out, smooth too much or not at all (gau: 23.5 to 25.4 dB, depending on sigma).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder
from pe_lightning.errors import InputError
from pe_lightning.linalg import factor_axis, full_precision, mode_products
from pe_lightning.metrics import psnr
from pe_lightning.solvers.scaling import shrunk, spaced, tunable
from pe_lightning.solvers.shapes import outer

__all__ = ["Choice", "choose_grid"]

TIE = 0.05
"""Ridges whose held-out PSNR is less than this below the best, in dB, count as equally good: the least is taken."""
DECADES = tuple(10.0**k for k in range(-8, 2))
SCAN = (1e-7, 1e-5, 1e-3, 1e-2, 1e-1, 10**-0.5)
"""Ridges that each width is tried with, before the full curve of the best one."""
FACTORS = (0.5, 2**-0.5, 1.0, 2**0.5, 2.0)
"""Widths that ``sigma: auto`` tries, times the default in units of the spacing."""
FALLBACK: Mapping[str, float] = {"gau": 0.05, "tri": 1e-4, "linf": 1e-3, "logf": 1e-5, "rff": 1e-4}
"""Ridges that are near the best for photographs, for signals too small to hold anything out; 1e-3 for other encoders."""
MIN_SAMPLES = 8
"""Axes with fewer samples are not thinned out."""
WINDOW = {1: 4096, 2: 256, 3: 64}
"""Samples per axis of the windows that are looked at; longer axes have two windows, at a quarter and three quarters."""

MAX_SIGNALS = 16
"""Of more signals than this, so many are looked at, evenly spread."""


@dataclass(frozen=True)
class Choice:
    """What was chosen and why, as plain data."""

    ridge: float
    """The relative ridge."""
    encoders: tuple[Encoder, ...]
    """The encoders, one per axis, with the chosen sigma."""
    rule: Literal["held-out", "fallback", "given"]
    """``held-out``: by prediction of held-out samples; ``fallback``: the signal is too small; ``given``: no choice."""
    curve: tuple[tuple[float, float], ...] = ()
    """Ridge and held-out PSNR in dB, mean over signals, at the chosen sigma; ascending."""
    factors: tuple[tuple[float, float], ...] = ()
    """Where sigma was chosen: width relative to its default and the best held-out PSNR of each."""

    def report(self) -> dict[str, Any]:
        """Plain JSON values."""
        values = [getattr(e, tunable(e) or "", None) for e in self.encoders]
        return {
            "rule": self.rule,
            "ridge": self.ridge,
            "parameter": [tunable(encoder) for encoder in self.encoders],
            "value": values,
            "curve": [list(point) for point in self.curve],
            "factors": [list(point) for point in self.factors],
        }


def choose_grid(
    values: Tensor,
    axes: Sequence[Tensor],
    encoders: Sequence[Encoder],
    ridge: float | Literal["auto"] = "auto",
    sigma: Literal["given", "auto"] = "given",
    full_size: Sequence[int] | None = None,
) -> Choice:
    """Chooses one ridge, and one width of the features, for a set of signals.

    Costs a few solves, however large the grid is: windows of it are looked at, with one factorisation per axis and sigma.

    Args:
        values: Training values ``(S, N_1, ..., N_D, C)``, or a part of them that is a grid itself.
        axes: Their coordinates, ``(N_a,)`` per axis, evenly spaced.
        encoders: One encoder per axis.
        ridge: ``auto``, or the relative ridge to use.
        sigma: ``auto`` to choose the argument whose default follows K (:func:`~pe_lightning.solvers.scaling.tunable`),
            by one common factor for all axes; ``given`` to keep the encoders.
        full_size: Samples per axis of the whole grid, if ``values`` are a part of it.

    Raises:
        InputError: If ``sigma`` is ``auto`` and no encoder has such an argument.
    """
    sizes = [len(x) for x in axes] if full_size is None else list(full_size)
    if sigma == "auto" and not any(tunable(encoder) for encoder in encoders):
        names = ", ".join(sorted({encoder.name for encoder in encoders}))
        raise InputError(f"sigma: auto: {names} has no width to choose; leave sigma out")
    if ridge != "auto" and (not ridge >= 0 or not math.isfinite(ridge)):
        raise InputError(f"ridge must be 'auto' or a number >= 0, got {ridge!r}")
    if ridge != "auto" and sigma == "given":
        return Choice(ridge, tuple(encoders), "given")
    thinned = [n >= MIN_SAMPLES for n in values.shape[1:-1]]
    candidates = {1.0: tuple(encoders)}
    if sigma == "auto":
        # the same encoder object on several axes stays the same object: it is encoded and factorised once
        candidates = {f: _each(encoders, sizes, lambda e, n, f=f: spaced(e, n, f)) for f in FACTORS}  # type: ignore[misc]
    if not any(thinned):
        value = ridge if ridge != "auto" else max(FALLBACK.get(encoder.name, 1e-3) for encoder in encoders)
        return Choice(value, candidates[1.0], "fallback")
    with full_precision(values.device):
        windows, coords = _windows(values, axes)
        best: dict[float, float] = {}
        # of equally good widths the one nearest to the default
        chosen = 1.0
        if len(candidates) > 1:
            tried = SCAN if ridge == "auto" else (ridge,)
            for factor, some in candidates.items():
                held_out = _HeldOut(windows, coords, some, sizes, thinned)
                best[factor] = max(held_out.score(r) for r in tried)
            top = max(best.values())
            chosen = min((f for f in best if best[f] >= top - TIE / 5), key=lambda f: abs(math.log(f)))
        held_out = _HeldOut(windows, coords, candidates[chosen], sizes, thinned)
        curve = {r: held_out.score(r) for r in (DECADES if ridge == "auto" else (ridge,))}
        if ridge == "auto":
            _refine(curve, held_out.score)
    points, factors = tuple(sorted(curve.items())), tuple(sorted(best.items()))
    return Choice(least(points) if ridge == "auto" else ridge, candidates[chosen], "held-out", points, factors)


def least(curve: Sequence[tuple[float, float]], tie: float = TIE) -> float:
    """The least ridge within ``tie`` dB of the best of an ascending curve, interpolated between its points."""
    ridges, scores = zip(*curve, strict=True)
    bar = max(scores) - tie
    first = next(i for i, score in enumerate(scores) if score >= bar)
    if first == 0:
        return float(ridges[0])
    share = (bar - scores[first - 1]) / (scores[first] - scores[first - 1])
    return float(ridges[first - 1] * (ridges[first] / ridges[first - 1]) ** share)


def _refine(curve: dict[float, float], score: Callable[[float], float]) -> None:
    """Adds the half and quarter decades around the best ridge, and the half decade before it comes into reach."""
    for step in (10**0.5, 10**0.25):
        best = max(curve, key=lambda r: curve[r])
        for ridge in (best / step, best * step):
            curve[ridge] = score(ridge)
    points = sorted(curve.items())
    edge = least(points)
    if edge > points[0][0]:
        curve[edge] = score(edge)


def _each(
    encoders: Sequence[Encoder], sizes: Sequence[int], change: Callable[[Encoder, int], Encoder]
) -> tuple[Encoder, ...]:
    made: dict[tuple[int, int], Encoder] = {}
    for encoder, n in zip(encoders, sizes, strict=True):
        made.setdefault((id(encoder), n), change(encoder, n))
    return tuple(made[id(encoder), n] for encoder, n in zip(encoders, sizes, strict=True))


def _windows(values: Tensor, axes: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Parts of the data ``(W, S', C, n_1, ..., n_D)``, and coordinates of one of them per axis."""
    side = WINDOW.get(len(axes), 16)
    some = values[:: -(-len(values) // MAX_SIGNALS) or 1]
    parts, coords = [some.movedim(-1, 1)], []
    for a, x in enumerate(axes):
        n = len(x)
        starts = [0] if n <= side else [n // 4 - side // 4, n // 4 * 3 - side * 3 // 4]
        parts = [part.narrow(2 + a, start, min(n, side)) for part in parts for start in starts]
        coords.append(x[: min(n, side)].to(torch.float64))
    return torch.stack(parts).to(torch.promote_types(values.dtype, torch.float32)), coords


class _HeldOut:
    """The held-out samples of a thinned grid, predicted for any ridge."""

    def __init__(
        self,
        windows: Tensor,
        coords: Sequence[Tensor],
        encoders: Sequence[Encoder],
        sizes: Sequence[int],
        thinned: Sequence[bool],
    ) -> None:
        device, dtype = windows.device, windows.dtype
        self.bases, self.singular = [], []
        lefts, self.ridge_unit = [], 1.0
        weights, trained = [], []
        made: dict[tuple[object, ...], Any] = {}
        for x, encoder, size, thin in zip(coords, encoders, sizes, thinned, strict=True):
            key = id(encoder), len(x), size, thin
            if key not in made:
                stride = 2 if thin else 1
                whole = (x - x[0]) * (size / len(x)) + x[0]  # a window becomes a small grid of its own
                features = shrunk(encoder, stride * size / len(x))(whole.to(device))
                factor = factor_axis(features[::stride], compact=False, reuse=False)
                made[key] = factor, (features @ factor.right).to(dtype), factor.left().to(dtype).T.contiguous()
            factor, basis, left = made[key]
            self.bases.append(basis)
            self.singular.append(factor.singular_values)
            self.ridge_unit *= factor.mean_diagonal
            lefts.append(left)
            # the samples past the last trained one are twice as large a share of the thinned grid as of the real one
            weight = torch.ones(len(x), device=device, dtype=dtype)
            weight[-1] = 0.5 if thin and len(x) % 2 == 0 else 1.0
            weights.append(weight)
            trained.append((torch.arange(len(x), device=device) % 2 == 0) if thin else weight > 0)
        self.weight = outer(weights) * ~outer(trained)
        self.joint = outer(self.singular)
        sparse = windows
        for a, thin in enumerate(thinned):
            sparse = sparse[(slice(None),) * (3 + a) + (slice(None, None, 2 if thin else 1),)]
        dims = tuple(range(3, windows.ndim))
        mean = sparse.mean(dims, keepdim=True, dtype=torch.float64).to(dtype)
        self.target = windows - mean
        self.projection = mode_products(sparse - mean, lefts)

    def score(self, ridge: float) -> float:
        """PSNR of the held-out samples in dB, mean over signals; a perfect prediction counts as 120 dB."""
        # the floor only keeps 0/0 out: features that are all zero predict the mean
        response = self.joint / (self.joint.square() + ridge * self.ridge_unit).clamp_min(1e-300)
        prediction = mode_products(self.projection * response.to(self.projection.dtype), self.bases)
        error = prediction.sub_(self.target).square_().mul_(self.weight)
        total = error.transpose(0, 1).flatten(1).sum(1, dtype=torch.float64)
        count = self.weight.sum(dtype=torch.float64) * (error[:, 0, :].numel() // self.weight.numel())
        return float(psnr(total, count.expand_as(total)).clamp(-1000, 120).mean())
