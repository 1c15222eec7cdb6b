"""Many pictures in one fit against the same pictures one after another: milliseconds per picture and step.

    python benchmarks/together.py --paths FOLDER     # all pictures of a folder, one size

Complex encoding, gau, K = 256 per axis, every second pixel; both sides run under a Trainer, in one process, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from quiet import machine, make_trainer

from pe_lightning.training import ComplexLinear, ImageDataModule, TensorDataModule

REPEATS = 5


def seconds(data: TensorDataModule, steps: int) -> tuple[float, ComplexLinear]:
    """Seconds of a fit, and the fitted module."""
    module = ComplexLinear({"name": "gau", "sigma": 0.004})
    trainer = make_trainer(steps)
    start = time.perf_counter()
    trainer.fit(module, datamodule=data)
    return time.perf_counter() - start, module


def main() -> None:
    """Prints both times, their ratio and the largest difference of the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paths", nargs="+", default=["samples://astronaut", "samples://retina"])
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    pictures = ImageDataModule(options.paths, center_crop=512)
    everything = TensorDataModule(pictures.values)
    single = [TensorDataModule(values[None]) for values in pictures.values]
    count = len(single)
    together, in_turn, difference = [], [], 0.0
    for turn in range(REPEATS + 1):
        joint, module = seconds(everything, options.steps)
        parts = [seconds(data, options.steps) for data in single]
        if turn:  # the first turn warms up
            together.append(joint)
            in_turn.append(sum(part for part, _ in parts))
        alone = torch.cat([part.weight.detach() for _, part in parts])
        difference = max(difference, float((alone - module.weight.detach()).abs().max() / alone.abs().max()))
    scale = 1e3 / (count * options.steps)
    ratios = [b / a for a, b in zip(together, in_turn, strict=True)]
    print(f"{machine()}; {count} pictures of {pictures.info.grid}, {options.steps} steps, medians of {REPEATS} turns")
    print(f"together  {statistics.median(together) * scale:.3f} ms per picture and step")
    print(f"in turn   {statistics.median(in_turn) * scale:.3f} ms per picture and step")
    print(f"in turn / together {statistics.median(ratios):.2f}; weights differ by at most {difference:.1e} of the largest")


if __name__ == "__main__":
    main()
