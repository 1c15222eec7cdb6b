"""What the page shows of the signals: ``<stem>_comparison.h5`` of every run, within the size of a page.

Such a file holds the datasets ``truth`` and ``reconstruction``: of a row float32 ``(N, C)``, with ``trained``, one boolean
per sample; of a picture, or of some frames of a cube, uint8 ``(n, H, W, C)``, with the numbers of the frames as the
attribute ``frames``. The attributes ``media`` and ``rate`` tell what the signal is.
"""

from __future__ import annotations

import base64
import hashlib
import io
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
from PIL import Image

from pe_lightning.experiments.compare.reading import Run, printable
from pe_lightning.experiments.compare.scores import ScoreTable
from pe_lightning.runs import RECONSTRUCTIONS, file_names, frames_of

__all__ = ["Viewer", "collect"]

FEWEST_FRAMES = 4
"""Rather than showing fewer frames than this, they are made smaller."""
MOST_VALUES, FEWEST_VALUES = 65_536, 512
"""How many values of a channel of a row are embedded at most, and at least, before ranges take their place."""
VALUES_PER_MEGAPIXEL = 281_250
"""How many values of a row take as many bytes as a megapixel of a picture: 1.5 MB, with 16 bytes in base64 for 3 values."""
CHANNELS = 8
"""How many channels of a row are shown."""
DAMAGE = (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError)
"""What h5py raises for damaged files."""

Tile = dict[str, Any]
"""What the script needs to show a reconstruction, or the ``reason`` why it cannot."""


@dataclass(frozen=True)
class Viewer:
    """The reconstructions of a table.

    Args:
        signals: The names of the signals that can be shown, and a tile per run.
        notes: What was done to them, or why there are none.
    """

    signals: dict[str, list[Tile]]
    notes: list[str]

    @property
    def first(self) -> Tile:
        """A tile that shows something; all others have its layout."""
        return next(tile for tiles in self.signals.values() for tile in tiles if "reason" not in tile)


def collect(tables: Sequence[ScoreTable], most: int, frames: int, megapixels: float) -> tuple[list[Viewer], dict[str, str]]:
    """Reads the reconstructions of the first signals of every run.

    Args:
        tables: The tables of the page.
        most: How many signals of a run are shown.
        frames: How many frames of a cube are shown at most.
        megapixels: If the pictures would have more than this together, there are fewer frames of cubes, and then all are
            made smaller by the same factor. Rows take at most as many bytes.

    Returns:
        A viewer per table; and the pictures and arrays that they name by keys, each distinct one once: a ``data:`` URI, or
        the bytes in base64.
    """
    contents = _Contents([run for table in tables for run in table.runs for _ in run.signals[:most]], frames, megapixels)
    jobs = [
        (run, name, stem)
        for table in tables
        for run in table.runs
        for name, stem in list(zip(run.signals, file_names(tuple(run.metrics["signals"])), strict=True))[:most]
    ]
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # Pillow encodes without holding the interpreter
        tiles = pool.map(lambda job: contents.tile(job[0], job[2]), jobs)
        found = {(run, name): tile for (run, name, _), tile in zip(jobs, tiles, strict=True)}
    return [_viewer(table, found, contents.scale) for table in tables], contents.texts


class _Contents:
    """Pictures and arrays of a page, by keys that are digests of them, so that each is there once.

    Args:
        runs: The run of every signal that is to be shown.
        frames: How many frames of a cube are shown at most.
        megapixels: How much in all.
    """

    def __init__(self, runs: Sequence[Run], frames: int, megapixels: float) -> None:
        self.texts: dict[str, str] = {}
        cubes = [(1, *run.grid)[-3:] for run in runs if len(run.grid) > 1]

        def pixels(most: int) -> int:
            return sum(min(most, count) * height * width for count, height, width in cubes)

        fitting = (n for n in range(frames, FEWEST_FRAMES, -1) if pixels(n) <= megapixels * 1e6)
        self.frames = next(fitting, min(frames, FEWEST_FRAMES))
        self.scale = min(1.0, (megapixels * 1e6 / max(1, pixels(self.frames))) ** 0.5)
        # truth, reconstruction and error of every channel of a row
        lines = sum(3 * min(run.metrics.get("channels") or 1, CHANNELS) for run in runs if len(run.grid) == 1)
        self.values = int(min(MOST_VALUES, max(FEWEST_VALUES, megapixels * VALUES_PER_MEGAPIXEL / max(1, lines))))

    def tile(self, run: Run, stem: str) -> Tile:
        """Reads the reconstruction of a signal."""
        if len(run.grid) not in (1, 2, 3):
            return {"reason": f"signals of {len(run.grid)} axes are not shown" if run.grid else "the grid is not known"}
        path = run.path / RECONSTRUCTIONS / f"{stem}_comparison.h5"
        if not path.is_file():
            return {"reason": f"no {path.name}"}
        try:
            with h5py.File(path) as file:
                tile = self._row(file, run.grid) if len(run.grid) == 1 else self._frames(file, run.grid)
                rate = float(file.attrs.get("rate", 0))
                return tile | {"rate": rate if 0 < rate < math.inf else None}
        except DAMAGE as error:
            return {"reason": printable(f"{path.name} cannot be read: {error}")}

    def _frames(self, file: h5py.File, grid: tuple[int, ...]) -> Tile:
        count, height, width = (1, *grid)[-3:]
        held = [int(frame) for frame in file.attrs["frames"]] if len(grid) == 3 else [0]
        if not held or held != sorted(set(held) & set(range(count))):
            raise ValueError(f"frames {held} are not some of {count}, in order")
        truth, made = _datasets(file, (len(held), height, width), np.dtype(np.uint8))
        parts = min(len(held), self.frames)
        places = [(2 * part + 1) * len(held) // (2 * parts) for part in range(parts)]  # the fit has spaced them unevenly
        if len(held) == count:
            places = frames_of(count, parts)
        return {
            "truth": [self._picture(truth[place]) for place in places],
            "reconstruction": [self._picture(made[place]) for place in places],
            "frames": [held[place] for place in places],
            "count": count,
            "what": "frame" if file.attrs.get("media") == "video" else "slice",
            "size": [width, height],
        }

    def _row(self, file: h5py.File, grid: tuple[int, ...]) -> Tile:
        datasets, count = _datasets(file, grid, np.dtype(np.float32)), grid[0]
        truth, made = (dataset[:, :CHANNELS].T for dataset in datasets)
        step = 1 if count <= self.values else -(-2 * count // self.values)
        with np.errstate(invalid="ignore", over="ignore"):
            lines = {"truth": truth, "reconstruction": made, "error": made - truth}
        keys = {name: self._array(line if step == 1 else ranges(line, step)) for name, line in lines.items()}
        if step == 1 and "trained" in file:
            keys["trained"] = self._array(file["trained"][()].astype(np.uint8))
        return {**keys, "count": count, "step": step, "channels": len(made), "all_channels": datasets[0].shape[1]}

    def _picture(self, levels: npt.NDArray[np.uint8]) -> str:
        """Adds ``(H, W, C)`` of 1 to 4 channels: grey, grey + alpha, RGB, RGB + alpha, without the alpha."""

        def encode() -> str:
            image = Image.fromarray(levels[..., 0] if levels.shape[-1] < 3 else levels[..., :3]).convert("RGB")
            if self.scale < 1:
                width, height = (max(1, round(side * self.scale)) for side in image.size)
                image = image.resize((width, height), Image.Resampling.BOX)
            buffer = io.BytesIO()
            # lossless, as the artefacts one looks for must not be the codec's; smaller than PNG, in a third of the time
            image.save(buffer, "WEBP", lossless=True, method=2, quality=20)
            return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"

        return self._add(levels, encode)

    def _array(self, values: npt.NDArray[Any]) -> str:
        """Adds an array as its bytes, row-major, little-endian."""
        ordered = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        return self._add(ordered, lambda: base64.b64encode(ordered.tobytes()).decode())

    def _add(self, values: npt.NDArray[Any], encode: Callable[[], str]) -> str:
        key = "p" + hashlib.sha256(f"{values.dtype}{values.shape}".encode() + values.tobytes()).hexdigest()[:20]
        if key not in self.texts:
            self.texts[key] = encode()
        return key


def _datasets(file: h5py.File, samples: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[h5py.Dataset, h5py.Dataset]:
    """Truth and reconstruction; raises ValueError unless they are of this shape, but for the channels, and dtype."""
    truth, made = file["truth"], file["reconstruction"]
    for values in (truth, made):
        if values.shape[:-1] != samples or values.shape != truth.shape or values.dtype != dtype or not values.size:
            raise ValueError(f"{values.dtype} of {values.shape} is not {dtype} of {' x '.join(map(str, samples))} samples")
    return truth, made


def ranges(lines: npt.NDArray[np.float32], step: int) -> npt.NDArray[np.float32]:
    """``(C, N)`` -> ``(C, 2, ceil(N / step))``: the least and the greatest of every ``step`` values that are numbers."""
    starts = np.arange(0, lines.shape[1], step)
    return np.stack([np.fmin.reduceat(lines, starts, axis=1), np.fmax.reduceat(lines, starts, axis=1)], axis=1)


def _viewer(table: ScoreTable, found: dict[tuple[Run, str], Tile], scale: float) -> Viewer:
    groups = {run: row.name for row in table.fitted for run in row.runs}
    signals: dict[str, list[Tile]] = {}
    first: Tile | None = None
    for (run, name), tile in found.items():
        if run not in groups:
            continue
        if "reason" not in tile:
            first = first or tile
            if any(tile.get(key) != first.get(key) for key in ("frames", "size", "count", "step", "channels")):
                tile = {"reason": "not of the size, or not the frames, of the others"}
        score = run.metric.text(run.test[name], unit=True)
        signals.setdefault(name, []).append({"run": run.label, "group": groups[run], "score": score, **tile})
    if first is None:
        reasons = dict.fromkeys(tile["reason"] for tiles in signals.values() for tile in tiles)
        return Viewer({}, [f"No reconstructions: {', '.join(reasons)}."] if reasons else [])
    total = max(len(run.signals) for run in table.runs)
    notes = [f"{len(signals)} of {total} signals."] if len(signals) < total else []
    if "frames" in first:
        if len(first["frames"]) < first["count"]:
            what = "frames" if first["what"] == "frame" else "slices along the first axis"
            numbers = ", ".join(str(frame + 1) for frame in first["frames"])
            notes.append(f"{len(first['frames'])} of {first['count']} {what}: {numbers}.")
        if scale < 1:
            notes.append(f"Shown at {scale:.0%} of their size; --megapixels raises that.")
        notes.append("Error maps are of the pictures as shown: clamped to [0, 1], 8 bits.")
    else:
        notes.append("Values are those that the model is fitted to, not clamped; error is reconstruction − ground truth.")
        if first["step"] > 1:
            notes.append(f"Drawn as the range of every {first['step']} samples, without the trained ones.")
        if first["channels"] < first["all_channels"]:
            notes.append(f"Channels 1 to {first['channels']} of {first['all_channels']}.")
    readable = {name: tiles for name, tiles in signals.items() if any("reason" not in tile for tile in tiles)}
    return Viewer(readable, notes)
