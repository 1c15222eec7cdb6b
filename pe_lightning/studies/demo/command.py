"""The verb ``pe-lightning demo``: every example solved, with its files and one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pe_lightning.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pe_lightning.studies.compare.page import Contents, Viewer
    from pe_lightning.studies.demo.examples import Example, Result

SIZES = (32, 256)
"""Smallest and largest number of pixels per side."""
GAP_COLOURS = {"photograph": (255, 0, 200), "map": (228, 228, 228)}
"""Colours of missing samples."""
JPEG_QUALITY = 88
SHOWN_SAMPLES = 100
"""Samples of a recording in its picture."""


def demo(folder: Path, /, *, size: int = 192) -> int:
    """Shows every use of the package on small signals, within a minute: an HTML page, and the files that it was made from.

    Needs no account and no download: the signals are part of scikit-image and matplotlib. The page has a section for each
    example: the command, the scores beside a common method, and the pictures with a slider against the truth.

    Args:
        folder: Folder for index.html, the inputs of the commands and a picture of each example; new, or empty.
        size: Pixels per side, 32 to 256.
    """
    if not SIZES[0] <= size <= SIZES[1]:
        raise InputError(f"--size is {SIZES[0]} to {SIZES[1]} pixels; got {size}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{str(folder)!r} exists and is not an empty folder; give the name of a new one")
    write_demo(folder, size)
    print(f"wrote {folder / 'index.html'}: open it in a browser")
    return 0


def write_demo(folder: Path, size: int) -> list[Example]:
    """Solves the examples for pictures of a size, and writes their files and the page; returns them with their results."""
    from pe_lightning.signals.files import replacing, write_atomically
    from pe_lightning.studies.compare.page import (
        Contents,
        draw_page,  # imports torch, which --help does not need
    )
    from pe_lightning.studies.demo.examples import EXAMPLES

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {str(folder)!r}: {error.strerror or error}") from error
    contents, sections, examples = Contents(), [], []
    for number, make in enumerate(EXAMPLES, 1):
        example = make(folder, size)
        examples.append(example)
        scored = [result for result in example.results if result.score is not None]
        print(f"{number} of {len(EXAMPLES)}: {example.title} ({example.metric}): {', '.join(map(_score, scored))}")
        sections.append(_section(example, contents))
        with replacing(folder / f"{example.name}.jpg") as file:
            _strip(example).save(file, "JPEG", quality=JPEG_QUALITY)
    page = draw_page("What pe-lightning does", sections, contents.texts, heading="method")
    write_atomically(folder / "index.html", page)
    return examples


def _score(result: Result) -> str:
    return f"{result.label} {result.score:.2f}"


def _with_unit(example: Example, result: Result) -> str:
    return f"{result.score:.2f} {example.metric.rpartition(', ')[2]}"


def _section(example: Example, contents: Contents) -> dict[str, Any]:
    """The section of an example, as :func:`~pe_lightning.studies.compare.page.draw_page` takes it."""
    from pe_lightning.studies.compare.scores import TableCell

    rows: list[tuple[dict[str, Any], list[TableCell], dict[str, float]]] = []
    for result in example.results:
        if result.score is None or result.seconds is None:
            continue
        cells = [
            TableCell("test_score", example.metric, f"{result.score:.2f}", result.score),
            TableCell("seconds", "core seconds", f"{result.seconds:.2f}", result.seconds),
        ]
        rows.append(({"name": result.label, "interpolation": not result.ours}, cells, {}))
    higher = not example.metric.startswith("RMSE")
    rows.sort(key=lambda row: row[1][0].value, reverse=higher)
    table: dict[str, Any] = {
        "title": example.title,
        "fingerprint": "",
        "metric": {"higher_is_better": higher},
        "baseline": None,
        "notes": [] if all(result.ours for result in example.results) else ["In italics: methods of other packages."],
    }
    return {
        "table": table,
        "text": example.text,
        "commands": example.commands,
        "rows": rows,
        "plots": {},
        "viewer": _viewer(example, contents),
    }


def _viewer(example: Example, contents: Contents) -> Viewer:
    """The truth and the results of an example, for the viewer of the page."""
    from pe_lightning.studies.compare.page import Viewer

    tiles = []
    for result in example.results:
        score = "input" if result.score is None else _with_unit(example, result)
        tiles.append(
            {"run": result.label, "group": result.label, "score": score, "rate": None, **_tile(example, result, contents)}
        )
    return Viewer({example.name: tiles}, tiles[0], [])


def _tile(example: Example, result: Result, contents: Contents) -> dict[str, Any]:
    if example.is_row:
        lines = {"truth": example.truth, "reconstruction": result.values, "error": result.values - example.truth}
        keys = {name: contents.array(values.T.astype("float32").copy()) for name, values in lines.items()}
        count, channels = example.truth.shape
        return {**keys, "count": count, "step": 1, "channels": channels, "all_channels": channels}
    height, width = example.truth.shape[:2]
    return {
        "truth": [contents.picture(_levels(example, example.truth))],
        "reconstruction": [contents.picture(_levels(example, result.values))],
        "frames": [0],
        "count": 1,
        "what": "frame",
        "size": [width, height],
    }


def _levels(example: Example, values: NDArray[Any], colours: str = "viridis") -> NDArray[np.uint8]:
    """``(H, W, 3)`` of 8 bits. The colours of a map span the range of the truth; missing samples have their own."""
    import matplotlib
    import numpy as np

    missing: NDArray[Any] = np.isnan(values.astype(np.float32))
    if example.truth.dtype == np.uint8:
        levels = np.where(missing, 0, values).astype(np.uint8)
        missing = np.asarray(missing.any(-1))
    else:
        low, high = float(example.truth.min()), float(example.truth.max())
        if colours != "viridis":
            low, high = 0.0, float(values.max())
        scaled = np.nan_to_num((values - low) / (high - low))
        levels = matplotlib.colormaps[colours](scaled, bytes=True)[..., :3]
    levels[missing] = GAP_COLOURS["photograph" if example.truth.dtype == np.uint8 else "map"]
    return levels


def _strip(example: Example) -> Any:
    """The results of an example side by side, with captions."""
    import numpy as np
    from PIL import Image

    from pe_lightning.results.pictures import row_plot, side_by_side

    if example.is_row:
        ours, other = example.results[0], next(result for result in example.results if not result.ours)
        made, truth, interpolated = (values[:SHOWN_SAMPLES, :1] for values in (ours.values, example.truth, other.values))
        return row_plot(made, truth, np.arange(len(made)) % 2 == 0, _score(ours), None, (_score(other), interpolated))
    panels = []
    for result in example.results:
        caption = result.label if result.score is None else f"{result.label}\n{_with_unit(example, result)}"
        panels.append((caption, Image.fromarray(_levels(example, result.values))))
    panels.append(("truth", Image.fromarray(_levels(example, example.truth))))
    panels += [(name, Image.fromarray(_levels(example, values, "magma"))) for name, values in example.shown.items()]
    return side_by_side(panels, columns=2 if len(panels) == 4 else 3)
