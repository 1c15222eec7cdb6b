"""The search for width, padding, number of features and ridge: which candidates are compared, and when one is better.

A candidate is compared by its score, the predicted PSNR of samples that are held out, minus a handicap in dB for its
distance from the encoder's rules. Held-out samples are few and lie further apart than the samples that are predicted later:
scores of neighbouring candidates differ by chance by a few tenths of a dB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from pe_lightning.encoders import Encoder

TIE_DB = 0.05
"""Ridges whose score is less than this below the best count as equally good."""
OCTAVE_DB = 0.5
"""Handicap of a width, or a number of features, twice or half the one of the rule; also of padding."""
DECADE_DB = 1.0
"""Handicap of a ridge on a grid that is ten times the encoder's :attr:`~pe_lightning.encoders.Traits.fallback_ridge`."""
MAX_HANDICAP_DB = 0.75
MAX_WIDTH_FACTOR = {"grid": 4.0, "points": 8.0}
MIN_WIDTH_FACTOR = {"grid": 0.5, "points": 0.125}
PADDINGS = (2, 4)
"""Numbers of shifts past each end that are tried, besides the constant continuation ``edge``."""
MAX_FEATURES_PER_SAMPLE = 2
"""Most features per sample and axis that are tried."""

GRID_RIDGES = (1e-7, 1e-5, 1e-3, 1e-2, 1e-1, 10**-0.5)
"""Ridges of every candidate on a grid, where one costs a product: one factorisation serves all of them."""
MIN_RIDGE, MAX_RIDGE = 1e-10, 10.0
"""Limits of the ridges around the best one on a grid."""
POINT_RIDGES = tuple(10 ** (-k / 2) for k in range(-2, 14))
"""Ridges at points, 10 to 3e-7, where one costs an iterative solve that starts from the weights of the ridge before."""

Kind: TypeAlias = Literal["grid", "points"]
Curve: TypeAlias = dict[float, float]
"""Score in dB by relative ridge."""
Scorer: TypeAlias = Callable[..., list[float]]
"""Scores in dB of relative ridges, mean over signals; on a grid also takes the ridges that may be scored next."""


@dataclass(frozen=True)
class Candidate:
    """What ``auto`` chooses of the features, relative to the rules of an encoder."""

    factor: float = 1.0
    """Width relative to the default width."""
    padding: int | None = None
    """Shifts past each end; ``None``: as the encoder has it."""
    per_sample: int = 1
    """Features per sample and axis, where the number of features is left to the data."""


RULES = Candidate()
"""The rules of the encoder themselves."""


@dataclass(frozen=True)
class Space:
    """The candidates, and the encoders of one.

    Args:
        make: The encoders of a candidate, one per axis; ``None`` if memory does not allow them.
        widths: Whether widths are chosen.
        paddings: Whether paddings are chosen.
        start: Where the search begins: the rules of the encoder.
        most_per_sample: Most features per sample.
    """

    make: Callable[[Candidate], tuple[Encoder, ...] | None]
    widths: bool = False
    paddings: bool = False
    start: Candidate = RULES
    most_per_sample: int = 1

    def neighbours(self, candidate: Candidate, kind: Kind) -> Iterator[Candidate]:
        if self.widths:
            for ratio in (2**0.5, 2**-0.5, 2.0, 4.0) if kind == "grid" else (2**0.5, 2**-0.5):  # wider first
                factor = 2 ** (round(2 * math.log2(candidate.factor * ratio)) / 2)
                if MIN_WIDTH_FACTOR[kind] <= factor <= MAX_WIDTH_FACTOR[kind]:
                    yield replace(candidate, factor=factor)
        if self.paddings:
            steps: list[int | None] = [None, *PADDINGS]
            place = steps.index(candidate.padding)
            yield from (replace(candidate, padding=steps[p]) for p in (place + 1, place - 1) if 0 <= p < len(steps))
            if self.widths and candidate.padding is None and 2 * candidate.factor <= MAX_WIDTH_FACTOR[kind]:
                # wide features that end at the border gain nothing, narrow ones need no padding
                yield replace(candidate, factor=2 * candidate.factor, padding=PADDINGS[0])
        for count in (2 * candidate.per_sample, candidate.per_sample // 2):
            if 1 <= count <= self.most_per_sample:
                yield replace(candidate, per_sample=count)

    def octaves(self, candidate: Candidate) -> float:
        """The distance from the rules: of the width and the number of features in octaves, and one for padding."""
        more = abs(math.log2(candidate.factor)) + abs(math.log2(candidate.per_sample / self.start.per_sample))
        return more + (candidate.padding is not None)


class Search:
    """Climbs from the rules of the encoders to better candidates, and chooses the ridge of the best.

    Args:
        kind: Where the samples are.
        space: The candidates.
        ridge: Fixed ridge; ``None`` to choose one.
        scorer: Makes the scorer of encoders.
        handicaps: Whether candidates have handicaps, and ridges with nearly equal scores count as equal.
    """

    def __init__(
        self,
        kind: Kind,
        space: Space,
        ridge: float | None,
        scorer: Callable[[tuple[Encoder, ...]], Scorer],
        handicaps: bool = True,
    ) -> None:
        self.kind, self.space, self.ridge, self.scorer, self.handicaps = kind, space, ridge, scorer, handicaps
        self.encoders: dict[Candidate, tuple[Encoder, ...] | None] = {}
        self.scorers: dict[Candidate, Scorer] = {}
        self.curves: dict[Candidate, Curve] = {}
        self.tried: list[dict[str, Any]] = []
        self.point_ridges: Sequence[float] = POINT_RIDGES

    def run(self, start: Candidate | None = None) -> tuple[Candidate, float]:
        """The best candidate and its ridge."""
        best, value = start or self.space.start, -math.inf
        while (found := self.value(best)) > value:
            value, here = found, best
            for other in self.space.neighbours(here, self.kind):
                if self.value(other) > self.value(best) + (0.01 if self.handicaps else 0.0):
                    best = other
            if best == here:
                break
        if self.ridge is not None:
            return best, self.ridge
        if self.kind == "points":
            return best, tied(self.curve(best))["largest"]
        self._refine(best)
        return best, tied(self.curve(best))["least"] if self.handicaps else self._top(best)

    def value(self, candidate: Candidate) -> float:
        """The score of the best ridge, minus all handicaps; minus infinity if memory does not allow the candidate."""
        if candidate not in self.encoders:
            made = self.encoders[candidate] = self.space.make(candidate)
            if made is not None:
                self.scorers[candidate], self.curves[candidate] = self.scorer(made), {}
                self._scan(candidate)
        if self.encoders[candidate] is None:
            return -math.inf
        return max(score for _, score in self.curve(candidate))

    def curve(self, candidate: Candidate) -> list[tuple[float, float]]:
        """Ridges, ascending, and their scores minus the handicaps."""
        return [(r, score - self.handicap(candidate, r)) for r, score in sorted(self.curves[candidate].items())]

    @property
    def factors(self) -> tuple[tuple[float, float], ...]:
        """Relative widths, ascending, and the best score of each."""
        best: dict[float, float] = {}
        for candidate, curve in self.curves.items():
            best[candidate.factor] = max(best.get(candidate.factor, -math.inf), *curve.values())
        return tuple(sorted(best.items())) if self.space.widths else ()

    def handicap(self, candidate: Candidate, ridge: float) -> float:
        """In dB; zero at points."""
        if self.kind == "points" or not self.handicaps:
            return 0.0
        encoders = self.encoders[candidate]
        assert encoders is not None
        usual = max(encoder.fallback_ridge for encoder in encoders)
        decades = max(0.0, math.log10(ridge / usual)) if self.ridge is None and ridge > 0 else 0.0
        return min(OCTAVE_DB * self.space.octaves(candidate) + DECADE_DB * decades, MAX_HANDICAP_DB)

    def _scan(self, candidate: Candidate) -> None:
        if self.ridge is not None:
            self._add(candidate, [self.ridge])
        elif self.kind == "grid":
            self._add(candidate, GRID_RIDGES)
        else:
            best, worse = -math.inf, 0
            for ridge in self.point_ridges:  # from the weights of the ridge before, until scores fall twice
                (score,) = self._add(candidate, [ridge])
                best, worse = (score, 0) if score > best else (best, worse + 1)
                if worse == 2:
                    break
            curve = self.curves[candidate]
            top = max(curve, key=lambda r: curve[r])
            if curve[top] >= max(score for other in self.curves.values() for score in other.values()):
                self.point_ridges = (top * 10**0.5, top, top / 10**0.5)

    def _refine(self, candidate: Candidate) -> None:
        """Adds ridges around the best one, to quarter decades, and the least ridge that is tied with it."""
        for steps in (4, 2, 1):  # quarter decades
            top = self._top(candidate)
            while steps == 4 and top == min(self.curves[candidate]) and top / 10 >= MIN_RIDGE:
                self._add(candidate, [top / 10])
                top = self._top(candidate)
            near = [r for r in (top / 10 ** (steps / 4), top * 10 ** (steps / 4)) if MIN_RIDGE <= r <= MAX_RIDGE]
            self._add(candidate, near, [r * 10 ** (k / 4) for r in (*near, top) for k in range(1 - steps, steps)])
        edge = tied(self.curve(candidate))["least"]
        if edge not in self.curves[candidate]:
            self._add(candidate, [edge])

    def _top(self, candidate: Candidate) -> float:
        return max(self.curve(candidate), key=lambda point: point[1])[0]

    def _add(self, candidate: Candidate, ridges: Sequence[float], ahead: Sequence[float] = ()) -> list[float]:
        new = [r for r in ridges if r not in self.curves[candidate]]
        if new:
            scores = self.scorers[candidate](new, ahead) if ahead else self.scorers[candidate](new)
            self.curves[candidate].update(zip(new, scores, strict=True))
            description = self._describe(candidate)
            self.tried.extend({"ridge": r, "psnr": s, **description} for r, s in zip(new, scores, strict=True))
        return [self.curves[candidate][r] for r in ridges]

    def _describe(self, candidate: Candidate) -> Mapping[str, Any]:
        encoders = self.encoders[candidate]
        assert encoders is not None
        names = {tunable(e): e.resolved()[str(tunable(e))] for e in reversed(encoders) if tunable(e)}
        features = {"padding": candidate.padding} if self.space.paddings else {}
        if self.space.most_per_sample > 1:
            features["features_per_sample"] = candidate.per_sample
        return {"width": names or None, **features}


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


def tunable(encoder: Encoder) -> str | None:
    """The argument that ``width: auto`` chooses: the declared width."""
    return None if encoder.width is None else encoder.width.argument
