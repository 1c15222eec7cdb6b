"""The command ``pe-lightning``, also ``python -m pe_lightning``.

Verbs that do not train start without importing Lightning.
"""

from __future__ import annotations

import errno
import importlib
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
from importlib.metadata import EntryPoint, entry_points
from typing import TextIO

from pe_lightning import __version__
from pe_lightning.errors import InputError, did_you_mean, last_resort, paragraph, say
from pe_lightning.results.runs import Durations
from pe_lightning.signals.distributed import check_launch_variables
from pe_lightning.training.interrupts import Interrupted, StopSignals, exit_status, raise_interrupted

CLOSED_OUTPUT = 141
"""Exit status after the reader of the output has closed it: 128 + SIGPIPE."""

VERBS = {
    "fit": ("fit signals, score the held-out samples, write reconstructions", ""),
    "validate": ("score the held-out samples of a checkpoint", ""),
    "test": ("score a checkpoint and write its reconstructions", ""),
    "predict": ("write reconstructions of a checkpoint at any size", ""),
    "sweep": ("fit every combination of some settings", "studies.sweep.command.sweep"),
    "compare": ("tables, plots and pictures of runs side by side", "studies.compare.command.compare_runs"),
    "suggest": ("try all encoders on your signals and write the best as a configuration", "studies.suggest.command.suggest"),
    "list": ("list all names: encoders, models, samplings, recipes, ...", "cli.commands.list_registered"),
    "encoders": ("list the registered encoders", "cli.commands.list_encoders"),
    "networks": ("list the models, and the activations of SimpleMLP", "cli.commands.list_networks"),
    "export": ("write the model of a run as safetensors, or without the state of the optimiser", "training.export.export"),
    "cache": ("list or clear the cache of decoded signals", "cli.commands.cache"),
    "fill": ("predict the missing samples of a file, or enlarge it", "cli.fill.fill_files"),
    "demo": ("show every use on small signals, in a page, within a minute", "studies.demo.demo"),
}
"""A line of help for each verb, and the typed function that it is; the others are methods of the Trainer.

The order is that of the help: the framework first, tools that are built on it after it.
"""

USES = {
    "denoise": "fill FILE --smooth --out OUT",
    "smooth": "fill FILE --smooth --out OUT",
    "upscale": "fill FILE --upscale 2 --out OUT",
    "enlarge": "fill FILE --upscale 2 --out OUT",
    "inpaint": "fill FILE --missing MASK --out OUT",
    "compress": "fit FILE --config image/sparse",
    "train": "fit FILE",
}
"""Words that people type for a verb, and what to type."""

VERB_GROUP = "pe_lightning.verbs"
"""Entry-point group of verbs of other packages: typed functions, as :func:`pe_lightning.cli.verbs.call` takes."""

HELP = """\
usage: pe-lightning VERB [options]

A Lightning-based framework that trains and exactly solves coordinate networks on positional encodings.

{verbs}

  pe-lightning fit --config image/demo         train on a sample photograph by a recipe of the package
  pe-lightning fit my.jpg --encoder tri        solve exactly: pictures, sound, tables, videos, volumes
  pe-lightning compare runs/ --by encoder.name
  pe-lightning predict --ckpt_path RUN/checkpoints/last.ckpt --scale 2
  pe-lightning fill photo.jpg --upscale 2 --out large.png
  pe-lightning VERB --help                     the options of a verb
"""


def main(args: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status.

    The status is 0 on success, 1 after a fault of the program and 2 for invalid input. After a signal it is 128 + the number
    of the signal: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP; 141 if the reader of the output has closed it. Characters
    that the encoding of a stream lacks are replaced.

    Args:
        args: The arguments; ``None`` for those of the process.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        status = _answer(sys.argv[1:] if args is None else args)
        sys.stdout.flush()
        return status
    except OSError as error:
        # errors in writing files name them; an error without a name is that of the output
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
    """Redirects a stream to the null device: the interpreter flushes it at exit and would fail again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _answer(args: Sequence[str]) -> int:
    Durations.command_began = time.perf_counter()
    verb, *arguments = args or ["--help"]
    if verb in ("-h", "--help", "help"):
        say(*HELP.format(verbs="\n".join(f"  {verb:<10} {text}" for verb, text in _described_verbs().items())).splitlines())
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


def _added_verbs() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=VERB_GROUP) if point.name not in VERBS}


def _function(point: EntryPoint) -> Callable[..., int | None]:
    try:
        function: Callable[..., int | None] = point.load()
    except (ImportError, AttributeError) as error:
        source = "" if point.dist is None else f" of {point.dist.name} {point.dist.version}"
        raise InputError(f"the verb {point.name!r}{source} cannot be imported: {error}") from error
    return function


def _described_verbs() -> dict[str, str]:
    """All verbs with a line of help; that of a verb of another package begins its docstring."""
    described = {name: line for name, (line, _) in VERBS.items()}
    for name, point in sorted(_added_verbs().items()):
        try:
            line = (inspect.getdoc(_function(point)) or "").partition("\n")[0]
        except InputError as error:
            line = str(error)
        described[name] = f"{line[:1].lower()}{line[1:]}".rstrip(".")
    return described


def _fail(message: str, status: int) -> int:
    """Prints an error. The traceback of a fault, printed where no file can be written, is not shortened."""
    try:
        say(*f"pe-lightning: error: {paragraph(message) if status == 2 else message}".splitlines(), file=sys.stderr)
    except OSError:
        _discard(sys.stderr)
    return status


def _run(verb: str, arguments: Sequence[str]) -> int:
    added = {} if verb in VERBS else _added_verbs()
    if verb not in VERBS and verb not in added:
        if os.path.exists(verb) or re.search(r"\w\.\w|://", verb):
            raise InputError(f"{verb!r} is not a verb; to fit a file: pe-lightning fit {shlex.quote(verb)}")
        word = verb.lstrip("-")
        near = f": pe-lightning {USES[word]}." if word in USES else did_you_mean(word, [*VERBS, *added]) or "."
        raise InputError(f"unknown verb {verb!r}{near} Verbs: {', '.join([*VERBS, *added])}")
    path = "" if verb in added else VERBS[verb][1]
    if not path and verb not in added:
        from pe_lightning.cli.cli import run

        return run(verb, arguments)
    from pe_lightning.cli.verbs import call

    if verb in added:
        return call(verb, _function(added[verb]), arguments)
    module, _, name = path.rpartition(".")
    return call(verb, getattr(importlib.import_module(f"pe_lightning.{module}"), name), arguments)


if __name__ == "__main__":
    sys.exit(main())
