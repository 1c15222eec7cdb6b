"""Seconds per signal of the papers' four tables on the device at hand, under ``Trainer.fit``.

    python benchmarks/gpu.py                       # all rows within five minutes
    python benchmarks/gpu.py --only T1 T2 --budget 60
    python benchmarks/gpu.py --precision bf16-mixed --float32_matmul_precision high

T1: every second sample of each axis of a 512 x 512 RGB picture; T2: a quarter of its samples at random; T3: every second
sample of a 128^3 RGB clip; T4: an eighth of its samples at random. Gaussian encoder, the tables' widths. ``simple`` is the
MLP (T1, T2: 4 x 256, 2000 steps; T3, T4: 5 x 512, 500 steps), ``complex`` the linear layer by gradient descent with as many
steps, ``solved`` its exact fit. A row that does not end within its share of the budget is stopped; its seconds are those of
all steps at the speed of the ones that it took, marked ``~``, and it has no PSNR. Preparation and the first step are counted
once, in ``first``.

The clip is a window that slides over a picture, or the middle of ``--npy``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from quiet import machine, make_trainer
from video import clip, pan

from pe_lightning.signals import RandomSampling
from pe_lightning.training import ComplexLinear, CoordinateModule, ImageDataModule, SimpleMLP, TensorDataModule
from pe_lightning.training.datamodule import SignalDataModule

Make = Callable[[], CoordinateModule]


@dataclass(frozen=True)
class Row:
    """One entry of a table: the module, and how many steps it takes."""

    table: str
    name: str
    make: Make
    steps: int


def gau(features: int, sigma: float) -> dict[str, Any]:
    """The encoder."""
    return {"name": "gau", "num_features": features, "sigma": sigma}


def rows(scale: float) -> list[Row]:
    """All rows, with a share of the steps."""
    many, few = max(1, round(2000 * scale)), max(1, round(500 * scale))
    return [
        Row("T1", "simple", lambda: SimpleMLP(gau(512, 0.006)), many),
        Row("T1", "complex", lambda: ComplexLinear(gau(256, 0.004)), many),
        Row("T1", "solved", lambda: ComplexLinear(gau(256, 0.0025), warm_start=True), 0),
        Row("T2", "simple", lambda: SimpleMLP(gau(512, 0.006)), many),
        Row("T2", "complex", lambda: ComplexLinear(gau(256, 0.005)), many),
        Row("T2", "solved", lambda: ComplexLinear(gau(256, 0.0035), warm_start=True), 0),
        Row("T3", "simple", lambda: SimpleMLP(gau(768, 0.015), depth=5, width=512), few),
        Row("T3", "complex", lambda: ComplexLinear(gau(64, 0.015)), few),
        Row("T3", "solved", lambda: ComplexLinear(gau(64, 0.009), warm_start=True), 0),
        Row("T4", "simple", lambda: SimpleMLP(gau(768, 0.02), depth=5, width=512), few),
        Row("T4", "complex", lambda: ComplexLinear(gau(64, 0.02)), few),
    ]


class Stopwatch(Callback):
    """Seconds of the steps after the first, and an end when the time is up."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.first = 0.0
        self.steps = 0
        self.seconds = 0.0
        self._start = self._since = time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Looks at the clock; after a step and every 20 from then on, when the device has done what it was given."""
        if trainer.global_step != 1 and trainer.global_step % 20 and trainer.global_step != trainer.max_steps:
            return
        wait(pl_module.device)
        now = time.perf_counter()
        if trainer.global_step == 1:
            self.first, self._since = now - self._start, now
        self.steps, self.seconds = trainer.global_step - 1, now - self._since
        if now - self._start > self.limit:
            trainer.should_stop = True


def wait(device: torch.device) -> None:
    """Until the device has nothing to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def run(row: Row, data: SignalDataModule, limit: float, precision: str) -> str:
    """Fits a row and returns its line of the table; ``-`` is what there is not."""
    seed_everything(0, verbose=False)
    watch, module = Stopwatch(limit), row.make()
    trainer = make_trainer(row.steps, precision)
    trainer.callbacks.append(watch)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    trainer.fit(module, datamodule=data)
    wait(module.device)
    whole = time.perf_counter() - start
    ended = trainer.global_step >= row.steps
    seconds = whole if ended else watch.first + watch.seconds / max(watch.steps, 1) * (row.steps - 1)
    score = "-"
    if ended:
        trainer.test(module, datamodule=data, verbose=False)
        score = f"{module.scores['test/psnr'].mean():.2f}"
    each = f"{watch.seconds / watch.steps * 1e3:.3f}" if watch.steps else "-"
    memory = f"{torch.cuda.max_memory_allocated() / 2**20:.0f}" if torch.cuda.is_available() else "-"
    estimate = f"{'' if ended else '~'}{seconds:.2f}"
    return f"{row.table}  {row.name:<8} {estimate:>10} {watch.first:>9.2f} {each:>9} {row.steps:>6} {score:>9} {memory:>9}"


def main(arguments: list[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=["T1", "T2", "T3", "T4"], default=["T1", "T2", "T3", "T4"])
    parser.add_argument("--path", default="samples://astronaut", help="the picture")
    parser.add_argument("--npy", help="a clip (T, H, W, C) of at least --cube samples each way")
    parser.add_argument("--size", type=int, default=512, help="samples of the picture per axis")
    parser.add_argument("--cube", type=int, default=128, help="samples of the clip per axis")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the steps")
    parser.add_argument("--budget", type=float, default=240.0, help="seconds of fitting, shared by the rows")
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--float32_matmul_precision", choices=["highest", "high", "medium"], default="highest")
    options = parser.parse_args(arguments)
    torch.set_float32_matmul_precision(options.float32_matmul_precision)
    picture = ImageDataModule(options.path, resize=options.size, color="rgb").values
    moving = clip(options.npy, options.cube) if options.npy else pan(options.cube, "astronaut")
    data: dict[str, SignalDataModule] = {
        "T1": TensorDataModule(picture[:1]),
        "T2": TensorDataModule(picture[:1], sampling=RandomSampling(0.25)),
        "T3": TensorDataModule(moving),
        "T4": TensorDataModule(moving, sampling=RandomSampling(0.125)),
    }
    chosen = [row for row in rows(options.scale) if row.table in options.only]
    print(f"{machine()}; {options.precision}, float32 products {options.float32_matmul_precision}")
    print(f"{'':<12} {'seconds':>10} {'first':>9} {'ms/step':>9} {'steps':>6} {'test dB':>9} {'GPU MB':>9}")
    left = options.budget
    for number, row in enumerate(chosen):
        start = time.perf_counter()
        print(run(row, data[row.table], left / (len(chosen) - number), options.precision), flush=True)
        left = max(1.0, left - (time.perf_counter() - start))


if __name__ == "__main__":
    main()
