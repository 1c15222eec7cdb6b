"""What others add to a fit: packages that cannot be imported, and hooks of modules, DataModules and callbacks."""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator

import torch
from attempts import SHORT_FIT, Row, Size, folder, waves
from lightning.pytorch.strategies import SingleDeviceStrategy
from own_hooks import public_hooks, weights_and_calls

from pe_lightning.registry import REGISTRIES

GROUPS = (*REGISTRIES, "verbs", "hints", "recipes", "suggestions", "spreads")
ASKED_FOR_ALONE = ("verbs", "suggestions", "spreads")
"""Groups whose entry points are imported by those who ask for one, and not in these commands."""
WAYS = {
    "absent": None,
    "raises": "raise RuntimeError('needs a licence')",
    "another version": "from torch import a_function_of_another_version",
    "syntax": "def (",
    "without the name": "other = 1",
    "of another kind": "lost = object()",
}
"""How a package is broken: the text of its module, or none."""
PROGRAM = """
import sys, traceback
from pe_lightning.__main__ import main
for line in sys.stdin.read().splitlines():
    status = main(line.split())
    if status:
        sys.exit(f"{line}: status {status}")
"""
"""Runs commands, one after the other, in a process that has imported nothing before."""


def plugins(_: Size) -> Iterator[Row]:
    """Commands beside an installed package of which one entry point is broken: a row per group."""
    commands = ["--help", "list", "encoders", " ".join(SHORT_FIT), "fit a.png --encoder gau --wandb.enabled false"]
    commands.append("suggest a.png --encoders gau --num_features 8 --data.sampling.stride 1")
    for group in GROUPS:
        row = Row(f"broken entry points of pe_lightning.{group}")
        for way, text in WAYS.items():
            with folder() as root:
                waves(24, 28).save("a.png")
                site = root / "site"
                (site / "pe_broken-1.0.dist-info").mkdir(parents=True)
                (site / "pe_broken-1.0.dist-info/METADATA").write_text(
                    "Metadata-Version: 2.1\nName: pe-broken\nVersion: 1.0\n"
                )
                points = f"[pe_lightning.{group}]\nlost = pe_broken:lost\n"
                (site / "pe_broken-1.0.dist-info/entry_points.txt").write_text(points)
                if text is not None:
                    (site / "pe_broken.py").write_text(text)
                done = subprocess.run(
                    [sys.executable, "-c", f"import sys; sys.path.append({str(site)!r})\n{PROGRAM}"],
                    input="\n".join(commands),
                    capture_output=True,
                    text=True,
                    check=False,
                )
                said = "pe_broken" in done.stderr or group in ASKED_FOR_ALONE
                row.add(done.returncode == 0 and said, f"{way}: names the package {said}, {done.stderr[-250:]}")
        yield row


# -- hooks ------------------------------------------------------------------------------------------------------------------


class OwnStrategy(SingleDeviceStrategy):
    """A strategy of somebody."""


STRATEGIES = {"one device": lambda: "auto", "ddp": lambda: "ddp", "an own one": lambda: OwnStrategy(torch.device("cpu"))}


def hooks(_: Size) -> Iterator[Row]:
    """Every public hook, overridden: weights and calls of fits that log seldom equal those of single steps."""
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    for (name, strategy), every in itertools.product(STRATEGIES.items(), (4, 50)):
        row = Row(f"hooks, {name}, rows every {every} steps")
        for owner, hook in public_hooks():
            with folder() as root:
                single, found = (weights_and_calls(root, owner, [hook], period, strategy()) for period in (1, every))
            row.add(single == found, f"{owner.__name__}.{hook}: {single[1].total()} calls, {found[1].total()} found")
        yield row
