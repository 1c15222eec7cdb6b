"""Longer training by the command line: held-out dB of every encoder after 200 and 2000 steps, against interpolation.

    python benchmarks/steps.py                                    # astronaut, as it is and at 256 x 256: ten minutes
    python benchmarks/steps.py --encoders gau rff --resize 512 -- --model.optimizer Adam --model.optimizer.lr 0.1

Each row is the recipe of the demo with another encoder; what follows ``--`` is added to every command. ``chirp`` is the
encoder of the tests' plugin. A row ends with ``DIVERGED`` (no finite number), ``below nearest`` or ``longer is worse`` (by
more than 0.1 dB, each number of steps against the fewest) where that is so.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

from quiet import machine

from pe_lightning.__main__ import main as command

ROOT = Path(__file__).parents[1]
ENCODERS = ["linf", "logf", "rff", "tri", "gau", "laplace", "bspline", "keys", "chirp"]
sys.path.append(str(ROOT / "tests" / "plugin_project"))


def fitted(arguments: list[str]) -> dict[str, Any]:
    """The ``metrics.json`` of a command."""
    quiet = ["--wandb.enabled", "false", "--trainer.enable_progress_bar", "false", "--trainer.accelerator", "cpu"]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as output:
        if command(["fit", *arguments, *quiet, "--trainer.default_root_dir", folder]) != 0:
            raise SystemExit(output.getvalue())
        (path,) = Path(folder).rglob("metrics.json")
        found: dict[str, Any] = json.loads(path.read_text())
    return found


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoders", nargs="+", default=ENCODERS)
    parser.add_argument("--config", default=str(ROOT / "configs" / "image" / "demo.yaml"))
    parser.add_argument("--paths", default="samples://astronaut")
    parser.add_argument("--resize", nargs="+", type=int, default=[512, 256])
    parser.add_argument("--steps", nargs="+", type=int, default=[200, 2000])
    parser.add_argument("rest", nargs="*", help="further options of every command, after --")
    options = parser.parse_args()
    print(machine())
    for size in options.resize:
        print(f"\n{size} x {size}   held-out dB (training dB)")
        for number, name in enumerate(options.encoders):
            scores, seen = [], []
            for steps in options.steps:
                arguments = ["--config", options.config, "--data.paths", options.paths, "--data.resize", str(size)]
                arguments += ["--model.encoder", "pe_chirp.Chirp" if name == "chirp" else name]
                found = fitted([*arguments, "--trainer.max_steps", str(steps), *options.rest])
                scores.append(found["test/psnr"])
                seen.append(found["train/psnr"])
            baselines = {name: row["test/psnr"] for name, row in found["baselines"].items()}
            if number == 0:
                print(f"{'steps':<10}" + "".join(f"{steps:>16}" for steps in options.steps))
                print(f"{'':<10}" + ", ".join(f"{name} {score:.2f}" for name, score in baselines.items()))
            verdicts = {
                "DIVERGED": not all(map(math.isfinite, [*scores, *seen])),
                "below nearest": min(scores) < baselines["nearest"],
                "longer is worse": min(scores) < scores[0] - 0.1,
            }
            row = "".join(f"{f'{score:.2f} ({train:.1f})':>16}" for score, train in zip(scores, seen, strict=True))
            print(f"{name:<10}{row}   {', '.join(text for text, holds in verdicts.items() if holds)}", flush=True)


if __name__ == "__main__":
    main()
