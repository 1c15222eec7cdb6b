"""Which encoder or network for which signal: the measurements behind docs/which.md as a figure.

    python benchmarks/which.py --figure docs/which.png

Nothing is measured here: the numbers are those of docs/results.yaml, which benchmarks/results.py measures. The page of docs/
that is named for each signal has them too, with more methods beside them.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import NamedTuple

import results
from harness import make_parser
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

INTERPOLATION, SOLVED, TRAINED = "interpolation", "solved exactly", "trained by gradient descent"
PRIOR = "trained on other pictures"
RESULTS = results.read()
COLORS = {INTERPOLATION: "0.6", SOLVED: "#D55E00", TRAINED: "#0072B2", PRIOR: "#009E73"}
METHODS = {
    "bicubic": ("bicubic", INTERPOLATION),
    "tricubic": ("tricubic", INTERPOLATION),
    "linear": ("linear", INTERPOLATION),
    "adaptive": ("Adaptive", SOLVED),
    "adaptive_noise_auto": ("Adaptive, noise: auto", SOLVED),
    "gau_exact": ("gau, exact", SOLVED),
    "tri_exact": ("tri, exact", SOLVED),
    "laplace": ("laplace, exact", SOLVED),
    "sparse": ("sparse exact fit", SOLVED),
    "bspline": ("B-spline grid, exact", SOLVED),
    "gau_trained": ("gau, gradient descent", TRAINED),
    "hash": ("hash and MLP", TRAINED),
    "planes": ("planes and MLP", TRAINED),
    "rff": ("rff and MLP", TRAINED),
    "finer": ("FINER", TRAINED),
    "local": ("Local *", PRIOR),
    "adaptive_prior": ("Adaptive, prior *", PRIOR),
}
"""Label and kind of a method, by its name in docs/results.yaml."""


class Question(NamedTuple):
    """A kind of signal, what is asked of it, and the page of docs/ with more methods."""

    signal: str
    asked: str
    page: str
    methods: str = ""
    """Rows of the measurement that are drawn; by default all."""


QUESTIONS = {
    "networks": Question(
        "photograph", "every second pixel of every second row known, the others scored; four photographs", "trade.md"
    ),
    "photographs": Question(
        "photograph, * with pictures seen before",
        "the same, 16 photographs; the prior was trained on other pictures",
        "prior.md",
        "bicubic adaptive_prior local adaptive",
    ),
    "text": Question(
        "text",
        "every second pixel known; words in four fonts that the prior was not trained on",
        "prior.md",
        "bicubic local adaptive_prior adaptive",
    ),
    "noisy": Question("noisy photograph", "every second pixel known with noise of 25/255; 16 photographs", "adaptive.md"),
    "scattered": Question("scattered pixels", "25 % known at random; four photographs", "adaptive.md"),
    "clip": Question("clip", "every second sample of each axis of 128 x 128 x 128 known; one clip", "papers.md"),
    "sound": Question("sound", "every second sample known; plucked strings, 5 s at 44.1 kHz", "samples.md"),
    "volume": Question("volume", "every second sample of each axis known; the phantom as NIfTI", "samples.md"),
    "all_samples": Question("all samples of a photograph", "stored in 1e5 numbers; one photograph", "trade.md"),
}


def rows(measurement: str) -> dict[str, dict[str, float]]:
    """``psnr`` in dB, core ``seconds`` per signal and ``numbers`` that are stored, by method, the best method last."""
    values = RESULTS[measurement]["values"]
    drawn = QUESTIONS[measurement].methods.split() or values
    return dict(sorted(((name, values[name]) for name in drawn), key=lambda row: row[1]["psnr"]))


def draw(path: Path) -> None:
    """A panel per signal: PSNR of each method, with seconds and numbers."""
    columns = 2
    height = -(-len(QUESTIONS) // columns)
    figure = Figure(figsize=(9, 2.3 * height), layout="constrained")
    for axes, (measurement, question) in zip(figure.subplots(height, columns).ravel(), QUESTIONS.items(), strict=False):
        drawn = rows(measurement)
        scores = [row["psnr"] for row in drawn.values()]
        span = max(scores[-1] - scores[0], 1.0)
        axes.set_xlim(scores[0] - 0.1 * span, scores[-1] + 2.4 * span)
        axes.set_ylim(-0.7, len(drawn) - 0.3)
        axes.set_yticks(range(len(drawn)), [METHODS[name][0] for name in drawn], fontsize=9)
        axes.grid(axis="both", alpha=0.25)
        for place, (name, row) in enumerate(drawn.items()):
            axes.plot(row["psnr"], place, "o", color=COLORS[METHODS[name][1]], ms=8)
            notes = [f"{row['psnr']:.2f} dB"]
            notes += [f"{row['seconds']:.2g} s"] if "seconds" in row else []
            notes += [f"{row['numbers']:,.0f} numbers"] if row.get("numbers") else []
            at = {"xytext": (7, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}
            axes.annotate(", ".join(notes), (row["psnr"], place), **at)
        axes.set_title(question.signal, fontsize=10, loc="left")
        axes.set_xlabel(textwrap.fill(question.asked, 46), fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
    for axes in figure.axes[len(QUESTIONS) :]:
        axes.remove()
    handles = [Line2D([], [], marker="o", ls="", color=color, label=name) for name, color in COLORS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    figure.savefig(path, dpi=100)
    Image.open(path).convert("RGB").quantize(128, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)


if __name__ == "__main__":
    parser = make_parser(__doc__)
    parser.add_argument("--figure", type=Path, required=True, help="file to draw to")
    draw(parser.parse_args().figure)
