"""Writes the synthetic signals of INR-benchmark as arrays ``.npy``: band-limited noise, balls, triangles, a star.

    python datasets/make_benchmark.py --out signals
    python datasets/make_benchmark.py --out signals --axes 3 --size 100 --seeds 1234 2024

Each kind but the star has nine levels ``0.1`` to ``0.9`` of detail. The numbers of the paper's program are kept; random
numbers are those of NumPy's ``Generator``, so that noise and balls have its distribution, not its samples.

Reference: *Grids Often Outperform Implicit Neural Representations*, 2025; its program github.com/voilalab/INR-benchmark.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

LEVELS = tuple(round(0.1 * n, 1) for n in range(1, 10))
LOWEST_BAND, HIGHEST_BAND, BASE = 0.0015, 0.7, 300.0
"""Bands of the levels 0.1 and 0.9, relative to the corner of the spectrum, and the base of the levels between."""
OCCUPIED = 0.1
"""Volume of all balls, relative to that of the grid; balls may overlap."""
RAYS, MARGIN = 40, 20
"""Triangles of the star, and pixels between it and the edge of a picture of 1,000."""


def noise(shape: tuple[int, ...], level: float, seed: int) -> Array:
    """Uniform white noise, without frequencies beyond the band of the level divided by sqrt(2), in cycles per sample."""
    share = (BASE ** (1 + (level - 0.9) / 0.8) - 1) / (BASE - 1)
    radius = (LOWEST_BAND + share * (HIGHEST_BAND - LOWEST_BAND)) / math.sqrt(2)
    spectrum = np.fft.fftn(np.random.default_rng(seed).random(shape))
    squares = sum(np.square(f) for f in np.meshgrid(*map(np.fft.fftfreq, shape), indexing="ij", sparse=True))
    return np.fft.ifftn(np.where(squares <= radius**2, spectrum, 0)).real.astype(np.float32)


def balls(shape: tuple[int, ...], level: float, seed: int) -> Array:
    """Ones within ``side / (100 * level)`` samples of random centres (discs in two dimensions), zeros elsewhere."""
    axes, radius = len(shape), shape[0] / (100 * level)
    volume = math.pi ** (axes / 2) * radius**axes / math.gamma(1 + axes / 2)
    centres = np.random.default_rng(seed).random((int(OCCUPIED * math.prod(shape) / volume), axes)) * shape
    signal = np.zeros(shape, np.float32)
    reach = math.ceil(radius)
    for centre in centres:  # the cube around each
        part = tuple(slice(max(0, int(c) - reach), min(n, int(c) + reach + 2)) for c, n in zip(centre, shape, strict=True))
        places = np.ogrid[part]
        signal[part][sum((at - c) ** 2 for at, c in zip(places, centre, strict=True)) <= radius**2] = 1
    return signal


def sierpinski(size: int, level: float) -> Array:
    """Ones in a Sierpinski triangle of depth ``10 * level - 1``, whose base and height fill the picture."""
    down, right = (np.mgrid[:size, :size] + 0.5) / size
    signal, side = (down >= 2 * np.abs(right - 0.5)), 1.0
    corners = [
        1 - down,
        right - 0.5 + down / 2,
        0.5 - right + down / 2,
    ]  # barycentric coordinates: one at the corner, sum one
    for _ in range(round(10 * level - 1)):
        near = [each >= side / 2 for each in corners]
        signal &= near[0] | near[1] | near[2]  # the triangle in the middle is near none
        corners = [each - some * side / 2 for each, some in zip(corners, near, strict=True)]
        side /= 2
    return signal.astype(np.float32)


def star(size: int) -> Array:
    """Ones in every second one of 80 equal sectors of a disc."""
    down, right = np.mgrid[:size, :size] - size // 2
    sector = np.floor(np.arctan2(down, right) % (2 * math.pi) / (math.pi / RAYS)).astype(int)
    radius = size // 2 - round(MARGIN * size / 1000)
    return ((sector % 2 == 0) & (np.hypot(down, right) <= radius)).astype(np.float32)


def signals(axes: int, size: int, seeds: list[int]) -> Iterator[tuple[str, Array]]:
    """Names and arrays of all signals: two kinds in three dimensions, four in two."""
    for level in LEVELS:
        for seed in seeds:
            yield f"noise-{level}-{seed}", noise((size,) * axes, level, seed)
            yield f"balls-{level}-{seed}", balls((size,) * axes, level, seed)
        if axes == 2:
            yield f"sierpinski-{level}", sierpinski(size, level)
    if axes == 2:
        yield "star", star(size)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the arrays")
    parser.add_argument("--axes", type=int, default=2, choices=(2, 3))
    parser.add_argument("--size", type=int, default=1000, help="samples per axis")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1234], help="of noise and balls")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name, signal in signals(given.axes, given.size, given.seeds):
        np.save(given.out / f"{name}.npy", signal)
