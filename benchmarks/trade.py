"""Quality against seconds and parameters: trained networks, exact fits, interpolation; one figure and one table.

    python benchmarks/trade.py --paths FOLDER/*.png                 # about 25 minutes of two cores, both halves
    python benchmarks/trade.py --only held-out --seconds 300        # longer; --only all is the other half
    python benchmarks/trade.py --methods adaptive bicubic           # these rows alone
    python benchmarks/trade.py --seconds 1 --resize 64              # a minute

- ``held-out``: pictures of which every second sample of each axis is trained on; PSNR of all others (protocol ``rest``).
- ``all``: every sample of the first picture is trained on, and scored: 3e4, 1e5 and 3e5 parameters. ``grid`` is a plain
  table of colours, interpolated linearly (``tri``) or by cubic B-splines, its entries fitted exactly.

Networks have about 1e5 parameters, the default learning rate, and batches of 8192 random samples. Seconds are of the
processor, one thread, without evaluations; exact fits include one prediction of the whole picture.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from harness import bicubic_psnr, machine, make_parser, make_trainer, print_row, print_titles, psnr
from lightning.pytorch import Callback, seed_everything
from lightning.pytorch.utilities import disable_possible_user_warnings
from matplotlib.figure import Figure

from pe_fill import Adaptive
from pe_lightning.training import ComplexLinear, ImageDataModule, SimpleMLP

PARAMS, SIZES = 100_000, (30_000, 100_000, 300_000)
"""Numbers of the networks of ``held-out``, and of those of ``all``."""
POINTS = 8192
QUESTIONS = ("held-out", "all")


@dataclass
class Method:
    """A row: how a model is made by its size, which is between two ``sizes``, or is what it is."""

    name: str
    make: Callable[[int], Any]
    color: str
    marker: str
    sizes: tuple[int, int] | None = None
    questions: tuple[str, ...] = QUESTIONS

    @property
    def trained(self) -> bool:
        """Whether it is a network that is trained by gradient descent."""
        return self.sizes is not None and self.sizes[0] > 0


def perceptron(encoder: Any, **options: Any) -> Callable[[int], Any]:
    """A perceptron of three hidden layers above an encoder; its size is the width."""
    return lambda size: SimpleMLP(encoder, depth=3, hidden_size=size, **options)


def table(name: str, knob: str, **options: Any) -> Callable[[int], Any]:
    """A small perceptron above trained tables."""
    return lambda size: SimpleMLP({"name": name, knob: size, **options}, depth=2, hidden_size=64)


def exact(encoder: Any, **options: Any) -> Callable[[int], Any]:
    """Complex encoding, solved exactly; its size is the number of features per axis, 0 for one per sample."""
    return lambda size: ComplexLinear({**encoder, "num_features": size or "auto"}, solver="exact", **options)


BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PINK = (  # Okabe and Ito's colours, told apart by all
    *("#000000", "#E69F00", "#56B4E9", "#009E73"),
    *("#B8A900", "#0072B2", "#D55E00", "#CC79A7"),
)
WIDTHS = (8, 1024)
METHODS = [
    Method("MLP, rff", perceptron({"name": "rff", "num_features": 256}), BLUE, "o", WIDTHS),
    Method("MLP, gau", perceptron({"name": "gau", "num_features": 256}), SKY, "s", WIDTHS),
    Method("MLP, lff", perceptron({"name": "lff", "num_features": 128}), PINK, "D", WIDTHS),
    Method("SIREN", perceptron("identity", activation="sine"), BLACK, "<", WIDTHS),
    Method("FINER", perceptron("identity", activation="finer"), ORANGE, ">", WIDTHS),
    Method("MLP, hash", table("hash", "table_size"), GREEN, "^", (64, 1 << 16), ("held-out",)),
    Method("MLP, hash as fine as the samples", table("hash", "table_size", finest=512), GREEN, "^", (64, 1 << 16), ("all",)),
    Method("MLP, planes", table("planes", "rank"), YELLOW, "v", (1, 512)),
    Method("complex gau, exact", exact({"name": "gau"}), RED, "*", (0, 0)),
    Method("complex laplace, exact", exact({"name": "laplace"}), ORANGE, "P", (0, 0)),
    Method("grid, linear", exact({"name": "tri"}), BLACK, "X", (0, 0), ("all",)),
    Method("grid, B-spline", exact({"name": "bspline"}), BLACK, "h", (0, 0), ("all",)),
    Method("variable projection, gau", exact({"name": "gau", "trainable": True}), RED, "x", None, ("held-out",)),
    Method("adaptive", lambda _: Adaptive(pretrained="none"), PINK, "p", None, ("held-out",)),
    Method("bicubic", lambda _: None, BLACK, "d", None, ("held-out",)),
]


class Curve(Callback):
    """Scores at times that grow by a factor, and the end of the fit at the limit; scoring takes no time."""

    def __init__(self, score: Callable[[Any], float], limit: float) -> None:
        self.score, self.limit, self.due = score, limit, 0.5
        self.points: list[tuple[float, float]] = []
        self.began = time.process_time()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        """Scores if it is time to."""
        spent = time.process_time() - self.began
        if spent < min(self.due, self.limit):
            return
        now = time.process_time()
        self.points.append((spent, self.score(pl_module)))
        trainer.should_stop = spent >= self.limit
        self.due = max(self.due * 1.8, spent)
        self.began += time.process_time() - now


def sized(method: Method, data: ImageDataModule, params: int) -> Any:
    """The model of a method with about as many parameters, built for the data."""
    if method.sizes is None or not method.trained:  # exact: K features per axis are 3 K^2 weights
        limited = method.sizes is not None and data.signals.eval_mask == "none"
        return method.make(round(math.sqrt(params / data.info.channels)) if limited else 0)
    low, high = method.sizes
    while high - low > 1:
        middle = (low + high) // 2
        model = method.make(middle)
        model.choose(data, torch.device("cpu"))
        model.build(data.info)
        low, high = (middle, high) if model.num_params <= params else (low, middle)
    return method.make(low)


def cell(method: Method, question: str, path: str, params: int, seconds: float, resize: int | None) -> dict[str, Any]:
    """Fits one picture: ``params``, ``psnr``, ``seconds``, and the ``curve`` of a trained network."""
    seed_everything(0, verbose=False)
    stride = 2 if question == "held-out" else 1
    batching = {"kind": "points", "size": POINTS} if method.trained else {"kind": "full"}
    data = ImageDataModule(path, resize=resize, sampling={"name": "grid", "stride": stride}, batching=batching)
    batch, began = data.evaluation_batch(), time.process_time()
    mask = (batch.mask if question == "held-out" else batch.train_mask).reshape(data.info.grid)

    def score(values: torch.Tensor) -> float:
        return psnr((values - batch.values).detach()[0, mask])

    def score_of(model: Any) -> float:
        with torch.no_grad():
            return score(model.predict_grid(batch.axes))

    if method.name == "bicubic":
        found = bicubic_psnr(data.values[0])
        return {"params": 0, "seconds": time.process_time() - began, "psnr": found}
    model = sized(method, data, params)
    curve = Curve(score_of, seconds)
    trainer = make_trainer(-1 if method.trained else 0, curve)
    model.build_from(data, torch.device("cpu"))
    trainer.fit(model, data)
    if not method.trained:
        began, values = curve.began, model.predict_grid(batch.axes)
        return {"params": model.num_params, "seconds": time.process_time() - began, "psnr": score(values)}
    found = dict(zip(("seconds", "psnr"), curve.points[-1], strict=True))
    return {"params": model.num_params, **found, "steps": trainer.global_step, "curve": curve.points}


Found = dict[tuple[str, int], list[dict[str, Any]]]
"""Results of the pictures, by method and number of parameters asked for."""


def mean(results: list[dict[str, Any]], key: str) -> float:
    """Of all pictures."""
    return float(np.mean([result[key] for result in results]))


def draw(found: dict[str, Found], path: Path) -> None:
    """The figure: a row per question, seconds on the left, parameters on the right."""
    mpl.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure = Figure(figsize=(11, 4.3 * len(found)), layout="constrained")
    axes = figure.subplots(len(found), 2, squeeze=False, sharey="row")
    for (question, made), (left, right) in zip(found.items(), axes, strict=True):
        for method in METHODS:
            own = [(params, results) for (name, params), results in made.items() if name == method.name]
            if not own:
                continue
            style = {"color": method.color, "marker": method.marker, "label": method.name, "markersize": 8}
            for params, results in own:
                if params == PARAMS and method.trained:
                    first = max(result["curve"][0][0] for result in results)
                    grid = np.geomspace(first, min(result["seconds"] for result in results), 40)
                    curves = [np.array(result["curve"]).T for result in results]
                    each = [np.interp(np.log(grid), np.log(times), scores) for times, scores in curves]
                    left.plot(grid, np.mean(each, 0), **style, markevery=[-1], linewidth=1.5)
                elif params == PARAMS:
                    left.plot([mean(results, "seconds")], [mean(results, "psnr")], **style, linestyle="none")
            if method.name == "bicubic":
                line = {"color": method.color, "linewidth": 0.8, "linestyle": ":"}
                left.axhline(mean(own[0][1], "psnr"), **line)
                right.axhline(mean(own[0][1], "psnr"), label="bicubic", **line)
            else:
                points = [(mean(results, "params"), mean(results, "psnr")) for _, results in own]
                right.plot(*zip(*points, strict=True), **style, linewidth=1, linestyle="-" if len(points) > 1 else "none")
        count = max(len(results) for results in made.values())
        scored = "samples between the trained ones" if question == "held-out" else "all samples, all of them trained on"
        left.set(xscale="log", xlabel="core seconds, one thread", ylabel="PSNR, dB", title=f"{scored}; {count} picture(s)")
        longest = max((mean(results, "seconds") for results in made.values() if "curve" in results[0]), default=0)
        networks = f"; networks after {longest:.0f} core seconds" * (longest > 0)
        right.set(xscale="log", xlabel="parameters", title=f"the same{networks}")
        left.set_xlim(min(0.02, left.get_xlim()[0]), max(2.0, left.get_xlim()[1]))
        for axis in (left, right):
            axis.grid(alpha=0.25)
        right.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    parser = make_parser(__doc__)
    parser.add_argument("--paths", nargs="+", default=["samples://astronaut"], help="pictures")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    names = [method.name for method in METHODS]
    parser.add_argument("--methods", nargs="+", choices=names, default=names, metavar="NAME", help="; ".join(names))
    parser.add_argument("--seconds", type=float, default=60.0, help="of each network")
    parser.add_argument("--resize", type=int, help="side of the pictures; default: as they are")
    parser.add_argument("--figure", type=Path, default=Path("trade.png"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    disable_possible_user_warnings()
    print(f"{machine()}; {options.seconds:g} core seconds per network", flush=True)
    found: dict[str, Found] = {question: {} for question in options.only}
    for question, made in found.items():
        pictures, sizes = (options.paths, (PARAMS,)) if question == "held-out" else (options.paths[:1], SIZES)
        print(f"\n{question}, mean of {len(pictures)} picture(s)")
        print_titles("method", "parameters", "core seconds", "steps", "PSNR, dB")
        for method in METHODS:
            for params in sizes if question in method.questions and method.name in options.methods else ():
                results = [cell(method, question, path, params, options.seconds, options.resize) for path in pictures]
                made[method.name, params] = results
                steps = round(mean(results, "steps")) if "steps" in results[0] else ""
                print_row(
                    method.name, round(mean(results, "params")), mean(results, "seconds"), steps, mean(results, "psnr")
                )
    draw(found, options.figure)
