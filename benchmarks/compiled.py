"""Whether ``torch.compile`` makes a training step of the perceptrons faster.

    python benchmarks/compiled.py                  # a minute or two; needs a C++ compiler on a CPU
    python benchmarks/compiled.py --width 512 --points 262144

Forward, backward and fused Adam of ``S`` perceptrons, plain and compiled in turns, in one process; medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import torch
from quiet import machine

from pe_lightning.modules.mlp import SignalMLP


def main() -> None:
    """Prints a row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--signals", type=int, default=1)
    parser.add_argument("--points", type=int, default=65536)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = SignalMLP(options.signals, options.features, 3, options.depth, options.width).to(device)
    features = torch.rand(1, options.points, options.features, device=device)
    target = torch.rand(options.signals, options.points, 3, device=device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def step(forward: torch.nn.Module) -> tuple[float, float]:
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = (forward(features) - target).square().mean()
        loss.backward()
        optimizer.step()
        value = loss.item()  # waits for the device
        return time.perf_counter() - start, value

    compiled = torch.compile(model)
    with torch.no_grad():
        difference = (model(features) - compiled(features)).abs().max().item()
    first = step(compiled)[0]
    step(model)
    plain, fast = zip(*[(step(model)[0], step(compiled)[0]) for _ in range(options.repeats)], strict=True)
    ratio = statistics.median(a / b for a, b in zip(plain, fast, strict=True))
    print(f"{machine()}; load {os.getloadavg()[0]:.1f}")
    medians = [statistics.median(side) * 1e3 for side in (plain, fast)]
    print(f"a step: plain {medians[0]:.2f} ms, compiled {medians[1]:.2f} ms, {ratio:.2f} x")
    print(f"first compiled step {first:.1f} s; largest difference of the values {difference:.1e}")


if __name__ == "__main__":
    main()
