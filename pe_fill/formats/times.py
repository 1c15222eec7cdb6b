"""Times of the rows of a series: at equal distances, with absent rows, or as an axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pe_lightning.signals.axes import EQUAL_DISTANCE, Axis, as_numbers, origin_of
from pe_lightning.signals.sources.tables import Table, number_in

Times = npt.NDArray[Any]
Places = npt.NDArray[np.int64]

TIME_NAMES = ("time", "date", "datetime", "timestamp", "t")
"""Names of a column of times as numbers."""
DAY = np.timedelta64(1, "D")


@dataclass(frozen=True)
class Clock:
    """How the times of a series are spread.

    Args:
        times: The times of all rows, also absent ones, ``(N,)`` numbers or ``datetime64``.
        places: Places of the rows of the file among them, ascending from 0.
        axis: The axis, if times are at unequal distances.
    """

    times: Times
    places: Places
    axis: Axis | None = None

    @property
    def absent(self) -> Places:
        return np.setdiff1d(np.arange(len(self.times)), self.places)

    def even_axis(self, name: str) -> Axis:
        """The axis of times that are at equal distances, also in months or in business days."""
        time, origin = self.times.dtype.kind == "M", origin_of(self.times)
        low, high = as_numbers(name, self.times[[0, -1]], time, origin).tolist()
        return Axis(name, low, high, len(self.times), time, origin=origin)

    @classmethod
    def from_times(cls, name: str, times: Times) -> Clock | None:
        """The spread of times that ascend or descend; ``None`` if they do neither, or one is missing.

        Distances are equal in numbers, of dates also in months or in business days. Rows are absent if times are whole
        multiples of the most frequent distance apart, and fewer are absent than present.

        >>> Clock.from_times("day", np.array(["2024-01-01", "2024-01-02", "2024-01-04"], "M8[D]")).places.tolist()
        [0, 1, 3]
        """
        numbers = as_numbers(name, times, times.dtype.kind == "M", origin_of(times))
        steps = np.diff(numbers)
        every = np.arange(len(times))
        if len(times) < 3:
            return cls(times, every)
        if not ((steps > 0).all() or (steps < 0).all()):
            return None
        spreads = [_by_numbers(times, numbers)]
        if times.dtype.kind == "M":
            spreads += [_by_months(times), _by_business_days(times)]
        found = min((spread for spread in spreads if spread is not None), key=lambda spread: len(spread.times), default=None)
        return found or cls(times, every, Axis.from_values(name, times))


def clock_of(table: Table) -> tuple[int, Clock | None]:
    """Index of the only column of dates, or of numbers named as times are, and its clock; -1 without such a column."""
    dates: dict[int, Times] = {**table.dates()}
    named = [place for place, name in enumerate(table.names) if name.lower() in TIME_NAMES and place not in dates]
    if not dates:
        with_numbers = [place for place in named if any(np.isfinite(number_in(cell)) for cell in table.cells[place])]
        dates = {place: table.values(place) for place in with_numbers}
    if len(dates) != 1:
        return -1, None
    ((place, times),) = dates.items()
    return place, Clock.from_times(table.names[place] or str(place), times)


def _places(numbers: npt.NDArray[Any]) -> Places | None:
    """Ascending places, from 0, of numbers that are multiples of their most frequent distance apart."""
    steps, counts = np.unique(np.diff(numbers), return_counts=True)
    step = np.median(steps) if np.ptp(steps) < EQUAL_DISTANCE * abs(steps).max() else steps[counts.argmax()]
    places = np.rint((numbers - numbers[0]) / step).astype(np.int64)
    spread = np.abs(numbers - numbers[0] - step * places).max()
    held = spread < EQUAL_DISTANCE * abs(step) and (np.diff(places) > 0).all() and places[-1] + 1 < 2 * len(places)
    return places if held else None


def _by_numbers(times: Times, numbers: npt.NDArray[np.float64]) -> Clock | None:
    if (places := _places(numbers)) is None:
        return None
    step = (times[-1] - times[0]) / places[-1]
    return Clock(times[0] + step * np.arange(places[-1] + 1), places)


def _by_months(times: Times) -> Clock | None:
    """The same day and time of months, or their last days."""
    for shift in (0 * DAY, DAY):
        months = (times + shift).astype("M8[M]")
        within = times + shift - months
        if (within == within[0]).all() and (places := _places(months.astype(np.int64))) is not None:
            step = (months[-1] - months[0]) // places[-1]
            every = months[0] + step * np.arange(places[-1] + 1)
            return Clock(every.astype(times.dtype) + within[0] - shift, places)
    return None


def _by_business_days(times: Times) -> Clock | None:
    """The same time of days from Monday to Friday."""
    days = times.astype("M8[D]")
    within = times - days
    if not np.is_busday(days).all() or (within != within[0]).any() or np.ptp(np.diff(days)) > 20 * DAY:
        return None
    places = _places(np.busday_count(days[0], days))
    if places is None:
        return None
    every = np.busday_offset(days[0], np.sign(int((days[-1] - days[0]) // DAY)) * np.arange(places[-1] + 1))
    return Clock(every.astype(times.dtype) + within[0], places)
