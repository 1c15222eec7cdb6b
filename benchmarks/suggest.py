"""``pe-lightning suggest`` on three sample images: the tables it prints, and seconds from the command's start to its end.

    python benchmarks/suggest.py
    python benchmarks/suggest.py my.jpg --budget 20

The configuration that it writes is fitted afterwards; the difference of its test PSNR from the table's is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from pathlib import Path

from quiet import machine, run

IMAGES = ["samples://astronaut", "samples://coffee", "samples://chelsea"]


def main() -> None:
    """Runs it on every image."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", default=IMAGES)
    parser.add_argument("--budget", type=float, default=60.0)
    options = parser.parse_args()
    print(machine())
    for path in options.paths:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            given = path if "://" in path else str(Path(path).absolute())
            load = os.getloadavg()[0]
            table, seconds = run("suggest", given, "--budget", str(options.budget), folder=folder)
            print(table)
            run("fit", "--config", "suggested.yaml", "--wandb.enabled", "false", folder=folder)
            (metrics,) = folder.glob("runs/*/*/metrics.json")
            found = json.loads(metrics.read_text())["test/psnr"]
            said = float(re.findall(r"^Best encoder: .*?, ([\d.]+) dB", table, re.MULTILINE)[0])
            print(
                f"{path}: {seconds:.1f} s in all (load {load:.1f}); the fit of its configuration: {found - said:+.3f} dB\n"
            )


if __name__ == "__main__":
    main()
