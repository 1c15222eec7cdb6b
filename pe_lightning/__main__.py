"""The command ``pe-lightning``, also ``python -m pe_lightning``.

Verbs that do not train start without importing Lightning.
"""

from __future__ import annotations

import ast
import errno
import importlib.util
import inspect
import io
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TextIO

from pe_lightning import __version__
from pe_lightning.errors import InputError, did_you_mean, last_resort, paragraph, say
from pe_lightning.results.runs import Durations
from pe_lightning.signals.distributed import check_launch_variables
from pe_lightning.training.interrupts import Interrupted, StopSignals, exit_status, raise_interrupted

CLOSED_OUTPUT = 141
"""Exit status after the reader of the output has closed it: 128 + SIGPIPE."""

VERB_GROUP = "pe_lightning.verbs"
"""Entry-point group of verbs, of this package too: typed functions, as :func:`pe_lightning.cli.verbs.call` takes."""
TRAINER_VERBS = {
    "fit": "fits signals, scores the held-out samples, writes reconstructions",
    "validate": "scores the held-out samples of a checkpoint",
    "test": "scores a checkpoint and writes its reconstructions",
    "predict": "writes reconstructions of a checkpoint at any size",
}
"""Verbs that are methods of the Trainer, with a line of help."""
SPINS = "1000"
"""Turns for which a thread of GNU OpenMP waits busily for the others, some microseconds; by default 300,000."""
ORDER = ("sweep", "compare", "suggest", "list", "encoders", "networks", "export", "cache")
"""Order of the other verbs of the framework in the help. Verbs of other packages follow, by package and name."""

HELP = """\
usage: pe-lightning VERB [options]

A Lightning-based training framework with a plugin registry of positional encoders for coordinate networks.

{verbs}

{examples}
  pe-lightning VERB --help                     the options of a verb
"""


def main(args: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status.

    The status is 0 on success, 1 after a fault of the program and 2 for invalid input. After a signal it is 128 + the number
    of the signal: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP; 141 if the reader of the output has closed it.

    Args:
        args: The arguments, by default of the process.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if args is None and "OMP_WAIT_POLICY" not in os.environ:  # PyTorch, which loads OpenMP, is not imported yet
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    try:
        status = _answer(sys.argv[1:] if args is None else args)
        sys.stdout.flush()
        return status
    except OSError as error:
        # errors in writing files name them; an error without a name is about the output
        if error.filename is not None or error.errno not in (errno.EPIPE, errno.ENOSPC):
            return _fail(*last_resort(error))
        problem = error
    except Exception as error:
        return _fail(*last_resort(error))
    _discard(sys.stdout)
    if isinstance(problem, BrokenPipeError):
        return CLOSED_OUTPUT
    return _fail(f"cannot write the output: {problem.strerror}", 2)


def _discard(stream: TextIO) -> None:
    """Redirects a stream to the null device, since the interpreter flushes it at exit and would fail again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _answer(args: Sequence[str]) -> int:
    Durations.command_began = time.perf_counter()
    verb, *arguments = args or ["--help"]
    if verb in ("-h", "--help", "help"):
        from pe_lightning.hints import examples

        verbs = "\n".join(f"  {verb:<10} {text}" for verb, text in _described_verbs().items())
        say(*HELP.format(verbs=verbs, examples="\n".join(examples())).splitlines())
        return 0
    if verb == "--version":
        say(f"pe-lightning {__version__}")
        return 0
    try:
        check_launch_variables()
        with StopSignals(raise_interrupted):
            return _run(verb, arguments)
    except InputError as error:
        return _fail(str(error), 2)
    except (KeyboardInterrupt, SystemExit) as end:
        # Lightning turns an interrupt into an exit with the status of a failure
        interrupt = end if isinstance(end, KeyboardInterrupt) else end.__context__
        if isinstance(interrupt, KeyboardInterrupt):
            stopped = interrupt if isinstance(interrupt, Interrupted) else Interrupted(signal.SIGINT)
            say(f"pe-lightning: {stopped}", file=sys.stderr)
            return exit_status(stopped.signum)
        if isinstance(end, SystemExit) and end.code in (None, 0):
            return 0  # after --help or --print_config
        raise
    finally:
        Durations.command_began = None


def _verbs() -> dict[str, EntryPoint]:
    """Verbs that are typed functions, in the order of the help; the first of equal names counts."""

    def rank(point: EntryPoint) -> tuple[int, str, str]:
        package = point.module.partition(".")[0]
        own = package == __package__ and point.name in ORDER
        return ORDER.index(point.name) if own else len(ORDER), package, point.name

    verbs: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=VERB_GROUP), key=rank):
        if point.name not in TRAINER_VERBS:
            verbs.setdefault(point.name, point)
    return verbs


def _function(point: EntryPoint) -> Callable[..., int | None]:
    try:
        function: Callable[..., int | None] = point.load()
    except Exception as error:  # importing a plugin can raise anything
        source = "" if point.dist is None else f" of {point.dist.name} {point.dist.version}"
        raise InputError(f"the verb {point.name!r}{source} cannot be imported: {error}") from error
    return function


def _docstring(point: EntryPoint) -> str:
    """The docstring of a verb, from the source of its module, since importing all modules takes seconds."""
    top, *inner = point.module.split(".")
    spec = importlib.util.find_spec(top)
    for name in inner:
        spec = spec and PathFinder.find_spec(f"{spec.name}.{name}", spec.submodule_search_locations or [])
    if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
        for node in ast.parse(Path(spec.origin).read_bytes()).body:
            if isinstance(node, ast.FunctionDef) and node.name == point.attr:
                return ast.get_docstring(node) or ""
    return inspect.getdoc(_function(point)) or ""  # not defined in this module


def _described_verbs() -> dict[str, str]:
    described = dict(TRAINER_VERBS)
    for name, point in _verbs().items():
        try:
            line = _docstring(point).partition("\n")[0]
        except (InputError, ImportError, SyntaxError, ValueError, OSError) as error:  # of the source of a plugin
            line = str(error)
        described[name] = f"{line[:1].lower()}{line[1:]}".rstrip(".")
    return described


def _fail(message: str, status: int) -> int:
    """Prints an error; the traceback of a fault is not shortened."""
    try:
        say(*f"pe-lightning: error: {paragraph(message) if status == 2 else message}".splitlines(), file=sys.stderr)
    except OSError:
        _discard(sys.stderr)
    return status


def _run(verb: str, arguments: Sequence[str]) -> int:
    if verb in TRAINER_VERBS:
        from pe_lightning.cli.main import run

        return run(verb, arguments)
    from pe_lightning.cli.verbs import call
    from pe_lightning.hints import hint

    verbs = _verbs()
    if verb in verbs:
        return call(verb, _function(verbs[verb]), arguments)
    if os.path.exists(verb) or re.search(r"\w\.\w|://", verb):
        raise InputError(f"{verb!r} is not a verb; to fit a file: pe-lightning fit {shlex.quote(verb)}")
    word, known = verb.lstrip("-"), [*TRAINER_VERBS, *verbs]
    text = hint(word)
    near = f": {text}." if text else did_you_mean(word, known) or "."
    raise InputError(f"unknown verb {verb!r}{near} Verbs: {', '.join(known)}")


if __name__ == "__main__":
    sys.exit(main())
