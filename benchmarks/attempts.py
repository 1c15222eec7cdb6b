"""What the sections of ``faults.py`` share: processes that may be killed, attempts that are counted, small inputs."""

from __future__ import annotations

import concurrent.futures
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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from harness import print_row
from PIL import Image

from pe_lightning.__main__ import main as command

TABLES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("faults.yaml").read_text())
HELD, REFUSED, BROKEN = 0, 2, 3
Work = Callable[[], int]
"""What a process does; it returns the exit status."""


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


@dataclass
class Size:
    """How many attempts a section makes, and its random numbers."""

    kills: int
    mutations: int
    rng: random.Random

    @property
    def few(self) -> int:
        """A sixth of the kills."""
        return -(-self.kills // 6)


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


# -- processes --------------------------------------------------------------------------------------------------------------


def forked(work: Work, kill_after: float | None = None, limit: int = 600, signum: int = signal.SIGKILL) -> tuple[int, str]:
    """Exit status, negative after a signal, and stderr of a process that may get a signal after some seconds.

    It is killed in any case after ``limit`` seconds of processor time, and ten times as many of wall time.
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


def together(works: Sequence[Work]) -> list[tuple[int, str]]:
    """Several functions at the same time, each in a process of its own."""
    with concurrent.futures.ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(forked, works))


def made(*arguments: str) -> float:
    """Seconds of a command that has to succeed."""
    return seconds_of(partial(command, list(arguments)))


def seconds_of(work: Work) -> float:
    """Seconds of a function that has to succeed."""
    began = time.monotonic()
    status, errors = forked(work)
    if status:
        raise SystemExit(errors)
    return time.monotonic() - began


# -- attempts ---------------------------------------------------------------------------------------------------------------


def in_order(status: int, errors: str, refused: Sequence[int] = (REFUSED,)) -> bool:
    """Whether a command succeeded, or ended with one paragraph."""
    told = errors.count("pe-lightning: error: ")
    return status == 0 or (status in refused and told == 1 and "Traceback" not in errors)


def attempt(
    row: Row,
    arguments: Sequence[str],
    ends: Sequence[int] = (0, REFUSED),
    may_change: Callable[[str], bool] = lambda name: False,
    before: Callable[[], object] = lambda: None,
    about: str = "",
) -> None:
    """Counts a command: its status is one of ``ends``, it changes no file that it may not, and writes none if it is refused.

    ``before`` runs in the process of the command; ``about`` names the attempt in place of the command.
    """

    def work() -> int:
        before()
        return command(list(arguments))

    old, (status, errors) = tree(), forked(work, limit=200)
    new = tree()
    lost = [name for name, content in old.items() if new.get(name) != content and not may_change(name)]
    lost += sorted(new.keys() - old.keys()) if status == REFUSED else []
    held = status in ends and in_order(status, errors) and not lost
    row.add(held, f"{about or ' '.join(arguments)[:150]}: status {status}, changed {lost[:3]}, {errors[-250:]}")


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

    By the name of a file or folder ``first`` writes it and gets the signal, and then ``again``, by default the same, runs.
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


# -- files ------------------------------------------------------------------------------------------------------------------


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


def tree(path: Path = Path()) -> dict[str, bytes]:
    """The content of a file, or of the files and folders of a folder but those of the cache; folders have none."""
    places = [path] if path.is_file() else path.rglob("*")
    found = {str(place.relative_to(path)): place.read_bytes() if place.is_file() else b"" for place in places}
    return {name: content for name, content in found.items() if name.split("/")[0] != "cache"}


def restore(before: dict[str, bytes]) -> None:
    """Makes the files and folders of the working directory what they were."""
    for name in sorted(tree().keys() - before.keys(), reverse=True):
        Path(name).rmdir() if Path(name).is_dir() else Path(name).unlink()
    for name, content in before.items():
        if not Path(name).is_dir():
            Path(name).write_bytes(content)


def waves(height: int, width: int, phase: float = 0.0) -> Image.Image:
    """A smooth picture."""
    y, x = np.mgrid[:height, :width] / height
    return Image.fromarray(np.uint8(127 + 120 * np.sin(9 * x + 5 * y * y + phase)))


def write_gaps() -> None:
    """Writes a picture a.png of 24 x 28, a mask m.png of three missing lines, and points a.csv."""
    waves(24, 28).save("a.png")
    Image.fromarray(np.uint8(abs(np.arange(24)[:, None] * np.ones(28) - 9) < 2) * 255).save("m.png")
    Path("a.csv").write_text("x,y,v\n" + "".join(f"{n % 7},{n // 7},{n * n % 17}\n" for n in range(42)))
