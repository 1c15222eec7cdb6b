"""The options of a fill, checked once: what a plan does not read is refused by name."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from pe_fill.formats.point_axes import Limit, length_of
from pe_lightning.errors import InputError, refuse
from pe_lightning.signals.axes import SampleKind
from pe_lightning.signals.validation import choice, integer

FoldsLike: TypeAlias = Literal["auto", "random", "blocks", "none"]
ModelName: TypeAlias = Literal["auto", "adaptive", "exact"]

SHIPPED = "pictures"
"""The network that is shipped, for ``pretrained``."""
FACTORS = (1, 2, 3, 4, 6, 8)
"""Samples of an enlargement per sample and axis."""
OF_POINTS = ("coordinates", "values", "grid", "spacing", "region", "like", "at")
"""Options by which a file is read as scattered points."""
UNREAD = {
    "tables of points": (
        "smooth", "noise", "noise_sample", "upscale", "samples", "pretrained", "members", "block", "axes", "grow", "max_gap",
        "std", "key", "variable", "dims",
    ),
    "samples of a grid": ("duplicates",),
    "NetCDF and Zarr, which --axes reads as plain arrays": ("key", "grow"),
}  # fmt: skip
"""Options that some files do not have."""


@dataclass(frozen=True, kw_only=True)
class FillRequest:
    """The options of :func:`pe_fill.fill` and of ``pe-lightning fill``, which say what each means.

    Those from ``coordinates`` on are of scattered points. ``std`` of ``None`` are standard deviations where gaps are filled.

    Raises:
        InputError: If options do not go together.
    """

    model: ModelName | Callable[[], Any] = "auto"
    encoder: str | None = None
    smooth: bool = False
    upscale: int | Sequence[int] = 1
    samples: SampleKind | Literal["auto"] = "auto"
    pretrained: str = SHIPPED
    folds: FoldsLike = "auto"
    block: int | None = None
    axes: int | None = None
    seed: int = 0
    std: bool | None = None
    grow: int | None = None
    members: Sequence[str] | None = None
    key: str | None = None
    noise: float | None = None
    noise_sample: str | None = None
    periodic: str | Sequence[str] | None = None
    max_gap: Limit | None = None
    max_distance: Limit | None = None
    variable: str | None = None
    dims: str | None = None
    coordinates: str | None = None
    values: str | None = None
    grid: str | None = None
    spacing: str | None = None
    region: str | None = None
    like: str | None = None
    at: str | None = None
    duplicates: Literal["average", "keep", "error"] = "average"

    def __post_init__(self) -> None:
        if self.is_of_points:
            self.refuse_unread("tables of points")
            return
        object.__setattr__(self, "upscale", _integers(self.upscale))
        for factor in [self.upscale] if isinstance(self.upscale, int) else self.upscale:
            choice("upscale", factor, FACTORS)
        choice("folds", self.folds, FoldsLike)
        for name, value, least in (("block", self.block, 1), ("grow", self.grow, 0)):
            if value is not None:
                integer(name, value, least)
        if isinstance(self.model, str):
            choice("model", self.model, ModelName)
        for name, limit in (("max_gap", self.max_gap), ("max_distance", self.max_distance)):
            check_limit(name, limit)
        choice("samples", self.samples, ("auto", "points", "cells"))
        has_noise = self.noise is not None or self.noise_sample is not None
        refuse(
            (
                self.encoder is not None and self.model not in ("auto", "exact"),
                "encoder is for the exact fit: set model to exact, or leave it out",
            ),
            (
                self.std and (self.smooth or self.enlarges),
                "std is of missing samples that are filled: leave out smooth and upscale",
            ),
            (
                self.noise is not None and not 0 < self.noise < math.inf,
                f"noise is a standard deviation above 0; got {self.noise}",
            ),
            (
                has_noise and (not self.smooth or not self.is_automatic),
                "noise and noise_sample are for smooth: add it, without model and encoder",
            ),
            (
                self.noise is not None and self.noise_sample is not None,
                "noise and noise_sample are two ways to say it: leave one out",
            ),
            (
                self.is_limited and (self.smooth or self.enlarges),
                "max_gap and max_distance are limits of filling: leave out smooth and upscale",
            ),
            (
                self.pretrained != SHIPPED and not self.enlarges,
                "pretrained is for enlarging: add upscale (such as 2), or leave it out",
            ),
            (
                self.smooth and self.enlarges,
                "smooth and upscale are two steps: fill with smooth first, then enlarge the result",
            ),
            (
                self.samples != "auto" and not self.enlarges,
                f"samples: {self.samples} is for enlarging: add upscale (such as 2), or leave it out",
            ),
            (
                self.enlarges and (self.block is not None or self.folds in ("random", "blocks")),
                "block and folds random or blocks are of gaps that are filled, and an enlargement is scored by the reduced "
                "signal: leave them out",
            ),
            (
                self.members is not None and (self.smooth or self.enlarges or not self.is_automatic or not self.members),
                "members are of the mixture that fills gaps: name one or more, without model, smooth and upscale",
            ),
            (
                len(set(self.members or ())) < len(self.members or ()),
                f"members are named once each; got {', '.join(self.members or ())}",
            ),
        )
        self.refuse_unread("samples of a grid")

    @property
    def is_of_points(self) -> bool:
        """Whether files are tables of scattered points."""
        return any(getattr(self, name) for name in OF_POINTS)

    @property
    def is_automatic(self) -> bool:
        """Whether the model is not chosen."""
        return self.model == "auto" and self.encoder is None

    @property
    def enlarges(self) -> bool:
        return self.upscale != 1

    @property
    def is_limited(self) -> bool:
        """Whether some samples may stay missing."""
        return self.max_gap is not None or self.max_distance is not None

    @property
    def has_std(self) -> bool:
        """Whether standard deviations are computed."""
        return not (self.smooth or self.enlarges) if self.std is None else self.std

    def changed_options(self, names: Sequence[str]) -> list[str]:
        """The options among these that are not at their default."""
        return [field.name for field in fields(self) if field.name in names and getattr(self, field.name) != field.default]

    def refuse_unread(self, what: str) -> None:
        """Refuses options that a kind of file in :data:`UNREAD` does not have."""
        names = [f"--{'no_std' if name == 'std' else name}" for name in self.changed_options(UNREAD[what])]
        if names:
            raise InputError(f"{', '.join(names)}: not for {what}; leave {'it' if len(names) == 1 else 'them'} out")


def check_limit(name: str, given: Limit | None) -> bool:
    """Refuses a limit that is no length; whether it is a length of time."""
    if given is None:
        return False
    length, of_time = length_of(name, given)
    if name == "max_gap" and not of_time and length != int(length):
        raise InputError(f"max_gap is a whole number of samples, or a length of time, such as 3h; got {given!r}")
    return of_time


def _integers(upscale: Any) -> Any:
    """A number, or one for each axis, as ``int`` where they are integers of NumPy or torch."""
    try:
        return operator.index(upscale)
    except TypeError:
        return tuple(map(_integers, upscale)) if isinstance(upscale, Sequence) and not isinstance(upscale, str) else upscale
