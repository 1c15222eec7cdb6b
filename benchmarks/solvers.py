"""Closed-form fits on grids: quality, and time beside other programs. Prints one table per section.

    python benchmarks/solvers.py                                     # everything, some minutes on two cores
    python benchmarks/solvers.py --only quality --paths FOLDER       # PNGs of one size, such as natural16

- ``quality``: test PSNR of the closed form with ``ridge: auto`` and ``sigma: auto``, of plain float32 least squares per
  image (what the papers' code does), and of bicubic interpolation. Protocol: trained on every second sample of each axis,
  scored on all the others, mean of the PSNR per image.
- ``threads``: exact fits while other programs use every core, with all threads and with the number that is chosen.
Every comparison runs in one process, sides in turn.
"""

from __future__ import annotations

import argparse
import os
import platform
import warnings
from pathlib import Path

import torch
from solvers_quality import load, quality
from solvers_threads import loaded

SECTIONS = ("quality", "threads")


def main(arguments: list[str] | None = None) -> None:
    """Runs the sections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--paths", nargs="+", help="pictures of one size, or a folder; default: samples of scikit-image")
    options = parser.parse_args(arguments)
    chosen = options.only.split(",")
    if not set(chosen) <= set(SECTIONS):
        parser.error(f"--only takes {', '.join(SECTIONS)}; got {options.only}")
    cores = f"{torch.get_num_threads()} threads of {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{Path(__file__).name} {options.only}: {_processor()}, {cores}, torch {torch.__version__}", flush=True)
    if "quality" in chosen:
        images = load(options.paths)
        print(f"\n{len(images)} pictures of {' x '.join(map(str, images.shape[1:]))}: {options.paths or 'scikit-image'}")
        quality(images)
    if "threads" in chosen:
        loaded()


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    warnings.filterwarnings("error", category=RuntimeWarning)
    main()
