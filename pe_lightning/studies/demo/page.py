"""The page of ``pe-lightning demo`` and its pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pe_lightning.results.pictures import row_plot, side_by_side
from pe_lightning.signals.files import replacing, write_atomically
from pe_lightning.studies.compare.page import Contents, Viewer, draw_page
from pe_lightning.studies.compare.scores import TableCell
from pe_lightning.studies.demo import examples
from pe_lightning.studies.demo.examples import Example, Result


def write_demo(folder: Path, size: int) -> list[Example]:
    """Solves the examples for pictures of a size, and writes their files and the page; returns them with their results."""
    folder.mkdir(parents=True, exist_ok=True)
    contents, sections, solved = Contents(), [], []
    for number, make in enumerate(examples.EXAMPLES, 1):
        example = make(folder, size)
        solved.append(example)
        scores = ", ".join(_score(result) for result in example.results if result.score is not None)
        print(f"{number} of {len(examples.EXAMPLES)}: {example.title} ({example.metric}): {scores}")
        sections.append(_section(example, contents))
        with replacing(folder / f"{example.name}.jpg") as file:
            _strip(example).save(file, "JPEG", quality=88)
    page = draw_page("What pe-lightning does", sections, contents.texts, heading="method")
    write_atomically(folder / "index.html", page)
    return solved


def _score(result: Result) -> str:
    return f"{result.label} {result.score:.2f}"


def _with_unit(example: Example, result: Result) -> str:
    return f"{result.score:.2f} {example.metric.rpartition(', ')[2]}"


def _section(example: Example, contents: Contents) -> dict[str, Any]:
    rows: list[tuple[dict[str, Any], list[TableCell], dict[str, float]]] = []
    for result in example.results:
        if result.score is not None and result.seconds is not None:
            cells = [
                TableCell("test_score", example.metric, f"{result.score:.2f}", result.score),
                TableCell("seconds", "core seconds", f"{result.seconds:.2f}", result.seconds),
            ]
            rows.append(({"name": result.label, "interpolation": not result.ours}, cells, {}))
    higher = not example.metric.startswith("RMSE")
    rows.sort(key=lambda row: row[1][0].value, reverse=higher)
    notes = [] if all(result.ours for result in example.results) else ["In italics: methods of other packages."]
    table = {"title": example.title, "fingerprint": "", "metric": {"higher_is_better": higher}, "baseline": None}
    tiles = []
    for result in example.results:
        score = "input" if result.score is None else _with_unit(example, result)
        about = {"run": result.label, "group": result.label, "score": score, "rate": None}
        tiles.append(about | _tile(example, result, contents))
    return {
        "table": table | {"notes": notes},
        "text": example.text,
        "commands": example.commands,
        "rows": rows,
        "plots": {},
        "viewer": Viewer({example.name: tiles}, tiles[0], []),
    }


def _tile(example: Example, result: Result, contents: Contents) -> dict[str, Any]:
    if example.is_row:
        lines = {"truth": example.truth, "reconstruction": result.values, "error": result.values - example.truth}
        keys = {name: contents.array(values.T.astype("float32").copy()) for name, values in lines.items()}
        count, channels = example.truth.shape
        return {**keys, "count": count, "step": 1, "channels": channels, "all_channels": channels}
    pictures = {"truth": example.truth, "reconstruction": result.values}
    shown = {name: [contents.picture(_levels(example, values))] for name, values in pictures.items()}
    return {**shown, "frames": [0], "count": 1, "what": "frame", "size": [*example.truth.shape[1::-1]]}


def _levels(example: Example, values: NDArray[Any], colours: str = "viridis") -> NDArray[np.uint8]:
    """``(H, W, 3)`` of 8 bits. The colours of a map span the range of the truth; missing samples have their own."""
    missing: NDArray[Any] = np.isnan(values.astype(np.float32))
    if example.truth.dtype == np.uint8:
        levels = np.where(missing, 0, values).astype(np.uint8)
        levels[missing.any(-1)] = 255, 0, 200
        return levels
    low, high = float(example.truth.min()), float(example.truth.max())
    if colours != "viridis":
        low, high = 0.0, float(values.max())
    levels = matplotlib.colormaps[colours](np.nan_to_num((values - low) / (high - low)), bytes=True)[..., :3]
    levels[missing] = 228
    return levels


def _strip(example: Example) -> Image.Image:
    if example.is_row:
        ours, other = example.results[0], next(result for result in example.results if not result.ours)
        made, truth, interpolated = (values[:100, :1] for values in (ours.values, example.truth, other.values))
        return row_plot(made, truth, np.arange(len(made)) % 2 == 0, _score(ours), None, (_score(other), interpolated))
    panels = []
    for result in example.results:
        caption = result.label if result.score is None else f"{result.label}\n{_with_unit(example, result)}"
        panels.append((caption, Image.fromarray(_levels(example, result.values))))
    panels.append(("truth", Image.fromarray(_levels(example, example.truth))))
    panels += [(name, Image.fromarray(_levels(example, values, "magma"))) for name, values in example.shown.items()]
    return side_by_side(panels, columns=2 if len(panels) == 4 else 3)
