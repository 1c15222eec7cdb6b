"""Faults on purpose: kills, damaged files and altered checkpoints. Prints one row per kind, tried and held.

    python benchmarks/faults.py --kills 60 --mutations 800 --jobs 3   # everything
    python benchmarks/faults.py --only fits --kills 10 --seed 3       # one row, other moments
    python benchmarks/faults.py --only readers,checkpoints --mutations 100

- ``fits``, ``sweeps``, ``caches``: a command is killed at a random moment, then given again (a fit with the checkpoint that
  it left). Held: it succeeds, and weights, scores or cached values are those of a command that was not killed, bit for bit.
- ``stopping``, ``averaging``, ``double``: the same for fits that ``EarlyStopping`` ends, for stochastic weight averaging
  (SWA), and for fits in float64. ``accumulated``: fits with ``GradientAccumulationScheduler`` that get SIGTERM.
- ``terminated``, ``terminated_sweeps``: fits and sweeps that get SIGTERM. Held: also, the exit status is 143, or 0 if the
  command had ended.
- ``folders``: commands of which one folder is read-only. Held: they succeed, or end with one paragraph and status 2.
- ``files``: fills, maps and exports to a name that is taken or read, on a full disk, several at a time, killed, from a pipe,
  from files that name other files or servers, and from a WAV file whose header lies. Held: status 2 with one paragraph, and
  every file that was there as before; of several at a time, also of resumptions of one run, one succeeds; after a kill the
  same command succeeds.
- ``values``: fills of files of every format, packed NetCDF with large offsets included, and of arrays of any size.
  Held: everything but the missing cells is as before, to the bit, and values and standard deviations are finite.
- ``comparisons``: a report that is killed is the old one, the new one or not there.
- ``readers``: bytes of small files of every format are flipped, zeroed, cut or repeated. Held: the signals, or one
  :class:`InputError`, within 20 seconds of processor time; for formats with checksums (PNG, .npz) the right
  signals.
- ``checkpoints``: the same, and values in them replaced. Held: the command succeeds, or ends with one paragraph; no process
  dies, hangs, or runs foreign code.
- ``memory``: the exact fit of a picture of 8192 x 8192 from HDF5 in float32 and in uint8, and from a TIFF, read in blocks.
  Held: the command's largest resident set is below 1 GB.
- ``solves``: exact fits on grids and at points, of every encoder, degenerate ones included. Held: no number is not finite,
  none is worse than the mean, what is said to have converged has, and what is called exact is as good as NumPy's.

Every attempt is a process forked from one that has run the commands once. ``--jobs`` sections run at the same time, each
with random numbers of its own, so that ``--only`` repeats a section of the whole. A number below tried is printed with the
attempts that did not hold, and the exit status is 1.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import multiprocessing
import os
import pickle
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import rasterio
import soundfile
import tifffile
import torch
import xarray
from harness import ROOT, make_parser
from PIL import Image

import pe_lightning
import pe_lightning.cli.cli  # these three before the forks
import pe_lightning.studies.compare.command
import pe_lightning.studies.sweep.command
from pe_lightning.__main__ import main as command
from pe_lightning.encoders import names as encoder_names
from pe_lightning.errors import InputError
from pe_lightning.solvers import solve_grid, solve_points
from pe_lightning.solvers.points import ScatteredPoints
from pe_lightning.training import ImageDataModule, LabelledDataModule, RowDataModule, VideoDataModule

SMALL = ["--data.resize", "32", "--model.encoder.num_features", "16", "--wandb.enabled", "false"]
SMALL += ["--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false", "--trainer.log_every_n_steps", "5"]
FIT = ["fit", "--config", "image/demo", *SMALL, "--data.batching.steps_per_epoch", "10"]
FIT += ["--trainer.max_steps", "200"]
SWEEP = ["sweep", "--config", "image/closed_form", *SMALL, "--model.ridge", "0.01"]
SWEEP += ["--vary", "model.encoder=gau,rff,tri,keys", "--out", "s"]
TRAINED_SWEEP = ["sweep", *FIT[1:], "--vary", "model.encoder=gau,tri", "--out", "s"]
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
        print(f"| {self.name:<44} | {self.tried:>6} | {self.tried - len(self.failures):>6} |", flush=True)
        for failure in self.failures[:20]:
            print(f"    {' '.join(failure.split())[:300]}", flush=True)


# -- kills ------------------------------------------------------------------------------------------------------------------


def weights(run_dir: Path) -> dict[str, torch.Tensor]:
    """The parameters in the last checkpoint."""
    return torch.load(run_dir / "checkpoints/last.ckpt", weights_only=True)["state_dict"]


def killed_fits(kills: int, rng: random.Random, name: str, more: Sequence[str] = (), signum: int = signal.SIGKILL) -> Row:
    """Fits that get a signal and are resumed."""
    row = Row(name)
    with folder():
        whole = seconds_of([*FIT, *more, "--trainer.default_root_dir", "whole"])
        expected = weights(next(Path("whole").glob("runs/*/1")))
        for number in range(kills):
            arguments = [*FIT, *more, "--trainer.default_root_dir", f"k{number}"]
            moment = rng.uniform(0.1, whole)
            ended, errors = run(arguments, moment, signum)
            stopped = signum == signal.SIGKILL or ended in (0, 128 + signum)
            found = list(Path(f"k{number}").glob("runs/*/1/checkpoints/last.ckpt"))
            status, more_errors = run([*arguments, "--ckpt_path", str(found[0])] if found else arguments)
            runs = sorted(Path(f"k{number}").glob("runs/*/*/metrics.json"))
            same = bool(runs) and all(
                value.equal(expected[key]) for key, value in weights(runs[-1].parent).items() if value is not None
            )
            about = f"signal after {moment:.3f} s: status {ended}, resumed {status}, same weights {same}"
            row.add(None if stopped and status == 0 and same else f"{about}: {errors[-150:]}{more_errors[-200:]}")
            shutil.rmtree(f"k{number}")
    return row


def killed_sweeps(kills: int, rng: random.Random, name: str, signum: int = signal.SIGKILL) -> Row:
    """Sweeps that get a signal and are given again."""
    row = Row(name)
    sweep = SWEEP if signum == signal.SIGKILL else TRAINED_SWEEP
    with folder():
        whole = seconds_of([*sweep[:-1], "whole"])
        expected = {path.parent.name: weights(path.parent) for path in Path("whole").glob("*/metrics.json")}
        for number in range(kills):
            arguments, moment = [*sweep[:-1], f"k{number}"], rng.uniform(0.1, whole)
            ended, _ = run(arguments, moment, signum)
            stopped = signum == signal.SIGKILL or ended in (0, 128 + signum)
            status, errors = run(arguments)
            found = {path.parent.name: weights(path.parent) for path in Path(f"k{number}").glob("*/metrics.json")}
            same = found.keys() == expected.keys() and all(
                value.equal(expected[cell][key]) for cell in found for key, value in found[cell].items()
            )
            about = f"signal after {moment:.3f} s: status {ended}, again {status}, same weights {same}"
            row.add(None if stopped and status == 0 and same else f"{about}: {errors[-200:]}")
    return row


def killed_comparisons(kills: int, rng: random.Random) -> Row:
    """Reports that are killed while they are written over an old one."""
    row = Row("comparisons killed, report old or new")
    with folder():
        seconds_of([*SWEEP[:-1], "s"])
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


# -- folders ----------------------------------------------------------------------------------------------------------------


def read_only_folders() -> Row:
    """Commands that find each folder, one at a time, read-only."""
    row = Row("commands with a read-only folder")
    with folder() as place:
        y, x = np.mgrid[:40, :40] / 40
        Image.fromarray(np.uint8(127 + 120 * np.sin(9 * x + 5 * y * y))).save("a.png")
        seconds_of([*FIT, "--trainer.max_steps", "20"])
        seconds_of([*SWEEP[:-1], "s"])
        last = str(next(place.glob("runs/*/1/checkpoints/last.ckpt")))
        commands = [
            [*FIT, "--trainer.max_steps", "20"],
            [*FIT, "--trainer.max_steps", "25", "--ckpt_path", last],
            ["fit", "a.png", *SMALL, "--model.ridge", "0.01"],
            ["test", "--ckpt_path", last, "--trainer.accelerator", "cpu"],
            ["predict", "--ckpt_path", last, "--output_shape", "8", "8", "--trainer.accelerator", "cpu"],
            [*SWEEP[:-1], "s", "--vary", "seed_everything=5"],
            [*SWEEP[:-1], "t"],
            ["compare", "s", "--out", "report"],
            ["suggest", "a.png", "--out", "suggested.yaml", "--data.resize", "32"],
        ]
        cells = {path.parent for path in sorted(place.glob("s/*/metrics.json"))[1:]}  # all but the first are alike
        found = (path for path in [place, *place.rglob("*")] if path.is_dir() and cells.isdisjoint([path, *path.parents]))
        folders = sorted(found)

        def refused(arguments: list[str], path: Path) -> int:
            drop_override()
            path.chmod(0o500)
            return command(arguments)

        for arguments in commands:
            for path in folders:
                status, errors = forked(lambda given=arguments, path=path: refused(given, path))  # type: ignore[misc]
                path.chmod(0o700)
                told = [line for line in errors.splitlines() if line.startswith("pe-lightning: error: ")]
                held = "Traceback" not in errors and (status == 0 or (status == 2 and len(told) == 1))
                row.add(None if held else f"{' '.join(arguments)[:80]}, {path}: status {status}, {errors[-250:]}")
    return row


# -- files ------------------------------------------------------------------------------------------------------------------


def written_files(kills: int, rng: random.Random) -> list[Row]:
    """Fills and exports that must not write, or not all of what they would write."""
    names = ("names that are taken or read", "full disks", "several fills at a time", "fills killed, given again")
    names += ("pipes, other files, headers that lie", "two resumptions of one run at a time")
    taken, full, several, killed, foreign, resumed = rows = [Row(name) for name in names]
    with folder() as place:
        noise = np.random.default_rng(0).integers(90, 110, (24, 28, 3), np.uint8)
        Image.fromarray(np.uint8(np.arange(24)[:, None] * np.ones(28) == 9) * 255).save("m.png")
        with rasterio.open(
            "geo.tif", "w", "GTiff", 28, 24, 3, "EPSG:4326", rasterio.Affine(1, 0, 0, 0, -1, 60), "uint8"
        ) as tiff:
            tiff.write(np.moveaxis(noise, -1, 0))
        for suffix in ("png", "jpg", "webp", "tif"):
            Image.fromarray(noise).save(f"a.{suffix}")
        np.save("a.npy", noise)
        nibabel.save(nibabel.Nifti1Image(noise, np.eye(4)), "a.nii.gz")
        with h5py.File("a.h5", "w") as file:
            file["a"] = noise
        Path("a.csv").write_text("x,y,v\n" + "".join(f"{n % 7},{n // 7},{n * n % 17}\n" for n in range(42)))
        Path("frames").mkdir()
        for number in (1, 2, 4):
            Image.fromarray(noise).save(f"frames/{number}.png")
        seconds_of([*FIT, "--trainer.max_steps", "20"])
        os.mkfifo("pipe.png")
        run_dir, plain = str(next(place.glob("runs/*/1"))), ["--model", "exact", "--folds", "none", "--no_std"]

        def fill(source: str, out: str, *more: str) -> list[str]:
            return ["fill", source, "--missing", "m.png", "--out", out, *plain, *more]

        def made(name: str) -> dict[Path, list[str]]:
            clip = Path(f"{name}-clip")
            return {Path(f"{name}.png"): fill("a.png", f"{name}.png"), clip: ["fill", "frames", *plain, "--out", str(clip)]}

        sources = ["geo.tif", "a.png", "a.jpg", "a.webp", "a.tif", "a.npy", "a.nii.gz", "a.h5"]
        outs = [f"out.{'png' if name in ('a.jpg', 'a.webp') else name.partition('.')[2]}" for name in sources]
        exports = ["export", run_dir, "--format", "checkpoint", "--out"]
        commands = [*map(fill, sources, outs), fill("a.png", "out.jpg"), fill("a.png", "out.webp"), [*exports, "out.ckpt"]]
        commands += [["export", run_dir, "--out", "out.safetensors"]]
        points = ["fill", "a.csv", "--coordinates", "x,y", "--values", "v", "--grid", "8,9", "--folds", "none", "--out"]
        commands += [[*points, "out.nc"], [*points, "map.tif"]]
        others = ["out.jpg", "out.webp", "out.ckpt", "out.safetensors", "out.nc", "map.tif"]

        def content() -> dict[str, bytes]:
            return {str(file): file.read_bytes() for file in place.rglob("*") if file.is_file()}

        def refused(row: Row, arguments: list[str], size: int | None = None) -> None:
            def work() -> int:
                if size is not None:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
                return command(arguments)

            before, (status, errors) = content(), forked(work, limit=LIMIT)
            held = status == 2 and len(errors.splitlines()) == 1 and content() == before
            row.add(None if held else f"{' '.join(arguments)}: status {status}, {content() == before}, {errors[-250:]}")

        for name, arguments in zip([*outs, *others], commands, strict=True):
            Path(name).write_text("precious")
            refused(taken, arguments)
            for size in (400, 1000):  # the message takes up to 300
                refused(full, [*arguments, "--force"], size)
            Path(name).unlink()
        for source in sources:
            for more in ((), ("--force",)):
                refused(taken, fill(source, source, *more))
        shutil.copy("m.png", "x_before_after.png")
        refused(taken, ["fill", "a.png", "--missing", "x_before_after.png", "--out", "x.png", "--force", *plain])
        refused(taken, [*exports, f"{run_dir}/checkpoints/last.ckpt", "--force"])
        refused(taken, ["fill", "a.png", "a.jpg", "--missing", "m.png", "--out", "many", *plain])
        refused(foreign, fill("pipe.png", "y.png"))
        refused(foreign, ["fill", "a.png", "--missing", "pipe.png", "--out", "y.png"])
        for name in foreign_files():
            refused(foreign, ["fill", name, "--out", f"y{Path(name).suffix}", "--folds", "none"])
        refused(foreign, [*points[:6], "--like", "servers.tif", "--out", "y.tif"])
        last, more = "checkpoints/last.ckpt", ["--trainer.max_steps", "300"]
        whole = {out: seconds_of(arguments) for out, arguments in made("whole").items()}
        for number in range(kills):
            copy = place / f"runs/copy{number}/1"
            shutil.copytree(run_dir, copy)
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                ends = sorted(end for end, _ in pool.map(run, [fill("a.png", f"s{number}.png")] * 3))
                several.add(None if ends == [0, 2, 2] else f"status {ends}")
                ends = sorted(end for end, _ in pool.map(run, [[*FIT, *more, "--ckpt_path", str(copy / last)]] * 2))
                resumed.add(None if ends == [0, 2] else f"status {ends}")
            for (out, arguments), (expected, seconds) in zip(made(f"k{number}").items(), whole.items(), strict=True):
                run(arguments, moment := rng.uniform(0, seconds))
                status, errors = (0, "") if out.exists() else run([*arguments, "--force"])
                same = tree(out) == tree(expected)
                killed.add(
                    None if status == 0 and same else f"killed after {moment:.3f} s: status {status}, {errors[-200:]}"
                )
    return rows


def tree(path: Path) -> list[bytes]:
    """The content of a file, or of the files of a folder."""
    return [file.read_bytes() for file in (sorted(path.iterdir()) if path.is_dir() else [path])]


def foreign_files() -> list[str]:
    """Writes files that name other files or servers, and a WAV file that claims more samples than it has; their names."""
    with h5py.File("links.nc", "w") as file:
        file["a"] = h5py.ExternalLink("a.h5", "/a")
    with h5py.File("external.nc", "w") as file:
        file.create_dataset("a", (4, 5), "f4", external=[("a.npy", 0, 80)])
    with h5py.File("virtual.h5", "w") as file:
        layout = h5py.VirtualLayout((24, 28, 3), np.uint8)
        layout[:] = h5py.VirtualSource("a.h5", "a", shape=(24, 28, 3))
        file.create_virtual_dataset("a", layout)
    band = '<VRTRasterBand dataType="Byte" band="1"><SimpleSource><SourceFilename>geo.tif</SourceFilename></SimpleSource>'
    vrt = f'<VRTDataset rasterXSize="28" rasterYSize="24">{band}</VRTRasterBand></VRTDataset>'
    Path("other.tif").write_text(vrt)
    Path("servers.tif").write_text(
        '<GDAL_WMS><Service name="TMS"><ServerUrl>http://127.0.0.1:9</ServerUrl></Service></GDAL_WMS>'
    )
    soundfile.write("lies.wav", np.sin(np.arange(800) / 9), 8000)
    content = bytearray(Path("lies.wav").read_bytes())
    size = content.index(b"data") + 4
    content[size : size + 4] = (1 << 20).to_bytes(4, "little")
    Path("lies.wav").write_bytes(content)
    return ["links.nc", "external.nc", "virtual.h5", "other.tif", "servers.tif", "lies.wav"]


# -- values -----------------------------------------------------------------------------------------------------------------


def kept_values(number: int, rng: random.Random) -> list[Row]:
    """Fills of packed NetCDF, integers beyond 2^53, foreign byte orders and numbers of any size."""
    kept, sizes = Row("fills of files: all but missing cells as before"), Row("fills of arrays of any size: finite")
    noise = np.random.default_rng(rng.randrange(2**31))
    y, x = np.mgrid[:16, :18]
    smooth = np.sin(y / 3) + np.cos(x / 4)
    with folder():
        for _ in range(number):
            gap = np.zeros(smooth.shape, bool)
            top, left = noise.integers(1, 9, 2)
            gap[top : top + 3, left : left + 5] = True
            dtype = rng.choice(["int16", "uint8", "int32", "int64", "float32", ">i2"])
            fill = 0 if dtype == "uint8" else -1
            stored = (120 + 50 * smooth).astype(dtype) if dtype != "int64" else 2**53 + 1 + (1e3 * smooth).astype(dtype)
            stored[gap] = fill
            packing = {
                "scale_factor": np.float32(10.0 ** rng.randint(-4, 2)),
                "add_offset": np.float32(10.0 ** rng.randint(0, 6)),
            }
            about = {"_FillValue": np.array(fill, dtype)[()], **(packing if rng.random() < 0.7 else {})}
            values = {"v": (("lat", "lon"), stored, about), "other": ("lon", 2**60 + np.arange(18))}
            xarray.Dataset(values, {"lat": y[:, 0], "lon": x[0]}).to_netcdf("a.nc", engine="h5netcdf")
            np.save("a.npy", stored)
            for name in ("a.nc", "a.npy"):
                more = ["--variable", "v"] if name == "a.nc" else ["--missing", str(fill)]
                out = f"out.{name[2:]}"
                arguments = ["fill", name, "--out", out, *more, "--members", "fourier", "--folds", "none", "--force"]
                status, errors = forked(lambda given=arguments: command(given), limit=LIMIT)  # type: ignore[misc]
                if status:
                    kept.add(f"{name} {dtype}: status {status}, {errors[-250:]}")
                    continue
                if name == "a.npy":
                    found, others = np.load(out), True
                else:
                    with h5py.File("a.nc") as before, h5py.File(out) as after:
                        others = np.array_equal(after["other"], before["other"])
                        found = after["v"][()]
                held = found.dtype == np.dtype(dtype) and np.array_equal(found[~gap], stored[~gap]) and others
                held = (
                    held
                    and bool((found[gap] != fill).all())
                    and bool((abs(found[gap] / 1.0 - stored[~gap].mean()) < 1e4).all())
                )
                kept.add(None if held else f"{name}, {dtype}, {about}")
            scale = 10.0 ** rng.choice([-320, -310, -200, -45, -3, 0, 5, 38, 200, 300, 307])
            array = np.where(gap, np.nan, (smooth + 2) / 4 * scale)

            def fills(array=array) -> int:  # type: ignore[no-untyped-def]
                found = pe_lightning.fill(array, members=["fourier"], std=True, folds="none")
                finite = np.isfinite(found.values).all() and np.isfinite(found.std).all()
                return HELD if finite and (found.std[found.missing] > 0).all() else BROKEN

            status, errors = forked(fills, limit=LIMIT)
            sizes.add(None if status == HELD else f"{scale}: status {status}, {errors[-250:]}")
    return [kept, sizes]


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
                arguments = [
                    "predict",
                    "--ckpt_path",
                    str(target),
                    "--output_shape",
                    "8",
                    "8",
                    "--trainer.accelerator",
                    "cpu",
                ]
            status, errors = forked(lambda given=arguments: command(given), limit=LIMIT)  # type: ignore[misc]
            told = [line for line in errors.splitlines() if line.startswith("pe-lightning: error: ")]
            held = status == 0 or (status in (1, 2) and len(told) == 1 and "Traceback" not in errors)
            foreign = Path(SIGNATURE).exists()
            row.add(None if held and not foreign else f"{note}: status {status}, foreign code {foreign}, {errors[-250:]}")
    return [bits, values, hostile]


# -- memory -----------------------------------------------------------------------------------------------------------------


def memory(side: int = 8192) -> Iterator[Row]:
    """The largest resident set of commands that fit one large picture."""
    arguments = ["--config", "image/closed_form", "--data.storage.in_memory", "false", "--data.batching.kind", "blocks"]
    arguments += ["--model.encoder.num_features", "128", "--trainer.enable_progress_bar", "false"]
    with folder():
        y = np.arange(side, dtype=np.float32)[:, None] / side
        for name in ("float32.h5", "uint8.h5", "uint8.tif"):
            stored = np.float32 if name == "float32.h5" else np.uint8
            with h5py.File("whole.h5", "w") as file:
                values = file.create_dataset("values", (side, side, 3), stored, chunks=(256, 256, 3))
                for top in range(0, side, 256):
                    rows = (0.5 + 0.4 * np.sin(20 * y[top : top + 256] + 31 * y.T))[..., None] * np.ones(3, np.float32)
                    values[top : top + 256] = rows if stored == np.float32 else (rows * 255).round()
            if name.endswith("tif"):
                with h5py.File("whole.h5") as file:
                    tifffile.imwrite(name, file["values"][()], photometric="rgb", compression="deflate")
            else:
                Path("whole.h5").rename(name)
            # a new program: a fork would begin with the memory of this process
            began, log, used = time.monotonic(), Path("log"), 0.0
            command = [sys.executable, "-m", "pe_lightning", "fit", *arguments, "--data.paths", name]
            with log.open("w") as stream:
                process = subprocess.Popen(command, stdout=stream, stderr=stream, env=os.environ | {"PYTHONPATH": str(ROOT)})
            while process.poll() is None:
                counted = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
                used = max(used, int(counted[1]) * 1024 / 1e9 if counted else 0)
                time.sleep(0.02)
            row = Row(f"{side}^2 {name}: {used:.2f} GB, {time.monotonic() - began:.0f} s")
            held = process.returncode == 0 and used < 1
            row.add(None if held else f"status {process.returncode}, {used:.2f} GB: {log.read_text()[-250:]}")
            yield row


# -- solves -----------------------------------------------------------------------------------------------------------------


def solves(rng: random.Random) -> list[Row]:
    """Exact fits of every encoder, with degenerate coordinates, values and ridges."""
    grids, points = Row("exact fits on grids"), Row("exact fits at points")
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    cases: list[dict[str, Any]] = [{"name": name} for name in encoder_names()]
    cases += [{"name": "gau", "sigma": 1e-6}, {"name": "gau", "sigma": 5.0}, {"name": "sine", "frequency": 1e-9}]
    cases += [{"name": "rff", "sigma": 0.01}, {"name": "laplace", "scale": 10.0}]
    for case in cases:
        for count in (4, 16):
            encoder = {**case, "num_features": count}
            for ridge in (0.0, 1e-12, 1e-3):
                for dtype in (torch.float32, torch.float64):
                    for axes in (1, 2):
                        for size in (2, 9, 24):
                            values = torch.rand(2, *[size] * axes, 1, generator=generator, dtype=dtype)
                            for scale in (0.0, 1.0, 1e6):
                                grids.add(not_held(lambda: solve_grid(values * scale, encoder, ridge=ridge), values * scale))  # noqa: B023
                        for kind in ("random", "duplicated", "near", "far"):
                            x = torch.rand(30, axes, generator=generator) * 0.999
                            if kind == "duplicated":
                                x = x[torch.randint(0, 5, (30,), generator=generator)]
                            elif kind == "near":
                                x = torch.cat([x[:15], x[:15] * (1 - 1e-6)])
                            elif kind == "far":
                                x[1:] *= 0.1
                            values = torch.rand(1, 30, 1, generator=generator, dtype=dtype)
                            points.add(not_held(lambda: solve_points(values, encoder, coords=x, ridge=ridge), values, x))  # noqa: B023
    return [grids, points]


def not_held(solve: Callable[[], Any], values: torch.Tensor, coords: torch.Tensor | None = None) -> str | None:
    """What is wrong with a solution, if anything; the error of one called exact is compared with NumPy's least squares."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = solve()
    except InputError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    flat = values.flatten(1, -2).double()
    mean = float((flat - flat.mean(1, keepdim=True)).square().sum())
    error = float(found.squared_error.sum())
    said = found.converged is None or not bool(found.converged.any()) or float(found.relative_residual.max()) <= 0.05
    if found.solver == "dense":
        matrix = ScatteredPoints(found.encoders, coords[None].to(values.dtype)).dense()[0].detach().numpy()
        target = (flat - flat.mean(1, keepdim=True))[..., 0].T.numpy()
        least = float(((matrix @ np.linalg.lstsq(matrix, target, rcond=None)[0] - target) ** 2).sum())
        said = not found.exact or error <= 1.01 * least + 1e-8 * mean  # 1 %: singular values near rounding
    finite = bool(found.weight.isfinite().all() and found.mean.isfinite().all())
    if finite and error <= mean * 1.01 + 1e-6 * float(flat.square().sum()) and said:
        return None
    return f"{found.encoders[0]}: finite {finite}, squared error {error:.3g} of {mean:.3g}, honest {said}"


def main(arguments: list[str] | None = None) -> int:
    """Runs the rows; the exit status is 1 if an attempt did not hold."""
    sections = (
        "checkpoints",
        "fits",
        "stopping",
        "averaging",
        "double",
        "accumulated",
        "terminated",
        "terminated_sweeps",
        "sweeps",
        "comparisons",
    )
    sections += ("caches", "folders", "files", "values", "readers", "memory", "solves")
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=60, help="of fits; of the others a sixth each")
    parser.add_argument("--mutations", type=int, default=800, help="of files, and of checkpoints")
    parser.add_argument("--only", default=",".join(sections), help="rows, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="sections that run at the same time")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # threads do not live on in a forked process
    names = options.only.split(",")
    if unknown := set(names) - set(sections):
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; known: {', '.join(sections)}")
    warm_up()
    print(f"seed {options.seed}\n| {'what':<44} |  tried |   held |\n| --- | --- | --- |", flush=True)
    failed, context = False, multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        running = {
            pool.submit(section, name, options.seed, part, options.kills, options.mutations): name
            for name in names
            for part in range(PARTS.get(name, 1))
        }
        found: dict[str, list[list[Row]]] = {name: [] for name in names}
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
    with folder() as place, open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        command([*FIT, "--trainer.max_steps", "20"])
        last = str(next(place.glob("runs/*/1/checkpoints/last.ckpt")))
        command(["predict", "--ckpt_path", last, "--output_shape", "8", "8", "--trainer.accelerator", "cpu"])


def section(name: str, seed: int, part: int, kills: int, mutations: int) -> list[Row]:
    """The rows of one section, or of one part of it."""
    rng, few, parts = random.Random(f"{seed} {name} {part}"), -(-kills // 6), PARTS.get(name, 1)
    kills, mutations = (number * (part + 1) // parts - number * part // parts for number in (kills, mutations))
    makers: dict[str, Callable[[], Iterable[Row]]] = {
        "fits": lambda: [killed_fits(kills, rng, "fits killed, resumed to the same weights")],
        "stopping": lambda: [killed_fits(few, rng, "the same with EarlyStopping", EARLY_STOPPING)],
        "double": lambda: [killed_fits(few, rng, "the same in float64", ["--trainer.precision", "64-true"])],
        "averaging": lambda: [killed_fits(few, rng, "the same with SWA", AVERAGING)],
        "accumulated": lambda: [
            killed_fits(few, rng, "the same with GradientAccumulationScheduler", ACCUMULATION, signal.SIGTERM)
        ],
        "terminated": lambda: [killed_fits(few, rng, "fits that get SIGTERM, resumed", signum=signal.SIGTERM)],
        "terminated_sweeps": lambda: [killed_sweeps(few, rng, "sweeps that get SIGTERM, given again", signal.SIGTERM)],
        "sweeps": lambda: [killed_sweeps(few, rng, "sweeps killed, given again")],
        "folders": lambda: [read_only_folders()],
        "files": lambda: written_files(few, rng),
        "values": lambda: kept_values(2 * few, rng),
        "comparisons": lambda: [killed_comparisons(few, rng)],
        "caches": lambda: [killed_caches(few, rng)],
        "readers": lambda: damaged_files(mutations, rng),
        "checkpoints": lambda: damaged_checkpoints(mutations, rng),
        "memory": memory,
        "solves": lambda: solves(rng),
    }
    return list(makers[name]())


if __name__ == "__main__":
    sys.exit(main())
