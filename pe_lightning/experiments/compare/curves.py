"""Held-out PSNR during a fit, from the CSV log of a run."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from pathlib import Path

from pe_lightning.experiments.compare.reading import Run

__all__ = ["Curve", "read_curve"]

COLUMN = "val/psnr"


@dataclass(frozen=True)
class Curve:
    """Held-out PSNR, the mean over signals, after steps of a fit.

    Args:
        steps: Increasing.
        psnr: One value per step, finite.
        seconds: One value per step; ``None`` where the run does not tell.
        measured: Whether the seconds are from the log. Logs of other loggers, and of versions that wrote none, have no
            such column: the seconds of the fit are spread evenly over its steps, after those of an exact solution before
            the first.
    """

    steps: tuple[int, ...]
    psnr: tuple[float, ...]
    seconds: tuple[float, ...] | None
    measured: bool = False


def read_curve(run: Run) -> Curve | None:
    """The curve of a run; ``None`` if no held-out PSNR was logged.

    Raises:
        ValueError: If a log cannot be read.
    """
    points: dict[int, tuple[float, float | None]] = {}
    # a resumed fit logs to version_1 and so on, from the step of its checkpoint: what had come after that is void
    for path in sorted((run.path / "logs").glob("*/metrics.csv"), key=_version):
        more = _points(path)
        points = {step: point for step, point in points.items() if not more or step < min(more)} | more
    if not points:
        return None
    steps = sorted(points)
    logged = [points[step][1] for step in steps]
    psnr = tuple(points[step][0] for step in steps)
    known = [second for second in logged if second is not None]
    if len(known) == len(steps):
        return Curve(tuple(steps), psnr, tuple(known), measured=True)
    total, solve, end = (run.metrics.get(key) for key in ("fit_seconds", "solve_seconds", "steps"))
    if total is None or not end:
        return Curve(tuple(steps), psnr, None)
    start = min(solve, total) if isinstance(solve, (int, float)) else 0.0
    # the log counts steps from 0
    return Curve(tuple(steps), psnr, tuple(start + (total - start) * min(1.0, (step + 1) / end) for step in steps))


def _version(path: Path) -> tuple[int, str]:
    number = re.fullmatch(r"version_(\d+)", path.parent.name)
    return (int(number[1]) if number else -1, path.parent.name)


def _points(path: Path) -> dict[int, tuple[float, float | None]]:
    """Step -> PSNR, and seconds where the log has a column ``seconds``."""
    found: dict[int, tuple[float, float | None]] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row.get(COLUMN) and row.get("step"):
                    value, seconds = float(row[COLUMN]), row.get("seconds")
                    if math.isfinite(value):
                        found[int(row["step"])] = value, float(seconds) if seconds else None
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise ValueError(f"{path.name} of {path.parent.name} cannot be read: {error}") from error
    return found
