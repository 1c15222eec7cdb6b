"""``samples://NAME``: the pictures that ship inside scikit-image, so that a first run needs no file and no download."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from pe_lightning.errors import InputError, did_you_mean

__all__ = ["SCHEME", "image_samples", "sample_path"]

SCHEME = "samples://"
_SUFFIXES = frozenset({".gif", ".jpg", ".jpeg", ".png", ".tif", ".tiff"})


@cache
def image_samples() -> dict[str, Path]:
    """The samples that are one 2-D image: name -> file, sorted by name.

    Only files of the installed package count; scikit-image can download more, which is never done here.
    """
    # scikit-image holds compiled modules, so it is always installed as plain files and a resource is a path
    folder = Path(str(resources.files("skimage.data")))
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    return {path.stem: path for path in files if _is_single_frame(path)}


def sample_path(uri: str) -> Path:
    """The file behind ``samples://NAME``.

    Raises:
        InputError: If there is no such sample; the message holds the nearest names and all of them.
    """
    name = uri.removeprefix(SCHEME)
    known = image_samples()
    if name not in known:
        near = did_you_mean(name, known)
        raise InputError(f"unknown sample {SCHEME}{name}{near or '.'} Samples: {', '.join(known)}")
    return known[name]


def _is_single_frame(path: Path) -> bool:
    try:
        with Image.open(path) as image:
            return getattr(image, "n_frames", 1) == 1
    except UnidentifiedImageError:  # one of scikit-image's TIFF stacks is of a kind that Pillow does not know
        return False
