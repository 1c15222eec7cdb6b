"""From what a user types (files, folders, ``samples://NAME``) to files, their formats, and the names of their signals."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Literal, TypeAlias

from lightning.pytorch.utilities import rank_zero_info

from pe_lightning.data.sources.samples import SCHEME, image_samples, sample_path
from pe_lightning.errors import InputError, did_you_mean, paragraph

__all__ = [
    "ARRAYS",
    "PICTURES",
    "Format",
    "Paths",
    "SourceFile",
    "as_list",
    "distinct_names",
    "expand",
    "format_of",
    "is_stack",
    "nothing_in",
    "notice_skipped",
    "reading",
    "suffixes_of",
    "visible_files",
]

Paths: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str]]
Format: TypeAlias = Literal["picture", "tiff", "npy", "npz", "hdf5", "sound", "table", "video", "nifti"]

PICTURES: frozenset[Format] = frozenset({"picture", "tiff"})
ARRAYS: frozenset[Format] = frozenset({"npy", "npz", "hdf5"})

_SUFFIXES: dict[Format, str] = {
    "picture": ".bmp .gif .jp2 .jpeg .jpg .pbm .pgm .png .pnm .ppm .webp",
    "tiff": ".tif .tiff",
    "npy": ".npy",
    "npz": ".npz",
    "hdf5": ".h5 .hdf5",
    "sound": ".aif .aiff .flac .mp3 .ogg .wav",
    "table": ".csv .tsv .txt",
    "video": ".3gp .avi .flv .m2ts .m4v .mkv .mov .mp4 .mpeg .mpg .mts .ogv .ts .webm .wmv .y4m",
    "nifti": ".nii .nii.gz",
}
_FORMATS: dict[str, Format] = {suffix: format for format, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
_BEGINNINGS: dict[bytes, Format] = {
    **dict.fromkeys((b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"), "tiff"),
    **dict.fromkeys((b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8"), "picture"),
    **dict.fromkeys((b"PK\x03\x04", b"PK\x05\x06"), "npz"),
    b"\x93NUMPY": "npy",
    b"\x89HDF\r\n\x1a\n": "hdf5",
    b"fLaC": "sound",
}
_INSIDE: dict[bytes, Format] = {b"WAVE": "sound", b"WEBP": "picture", b"AVI ": "video"}
"""What is in a RIFF file, by its bytes 8 to 12."""


@dataclass(frozen=True)
class SourceFile:
    """One file, or folder of frames, to read, and how the user named it."""

    path: Path
    given: str

    @property
    def stem(self) -> str:
        """The name without its suffix; the whole name of a folder."""
        path = self.path.absolute()  # so that "." has a name
        return path.name if path.is_dir() else path.stem.removesuffix(".nii")


@contextmanager
def reading(given: str) -> Iterator[None]:
    """Turns whatever a library raises on an unreadable file into an :class:`InputError` that names the file."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # decoders raise anything at all on damaged files
        if isinstance(error, OSError) and error.errno is not None:  # the operating system sets it, libraries do not
            raise InputError(f"cannot open {given!r}: {error.strerror or error}") from error
        reason = f"{type(error).__name__}: {paragraph(str(error), 200)}"
        raise InputError(
            f"cannot read {given!r}; it is truncated, damaged or stored in a way that is not supported "
            f"({reason}). Copy it again, save it in another way, or remove it from the paths"
        ) from error


def as_list(paths: Paths) -> list[str]:
    """One or more paths as plain strings, as given; :class:`InputError` if there is none, or one is no path."""
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    if not given or not all(isinstance(item, (str, PathLike)) and fspath(item) for item in given):
        raise InputError(f"paths must be one or more files, folders or {SCHEME}NAME; got {paths!r}")
    return [fspath(path) for path in given]


def suffixes_of(formats: Collection[Format]) -> list[str]:
    """The lower-case suffixes of files of some formats, sorted."""
    return sorted(suffix for suffix, format in _FORMATS.items() if format in formats)


def format_of(path: Path, by_content: bool = True) -> Format | None:
    """The format of a file by its first bytes, or by its suffix where these say nothing; ``None``: another one."""
    if by_content:
        with reading(str(path)), path.open("rb") as file:
            header = file.read(12)
        if header[:4] in (b"RIFF", b"RIFX", b"RF64") and header[8:] in _INSIDE:
            return _INSIDE[header[8:]]
        for beginning, format in _BEGINNINGS.items():
            if header.startswith(beginning):
                return format
    return _FORMATS.get(".nii.gz" if path.name.lower().endswith(".nii.gz") else path.suffix.lower())


def expand(
    paths: Paths, formats: Collection[Format], what: str, samples: Literal["image", "video"] = "image"
) -> list[SourceFile]:
    """The files that ``paths`` stands for, in the order given; a folder is sorted by file name.

    Args:
        paths: One or more files, folders (not recursive; hidden files are skipped) or ``samples://NAME``.
        formats: What counts inside a folder, by the suffix; text tables only in a folder of nothing else that counts. Other
            files in it are skipped with a notice. A file named outright is not judged by its suffix.
        what: What is looked for, for messages.
        samples: Which samples there are.

    Raises:
        InputError: If a path is missing, or a folder holds no file of these formats.
    """
    found: list[SourceFile] = []
    for text in as_list(paths):
        path = Path(text).expanduser()
        if text.startswith(SCHEME):
            found.append(SourceFile(sample_path(text, samples), text))
        elif "://" in text:
            raise InputError(
                f"cannot read {text!r}: only files, folders and {SCHEME}NAME are read; download it and give the file"
            )
        elif path.is_file():
            if path.stat().st_size == 0:  # also the files of /proc, some of which never end
                raise InputError(f"{text!r} is empty")
            found.append(SourceFile(path, text))
        elif path.is_dir():
            inside = {file: format_of(file, by_content=False) for file in visible_files(path)}
            counted = [file for file, format in inside.items() if format in formats]
            if others := [file for file in counted if inside[file] != "table"]:
                counted = others  # text beside pictures, sound or arrays is a note, not a signal
            if not counted:
                raise nothing_in(path, formats, what)
            notice_skipped(path, [file for file in inside if file not in counted], what)
            found.extend(SourceFile(file, str(file)) for file in counted)
        elif os.path.lexists(path):
            raise InputError(f"{text!r} is neither a file nor a folder (a pipe, a device or a broken link)")
        else:
            raise _missing(path)
    return found


def visible_files(folder: Path) -> list[Path]:
    """The files of a folder that are not hidden, sorted; :class:`InputError` if it may not be listed."""
    with reading(str(folder)):
        return sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def notice_skipped(folder: Path, files: Sequence[Path], what: str) -> None:
    """Says which files of a folder are not read, if there are any."""
    if files:
        names = ", ".join(file.name for file in files[:8]) + (", ..." if len(files) > 8 else "")
        rank_zero_info(f"{len(files)} file(s) in the folder {str(folder)!r} are skipped, as they are no {what}: {names}")


def nothing_in(folder: Path, formats: Collection[Format], what: str) -> InputError:
    """The error about a folder without any file of some formats."""
    types = ", ".join(sorted({path.suffix or path.name for path in visible_files(folder)}))
    return InputError(
        f"no {what} in the folder {str(folder)!r}, which holds files of type {types or 'none'} (subfolders are not searched)"
        f". Files that count: {', '.join(suffixes_of(formats))}"
    )


def _missing(path: Path) -> InputError:
    parent = next(folder for folder in path.parents if folder.is_dir() or folder == folder.parent)
    name = path.relative_to(parent).parts[0]
    near = did_you_mean(name, [entry.name for entry in parent.iterdir()])
    if not near and path.stem in image_samples():
        near = f"; did you mean {SCHEME + path.stem!r}?"
    return InputError(f"no such file or folder: {str(path)!r}; there is no {name!r} in {str(parent.absolute())!r}{near}")


def distinct_names(files: Sequence[tuple[SourceFile, str]]) -> tuple[str, ...]:
    """A name for each signal: its stem; where stems collide, ``folder_stem``; where those collide too, numbered.

    Names become file names, so two that differ only in case count as equal.

    Args:
        files: The file of each signal, and the stem of its name.

    >>> paths = ("a/x.png", "b/x.png", "b/y.png", "b/y.jpg")
    >>> distinct_names([(file, file.stem) for file in (SourceFile(Path(path), path) for path in paths)])
    ('a_x', 'b_x', 'y-1', 'y-2')
    """
    stems = [stem for _, stem in files]
    with_folder = [f"{file.path.absolute().parent.name}_{stem}" for file, stem in files]
    same_stem, same_folder = (Counter(map(str.casefold, names)) for names in (stems, with_folder))
    taken = {stem for stem, count in same_stem.items() if count == 1}
    names: list[str] = []
    for stem, long in zip(stems, with_folder, strict=True):
        name, number = stem, 0
        if same_stem[stem.casefold()] > 1:
            name = long
            while name.casefold() in taken or (name == long and same_folder[long.casefold()] > 1):
                number += 1
                name = f"{stem}-{number}"
        taken.add(name.casefold())
        names.append(name)
    return tuple(names)


def is_stack(file: SourceFile) -> bool:
    """Whether a TIFF file holds more than one picture; :class:`InputError` if it is damaged."""
    import tifffile

    with reading(file.given), tifffile.TiffFile(file.path) as tiff:
        return len(tiff.pages) > 1 or bool(tiff.series[0].size > tiff.pages[0].size)
