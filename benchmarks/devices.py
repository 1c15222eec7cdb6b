"""One process against two: parameters, PSNR and time per step, through the command line.

    python benchmarks/devices.py                  # four pictures of 101 x 96; some minutes on two cores
    python benchmarks/devices.py --steps 50 --resize 64 64

Two processes on one machine (gloo), one thread each, and so is the one process. Both sides of a row are fitted one after the
other with the same seed; differences are the largest of any parameter, relative to the largest parameter, and of any
picture's test PSNR. What of them is rounding that training amplifies is gone in float64. Time per step is ``fit_seconds``
over the steps and includes what a process waits for the other.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from quiet import machine

ROOT = Path(__file__).parents[1]
PICTURES = "[samples://astronaut, samples://coffee, samples://chelsea, samples://rocket]"
POINTS = ["--data.batching.kind", "points", "--data.batching.size", "1024"]
CASES: dict[str, tuple[str, str, list[str]]] = {
    # name: recipe, strategy, arguments
    "whole sub-grid": ("demo.yaml", "ddp", []),
    "blocks": ("demo.yaml", "ddp", ["--data.batching.kind", "blocks", "--data.batching.size", "17"]),
    "points": ("demo.yaml", "ddp", POINTS),
    "points, MLP": ("simple_mlp.yaml", "ddp", [*POINTS, "--model.width", "64"]),
    "points, MLP, float64": (
        "simple_mlp.yaml",
        "ddp",
        [*POINTS, "--model.width", "64", "--trainer.precision", "64-true"],
    ),
    "own signals": ("demo.yaml", "signals", []),
    "closed form": ("closed_form.yaml", "ddp", []),
    "closed form, own signals": ("closed_form.yaml", "signals", []),
}


def fit(folder: Path, recipe: str, arguments: list[str]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Runs one fit; its ``metrics.json`` and its parameters."""
    command = [sys.executable, "-m", "pe_lightning", "fit", "--config", str(ROOT / "configs/image" / recipe), *arguments]
    command += ["--trainer.accelerator", "cpu", "--trainer.default_root_dir", str(folder), "--wandb.enabled", "false"]
    command += ["--trainer.enable_progress_bar", "false", "--trainer.check_val_every_n_epoch", "1000000"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    (run,) = folder.glob("runs/*/*")
    state = torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    return json.loads((run / "metrics.json").read_text()), state


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paths", default=PICTURES, help="pictures, as for --data.paths")
    parser.add_argument("--resize", type=int, nargs=2, default=[101, 96])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    options = parser.parse_args()
    print(f"{machine()}, load {os.getloadavg()[0]:.1f}")
    print(f"{options.steps} steps, pictures of {options.resize}, one thread a process\n")
    print(f"{'':26}{'parameters':>12}{'PSNR, dB':>12}{'1, ms/step':>12}{'2, ms/step':>12}{'ratio':>8}")
    for name in options.only:
        recipe, strategy, arguments = CASES[name]
        both = ["--data.paths", options.paths, "--data.resize", str(options.resize), *arguments]
        steps = 0 if recipe == "closed_form.yaml" else options.steps
        both += ["--trainer.max_steps", str(steps)]
        with tempfile.TemporaryDirectory() as folder:
            one, mine = fit(Path(folder) / "one", recipe, both)
            share = ["--trainer.devices", "2", "--trainer.strategy", strategy]
            two, theirs = fit(Path(folder) / "two", recipe, [*both, *share])
        largest = max(
            float((theirs[key] - value).abs().max() / value.abs().max().clamp_min(1e-30)) for key, value in mine.items()
        )
        scores = zip(one["test/psnr_per_signal"], two["test/psnr_per_signal"], strict=True)
        psnr = max(abs(a - b) for a, b in scores)
        times = [1e3 * run["fit_seconds"] / max(steps, 1) for run in (one, two)]
        print(
            f"{name:26}{largest:>12.1e}{psnr:>12.1e}{times[0]:>12.2f}{times[1]:>12.2f}{times[0] / times[1]:>8.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
