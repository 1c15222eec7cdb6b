"""What the sections of ``faults.py`` share: processes that may be killed, rows of attempts, and small commands."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from harness import print_row

from pe_lightning.__main__ import main as command

TABLES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("faults.yaml").read_text())


def words(*names: str) -> list[str]:
    """Words of the commands of faults.yaml, one after the other."""
    return [word for name in names for word in shlex.split(TABLES[name])]


def table(name: str) -> dict[str, list[str]]:
    """Words of the commands of a table of faults.yaml, by name."""
    return {key: shlex.split(text) for key, text in TABLES[name].items()}


FIT = ["fit", "--config", "image/demo", *words("small", "fit")]
SHORT_FIT = [*FIT, "--trainer.max_steps", "20"]
SWEEP = ["sweep", "--config", "image/closed_form", *words("small", "sweep")]
PREDICT = words("predict")
LIMIT = 20
HELD, REFUSED, BROKEN = 0, 2, 3

Work = Callable[[], int]
"""What a process does; it returns the exit status."""


def forked(work: Work, kill_after: float | None = None, limit: int = 600, signum: int = signal.SIGKILL) -> tuple[int, str]:
    """Runs a function in a process of its own: its exit status, negative after a signal, and what it wrote to stderr.

    Args:
        work: The function.
        kill_after: Seconds until the process gets the signal.
        limit: Seconds of processor time, and tens of seconds of wall time, after which it is killed in any case.
        signum: The signal.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace", newline="") as errors:
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(errors.fileno(), 2)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            status = BROKEN
            try:
                status = work()
            except BaseException as error:
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
            finally:
                sys.stderr.flush()
                os._exit(status)
        began = time.monotonic()
        while True:
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                break
            seconds = time.monotonic() - began
            if kill_after is not None and seconds > kill_after:
                os.kill(process, signum)
                kill_after = None
            if seconds > 10 * limit:
                os.kill(process, signal.SIGKILL)
            time.sleep(0.002)
        errors.seek(0)
        return os.waitstatus_to_exitcode(status), errors.read()


def run(arguments: list[str]) -> tuple[int, str]:
    """A command in a process of its own."""
    return forked(partial(command, arguments))


def seconds_of(work: Work) -> float:
    """How long a function takes that is not killed."""
    began = time.monotonic()
    status, errors = forked(work)
    if status:
        raise SystemExit(errors)
    return time.monotonic() - began


def in_order(status: int, errors: str, refused: Sequence[int] = (REFUSED,)) -> bool:
    """Whether a command succeeded, or ended with one paragraph."""
    told = errors.count("pe-lightning: error: ")
    return status == 0 or (status in refused and told == 1 and "Traceback" not in errors)


@contextmanager
def folder() -> Iterator[Path]:
    """A new working directory, with a cache of its own."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        os.environ["PE_LIGHTNING_CACHE"] = str(Path(name, "cache"))
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


class Row:
    """Counts attempts, and says which did not hold."""

    def __init__(self, name: str) -> None:
        self.name, self.tried, self.failures = name, 0, list[str]()

    def add(self, held: bool, failure: str) -> None:
        """Counts one attempt."""
        self.tried += 1
        if not held:
            self.failures.append(failure)

    def show(self) -> None:
        """Prints the row."""
        print_row(self.name, self.tried, self.tried - len(self.failures))
        for failure in self.failures[:20]:
            print(f"    {' '.join(failure.split())[:300]}", flush=True)


def drop_override() -> None:
    """Drops CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, by which root writes to read-only folders."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    for effective_or_permitted in (0, 1):
        sets[effective_or_permitted] &= ~0b110
    if libc.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def tree(path: Path) -> dict[str, bytes]:
    """The content of a file, or of the files of a folder."""
    files = [path] if path.is_file() else path.rglob("*")
    return {str(file.relative_to(path)): file.read_bytes() for file in files if file.is_file()}


def refuse(row: Row, arguments: list[str], size: int | None = None) -> None:
    """Counts a command that has to end with one paragraph and status 2 and to change nothing.

    Args:
        row: Counts the attempt.
        arguments: The command.
        size: Bytes after which the disk is full.
    """

    def work() -> int:
        if size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        return command(arguments)

    before, (status, errors) = tree(Path()), forked(work, limit=LIMIT)
    same = tree(Path()) == before
    held = status == REFUSED and len(errors.splitlines()) == 1 and same
    row.add(held, f"{' '.join(arguments)}: status {status}, unchanged {same}, {errors[-250:]}")


def killed(
    row: Row,
    kills: int,
    rng: random.Random,
    first: Callable[[str], Work],
    result: Callable[[Path], object],
    again: Callable[[str], Work] | None = None,
    signum: int = signal.SIGKILL,
) -> Row:
    """Gives signals at random moments, and compares what there is after another run with an uninterrupted one.

    Args:
        row: Counts the attempts.
        kills: Number of attempts.
        rng: Draws the moments.
        first: By the name of a file or folder, what writes it and gets the signal.
        result: The content of the file or folder.
        again: What runs after the signal; by default the same.
        signum: The signal.
    """
    seconds = seconds_of(first("whole"))
    expected = result(Path("whole"))
    for number in range(kills):
        name, moment = f"k{number}", rng.uniform(0, seconds)
        ended, errors = forked(first(name), moment, signum=signum)
        stopped = signum == signal.SIGKILL or ended in (0, 128 + signum)
        status, more_errors = forked((again or first)(name))
        same = status == 0 and result(Path(name)) == expected
        about = f"signal after {moment:.3f} s: status {ended}, again {status}, the same {same}"
        row.add(stopped and same, f"{about}: {errors[-150:]}{more_errors[-200:]}")
    return row
