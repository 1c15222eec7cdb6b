"""Reports and similarity maps, drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

ACROSS = 4
"""Panels of features in a row."""


def figure(*reports: Mapping[str, Any]) -> Figure:
    r"""Features of each encoder, then of all together :math:`D(\Delta)`, spectrum, singular values and stable rank.

    Theory is dashed and black. Save it by ``figure(...).savefig("a.png")``.

    Args:
        reports: Of :func:`~pe_papers.analysis.analyze`.
    """
    rows = -(-len(reports) // ACROSS)
    drawn = Figure(figsize=(16, 2.6 * rows + 3.6), layout="constrained")
    above, below = drawn.subfigures(2, 1, squeeze=False, height_ratios=[2.6 * rows, 3.6])[:, 0]
    panels = list(above.subplots(rows, min(ACROSS, len(reports)), squeeze=False).flat)
    for panel, report in zip(panels, reports, strict=False):
        panel.plot(report["positions"], np.transpose(report["features"]), linewidth=1)
        shown = len(report["features"])
        panel.set(title=f"{report['label']}: {shown} of {report['num_features']} features", xlabel="x")
    for panel in panels[len(reports) :]:
        panel.remove()
    distance, power, values, rank = below.subplots(1, 4)
    for number, report in enumerate(reports):
        style = {"color": f"C{number % 10}", "linewidth": 2, "label": report["label"]}
        _draw(distance, report["delta"], report["distance"], style)
        _draw(power, report["frequencies"], report["spectrum"], style)
        values.semilogy(np.maximum(report["singular_values"], 1e-17), **style)
        _draw(rank, report["rank_curve"]["counts"], report["rank_curve"], style)
    reach = min(0.5, 8 * max(report["interval"]["measured"] for report in reports)) or 0.5
    distance.set(title=r"$D(\Delta) / D(0)$ from the middle; theory dashed", xlabel=r"$\Delta$", xlim=(-reach, reach))
    power.set(title=r"spectrum: Fourier transform of $D$", xlabel="periods per unit length")
    values.set(title="singular values, relative", xlabel="number", ylim=(1e-17, 3))
    rank.set(title="stable rank; theory dashed", xlabel="positions", xscale="log", yscale="log")
    for panel in (distance, power, values, rank):
        panel.grid(alpha=0.3)
    below.legend(*distance.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return drawn


def similarity_figure(rows: Mapping[str, Sequence[tuple[str, Tensor]]], title: str = "") -> Figure:
    """Similarity maps side by side: a row per encoding, a column per position; curves where there is one axis.

    Colours go from the least to the largest value of each map.

    Args:
        rows: For each row's name, the title and the map ``(n_1, n_2)`` or ``(n_1,)`` of every position.
        title: Above all.
    """
    most = max(len(maps) for maps in rows.values())
    drawn = Figure(figsize=(2.6 * most, 2.8 * len(rows) + 0.4), layout="constrained")
    drawn.suptitle(title)
    panels = drawn.subplots(len(rows), most, squeeze=False)
    for line, (name, maps) in zip(panels, rows.items(), strict=True):
        for panel, (caption, values) in zip(line, maps, strict=False):
            if values.ndim == 1:
                panel.plot(values.numpy())
            else:
                panel.imshow(values.numpy(), cmap="viridis", interpolation="nearest")
                panel.set(xticks=[], yticks=[])
            panel.set_title(caption, fontsize=9)
        line[0].set_ylabel(name)
    return drawn


def weight_figure(*reports: Mapping[str, Any]) -> Figure:
    """Histograms of the weights of learnable Fourier features, as in Fig. 13 of their paper.

    Args:
        reports: Of :func:`~pe_papers.analysis.analyze`; reports on other encoders are left out.
    """
    drawn = Figure(figsize=(7, 4), layout="constrained")
    panel = drawn.subplots()
    for report in reports:
        if (histogram := report["weights"]) is not None:
            label = f"{report['label']}: mean {histogram['mean']:.3f}, standard deviation {histogram['std']:.3f}"
            panel.plot(histogram["weight"], histogram["density"], drawstyle="steps-mid", label=label)
    panel.set(title=r"weights $W_r$", xlabel=r"weight $\cdot\, \gamma$", ylabel="density")
    panel.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15))
    return drawn


def _draw(panel: Axes, x: Sequence[float], curves: Mapping[str, Any], style: Mapping[str, Any]) -> None:
    panel.plot(x, curves["measured"], **style)
    if curves["theory"] is not None:
        panel.plot(x, curves["theory"], color="black", linestyle="--", linewidth=1)
