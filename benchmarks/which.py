"""Which encoder or network for which signal: the measurements behind docs/which.md as a figure.

    python benchmarks/which.py --figure docs/which.png

Nothing is measured here: the numbers are those of docs/results.yaml, which benchmarks/results.py measures. The page of docs/
that is named for each signal has them too, with more methods beside them.
"""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import dataclass
from pathlib import Path

import results
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

INTERPOLATION, SOLVED, TRAINED = "interpolation", "solved exactly", "trained by gradient descent"
PRIOR = "trained on other pictures"
COLORS = {INTERPOLATION: "0.6", SOLVED: "#D55E00", TRAINED: "#0072B2", PRIOR: "#009E73"}


@dataclass(frozen=True)
class Row:
    """A method on a kind of signal.

    Args:
        method: Its name.
        kind: How it comes about, a key of :data:`COLORS`.
        key: Its measurement and name in docs/results.yaml.
    """

    method: str
    kind: str
    key: str

    def value(self, quantity: str) -> float | None:
        """``psnr`` in dB, or core ``seconds`` per signal and ``numbers`` that are stored, where they were measured."""
        measurement, _, method = self.key.partition(".")
        return RESULTS[measurement]["values"][method].get(quantity)


@dataclass(frozen=True)
class Question:
    """A kind of signal and what is asked of it, with its rows and the page that has more of them."""

    signal: str
    asked: str
    page: str
    rows: tuple[Row, ...]


RESULTS = results.read()
QUESTIONS = (
    Question(
        "photograph",
        "every second pixel of every second row known, the others scored; four photographs",
        "trade.md",
        (
            Row("bicubic", INTERPOLATION, "networks.bicubic"),
            Row("Adaptive", SOLVED, "networks.adaptive"),
            Row("gau, exact", SOLVED, "networks.gau_exact"),
            Row("hash and MLP", TRAINED, "networks.hash"),
            Row("planes and MLP", TRAINED, "networks.planes"),
            Row("FINER", TRAINED, "networks.finer"),
            Row("rff and MLP", TRAINED, "networks.rff"),
        ),
    ),
    Question(
        "photograph, * with pictures seen before",
        "the same, 16 photographs; the prior was trained on other pictures",
        "prior.md",
        (
            Row("bicubic", INTERPOLATION, "photographs.bicubic"),
            Row("Adaptive, prior *", PRIOR, "photographs.adaptive_prior"),
            Row("Local *", PRIOR, "photographs.local"),
            Row("Adaptive", SOLVED, "photographs.adaptive"),
        ),
    ),
    Question(
        "text",
        "every second pixel known; words in four fonts that the prior was not trained on",
        "prior.md",
        (
            Row("bicubic", INTERPOLATION, "text.bicubic"),
            Row("Local *", PRIOR, "text.local"),
            Row("Adaptive, prior *", PRIOR, "text.adaptive_prior"),
            Row("Adaptive", SOLVED, "text.adaptive"),
        ),
    ),
    Question(
        "noisy photograph",
        "every second pixel known with noise of 25/255; 16 photographs",
        "adaptive.md",
        (
            Row("bicubic", INTERPOLATION, "noisy.bicubic"),
            Row("Adaptive, noise: auto", SOLVED, "noisy.adaptive_noise_auto"),
            Row("Adaptive", SOLVED, "noisy.adaptive"),
        ),
    ),
    Question(
        "scattered pixels",
        "25 % known at random; four photographs",
        "adaptive.md",
        (
            Row("linear on triangles", INTERPOLATION, "scattered.linear"),
            Row("Adaptive", SOLVED, "scattered.adaptive"),
            Row("laplace, exact", SOLVED, "scattered.laplace"),
        ),
    ),
    Question(
        "clip",
        "every second sample of each axis of 128 x 128 x 128 known; one clip",
        "papers.md",
        (
            Row("tricubic", INTERPOLATION, "clip.tricubic"),
            Row("Adaptive", SOLVED, "clip.adaptive"),
            Row("tri, exact", SOLVED, "clip.tri_exact"),
            Row("gau, exact", SOLVED, "clip.gau_exact"),
            Row("gau, gradient descent", TRAINED, "clip.gau_trained"),
        ),
    ),
    Question(
        "sound",
        "every second sample known; plucked strings, 5 s at 44.1 kHz",
        "adaptive.md",
        (Row("linear", INTERPOLATION, "sound.linear"), Row("Adaptive", SOLVED, "sound.adaptive")),
    ),
    Question(
        "volume",
        "every second sample of each axis known; the phantom as NIfTI",
        "adaptive.md",
        (Row("bicubic", INTERPOLATION, "volume.bicubic"), Row("Adaptive", SOLVED, "volume.adaptive")),
    ),
    Question(
        "all samples of a photograph",
        "stored in 1e5 numbers; one photograph",
        "trade.md",
        (
            Row("sparse exact fit", SOLVED, "all_samples.sparse"),
            Row("B-spline grid, exact", SOLVED, "all_samples.bspline"),
            Row("planes and MLP", TRAINED, "all_samples.planes"),
            Row("hash and MLP", TRAINED, "all_samples.hash"),
            Row("rff and MLP", TRAINED, "all_samples.rff"),
            Row("FINER", TRAINED, "all_samples.finer"),
        ),
    ),
)


def _psnr(row: Row) -> float:
    return round(row.value("psnr") or 0, 2)


def draw(path: Path) -> None:
    """A panel per signal: PSNR of each method, with seconds and numbers."""
    columns = 2
    height = -(-len(QUESTIONS) // columns)
    figure = Figure(figsize=(9, 2.3 * height), layout="constrained")
    for axes, question in zip(figure.subplots(height, columns).ravel(), QUESTIONS, strict=False):
        rows = sorted(question.rows, key=_psnr)
        low, high = _psnr(rows[0]), _psnr(rows[-1])
        span = max(high - low, 1.0)
        axes.set_xlim(low - 0.1 * span, high + 2.4 * span)
        axes.set_ylim(-0.7, len(rows) - 0.3)
        axes.set_yticks(range(len(rows)), [row.method for row in rows], fontsize=9)
        axes.grid(axis="both", alpha=0.25)
        for place, row in enumerate(rows):
            seconds, numbers = row.value("seconds"), row.value("numbers")
            axes.plot(_psnr(row), place, "o", color=COLORS[row.kind], ms=8)
            notes = [f"{_psnr(row):.2f} dB"]
            notes += [f"{seconds:.2g} s"] if seconds is not None else []
            notes += [f"{numbers:,.0f} numbers"] if numbers else []
            at = {"xytext": (7, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}
            axes.annotate(", ".join(notes), (_psnr(row), place), **at)
        axes.set_title(question.signal, fontsize=10, loc="left")
        axes.set_xlabel(textwrap.fill(question.asked, 46), fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
    for axes in figure.axes[len(QUESTIONS) :]:
        axes.remove()
    handles = [Line2D([], [], marker="o", ls="", color=color, label=name) for name, color in COLORS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    figure.savefig(path, dpi=100)
    Image.open(path).convert("RGB").quantize(128, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)


def main() -> None:
    """Prints the commands behind the figure and draws it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", type=Path, help="file to draw to")
    options = parser.parse_args()
    for question in QUESTIONS:
        print(f"{question.signal}: {question.asked}. {RESULTS[question.rows[0].key.partition('.')[0]]['command']}")
    if options.figure is not None:
        draw(options.figure)


if __name__ == "__main__":
    main()
