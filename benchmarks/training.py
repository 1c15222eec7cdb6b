"""Training under a Trainer: milliseconds per step against bare PyTorch loops.

    python benchmarks/training.py                           # everything: some minutes on two cores
    python benchmarks/training.py --parts complex --steps 200 --cpu_time

``complex``: 256 x 256 trained samples of 3 channels, the encoders of Table 1, K = 256, with everything that
``pe-lightning fit`` switches on; the loop is autograd through the same mode products, both with the same fused Adam.
``overhead``: the same with more and more around it. A fit and its loop take turns, a block of steps each, in one process,
so that what else the machine does meets both; ratios are medians over pairs of neighbouring blocks. Validation and its
checkpoints are left out: the loops have none.

On a machine that others use too, OMP_NUM_THREADS=1 and ``--cpu_time`` (processor instead of wall-clock time) still tell
something: threads that wait for each other make any step ten times as long.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from quiet import machine, make_trainer

from pe_lightning.training import ComplexLinear, ImageDataModule, TensorDataModule
from pe_lightning.training.callbacks import PSNRProgressBar, RunRecorder

PARTS = ("complex", "overhead")
Step = Callable[[], torch.Tensor]


def adam(parameters: Any, rate: float) -> torch.optim.Adam:
    """The optimiser of both sides."""
    return torch.optim.Adam(parameters, lr=rate, weight_decay=1e-8, fused=True)


def loop_complex(data: ImageDataModule, encoder: str = "gau") -> Step:
    """A step of the complex model in bare PyTorch."""
    batch, module = data.train_batch(), ComplexLinear(encoder)
    module.build_from(data)
    first, second = module.encoding.axis_features(batch.axes)
    values = batch.values[0].permute(2, 0, 1)
    target = (values - values.mean((1, 2), keepdim=True)).contiguous()
    weight = torch.zeros_like(module.weight[0]).requires_grad_()
    optimizer = adam([weight], 0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(first @ (weight @ second.T), target)
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


def bare_module(data: ImageDataModule, encoder: str = "gau") -> Step:
    """A step of our module and optimiser without a Trainer."""
    module, batch = ComplexLinear(encoder), data.train_batch()
    module.build_from(data)
    optimizer = adam(module.parameters(), 0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = module.squared_errors(batch, every_step=True, exact=False).sum() / batch.values.numel()
        loss.backward()
        module.on_before_optimizer_step(optimizer)
        optimizer.step()
        return loss.detach()

    return step


def compare_curves(turns: Turns) -> str:
    """Where the two loss curves differ most."""
    steps, loop = torch.tensor(list(turns.losses)), torch.stack(turns.loop_losses).double().cpu()
    fit, loop = torch.stack(list(turns.losses.values())).double().cpu(), loop[steps]
    decibels = 10 * (fit / loop).log10().abs()
    return (
        f"loss curves: differ by at most {(fit - loop).abs().max():.1e}, {decibels.max():.2f} dB at step "
        f"{steps[decibels.argmax()]}, {decibels[steps < 100].max():.4f} dB in the first 100; "
        f"last {fit[-1]:.2e} and {loop[-1]:.2e}"
    )


def main() -> None:
    """Runs the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--paths", nargs="+", help="pictures or folders; by default those of scikit-image")
    parser.add_argument("--steps", type=int, default=2000, help="of the complex model")
    parser.add_argument("--cpu_time", action="store_true", help="count processor time, of all threads")
    options = parser.parse_args()
    if options.cpu_time:
        Turns.clock = time.process_time
    data = ImageDataModule(options.paths or "samples://astronaut", resize=512, color="rgb")
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
        print(compare_curves(turns))
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
    print(f"load {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
