"""Writes ``phantom.tif``: the 3-D Shepp-Logan head phantom on 96 x 96 x 96 samples, 8 bits, as 96 pages.

    python datasets/make_phantom.py

The phantom is the sum of ten ellipsoids after Shepp and Logan (1974), in the usual three-dimensional form with increased
contrast. Each sample is the mean over 4 x 4 x 4 points, so that edges have intermediate grey levels, as in a scan.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tifffile

SIZE = 96
POINTS_PER_SAMPLE = 4  # along each axis

# contrast, half axes (x, y, z), centre (x, y, z) in [-1, 1], rotation about z in degrees
ELLIPSOIDS = (
    (1.0, (0.69, 0.92, 0.9), (0.0, 0.0, 0.0), 0.0),
    (-0.8, (0.6624, 0.874, 0.88), (0.0, 0.0, 0.0), 0.0),
    (-0.2, (0.41, 0.16, 0.21), (-0.22, 0.0, -0.25), 108.0),
    (-0.2, (0.31, 0.11, 0.22), (0.22, 0.0, -0.25), 72.0),
    (0.2, (0.21, 0.25, 0.5), (0.0, 0.35, -0.25), 0.0),
    (0.2, (0.046, 0.046, 0.046), (0.0, 0.1, -0.25), 0.0),
    (0.1, (0.046, 0.023, 0.02), (-0.08, -0.65, -0.25), 0.0),
    (0.1, (0.046, 0.023, 0.02), (0.06, -0.65, -0.25), 90.0),
    (0.2, (0.056, 0.04, 0.1), (0.06, -0.105, 0.625), 90.0),
    (-0.2, (0.056, 0.056, 0.1), (0.0, 0.1, 0.625), 0.0),
)


def phantom(size: int, points: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The phantom in [0, 1], ``(z, y, x)``; each of ``size³`` samples is the mean over ``points³`` points."""
    fine = (np.arange(size * points) + 0.5) / (size * points) * 2 - 1
    layers = []
    for z in fine.reshape(size, points):
        layer = np.zeros((points, size * points, size * points))
        for contrast, axes, centre, degrees in ELLIPSOIDS:
            angle = np.deg2rad(degrees)
            x, y = fine[None, None, :] - centre[0], -fine[None, :, None] - centre[1]  # y decreases with the row
            along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
            height = (z[:, None, None] - centre[2]) / axes[2]
            layer += contrast * ((along / axes[0]) ** 2 + (across / axes[1]) ** 2 + height**2 <= 1)
        layers.append(layer.reshape(points, size, points, size, points).mean((0, 2, 4)))
    return np.stack(layers)


if __name__ == "__main__":
    levels = np.rint(np.clip(phantom(SIZE, POINTS_PER_SAMPLE), 0, 1) * 255).astype(np.uint8)
    tifffile.imwrite(Path(__file__).with_name("phantom.tif"), levels, photometric="minisblack", compression="zlib")
