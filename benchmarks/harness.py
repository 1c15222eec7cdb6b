"""What the benchmarks share: the line that names the machine, sections, tables, times, commands, pictures."""

from __future__ import annotations

import argparse
import logging
import os
import platform
import resource
import shlex
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "datasets"))  # modules that benchmarks share with the training of priors
PHOTOGRAPHS = ("astronaut", "coffee", "chelsea", "rocket")
"""Of scikit-image."""


def machine() -> str:
    """Processor architecture, threads, load and versions, for the first line of a table."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU only"
    load = f"{torch.get_num_threads()} threads of {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    return f"{platform.machine()}, {load}, {device}, torch {torch.__version__}"


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the docstring of a benchmark, as it is."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def run_sections(
    parser: argparse.ArgumentParser,
    sections: Mapping[str, Callable[[argparse.Namespace], object]],
    default: Sequence[str] = (),
) -> None:
    """Prints the machine and runs the sections that ``--only`` names, by default all of them, in their order."""
    parser.add_argument(
        "--only", nargs="+", choices=sections, default=default or list(sections), metavar="SECTION", help=", ".join(sections)
    )
    options = parser.parse_args()
    print(f"{parser.prog}: {machine()}", flush=True)
    for name, section in sections.items():
        if name in options.only:
            print(f"\n{name}", flush=True)
            section(options)


def print_titles(*titles: str) -> None:
    """The first two lines of a Markdown table."""
    print_row(*titles)
    print("|" + " --- |" * len(titles), flush=True)


def print_row(*cells: object) -> None:
    """A row of a Markdown table; floating-point numbers have two decimals, NaN is empty, whole numbers have commas."""
    formats: dict[type, str] = {float: ".2f", np.float64: ".2f", int: ","}
    texts = ["" if cell != cell else format(cell, formats.get(type(cell), "")) for cell in cells]
    print("| " + " | ".join(texts) + " |", flush=True)


# -- times ------------------------------------------------------------------------------------------------------------


def seconds_of(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Seconds of a call, of the processor unless another clock is given."""
    began = clock()
    work()
    return clock() - began


@contextmanager
def busy_cores() -> Iterator[None]:
    """A busy process for each core."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


# -- fits -------------------------------------------------------------------------------------------------------------


def make_trainer(steps: int, *callbacks: Callback, **options: Any) -> Trainer:
    """A Trainer, by default on the CPU, without loggers, checkpoints, bars and validation."""
    for name in ("lightning.pytorch", "pe_lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)  # Lightning 2.6 with torch >= 2.13
    warnings.filterwarnings("ignore", message=".*does not have many workers")  # the data is one batch in memory
    return Trainer(
        max_steps=steps,
        callbacks=list(callbacks),
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        **{"accelerator": "cpu", "enable_progress_bar": False, **options},
    )


def children_seconds() -> float:
    """Processor seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_python(
    arguments: Sequence[str], folder: Path, allowed: Sequence[int] = (0,), **environment: str
) -> tuple[str, float, float]:
    """What a Python process prints in a folder, and its wall and processor seconds; other statuses end this one."""
    command = [sys.executable, *arguments]
    before, began = children_seconds(), time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in allowed:
        sys.exit(f"{shlex.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout, time.perf_counter() - began, children_seconds() - before


def run(*arguments: str, folder: Path, allowed: Sequence[int] = (0,), **environment: str) -> tuple[str, float, float]:
    """What ``pe-lightning`` prints in a folder, and its wall and processor seconds."""
    return run_python(["-m", "pe_lightning", *arguments], folder, allowed, **environment)


# -- pictures ---------------------------------------------------------------------------------------------------------


def psnr(error: Any) -> float:
    """PSNR in dB of errors of values in [0, 1]."""
    return -10 * float(np.log10(max(np.square(np.asarray(error, np.float64)).mean(), 1e-30)))


def load(path: str) -> Tensor:
    """A picture ``(H, W, C)`` as values in [0, 1]."""
    from pe_lightning.training import ImageDataModule

    return ImageDataModule(path).values[0]


def files_of(paths: Sequence[str]) -> list[str]:
    """Files, those of folders included."""
    found: list[str] = []
    for path in paths:
        found += sorted(str(file) for file in Path(path).iterdir() if file.suffix) if os.path.isdir(path) else [path]
    return found


def load_all(paths: Sequence[str]) -> Tensor:
    """Pictures of one size, those of folders included: ``(S, H, W, C)``."""
    return torch.stack([load(path) for path in files_of(paths)])


def score_between(picture: Tensor, models: Mapping[str, Callable[[], Any]], stride: int = 2) -> dict[str, Any]:
    """Fits of one picture, by name: every ``stride``-th pixel of both axes is known, the others are scored."""
    import pe_lightning
    from pe_lightning.training import make_datamodule

    data = make_datamodule(picture[None], sampling={"name": "grid", "stride": stride})
    return {name: pe_lightning.fit(data, **make()) for name, make in models.items()}


def bicubic_psnr(picture: Tensor, stride: int = 2) -> float:
    """PSNR of bicubic interpolation on the pixels that are not known; see :func:`score_between`."""
    from pe_lightning.evaluation.baselines import interpolate
    from pe_lightning.signals import GridBatch, grid_axes

    axes = grid_axes(picture.shape[:-1])
    known = GridBatch(tuple(x[::stride] for x in axes), picture[None, ::stride, ::stride])
    error = interpolate("bicubic", known, axes)[0] - picture
    held_out = torch.ones(picture.shape[:2], dtype=torch.bool)
    held_out[::stride, ::stride] = False
    return psnr(error[held_out])
