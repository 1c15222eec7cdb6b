"""Wall and CPU seconds and context switches of exact fits, with one thread and with the default number.

``fill`` of a picture of 512 x 768 of which a quarter is known, and of one of 64 x 64 without three lines; ``fit`` of a
quarter of the samples of a picture. Every case is a new process. ``--busy 2`` runs two busy processes beside them. Then, in
this process, exact fits of 16 pictures beside the authors' closed form: one pseudo-inverse per axis.

Wall times depend on other programs: both sides take turns, and the table has the least of ``--repeats``. The column
``path`` does not: the CPU seconds of the main thread, plus those of the other threads divided by their number, over all CPU
seconds. It is the ratio of the wall times on a machine without other programs, if all blocks took equally long.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import busy_cores, machine
from PIL import Image
from skimage import data
from solvers import coordinates

from pe_lightning import encoders
from pe_lightning.solvers import solve_grid

PROGRAM = """
import sys, time
from pe_lightning.__main__ import main
status = main(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    print(time.thread_time(), time.process_time(), file=file)
sys.exit(status)
"""
RANDOM = ["--data.sampling", "random", "--data.sampling.fraction", "0.25"]


def cases(folder: Path) -> dict[str, list[str]]:
    """Writes pictures and masks; returns the arguments of the command by case."""
    picture: np.ndarray[Any, Any] = data.astronaut()  # type: ignore[no-untyped-call]
    wide = np.concatenate([picture, picture[:, :255:-1]], 1)
    random = np.random.default_rng(0).random(wide.shape[:2]) > 0.25
    lines = np.zeros((64, 64), bool)
    lines[[10, 30, 50]] = True
    for name, values, missing in (("quarter", wide, random), ("lines", picture[96:160, 200:264], lines)):
        Image.fromarray(values).save(folder / f"{name}.png")
        Image.fromarray(missing.astype(np.uint8) * 255).save(folder / f"{name}_mask.png")
    Image.fromarray(picture[64:192, 160:288]).save(folder / "fit.png")
    found = {
        f"fill {name}": ["fill", f"{name}.png", "--missing", f"{name}_mask.png", "--out", f"{name}_out.png", "--force"]
        for name in ("lines", "quarter")
    }
    return {**found, "fit random": ["fit", "fit.png", *RANDOM]}


def run(arguments: list[str], folder: Path, threads: int | None) -> tuple[float, float, int, float]:
    """Wall and CPU seconds, voluntary context switches and path of a command, with some number of threads or the default."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_"))}
    if threads:
        environment["OMP_NUM_THREADS"] = str(threads)
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "seconds", *arguments], cwd=folder, env=environment, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    wall = time.perf_counter() - began
    first, every = map(float, (folder / "seconds").read_text().split())
    path = (first + (every - first) / (threads or os.cpu_count() or 1)) / every
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_nvcsw, path


def commands(names: list[str], repeats: int) -> None:
    """Prints the table of commands."""
    print(f"\n{'':14}{'one thread: wall, CPU, switches':>34}{'default':>34}{'wall':>8}{'CPU':>6}{'path':>6}")
    with tempfile.TemporaryDirectory() as name:
        for case, arguments in ((c, a) for c, a in cases(Path(name)).items() if c in names):
            runs = [[run(arguments, Path(name), threads) for threads in (1, None)] for _ in range(repeats)]
            least = [tuple(min(column) for column in zip(*side, strict=True)) for side in zip(*runs, strict=True)]
            columns = "".join(f"{wall:14.2f}{cpu:9.2f}{switches:11,}" for wall, cpu, switches, _ in least)
            (wall, cpu, *_), (other, more, _, path) = least
            print(f"{case:14}{columns}{other / wall:8.2f}{more / cpu:6.2f}{path:6.2f}", flush=True)


def measured(solve: Callable[[], object]) -> tuple[float, float, float]:
    """Wall and CPU seconds of a call, and CPU seconds of this thread."""
    wall, cpu, first = time.perf_counter(), time.process_time(), time.thread_time()
    solve()
    return time.perf_counter() - wall, time.process_time() - cpu, time.thread_time() - first


def closed_form(repeats: int, pictures: int = 16, size: int = 512, features: int = 256) -> None:
    """Prints the table of exact fits on a grid, on every second sample of pictures."""
    values = torch.rand(pictures, size // 2, size // 2, 3, generator=torch.Generator().manual_seed(0))
    axes = [coordinates(size)[::2]] * 2
    print(
        f"\n{pictures} pictures of {size} x {size}, every second sample, {features} features per axis; ms: wall, CPU, path"
    )
    for name in ("gau", "tri", "linf"):
        description: dict[str, Any] = {"name": name, "num_features": features}
        psi = encoders.create(name, num_features=features)(axes[0]).float()

        def authors(psi: torch.Tensor = psi) -> torch.Tensor:
            first, second = (torch.linalg.pinv(psi) for _ in axes)
            weights: torch.Tensor = first @ values.movedim(-1, 1) @ second.mT
            return weights

        def ours(description: dict[str, Any] = description) -> object:
            return solve_grid(values, description, axes, ridge=1e-3)

        sides: tuple[Callable[[], object], ...] = (authors, ours)
        runs = [[measured(side) for side in sides] for _ in range(repeats)]
        # OpenMP threads work beside the main thread, those of the pool while it waits
        paths = [
            min(first if shared else first + (cpu - first) / torch.get_num_threads() for _, cpu, first in side)
            for shared, side in zip((True, False), zip(*runs, strict=True), strict=True)
        ]
        (a, b, _), (c, d, _) = [map(min, zip(*side, strict=True)) for side in zip(*runs, strict=True)]
        print(
            f"{name:6} authors {1e3 * a:8.1f}{1e3 * b:8.1f}{1e3 * paths[0]:8.1f}   ours {1e3 * c:8.1f}{1e3 * d:8.1f}"
            f"{1e3 * paths[1]:8.1f}   wall {c / a:5.2f}   path {paths[1] / paths[0]:5.2f}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=int, default=0, help="busy processes beside the fits")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="fill lines,fill quarter,fit random,grid", help="cases, separated by commas")
    options = parser.parse_args()
    print(f"threads.py: {machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.busy} busy processes")
    with busy_cores(options.busy):
        commands(options.only.split(","), options.repeats)
        if "grid" in options.only.split(","):
            closed_form(options.repeats)
