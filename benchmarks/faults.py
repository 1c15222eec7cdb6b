"""Faults on purpose: kills, damaged files and altered checkpoints. Prints one row per kind, tried and held.

    python benchmarks/faults.py --kills 60 --mutations 800 --jobs 3   # everything
    python benchmarks/faults.py --only fits --kills 10 --seed 3       # one row, other moments
    python benchmarks/faults.py --only readers checkpoints --mutations 100

- ``fits``, ``sweeps``, ``caches``: a command is killed at a random moment, then given again (a fit with the checkpoint that
  it left). Held: it succeeds, and weights, scores or cached values are those of a command that was not killed, bit for bit.
- ``stopping``, ``averaging``, ``double``: the same for fits that ``EarlyStopping`` ends, for stochastic weight averaging
  (SWA), and for fits in float64. ``accumulated``: fits with ``GradientAccumulationScheduler`` that get SIGTERM.
- ``terminated``, ``terminated_sweeps``: fits and sweeps that get SIGTERM. Held: also, the exit status is 143, or 0 if the
  command had ended.
- ``comparisons``: a report that is killed is the old one, the new one or not there.
- ``readers``: bytes of small files of every format are flipped, zeroed, cut or repeated. Held: the signals, or one
  :class:`InputError`, within 20 seconds of processor time; for formats with checksums (PNG, .npz) the right
  signals.
- ``checkpoints``: the same, and values in them replaced. Held: the command succeeds, or ends with one paragraph; no process
  dies, hangs, or runs foreign code.

Every attempt is a process forked from one that has run the commands once. ``--jobs`` sections run at the same time, each
with random numbers of its own, so that ``--only`` repeats a section of the whole. A number below tried is printed with the
attempts that did not hold, and the exit status is 1.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib
import multiprocessing
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import soundfile
import tifffile
import torch
import xarray
from harness import ROOT, make_parser, print_row, print_titles
from PIL import Image

from pe_lightning.__main__ import main as command
from pe_lightning.errors import InputError
from pe_lightning.training import ImageDataModule, LabelledDataModule, RowDataModule, VideoDataModule

SMALL = ["--data.resize", "32", "--model.encoder.num_features", "16", "--wandb.enabled", "false"]
SMALL += ["--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false", "--trainer.log_every_n_steps", "5"]
FIT = ["fit", "--config", "image/demo", *SMALL, "--data.batching.steps_per_epoch", "10"]
FIT += ["--trainer.max_steps", "200"]
SWEEP = ["sweep", "--config", "image/closed_form", *SMALL, "--model.ridge", "0.01"]
SWEEP += ["--vary", "model.encoder=gau,rff,tri,keys"]
TRAINED_SWEEP = ["sweep", *FIT[1:], "--vary", "model.encoder=gau,tri"]
PREDICT = ["predict", "--output_shape", "8", "8", "--trainer.accelerator", "cpu"]
EARLY_STOPPING = ["--trainer.callbacks+", "EarlyStopping", "--trainer.callbacks.monitor", "val/psnr"]
EARLY_STOPPING += ["--trainer.callbacks.mode", "max", "--trainer.callbacks.patience", "4"]
EARLY_STOPPING += ["--trainer.callbacks.min_delta", "0.05"]
AVERAGING = ["--trainer.max_steps", "-1", "--trainer.max_epochs", "20", "--trainer.callbacks+", "StochasticWeightAveraging"]
AVERAGING += ["--trainer.callbacks.swa_lrs", "0.02", "--trainer.callbacks.swa_epoch_start", "8"]
ACCUMULATION = ["--trainer.callbacks+", "GradientAccumulationScheduler", "--trainer.callbacks.scheduling", "{0: 1, 2: 3}"]
LIMIT = 20
HELD, REFUSED, BROKEN = 0, 2, 3
SIGNATURE = "foreign-code-was-here"
CHECKED = ("png", "npz")
PARTS = {"checkpoints": 8, "fits": 6}
"""Parts of long sections, which run at the same time."""


class Evil:
    """Leaves a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(SIGNATURE),)


def forked(
    work: Callable[[], int], kill_after: float | None = None, limit: int = 600, signum: int = signal.SIGKILL
) -> tuple[int, str]:
    """Runs a function in a process of its own: its exit status, negative after a signal, and what it wrote to stderr.

    Args:
        work: The function, which returns the exit status.
        kill_after: Seconds until the process gets the signal.
        limit: Seconds of processor time, and tens of seconds of wall time, after which it is killed in any case.
        signum: The signal.
    """
    with tempfile.TemporaryFile("w+") as errors:
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


def run(arguments: list[str], kill_after: float | None = None, signum: int = signal.SIGKILL) -> tuple[int, str]:
    """A command in a process of its own."""
    return forked(lambda: command(arguments), kill_after, signum=signum)


def seconds_of(arguments: list[str]) -> float:
    """How long a command takes that is not killed."""
    began = time.monotonic()
    status, errors = run(arguments)
    if status:
        raise SystemExit(f"{' '.join(arguments)}: {errors}")
    return time.monotonic() - began


class Row:
    """Counts attempts, and says which did not hold."""

    def __init__(self, name: str) -> None:
        self.name, self.tried, self.failures = name, 0, list[str]()

    @classmethod
    def merged(cls, rows: Sequence[Row]) -> Row:
        """The sum of the rows of the parts of a section."""
        row = cls(rows[0].name)
        row.tried = sum(part.tried for part in rows)
        row.failures = [failure for part in rows for failure in part.failures]
        return row

    def add(self, failure: str | None) -> None:
        """Counts one attempt; ``None`` if it held."""
        self.tried += 1
        if failure is not None:
            self.failures.append(failure)

    def show(self) -> None:
        """Prints the row."""
        print_row(self.name, self.tried, self.tried - len(self.failures))
        for failure in self.failures[:20]:
            print(f"    {' '.join(failure.split())[:300]}", flush=True)


# -- kills ------------------------------------------------------------------------------------------------------------------


def weights(run_dir: Path) -> dict[str, bytes]:
    """The parameters in the last checkpoint."""
    state = torch.load(run_dir / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    return {name: value.numpy().tobytes() for name, value in state.items() if value is not None}


def killed_commands(
    row: Row,
    kills: int,
    rng: random.Random,
    command_of: Callable[[str], list[str]],
    result_of: Callable[[Path], object],
    again_of: Callable[[str], list[str]] | None = None,
    signum: int = signal.SIGKILL,
) -> Row:
    """Commands that get a signal at a random moment and are given again.

    Args:
        row: Counts the attempts.
        kills: Number of attempts.
        rng: Draws the moments.
        command_of: The command that writes to a place.
        result_of: What the command has written to a place, which must be that of an uninterrupted one.
        again_of: The command that follows; by default the same.
        signum: The signal.
    """
    seconds = seconds_of(command_of("whole"))
    expected = result_of(Path("whole"))
    for number in range(kills):
        place, moment = f"k{number}", rng.uniform(0.1, seconds)
        ended, errors = run(command_of(place), moment, signum)
        stopped = signum == signal.SIGKILL or ended in (0, 128 + signum)
        status, more_errors = run((again_of or command_of)(place))
        same = status == 0 and result_of(Path(place)) == expected
        about = f"signal after {moment:.3f} s: status {ended}, again {status}, the same {same}"
        row.add(None if stopped and same else f"{about}: {errors[-150:]}{more_errors[-200:]}")
    return row


def killed_fits(kills: int, rng: random.Random, name: str, more: Sequence[str] = (), signum: int = signal.SIGKILL) -> Row:
    """Fits that get a signal and are resumed."""

    def fit(place: str) -> list[str]:
        return [*FIT, *more, "--trainer.default_root_dir", place]

    def resume(place: str) -> list[str]:
        found = list(Path(place).glob("runs/*/1/checkpoints/last.ckpt"))
        return [*fit(place), "--ckpt_path", str(found[0])] if found else fit(place)

    def result(place: Path) -> dict[str, bytes]:
        return weights(sorted(place.glob("runs/*/*/metrics.json"))[-1].parent)

    with folder():
        return killed_commands(Row(name), kills, rng, fit, result, resume, signum)


def killed_sweeps(kills: int, rng: random.Random, name: str, signum: int = signal.SIGKILL) -> Row:
    """Sweeps that get a signal and are given again."""
    sweep = SWEEP if signum == signal.SIGKILL else TRAINED_SWEEP

    def result(place: Path) -> dict[str, dict[str, bytes]]:
        return {path.parent.name: weights(path.parent) for path in place.glob("*/metrics.json")}

    with folder():
        return killed_commands(Row(name), kills, rng, lambda place: [*sweep, "--out", place], result, signum=signum)


def killed_comparisons(kills: int, rng: random.Random) -> Row:
    """Reports that are killed while they are written over an old one."""
    row = Row("comparisons killed, report old or new")
    with folder():
        seconds_of([*SWEEP, "--out", "s"])
        arguments = ["compare", "s", "--out", "report"]
        whole = seconds_of(arguments)

        def report() -> dict[str, bytes]:
            """The files; of the page, which has the time in it, whether it is whole."""
            files = {path.name: path.read_bytes() for path in Path("report").iterdir() if path.name[0] != "."}
            return {**files, "index.html": b"%d" % files["index.html"].rstrip().endswith(b"</html>")}

        expected = report()
        for _ in range(kills):
            moment = rng.uniform(0, whole)
            run(arguments, moment)
            found = report()
            row.add(None if found == expected else f"killed after {moment:.3f} s: another report")
    return row


def killed_caches(kills: int, rng: random.Random) -> Row:
    """Entries of the cache that are killed while they are written."""
    row = Row("cache writes killed, read again")
    values = np.random.default_rng(0).integers(0, 255, (64, 96, 96, 3), dtype=np.uint8)

    def decode() -> int:
        found = VideoDataModule("frames.tif").values
        return HELD if np.array_equal((found.numpy()[0] * 255).round(), values) else BROKEN

    with folder():
        tifffile.imwrite("frames.tif", values, photometric="rgb", compression="deflate")
        began = time.monotonic()
        forked(decode)
        whole = time.monotonic() - began
        for _ in range(kills):
            shutil.rmtree("cache", ignore_errors=True)
            moment = rng.uniform(0, whole)
            forked(decode, moment)
            status, errors = forked(decode)
            row.add(None if status == HELD else f"killed after {moment:.3f} s: status {status}, {errors[-200:]}")
    return row


# -- damage -----------------------------------------------------------------------------------------------------------------


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A copy with bits flipped, a stretch zeroed, cut off, repeated, or numbers of a header made large."""
    changed, kind = bytearray(data), rng.choice(["flip", "flip", "header", "zero", "tail", "cut", "repeat", "large"])
    place = rng.randrange(len(data))
    if kind == "flip":
        for _ in range(rng.choice([1, 1, 8])):
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "header":
        changed[rng.randrange(min(len(data), 400))] = rng.randrange(256)
    elif kind == "zero":
        changed[place : place + 64] = bytes(len(changed[place : place + 64]))
    elif kind == "tail":
        changed[place:] = bytes(len(data) - place)
    elif kind == "cut":
        del changed[place:]
    elif kind == "repeat":
        changed[place:place] = changed[max(0, place - 50) : place]
    else:
        place = rng.randrange(min(len(data), 400))
        changed[place : place + 4] = rng.choice([b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\x00\x00\x00\x80"])
    return bytes(changed)


def examples() -> dict[str, tuple[Callable[[str], Any], str]]:
    """Writes a small file of every format into the working directory: what reads it, and its name."""
    noise = np.random.default_rng(0)
    picture = noise.integers(0, 255, (24, 20, 3), dtype=np.uint8)
    cube = noise.integers(0, 255, (6, 12, 10), dtype=np.uint8)
    made: dict[str, tuple[Callable[[str], Any], str]] = {}
    for suffix in ("png", "jpg", "bmp", "gif", "webp", "ppm", "tif"):
        Image.fromarray(picture).save(f"a.{suffix}")
        made[suffix] = (ImageDataModule, f"a.{suffix}")
    Image.fromarray(noise.integers(0, 65535, (20, 20), dtype=np.uint16)).save("deep.png")
    tifffile.imwrite("stack.tif", cube, photometric="minisblack", compression="deflate")
    np.save("a.npy", cube)
    np.savez_compressed("a.npz", values=cube)
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("values", data=cube.astype(np.float32) / 255, chunks=(2, 12, 10), compression=1, fletcher32=True)
    nibabel.save(nibabel.Nifti1Image(cube.astype(np.int16), np.eye(4)), "a.nii")
    nibabel.save(nibabel.Nifti1Image(cube.astype(np.int16), np.eye(4)), "a.nii.gz")
    Path("a.csv").write_text("time,value\n" + "".join(f"{n},{n * n % 17}\n" for n in range(60)))
    for suffix in ("wav", "flac", "ogg"):
        soundfile.write(f"a.{suffix}", np.sin(np.arange(800) / 9), 8000)
        made[suffix] = (RowDataModule, f"a.{suffix}")
    for suffix in ("npy", "npz", "h5", "nii", "nii.gz"):
        made[suffix] = (VideoDataModule, f"a.{suffix}")
    shutil.copy(ROOT / "datasets/bigbuckbunny.mp4", "a.mp4")
    made |= {
        "png 16": (ImageDataModule, "deep.png"),
        "tif stack": (VideoDataModule, "stack.tif"),
        "csv": (RowDataModule, "a.csv"),
    }
    xarray.Dataset({"values": (("y", "x"), cube[0].astype(np.int16))}).to_netcdf("a.nc", engine="h5netcdf")
    made["nc"] = (LabelledDataModule, "a.nc")
    return made | {"mp4": (lambda name: VideoDataModule(name, frames=[0, 4], resize=16), "a.mp4")}


def damaged_files(mutations: int, rng: random.Random) -> Iterator[Row]:
    """Reads mutated files of every format, in turn."""
    with folder():
        made = examples()
        for kind, (reader, name) in made.items():
            row, original = Row(f"damaged files: {kind}"), Path(name).read_bytes()
            known, target = reader(name).values.numpy(), f"m{name[1:]}" if name[0] == "a" else f"m-{name}"

            def read(reader=reader, target=target, known=known, kind=kind) -> int:  # type: ignore[no-untyped-def]
                try:
                    found = reader(target).values.numpy()
                except InputError as error:
                    return REFUSED if len(str(error).splitlines()) == 1 else BROKEN
                # a cell of a table that lost its number is empty, and counted in a notice
                assert np.isfinite(found).all() or kind == "csv", "values that are not finite"
                same = found.shape == known.shape and np.array_equal(found, known)
                assert same or kind not in CHECKED, "accepted, and other values"
                return HELD

            for _ in range(-(-mutations // len(made))):
                Path(target).write_bytes(mutated(original, rng))
                status, errors = forked(read, limit=LIMIT)
                held = status in (HELD, REFUSED) or "MemoryError" in errors
                row.add(None if held else f"status {status}: {errors[-250:]}")
            yield row


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values in nested dictionaries and lists."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield (*path, key)
        yield from leaves(value, (*path, key))


def altered(path: Path, target: Path, rng: random.Random) -> str:
    """A valid checkpoint in which one value is another, or gone."""
    content = torch.load(path, weights_only=True)
    content["state_dict"] = dict(content["state_dict"])
    places = list(leaves(content))
    *place, last = rng.choice(places)
    holder = content
    for key in place:
        holder = holder[key]
    value, kind = holder[last], rng.randrange(6)
    if kind == 0:
        del holder[last]
    elif kind == 1 and isinstance(value, torch.Tensor):
        holder[last] = rng.choice([value.flatten()[:1], value.double(), value[None], torch.zeros(0), value.long()])
    elif kind == 2 and isinstance(value, (int, float)):
        holder[last] = rng.choice([-1, 0, 2**40, float("nan"), "x"])
    else:
        holder[last] = rng.choice([None, "text", [], {}, -1, torch.zeros(3), [value], 1e300])
    torch.save(content, target)
    return f"{'/'.join(map(str, [*place, last]))} = {str(holder.get(last) if isinstance(holder, dict) else '')[:60]}"


def damaged_checkpoints(mutations: int, rng: random.Random) -> list[Row]:
    """Resumes from, and tests, checkpoints that are damaged, altered or hostile."""
    bits, values, hostile = Row("checkpoints: bytes changed"), Row("checkpoints: values changed"), Row("checkpoints: code")
    with folder() as place:
        seconds_of([*FIT, "--trainer.max_steps", "20"])
        good = next(place.glob("runs/*/1/checkpoints/last.ckpt"))
        target = place / "runs/m/1/checkpoints/last.ckpt"
        target.parent.mkdir(parents=True)
        for number in range(mutations):
            row, note = (bits, "") if number % 2 else (values, "")
            if number % 20 == 0:
                row = hostile
                content = {**torch.load(good, weights_only=True), "callbacks": Evil()}
                if number % 40:
                    torch.save(content, target)
                else:
                    with zipfile.ZipFile(target, "w") as archive:
                        archive.writestr("a/data.pkl", pickle.dumps(content["callbacks"]))
            elif row is bits:
                target.write_bytes(mutated(good.read_bytes(), rng))
            else:
                note = altered(good, target, rng)
            arguments = [*FIT, "--trainer.max_steps", "25", "--ckpt_path", str(target)]
            if number % 3 == 0:
                arguments = [*PREDICT, "--ckpt_path", str(target)]
            status, errors = forked(lambda given=arguments: command(given), limit=LIMIT)  # type: ignore[misc]
            told = [line for line in errors.splitlines() if line.startswith("pe-lightning: error: ")]
            held = status == 0 or (status in (1, 2) and len(told) == 1 and "Traceback" not in errors)
            foreign = Path(SIGNATURE).exists()
            row.add(None if held and not foreign else f"{note}: status {status}, foreign code {foreign}, {errors[-250:]}")
    return [bits, values, hostile]


def main(arguments: list[str] | None = None) -> int:
    """Runs the rows; the exit status is 1 if an attempt did not hold."""
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=60, help="of fits; of the others a sixth each")
    parser.add_argument("--mutations", type=int, default=800, help="of files, and of checkpoints")
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION", help=", ".join(SECTIONS)
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="sections that run at the same time")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # threads do not live on in a forked process
    warm_up()
    print(f"seed {options.seed}")
    print_titles("what", "tried", "held")
    failed, context = False, multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        running = {
            pool.submit(section, name, options.seed, part, options.kills, options.mutations): name
            for name in options.only
            for part in range(PARTS.get(name, 1))
        }
        found: dict[str, list[list[Row]]] = {name: [] for name in options.only}
        for done in concurrent.futures.as_completed(running):
            parts = found[name := running[done]]
            parts.append(done.result())
            for rows in zip(*parts, strict=True) if len(parts) == PARTS.get(name, 1) else ():
                row = Row.merged(rows)
                row.show()
                failed |= bool(row.failures)
    return int(failed)


def warm_up() -> None:
    """Runs commands once in this process, so that the attempts that are forked from it neither import nor compile."""
    for name in ("cli.cli", "studies.compare.command", "studies.sweep.command"):
        importlib.import_module(f"pe_lightning.{name}")
    with folder() as place, open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        command([*FIT, "--trainer.max_steps", "20"])
        last = str(next(place.glob("runs/*/1/checkpoints/last.ckpt")))
        command([*PREDICT, "--ckpt_path", last])


SECTIONS: dict[str, Callable[[random.Random, int, int], Row | Iterable[Row]]] = {
    "checkpoints": lambda rng, kills, mutations: damaged_checkpoints(mutations, rng),
    "fits": lambda rng, kills, mutations: killed_fits(6 * kills, rng, "fits killed, resumed to the same weights"),
    "stopping": lambda rng, kills, mutations: killed_fits(kills, rng, "the same with EarlyStopping", EARLY_STOPPING),
    "averaging": lambda rng, kills, mutations: killed_fits(kills, rng, "the same with SWA", AVERAGING),
    "double": lambda rng, kills, mutations: killed_fits(
        kills, rng, "the same in float64", ["--trainer.precision", "64-true"]
    ),
    "accumulated": lambda rng, kills, mutations: killed_fits(
        kills, rng, "the same with GradientAccumulationScheduler", ACCUMULATION, signal.SIGTERM
    ),
    "terminated": lambda rng, kills, mutations: killed_fits(
        kills, rng, "fits that get SIGTERM, resumed", signum=signal.SIGTERM
    ),
    "terminated_sweeps": lambda rng, kills, mutations: killed_sweeps(
        kills, rng, "sweeps that get SIGTERM, given again", signal.SIGTERM
    ),
    "sweeps": lambda rng, kills, mutations: killed_sweeps(kills, rng, "sweeps killed, given again"),
    "comparisons": lambda rng, kills, mutations: killed_comparisons(kills, rng),
    "caches": lambda rng, kills, mutations: killed_caches(kills, rng),
    "readers": lambda rng, kills, mutations: damaged_files(mutations, rng),
}


def section(name: str, seed: int, part: int, kills: int, mutations: int) -> list[Row]:
    """The rows of one section, or of one part of it."""
    rng, parts = random.Random(f"{seed} {name} {part}"), PARTS.get(name, 1)
    mutations = mutations * (part + 1) // parts - mutations * part // parts
    rows = SECTIONS[name](rng, -(-kills // 6 // parts), mutations)
    return [rows] if isinstance(rows, Row) else list(rows)


if __name__ == "__main__":
    sys.exit(main())
