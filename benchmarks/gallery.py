"""Every use on small signals: the scores beside common methods, and the pictures of docs/gallery.md.

    python benchmarks/gallery.py FOLDER             # a minute; no download
    python benchmarks/gallery.py FOLDER --size 64

Each function makes a task from a picture or a recording of scikit-image or matplotlib, by public functions alone, and writes
its input as a file into FOLDER, where the commands of docs/gallery.md can be typed. A picture shows the answers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import skimage.data
import torch
from harness import make_parser
from matplotlib.cbook import get_sample_data
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy.interpolate import CubicSpline, RBFInterpolator, griddata
from skimage.restoration import denoise_nl_means

import pe_fill
import pe_lightning
from pe_lightning.results.pictures import montage, row_plot
from pe_lightning.signals import GridSampling

Array = NDArray[Any]

NOISE = 20
"""Standard deviation of the noise, in levels of 8 bits."""
NUM_NEIGHBOURS = 100
"""Known samples of a thin plate spline."""


@dataclass(frozen=True)
class Task:
    """A task whose truth is known, and its answers.

    Args:
        truth: ``(H, W, 3)`` of 8 bits, ``(H, W)`` in the units of a map, or ``(N, C)`` of a recording (``is_row``).
        answers: Functions that return values in the shape of the truth, by label.
        given: Label and values of the input, as a picture.
        scored: Samples whose error is scored; all without.
        metric: This, or ``RMSE, m``.
        further: Further pictures ``(H, W)``, which are no answers, by label.
    """

    truth: Array
    answers: Mapping[str, Callable[[], Array]]
    given: tuple[str, Array] | None = None
    scored: Array | None = None
    metric: str = "PSNR, dB"
    is_row: bool = False
    further: Mapping[str, Callable[[], Array]] = field(default_factory=dict)

    def score(self, values: Array) -> float:
        """The score of an answer; of a recording the mean over channels, relative to the ranges of their known samples."""
        error = (values.astype(np.float64) - self.truth)[slice(None) if self.scored is None else self.scored]
        axis = 0 if self.is_row else None
        rmse = np.sqrt(np.mean(np.square(error), axis))
        ranged = self.truth[~self.scored] if self.is_row and self.scored is not None else self.truth
        peak = 255 if self.truth.dtype == np.uint8 else np.ptp(ranged, axis)
        return float(rmse if self.metric.startswith("RMSE") else np.mean(20 * np.log10(peak / rmse)))


def inpaint(folder: Path, size: int) -> Task:
    """Inpaint a damaged photograph: the pixels that are lost under drawn scratches are scored."""
    truth = photograph("chelsea", 20, 100, size)
    strokes = Image.new("1", (size, size))
    for ends in np.random.default_rng(3).uniform(0, size, (12, 4)):
        ImageDraw.Draw(strokes).line(ends.tolist(), fill=1, width=max(1, size // 64))
    lost = np.asarray(strokes).astype(bool)
    Image.fromarray(np.dstack([truth, np.where(lost, 0, 255).astype(np.uint8)])).save(folder / "damaged.png")
    return Task(
        truth,
        {"pe_fill.fill": lambda: pe_fill.fill(truth, lost, folds="none").values, **_interpolations(truth, lost)},
        given=("damaged", np.where(lost[..., None], np.nan, truth)),
        scored=lost,
    )


def enlarge(folder: Path, size: int) -> Task:
    """Enlarge a photograph, of which each pixel is the mean of four: all pixels are scored."""
    size -= size % 2
    truth = photograph("astronaut", 10, 130, size)
    small = truth.reshape(size // 2, 2, size // 2, 2, 3).mean((1, 3)).round().astype(np.uint8)
    picture = Image.fromarray(small)
    picture.save(folder / "small.png")
    return Task(
        truth,
        {
            "pe_fill.fill": lambda: pe_fill.fill(small, upscale=2, pretrained="none", folds="none").values,
            "the same with a prior *": lambda: pe_fill.fill(small, upscale=2, folds="none").values,
            "Pillow LANCZOS": lambda: np.asarray(picture.resize((size, size), Image.Resampling.LANCZOS)),
        },
        given=("pixels repeated", small.repeat(2, 0).repeat(2, 1)),
    )


def denoise(folder: Path, size: int) -> Task:
    """Denoise a photograph: fill estimates the noise, non-local means is given it. All pixels are scored."""
    truth = photograph("coffee", 60, 150, size)
    noisy = (truth + np.random.default_rng(0).normal(0, NOISE, truth.shape)).round().clip(0, 255).astype(np.uint8)
    Image.fromarray(noisy).save(folder / "noisy.png")
    sigma = NOISE / 255
    options: dict[str, Any] = {"patch_size": 5, "patch_distance": 6, "h": 0.8 * sigma, "sigma": sigma, "channel_axis": -1}
    return Task(
        truth,
        {
            "pe_fill.fill": lambda: pe_fill.fill(noisy, smooth=True, folds="none").values,
            "non-local means (skimage)": lambda: 255 * np.asarray(denoise_nl_means(noisy / 255, **options)),
        },
        given=("noisy", noisy),
    )


def raster(folder: Path, size: int) -> Task:
    """Fill the synthetic gaps, which are scored, in elevations by radar (SRTM) of the Jacksboro fault in Tennessee."""
    truth = elevation(size)
    y, x = np.mgrid[:size, :size]
    lost = np.zeros((size, size), bool)
    for row, column, radius in np.random.default_rng(1).uniform([0, 0, size / 24], [size, size, size / 12], (8, 3)):
        lost |= (y - row) ** 2 + (x - column) ** 2 < radius**2
    gappy = np.where(lost, np.nan, truth)
    np.save(folder / "elevation.npy", gappy)
    return Task(
        truth,
        {"pe_fill.fill": lambda: pe_fill.fill(gappy, folds="none").values, **_interpolations(truth, lost)},
        given=("with gaps", gappy),
        scored=lost,
        metric="RMSE, m",
    )


def stations(folder: Path, size: int) -> Task:
    """Stations to a map: random places of the same elevations are known, and the whole map is scored."""
    truth = elevation(size)
    places = np.random.default_rng(2).choice(size * size, max(100, size * size // 60), replace=False)
    coords = np.stack(np.divmod(places, size), 1).astype(float)
    measured = truth.ravel()[places]
    lines = [f"{n:g},{e:g},{z:g}\n" for (n, e), z in zip(coords, measured, strict=True)]
    (folder / "stations.csv").write_text("north,east,elevation\n" + "".join(lines))
    everywhere = np.stack(np.divmod(np.arange(size * size), size), 1).astype(float)
    shown = np.full(truth.shape, np.nan)
    for n, e, z in zip(*coords.T.astype(int), measured, strict=True):
        shown[max(0, n - 1) : n + 2, max(0, e - 1) : e + 2] = z  # three samples wide, to be seen
    fit = functools.cache(lambda: pe_fill.fit_points(coords, measured))

    def interpolated(method: Callable[..., Array], *options: None) -> Array:
        return method(coords, measured, everywhere, *options).reshape(size, size)

    return Task(
        truth,
        {
            "pe_fill.fit_points": lambda: fit().predict(everywhere).reshape(size, size),
            THIN_PLATE: partial(interpolated, _thin_plate, None),
            LINEAR: partial(interpolated, _linear),
        },
        given=("stations", shown),
        metric="RMSE, m",
        further={"standard deviation": lambda: fit().std(everywhere).reshape(size, size)},
    )


def sparse(folder: Path, size: int) -> Task:
    """Represent a photograph by the largest weights of an exact fit in a basis of several scales."""
    truth = photograph("astronaut", 10, 130, size)
    Image.fromarray(truth).save(folder / "photograph.png")
    shares = (0.01, 0.03, 0.1)
    every: dict[str, Any] = {"sampling": GridSampling(1), "eval_mask": "all"}
    models = {share: pe_fill.SparseLinear("keys", num_coefficients=share, ridge=0) for share in shares}
    return Task(
        truth,
        {f"{share:.0%} of the numbers": partial(_fitted, truth, model=model, **every) for share, model in models.items()},
    )


def encodings(folder: Path, size: int) -> Task:
    """Compare positional encodings, each with one linear layer: every second pixel of every second row is known."""
    truth = photograph("astronaut", 10, 130, size)
    held_out = np.ones((size, size), bool)
    held_out[::2, ::2] = False
    return Task(
        truth,
        {
            **{name: partial(_fitted, truth, name) for name in ("gau", "tri", "linf", "rff")},
            "Adaptive": lambda: _fitted(truth, model=pe_fill.Adaptive(pretrained="none")),
        },
        scored=held_out,
    )


def row(folder: Path, size: int) -> Task:
    """Fit every second sample of an electroencephalogram: the mean PSNR of its four channels at the other samples."""
    truth = np.fromfile(get_sample_data("eeg.dat", asfileobj=False), float).reshape(-1, 4)[: 4 * size].astype(np.float32)
    np.savetxt(folder / "recording.csv", truth, "%.5f", ",", header="one,two,three,four", comments="")
    x = np.arange(len(truth))
    known = x[::2]
    low, span = truth.min(0), np.ptp(truth, 0)

    def exact() -> Array:
        model = pe_lightning.fit(((truth - low) / span).T[..., None], "gau")
        with torch.no_grad():
            predicted = model(torch.arange(len(truth))[:, None] / len(truth))
        return np.asarray(low + span * predicted[..., 0].T.numpy())

    return Task(
        truth,
        {
            "gau (exact fit)": exact,
            "SciPy cubic spline": lambda: CubicSpline(known, truth[known])(x),
            "NumPy interp (linear)": lambda: np.stack([np.interp(x, known, column[known]) for column in truth.T], 1),
        },
        scored=x % 2 == 1,
        is_row=True,
    )


TASKS: tuple[Callable[[Path, int], Task], ...] = (inpaint, enlarge, denoise, raster, stations, sparse, encodings, row)
"""Functions that write the input of a task for pictures of a size, and return the task; their docstrings are titles."""


def photograph(name: str, top: int, left: int, size: int) -> Array:
    """``(size, size, 3)`` of a picture of scikit-image."""
    return np.asarray(getattr(skimage.data, name)())[top : top + size, left : left + size]


def elevation(size: int) -> Array:
    """Elevations in metres, ``(size, size)``, of matplotlib's sample data."""
    with np.load(get_sample_data("jacksboro_fault_dem.npz", asfileobj=False)) as file:
        return np.asarray(file["elevation"][60 : 60 + size, 100 : 100 + size], np.float64)


def _fitted(truth: Array, encoder: str | None = None, **options: Any) -> Array:
    """The prediction of a fit at all pixels of a photograph, of 8 bits."""
    model = pe_lightning.fit((truth / 255).astype(np.float32)[None], encoder, names=["example"], **options)
    axes = [np.arange(n) / n for n in truth.shape[:-1]]
    coords = torch.from_numpy(np.stack(np.meshgrid(*axes, indexing="ij"), -1).astype(np.float32))
    with torch.no_grad():
        predicted = np.asarray(model(coords)[0].numpy())
    return np.asarray((255 * predicted).round().clip(0, 255).astype(np.uint8))


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


def _interpolations(truth: Array, lost: Array) -> dict[str, Callable[[], Array]]:
    """The answers of common methods where some samples of a grid are lost."""

    def filled(method: Callable[..., Array]) -> Array:
        result: Array = truth.copy()
        values = method(np.argwhere(~lost), truth[~lost], np.argwhere(lost))
        result[lost] = values.round().clip(0, 255) if truth.dtype == np.uint8 else values
        return result

    return {THIN_PLATE: partial(filled, _thin_plate), LINEAR: partial(filled, _linear)}


def write_gallery(folder: Path, size: int) -> dict[str, dict[str, float]]:
    """Solves the tasks for pictures of a size, and writes their inputs and a picture of the answers of each.

    Returns:
        The scores of each task by its name and the label of the answer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    scores = {}
    for make in TASKS:
        task, name = make(folder, size), make.__name__
        solved = {label: answer() for label, answer in task.answers.items()}
        scores[name] = {label: task.score(values) for label, values in solved.items()}
        listed = ", ".join(f"{label} {score:.2f}" for label, score in scores[name].items())
        print(f"{make.__doc__} {task.metric}: {listed}", flush=True)
        _picture(task, solved, scores[name]).save(folder / f"{name}.jpg", quality=88)
    return scores


def _picture(task: Task, solved: Mapping[str, Array], scores: Mapping[str, float]) -> Image.Image:
    """The input, the answers with their scores, and the truth, side by side."""
    if task.is_row:
        (ours, made), (other, interpolated), *_ = ((f"{label} {scores[label]:.2f}", solved[label]) for label in solved)
        made, truth, interpolated = (values[:100, :1] for values in (made, task.truth, interpolated))
        return row_plot(made, truth, np.arange(len(made)) % 2 == 0, ours, None, (other, interpolated))
    unit = task.metric.rpartition(", ")[2]
    shown = {} if task.given is None else dict([task.given])
    shown |= {f"{label}\n{scores[label]:.2f} {unit}": values for label, values in solved.items()} | {"truth": task.truth}
    panels = [(label, Image.fromarray(_levels(task.truth, values))) for label, values in shown.items()]
    for label, make in task.further.items():
        levels = matplotlib.colormaps["magma"]((values := make()) / values.max(), bytes=True)
        panels.append((label, Image.fromarray(levels[..., :3])))
    return montage(panels, columns=2 if len(panels) == 4 else 3)


def _levels(truth: Array, values: Array) -> NDArray[np.uint8]:
    """``(H, W, 3)`` of 8 bits. The colours of a map span the range of the truth; missing samples have another colour."""
    missing: Array = np.isnan(values.astype(np.float32))
    if truth.dtype == np.uint8:
        levels = np.where(missing, 0, values).astype(np.uint8)
        levels[missing.any(-1)] = 255, 0, 200
        return levels
    scaled = np.nan_to_num((values - truth.min()) / np.ptp(truth))
    levels = np.asarray(matplotlib.colormaps["viridis"](scaled, bytes=True)[..., :3])
    levels[missing] = 228
    return levels


def main() -> None:
    """Writes the gallery into a new folder."""
    parser = make_parser(__doc__)
    parser.add_argument("folder", type=Path, help="folder of the inputs and pictures, new or empty")
    parser.add_argument("--size", type=int, default=192, help="pixels per side, from 32 to 256")
    options = parser.parse_args()
    if options.folder.exists() and any(options.folder.iterdir()):
        parser.error(f"{str(options.folder)!r} is not empty; give the name of a new folder")
    if not 32 <= options.size <= 256:
        parser.error(f"--size is from 32 to 256; got {options.size}")
    write_gallery(options.folder, options.size)


if __name__ == "__main__":
    main()
