"""``samples://NAME``: signals for a first run, which needs no file and no download.

The pictures ship inside scikit-image; the video and the volume are in the ``datasets`` folder of this repository.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

from PIL import Image, UnidentifiedImageError

from pe_lightning.errors import InputError, did_you_mean

__all__ = ["SCHEME", "image_samples", "sample_path", "video_samples"]

SCHEME = "samples://"
_VIDEOS = {"bigbuckbunny": "bigbuckbunny.mp4", "phantom3d": "phantom.tif"}
_SUFFIXES = frozenset({".gif", ".jpg", ".jpeg", ".png", ".tif", ".tiff"})


@cache
def image_samples() -> dict[str, Path]:
    """The samples that are one 2-D image: name -> file of the installed scikit-image, sorted by name."""
    folder = Path(str(resources.files("skimage.data")))
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    return {path.stem: path for path in files if _is_single_frame(path)}


def video_samples() -> dict[str, Path]:
    """The samples that are videos or volumes: name -> file, missing if the package was installed without its repository."""
    repository = Path(__file__).resolve().parents[3]
    return {name: repository / "datasets" / file for name, file in _VIDEOS.items()}


def sample_path(uri: str, kind: Literal["image", "video"] = "image") -> Path:
    """The picture, or the video or volume, behind ``samples://NAME``.

    Raises:
        InputError: If there is no such sample, or it was not installed. The message holds the names.
    """
    name = uri.removeprefix(SCHEME)
    known, others, use = image_samples(), video_samples(), "is a video or volume: use VideoDataModule"
    if kind == "video":
        known, others, use = others, known, "is a picture: use ImageDataModule"
    if name in others:
        raise InputError(f"{SCHEME}{name} {use}, or choose one of: {', '.join(known)}")
    if name not in known:
        raise InputError(f"unknown sample {SCHEME}{name}{did_you_mean(name, known) or '.'} Samples: {', '.join(known)}")
    if not known[name].is_file():
        raise InputError(
            f"{SCHEME}{name} is part of the repository of pe-lightning, but not of the installed package: there is no "
            f"{str(known[name])!r}. Clone the repository and install it with pip install -e, or give a file of your own"
        )
    return known[name]


def _is_single_frame(path: Path) -> bool:
    try:
        with Image.open(path) as image:
            return getattr(image, "n_frames", 1) == 1
    except UnidentifiedImageError:  # one of scikit-image's TIFF stacks is of a kind that Pillow does not know
        return False
