"""Files: formats by suffix, paths of a user, and writing of a whole file or none. No torch: commands check files first."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import uuid4

from filelock import FileLock, Timeout

from pe_lightning.errors import InputError, did_you_mean, refuse, show_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Format: TypeAlias = Literal["picture", "tiff", "npy", "npz", "hdf5", "sound", "table", "parquet", "video", "nifti"]

PICTURES: frozenset[Format] = frozenset({"picture", "tiff"})
ARRAYS: frozenset[Format] = frozenset({"npy", "npz", "hdf5"})

SUFFIXES_OF_FORMAT: dict[Format, str] = {
    "picture": ".bmp .gif .jp2 .jpeg .jpg .pbm .pgm .png .pnm .ppm .webp",
    "tiff": ".tif .tiff",
    "npy": ".npy",
    "npz": ".npz",
    "hdf5": ".h5 .hdf5",
    "sound": ".aif .aiff .flac .mp3 .ogg .wav",
    "table": ".csv .tsv .txt",
    "parquet": ".parquet .pq",
    "video": ".3gp .avi .flv .m2ts .m4v .mkv .mov .mp4 .mpeg .mpg .mts .ogv .ts .webm .wmv .y4m",
    "nifti": ".nii .nii.gz",
}
FORMAT_OF_SUFFIX: dict[str, Format] = {
    suffix: format for format, suffixes in SUFFIXES_OF_FORMAT.items() for suffix in suffixes.split()
}


def format_of_suffix(path: Path) -> Format | None:
    """The format that the suffix of a file names; ``None`` if unknown."""
    return FORMAT_OF_SUFFIX.get(".nii.gz" if path.name.lower().endswith(".nii.gz") else path.suffix.lower())


def suffixes_of(formats: Collection[Format]) -> list[str]:
    """Lower-case suffixes of some formats, sorted."""
    return sorted(suffix for suffix, format in FORMAT_OF_SUFFIX.items() if format in formats)


def stem_of(path: Path) -> str:
    """The name of a file without its suffix, which may be ``.nii.gz``."""
    return path.stem.removesuffix(".nii")


def sha256_of(path: Path) -> str:
    """SHA-256 of the content of a file, 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 22):
            digest.update(part)
    return digest.hexdigest()


def user_path(given: str | os.PathLike[str]) -> Path:
    """A path with ``~`` and ``~name`` as home directories, and UTF-8 for characters that the locale lacks."""
    name = os.fspath(given)
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        name = os.fsdecode(name.encode("utf-8", "surrogateescape"))
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise InputError(
            f"no home directory is known for {name!r}: type the path in full, ./{name} for a file of this name, or set HOME"
        ) from error


def in_utf8(text: str) -> bytes:
    """A text with names of files as UTF-8; bytes that are not UTF-8 become replacement characters."""
    return text.encode("utf-8", "surrogateescape").decode(errors="replace").encode()


def real_path(given: str | os.PathLike[str]) -> Path:
    """The absolute path of :func:`user_path` with links followed; a loop of links stays as it is."""
    return Path(os.path.realpath(user_path(given)))


def check_readable(given: str, samples: Iterable[str] = ()) -> None:
    """Refuses a path that is neither a file with content nor a folder of signals; ``samples`` are offered in the message."""
    path = user_path(given)
    if "://" in given:
        raise InputError(
            f"cannot read {given!r}: paths are files, folders and samples://NAME; download it and give the file"
        )
    if path.is_dir():
        if (path / "config.yaml").is_file() and (path / "checkpoints").is_dir():
            raise InputError(
                f"{given!r} is a run directory, not signals: repeat the run with pe-lightning fit --config "
                f"{path}/config.yaml, resume it with --ckpt_path {path}/checkpoints/last.ckpt, or name files in it"
            )
        return
    if not path.is_file():
        if os.path.lexists(path):
            raise InputError(f"{given!r} is neither a file nor a folder, but a pipe, a device or a broken link")
        parent = next(folder for folder in path.parents if folder.is_dir() or folder == folder.parent)
        name = path.relative_to(parent).parts[0]
        near = did_you_mean(name, [entry.name for entry in parent.iterdir()])
        if not near and path.stem in samples:
            near = f"; did you mean 'samples://{path.stem}'?"
        where = "" if name == str(path) else f"; there is no {name!r}"
        raise InputError(f"no such file or folder: {str(path)!r}{where} in {str(parent.absolute())!r}{near}")
    if path.stat().st_size == 0:  # also endless files of /proc
        raise InputError(f"{given!r} is empty")


def check_outputs(outputs: Sequence[Path], inputs: Iterable[Path], force: bool) -> None:
    """Refuses to write a file that exists, that is read, or that is written twice.

    Args:
        outputs: Every file that will be written.
        inputs: Every file that is read, and folders whose files are read; ``force`` replaces none of them.
        force: Whether files that exist may be replaced.
    """
    read, written = set(map(real_path, inputs)), set()
    for path in outputs:
        real, name = real_path(path), str(path)
        is_read = real in read or any(path.exists() and one.exists() and path.samefile(one) for one in read)
        is_read = is_read or (real.exists() and real.parent in read)
        taken = path.is_dir() or (os.path.lexists(path) and not force)
        refuse(
            (is_read, f"{name!r} would be written, and is read: choose another name, --out OTHER"),
            (real in written, f"{name!r} would be written twice: write the results one by one, under names of their own"),
            (taken, f"{name!r} exists: choose another name, --out OTHER, or replace files with --force"),
        )
        written.add(real)


def named_files(tree: Any) -> list[Path]:
    """Every file that a configuration of plain values names."""
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    if isinstance(tree, list):
        return [path for entry in tree for path in named_files(entry)]
    return [Path(tree)] if isinstance(tree, str) and os.path.isfile(os.path.expanduser(tree)) else []


def check_results(folder: Path, verb: str, names: Iterable[str]) -> dict[str, list[str]]:
    """Refuses to replace files in a folder that a verb did not write, or that were changed since.

    Args:
        folder: The folder of the results; it need not exist.
        verb: The verb of the command, or ``reproduce NAME``.
        names: Paths of the files, relative to the folder.

    Returns:
        SHA-256 of the contents that the verb has written, by path.
    """
    if os.path.lexists(folder) and not folder.is_dir():
        raise InputError(f"cannot write to {str(folder)!r}, which is not a folder: choose another name, --out OTHER")
    listed = _list_of_results(folder, verb)
    try:
        own = {str(name): list(digests) for name, digests in json.loads(listed.read_text()).items()}
    except FileNotFoundError:
        own = {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"cannot read the list of results {str(listed)!r}: {error}") from error
    for path in (folder / name for name in names):
        if os.path.lexists(path) and not _is_own(path, own.get(str(path.relative_to(folder)), ())):
            raise InputError(
                f"{str(path)!r} was not written by pe-lightning {verb}, or was changed since: choose another folder, --out "
                "OTHER, or move that file"
            )
    return own


def _list_of_results(folder: Path, verb: str) -> Path:
    return folder / f".{verb.replace(' ', '-')}.json"


def _is_own(path: Path, digests: Collection[str]) -> bool:
    return bool(digests) and path.is_file() and not path.is_symlink() and sha256_of(path) in digests


def write_atomically(path: str | Path, content: str | bytes, force: bool = True) -> None:
    """Writes a file atomically: a reader finds the old or the new content. ``force``: whether a file is replaced."""
    data = in_utf8(content) if isinstance(content, str) else content
    with replacing(Path(path), len(data), force) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(path: Path, size: int | None = None, force: bool = True) -> Iterator[Path]:
    """Yields a temporary path of the same suffix, which becomes ``path``, or is deleted on an exception.

    Args:
        path: The file or folder.
        size: Number of bytes that will be written, if known, for the message.
        force: Whether a file of this name is replaced. If not, one of several processes that write it succeeds.
    """
    temporary = path.with_name(f".{uuid4().hex}.part{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if temporary.is_dir():
            os.rename(temporary, path)  # fails if there is a folder with files
            return
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())
        if not force:
            try:
                path.open("xb").close()
            except FileExistsError as error:
                raise InputError(
                    f"{str(path)!r} has been written by another program meanwhile; that file is kept"
                ) from error
        os.replace(temporary, path)
    except OSError as error:
        raise _not_written(path, size, error) from error
    finally:
        with suppress(OSError):
            shutil.rmtree(temporary) if temporary.is_dir() else temporary.unlink(missing_ok=True)


@contextmanager
def replacing_results(folder: Path, verb: str) -> Iterator[Path]:
    """Yields a temporary folder, whose files replace the files that the verb wrote into ``folder`` before, and no others.

    A hidden file of the folder, such as ``.compare.json``, lists them. On an exception the folder is as before.

    Raises:
        InputError: As of :func:`check_results`, or if another command is writing there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        listed = _list_of_results(folder, verb)
        with FileLock(listed.with_suffix(".lock"), timeout=0), tempfile.TemporaryDirectory(prefix=".", dir=folder) as name:
            temporary = Path(name)
            yield temporary
            files = {str(path.relative_to(temporary)): path for path in sorted(temporary.rglob("*")) if path.is_file()}
            before = check_results(folder, verb, files)
            digests = {name: [sha256_of(path)] for name, path in files.items()}
            # both contents are its own, whenever it is killed
            write_atomically(listed, json.dumps({**before, **{n: before.get(n, []) + digests[n] for n in files}}))
            for name, path in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, folder / name)
            for name in before.keys() - files.keys():
                if _is_own(folder / name, before[name]):
                    (folder / name).unlink()
            write_atomically(listed, json.dumps(digests))
    except Timeout as error:
        raise InputError(f"another command is writing to {str(folder)!r}: wait, or choose another --out") from error
    except OSError as error:
        raise _not_written(folder, None, error) from error


def append_lines(path: Path, lines: str) -> None:
    """Appends whole lines to a file, or nothing."""
    data = lines.encode()
    try:
        with path.open("ab", buffering=0) as file:  # one system call: a kill leaves none or all
            size = file.seek(0, os.SEEK_END)
            try:
                if file.write(data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                file.truncate(size)
                raise
    except OSError as error:
        raise _not_written(path, len(data), error) from error


def _not_written(path: Path, size: int | None, error: OSError) -> InputError:
    needed = "" if size is None else f", which takes {show_bytes(size)}"
    return InputError(
        f"cannot write {str(path)!r}{needed}: {error.strerror or error}; the disk has "
        f"{show_bytes(free_bytes(path))} free. What was written before is kept"
    )


def free_bytes(path: Path) -> int:
    """Bytes that are free on the disk of a path, which need not exist."""
    return shutil.disk_usage(next(folder for folder in path.absolute().parents if folder.is_dir())).free


def figure_bytes(figure: Figure, form: str = "png", dpi: int = 110) -> bytes:
    """The content of a figure's file, without a date: equal figures are equal files."""
    import matplotlib  # which the figure has imported

    content = io.BytesIO()
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with matplotlib.rc_context({"svg.hashsalt": "pe_lightning"}):
        figure.savefig(content, format=form, dpi=dpi, metadata=undated.get(form, {}))
    return content.getvalue()


def save_figure(path: Path, figure: Figure, dpi: int = 110) -> Path:
    """Writes a figure of matplotlib atomically, in the format of the path's suffix, and returns the path."""
    write_atomically(path, figure_bytes(figure, path.suffix[1:], dpi))
    return path


def shipped_bytes(path: Path, sha256: str) -> bytes:
    """Content of a file of the package, after a check of its checksum."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise InputError(f"{str(path)!r} is damaged: its checksum differs from its card; install pe-lightning again")
    return content
