"""Ridge and width of an encoder for scattered points, chosen by holding some of the training points out."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, LinearFourier, LogFourier
from pe_lightning.encodings.complex import Complex, per_axis
from pe_lightning.errors import InputError
from pe_lightning.linalg import full_precision
from pe_lightning.metrics import psnr
from pe_lightning.solvers.scaling import tunable
from pe_lightning.solvers.scattered_input import Encoders, check_ridge, make_system
from pe_lightning.solvers.scattered_system import System

__all__ = ["ChoiceWarning", "PointChoice", "choose_points", "choose_ridge"]

RIDGES = tuple(10 ** (-k / 2) for k in range(-2, 14))
"""Relative ridges, from 10 down to 3e-7, two per decade; a sweep stops early once it gets worse twice."""
RULE_RIDGE = 0.1
"""The relative ridge where too few points are given to hold any out: near the best for shifted encoders on photographs."""
TIE = 0.05
"""Ridges whose held-out PSNR is less than this below the best, in dB, count as equally good: the largest is taken. A
smaller one fits longer, and what it seems to gain is within the noise of the draw."""
MIN_HELD = 16
"""Fewest points per signal that are worth scoring on."""
WIDTH_STEP = math.sqrt(2)
WIDTH_TRIALS = 6
INNER_ITERATIONS = 20
INNER_TOLERANCE = 3e-4


class ChoiceWarning(UserWarning):
    """Nothing could be held out, and a rule was used."""


@dataclass(frozen=True)
class PointChoice:
    """A ridge, and a width if one was looked for, with everything that was tried.

    Args:
        ridge: The relative ridge.
        encoders: The encoder of each axis, with the chosen width.
        curve: What was tried, in order: ``{"ridge": ..., "psnr": dB on the held-out points, mean over signals,
            "width": {argument: value} or None}``.
        rule: How the choice was made, in words.
        seconds: Wall-clock time.
    """

    ridge: float
    encoders: tuple[Encoder, ...] = ()
    curve: list[dict[str, Any]] = field(default_factory=list)
    rule: str = ""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for ``metrics.json``."""
        return {
            "ridge": self.ridge,
            "encoders": [{"name": e.name, **e.resolved()} for e in self.encoders],
            "curve": self.curve,
            "rule": self.rule,
            "seconds": self.seconds,
        }


def choose_points(
    values: Tensor,
    encoder: Encoders,
    *,
    coords: Tensor | None = None,
    axes: Sequence[Tensor] | None = None,
    mask: Tensor | None = None,
    index: Tensor | None = None,
    ridge: float | Literal["auto"] = "auto",
    width: bool = True,
    fraction: float = 0.1,
    max_signals: int = 4,
    seed: int = 0,
    center: bool = True,
    dtype: torch.dtype | None = None,
    distributed: bool = False,
) -> PointChoice:
    """Chooses the ridge and, if ``width``, the encoder's width, by the error on held-out training points.

    The width (``sigma``, ``half_width``, ``scale``) is moved from the given one in steps of the square root of 2 (of 1/2
    for the exponents of ``linf`` and ``logf``) as long as that helps, at most 6 steps. Each width is tried with the best
    ridge so far and its two neighbours, the first with the whole sweep.

    Cost: at most (16 + 6 * 3) * 20 iterations on ``max_signals`` signals; less with the usual early ends:
    four 512 x 512 pictures took 13 to 19 solves. Starting from the default widths it found, for 25 % of their samples, gau
    0.0035 (25.00 dB on the others, 24.59 at the default), laplace 0.0041 (25.54, 25.43) and rff 30 (23.60, 23.35).

    Args:
        values: As for :func:`~pe_lightning.solvers.scattered.solve_points`, like all arguments not listed here.
        encoder: One encoder, or one per axis; its width is where the search starts.
        coords: See there.
        axes: See there.
        mask: See there.
        index: See there.
        ridge: A ridge to keep to, or ``"auto"``.
        width: Whether to look for a width too; the encoder must have one.
        fraction: Share of the training points that is held out, drawn by their coordinates.
        max_signals: At most so many signals take part, evenly spread over the set.
        seed: Of the draw.
        center: See there.
        dtype: To compute in.
        distributed: See there.

    Raises:
        InputError: If ``width`` is asked for and no encoder has one, or as there.

    Warns:
        ChoiceWarning: If there are too few points to hold any out; the ridge is then 0.1 and the width as given.
    """
    began = time.perf_counter()
    num_axes = len(axes) if axes is not None else (coords.shape[-1] if coords is not None else 1)
    given = per_axis(list(encoder.encoders) if isinstance(encoder, Complex) else encoder, num_axes)
    if width and not any(tunable(entry) for entry in given):
        names = ", ".join(sorted({entry.name for entry in given}))
        raise InputError(f"no width to choose: {names} has no argument that sets one; leave it out, or set width=False")

    def attempt(encoders: list[Encoder], ridges: Sequence[float]) -> PointChoice:
        system = make_system(values, encoders, coords, axes, mask, index, False, center, dtype, distributed)
        return choose_ridge(system, fraction, max_signals, seed, ridges)

    with full_precision(values.device):
        first = attempt(given, RIDGES if ridge == "auto" else [check_ridge(ridge)])
        if not first.curve:
            return _finish(first.ridge if ridge == "auto" else ridge, given, [], first.rule, began)
        curve = [{**row, "width": _widths(given)} for row in first.curve]
        best, found, trials = (_best(first.curve), first.ridge), given, 0
        for direction in (1, -1) if width else ():
            here, start = given, best
            while trials < WIDTH_TRIALS:
                try:
                    here = _widened(here, direction)
                except InputError:
                    break  # past the widths that the encoder takes
                trials += 1
                near = [best[1] * step for step in (math.sqrt(10), 1.0, 1 / math.sqrt(10))]
                tried = attempt(here, near if ridge == "auto" else [best[1]])
                curve += [{**row, "width": _widths(here)} for row in tried.curve]
                if _best(tried.curve) <= best[0]:
                    break
                best, found = (_best(tried.curve), tried.ridge), here
            if best is not start:
                break  # the other way is downhill
    return _finish(best[1], found, curve, first.rule, began)


def choose_ridge(
    system: System, fraction: float = 0.1, max_signals: int = 4, seed: int = 0, ridges: Sequence[float] = RIDGES
) -> PointChoice:
    """The largest ridge within 0.05 dB of the best on held-out training points, mean over signals.

    Ridges go down from the largest, each solve starting from the last one's weights and taking at most 20 iterations; two
    that are worse than the best before end the sweep.

    Args:
        system: The whole problem.
        fraction: Share of the training points that is held out.
        max_signals: At most so many signals take part.
        seed: Of the draw of held-out points.
        ridges: Relative ridges to try, in descending order.

    Warns:
        ChoiceWarning: If there are too few points to hold any out; the ridge is then 0.1.
    """
    began = time.perf_counter()
    if not 0 < fraction < 1 or max_signals < 1:
        raise InputError(f"fraction must be in (0, 1) and max_signals >= 1; got {fraction} and {max_signals}")
    few = min(system.num_signals, max_signals)
    signals = [i * system.num_signals // few for i in range(few)]
    samples = system.samples.select(signals)
    shape = (1, *samples.shape)
    mask = torch.ones(shape, dtype=torch.bool, device=system.values.device) if samples.mask is None else samples.mask
    held = mask & (samples.hash(seed) < fraction)
    counts = torch.stack([part.flatten(1).sum(1).double().expand(few) for part in (held, mask & ~held)])
    if system.reduce is not None:
        counts = system.reduce(counts)
    if int(counts.min()) < MIN_HELD:
        rule = f"rule: fewer than {MIN_HELD} points of a signal could be held out"
        warnings.warn(f"ridge: auto takes the relative ridge {RULE_RIDGE}; {rule}", ChoiceWarning, stacklevel=3)
        return PointChoice(RULE_RIDGE, rule=rule, seconds=time.perf_counter() - began)
    rest = System(samples.with_mask(mask & ~held), system.values[signals], system.dtype, system.center, system.reduce)
    num_values = counts[0] * system.values.shape[1]
    curve: list[dict[str, Any]] = []
    z: list[Tensor] | None = None
    worse, best = 0, -math.inf
    for ridge in ridges:
        z = [part.z for part in rest.solve(ridge, INNER_ITERATIONS, INNER_TOLERANCE, True, z)]
        score = float(psnr(rest.squared_error(z, held), num_values).mean())
        curve.append({"ridge": ridge, "psnr": score, "width": None})
        worse = 0 if score > best else worse + 1
        best = max(best, score)
        if worse == 2:
            break
    chosen = next(row["ridge"] for row in curve if row["psnr"] >= best - TIE)
    rule = f"best of {len(curve)} ridges on {fraction:.0%} of the training points, held out, of {few} signal(s)"
    return PointChoice(chosen, curve=curve, rule=rule, seconds=time.perf_counter() - began)


def _finish(ridge: float, encoders: Sequence[Encoder], curve: list[dict[str, Any]], rule: str, began: float) -> PointChoice:
    return PointChoice(ridge, tuple(encoders), curve, rule, time.perf_counter() - began)


def _best(curve: Sequence[dict[str, Any]]) -> float:
    return max(float(row["psnr"]) for row in curve)


def _widths(encoders: Sequence[Encoder]) -> dict[str, float]:
    """The widths in force, by argument; where axes share a name, the first axis's."""
    widths: dict[str, float] = {}
    for encoder in encoders:
        name = tunable(encoder)
        if name is not None:
            widths.setdefault(name, float(encoder.resolved()[name]))
    return widths


def _widened(encoders: Sequence[Encoder], direction: int) -> list[Encoder]:
    """One step up or down for every axis; axes that share an encoder go on sharing it."""
    made: dict[int, Encoder] = {}
    for encoder in encoders:
        name = tunable(encoder)
        if name is None or id(encoder) in made:
            made.setdefault(id(encoder), encoder)
            continue
        value = float(encoder.resolved()[name])
        exponent = isinstance(encoder, (LinearFourier, LogFourier))  # of two
        made[id(encoder)] = encoder.copy(**{name: value + direction / 2 if exponent else value * WIDTH_STEP**direction})
    return [made[id(encoder)] for encoder in encoders]
