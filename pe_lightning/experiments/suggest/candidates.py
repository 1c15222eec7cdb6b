"""What is tried: interpolation, and every encoder with automatic settings and some numbers of features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from pe_lightning import encoders
from pe_lightning.data.splits import GridSplit
from pe_lightning.errors import InputError
from pe_lightning.experiments.suggest.windows import ScoredSignals
from pe_lightning.solvers.choice import tunable

__all__ = ["Candidate", "encoder_candidates", "interpolations", "width_of"]

VARIANTS: tuple[dict[str, Any], ...] = ({"share": 1.0}, {"share": 0.5}, {"share": 1.0, "padding": 1})
"""How many features per trained sample of an axis are tried, and shifts past each end of an axis.

Those shifts cost little, and held-out samples beyond the last trained one gain by them (gau and bspline 0.1 to 0.2 dB on
photographs; tri and impulse lose).
"""
MAX_DENSE = 1024
"""Features of an axis that are not local: their decomposition takes seconds, and eight times as long for twice as many."""
MEMORY_SHARE = 0.25
"""Share of the free memory that weights and features may take."""


@dataclass(frozen=True)
class Candidate:
    """An encoder and how many features it has, or an interpolation; width and ridge are chosen from the data.

    Args:
        name: The registered name.
        interpolation: Whether it is a method of :mod:`pe_lightning.baselines`.
        share: Features per trained sample of an axis; ``None`` if the encoder has no such choice.
        count: Features per axis, instead of a share.
        width: The argument that is chosen from the data, if there is one.
        padding: Further shifts past each end.
        local: Whether a sample sees a few neighbouring features only.
    """

    name: str
    interpolation: bool = False
    share: float | None = None
    count: int | None = None
    width: str | None = None
    padding: int = 0
    local: bool = False

    def features(self, signals: ScoredSignals, full: bool = False) -> tuple[int | None, ...]:
        """Features per axis; ``None`` for an encoder without that choice.

        Args:
            signals: The signals.
            full: Where they are windows, the features of the whole signals.
        """
        limit = 1 << 30 if self.local else MAX_DENSE
        found: list[int | None] = []
        for n, whole in zip(signals.full_sizes if full else signals.sizes, signals.full_sizes, strict=True):
            # even: the Fourier encoders take no others
            if self.count is not None:
                found.append(self.count if n == whole else max(2, 2 * round(self.count * n / whole / 2)))
            else:
                found.append(None if self.share is None else max(2, 2 * round(min(n * self.share, limit) / 2)))
        return tuple(found)

    def describe(self, signals: ScoredSignals, full: bool = False) -> dict[str, Any] | list[dict[str, Any]]:
        """The encoder as in a configuration: one for all axes, or one per axis where their sizes differ."""
        rest: dict[str, Any] = {self.width: "auto"} if self.width is not None else {}
        rest |= {"padding": self.padding} if self.padding else {}
        counts = self.features(signals, full)
        made = [{"name": self.name, **({} if count is None else {"num_features": count}), **rest} for count in counts]
        return made[0] if all(entry == made[0] for entry in made) else made

    def label(self, signals: ScoredSignals) -> str:
        """Name and number of features, of the whole signals."""
        if self.interpolation:
            return f"{self.name} interpolation"
        counts = [str(count) for count in self.features(signals, full=True) if count is not None]
        shown = "x".join(counts if len(set(counts)) > 1 else counts[:1])
        padded = f" + {2 * self.padding}" if self.padding else ""
        return f"{self.name}, K = {shown}{padded}" if shown else self.name

    def work(self, signals: ScoredSignals) -> float:
        """Multiplications, roughly: the features of all samples, and a decomposition of each axis."""
        counts = [0 if self.interpolation else count or 16 for count in self.features(signals)]
        samples = signals.info.num_signals * signals.info.channels * math.prod(signals.info.grid)
        dense = 0 if self.local else sum(n * k * min(n, k) for n, k in zip(signals.sizes, counts, strict=True))
        return float(samples * max(sum(counts), 1) + 10 * dense)

    def check_memory(self, signals: ScoredSignals) -> None:
        """Raises :class:`InputError` if there is no memory for weights and features."""
        counts = [count or 0 for count in self.features(signals)]
        weights = signals.info.num_signals * signals.info.channels * math.prod(k and k + 2 * self.padding for k in counts)
        dense = 0 if self.local else max(n * k for n, k in zip(signals.info.grid, counts, strict=True))
        needed, free = 16 * weights + 24 * dense, int(psutil.virtual_memory().available * MEMORY_SHARE)
        if needed > free:
            raise InputError(f"needs about {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are there for it")


def interpolations(signals: ScoredSignals) -> tuple[list[Candidate], dict[str, str]]:
    """The interpolation methods for the trained samples, and why others would take too long."""
    names, skipped = ["nearest", "linear", "bicubic", "spline"], {}
    if not isinstance(signals.dataset.split, GridSplit):
        names = ["nearest", "delaunay"]
        if signals.info.num_axes > 2:
            skipped = {f"{names.pop()} interpolation": "triangulating points in more than 2 axes takes minutes"}
    return [Candidate(name, interpolation=True) for name in names], skipped


def encoder_candidates(names: Sequence[str], counts: Sequence[int]) -> tuple[list[Candidate], dict[str, str]]:
    """The encoders to try, in that order, and why others cannot be solved for.

    Args:
        names: Encoders to try; all registered ones if empty.
        counts: Features per axis to try; those of :data:`VARIANTS` if empty.
    """
    found: list[Candidate] = []
    skipped = {} if names else dict(encoders.registry.broken())
    variants = [{"count": count} for count in counts] or VARIANTS
    for name in names or encoders.names():
        try:
            encoder = encoders.create(name)
            if any(parameter.requires_grad for parameter in encoder.parameters()):
                raise InputError("its features are learned; the solvers fit the linear layer alone: use pe-lightning fit")
            if encoder.num_axes != 1:
                raise InputError("it encodes several axes at once; the solvers take one axis at a time")
        except Exception as error:  # a plugin's constructor can raise anything
            skipped[name] = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            continue
        arguments = encoders.registry.parameters(type(encoder))
        if "num_features" not in arguments:
            found.append(Candidate(name))
            continue
        settings: dict[str, Any] = {"width": width_of(encoder), "local": _is_local(encoder)}
        found += [Candidate(name, **variant, **settings) for variant in variants if {"padding"} & {*variant} <= {*arguments}]
    # every encoder once, those without a width to look for first, before variants of any
    return sorted(found, key=lambda c: (c.padding, -(c.share or 1), c.count or 0, c.width is not None)), skipped


def width_of(encoder: encoders.Encoder) -> str | None:
    """The argument of an encoder that ``auto`` chooses, if there is one."""
    return tunable(encoder)


def _is_local(encoder: encoders.Encoder) -> bool:
    """Whether the features of many are banded."""
    try:
        larger = encoder.copy(num_features=1024)
        return larger.support is not None
    except (InputError, RuntimeError):
        return False
