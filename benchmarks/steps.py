"""Longer training by the command line: held-out dB of every encoder after 200 and 2000 steps, against interpolation.

    python benchmarks/steps.py                                    # five minutes
    python benchmarks/steps.py --encoders gau rff --resize 64

Each row is the recipe of the demo with another encoder.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from harness import machine, make_parser, print_row, print_titles, run

ENCODERS = ["linf", "logf", "rff", "tri", "gau", "laplace", "bspline", "keys"]
QUIET = ["--wandb.enabled", "false", "--trainer.enable_progress_bar", "false", "--trainer.accelerator", "cpu"]


def main() -> None:
    """Prints the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--encoders", nargs="+", default=ENCODERS)
    parser.add_argument("--resize", type=int, default=512)
    parser.add_argument("--steps", nargs="+", type=int, default=[200, 2000])
    options = parser.parse_args()
    print(f"{machine()}\n{options.resize} x {options.resize}")
    print_titles("encoder", *(f"{steps} steps, dB" for steps in options.steps), "bicubic, dB")
    for name in options.encoders:
        scores = []
        for steps in options.steps:
            changed = ["--model.encoder", name, "--data.resize", str(options.resize), "--trainer.max_steps", str(steps)]
            with tempfile.TemporaryDirectory() as folder:
                run("fit", "--config", "image/demo", *changed, *QUIET, folder=Path(folder))
                (path,) = Path(folder).rglob("metrics.json")
                metrics = json.loads(path.read_text())
            scores.append(metrics["test/psnr"])
        print_row(name, *scores, metrics["baselines"]["bicubic"]["test/psnr"])


if __name__ == "__main__":
    main()
