"""Which encoder or network for which signal: the measurements of docs/which.md as a table and a figure.

    python benchmarks/which.py --figure docs/which.png

Nothing is measured here: every number was printed by the command that stands beside it and is on the page of docs/ that is
named. Whoever measures again changes the number here and there.
"""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

INTERPOLATION, SOLVED, TRAINED = "interpolation", "solved exactly", "trained by gradient descent"
PRIOR = "trained on other pictures"
COLORS = {INTERPOLATION: "0.6", SOLVED: "#D55E00", TRAINED: "#0072B2", PRIOR: "#009E73"}


@dataclass(frozen=True)
class Row:
    """A method on a kind of signal.

    Args:
        method: Its name.
        kind: How it comes about, a key of :data:`COLORS`.
        psnr: In dB.
        seconds: Core seconds per signal, where they were measured.
        numbers: Numbers that describe the fitted signal, where they were counted.
    """

    method: str
    kind: str
    psnr: float
    seconds: float | None = None
    numbers: int | None = None


@dataclass(frozen=True)
class Question:
    """A kind of signal and what is asked of it, with its rows and where they come from."""

    signal: str
    asked: str
    page: str
    command: str
    rows: tuple[Row, ...]


TRADE = "python benchmarks/trade.py --paths FOLDER/*.png --only"
QUESTIONS = (
    Question(
        "photograph",
        "every second pixel of every second row known, the others scored; four photographs",
        "trade.md",
        f"{TRADE} held-out",
        (
            Row("bicubic", INTERPOLATION, 25.70, 0.05, 0),
            Row("Adaptive", SOLVED, 26.50, 0.98, 196_608),
            Row("gau, exact", SOLVED, 25.66, 0.16, 196_608),
            Row("hash and MLP", TRAINED, 23.82, 60, 58_291),
            Row("planes and MLP", TRAINED, 23.64, 60, 95_676),
            Row("FINER", TRAINED, 23.42, 60, 99_453),
            Row("rff and MLP", TRAINED, 23.15, 60, 99_535),
        ),
    ),
    Question(
        "photograph, * with pictures seen before",
        "the same, 16 photographs; the prior was trained on other pictures",
        "prior.md",
        "python benchmarks/prior.py --paths FOLDER",
        (
            Row("bicubic", INTERPOLATION, 25.59),
            Row("Adaptive, prior *", PRIOR, 26.50),
            Row("Local *", PRIOR, 26.32),
            Row("Adaptive", SOLVED, 26.28),
        ),
    ),
    Question(
        "text",
        "every second pixel known; words in four fonts that the prior was not trained on",
        "prior.md",
        "python benchmarks/prior.py",
        (
            Row("bicubic", INTERPOLATION, 28.53),
            Row("Local *", PRIOR, 30.53),
            Row("Adaptive, prior *", PRIOR, 30.41),
            Row("Adaptive", SOLVED, 29.49),
        ),
    ),
    Question(
        "noisy photograph",
        "every second pixel known with noise of 25/255; 16 photographs",
        "adaptive.md",
        "python benchmarks/adaptive.py --paths FOLDER",
        (
            Row("bicubic", INTERPOLATION, 20.59),
            Row("Adaptive, noise: auto", SOLVED, 22.91),
            Row("Adaptive", SOLVED, 21.66),
        ),
    ),
    Question(
        "scattered pixels",
        "25 % known at random; four photographs",
        "adaptive.md",
        "python benchmarks/adaptive.py --paths FOLDER",
        (
            Row("linear on triangles", INTERPOLATION, 25.16),
            Row("Adaptive", SOLVED, 26.60),
            Row("laplace, exact", SOLVED, 25.56),
        ),
    ),
    Question(
        "clip",
        "every second sample of each axis of 128 x 128 x 128 known; one clip",
        "papers.md",
        "pe-lightning reproduce t3 --blocks complex closed_form; python benchmarks/adaptive.py",
        (
            Row("tricubic", INTERPOLATION, 27.62),
            Row("Adaptive", SOLVED, 27.92),
            Row("tri, exact", SOLVED, 27.16, 0.29, 786_432),
            Row("gau, exact", SOLVED, 27.11, 0.33, 786_432),
            Row("gau, gradient descent", TRAINED, 26.71, 16.19, 786_432),
        ),
    ),
    Question(
        "sound",
        "every second sample known; plucked strings, 5 s at 44.1 kHz",
        "adaptive.md",
        "python benchmarks/first_try.py --only sound table volume --samplings grid",
        (
            Row("linear", INTERPOLATION, 30.91),
            Row("Adaptive", SOLVED, 30.91),
        ),
    ),
    Question(
        "volume",
        "every second sample of each axis known; the phantom as NIfTI",
        "adaptive.md",
        "python benchmarks/first_try.py --only sound table volume --samplings grid",
        (
            Row("bicubic", INTERPOLATION, 23.10),
            Row("Adaptive", SOLVED, 25.30),
        ),
    ),
    Question(
        "all samples of a photograph",
        "stored in 1e5 numbers; one photograph",
        "trade.md",
        f"{TRADE} all --seconds 30; python benchmarks/sparse.py --only trade",
        (
            Row("sparse exact fit", SOLVED, 34.23, 0.1, 100_000),
            Row("B-spline grid, exact", SOLVED, 24.38, 0.3, 100_000),
            Row("planes and MLP", TRAINED, 25.66, 30, 100_000),
            Row("hash and MLP", TRAINED, 25.24, 30, 100_000),
            Row("rff and MLP", TRAINED, 23.43, 30, 100_000),
            Row("FINER", TRAINED, 22.17, 30, 100_000),
        ),
    ),
)


def table() -> str:
    """All rows as Markdown."""
    lines = [
        "| signal | method | PSNR, dB | core seconds | numbers | measured in |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for question in QUESTIONS:
        best = max(row.psnr for row in question.rows)
        for place, row in enumerate(question.rows):
            cells = [
                question.signal if place == 0 else "",
                row.method,
                f"**{row.psnr:.2f}**" if row.psnr == best else f"{row.psnr:.2f}",
                "" if row.seconds is None else f"{row.seconds:g}",
                "" if row.numbers is None else f"{row.numbers:,}",
                f"[{question.page}]({question.page})" if place == 0 else "",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(path: Path) -> None:
    """A panel per signal: PSNR of each method, with seconds and numbers."""
    columns = 3
    height = -(-len(QUESTIONS) // columns)
    figure = Figure(figsize=(14, 2.7 * height), layout="constrained")
    for axes, question in zip(figure.subplots(height, columns).ravel(), QUESTIONS, strict=True):
        rows = sorted(question.rows, key=lambda row: row.psnr)
        low, high = rows[0].psnr, rows[-1].psnr
        span = max(high - low, 1.0)
        axes.set_xlim(low - 0.1 * span, high + 1.5 * span)
        axes.set_ylim(-0.7, len(rows) - 0.3)
        axes.set_yticks(range(len(rows)), [row.method for row in rows], fontsize=8)
        axes.grid(axis="both", alpha=0.25)
        for place, row in enumerate(rows):
            axes.plot(row.psnr, place, "o", color=COLORS[row.kind], ms=8)
            notes = [f"{row.psnr:.2f} dB"]
            notes += [f"{row.seconds:g} s"] if row.seconds is not None else []
            notes += [f"{row.numbers:,} numbers"] if row.numbers else []
            at = {"xytext": (7, 0), "textcoords": "offset points", "va": "center", "fontsize": 7}
            axes.annotate(", ".join(notes), (row.psnr, place), **at)
        axes.set_title(question.signal, fontsize=10)
        axes.set_xlabel(textwrap.fill(question.asked, 70), fontsize=7)
        axes.tick_params(axis="x", labelsize=7)
    handles = [Line2D([], [], marker="o", ls="", color=color, label=name) for name, color in COLORS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    figure.savefig(path, dpi=80)


def main() -> None:
    """Prints the table and draws the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figure", type=Path, help="file to draw to")
    options = parser.parse_args()
    print(table())
    for question in QUESTIONS:
        print(f"{question.signal}: {question.asked}. {question.command}")
    if options.figure is not None:
        draw(options.figure)


if __name__ == "__main__":
    main()
