"""Curves as pictures."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from pe_lightning.runs import write_atomically

__all__ = ["plot_choice"]


def plot_choice(path: Path, choice: dict[str, Any]) -> Path | None:
    """Held-out PSNR against the ridge, and against the width where it was chosen too.

    Args:
        path: The PNG to write.
        choice: ``curve``: pairs of ridge and PSNR; ``factors``: pairs of relative width and PSNR, may be empty; ``ridge``.

    Returns:
        The path, or ``None`` if nothing was chosen.
    """
    panels = [
        (title, points)
        for title, points in (("relative ridge", choice.get("curve")), ("width, times the rule's", choice.get("factors")))
        if points and len(points) > 1
    ]
    if not panels:
        return None
    figure = Figure(figsize=(5 * len(panels), 3.5), layout="constrained")
    for place, (title, points) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), place + 1)
        shown = [point for point in points if point[0] > 0]
        axes.plot([x for x, _ in shown], [y for _, y in shown], marker=".")
        axes.set(xscale="log", xlabel=title, ylabel="PSNR on held-out training samples (dB)")
        if title == "relative ridge" and choice["ridge"] > 0:
            axes.axvline(choice["ridge"], color="tab:orange", label=f"chosen: {choice['ridge']:.2g}")
            axes.legend()
        axes.grid(alpha=0.3)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    write_atomically(path, buffer.getvalue())
    return path
