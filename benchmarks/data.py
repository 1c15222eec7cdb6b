"""Signals: what the cache saves, what streaming costs, how fast points arrive. Prints one table per section.

    python benchmarks/data.py                              # everything; needs 4.3 GB of disk, minutes on two cores
    python benchmarks/data.py --only cube --side 256       # a quick look
    python benchmarks/data.py --only cube --folder /data   # where the cube is written, and deleted afterwards

- ``cache``: time to the first batch of a video, on the first run and on the second.
- ``points``: points per second to a step that does nothing, against indexing one tensor.
- ``cube``: ``--side``^3 float32 samples in HDF5: an epoch of points and exact fits without loading them, with the peak of
  the resident memory, against a plain read of the file. Each line runs in a process of its own.

Sides take turns, medians of ``--repeats``. Nothing is dropped from the page cache of the system.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from data_cache import cache
from data_cube import cube
from data_points import points
from quiet import machine

SECTIONS = ("cache", "points", "cube")


def main(arguments: list[str] | None = None) -> None:
    """Runs the sections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--side", type=int, default=1024, help="of the cube, in samples")
    parser.add_argument("--folder", help="for the cube; default: the system's for temporary files")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    chosen = options.only.split(",")
    if not set(chosen) <= set(SECTIONS):
        parser.error(f"--only takes {', '.join(SECTIONS)}; got {options.only}")
    if options.side < 8 or options.repeats < 1:
        parser.error("--side is at least 8, --repeats at least 1")
    load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{Path(__file__).name} {options.only}: {machine()}, {load}", flush=True)
    if "cube" in chosen:  # first: it measures memory
        cube(options.side, options.folder, options.repeats)
    if "cache" in chosen:
        cache(options.repeats)
    if "points" in chosen:
        points(options.repeats)


if __name__ == "__main__":
    main()
