"""Ground truth and reconstructions of images, cut from the sheets that runs leave."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from pe_lightning import runs
from pe_lightning.experiments.compare.shelf import Entry, Shelf

__all__ = ["Pair", "put_pictures", "read_panels", "smaller"]

HEADER, GAP = 22, 4
"""Pixels of the sheet that :func:`pe_lightning.media.pictures.comparison` lays out: above, and between its panels."""
ENLARGED_TO = 256
"""It enlarges smaller pictures to about this many pixels, by a whole number."""


@dataclass(frozen=True)
class Pair:
    """Ground truth and reconstruction of an image, or of frames of a cube.

    Args:
        truth: A key of the page's contents per frame; none if the truth is not known.
        reconstruction: A key per frame.
        size: Width and height.
        frames: Which frames these are.
        count: Of how many.
        rate: Frames per second, if known.
        media: What the signal is, if known.
        note: What one who looks at it should know.
    """

    truth: tuple[str, ...]
    reconstruction: tuple[str, ...]
    size: tuple[int, int]
    frames: tuple[int, ...] = (0,)
    count: int = 1
    rate: float | None = None
    media: str = "image"
    note: str = ""


def put_pictures(entry: Entry, scale: float, shelf: Shelf) -> Pair | str:
    """Puts truth and reconstruction of an image on the shelf.

    Returns:
        The pair, with digests in place of keys, or why there is none.
    """
    size = entry.grid[1], entry.grid[0]
    small = smaller(size, scale)
    name = f"{entry.stem}_comparison.png"
    try:
        truth, made = read_panels(entry.run.path / runs.RECONSTRUCTIONS / name, size)
    except FileNotFoundError:
        return f"no {name}"
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        return f"{name} cannot be read: {error}"
    return Pair((shelf.add_picture(truth, small),), (shelf.add_picture(made, small),), small)


def smaller(size: tuple[int, int], scale: float) -> tuple[int, int]:
    """Width and height, both times ``scale``, and at least 1."""
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


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
