"""Which DataModule files are for, by what they are called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pe_lightning.data.sources.array_files import ARRAY_SUFFIXES
from pe_lightning.data.sources.audio import AUDIO_SUFFIXES
from pe_lightning.data.sources.decode import SUFFIXES
from pe_lightning.data.sources.samples import SCHEME, video_samples
from pe_lightning.data.sources.sources import Source
from pe_lightning.data.sources.tables import TABLE_SUFFIXES
from pe_lightning.data.sources.video import VIDEO_SUFFIXES
from pe_lightning.data.sources.volumes import NIFTI_SUFFIXES, TIFF_SUFFIXES, count_pages
from pe_lightning.errors import InputError

__all__ = ["data_module_for"]

IMAGES, ROWS, CUBES = "ImageDataModule", "RowDataModule", "VideoDataModule"
HOW = "say which with --data ImageDataModule, RowDataModule or VideoDataModule"


def data_module_for(paths: Sequence[str]) -> str:
    """The name of the DataModule for files, folders or samples; folders are judged by the files in them.

    Raises:
        InputError: If they are of several kinds, of a kind that is not known, or one of which several could be meant.
    """
    kinds = {path: _kind(path) for path in paths}
    if len(set(kinds.values())) > 1:
        shown = ", ".join(f"{path!r} ({kind})" for path, kind in list(kinds.items())[:4])
        raise InputError(f"the paths are of several kinds: {shown}; suggest looks at one kind at a time, or {HOW}")
    return next(iter(kinds.values()))


def _kind(text: str) -> str:
    if text.startswith(SCHEME):
        return CUBES if text[len(SCHEME) :] in video_samples() else IMAGES
    path = Path(text).expanduser()
    if path.is_dir():
        return _folder(path, text)
    return _file(path, text)


def _file(path: Path, text: str) -> str:
    name = path.name.lower()
    suffix = ".nii.gz" if name.endswith(".nii.gz") else path.suffix.lower()
    if suffix in TIFF_SUFFIXES and path.is_file():
        return CUBES if count_pages(Source(path, text)) > 1 else IMAGES
    if suffix in SUFFIXES:
        return IMAGES
    if suffix in AUDIO_SUFFIXES | TABLE_SUFFIXES:
        return ROWS
    if suffix in VIDEO_SUFFIXES | NIFTI_SUFFIXES:
        return CUBES
    if suffix in ARRAY_SUFFIXES:
        raise InputError(f"an array such as {text!r} can hold rows, images or volumes; {HOW}")
    raise InputError(
        f"{text!r} is of no kind that is known by its name: images ({', '.join(sorted(SUFFIXES))}), sound and tables "
        f"({', '.join(sorted(AUDIO_SUFFIXES | TABLE_SUFFIXES))}), videos and volumes; if it is one, {HOW}"
    )


def _folder(path: Path, text: str) -> str:
    try:
        visible = sorted(entry for entry in path.iterdir() if entry.is_file() and not entry.name.startswith("."))
    except PermissionError as error:
        raise InputError(f"cannot list the folder {text!r}: {error.strerror}") from error
    kinds: set[str] = set()
    for entry in visible:
        try:
            kinds.add(_file(entry, str(entry)))
        except InputError:
            continue  # what is no signal is left out, as by the DataModules
    if len(kinds) == 1:
        return kinds.pop()
    holds = f"files of several kinds ({', '.join(sorted(kinds))})" if kinds else "no signals that are known by their names"
    raise InputError(f"the folder {text!r} holds {holds}; {HOW}")
