"""What several devices have to compute and to exchange, on paper: the numbers of docs/scaling.md.

    python benchmarks/scaling.py
    python benchmarks/scaling.py --tflops 19.5 --near 300 --far 12.5      # another device, another network

Nothing is measured. A step is one full-batch gradient of the complex encoding's linear layer in float32; a solve is the
exact fit. Work is counted in multiplications and additions, the exchange is a ring all-reduce, each message costs a latency.
"""

from __future__ import annotations

import argparse
import math

from pe_lightning.linalg import contraction_order

CASES = {
    # name: trained samples per axis, features per axis, channels
    "8192^2 RGB image, every 2nd sample, K = 2048": ((4096, 4096), (2048, 2048), 3),
    "1024^3 volume, every 2nd sample, K = 128": ((512, 512, 512), (128, 128, 128), 1),
}
LATENCY = 20e-6
"""Seconds until a message of an all-reduce moves, per pass around the ring within and between machines."""
COLUMNS = (9, 10, 12, 9, 10, 11, 9, 10)
NEIGHBOURS = 8
"""Devices of one machine, which exchange faster."""


def products(sizes: tuple[int, ...], widths: tuple[int, ...]) -> int:
    """Operations of mode products that take ``sizes`` to ``widths``, in the order with the fewest."""
    current, total = list(sizes), 0
    for axis in contraction_order(sizes, widths):
        total += 2 * math.prod(current) * widths[axis]
        current[axis] = widths[axis]
    return total


def seconds(count: int, options: argparse.Namespace) -> float:
    """Seconds of ``count`` operations."""
    return count / (options.tflops * 1e12)


def exchange(size: int, devices: int, options: argparse.Namespace) -> float:
    """Seconds of a ring all-reduce of ``size`` bytes."""
    if devices == 1:
        return 0.0
    rate = (options.near if devices <= NEIGHBOURS else options.far) * 1e9
    return 2 * (devices - 1) / devices * size / rate + LATENCY * math.ceil(math.log2(devices))


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tflops", type=float, default=67.0, help="float32 operations of a device, 1e12 a second")
    parser.add_argument("--near", type=float, default=450.0, help="GB/s to a device of the same machine, one way")
    parser.add_argument("--far", type=float, default=50.0, help="GB/s to a device of another machine, one way")
    options = parser.parse_args()
    print(f"{options.tflops:g} TFLOP/s, {options.near:g} GB/s within {NEIGHBOURS} devices, {options.far:g} GB/s beyond")
    for name, (grid, widths, channels) in CASES.items():
        weights = 4 * channels * math.prod(widths)
        forward = channels * products(widths, grid)
        gram = channels * products(widths, widths)
        factor = sum(14 * n * k * k for n, k in zip(grid, widths, strict=True))  # bidiagonalisation and both bases
        project = channels * products(grid, widths)
        print(
            f"\n{name}: {math.prod(grid):.3g} samples, {channels * math.prod(widths):.3g} weights ({weights / 1e6:.3g} MB)"
        )
        print(f"  a step through the samples {2 * forward:.3g} operations, by Gram matrices {gram:.3g}")
        print(f"  a solve {project:.3g} operations shared, {factor + gram:.3g} on every device")
        titles = zip(
            ("devices", "compute", "all-reduce", "step", "speed-up", "Gram step", "solve", "speed-up"), COLUMNS, strict=True
        )
        print("".join(f"{title:>{width}}" for title, width in titles))
        alone = [0.0, 0.0]
        for devices in (1, 8, 64):
            compute, wait = seconds(2 * forward // devices, options), exchange(weights, devices, options)
            # the factors are float64, at half the rate
            solve = seconds(project // devices, options) + seconds(2 * factor + gram, options) + wait
            step = compute + wait
            if devices == 1:
                alone = [step, solve]
            times = "".join(f"{1e3 * t:>{w}.2f}" for t, w in ((compute, 10), (wait, 12), (step, 9)))
            print(
                f"{devices:>9}{times}{alone[0] / step:>10.1f}{1e3 * seconds(gram, options):>11.2f}{1e3 * solve:>9.2f}"
                f"{alone[1] / solve:>10.1f}"
            )
    print("\nmilliseconds; speed-up against one device")


if __name__ == "__main__":
    main()
