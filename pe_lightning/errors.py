"""The exception for wrong input, and messages for users.

The command prints an :class:`InputError` as one paragraph and exits with status 2. Any other exception is a bug: the command
writes its traceback into a file and exits with status 1.
"""

from __future__ import annotations

import difflib
import importlib
import math
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

MAX_MESSAGE = 1500
"""Most characters of a message."""


class InputError(ValueError):
    """Wrong input; the message says what was given, what is allowed, and what to type."""


def refuse(*cases: tuple[object, str]) -> None:
    """Raises :class:`InputError` with the message of the first case whose condition holds."""
    for wrong, words in cases:
        if wrong:
            raise InputError(words)


def did_you_mean(word: str, allowed: Iterable[str], aliases: Mapping[str, str] | None = None) -> str:
    """The nearest allowed names as a clause of a message, or an empty string; ``aliases`` stand for allowed names.

    >>> did_you_mean("guassian", ["gau", "tri"], {"Gaussian": "gau"})
    "; did you mean 'gau'?"
    """
    suggestions = {**(aliases or {}), **{name: name for name in allowed}}
    by_folded = {name.lower(): suggestion for name, suggestion in suggestions.items()}
    close = difflib.get_close_matches(word.lower(), by_folded, n=3, cutoff=0.6)
    near = list(dict.fromkeys(by_folded[match] for match in close))
    return f"; did you mean {' or '.join(repr(name) for name in near)}?" if near else ""


def check_known(label: str, word: str, allowed: Iterable[str], listed: str) -> None:
    """Raises :class:`InputError` unless a word is allowed; the message has the nearest allowed word, and all.

    >>> check_known("unknown colour", "read", ["red", "blue"], "Colours")
    Traceback (most recent call last):
    pe_lightning.errors.InputError: unknown colour 'read'; did you mean 'red'? Colours: red, blue
    """
    known = list(allowed)
    if word not in known:
        raise InputError(f"{label} {word!r}{did_you_mean(str(word), known) or '.'} {listed}: {', '.join(known)}")


def printable(text: object) -> str:
    """``text`` with a replacement character for control characters, line breaks and bytes that are not UTF-8."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in str(text))


def say(*lines: object, file: TextIO | None = None) -> None:
    """Prints lines with printable characters only, to standard output or to ``file``."""
    stream = sys.stdout if file is None else file
    stream.write("".join(f"{printable(line)}\n" for line in lines))  # one write: several processes may fail at a time


def console(width: int | None = 160, stderr: bool = False) -> Console:
    """Console that prints tables with printable characters only, as wide as the terminal or ``width`` columns."""
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

    class PrintableConsole(Console):
        def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else "\n".join(map(printable, text.split("\n"))), style, control)

    options: dict[str, Any] = {"stderr": stderr, "markup": False, "emoji": False}
    made = PrintableConsole(**options)
    return made if made.is_terminal else PrintableConsole(width=width, **options)


def paragraph(text: str, limit: int = MAX_MESSAGE) -> str:
    r"""``text`` as one line of printable characters, shortened in the middle of long words and at ``limit`` characters.

    >>> paragraph("a\n  b\x00" + 100 * "c ", 20)
    'a b�c c c ... c c'
    """
    words = re.sub(r"(\S{150})\S{150,}(\S{50})", r"\1...\2", printable(" ".join(text.split())))
    head = limit - limit // 4 - 5
    return words if len(words) <= limit else f"{words[:head].rstrip()} ... {words[-(limit // 4) :].lstrip()}"


def show_metric(name: str) -> str:
    """The name of a metric for display; names of at most four letters are abbreviations, in capitals."""
    return name.upper() if len(name) <= 4 else name


PROTOCOLS = {
    "rest": "samples that are not trained on",
    "odd": "samples with odd indices on every axis",
    "midpoints": "samples halfway between trained ones on every axis",
    "all": "all samples, trained ones too",
}
"""The scored samples of each ``eval_mask``."""


def show_protocol(protocol: str) -> str:
    """The scored samples, for display; descriptions of folds as they are.

    >>> show_protocol("rest")
    'samples that are not trained on (rest)'
    """
    return f"{PROTOCOLS[protocol]} ({protocol})" if protocol in PROTOCOLS else printable(protocol)


def show_interpolation(name: str, num_axes: int) -> str:
    """The name of an interpolation of signals of so many axes, for display: ``bicubic`` is the word for pictures alone.

    >>> [show_interpolation("bicubic", num_axes) for num_axes in (1, 2, 3)]
    ['cubic convolution', 'bicubic', 'tricubic']
    """
    return {2: name, 3: "tricubic"}.get(num_axes, "cubic convolution") if name == "bicubic" else name


def show_bytes(size: int) -> str:
    """A size in bytes with a decimal unit, such as ``20.0 GB``."""
    if size < 1000:
        return f"{size} B"
    unit = min(int(math.log10(size)) // 3, 4)
    return f"{size / 1000**unit:.1f} {('kB', 'MB', 'GB', 'TB')[unit - 1]}"


def last_resort(error: Exception) -> tuple[str, int]:
    """The message and the exit status for an exception that is not an :class:`InputError`.

    The status is 2 for errors of the operating system and of Lightning's arguments. It is 1 for any other exception, whose
    traceback is written to a file that the message names.
    """
    text = " ".join(str(error).split())
    if words := out_of_memory(error):
        return words, 2
    if isinstance(error, ValueError) and "embedded null" in text:
        return "a path holds a zero byte", 2
    if any(cls.__name__ == "MisconfigurationException" for cls in type(error).__mro__):  # raised by Lightning
        return text, 2
    if text.startswith("Early stopping conditioned on metric"):
        return (
            "EarlyStopping has no value to monitor: the fit ends before its first validation, which follows an epoch. Raise "
            "trainer.max_steps, or lower data.steps_per_epoch"
        ), 2
    if isinstance(error, RuntimeError) and "--ntasks" in text and "SLURM" in text:  # raised by Lightning
        return (
            f"the environment has SLURM_NTASKS={os.environ.get('SLURM_NTASKS', '')!r} without SLURM_NTASKS_PER_NODE: type "
            "unset SLURM_NTASKS for a fit by this process, or start all by srun with --ntasks-per-node"
        ), 2
    if re.search(r"gloo|nccl", text, re.IGNORECASE) and re.search(r"[Cc]onnection (closed|reset|refused)|remote", text):
        return (
            "another process of this fit has ended, such as by a signal or for lack of memory: see what it printed, and "
            f"resume with --ckpt_path RUN/checkpoints/last.ckpt ({text[:120]})"
        ), 2
    if isinstance(error, OSError) and error.errno is not None:
        return f"{error.strerror or text}: {str(error.filename or 'a file')!r}", 2
    written = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile("w", prefix="pe-lightning-", suffix=".txt", delete=False) as file:
            file.write(written)
    except OSError:
        return f"{written}unexpected {type(error).__name__}: please report it with this traceback", 1
    return (
        f"unexpected {type(error).__name__}: {text[:300]}. This is a fault of the program, or of a class of your own; the "
        f"traceback is in {file.name}"
    ), 1


def out_of_memory(error: BaseException) -> str | None:
    """The message for an error about memory; ``None`` for other errors."""
    text = " ".join(str(error).split())
    words = "out of memory|can't allocate memory|size calculation overflow"
    if not isinstance(error, MemoryError) and not re.search(words, text):
        return None
    import psutil

    free = psutil.virtual_memory().available
    asked = re.search(r"allocate ([\d.]+ ?\w+)", text)
    needed = re.sub(r"^(\d+) bytes$", lambda found: show_bytes(int(found[1])), asked[1]) if asked else "more"
    return (
        f"there is not enough memory: {needed} requested at once, {show_bytes(free)} free. Make the signals "
        "(resize, center_crop, frames, length), num_features or the output smaller"
    )


EXTRA_OF_PACKAGE = {
    **dict.fromkeys(("h5netcdf", "pyarrow", "rasterio", "xarray", "zarr"), "geo"),
    **dict.fromkeys(("onnx", "onnxscript", "safetensors"), "export"),
    "nibabel": "nifti",
}
"""The extra of this package that installs each optional package."""


def require(module: str, purpose: str) -> ModuleType:
    """Imports a module of an optional package, such as ``pyarrow.parquet``; the message says what needs it."""
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        extra = EXTRA_OF_PACKAGE[package]
        raise InputError(
            f"{purpose} needs the package {package}, which is not installed: pip install 'pe-lightning[{extra}]'"
        ) from error
