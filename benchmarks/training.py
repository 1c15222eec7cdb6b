"""Training under a Trainer: milliseconds per step against bare PyTorch loops, and many pictures against one at a time.

    python benchmarks/training.py                           # everything: about five minutes on two cores
    python benchmarks/training.py --parts complex --plot curves.png
    python benchmarks/training.py --parts encoders --steps 200 --cpu_time
    python benchmarks/training.py --parts together --together_steps 100 --paths FOLDER

``complex``: 256 x 256 trained samples of 3 channels, the encoders of Table 1, K = 256, with everything that
``pe-lightning fit`` switches on; the loop is autograd through the same mode products, both with the same fused Adam.
``overhead``: the same with more and more around it. ``encoders``: every encoder, on one and on two threads: a step of the
module through Gram matrices and through autograd, and of the loop with features as they are, without the cut of what is
negligible, and without it while PyTorch flushes subnormal numbers. ``simple``: the four-layer MLP of 329,475 parameters.
A fit and its loop take turns, a block of steps each, in one process, so that what else the machine does meets both; ratios
are medians over pairs of neighbouring blocks. Validation and its checkpoints are left out: the loops have none.
``together``: sixteen pictures in one fit against sixteen in turn.

On a machine that others use too, OMP_NUM_THREADS=1 and ``--cpu_time`` (processor instead of wall-clock time) still tell
something: threads that wait for each other make any step ten times as long.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from quiet import machine, make_trainer
from together import seconds

from pe_lightning.encoders import kernels, registry
from pe_lightning.encodings import Simple
from pe_lightning.training import ComplexLinear, ImageDataModule, SimpleMLP, TensorDataModule
from pe_lightning.training.callbacks import PSNRProgressBar, RunRecorder

PARTS = ("complex", "overhead", "encoders", "simple", "together")
SAMPLES = ["astronaut", "coffee", "chelsea", "rocket", "camera", "coins", "moon", "page", "text", "horse", "brick", "grass"]
SAMPLES += ["gravel", "retina", "hubble_deep_field", "cell"]
MLP = {"name": "gau", "num_features": 512, "sigma": 0.006}

Step = Callable[[], torch.Tensor]


def adam(parameters: Any, rate: float) -> torch.optim.Adam:
    """The optimiser of both sides."""
    return torch.optim.Adam(parameters, lr=rate, weight_decay=1e-8, fused=True)


def loop_complex(data: ImageDataModule, encoder: str = "gau", cut: bool = True, flush: bool = False) -> Step:
    """A step of the complex model in bare PyTorch; without ``cut``, features are as small as float32 holds."""
    batch, module, least = data.train_batch(), ComplexLinear(encoder), kernels.MIN_EXPONENT[torch.float32]
    if not cut:
        kernels.MIN_EXPONENT[torch.float32] = -math.inf
    module.build_from(data)
    first, second = module.encoding.axis_features(batch.axes)
    kernels.MIN_EXPONENT[torch.float32] = least
    values = batch.values[0].permute(2, 0, 1)
    target = (values - values.mean((1, 2), keepdim=True)).contiguous()
    weight = torch.zeros_like(module.weight[0]).requires_grad_()
    optimizer = adam([weight], 0.1)

    def step() -> torch.Tensor:
        torch.set_flush_denormal(flush)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(first @ (weight @ second.T), target)
        loss.backward()
        optimizer.step()
        torch.set_flush_denormal(False)
        return loss.detach()

    return step


def loop_simple(data: ImageDataModule) -> Step:
    """A step of the MLP in bare PyTorch, its features computed once."""
    batch = data.train_batch()
    encoding = Simple(MLP, num_axes=2)
    points = torch.stack(torch.meshgrid(*batch.axes, indexing="ij"), -1).reshape(-1, 2)
    encoding.calibrate(points)
    target, features = batch.values[0].reshape(-1, 3), encoding(points)
    layers = [layer for n, m in pairwise([512, 256, 256, 256, 256, 3]) for layer in (torch.nn.Linear(n, m), torch.nn.ReLU())]
    network = torch.nn.Sequential(*layers[:-1])
    optimizer = adam(network.parameters(), 5e-3)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(network(features), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Turns(Callback):
    """Runs a block of steps of a loop after each block of steps of the fit; the clock stands still during validation."""

    clock: Callable[[], float] = time.perf_counter

    def __init__(self, step: Step, block: int) -> None:
        self.step, self.block = step, block
        self.fit: list[float] = []
        self.loop: list[float] = []
        self.losses: dict[int, torch.Tensor] = {}
        """Of the fit by step; several steps on a batch report the last."""
        self.loop_losses: list[torch.Tensor] = []
        self._elapsed, self._since = 0.0, None

    def on_train_batch_start(self, *_: Any) -> None:
        """Goes on after a validation, or starts."""
        if self._since is None:
            self._since = Turns.clock()

    def on_validation_start(self, *_: Any) -> None:
        """Stops."""
        if self._since is not None:
            self._elapsed += Turns.clock() - self._since
            self._since = None

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, *_: Any) -> None:
        """Lets the loop have its turn at the end of a block."""
        self.end_of_batch(trainer.global_step, outputs["loss"])

    def end_of_batch(self, step: int, loss: torch.Tensor) -> None:
        """As the hook."""
        self.losses[step - 1] = loss
        if step % self.block:
            return
        start = Turns.clock()
        self.fit.append((self._elapsed + start - self._since) / self.block * 1e3)
        for _step in range(self.block):
            self.loop_losses.append(self.step())
        self._elapsed, self._since = 0.0, Turns.clock()
        self.loop.append((self._since - start) / self.block * 1e3)

    def row(self, name: str) -> str:
        """Medians; the first block of each side warms up."""
        pairs = list(zip(self.fit, self.loop, strict=True))[1 if len(self.fit) > 1 else 0 :]
        fit, loop = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(b / a for a, b in pairs)
        return f"{name:<44} {fit:8.3f} {loop:8.3f} {ratio:12.2f}"


def run(module: Any, data: ImageDataModule, turns: Turns, steps: int, around: str) -> None:
    """A fit with ``nothing``, the ``callbacks`` or also the ``loggers`` around it."""
    if around == "nothing":
        trainer = make_trainer(steps)
        trainer.callbacks.append(turns)
        trainer.fit(module, datamodule=data)
        return
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = ModelCheckpoint(filename="best", monitor="val/psnr", mode="max", save_last=True)
        trainer = Trainer(
            max_steps=steps,
            logger=False,
            callbacks=[turns, RunRecorder(root=folder, table=False, log=around == "loggers"), PSNRProgressBar(), checkpoint],
            enable_model_summary=False,
            num_sanity_val_steps=0,
            accelerator="cpu",
        )
        trainer.fit(module, datamodule=data)
        if around == "loggers":
            import wandb

            wandb.finish()


def bare_module(data: ImageDataModule, encoder: str = "gau", gram: bool = True) -> Step:
    """A step of our module and optimiser without a Trainer."""
    module, batch = ComplexLinear(encoder), data.train_batch()
    module.build_from(data)
    optimizer = adam(module.parameters(), 0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = module.squared_errors(batch, every_step=gram, exact=False).sum() / batch.values.numel()
        loss.backward()
        module.on_before_optimizer_step(optimizer)
        optimizer.step()
        return loss.detach()

    return step


def part_encoders(data: ImageDataModule, steps: int) -> None:
    """Prints milliseconds per step of every encoder, a block of steps after another in turn."""
    block, before = max(1, steps // 10), torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        print(
            f"{f'{threads} threads':<10}"
            + "".join(f"{name:>11}" for name in ("gram", "plain", "loop", "uncut", "flushed", "uncut/gram"))
        )
        for name in registry:
            made = [bare_module(data, name), bare_module(data, name, gram=False), loop_complex(data, name)]
            made += [loop_complex(data, name, cut=False), loop_complex(data, name, cut=False, flush=True)]
            times: list[list[float]] = [[] for _ in made]
            for _ in range(10):
                for step, taken in zip(made, times, strict=True):
                    start = Turns.clock()
                    for _step in range(block):
                        step()
                    taken.append((Turns.clock() - start) / block * 1e3)
            medians = [statistics.median(taken[1:]) for taken in times]
            ratio = statistics.median(b / a for a, b in zip(times[0][1:], times[3][1:], strict=True))
            print(f"{name:<10}" + "".join(f"{x:11.2f}" for x in [*medians, ratio]), flush=True)
    torch.set_num_threads(before)


def compare_curves(turns: Turns, plot: Path | None) -> str:
    """Where the two loss curves differ most, and a plot of them."""
    steps, loop = torch.tensor(list(turns.losses)), torch.stack(turns.loop_losses).double().cpu()
    fit, every = torch.stack(list(turns.losses.values())).double().cpu(), loop
    loop = loop[steps]
    decibels = 10 * (fit / loop).log10().abs()
    if plot is not None:
        import matplotlib

        matplotlib.use("agg")
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(layout="constrained")
        axes.semilogy(every, label="bare loop, autograd", linewidth=3, alpha=0.5)
        axes.semilogy(steps, fit, label="Trainer.fit, Gram matrices", linewidth=1)
        axes.set(xlabel="step", ylabel="mean squared error")
        axes.legend()
        figure.savefig(plot)
    return (
        f"loss curves: differ by at most {(fit - loop).abs().max():.1e}, {decibels.max():.2f} dB at step "
        f"{steps[decibels.argmax()]}, {decibels[steps < 100].max():.4f} dB in the first 100; "
        f"last {fit[-1]:.2e} and {loop[-1]:.2e}"
    )


def part_together(paths: list[str], steps: int, repeats: int) -> None:
    """Prints milliseconds per picture and step, together and in turn."""
    pictures = ImageDataModule(paths, resize=512, color="rgb")
    everything, single = TensorDataModule(pictures.values), [TensorDataModule(values[None]) for values in pictures.values]
    scale = 1e3 / (len(single) * steps)
    joint, turn = [], []
    for _ in range(repeats):
        joint.append(seconds(everything, steps)[0] * scale)
        turn.append(sum(seconds(data, steps)[0] for data in single) * scale)
    ratio = statistics.median(b / a for a, b in zip(joint, turn, strict=True))
    name = f"{len(single)} pictures together | in turn, {steps} steps"
    print(f"{name:<44} {statistics.median(joint):8.3f} {statistics.median(turn):8.3f} {ratio:12.2f}   per picture")


def main() -> None:
    """Runs the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--paths", nargs="+", help="pictures or folders; by default those of scikit-image")
    parser.add_argument("--steps", type=int, default=2000, help="of the complex model")
    parser.add_argument("--simple_steps", type=int, default=40)
    parser.add_argument("--together_steps", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3, help="of the pictures together and in turn")
    parser.add_argument("--cpu_time", action="store_true", help="count processor time, of all threads")
    parser.add_argument("--plot", type=Path, help="PNG of the loss curves of the complex model")
    options = parser.parse_args()
    if options.cpu_time:
        Turns.clock = time.process_time
    names = [f"samples://{name}" for name in SAMPLES]
    paths = options.paths or names
    data = ImageDataModule(options.paths or names[0], resize=512, color="rgb")
    data.prepare_data()
    if data.info.num_signals > 1:
        data = TensorDataModule(data.values[:1])
    block = min(100, options.steps)
    seed_everything(0, verbose=False)
    print(f"{machine()}; load {os.getloadavg()[0]:.1f} before")
    print(f"{'':<44} {'fit':>8} {'loop':>8} {'loop / fit':>12}   milliseconds per step, medians")
    if "complex" in options.parts:
        for name in ("linf", "logf", "rff", "tri", "gau"):
            turns = Turns(loop_complex(data, name), block)
            run(ComplexLinear(name, optimizer=lambda p: adam(p, 0.1)), data, turns, options.steps, "loggers")
            print(turns.row(f"complex, {name}, everything on"))
        print(compare_curves(turns, options.plot))
    if "overhead" in options.parts:
        turns, alone = Turns(loop_complex(data), block), bare_module(data)
        for _ in range(max(2, options.steps // block // 2)):
            turns.on_train_batch_start()
            for _step in range(block):
                turns.end_of_batch(len(turns.losses) + 1, alone())
        print(turns.row("complex, module and optimiser, no Trainer"))
        for name, around in (("+ Trainer", "nothing"), ("+ callbacks", "callbacks"), ("+ loggers", "loggers")):
            turns = Turns(loop_complex(data), block)
            run(
                ComplexLinear("gau", optimizer=lambda p: adam(p, 0.1)),
                data,
                turns,
                max(2 * block, options.steps // 2),
                around,
            )
            print(turns.row("  " + name))
    if "encoders" in options.parts:
        part_encoders(data, options.steps)
    if "simple" in options.parts:
        turns = Turns(loop_simple(data), max(1, options.simple_steps // 40))
        run(SimpleMLP(MLP), data, turns, options.simple_steps, "loggers")
        print(turns.row("simple, Trainer.fit with everything"))
    if "together" in options.parts:
        part_together(paths, options.together_steps, options.repeats)
    print(f"load {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
