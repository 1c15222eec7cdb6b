"""From what a user types (files, folders, ``samples://NAME``) to files with distinct names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path

from pe_lightning.data.sources.samples import SCHEME, image_samples, sample_path
from pe_lightning.errors import InputError, did_you_mean

__all__ = ["Source", "as_list", "distinct_names", "expand"]


@dataclass(frozen=True)
class Source:
    """One file to read.

    Args:
        path: The file.
        given: How the user named it, for messages.
    """

    path: Path
    given: str


def as_list(paths: str | PathLike[str] | Sequence[str | PathLike[str]]) -> list[str]:
    """One or more paths as plain strings, as given."""
    given = [paths] if isinstance(paths, (str, PathLike)) else paths
    return [fspath(path) for path in given]


def expand(
    paths: str | PathLike[str] | Sequence[str | PathLike[str]],
    suffixes: Collection[str],
    kind: str = "image",
    find_sample: Callable[[str], Path] = sample_path,
) -> list[Source]:
    """The files that ``paths`` stands for, in the order given; a folder is sorted by file name.

    Args:
        paths: One or more files, folders (not recursive; hidden files are skipped) or ``samples://NAME``.
        suffixes: Lower-case suffixes that count inside a folder, such as ``".png"``. A file named outright is not
            judged by its suffix.
        kind: What is looked for, for messages.
        find_sample: Resolves ``samples://NAME``.

    Raises:
        InputError: If a path is missing, a folder holds no file of the kind, or there is no path at all.
    """
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    if not given:
        raise InputError(f"no {kind} given: paths is an empty list; give a file, a folder or {SCHEME}NAME")
    sources: list[Source] = []
    for item in given:
        if not isinstance(item, (str, PathLike)) or not fspath(item):
            raise InputError(f"a path is a non-empty string, got {item!r}; give a file, a folder or {SCHEME}NAME")
        text = fspath(item)
        if text.startswith(SCHEME):
            sources.append(Source(find_sample(text), text))
            continue
        if "://" in text:
            raise InputError(
                f"cannot read {text!r}: only files, folders and {SCHEME}NAME are read; download it and give the file"
            )
        path = Path(text).expanduser()
        if path.is_dir():
            sources.extend(_files_of(path, suffixes, kind))
        elif path.is_file():
            sources.append(Source(path, text))
        else:
            raise InputError(_missing(path))
    return sources


def _files_of(folder: Path, suffixes: Collection[str], kind: str) -> list[Source]:
    try:
        visible = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    except PermissionError as error:
        raise InputError(f"cannot list the folder {str(folder)!r}: {error.strerror}") from error
    found = [path for path in visible if path.suffix.lower() in suffixes]
    if not found:
        others = sorted({path.suffix for path in visible})
        holds = f"it holds {len(visible)} file(s) of type {', '.join(others) or 'none'}" if visible else "it is empty"
        raise InputError(
            f"no {kind} in the folder {str(folder)!r}: {holds} (subfolders are not searched). "
            f"Files that count: {', '.join(sorted(suffixes))}"
        )
    return [Source(path, str(path)) for path in found]


def _missing(path: Path) -> str:
    if path.is_symlink():
        return f"no such file: {str(path)!r} is a link to {str(path.readlink())!r}, which does not exist"
    if path.parent.is_dir():
        try:
            beside = [entry.name for entry in path.parent.iterdir()]
        except PermissionError:
            beside = []
        near = did_you_mean(path.name, beside)
        where = f"in {str(path.parent)!r} (the working directory is {str(Path.cwd())!r})"
        if not near and path.stem in image_samples():
            near = f"; did you mean {SCHEME + path.stem!r}?"
        return f"no such file or folder: {path.name!r} {where}{near}"
    parent = next(folder for folder in path.parents if folder.is_dir() or folder == folder.parent)
    first_missing = path.relative_to(parent).parts[0]
    near = did_you_mean(first_missing, [entry.name for entry in parent.iterdir()] if parent.is_dir() else [])
    return f"no such file or folder: {str(path)!r}; there is no {first_missing!r} in {str(parent.absolute())!r}{near}"


def distinct_names(sources: Sequence[Source]) -> tuple[str, ...]:
    """A name for each source: its stem; where stems collide, ``folder_stem``; where those collide too, numbered.

    Names become file names, so two that differ only in case count as equal.

    >>> distinct_names([Source(Path(p), p) for p in ("a/x.png", "b/x.png", "b/y.png", "b/y.jpg")])
    ('a_x', 'b_x', 'y-1', 'y-2')
    """
    stems = [source.path.stem for source in sources]
    by_folder = [f"{source.path.absolute().parent.name}_{source.path.stem}" for source in sources]
    same_stem = Counter(stem.casefold() for stem in stems)
    same_folder = Counter(name.casefold() for name in by_folder)
    taken = {stem.casefold() for stem in stems if same_stem[stem.casefold()] == 1}
    names: list[str] = []
    for stem, long in zip(stems, by_folder, strict=True):
        if same_stem[stem.casefold()] == 1:
            names.append(stem)
            continue
        if same_folder[long.casefold()] == 1 and long.casefold() not in taken:
            name = long
        else:
            number = 1
            while (name := f"{stem}-{number}").casefold() in taken:
                number += 1
        taken.add(name.casefold())
        names.append(name)
    return tuple(names)
