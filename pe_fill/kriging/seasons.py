"""Periods of series: proposed by the periodogram, accepted by blocks that are held out.

With a period the series is the sum of harmonics, with amplitudes that may be linear in time, and of a function of time and
phase, whose values at the same phase of other periods are near. Time and phase each have a length that is learned
(:mod:`~pe_fill.kriging.matern`), so that a season may change slowly.

Reference: Scargle, *Studies in astronomical time series analysis II*, Astrophysical Journal 263, 1982.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from scipy.linalg import solveh_banded
from scipy.signal import lombscargle
from torch import Tensor

from pe_fill.kriging.matern import Matern, MaternKriging, learn_matern

Floats = npt.NDArray[np.float64]

MIN_SAMPLES = 30
MAX_PERIODOGRAM_SAMPLES = 2000
MAX_FREQUENCIES = 8000
ROUNDING = 1e-9
"""Standard deviation about a trend, relative to the values, below which a column has no period."""
MAX_STEPS = 1 << 20
"""Longest series, in spacings, whose periodogram at equal distances is a Fourier transform."""
MIN_CYCLES = 3
"""Fewest periods in a series."""
OVERSAMPLING = 4
"""Frequencies of the periodogram per resolution of the series."""
HARMONICS = 4
"""Multiples of the frequency of a period that are removed before the next one is searched."""
MAX_FITTED = 20_000
"""Most samples that harmonics are fitted to."""
MAX_KNOTS = 200
MAX_PERIODS = 2
MIN_POWER = 4.0
"""Least share of the variance of a sinusoid with a period that is tried, in units of ``log(P) / P``; noise has half."""
MIN_GAIN = 0.1
"""Least decrease of the root mean squared error of held-out blocks for which a period is accepted."""
BLOCKS = (8, 20)
"""Fewest and most blocks that a series is divided into, as wide as its widest gap; every fourth is held out, in turn."""
MAX_BLOCK_SAMPLES = 1200
"""Samples of a series, next to each other, that decide on a period."""
SERIES_SUBSET = 128
"""Samples of a random subset of a series that its covariance is learned from, beside blocks of neighbouring ones."""
NUM_NEIGHBOURS = 256
"""Samples of a system: of the same phase in many periods, and of many phases in one."""


class SeasonalMean:
    """Harmonics of periods of values ``(P, C)``: least squares, beside a trend that is linear between knots.

    How many harmonics there are, and whether amplitudes are linear in time, minimises the generalised cross-validation. A
    period with fewer than two different times, or too few samples, has no harmonics.
    """

    def __init__(self, times: Floats, values: Floats, periods: Sequence[float]) -> None:
        self.centre, self.extent = float(times.mean()), float(np.ptp(times))
        distinct = len(np.unique(times)) / self.extent
        most = min(HARMONICS, len(times) // (10 * HARMONICS * len(periods)))
        if len(times) > MAX_FITTED:
            some = np.random.default_rng(0).permutation(len(times))[:MAX_FITTED]
            times, values = times[some], values[some]
        count = max(4, min(int(self.extent / min(periods)), len(times) // 8, MAX_KNOTS))
        place = (times - times.min()) / np.ptp(times) * (count - 1)
        below = np.minimum(place.astype(int), count - 2)
        rows, upper = np.arange(len(times)), place - below
        trend = sparse.csr_array((np.append(1 - upper, upper), (np.tile(rows, 2), np.append(below, below + 1))))
        trend.resize(len(times), count)
        products = (trend.T @ trend).toarray()  # tridiagonal, of a small condition number
        products += 1e-12 * np.trace(products) * np.eye(count)  # knots without samples near them
        bands = np.stack([np.append(0, products.diagonal(1)), products.diagonal()])

        def without_trend(columns: Floats) -> Floats:
            rest: Floats = columns - trend @ solveh_banded(bands, trend.T @ columns)
            return rest

        waves = [(period, min(most, int(distinct * period / 2))) for period in periods]
        numbers = np.concatenate([np.tile(np.arange(n), 2) for _, n in waves])
        both = without_trend(np.concatenate([self._columns(times, waves, True), values], 1))
        _, triangle = np.linalg.qr(both)
        season, rest = np.split(triangle, [2 * len(numbers)], 1)
        least = math.inf
        for harmonics, slopes in itertools.product(range(most + 1), (False, True)):
            used = np.append(numbers < harmonics, slopes & (numbers < harmonics))
            found = np.linalg.lstsq(season[:, used], rest, rcond=None)[0]
            free = max(1, len(times) - used.sum() - count)
            cost = np.log(np.square((rest - season[:, used] @ found) / free).sum(0) + np.finfo(float).tiny).sum()
            if cost < least:
                least, self.slopes, self.coefficients = cost, slopes, found
                self.waves = [(period, min(harmonics, n)) for period, n in waves]
                share = used.sum() / len(times)
        self.inflation = math.sqrt((1 + share) / max(1 - share, 0.5))
        """Errors of predictions relative to those at the samples, which the harmonics were fitted to."""

    def __call__(self, times: Floats) -> Floats:
        """Values at times ``(Q,)``: ``(Q, C)``."""
        found: Floats = self._columns(times, self.waves, self.slopes) @ self.coefficients
        return found

    def _columns(self, times: Floats, waves: list[tuple[float, int]], slopes: bool) -> Floats:
        columns = np.concatenate([_harmonics(times, *wave) for wave in waves], 1)
        return np.concatenate([columns, columns * ((times - self.centre) / self.extent)[:, None]], 1) if slopes else columns


def _harmonics(times: Floats, period: float, count: int) -> Floats:
    """Cosines and sines of the first multiples of a frequency, ``(P, 2 * count)``."""
    angles = 2 * np.pi * times[:, None] / period * np.arange(1, count + 1)
    return np.concatenate([np.cos(angles), np.sin(angles)], 1)


def find_periods(times: Floats, values: Floats) -> tuple[float, ...]:
    """Periods of a series ``(P, C)``, in any order, that make held-out blocks more precise, at most two."""
    order = np.argsort(times)
    times, values = times[order], values[order]
    accepted: tuple[float, ...] = ()
    if len(times) < MIN_SAMPLES:
        return accepted
    centre, extent = times.mean(), np.ptp(times)
    scaled, trend = values / values.std(0).clip(1e-300), np.polynomial.chebyshev.chebvander(2 * (times - centre) / extent, 3)
    residual = scaled - trend @ np.linalg.lstsq(trend, scaled, rcond=None)[0]
    varies = residual.std(0) > ROUNDING
    values, residual = values[:, varies], residual[:, varies]
    if not varies.any():
        return accepted
    error = math.nan
    for _ in range(MAX_PERIODS):
        period, power = strongest_period(times, residual)
        if power < MIN_POWER * math.log(len(times)) / len(times):
            break
        error = _block_error(times, values, accepted) if math.isnan(error) else error
        found = _block_error(times, values, (*accepted, period))
        if found > (1 - MIN_GAIN) * error:
            break
        accepted, error = (*accepted, period), found
        waves = _harmonics(times, period, HARMONICS)
        residual = residual - waves @ np.linalg.lstsq(waves, residual, rcond=None)[0]
    return accepted


def strongest_period(times: Floats, values: Floats) -> tuple[float, float]:
    """The period of the sinusoid with the largest share of the variance of ``(P, C)`` at sorted times, and this share."""
    spacing = float(np.median(np.diff(times)))
    steps = (times - times[0]) / spacing
    equal = steps[-1] < MAX_STEPS and np.abs(steps - steps.round()).max() < 0.01
    if len(times) > MAX_PERIODOGRAM_SAMPLES and not equal:
        some = np.sort(np.random.default_rng(0).permutation(len(times))[:MAX_PERIODOGRAM_SAMPLES])
        times, values = times[some], values[some]
    extent = float(np.ptp(times))
    resolution = 1 / extent / OVERSAMPLING
    count = min(MAX_FREQUENCIES, int(0.5 / spacing / resolution) - MIN_CYCLES * OVERSAMPLING)
    if count < 1:
        return math.nan, 0.0

    def power(frequencies: Floats) -> Floats:
        found = [lombscargle(times - times[0], column, 2 * np.pi * frequencies, normalize=True) for column in values.T]
        mean: Floats = np.mean(found, 0)
        return mean

    frequencies: Floats = (MIN_CYCLES / extent + resolution * np.arange(count)).astype(np.float64)
    every = _power_at_steps(steps.round().astype(int), values, count) if equal else power(frequencies)
    best = frequencies[every.argmax()]
    fine: Floats = (best + resolution * np.linspace(-1, 1, 41)).astype(np.float64)
    powers = power(fine)
    return float(1 / fine[powers.argmax()]), float(powers.max())


def _power_at_steps(steps: npt.NDArray[np.int64], values: Floats, count: int) -> Floats:
    """The periodogram of values ``(P, C)`` at whole numbers from zero, mean over columns, by Fourier transforms."""
    size, number = OVERSAMPLING * int(steps[-1]), OVERSAMPLING * MIN_CYCLES + np.arange(count)
    dense = np.zeros((steps[-1] + 1, values.shape[1] + 1))
    dense[steps] = np.concatenate([values, np.ones((len(values), 1))], 1)
    sums = np.fft.fft(dense, size, 0)
    doubled = sums[2 * number % size, -1]
    waves = sums[number, :-1] * np.exp(-0.5j * np.angle(doubled))[:, None]
    counts = (len(values) + np.abs(doubled)) / 2, (len(values) - np.abs(doubled)) / 2
    found = waves.real**2 / counts[0][:, None] + waves.imag**2 / counts[1].clip(1e-9)[:, None]
    mean: Floats = (found / np.square(values).sum(0)).mean(1)
    return mean


def _block_error(times: Floats, values: Floats, periods: Sequence[float]) -> float:
    """Root mean squared error of blocks that are held out, predicted by kriging in time and phases."""
    start = max(0, (len(times) - MAX_BLOCK_SAMPLES) // 2)
    times, values = times[start : start + MAX_BLOCK_SAMPLES], values[start : start + MAX_BLOCK_SAMPLES]
    columns = torch.from_numpy((values - values.mean(0)) / values.std(0).clip(1e-300))
    points = with_phases(times, periods)
    covariance = learn_matern(columns, points, subset=SERIES_SUBSET)
    extent = float(np.ptp(times))
    width = float(np.clip(np.diff(times).max(), extent / BLOCKS[1], extent / BLOCKS[0]))
    block, squares = ((times - times[0]) / width).astype(int), []
    # phases wrap: samples stand beside the interval of a period too
    turns = torch.eye(len(points[0]), dtype=points.dtype)[1:]
    seams = [torch.zeros_like(points[0]), *(sign * turn for turn in turns for sign in (-1, 1))]
    for turn in range(4):
        held = torch.from_numpy(block % 4 == turn)
        known, wanted = points[~held], points[held]
        around = torch.cat([known + seam for seam in seams])
        fit = MaternKriging(columns[~held].repeat(len(seams), 1), around, [covariance])
        group = 4 * (torch.arange(len(wanted)) // 4)
        squares.append((fit.at(wanted, group)[0] - columns[held]).square())
    return float(torch.cat(squares).mean().sqrt())


def with_phases(times: Floats, periods: Sequence[float]) -> Tensor:
    """Times ``(P,)`` and the phase of each period in [0, 1), ``(P, 1 + periods)``."""
    return torch.from_numpy(np.stack([times, *(times / period % 1.0 for period in periods)], 1))


class SeasonalKriging:
    """Kriging of values ``(P, C)`` at times ``(P,)`` by a covariance of time and phases, which are places on circles."""

    def __init__(self, times: Floats, values: Tensor, periods: Sequence[float], covariance: Matern) -> None:
        self.periods, lengths = periods, covariance.lengths
        on_circles = covariance._replace(lengths=torch.cat([lengths[:1], lengths[1:].repeat_interleave(2)]))
        self.fit = MaternKriging(values, self._places(times), [on_circles], NUM_NEIGHBOURS)

    def __call__(self, times: Floats) -> Tensor:
        """Values at times ``(Q,)`` in ascending order: ``(Q, C)``."""
        return self.fit.at(self._places(times), torch.arange(len(times)) // 4)[0]

    def _places(self, times: Floats) -> Tensor:
        """Times and, for each period, two coordinates on a circle of circumference 1: ``(P, 1 + 2 * periods)``."""
        angles = [2 * np.pi * times / period for period in self.periods]
        circles = [wave(angle) / (2 * np.pi) for angle in angles for wave in (np.cos, np.sin)]
        return torch.from_numpy(np.stack([times, *circles], 1))
