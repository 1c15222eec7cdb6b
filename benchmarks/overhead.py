"""What a Trainer costs: fits under ``Trainer.fit`` against the same mathematics in a bare PyTorch loop, in one process.

    python benchmarks/overhead.py                # both comparisons, about two minutes on two cores
    python benchmarks/overhead.py --only complex

The complex model is 256 x 256 samples of 3 channels, K = 256, 2000 steps; the simple one is the four-layer MLP of
329,475 parameters on the same samples, 20 steps. Both sides use the same fused Adam; the Trainer logs to CSV and W&B
(offline), keeps its progress bar and checkpoints, and validates every 100 steps. Sides take turns; the medians of
``--repeats`` are compared. Validation is timed apart: the loop has none.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time
import warnings
from itertools import pairwise
from pathlib import Path

import torch
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint

from pe_lightning.callbacks import PSNRProgressBar, RunRecorder
from pe_lightning.data import ImageDataModule
from pe_lightning.encodings import Complex, Simple
from pe_lightning.modules import ComplexLinear, CoordinateModule, SimpleMLP


def loop_complex(data: ImageDataModule, steps: int) -> float:
    """Seconds of a bare loop over the complex model, full batch."""
    batch = data.train_batch()
    encoding = Complex("gau", num_axes=2)
    encoding.calibrate(batch.axes)
    first, second = encoding.axis_features(batch.axes)
    target = batch.values[0].permute(2, 0, 1).contiguous()
    weight = torch.zeros(3, 256, 256, requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=0.1, weight_decay=1e-8, fused=True)
    start = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(first @ (weight @ second.T), target)
        loss.backward()
        optimizer.step()
    return time.perf_counter() - start


def loop_simple(data: ImageDataModule, steps: int) -> float:
    """Seconds of a bare loop over the MLP, full batch, features computed once."""
    batch = data.train_batch()
    encoding = Simple({"name": "gau", "num_features": 512, "sigma": 0.006}, num_axes=2)
    points = torch.stack(torch.meshgrid(*batch.axes, indexing="ij"), -1).reshape(-1, 2)
    encoding.calibrate(points)
    target = batch.values[0].reshape(-1, 3)
    sizes = [512, 256, 256, 256, 256, 3]
    layers: list[torch.nn.Module] = []
    for n, m in pairwise(sizes):
        layers += [torch.nn.Linear(n, m), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers[:-1])
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3, weight_decay=1e-8, fused=True)
    start = time.perf_counter()
    features = encoding(points)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(network(features), target)
        loss.backward()
        optimizer.step()
    return time.perf_counter() - start


class Clock(RunRecorder):
    """The recorder, with the seconds of validation kept apart."""

    @property
    def seconds(self) -> tuple[float, float]:
        """Seconds of the fit and of its validations."""
        assert self._fit_seconds is not None
        return self._fit_seconds, self._excluded


def trainer_seconds(module: CoordinateModule, data: ImageDataModule, steps: int) -> tuple[float, float]:
    """Seconds of the fit under a Trainer with everything on, and of its validations."""
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock(root=folder, table=False)
        checkpoint = ModelCheckpoint(filename="best", monitor="val/psnr", mode="max", save_last=True)
        trainer = Trainer(
            max_steps=steps,
            logger=False,
            callbacks=[clock, PSNRProgressBar(), checkpoint],
            enable_model_summary=False,
            num_sanity_val_steps=0,
            accelerator="cpu",
        )
        trainer.fit(module, datamodule=data)
        import wandb

        wandb.finish()
    return clock.seconds


def compare(name: str, loop: object, module: object, data: ImageDataModule, steps: int, repeats: int) -> None:
    """Prints medians of both sides and their ratio."""
    loops, fits, validations = [], [], []
    for turn in range(repeats + 1):
        seed_everything(0)
        bare = loop(data, steps)
        fit, validation = trainer_seconds(module(), data, steps)
        if turn:  # the first turn warms up
            loops.append(bare)
            fits.append(fit)
            validations.append(validation)
    bare, fit = statistics.median(loops), statistics.median(fits)
    ratio = statistics.median(f / b for f, b in zip(fits, loops, strict=True))
    print(
        f"{name}: {steps} steps, loop {bare / steps * 1e3:.3f} ms/step, Trainer {fit / steps * 1e3:.3f} ms/step, "
        f"ratio {ratio:.3f} (median of {repeats} pairs), overhead {(fit - bare) / steps * 1e3:+.3f} ms/step; "
        f"validation and its checkpoints, not in the ratio: {statistics.median(validations):.2f} s"
    )


def main() -> None:
    """Runs the comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["complex", "simple"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--complex_steps", type=int, default=2000)
    parser.add_argument("--simple_steps", type=int, default=20)
    parser.add_argument("--paths", default="samples://astronaut", help="a 512 x 512 picture")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)  # Lightning's own, per step type
    data = ImageDataModule(options.paths)
    data.prepare_data()
    threads = torch.get_num_threads()
    print(f"{platform.machine()}, {threads} threads, torch {torch.__version__}; {Path(__file__).name} {options}")
    if options.only != "simple":
        compare(
            "complex", loop_complex, lambda: ComplexLinear("gau", center=False), data, options.complex_steps, options.repeats
        )
    if options.only != "complex":
        encoder = {"name": "gau", "num_features": 512, "sigma": 0.006}
        compare("simple", loop_simple, lambda: SimpleMLP(encoder), data, options.simple_steps, options.repeats)


if __name__ == "__main__":
    main()
