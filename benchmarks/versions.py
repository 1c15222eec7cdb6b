"""Two checkouts of this package against each other: seconds of the same work, in turn, and the ratio new / old.

    git worktree add /tmp/before REVISION
    python benchmarks/versions.py /tmp/before                    # all cases, five turns each: about half an hour
    python benchmarks/versions.py /tmp/before --cases demo help --repeats 3

``closed_form``: 16 pictures of 512 x 512, every second sample, from axes to weights, five encoders. ``points``: 25 % of
four pictures by conjugate gradients. ``step_gau``, ``step_rff``: a gradient step with everything that ``pe-lightning fit``
switches on (the run's own ``fit_seconds`` by its steps). ``demo``: the demo command. ``help``: ``fit --help``. ``report``:
``compare`` of 20 runs. ``sweep``: 15 cells. Old and new take turns, so that what else the machine does meets both; the
processor time of all threads is shown too, which says more on a machine that is not quiet.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

SOLVE = """
import time, torch
from pe_lightning.solvers import {imports}
torch.manual_seed(0)
x = torch.arange(512) / 512
values = torch.rand({count}, 64, 64, 3).repeat_interleave(8, 1).repeat_interleave(8, 2)
def work():
    {work}
work()
began, cpu = time.perf_counter(), time.process_time()
work()
print(time.perf_counter() - began, time.process_time() - cpu)
"""
CLOSED_FORM = SOLVE.format(
    imports="solve_grid",
    count=16,
    work="""for name in ("linf", "logf", "rff", "tri", "gau"):
        axes = [x[::2] + 1e-7 * torch.rand(1)] * 2  # new coordinates: no factorisation is remembered
        solve_grid(values[:, ::2, ::2], {"name": name, "num_features": 256}, axes, ridge=1e-3)""",
)
POINTS = SOLVE.format(
    imports="solve_points",
    count=4,
    work="""index = torch.stack([torch.randperm(512 * 512)[: 512 * 128].sort().values for _ in range(4)])
    known = values.flatten(1, 2).gather(1, index[..., None].expand(-1, -1, 3))
    solve_points(known, {"name": "laplace", "num_features": 512, "scale": 0.004}, axes=[x, x], index=index, ridge=0.06)""",
)
STEPS = 600
QUIET = ["--wandb.enabled", "false", "--trainer.enable_progress_bar", "false", "--trainer.accelerator", "cpu"]
DEMO = ["fit", "--config", "configs/image/demo.yaml", "--trainer.default_root_dir", "{folder}"]
ENCODERS = ["linf", "logf", "rff", "tri", "gau"]


def command(checkout: Path, *arguments: str) -> list[float]:
    """Wall-clock and processor seconds of a command of a checkout."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(checkout), "WANDB_MODE": "offline"}
    done = subprocess.run(
        [sys.executable, "-m", "pe_lightning", *arguments], cwd=checkout, env=environment, capture_output=True, text=True
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{checkout}: pe-lightning {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return [wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime]


def script(checkout: Path, code: str) -> list[float]:
    """The two numbers that a script prints."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def gradient_step(checkout: Path, folder: Path, encoder: str) -> list[float]:
    """Milliseconds of a step, twice: only the wall clock is known."""
    arguments = [word.format(folder=folder) for word in DEMO]
    command(checkout, *arguments, *QUIET, "--model.encoder", encoder, "--trainer.max_steps", str(STEPS))
    (metrics,) = folder.rglob("metrics.json")
    step = 1e3 * json.loads(metrics.read_text())["fit_seconds"] / STEPS
    return [step, step]


def report(checkout: Path, folder: Path) -> list[float]:
    """``compare`` of 20 copies of a run."""
    arguments = ["--data.paths", "[samples://astronaut,samples://coffee]", "--data.resize", "256"]
    closed = ["fit", "--config", "configs/image/closed_form.yaml", "--trainer.default_root_dir", str(folder)]
    command(checkout, *closed, *QUIET, *arguments)
    (run,) = (folder / "runs").glob("*/*")
    for number in range(2, 21):
        shutil.copytree(run, run.with_name(str(number)))
    return command(checkout, "compare", str(folder / "runs"), "--out", str(folder / "report"))


def sweep(checkout: Path, folder: Path) -> list[float]:
    """15 exact fits."""
    fit = ["--config", "configs/image/closed_form.yaml", "--data.resize", "256", *QUIET]
    vary = ["--vary", f"model.encoder={','.join(ENCODERS)}", "--vary", "data.sampling.stride=2,3,4"]
    return command(checkout, "sweep", *vary, "--out", str(folder / "sweep"), *fit)


CASES = {
    "closed_form": lambda checkout, folder: script(checkout, CLOSED_FORM),
    "points": lambda checkout, folder: script(checkout, POINTS),
    "step_gau": lambda checkout, folder: gradient_step(checkout, folder, "gau"),
    "step_rff": lambda checkout, folder: gradient_step(checkout, folder, "rff"),
    "demo": lambda checkout, folder: command(checkout, *(word.format(folder=folder) for word in DEMO)),
    "help": lambda checkout, folder: command(checkout, "fit", "--help"),
    "report": report,
    "sweep": sweep,
}


def main() -> None:
    """Prints a row per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="checkout to compare with")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    checkouts = [options.old.resolve(), Path(__file__).resolve().parents[1]]
    print(f"{torch.get_num_threads()} threads; load {os.getloadavg()[0]:.1f} before")
    print(f"{'':<12} {'old':>8} {'new':>8} {'new / old':>10} {'processor time':>15}   medians of {options.repeats}")
    for case in options.cases:
        turns: list[list[list[float]]] = []
        for _ in range(options.repeats):
            turn = []
            for checkout in checkouts:
                with tempfile.TemporaryDirectory() as folder:
                    turn.append(CASES[case](checkout, Path(folder)))
            turns.append(turn)
        old, new = (statistics.median(turn[side][0] for turn in turns) for side in (0, 1))
        wall, cpu = (statistics.median(turn[1][kind] / turn[0][kind] for turn in turns) for kind in (0, 1))
        print(f"{case:<12} {old:8.3f} {new:8.3f} {wall:10.2f} {cpu:15.2f}", flush=True)


if __name__ == "__main__":
    main()
