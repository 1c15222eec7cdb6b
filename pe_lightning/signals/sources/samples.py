"""``samples://NAME``: bundled signals for a first run without files or downloads.

The pictures are part of scikit-image; the video and the volume are in the ``datasets`` folder of this repository.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

from PIL import Image, UnidentifiedImageError

from pe_lightning.errors import InputError, did_you_mean

SCHEME = "samples://"
VIDEO_FILES = {"bigbuckbunny": "bigbuckbunny.mp4", "phantom3d": "phantom.tif"}
IMAGE_SUFFIXES = frozenset({".gif", ".jpg", ".jpeg", ".png", ".tif", ".tiff"})


@cache
def image_samples() -> dict[str, Path]:
    """The samples that are single images: name -> file of the installed scikit-image, sorted by name."""
    folder = Path(str(resources.files("skimage.data")))
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
    return {path.stem: path for path in files if _is_single_frame(path)}


def video_samples() -> dict[str, Path]:
    """The samples that are videos or volumes: name -> file, which only a clone of the repository has."""
    repository = Path(__file__).resolve().parents[3]
    return {name: repository / "datasets" / file for name, file in VIDEO_FILES.items()}


def sample_path(uri: str, kind: Literal["image", "video"] = "image") -> Path:
    """The file of ``samples://NAME``."""
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
            f"{SCHEME}{name} is part of the repository of pe-lightning, not of the installed package: there is no "
            f"{str(known[name])!r}. Clone the repository and install it with pip install -e, or give another file"
        )
    return known[name]


def _is_single_frame(path: Path) -> bool:
    try:
        with Image.open(path) as image:
            return getattr(image, "n_frames", 1) == 1
    except UnidentifiedImageError:  # Pillow cannot read one of scikit-image's TIFF stacks
        return False
