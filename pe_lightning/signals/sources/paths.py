"""Files, folders and ``samples://NAME``: the files they stand for, their formats, and the names of signals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import chain, count
from os import PathLike, fspath
from pathlib import Path
from typing import Literal, TypeAlias

from PIL import Image, UnidentifiedImageError

from pe_lightning.errors import InputError, did_you_mean, paragraph
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import Format, check_readable, format_of_suffix, stem_of, suffixes_of, user_path

Paths: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str]]

SCHEME = "samples://"
VIDEO_FILES = {"bigbuckbunny": "bigbuckbunny.mp4", "phantom3d": "phantom.tif"}
SAMPLE_SUFFIXES = frozenset({".gif", ".jpg", ".jpeg", ".png", ".tif", ".tiff"})
FORMAT_OF_BEGINNING: dict[bytes, Format] = {
    **dict.fromkeys((b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"), "tiff"),
    **dict.fromkeys((b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8"), "picture"),
    **dict.fromkeys((b"PK\x03\x04", b"PK\x05\x06"), "npz"),
    b"\x93NUMPY": "npy",
    b"\x89HDF\r\n\x1a\n": "hdf5",
    b"fLaC": "sound",
    b"PAR1": "parquet",
}
FORMAT_OF_RIFF_TYPE: dict[bytes, Format] = {b"WAVE": "sound", b"WEBP": "picture", b"AVI ": "video"}  # bytes 8 to 12


@dataclass(frozen=True)
class SourceFile:
    """A file, or a folder of frames, and the path that the user gave."""

    path: Path
    given: str

    @property
    def stem(self) -> str:
        """The file name without its suffix, or the name of the folder."""
        path = self.path.absolute()  # "." has no name
        return path.name if path.is_dir() else stem_of(path)

    def names(self, count: int) -> tuple[str, ...]:
        return numbered(self.stem, count)

    def content(self) -> list[Path]:
        """The file, or the files of the folder that are not hidden, sorted."""
        if not self.path.is_dir():
            return [self.path]
        with reading(str(self.path)):
            return sorted(path for path in self.path.iterdir() if path.is_file() and not path.name.startswith("."))


def numbered(stem: str, count: int) -> tuple[str, ...]:
    """The stem, or for several signals the stem with numbers."""
    return (stem,) if count == 1 else tuple(f"{stem}-{number}" for number in range(count))


@cache
def image_samples() -> dict[str, Path]:
    """Pictures of the installed scikit-image by name, sorted."""
    found = {}
    for path in sorted(Path(str(resources.files("skimage.data"))).iterdir()):
        if path.suffix.lower() in SAMPLE_SUFFIXES:
            try:
                with Image.open(path) as image:
                    if getattr(image, "n_frames", 1) == 1:
                        found[path.stem] = path
            except UnidentifiedImageError:  # Pillow cannot read one of scikit-image's TIFF stacks
                continue
    return found


def video_samples() -> dict[str, Path]:
    """Videos and volumes by name, which only a clone of the repository has."""
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
    """The files of ``paths``, in the order given; files of a folder are sorted by name.

    Args:
        paths: One or more files, folders (not recursive; hidden files are skipped) or ``samples://NAME``.
        formats: Formats that are read from a folder, by suffix; text tables only if it has no other. Other files are skipped
            with a notice. Files that are given directly may have any suffix.
        what: Name of the wanted files, for messages.
        samples: Kind of samples.
    """
    found: list[SourceFile] = []
    for text in as_list(paths):
        path = user_path(text)
        if text.startswith(SCHEME):
            found.append(SourceFile(sample_path(text, samples), text))
            continue
        check_readable(text, image_samples())
        if not path.is_dir():
            found.append(SourceFile(path, text))
            continue
        inside = {file: format_of(file, by_content=False) for file in SourceFile(path, text).content()}
        counted = [file for file, format in inside.items() if format in formats]
        if others := [file for file in counted if inside[file] != "table"]:
            counted = others  # text files beside pictures, sound or arrays are notes
        if not counted:
            types = ", ".join(sorted({file.suffix or file.name for file in inside}))
            raise InputError(
                f"no {what} in the folder {str(path)!r}, which holds files of type {types or 'none'} (subfolders are not "
                f"searched). Read are: {', '.join(suffixes_of(formats))}"
            )
        if skipped := [file.name for file in inside if file not in counted]:
            names = ", ".join(skipped[:8]) + (", ..." if len(skipped) > 8 else "")
            rank_zero_info(
                f"{len(skipped)} file(s) in the folder {str(path)!r} are skipped, because they are no {what}: {names}"
            )
        found.extend(SourceFile(file, str(file)) for file in counted)
    return found


def distinct_names(files: Sequence[tuple[SourceFile, str]]) -> tuple[str, ...]:
    """A distinct name for each signal, given by its file and a stem: the stem, ``folder_stem``, or the stem and a number.

    Names become file names, so names that differ only in case count as equal.

    >>> paths = ("a/x.png", "b/x.png", "b/y.png", "b/y.jpg")
    >>> distinct_names([(file, file.stem) for file in (SourceFile(Path(path), path) for path in paths)])
    ('a_x', 'b_x', 'y-1', 'y-2')
    """
    stems = [stem for _, stem in files]
    with_folder = [f"{file.path.absolute().parent.name}_{stem}" for file, stem in files]
    same_stem, same_folder = (Counter(map(str.casefold, names)) for names in (stems, with_folder))
    taken = {stem for stem, number in same_stem.items() if number == 1}
    names: list[str] = []
    for stem, long in zip(stems, with_folder, strict=True):
        others = chain([long] * (same_folder[long.casefold()] == 1), (f"{stem}-{number}" for number in count(1)))
        is_only = same_stem[stem.casefold()] == 1
        names.append(stem if is_only else next(name for name in others if name.casefold() not in taken))
        taken.add(names[-1].casefold())
    return tuple(names)
