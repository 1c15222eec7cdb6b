"""Trained widths from a start that is four times wrong: where they end, and the held-out PSNR, against the best fixed one.

    python benchmarks/widths.py --paths FOLDER/00.png                                     # ten minutes, most of it descent
    python benchmarks/widths.py --paths FOLDER/00.png --kinds points --encoders gau --descent 0

Every second pixel of both axes is trained on (``grid``), or a quarter of the pixels at random (``points``). The best fixed
width is that of a ladder in steps of the square root of two around the default, ridges chosen. ``descent`` is gradient
descent of weights and width together, with the default optimiser of ComplexLinear, for so many steps; on grids alone. The
last rows are the loss on the fitted samples instead of held-out ones: the mean squared error of the exact fit by width.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import torch
from lightning.pytorch import Trainer, seed_everything
from quiet import machine

from pe_lightning.encoders import Encoder, resolve
from pe_lightning.estimators.linear import learn_data, size_encoders, solve_data
from pe_lightning.evaluation.metrics import create
from pe_lightning.signals.distributed import Process
from pe_lightning.training import ComplexLinear, ImageDataModule

SAMPLINGS = {"grid": {"name": "grid", "stride": 2}, "points": {"name": "random", "fraction": 0.25}}
CPU = torch.device("cpu")


def scored(data: ImageDataModule, prediction: torch.Tensor) -> float:
    """Held-out PSNR, mean over signals."""
    batch, metric = data.evaluation_batch(), create("psnr", data.info.num_signals)
    metric.update(prediction, batch.values, batch.mask)
    return float(metric.per_signal().mean())


def solved(data: ImageDataModule, encoders: list[Encoder], ridge: Any = "auto") -> float:
    """Held-out PSNR of the exact fit."""
    with torch.no_grad():
        return scored(data, solve_data(data.dataset, Process(), encoders, ridge, True, CPU).predict(data.dataset.axes))


def width_of(encoder: Encoder) -> float:
    """The width in force."""
    assert encoder.width is not None
    return float(torch.as_tensor(getattr(encoder, encoder.width.argument)).mean())


def rows(data: ImageDataModule, kind: str, name: str, ladder: int, descent: int) -> None:
    """Prints what one encoder reaches."""
    default = size_encoders(data.dataset, [resolve(name)] * 2)
    argument = default[0].width.argument  # type: ignore[union-attr]

    def scaled(factor: float, **more: Any) -> list[Encoder]:
        made = [e.copy(**{argument: width_of(e) * factor}, **more) for e in dict.fromkeys(default)]
        return made * (2 // len(made))

    fixed = {2 ** (k / 2): solved(data, scaled(2 ** (k / 2))) for k in range(-ladder, ladder + 1)}
    best = max(fixed, key=lambda factor: fixed[factor])
    line = f"{kind:6} {name:8} best fixed {width_of(default[0]) * best:8.4g} {fixed[best]:6.2f}"
    for factor in (4.0, 0.25):
        start, began = scaled(factor, trainable=True), time.perf_counter()
        learned = learn_data(data.dataset, start, "auto", True, CPU)
        seconds = time.perf_counter() - began
        score = solved(data, list(learned.encoders), learned.ridge)
        line += f" | from {width_of(start[0]):8.4g}: {width_of(learned.encoders[0]):8.4g} {score:6.2f}"
        line += f" ({len(learned.curve)} evaluations, {seconds:.1f} s)"
        if descent and kind == "grid":
            seed_everything(0, verbose=False)
            module = ComplexLinear(start if start[0] is not start[1] else start[0])
            quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "limit_val_batches": 0}
            trainer = Trainer(max_steps=descent, accelerator="cpu", enable_model_summary=False, **quiet)
            trainer.fit(module, data)
            with torch.no_grad():
                score = scored(data, module.predict_grid(data.dataset.axes))
            line += f", descent {width_of(module.encoding.encoders[0]):8.4g} {score:6.2f}"
    print(line, flush=True)


def shrinking(data: ImageDataModule) -> None:
    """Prints the error on fitted and on held-out samples by width, at a small ridge."""
    for factor in (0.125, 0.25, 0.5, 1.0, 2.0):
        encoder = size_encoders(data.dataset, [resolve("gau")] * 2)[0]
        encoder = encoder.copy(sigma=width_of(encoder) * factor)
        found = solve_data(data.dataset, Process(), [encoder] * 2, 1e-3, True, CPU)
        loss, score = float(found.squared_error.sum() / found.count.sum()), scored(data, found.predict(data.dataset.axes))
        print(f"gau {width_of(encoder):8.4g}: {loss:.3g} on the fitted samples, {score:6.2f} dB on the others", flush=True)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paths", nargs="+", default=["samples://astronaut"])
    parser.add_argument("--kinds", nargs="+", default=list(SAMPLINGS))
    parser.add_argument("--encoders", nargs="+", default=["gau", "laplace", "rff"])
    parser.add_argument("--ladder", type=int, default=4, help="steps of the ladder to each side")
    parser.add_argument("--descent", type=int, default=300, help="steps of gradient descent; 0: none")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(machine())
    for kind in options.kinds:
        data = ImageDataModule(options.paths, sampling=SAMPLINGS[kind])
        data.prepare_data()
        for name in options.encoders:
            rows(data, kind, name, options.ladder, options.descent)
        if kind == "grid":
            shrinking(data)


if __name__ == "__main__":
    main()
