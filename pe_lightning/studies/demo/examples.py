"""The examples of ``pe-lightning demo``, written as a user of the package would write them.

Each function makes a task from a picture or a recording of scikit-image or matplotlib whose truth is known, writes the input
of the task as a file, solves it by a public function of :mod:`pe_lightning`, and scores the result beside a common method.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import skimage.data
import torch
from matplotlib.cbook import get_sample_data
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy.interpolate import CubicSpline, RBFInterpolator, griddata
from skimage.restoration import denoise_nl_means

import pe_lightning
from pe_lightning.signals import GridSampling

Array = NDArray[Any]

NOISE = 20
"""Standard deviation of the noise, in levels of 8 bits."""
NUM_NEIGHBOURS = 100
"""Known samples of a thin plate spline."""


@dataclass
class Result:
    """One answer to the task of an example, in the shape of the truth, and its core seconds; or the input, without score."""

    label: str
    values: Array
    score: float | None = None
    seconds: float | None = None
    ours: bool = True
    """Whether this package made it."""


@dataclass
class Example:
    """A task, its truth, the commands that solve it in the folder of the demo, and its results, the input first."""

    name: str
    title: str
    text: str
    commands: list[str]
    truth: Array
    """``(H, W, 3)`` of 8 bits, ``(H, W)`` in the units of a map, or ``(N, C)`` of a recording (``is_row``)."""
    metric: str = "PSNR, dB"
    """This, or ``RMSE, m``."""
    results: list[Result] = field(default_factory=list)
    is_row: bool = False
    shown: dict[str, Array] = field(default_factory=dict)
    """Further pictures ``(H, W)``, which are no answers, by caption."""

    def solve(self, label: str, function: Callable[[], Array], where: Array | None = None, ours: bool = True) -> None:
        """Adds the result of a function, with core seconds and the score of the samples ``where``, or of all."""
        start = time.process_time()
        values = function()
        seconds = time.process_time() - start
        error = (values.astype(np.float64) - self.truth)[slice(None) if where is None else where]
        rmse = np.sqrt(np.mean(np.square(error), 0 if self.is_row else None))  # of each channel of a recording
        peak = 255 if self.truth.dtype == np.uint8 else np.ptp(self.truth, 0 if self.is_row else None)
        score = rmse if self.metric.startswith("RMSE") else np.mean(20 * np.log10(peak / rmse))
        self.results.append(Result(label, values, float(score), seconds, ours))


def inpaint(folder: Path, size: int) -> Example:
    """A damaged photograph: lost pixels are predicted."""
    truth = photograph("chelsea", 20, 100, size)
    strokes = Image.new("1", (size, size))
    for ends in np.random.default_rng(3).uniform(0, size, (12, 4)):
        ImageDraw.Draw(strokes).line(ends.tolist(), fill=1, width=max(1, size // 64))
    lost = np.asarray(strokes).astype(bool)
    Image.fromarray(np.dstack([truth, np.where(lost, 0, 255).astype(np.uint8)])).save(folder / "damaged.png")
    example = Example(
        "inpaint",
        "Inpaint a damaged photograph",
        f"{lost.mean():.0%} of the pixels are lost under scratches, which were drawn for this example. The lost pixels are "
        "scored; the others are unchanged.",
        ["pe-lightning fill damaged.png --missing alpha --out restored.png"],
        truth,
    )
    example.results.append(Result("damaged", np.where(lost[..., None], np.nan, truth)))
    example.solve("pe_lightning.fill", lambda: pe_lightning.fill(truth, lost, folds="none").values, lost)
    for label, method in SCATTERED.items():
        example.solve(label, partial(_filled, truth, lost, method), lost, ours=False)
    return example


def enlarge(folder: Path, size: int) -> Example:
    """A photograph enlarged to twice its size."""
    size -= size % 2
    truth = photograph("astronaut", 10, 130, size)
    small = truth.reshape(size // 2, 2, size // 2, 2, 3).mean((1, 3)).round().astype(np.uint8)
    Image.fromarray(small).save(folder / "small.png")
    example = Example(
        "enlarge",
        "Enlarge a photograph",
        "The photograph was halved: each pixel is the mean of four. All pixels of the enlarged one are scored. The row with "
        "* also uses a network that was trained on other pictures.",
        ["pe-lightning fill small.png --upscale 2 --out large.png"],
        truth,
    )

    example.results.append(Result("pixels repeated", small.repeat(2, 0).repeat(2, 1)))
    example.solve("pe_lightning.fill", lambda: pe_lightning.fill(small, upscale=2, pretrained="none", folds="none").values)
    example.solve("the same with a prior *", lambda: pe_lightning.fill(small, upscale=2, folds="none").values)
    picture, method = Image.fromarray(small), Image.Resampling.LANCZOS
    example.solve("Pillow LANCZOS", lambda: np.asarray(picture.resize((size, size), method)), ours=False)
    return example


def denoise(folder: Path, size: int) -> Example:
    """A noisy photograph smoothed; the level of the noise is found by the fit."""
    truth = photograph("coffee", 60, 150, size)
    noise = np.random.default_rng(0).normal(0, NOISE, truth.shape)
    noisy = (truth + noise).round().clip(0, 255).astype(np.uint8)
    Image.fromarray(noisy).save(folder / "noisy.png")
    example = Example(
        "denoise",
        "Denoise a photograph",
        f"Gaussian noise with a standard deviation of {NOISE} of 255 levels was added. fill estimates this "
        "deviation; non-local means is given it. All pixels are scored.",
        ["pe-lightning fill noisy.png --smooth --out clean.png"],
        truth,
    )

    sigma = NOISE / 255
    options: dict[str, Any] = {"patch_size": 5, "patch_distance": 6, "h": 0.8 * sigma, "sigma": sigma, "channel_axis": -1}
    example.results.append(Result("noisy", noisy))
    example.solve("pe_lightning.fill", lambda: pe_lightning.fill(noisy, smooth=True, folds="none").values)
    example.solve(
        "non-local means (skimage)", lambda: 255 * np.asarray(denoise_nl_means(noisy / 255, **options)), ours=False
    )
    return example


def raster(folder: Path, size: int) -> Example:
    """A raster with gaps: elevations below clouds are predicted."""
    truth = elevation(size)
    rng = np.random.default_rng(1)
    y, x = np.mgrid[:size, :size]
    lost = np.zeros((size, size), bool)
    for row, column, radius in rng.uniform([0, 0, size / 24], [size, size, size / 12], (8, 3)):
        lost |= (y - row) ** 2 + (x - column) ** 2 < radius**2
    gappy = np.where(lost, np.nan, truth)
    np.save(folder / "elevation.npy", gappy)
    example = Example(
        "raster",
        "Fill the gaps of a raster",
        f"Elevations by radar (SRTM) of the Jacksboro fault in Tennessee. The gaps, {lost.mean():.0%}, are synthetic "
        "and are scored.",
        ["pe-lightning fill elevation.npy --out filled.npy"],
        truth,
        "RMSE, m",
    )
    example.results.append(Result("with gaps", gappy))
    example.solve("pe_lightning.fill", lambda: pe_lightning.fill(gappy, folds="none").values, lost)
    for label, method in SCATTERED.items():
        example.solve(label, partial(_filled, truth, lost, method), lost, ours=False)
    return example


def stations(folder: Path, size: int) -> Example:
    """Scattered stations to a map, with standard deviations."""
    truth = elevation(size)
    places = np.random.default_rng(2).choice(size * size, max(100, size * size // 60), replace=False)
    north, east = np.divmod(places, size)
    measured = truth[north, east]
    lines = [f"{n},{e},{z:g}\n" for n, e, z in zip(north, east, measured, strict=True)]
    (folder / "stations.csv").write_text("north,east,elevation\n" + "".join(lines))
    example = Example(
        "stations",
        "Stations to a map",
        f"{len(places)} random places of the same elevations are known. The whole map is scored. "
        "stations.jpg also shows the standard deviation of the fit.",
        [f"pe-lightning fill stations.csv --coordinates north,east --values elevation --grid {size},{size} --out map.npy"],
        truth,
        "RMSE, m",
    )
    everywhere = np.stack(np.divmod(np.arange(size * size), size), 1).astype(float)
    coords = np.stack([north, east], 1).astype(float)
    shown = np.full(truth.shape, np.nan)
    for n, e, z in zip(north, east, measured, strict=True):
        shown[max(0, n - 1) : n + 2, max(0, e - 1) : e + 2] = z  # three samples wide, to be seen
    example.results.append(Result("stations", shown))
    start = time.process_time()
    fit = pe_lightning.fit_points(coords, measured)
    fitted = time.process_time() - start
    example.solve("pe_lightning.fit_points", lambda: fit.predict(everywhere).reshape(size, size))
    example.results[-1].seconds = fitted + (example.results[-1].seconds or 0)

    def interpolated(method: Callable[..., Array], **options: Any) -> Array:
        return method(coords, measured, everywhere, **options).reshape(size, size)

    example.solve(THIN_PLATE, partial(interpolated, _thin_plate, neighbours=None), ours=False)
    example.solve(LINEAR, partial(interpolated, _linear), ours=False)
    example.shown["standard deviation"] = fit.std(everywhere).reshape(size, size)
    return example


def sparse(folder: Path, size: int) -> Example:
    """A photograph by 1, 3 and 10 % as many numbers."""
    truth = photograph("astronaut", 10, 130, size)
    Image.fromarray(truth).save(folder / "photograph.png")
    example = Example(
        "sparse",
        "Represent a photograph by fewer numbers",
        "All pixels are known and scored. An exact fit in a basis of several scales keeps only its largest weights.",
        [
            f"pe-lightning fit photograph.png --config image/sparse --model.num_coefficients {keep:g}"
            for keep in (0.01, 0.03, 0.1)
        ],
        truth,
    )
    for keep in (0.01, 0.03, 0.1):
        model = pe_lightning.ComplexLinear("keys", num_coefficients=keep, ridge=0)
        data: dict[str, Any] = {"sampling": GridSampling(1), "eval_mask": "all"}
        example.solve(f"{keep:.0%} of the numbers", partial(_fitted, truth, model=model, **data))
    return example


def encodings(folder: Path, size: int) -> Example:
    """Encodings compared: one linear layer on each, solved exactly."""
    truth = photograph("astronaut", 10, 130, size)
    held_out = np.ones((size, size), bool)
    held_out[::2, ::2] = False
    example = Example(
        "encodings",
        "Compare positional encodings",
        "Every second pixel of every second row is known; the others are scored. Each encoder has one linear layer, which "
        "is solved exactly. Adaptive mixes many local fits.",
        ["pe-lightning suggest photograph.png"],
        truth,
    )
    for name in ("gau", "tri", "linf", "rff"):
        example.solve(name, partial(_fitted, truth, name), held_out)
    example.solve("Adaptive", lambda: _fitted(truth, model=pe_lightning.Adaptive(pretrained="none")), held_out)
    return example


def row(folder: Path, size: int) -> Example:
    """A recording of which every second sample is known."""
    truth = np.fromfile(get_sample_data("eeg.dat", asfileobj=False), float).reshape(-1, 4)[: 4 * size].astype(np.float32)
    np.savetxt(folder / "recording.csv", truth, "%.5f", ",", header="one,two,three,four", comments="")
    known = np.arange(0, len(truth), 2)
    held_out = np.arange(len(truth)) % 2 == 1
    example = Example(
        "row",
        "Fit a recording",
        "Four channels of an electroencephalogram, each fitted as a signal. Every second sample is known; the others "
        "are scored: the mean PSNR of the channels, each relative to its range.",
        ["pe-lightning fit recording.csv --encoder gau"],
        truth,
        is_row=True,
    )
    low, span = truth.min(0), np.ptp(truth, 0)

    def exact() -> Array:
        model = pe_lightning.fit(((truth - low) / span).T[..., None], "gau")
        with torch.no_grad():
            predicted = model(torch.arange(len(truth))[:, None] / len(truth))
        return np.asarray(low + span * predicted[..., 0].T.numpy())

    x = np.arange(len(truth))
    example.solve("gau (exact fit)", exact, held_out)
    example.solve("SciPy cubic spline", lambda: CubicSpline(known, truth[known])(x), held_out, ours=False)
    example.solve(
        "NumPy interp (linear)",
        lambda: np.stack([np.interp(x, known, column[known]) for column in truth.T], 1),
        held_out,
        ours=False,
    )
    return example


def _thin_plate(points: Array, values: Array, wanted: Array, neighbours: int | None = NUM_NEIGHBOURS) -> Array:
    """Thin plate splines through the known samples nearest to each place, or through all."""
    return np.asarray(RBFInterpolator(points, values.astype(float), neighbours)(wanted))


def _linear(points: Array, values: Array, wanted: Array) -> Array:
    """Linear interpolation on a triangulation; the nearest sample outside of it."""
    found = np.asarray(griddata(points, values, wanted))
    outside = np.isnan(found).reshape(len(found), -1).any(1)
    found[outside] = griddata(points, values, wanted[outside], method="nearest")
    return found


THIN_PLATE, LINEAR = "SciPy thin plate splines", "SciPy griddata (linear)"
SCATTERED: dict[str, Callable[..., Array]] = {THIN_PLATE: _thin_plate, LINEAR: _linear}
"""Methods that interpolate samples at points."""
EXAMPLES = (inpaint, enlarge, denoise, raster, stations, sparse, encodings, row)
"""Functions that write the input of an example into a folder and return the example, for pictures of a size."""


def photograph(name: str, top: int, left: int, size: int) -> Array:
    """``(size, size, 3)`` of a picture of scikit-image."""
    return np.asarray(getattr(skimage.data, name)())[top : top + size, left : left + size]


def elevation(size: int) -> Array:
    """Elevations in metres, ``(size, size)``, of matplotlib's sample data."""
    with np.load(get_sample_data("jacksboro_fault_dem.npz", asfileobj=False)) as file:
        return np.asarray(file["elevation"][60 : 60 + size, 100 : 100 + size], np.float64)


def _fitted(truth: Array, encoder: str = "gau", **options: Any) -> Array:
    """The prediction of a fit at all pixels of a photograph, of 8 bits."""
    model = pe_lightning.fit((truth / 255).astype(np.float32)[None], encoder, names=["example"], **options)
    axes = [np.arange(n) / n for n in truth.shape[:-1]]
    coords = torch.from_numpy(np.stack(np.meshgrid(*axes, indexing="ij"), -1).astype(np.float32))
    with torch.no_grad():
        predicted = np.asarray(model(coords)[0].numpy())
    return np.asarray((255 * predicted).round().clip(0, 255).astype(np.uint8))


def _filled(truth: Array, lost: Array, method: Callable[..., Array]) -> Array:
    filled: Array = truth.copy()
    values = method(np.argwhere(~lost), truth[~lost], np.argwhere(lost))
    filled[lost] = values.round().clip(0, 255) if truth.dtype == np.uint8 else values
    return filled
