"""Commands in processes of their own, and callbacks that send such a process a signal."""

import json
import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import torch
from lightning.pytorch import Callback

TESTS = Path(__file__).parent
QUICK = ["--data.resize", "32", "--model.encoder.num_features", "16", "--trainer.log_every_n_steps", "5"]
QUICK += ["--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false"]

FORKS = multiprocessing.get_context("forkserver")
# each command would take seconds to import these
FORKS.set_forkserver_preload(["pe_lightning.cli.main", "pe_papers.tasks", "pe_lightning.training.callbacks", "wandb"])


def _command(arguments: list[str], folder: Path, environment: dict[str, str], output: Path) -> None:
    """What a forked process does: as ``python -m pe_lightning`` in the folder."""
    from pe_lightning.__main__ import main

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.path[:0] = environment["PYTHONPATH"].split(os.pathsep)
    if arguments[0].endswith(".py"):
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
    else:
        sys.argv = ["pe-lightning", *arguments]
        sys.exit(main())


def run_command(
    folder: Path, *arguments: str, launched: bool = False, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs ``pe-lightning`` in processes of its own, forked from one that has imported it.

    Args:
        folder: The working directory.
        arguments: Of the command; or a script of Python and its arguments. With ``--trainer.devices 2`` both processes are
            started here and told so, as those of torchrun are.
        launched: Whether the command is a new process instead, and starts the others itself.
        environment: Further variables.
    """
    folder.mkdir(exist_ok=True)
    paths = [str(TESTS.parent), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(environment or {})}
    if launched:
        command = [sys.executable, "-m", "pe_lightning", *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300, env=variables)
    count = int(arguments[arguments.index("--trainer.devices") + 1]) if "--trainer.devices" in arguments else 1
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        several = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "NODE_RANK": "0"}
    outputs = [folder / f"output{rank}.txt" for rank in range(count)]
    processes = []
    for rank, output in enumerate(outputs):
        own = {**variables, **(several | {"LOCAL_RANK": str(rank)} if count > 1 else {})}
        processes.append(FORKS.Process(target=_command, args=([*arguments], folder.absolute(), own, output.absolute())))
        processes[-1].start()
    for process in processes:
        process.join(300)
        assert process.exitcode is not None, f"still running: {[output.read_text() for output in outputs]}"
        if process.exitcode:  # the others wait for it
            for other in processes:
                other.kill()
    text = "".join(output.read_text() for output in outputs)
    return subprocess.CompletedProcess([*arguments], processes[0].exitcode or 0, text, text)


def run_fit(
    folder: Path, recipe: str, *arguments: str, wandb: bool = False, launched: bool = False
) -> subprocess.CompletedProcess[str]:
    """Runs a recipe for images in a folder."""
    options = ["--config", f"image/{recipe.removesuffix('.yaml')}", *QUICK, "--wandb.enabled", str(wandb).lower()]
    return run_command(folder, "fit", *options, *arguments, launched=launched)


def fit(folder: Path, recipe: str, *arguments: str, wandb: bool = False) -> dict:
    """The metrics of a fit that succeeds."""
    done = run_fit(folder, recipe, *arguments, wandb=wandb)
    assert done.returncode == 0, done.stderr
    return metrics(only_run(folder))


def only_run(folder: Path) -> Path:
    (run,) = folder.glob("runs/*/*")
    return run


def metrics(run: Path) -> dict:
    return json.loads((run / "metrics.json").read_text())


def checkpoint(run: Path) -> dict:
    return torch.load(run / "checkpoints/last.ckpt", weights_only=True)


def stopped(step: int, signum: int, rank: int = -1) -> list[str]:
    """Options of a fit in whose step a process, or every one, gets a signal."""
    settings = {"step": step, "signum": signum, "rank": rank}
    given = (word for key, value in settings.items() for word in (f"--trainer.callbacks.{key}", str(value)))
    return ["--trainer.callbacks+", "stopping.SignalAt", *given]


class SignalAt(Callback):
    """Sends a signal to this process after a step.

    Args:
        step: The optimiser step.
        signum: The signal: 2 is Ctrl-C, 9 a kill.
        rank: Of the process that it is sent to; -1 for every one.
    """

    def __init__(self, step: int, signum: int, rank: int = -1) -> None:
        self.step = step
        self.signum = signum
        self.rank = rank

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        """Sends it."""
        if trainer.global_step == self.step and self.rank in (-1, trainer.global_rank):
            os.kill(os.getpid(), self.signum)


class SpoilAt(Callback):
    """Makes a weight of one process NaN after a step.

    Args:
        step: The optimiser step.
        rank: Of the process.
    """

    def __init__(self, step: int, rank: int) -> None:
        self.step = step
        self.rank = rank

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        """Spoils it."""
        if trainer.global_step == self.step and trainer.global_rank == self.rank:
            next(pl_module.parameters()).data.view(-1)[0] = torch.nan


class Act(Callback):
    """Does something after a step of the cell with one encoder, the first time only.

    Args:
        cell: Name of the encoder.
        step: The optimiser step.
        deed: ``die``: this process ends; ``terminate``: it gets SIGTERM; ``interrupt``: Ctrl-C for the process group in the
            file ``driver``; ``warn``.
    """

    def __init__(self, cell: str, step: int, deed: str) -> None:
        self.cell = cell
        self.step = step
        self.deed = deed

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        """Does it."""
        with open("workers", "a") as workers:
            workers.write(f"{os.getpid()} {torch.get_num_threads()}\n")
        if trainer.global_step != self.step or pl_module.encoding.encoders[0].name != self.cell or Path(self.deed).exists():
            return
        Path(self.deed).touch()
        if self.deed == "warn":
            warnings.warn("the cell has something to say", stacklevel=1)
        elif self.deed == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.deed == "terminate":
            os.kill(os.getpid(), signal.SIGTERM)
        else:  # as a terminal does
            os.killpg(int(Path("driver").read_text()), signal.SIGINT)


def act(cell: str, step: int, deed: str) -> list[str]:
    """Options of a sweep that add :class:`Act`."""
    given = (f"--trainer.callbacks.{key}={value}" for key, value in {"cell": cell, "step": step, "deed": deed}.items())
    return ["--trainer.callbacks+", "stopping.Act", *given]
