"""Closed-form fits on grids: quality, time, size. Prints one table per section.

    python benchmarks/solvers.py                                     # everything, some minutes on two cores
    python benchmarks/solvers.py --only quality --paths FOLDER       # PNGs of one size, such as natural16
    python benchmarks/solvers.py --only large,stream --size 1024     # a smaller picture

- ``quality``: test PSNR of the closed form with ``ridge: auto`` and ``sigma: auto``, of plain float32 least squares per
  image (what the papers' code does), and of bicubic interpolation. Protocol: trained on every second sample of each axis,
  scored on all the others, mean of the PSNR per image.
- ``time``: from encoded axes to the weights of all images, against plain least squares, and the products that no exact
  method avoids.
- ``large``: ``--size``^2 RGB, fit and evaluation of all pixels, compact kernels on and off, and the plain dense route.
- ``threads``: exact fits while other programs use every core, with all threads and with the number that is chosen.
- ``stream``: twice ``--size``, from HDF5 tiles and back, with the peak of the resident memory.

Every comparison runs in one process, sides in turn, medians of ``--repeats``.
"""

from __future__ import annotations

import argparse
import os
import platform
import warnings
from pathlib import Path

import torch
from solvers_large import large
from solvers_quality import load, quality
from solvers_stream import stream
from solvers_threads import loaded
from solvers_time import timing

SECTIONS = ("quality", "time", "large", "stream", "threads")


def main(arguments: list[str] | None = None) -> None:
    """Runs the sections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--paths", nargs="+", help="pictures of one size, or a folder; default: samples of scikit-image")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--size", type=int, default=4096, help="side of the large picture, and half that of the stream")
    options = parser.parse_args(arguments)
    chosen = options.only.split(",")
    if not set(chosen) <= set(SECTIONS):
        parser.error(f"--only takes {', '.join(SECTIONS)}; got {options.only}")
    cores = f"{torch.get_num_threads()} threads of {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{Path(__file__).name} {options.only}: {_processor()}, {cores}, torch {torch.__version__}", flush=True)
    # the picture with the least memory first: the peak of a process never falls
    if "stream" in chosen:
        stream(2 * options.size)
    if {"quality", "time"} & set(chosen):
        images = load(options.paths)
        print(f"\n{len(images)} pictures of {' x '.join(map(str, images.shape[1:]))}: {options.paths or 'scikit-image'}")
        if "quality" in chosen:
            quality(images)
        if "time" in chosen:
            timing(images, options.repeats)
    if "large" in chosen:
        large(options.size, options.repeats)
    if "threads" in chosen:
        loaded()


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    warnings.filterwarnings("error", category=RuntimeWarning)
    main()
