"""Files, folders and ``samples://NAME``: the files they stand for, their formats, and the names of signals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Literal, TypeAlias

from pe_lightning.errors import InputError, paragraph
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import Format, check_readable, format_of_suffix, no_such_file, suffixes_of
from pe_lightning.signals.sources.samples import SCHEME, image_samples, sample_path

Paths: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str]]
FORMAT_OF_BEGINNING: dict[bytes, Format] = {
    **dict.fromkeys((b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"), "tiff"),
    **dict.fromkeys((b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8"), "picture"),
    **dict.fromkeys((b"PK\x03\x04", b"PK\x05\x06"), "npz"),
    b"\x93NUMPY": "npy",
    b"\x89HDF\r\n\x1a\n": "hdf5",
    b"fLaC": "sound",
    b"PAR1": "parquet",
}
FORMAT_OF_RIFF_TYPE: dict[bytes, Format] = {b"WAVE": "sound", b"WEBP": "picture", b"AVI ": "video"}
"""Formats of RIFF files, by their bytes 8 to 12."""


@dataclass(frozen=True)
class SourceFile:
    """A file, or a folder of frames, and the path that the user gave."""

    path: Path
    given: str

    @property
    def stem(self) -> str:
        """The file name without its suffix, or the name of the folder."""
        path = self.path.absolute()  # "." has no name
        return path.name if path.is_dir() else path.stem.removesuffix(".nii")


@contextmanager
def reading(given: str) -> Iterator[None]:
    """Converts any exception of a library on an unreadable file to an :class:`InputError` that names the file."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # decoders raise many types for damaged files
        if isinstance(error, OSError) and error.errno is not None:  # set by the operating system only
            raise InputError(f"cannot open {given!r}: {error.strerror or error}") from error
        reason = f"{type(error).__name__}: {paragraph(str(error), 200)}"
        raise InputError(
            f"cannot read {given!r}; it is truncated, damaged or of an unsupported variant of its format "
            f"({reason}). Copy it again, save it in another way, or remove it from the paths"
        ) from error


def as_list(paths: Paths) -> list[str]:
    """One or more paths as a list of strings; :class:`InputError` if there is none, or one is not a path."""
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    if not given or not all(isinstance(item, (str, PathLike)) and fspath(item) for item in given):
        raise InputError(f"paths must be one or more files, folders or {SCHEME}NAME; got {paths!r}")
    return [fspath(path) for path in given]


def format_of(path: Path, by_content: bool = True) -> Format | None:
    """The format of a file by its first bytes, or else by its suffix; ``None`` if unknown."""
    if by_content:
        with reading(str(path)), path.open("rb") as file:
            header = file.read(12)
        if header[:4] in (b"RIFF", b"RIFX", b"RF64") and header[8:] in FORMAT_OF_RIFF_TYPE:
            return FORMAT_OF_RIFF_TYPE[header[8:]]
        for beginning, format in FORMAT_OF_BEGINNING.items():
            if header.startswith(beginning):
                return format
    return format_of_suffix(path)


def expand(
    paths: Paths, formats: Collection[Format], what: str, samples: Literal["image", "video"] = "image"
) -> list[SourceFile]:
    """The files of ``paths``, in the order given; those of a folder are sorted by name.

    Args:
        paths: One or more files, folders (not recursive; hidden files are skipped) or ``samples://NAME``.
        formats: Formats read from a folder, by suffix; text tables only if no other format is found in it. Other files are
            skipped with a notice. Files that are given directly may have any suffix.
        what: Name of the wanted files, for messages.
        samples: Kind of samples.
    """
    found: list[SourceFile] = []
    for text in as_list(paths):
        path = Path(text).expanduser()
        if text.startswith(SCHEME):
            found.append(SourceFile(sample_path(text, samples), text))
            continue
        check_readable(text, image_samples())
        if path.is_dir():
            inside = {file: format_of(file, by_content=False) for file in visible_files(path)}
            counted = [file for file, format in inside.items() if format in formats]
            if others := [file for file in counted if inside[file] != "table"]:
                counted = others  # text files beside pictures, sound or arrays are notes
            if not counted:
                raise nothing_in(path, formats, what)
            notice_skipped(path, [file for file in inside if file not in counted], what)
            found.extend(SourceFile(file, str(file)) for file in counted)
        else:
            found.append(SourceFile(path, text))
    return found


def visible_files(folder: Path) -> list[Path]:
    """The files of a folder that are not hidden, sorted; :class:`InputError` if it cannot be listed."""
    with reading(str(folder)):
        return sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def notice_skipped(folder: Path, files: Sequence[Path], what: str) -> None:
    """Prints which files of a folder are not read, if any."""
    if files:
        names = ", ".join(file.name for file in files[:8]) + (", ..." if len(files) > 8 else "")
        rank_zero_info(
            f"{len(files)} file(s) in the folder {str(folder)!r} are skipped, because they are no {what}: {names}"
        )


def nothing_in(folder: Path, formats: Collection[Format], what: str) -> InputError:
    """The error for a folder without files of some formats."""
    types = ", ".join(sorted({path.suffix or path.name for path in visible_files(folder)}))
    return InputError(
        f"no {what} in the folder {str(folder)!r}, which holds files of type {types or 'none'} (subfolders are not searched)"
        f". Read are: {', '.join(suffixes_of(formats))}"
    )


def missing(path: Path) -> InputError:
    """The error about a path that does not exist, with similar names."""
    return no_such_file(path, image_samples())


def distinct_names(files: Sequence[tuple[SourceFile, str]]) -> tuple[str, ...]:
    """A distinct name for each signal: its stem, else ``folder_stem``, else the stem and a number.

    Names become file names, so names that differ only in case count as equal.

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
    """Whether a TIFF file has more than one picture; :class:`InputError` if it is damaged."""
    import tifffile

    with reading(file.given), tifffile.TiffFile(file.path) as tiff:
        return len(tiff.pages) > 1 or bool(tiff.series[0].size > tiff.pages[0].size)
