"""Figures of the documentation, written into a folder.

    python benchmarks/figures.py --out docs                  # all of them
    python benchmarks/figures.py --only known --out docs     # four core seconds

- ``known``: what "every second pixel of every second row is given" means: part of samples://astronaut, magnified, by bicubic
  interpolation and by ``pe_lightning.fit`` of the whole photograph.
- ``prior``: parts of a photograph and of words: truth, bicubic, Adaptive without and with the prior.
- ``seeds``: the page and the curves of the 24 runs that docs/compare.md compares; the page as Chromium shows it.
- ``which``: which encoder or network for which signal. Nothing is measured: the numbers are those of docs/results.yaml,
  and on the page of docs/ that is named for each signal, with more methods beside them.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

import prior as prior_tables
import results
import torch
import yaml
from harness import ROOT, load, make_parser, run, run_sections
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from PIL import Image

import pe_lightning
from pe_fill import Adaptive
from pe_lightning.evaluation.baselines import interpolate
from pe_lightning.signals import grid_axes
from pe_lightning.training import make_datamodule

RESULTS = results.read()
COMPARING = ROOT / "docs/compare.md"
TABLES = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
QUESTIONS: dict[str, dict[str, str]] = TABLES["questions"]
COLORS = dict(zip(TABLES["methods"], ("0.6", "#D55E00", "#0072B2", "#009E73"), strict=True))
LABELS = {name: (label, COLORS[kind]) for kind, labels in TABLES["methods"].items() for name, label in labels.items()}


def rows(measurement: str) -> dict[str, dict[str, float]]:
    """``psnr`` in dB, core ``seconds`` per signal and ``numbers`` that are stored, by method, the best method last."""
    values = RESULTS[measurement]["values"]
    drawn = QUESTIONS[measurement].get("methods", " ".join(values)).split()
    return dict(sorted(((name, values[name]) for name in drawn), key=lambda row: row[1]["psnr"]))


def which(path: Path) -> None:
    """A panel per signal: PSNR of each method, with seconds and numbers, of docs/results.yaml."""
    columns = 2
    height = -(-len(QUESTIONS) // columns)
    figure = Figure(figsize=(9, 2.3 * height), layout="constrained")
    for axes, (measurement, question) in zip(figure.subplots(height, columns).ravel(), QUESTIONS.items(), strict=False):
        drawn = rows(measurement)
        scores = [row["psnr"] for row in drawn.values()]
        span = max(scores[-1] - scores[0], 1.0)
        axes.set_xlim(scores[0] - 0.1 * span, scores[-1] + 2.4 * span)
        axes.set_ylim(-0.7, len(drawn) - 0.3)
        axes.set_yticks(range(len(drawn)), [LABELS[name][0] for name in drawn], fontsize=9)
        axes.grid(axis="both", alpha=0.25)
        for place, (name, row) in enumerate(drawn.items()):
            axes.plot(row["psnr"], place, "o", color=LABELS[name][1], ms=8)
            notes = [f"{row['psnr']:.2f} dB"]
            notes += [f"{row['seconds']:.2g} s"] if "seconds" in row else []
            notes += [f"{row['numbers']:,.0f} numbers"] if row.get("numbers") else []
            at = {"xytext": (7, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}
            axes.annotate(", ".join(notes), (row["psnr"], place), **at)
        axes.set_title(question["signal"], fontsize=10, loc="left")
        axes.set_xlabel(textwrap.fill(question["asked"], 46), fontsize=8)
        axes.tick_params(axis="x", labelsize=8)
    for axes in figure.axes[len(QUESTIONS) :]:
        axes.remove()
    handles = [Line2D([], [], marker="o", ls="", color=color, label=name) for name, color in COLORS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    figure.savefig(path, dpi=100)
    Image.open(path).convert("RGB").quantize(128, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)


def known(path: Path) -> None:
    """Panels of 48 x 48 pixels: rings of the suit, edges, where methods differ most."""
    torch.set_num_threads(1)
    truth = load("samples://astronaut")
    data, axes = make_datamodule(truth[None]), list(grid_axes(truth.shape[:2]))
    given = torch.full_like(truth, 0.82)
    given[::2, ::2] = truth[::2, ::2]
    panels = {
        "one pixel of four": given,
        "bicubic": interpolate("bicubic", data.train_batch(), axes)[0],
        "pe_lightning.fit": pe_lightning.fit(data).grid(axes)[0].detach(),
        "truth": truth,
    }
    figure = Figure(figsize=(12, 3.4), layout="constrained")
    for place, (title, picture) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        place.imshow(picture[334 : 334 + 48, 356 : 356 + 48].clamp(0, 1).numpy(), interpolation="nearest")
        place.set_title(title, fontsize=18)
        place.axis("off")
    figure.savefig(path, dpi=100, pil_kwargs={"quality": 88})


def prior(path: Path) -> None:
    """Two rows of parts of 72 x 96 pixels."""
    rows, words = [], prior_tables.held_out_pictures(1)["words, other fonts"][0]
    for truth, top, left in ((load("samples://astronaut"), 96, 190), (words, 150, 200)):
        axes, data = grid_axes(truth.shape[:2]), make_datamodule(truth[None])
        models = (Adaptive(pretrained=pretrained) for pretrained in ("none", "pictures"))
        fits = [pe_lightning.fit(data, model=model).predict_grid(axes)[0].detach() for model in models]
        shown = (truth, interpolate("bicubic", data.train_batch(), axes)[0], *fits)
        rows.append(torch.cat([values[top : top + 72, left : left + 96] for values in shown], 1))
    image = Image.fromarray((torch.cat(rows).clamp(0, 1) * 255).round().byte().numpy())
    image.resize((image.width * 3, image.height * 3), Image.Resampling.NEAREST).save(path, quality=88)


def seeds(page: Path, curves: Path) -> None:
    """Runs the commands of docs/compare.md, and prints their table."""
    commands = re.findall(r"^pe-lightning ((?:sweep .* --repeats 3|compare seeds) .*)$", COMPARING.read_text(), re.MULTILINE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for command in commands:
            printed, _, _ = run(*shlex.split(command), folder=folder, OMP_NUM_THREADS="1")
        print(printed)
        flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/profile")
        shot, report = folder / "page.png", folder / "seeds/report"
        target = (f"--screenshot={shot}", (report / "index.html").as_uri())
        subprocess.run(["chromium", *flags, "--window-size=1400,930", *target], check=True, capture_output=True)
        for source, path in ((shot, page), (report / "psnr_vs_step.png", curves)):
            Image.open(source).convert("RGB").quantize(128, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)


if __name__ == "__main__":
    parser = make_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder")
    sections: dict[str, Callable[[argparse.Namespace], None]] = {
        "known": lambda options: known(options.out / "known.jpg"),
        "prior": lambda options: prior(options.out / "prior.jpg"),
        "seeds": lambda options: seeds(options.out / "compare.png", options.out / "compare-steps.png"),
        "which": lambda options: which(options.out / "which.png"),
    }
    run_sections(parser, sections)
