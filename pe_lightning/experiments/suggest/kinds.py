"""Which DataModule files are for, by what they are called."""

from __future__ import annotations

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

__all__ = ["kind_of"]


def kind_of(path: str) -> str:
    """``images``, ``rows`` or ``video``: the source of a file, sample or folder; a folder is judged by the files in it.

    Raises:
        InputError: If the kind is not known by the name, or several could be meant.
    """
    if path.startswith(SCHEME):
        return "video" if path.removeprefix(SCHEME) in video_samples() else "images"
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return _kind_of_file(folder, path)
    try:
        visible = sorted(entry for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith("."))
    except PermissionError as error:
        raise InputError(f"cannot list the folder {path!r}: {error.strerror}") from error
    kinds: set[str] = set()
    for entry in visible:
        try:
            kinds.add(_kind_of_file(entry, str(entry)))
        except InputError:
            continue  # files that are no signals are ignored, as by the DataModules
    if len(kinds) == 1:
        return kinds.pop()
    holds = f"files of several kinds ({', '.join(sorted(kinds))})" if kinds else "no signals that are known by their names"
    raise InputError(f"the folder {path!r} holds {holds}")


def _kind_of_file(path: Path, given: str) -> str:
    name = path.name.lower()
    suffix = ".nii.gz" if name.endswith(".nii.gz") else path.suffix.lower()
    if suffix in TIFF_SUFFIXES and path.is_file():
        return "video" if count_pages(Source(path, given)) > 1 else "images"
    if suffix in SUFFIXES:
        return "images"
    if suffix in AUDIO_SUFFIXES | TABLE_SUFFIXES:
        return "rows"
    if suffix in VIDEO_SUFFIXES | NIFTI_SUFFIXES:
        return "video"
    if suffix in ARRAY_SUFFIXES:
        raise InputError(f"an array such as {given!r} can hold rows, images or volumes")
    raise InputError(f"{given!r} is of no kind that is known by its name")
