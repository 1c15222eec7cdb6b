"""From what a user types to the videos, frame folders and volumes that it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Literal, TypeAlias

from pe_lightning.data.sources.array_files import ARRAY_SUFFIXES, file_kind
from pe_lightning.data.sources.decode import SUFFIXES
from pe_lightning.data.sources.samples import SCHEME, video_sample_path
from pe_lightning.data.sources.sources import Source, expand
from pe_lightning.data.sources.video import VIDEO_SUFFIXES
from pe_lightning.data.sources.volumes import NIFTI_SUFFIXES, TIFF_SUFFIXES, count_pages
from pe_lightning.errors import InputError

__all__ = ["CUBE_SUFFIXES", "Kind", "Paths", "cube_files", "cube_sources"]

CUBE_SUFFIXES = VIDEO_SUFFIXES | ARRAY_SUFFIXES | TIFF_SUFFIXES | NIFTI_SUFFIXES
"""What counts as a video or a volume. Inside a folder, a TIFF of one page is a frame."""

Kind: TypeAlias = Literal["video", "frames", "tiff", "nifti", "array"]
Paths: TypeAlias = "str | PathLike[str] | Sequence[str | PathLike[str]]"
_TIFF_MAGIC = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")


def cube_sources(paths: Paths) -> list[tuple[Source, Kind]]:
    """What ``paths`` stands for, in the order given."""
    found: list[tuple[Source, Kind]] = []
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    if not given:
        raise InputError(f"no video or volume given: paths is an empty list; give a file, a folder or {SCHEME}NAME")
    for item in given:
        folder = Path(fspath(item)).expanduser() if isinstance(item, (str, PathLike)) and fspath(item) else None
        if folder is not None and SCHEME not in fspath(item) and folder.is_dir():
            found.extend(_inside(folder, fspath(item)))
        else:
            expanded = expand([item], CUBE_SUFFIXES, kind="video or volume", find_sample=video_sample_path)
            found.extend((source, _kind(source)) for source in expanded)
    return found


def _inside(folder: Path, given: str) -> list[tuple[Source, Kind]]:
    try:
        visible = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    except PermissionError as error:
        raise InputError(f"cannot list the folder {given!r}: {error.strerror}") from error
    signals = [path for path in visible if _suffix(path) in CUBE_SUFFIXES - TIFF_SUFFIXES]
    pictures = [path for path in visible if path.suffix.lower() in SUFFIXES]
    stacks = [path for path in pictures if path.suffix.lower() in TIFF_SUFFIXES]
    if not signals and len(stacks) == len(pictures) and stacks and count_pages(Source(stacks[0], str(stacks[0]))) > 1:
        signals = stacks
    if signals:
        return [(source, _kind(source)) for source in (Source(path, str(path)) for path in signals)]
    if pictures:
        return [(Source(folder, given), "frames")]
    types = ", ".join(sorted({path.suffix for path in visible})) or "none"
    holds = f"it holds {len(visible)} file(s) of type {types}" if visible else "it is empty"
    raise InputError(
        f"no video, volume or frame in the folder {given!r}: {holds} (subfolders are not searched). Files that count: "
        f"{', '.join(sorted(CUBE_SUFFIXES | SUFFIXES))}"
    )


def _suffix(path: Path) -> str:
    name = path.name.lower()
    return ".nii.gz" if name.endswith(".nii.gz") else path.suffix.lower()


def _kind(source: Source) -> Kind:
    """What a file is, by its first bytes; NIfTI by its suffix; anything else is tried as a video."""
    if _suffix(source.path) in NIFTI_SUFFIXES:
        return "nifti"
    if file_kind(source.path) is not None:
        return "array"
    with source.path.open("rb") as file:
        header = file.read(4)
    if header in _TIFF_MAGIC or _suffix(source.path) in TIFF_SUFFIXES:
        return "tiff"
    if _suffix(source.path) in SUFFIXES - {".gif", ".webp"}:
        raise InputError(f"{source.given!r} is one picture; give the folder that holds the frames, or use ImageDataModule")
    return "video"


def cube_files(paths: Paths) -> tuple[Path, ...]:
    """The files that ``paths`` stands for, those of frame folders included: what a cache of the signals depends on."""
    found: list[Path] = []
    for source, kind in cube_sources(paths):
        inside = sorted(path for path in source.path.iterdir() if path.is_file()) if kind == "frames" else [source.path]
        found.extend(inside)
    return tuple(found)
