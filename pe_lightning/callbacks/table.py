"""The table that ends a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pe_lightning import runs

__all__ = ["print_scores"]

MOST_ROWS = 24
"""More signals than this are summed up in the mean row only; metrics.json has them all."""


def print_scores(metrics: dict[str, Any], run_dir: Path) -> None:
    """Prints PSNR and SSIM per signal, seconds and where the files are.

    Args:
        metrics: The content of ``metrics.json``.
        run_dir: The run directory.
    """
    console = Console()
    encoders = metrics["encoder"] if isinstance(metrics["encoder"], list) else [metrics["encoder"]]
    names = "+".join(dict.fromkeys(entry["name"] for entry in encoders))
    table = Table(title=f"{metrics['model']}, {names}, {metrics['num_params']:,} parameters per signal")
    table.add_column("signal")
    for title in (f"test PSNR ({metrics['protocol']})", "train PSNR", "SSIM"):
        table.add_column(title, justify="right")
    keys = (("test/psnr", "dB", 2), ("train/psnr", "dB", 2), ("test/ssim", "", 4))
    if metrics["num_signals"] <= MOST_ROWS:
        for place, name in enumerate(metrics["signals"]):
            table.add_row(name, *[_number(metrics[f"{key}_per_signal"][place], unit, n) for key, unit, n in keys])
    if metrics["num_signals"] > 1:
        table.add_section()
        table.add_row("mean ± std", *[_mean(metrics, key, unit, n) for key, unit, n in keys])
    shown = {name: row for name, row in metrics["baselines"].items() if row["test/psnr"] is not None}
    if shown:
        table.add_section()
        for name, row in sorted(shown.items(), key=lambda item: item[1]["test/psnr"]):
            table.add_row(f"{name} interpolation", _mean(row, "test/psnr", "dB", 2), style="dim")
    console.print(table)
    for key, _, _ in keys:
        if metrics.get(f"{key}_reason"):
            console.print(f"{key}: {metrics[f'{key}_reason']}", highlight=False)
    if metrics["fit_seconds"] is not None:
        console.print(f"{metrics['steps']} steps in {metrics['fit_seconds']:.1f} s", highlight=False)
    # printed without wrapping, so that the path can be copied
    print(f"reconstructions: {run_dir / runs.RECONSTRUCTIONS}")
    print(f"metrics:         {run_dir / runs.METRICS}")


def _number(value: float | None, unit: str, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f} {unit}".rstrip()


def _mean(metrics: dict[str, Any], key: str, unit: str, digits: int) -> str:
    mean, deviation = metrics[key], metrics[f"{key}_std"]
    if mean is not None and len(metrics[f"{key}_per_signal"]) == 1:
        return _number(mean, unit, digits)
    return "-" if mean is None else f"{mean:.{digits}f} ± {deviation:.{digits}f} {unit}".rstrip()
