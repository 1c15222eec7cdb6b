"""Ground truth and reconstructions of runs as small files for a page, each distinct picture once."""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image

from pe_lightning import runs
from pe_lightning.compare.reading import Run, Signal

__all__ = ["Album", "Pair", "collect", "file_names", "read_panels"]

HEADER, GAP = 22, 4
"""Pixels of the sheet that :func:`pe_lightning.callbacks.pictures.comparison` lays out: above, and between its panels."""
ENLARGED_TO = 256
"""It enlarges smaller pictures to about this many pixels, by a whole number."""
THREADS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class Pair:
    """Ground truth and reconstruction as keys of :attr:`Album.pictures`, and their width and height."""

    truth: str
    reconstruction: str
    size: tuple[int, int]


@dataclass(frozen=True)
class Album:
    """The pictures of a page.

    Args:
        pictures: Key -> ``data:`` URI, each distinct picture once.
        pairs: For every run and signal the pair, or why there is none.
        scale: What the sides of the pictures were multiplied by, at most 1.
    """

    pictures: dict[str, str]
    pairs: dict[Run, dict[Signal, Pair | str]]
    scale: float


def collect(found: Sequence[Run], most: int, megapixels: float) -> Album:
    """Reads the pictures of the first signals of every run.

    Args:
        found: The runs.
        most: How many signals of a run are shown.
        megapixels: If the pictures would have more than this together, all are made smaller by the same factor.
    """
    wanted = []
    pixels = 0
    for run in found:
        size = _size(run)
        stems = file_names(tuple(run.metrics["signals"]))
        wanted += [(run, signal, stem, size) for signal, stem in list(zip(run.signals, stems, strict=True))[:most]]
        # a reconstruction each; truths are shared by the runs on the same data, and so are the smaller part
        pixels += 0 if size is None else size[0] * size[1] * min(most, len(stems))
    scale = min(1.0, (megapixels * 1e6 / pixels) ** 0.5) if pixels else 1.0
    files: dict[str, bytes] = {}
    with ThreadPoolExecutor(THREADS) as pool:  # Pillow decodes and encodes without holding the interpreter
        made = list(pool.map(lambda item: _encode_pair(item[0], item[2], item[3], scale, files), wanted))
    album = Album({}, {run: {} for run in found}, scale)
    keys: dict[str, str] = {}

    def key(digest: str) -> str:
        if digest not in keys:
            keys[digest] = f"p{len(keys)}"
            album.pictures[keys[digest]] = f"data:image/webp;base64,{base64.b64encode(files[digest]).decode()}"
        return keys[digest]

    for (run, signal, _, _), pair in zip(wanted, made, strict=True):
        if not isinstance(pair, str):
            pair = replace(pair, truth=key(pair.truth), reconstruction=key(pair.reconstruction))
        album.pairs[run][signal] = pair
    return album


def read_panels(sheet: Path, size: tuple[int, int]) -> tuple[Image.Image, Image.Image]:
    """Ground truth and reconstruction of a signal, cut from ``<stem>_comparison.png``.

    The sheet has both as they are to be seen, whatever the format, dtype and channels of the reconstruction itself.

    Args:
        sheet: The picture of truth, reconstruction and error side by side.
        size: Width and height of the signal.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is laid out for another size.
    """
    zoom = max(1, round(ENLARGED_TO / max(size)))
    width, height = size[0] * zoom, size[1] * zoom
    with Image.open(sheet) as opened:
        if opened.size != (3 * width + 2 * GAP, height + HEADER):
            pixels = "{} x {}".format(*opened.size)
            raise ValueError(f"{pixels} pixels are not those of a sheet for a signal of {size[0]} x {size[1]}")
        picture = opened.convert("RGB")
    lefts = (0, width + GAP)
    truth, made = (picture.crop((left, HEADER, left + width, HEADER + height)) for left in lefts)
    return truth.resize(size, Image.Resampling.NEAREST), made.resize(size, Image.Resampling.NEAREST)


def file_names(names: tuple[str, ...]) -> list[str]:
    """The stems of :func:`pe_lightning.callbacks.outputs.file_names`, which cannot be imported without Lightning."""
    taken: set[str] = set()
    result: list[str] = []
    for name in names:
        base = runs.slug(name)
        candidates = (base if number == 1 else f"{base}-{number}" for number in itertools.count(1))
        stem = next(c for c in candidates if taken.isdisjoint({c.casefold(), f"{c.casefold()}_comparison"}))
        taken |= {stem.casefold(), f"{stem.casefold()}_comparison"}
        result.append(stem)
    return result


def _size(run: Run) -> tuple[int, int] | None:
    """Width and height of the signals, if they are pictures."""
    grid: Any = run.metrics.get("grid")
    if isinstance(grid, list) and len(grid) == 2 and all(isinstance(n, int) and n > 0 for n in grid):
        return grid[1], grid[0]
    return None


def _encode_pair(run: Run, stem: str, size: tuple[int, int] | None, scale: float, files: dict[str, bytes]) -> Pair | str:
    """Adds truth and reconstruction to ``files`` by digest, and returns the pair of digests, or why there is none."""
    if size is None:
        return "not a picture"
    name = f"{stem}_comparison.png"
    small = max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
    try:
        truth, made = read_panels(run.path / runs.RECONSTRUCTIONS / name, size)
    except FileNotFoundError:
        return f"no {name}"
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        return f"{name} cannot be read: {error}"
    return Pair(_add(truth, small, files), _add(made, small, files), small)


def _add(image: Image.Image, size: tuple[int, int], files: dict[str, bytes]) -> str:
    """Encodes an image unless its digest is known: most truths are those of another run.

    Lossless, as the artefacts one looks for must not be the codec's. Smaller than PNG, in a third of the time.
    """
    if image.size != size:
        image = image.resize(size, Image.Resampling.BOX)
    digest = hashlib.sha256(f"{size}".encode() + image.tobytes()).hexdigest()
    if digest not in files:
        buffer = io.BytesIO()
        image.save(buffer, "WEBP", lossless=True, method=2, quality=20)
        files[digest] = buffer.getvalue()
    return digest
