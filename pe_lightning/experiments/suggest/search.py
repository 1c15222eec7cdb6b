"""What is tried in which order, within the time there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from pe_lightning.data.splits import GridSplit
from pe_lightning.errors import InputError
from pe_lightning.experiments.suggest.attempts import Interpolation, Score, attempt, cost
from pe_lightning.experiments.suggest.candidates import Candidate, Skipped
from pe_lightning.experiments.suggest.parts import Part

__all__ = ["Found", "Row", "search"]

FIRST_SHARE = 0.5
"""Share of the budget for the windows; the rest is for all samples."""
CLOSE = 1.0
"""Encoders that are further behind on the windows, in dB, are not looked at again, nor is a padded form of them."""
SAFETY = 1.3
"""An attempt is taken to need this much longer than the slowest of the last few rates would have it."""
RECENT = 5
"""How many rates are remembered: other work on the machine comes and goes."""


@dataclass
class Row:
    """Something that was tried.

    Args:
        what: The encoder or the interpolation.
        windows: On windows of the signals, if those were looked at.
        whole: On all samples, if there was time.
    """

    what: Candidate | Interpolation
    windows: Score | None = None
    whole: Score | None = None

    @property
    def best(self) -> Score:
        """On all samples, else on the windows."""
        score = self.whole or self.windows
        assert score is not None
        return score

    @property
    def order(self) -> tuple[bool, float]:
        """What rows are sorted by, the best first."""
        return self.whole is None, -self.best.mean


@dataclass
class Found:
    """Everything that was tried, the best first, and what was not.

    Args:
        shown: The signals whose numbers of features are shown.
        streamed: Whether these are windows of signals that stay in their file.
        rows: What was tried.
        skipped: What was not.
    """

    shown: Part
    streamed: bool = False
    rows: list[Row] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def encoders(self) -> list[Row]:
        """The rows of encoders."""
        return [row for row in self.rows if isinstance(row.what, Candidate)]


class _Clock:
    """Seconds that an attempt will take, from the attempts before it."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.rates: dict[tuple[bool, int], list[float]] = {}

    def fits(self, part: Part, what: Candidate | Interpolation, guess: float = 0.0) -> bool:
        """Whether there is time; ``guess`` is for the first attempt of its kind."""
        rates = self.rates.get(self._key(part, what))
        expected = guess if rates is None else SAFETY * max(rates[-RECENT:]) * cost(part, what)
        return time.perf_counter() + expected <= self.deadline

    def note(self, part: Part, what: Candidate | Interpolation, seconds: float) -> None:
        """Learns from an attempt."""
        self.rates.setdefault(self._key(part, what), []).append(seconds / cost(part, what))

    @staticmethod
    def _key(part: Part, what: Candidate | Interpolation) -> tuple[bool, int]:
        return isinstance(what, Interpolation), id(part)


def search(
    candidates: Sequence[Candidate],
    whole: Part | None,
    windows: Part | None,
    deadline: float,
    device: torch.device,
    progress: Callable[[str], None],
) -> Found:
    """Tries everything on the windows, then the best of it on all samples; without windows, all at once.

    Args:
        candidates: In the order to try them.
        whole: All samples; ``None`` if they stay in their file.
        windows: A part of them; ``None`` if all of them are few.
        deadline: When to be done, in seconds of :func:`time.perf_counter`.
        device: Where to compute.
        progress: Called with what is tried next.
    """
    first = windows if windows is not None else whole
    assert first is not None
    began = time.perf_counter()
    found = Found(whole if whole is not None else first, whole is None)
    on_grid = isinstance(first.dataset.split, GridSplit)
    methods = ("nearest", "linear", "bicubic", "spline") if on_grid else ("nearest", "delaunay")
    tried: list[Candidate | Interpolation] = [Interpolation(name) for name in methods]
    if first.info.num_axes > 2 and not on_grid:
        tried.pop()
        found.skipped.append(Skipped("delaunay interpolation", "triangulating points in more than 2 axes takes minutes"))
    tried += candidates
    share = FIRST_SHARE if windows is not None and whole is not None else 1.0
    clock = _Clock(began + share * (deadline - began))
    for what in tried:
        if isinstance(what, Candidate) and what.padding and _is_behind(found, what):
            continue
        score = _try(first, what, clock, device, progress, found)
        if score is not None:
            found.rows.append(Row(what, score) if first is windows else Row(what, None, score))
    if windows is not None and whole is not None:
        _confirm(found, windows, whole, _Clock(deadline), device, progress)
    found.rows.sort(key=lambda row: row.order)
    return found


def _is_behind(found: Found, padded: Candidate) -> bool:
    """Whether the same encoder without padding was clearly worse than another, or could not be tried."""
    tried = found.encoders()
    same = [row.best.mean for row in tried if row.what == replace(padded, padding=0)]
    return not same or same[0] < max(row.best.mean for row in tried) - CLOSE


def _confirm(
    found: Found, windows: Part, whole: Part, clock: _Clock, device: torch.device, progress: Callable[[str], None]
) -> None:
    """The best of the windows on all samples: the interpolations, then each encoder's best, then the rest."""
    ranked = sorted(found.rows, key=lambda row: row.order)
    ahead = [row for row in ranked if isinstance(row.what, Interpolation)]
    encoders = [row for row in ranked if isinstance(row.what, Candidate)]
    encoders = [row for row in encoders if row.best.mean >= encoders[0].best.mean - CLOSE]
    names: set[str] = set()
    leading: list[Row] = []
    following: list[Row] = []
    for row in encoders:
        assert isinstance(row.what, Candidate)
        (following if row.what.name in names else leading).append(row)
        names.add(row.what.name)
    # the first encoder goes before the interpolations: one result on all samples is worth more than none
    for row in [*encoders[:1], *ahead, *leading[1:], *following]:
        assert row.windows is not None
        guess = SAFETY * row.windows.seconds * cost(whole, row.what) / cost(windows, row.what)
        if clock.fits(whole, row.what, guess):
            row.whole = _try(whole, row.what, clock, device, progress, found)


def _try(
    part: Part,
    what: Candidate | Interpolation,
    clock: _Clock,
    device: torch.device,
    progress: Callable[[str], None],
    found: Found,
) -> Score | None:
    """One attempt; what goes wrong is listed, and the others go on."""
    label = what.label(found.shown) if isinstance(what, Candidate) else f"{what.name} interpolation"
    large = what.too_large(part) if isinstance(what, Candidate) else None
    if large is not None:
        found.skipped.append(Skipped(label, large))
        return None
    if not clock.fits(part, what):
        found.skipped.append(Skipped(label, "no time left; give a larger --budget"))
        return None
    progress(f"{label}, {part.words}")
    began = time.perf_counter()
    try:
        score = attempt(part, what, device)
    except InputError as error:
        found.skipped.append(Skipped(label, str(error)))
        return None
    except Exception as error:  # whatever one encoder fails of, the others are tried
        found.skipped.append(Skipped(label, f"failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"))
        return None
    finally:
        clock.note(part, what, time.perf_counter() - began)
    return score
