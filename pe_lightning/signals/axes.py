"""Axes in the user's units with their affine maps to [0, 1), and how the axes of an array are read as signals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from pe_lightning.errors import InputError

Floats = npt.NDArray[np.float64]

Kind: TypeAlias = Literal["images", "rows", "video"]
"""Names of the registered sources of signals of two, one and three axes."""
SampleKind: TypeAlias = Literal["points", "cells"]
"""What samples are: values at points, or means over the cells of a grid, as the pixels of a camera."""

MAX_CHANNELS = 4
"""Largest last axis that is taken for channels."""
PICTURE_CHANNELS = (1, 3, 4)
MAX_ASPECT_RATIO = 8
"""Arrays of two axes whose ratio is larger may be pictures or sets of rows."""
NOUNS: dict[Kind, str] = {"rows": "row", "images": "picture", "video": "cube"}
NANOSECONDS = 10**9
"""Nanoseconds in a second."""
FINE_UNITS = ("ns", "ps", "fs", "as")
"""Units of ``datetime64`` that are read in nanoseconds, from 1678 to 2262; others in microseconds."""
EQUAL_DISTANCE = 1e-4
"""Largest deviation of a coordinate from equal distances, in samples, that is taken for rounding."""


@dataclass(frozen=True)
class Axis:
    r"""One axis in the user's units: the coordinate ``x`` becomes :math:`u = (x - low) / length`, and sample ``i`` i/size.

    Args:
        name: Name of the axis.
        low: Coordinate of the first sample.
        high: Coordinate of the last sample, below ``low`` on a descending axis; on a periodic axis one period after ``low``.
        size: Number of samples; for scattered samples, the number on a grid of their density.
        time: Whether coordinates are dates and times, in seconds since the ``origin``.
        periodic: Whether coordinates are taken modulo the period.
        samples: Coordinates of the samples, where they are not at equal distances.
        origin: For times, nanoseconds from 1970-01-01 UTC on (:func:`origin_of`).

    >>> axis = Axis("lat", 40.0, 60.0, size=5)
    >>> axis.to_unit(np.array([40.0, 60.0])).tolist(), axis.restore(np.array([0.4])).tolist()
    ([0.0, 0.8], [50.0])
    """

    name: str
    low: float
    high: float
    size: int
    time: bool = False
    periodic: bool = False
    samples: tuple[float, ...] | None = None
    origin: int = 0

    @classmethod
    def from_values(cls, name: str, values: npt.NDArray[Any]) -> Axis:
        """The axis of a grid with samples at these numbers or dates ``(N,)``, which ascend or descend."""
        time, origin = values.dtype.kind == "M", origin_of(values)
        numbers = as_numbers(name, values, time, origin)
        deviation = np.abs(numbers - np.linspace(numbers[0], numbers[-1], len(numbers))).max()
        uneven = deviation >= EQUAL_DISTANCE * abs(np.diff(numbers)).mean()
        samples = tuple(numbers.tolist()) if uneven else None
        return cls(name, float(numbers[0]), float(numbers[-1]), len(numbers), time, samples=samples, origin=origin)

    def __post_init__(self) -> None:
        length = self.length
        if not (math.isfinite(length) and length and math.isfinite(self.low)):
            raise InputError(
                f"coordinate {self.name!r} goes from {self.low:g} to {self.high:g}; an axis needs two different finite "
                "numbers whose difference is finite"
            )

    @property
    def length(self) -> float:
        """The length of [0, 1) in the user's units; negative on a descending axis."""
        return (self.high - self.low) * (1 if self.periodic else self.size / (self.size - 1))

    def to_unit(self, values: npt.ArrayLike) -> Floats:
        """Coordinates in [0, 1) from the user's units, numbers or ``datetime64``."""
        numbers = as_numbers(self.name, values, self.time, self.origin)
        unit: Floats = (numbers - self.low) / self.length
        return unit % 1.0 if self.periodic else unit

    def grid(self, size: int | None = None) -> Floats:
        """Coordinates in [0, 1) of the samples, or of ``size`` samples, interpolated between uneven ones."""
        count = size or self.size
        even = np.arange(count) / count
        if self.samples is None:
            return even
        own = self.to_unit(self.samples)
        known = np.append(own, 2 * own[-1] - own[-2])  # beyond the last sample as before it
        uneven: Floats = np.interp(even * self.size, np.arange(self.size + 1), known)
        return uneven

    def restore(self, unit: npt.ArrayLike) -> npt.NDArray[Any]:
        """Coordinates in the user's units: ``float64``, or on an axis of time ``datetime64[ms]``, ``[ns]`` of fine ones."""
        numbers = self.low + np.asarray(unit, np.float64) * self.length
        return self.dates(numbers) if self.time else numbers

    def dates(self, seconds: Floats) -> npt.NDArray[np.datetime64]:
        """Dates from seconds since the origin."""
        if self.origin:
            return np.asarray(np.datetime64(self.origin, "ns") + (seconds * NANOSECONDS).round().astype("timedelta64[ns]"))
        return np.asarray((seconds * 1000).round().astype("datetime64[ms]"))

    def spread(self, count: int) -> Floats:
        """``count`` coordinates in [0, 1) at equal distances from the first sample to the last, or around a period."""
        if self.periodic:
            return np.arange(count) / count
        return np.linspace(0, (self.size - 1) / self.size, count)

    def to_dict(self) -> dict[str, Any]:
        plain = {**vars(self), "samples": None if self.samples is None else list(self.samples)}
        return plain if self.origin else {key: value for key, value in plain.items() if key != "origin"}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Axis:
        return cls(**{**plain, "samples": None if plain["samples"] is None else tuple(plain["samples"])})


def as_numbers(name: str, values: npt.ArrayLike, time: bool = False, origin: int = 0) -> Floats:
    """Numbers as float64; dates, also as text in ISO 8601, as seconds since the ``origin``; missing ones as NaN.

    The origin is in nanoseconds since 1970-01-01 UTC, which is the default.
    """
    array = np.asarray(values)
    if array.dtype.kind in "OUS" and time:
        try:
            array = array.astype("datetime64")
        except ValueError as error:
            raise InputError(f"coordinate {name!r} is not a date in ISO 8601, such as 2024-01-31T12:00: {error}") from error
    if array.dtype.kind == "M":
        if not time:
            raise InputError(f"coordinate {name!r} holds dates; the model was fitted to numbers")
        unit, per_second = ("ns", NANOSECONDS) if np.datetime_data(array.dtype)[0] in FINE_UNITS else ("us", 10**6)
        seconds, parts = np.divmod(array.astype(f"datetime64[{unit}]").astype(np.int64), per_second)
        whole, rest = divmod(origin, NANOSECONDS)
        return np.where(np.isnat(array), np.nan, (seconds - whole) + (parts / per_second - rest / NANOSECONDS))
    if array.dtype.kind not in "biuf":
        raise InputError(f"coordinate {name!r} holds {array.dtype} values; give numbers or dates")
    return array.astype(np.float64)


def origin_of(values: npt.NDArray[Any]) -> int:
    """The origin of the times ``(N,)`` of an axis: 0, or of times below 10 milliseconds apart the second of the first one.

    As float64, seconds since 1970 are exact to a quarter of a microsecond.
    """
    known = np.unique(values[~np.isnat(values)]) if values.dtype.kind == "M" else values[:0]
    fine = len(known) > 1 and bool((np.diff(known) < np.timedelta64(10, "ms")).any())
    return int(known[0].astype("datetime64[s]").astype(np.int64)) * NANOSECONDS if fine else 0


@dataclass(frozen=True)
class Layout:
    """Interpretation of the axes of an array: the source that reads it so, and its shape ``(S, N_1, ..., N_D, C)``."""

    kind: Kind
    shape: tuple[int, ...]

    @property
    def grid(self) -> tuple[int, ...]:
        return self.shape[1:-1]

    def __str__(self) -> str:
        count, channels, noun = self.shape[0], self.shape[-1], NOUNS[self.kind]
        signals = f"one {noun}" if count == 1 else f"{count} {noun}s"
        samples = f"{signals} of {'x'.join(map(str, self.grid))} samples"
        return samples if channels == 1 else f"{samples} with {channels} channels"


def plausible_layouts(shape: Sequence[int]) -> list[Layout]:
    """Plausible layouts of an array, the most likely first; none if the channels seem to be the first axis.

    A last axis of at most 4 is channels. Two axes of similar length are a picture, three a cube. A first axis of 1 counts
    signals.

    >>> [str(layout) for layout in plausible_layouts((64, 48, 3))]
    ['one picture of 64x48 samples with 3 channels']
    >>> [str(layout) for layout in plausible_layouts((16, 5000))]
    ['one picture of 16x5000 samples', '16 rows of 5000 samples']
    """
    return [layout for layout in _layouts(tuple(shape)) if min(layout.grid) >= 2 and min(layout.shape) >= 1]


def _layouts(shape: tuple[int, ...]) -> list[Layout]:
    axes, last = len(shape), shape[-1] if shape else 0
    if axes == 5:
        return [Layout("video", shape)]
    if axes not in (1, 2, 3, 4) or channels_first(shape):
        return []
    if axes > 1 and shape[0] == 1:
        return _layouts(shape[1:])[:1]
    with_channels = last <= MAX_CHANNELS
    if axes == 1:
        return [Layout("rows", (1, *shape, 1))]
    if axes == 2 and with_channels:
        return [Layout("rows", (1, *shape))]
    if axes == 4:
        cubes = [Layout("video", (1, *shape) if with_channels else (*shape, 1))]
        return [*cubes, Layout("images", shape)] if with_channels else cubes
    if axes == 3 and not with_channels:
        pictures = [Layout("images", (*shape, 1))] if shape[0] > MAX_ASPECT_RATIO * max(shape[1:]) else []
        return [Layout("video", (1, *shape, 1)), *pictures]
    full = shape if axes == 3 else (*shape, 1)
    short, long = sorted(full[:2])
    picture, rows = Layout("images", (1, *full)), Layout("rows", full)
    if short <= MAX_CHANNELS or long > MAX_ASPECT_RATIO * short or full[-1] not in PICTURE_CHANNELS:
        return [picture, rows]
    return [picture]


def channels_first(shape: Sequence[int]) -> bool:
    """Whether the third axis from the end is probably channels, as in torch."""
    channels = PICTURE_CHANNELS[1:] if len(shape) == 3 else PICTURE_CHANNELS
    return len(shape) in (3, 4) and shape[-3] in channels and min(shape[-2:]) > MAX_CHANNELS


def describe_layouts(label: str, shape: Sequence[int]) -> str:
    """First part of the message about an array that is ambiguous or unsupported."""
    layouts = plausible_layouts(shape)
    if layouts:
        return f"{label} has shape {tuple(shape)}, which may be {' or '.join(map(str, layouts))}"
    hint = "at least 2 samples are needed on each of 1 to 3 axes"
    if channels_first(shape):
        hint = f"its channels seem to come first: move them to the end, numpy.moveaxis(array, {len(shape) - 3}, -1)"
    return f"{label} has shape {tuple(shape)}; {hint}"
