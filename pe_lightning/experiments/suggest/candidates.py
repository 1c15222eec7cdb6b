"""What is tried: every encoder with its automatic settings, with as many features as samples and half as many.

Shifted encoders with as many features as samples are also tried with a shift past each end: it costs little, and held-out
samples beyond the last trained one gain by it (gau and bspline 0.1 to 0.2 dB on photographs; tri and impulse lose).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import torch

from pe_lightning import encoders
from pe_lightning.errors import InputError
from pe_lightning.experiments.suggest.parts import Part
from pe_lightning.linalg import Banded, encode_axis
from pe_lightning.solvers.scaling import tunable

__all__ = ["Candidate", "Skipped", "make_candidates"]

SHARES = (1.0, 0.5)
"""Features per trained sample of an axis, the better choice first."""
MOST_DENSE = 1024
"""Features of an axis that are not local: their decomposition takes seconds, and eight times as long for twice as many."""
MEMORY_SHARE = 0.25
"""Share of the free memory that weights and features may take."""


@dataclass(frozen=True)
class Skipped:
    """Something that was not tried, and why."""

    label: str
    reason: str


@dataclass(frozen=True)
class Candidate:
    """An encoder, and how many features it has.

    Args:
        name: The registered name.
        share: Features per trained sample of an axis; ``None`` if the encoder has no such choice.
        count: Features per axis, instead of a share.
        width: The argument that is chosen from the data, if there is one.
        padding: Further shifts past each end.
        local: Whether a sample sees a few neighbouring features only.
    """

    name: str
    share: float | None = None
    count: int | None = None
    width: str | None = None
    padding: int = 0
    local: bool = False

    def features(self, part: Part, full: bool = False) -> tuple[int | None, ...]:
        """Features per axis; ``None`` for an encoder without that choice.

        Args:
            part: The signals.
            full: Where they are windows, the features of the whole signals.
        """
        most = 1 << 30 if self.local else MOST_DENSE
        found: list[int | None] = []
        for n, whole in zip(part.full_spread if full else part.spread, part.full_spread, strict=True):
            # even: the Fourier encoders take no others
            if self.count is not None:
                found.append(self.count if n == whole else max(2, 2 * round(self.count * n / whole / 2)))
            else:
                found.append(None if self.share is None else max(2, 2 * round(min(n * self.share, most) / 2)))
        return tuple(found)

    def describe(self, part: Part, full: bool = False) -> dict[str, Any] | list[dict[str, Any]]:
        """The encoder as in a configuration: one for all axes, or one per axis where their sizes differ."""
        rest: dict[str, Any] = {self.width: "auto"} if self.width is not None else {}
        if self.padding:
            rest["padding"] = self.padding
        made = [
            {"name": self.name, **({} if count is None else {"num_features": count}), **rest}
            for count in self.features(part, full)
        ]
        return made[0] if all(entry == made[0] for entry in made) else made

    def label(self, part: Part) -> str:
        """Name and number of features, of the whole signals."""
        counts = [str(count) for count in self.features(part, full=True) if count is not None]
        shown = "x".join(counts if len(set(counts)) > 1 else counts[:1])
        padded = f" + {2 * self.padding}" if self.padding else ""
        return f"{self.name}, K = {shown}{padded}" if shown else self.name

    def weights(self, part: Part) -> int:
        """Weights of one signal, roughly; 0 for an encoder without that choice."""
        return part.info.channels * math.prod(count + 2 * self.padding if count else 0 for count in self.features(part))

    def too_large(self, part: Part) -> str | None:
        """Why there is no memory for it, if there is none."""
        sizes = [len(x) for x in part.dataset.axes]
        counts = [count or 0 for count in self.features(part)]
        dense = 0 if self.local else 3 * 8 * max(n * count for n, count in zip(sizes, counts, strict=True))
        needed = 4 * 4 * self.weights(part) * part.info.num_signals + dense
        free = int(psutil.virtual_memory().available * MEMORY_SHARE)
        return (
            f"needs about {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are there for it" if needed > free else None
        )


def make_candidates(names: Sequence[str], counts: Sequence[int]) -> tuple[list[Candidate], list[Skipped]]:
    """What to try, in that order, and the encoders that no solver takes.

    Args:
        names: Encoders to try; all registered ones if empty.
        counts: Features per axis to try, instead of as many as samples and half as many.
    """
    found: list[Candidate] = []
    skipped = [Skipped(name, message) for name, message in encoders.registry.broken().items()] if not names else []
    for name in names or encoders.names():
        try:
            encoder = encoders.create(name)
            trained = sum(p.numel() for p in encoder.parameters() if p.requires_grad)
            if trained:
                raise InputError("its features are learned; the solvers fit the linear layer alone: use pe-lightning fit")
            if encoder.num_axes != 1:
                raise InputError("it encodes several axes at once; the solvers take one axis at a time")
        except Exception as error:  # a plugin's constructor can raise anything
            skipped.append(
                Skipped(name, str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}")
            )
            continue
        width = tunable(encoder)
        if "num_features" not in encoders.registry.parameters(type(encoder)):
            found.append(Candidate(name))
            continue
        local = _is_local(encoder)
        if counts:
            found += [Candidate(name, count=count, width=width, local=local) for count in counts]
        else:
            found += [Candidate(name, share=share, width=width, local=local) for share in SHARES]
            if "padding" in encoders.registry.parameters(type(encoder)):
                found.append(Candidate(name, share=1.0, width=width, padding=1, local=local))
    # every encoder once, those without a width to look for first, before variants of any
    return sorted(found, key=lambda c: (c.padding, -(c.share or 1), c.count or 0, c.width is not None)), skipped


def _is_local(encoder: encoders.Encoder) -> bool:
    try:
        larger = encoder.replace(num_features=1024)
        return isinstance(encode_axis(larger, torch.arange(1024, dtype=torch.float64) / 1024), Banded)
    except (InputError, RuntimeError):
        return False
