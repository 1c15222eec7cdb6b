"""Faults on purpose: kills, damaged files and altered checkpoints. Prints one row per kind, tried and held.

    python benchmarks/faults.py --kills 60 --mutations 800 --jobs 3   # everything
    python benchmarks/faults.py --only fits --kills 10 --seed 3       # one row, other moments
    python benchmarks/faults.py --only readers,checkpoints --mutations 100

Held means, where a section does not say otherwise: a command succeeds, or ends with status 2 and one paragraph; no file or
folder that was there is lost or changed; and what succeeds has the result of a command without the fault, bit for bit.

- ``fits``, ``sweeps``, ``comparisons``: killed at a random moment, given again. ``stopping``, ``averaging``, ``double``:
  fits with ``EarlyStopping``, with SWA, in float64. ``accumulated``, ``terminated``, ``terminated_sweeps``: SIGTERM instead;
  the exit status is 143, or 0 if the command had ended.
- ``caches``: killed while they are written; bytes are changed; removed and written while two processes read; on a full disk;
  files are replaced while they are decoded.
- ``resumptions``: with other data, models, optimisers or damage, refused; with other arguments of the optimiser, applied.
  ``not_finite``: fits whose weights stop being finite; all checkpoints are finite.
- ``lightning``: every callback, logger, profiler and strategy of Lightning in a configuration is written and read back.
- ``folders``: commands of which one folder is read-only. ``outputs``: verbs that name an output, which is new, its own,
  foreign, the input, a link to it, or taken by several at a time.
- ``files``: fills, maps and exports to a name that is taken or read, on a full disk, several at a time, killed, from a pipe,
  from files that name other files or servers, and from a WAV file whose header lies.
- ``reuse``: sweeps, fits and suggestions given again after content, settings or files of the run changed.
- ``values``: fills of files of every format and of arrays of any size keep all but the missing cells, and are finite.
- ``names``: files whose names are not UTF-8, hold escape sequences, line ends, markup or YAML, for every verb, also in the
  locale C; no control character on either stream.
- ``readers``: bytes of small files of every format are flipped, zeroed, cut or repeated: the signals or one
  :class:`InputError` in 20 seconds of processor time; with checksums (PNG, .npz) the right signals. ``checkpoints``: the
  same, and values in them replaced; no process dies, hangs, or runs foreign code.
- ``memory``: exact fits of a picture of 8192 x 8192, read in blocks, below 1 GB of resident memory.
- ``solves``: exact fits of every encoder, degenerate ones too: finite, not worse than the mean, converged if said to be,
  and as good as NumPy's where they are called exact.
- ``declarations``: what files declare missing, every format and dtype: that is missing, and nothing else, also in copies.

Every attempt is a process forked from one that has run the commands once. ``--jobs`` sections run at the same time, with
random numbers of their own, so that ``--only`` repeats a section of the whole. A number below tried is printed with the
attempts that did not hold, and the exit status is 1.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import multiprocessing
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import faults_cache
import faults_lightning
import faults_names
import faults_resumption
import h5py
import nibabel
import numpy as np
import rasterio
import soundfile
import tifffile
import torch
import xarray
from attempts import (
    BROKEN,
    FIT,
    HELD,
    LIMIT,
    PREDICT,
    REFUSED,
    SHORT_FIT,
    SWEEP,
    Row,
    Work,
    command,
    drop_override,
    folder,
    forked,
    in_order,
    killed,
    refuse,
    run,
    seconds_of,
    tree,
    words,
)
from faults_declarations import declarations
from faults_outputs import outputs
from faults_reuse import reuse
from harness import ROOT, make_parser, print_titles
from PIL import Image

import pe_fill
from pe_fill import LabelledDataModule
from pe_lightning.encoders import names as encoder_names
from pe_lightning.errors import InputError
from pe_lightning.solvers import solve_grid, solve_points
from pe_lightning.solvers.points import ScatteredPoints
from pe_lightning.training import ImageDataModule, RowDataModule, VideoDataModule

PLAIN = ["--model", "exact", "--folds", "none", "--no_std"]
COMPARE = ["compare", "s", "--out", "report"]
TRAINED_SWEEP = ["sweep", *FIT[1:], "--vary", "model.encoder=gau,tri", "--out"]
SIGNATURE = "foreign-code-was-here"
CHECKED = ("png", "npz")


class Evil:
    """Leaves a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(SIGNATURE),)


# -- kills ------------------------------------------------------------------------------------------------------------------


def weights(run_dir: Path) -> dict[str, bytes]:
    """The parameters in the last checkpoint."""
    state = torch.load(run_dir / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    return {name: value.numpy().tobytes() for name, value in state.items() if value is not None}


def killed_fits(name: str, kills: int, rng: random.Random, more: Sequence[str] = (), signum: int = signal.SIGKILL) -> Row:
    """Fits that get a signal and are resumed."""

    def fit(root: str, *resume: str) -> Work:
        return partial(command, [*FIT, *more, "--trainer.default_root_dir", root, *resume])

    def resumed(root: str) -> Work:
        found = list(Path(root).glob("runs/*/1/checkpoints/last.ckpt"))
        return fit(root, "--ckpt_path", str(found[0])) if found else fit(root)

    def result(root: Path) -> dict[str, bytes]:
        return weights(max(root.glob("runs/*/*/metrics.json")).parent)

    with folder():
        return killed(Row(name), kills, rng, fit, result, resumed, signum)


def killed_sweeps(name: str, kills: int, rng: random.Random, sweep: list[str], signum: int = signal.SIGKILL) -> Row:
    """Sweeps that get a signal and are given again."""

    def result(out: Path) -> dict[str, dict[str, bytes]]:
        return {path.parent.name: weights(path.parent) for path in out.glob("*/metrics.json")}

    with folder():
        return killed(Row(name), kills, rng, lambda out: partial(command, [*sweep, out]), result, signum=signum)


def killed_comparisons(kills: int, rng: random.Random) -> Row:
    """Reports that are killed while they are written over an old one."""

    def report(_: Path) -> dict[str, bytes]:
        """The files; of the page, which has the time in it, whether it is whole."""
        files = {path.name: path.read_bytes() for path in Path("report").iterdir() if path.name[0] != "."}
        return {**files, "index.html": b"%d" % files["index.html"].rstrip().endswith(b"</html>")}

    with folder():
        seconds_of(partial(command, [*SWEEP, "s"]))
        row = Row("comparisons killed, report old or new")
        return killed(row, kills, rng, lambda _: partial(command, COMPARE), report, lambda _: lambda: HELD)


# -- folders ----------------------------------------------------------------------------------------------------------------


def read_only_folders() -> Row:
    """Commands that find each folder, one at a time, read-only."""
    row = Row("commands with a read-only folder")
    with folder() as root:
        y, x = np.mgrid[:40, :40] / 40
        Image.fromarray(np.uint8(127 + 120 * np.sin(9 * x + 5 * y * y))).save("a.png")
        seconds_of(partial(command, SHORT_FIT))
        seconds_of(partial(command, [*SWEEP, "s"]))
        last = str(next(root.glob("runs/*/1/checkpoints/last.ckpt")))
        commands = [
            SHORT_FIT,
            [*FIT, "--trainer.max_steps", "25", "--ckpt_path", last],
            ["fit", "a.png", *words("small"), "--model.ridge", "0.01"],
            ["test", "--ckpt_path", last, "--trainer.accelerator", "cpu"],
            [*PREDICT, last],
            [*SWEEP, "s", "--vary", "seed_everything=5"],
            [*SWEEP, "t"],
            COMPARE,
            ["suggest", "a.png", "--out", "suggested.yaml", "--data.resize", "32"],
        ]
        cells = {path.parent for path in sorted(root.glob("s/*/metrics.json"))[1:]}  # all but the first are alike
        found = (path for path in [root, *root.rglob("*")] if path.is_dir() and cells.isdisjoint([path, *path.parents]))

        def refused(arguments: list[str], path: Path) -> int:
            drop_override()
            path.chmod(0o500)
            return command(arguments)

        for arguments, path in itertools.product(commands, sorted(found)):
            status, errors = forked(partial(refused, arguments, path))
            path.chmod(0o700)
            row.add(in_order(status, errors), f"{' '.join(arguments)[:80]}, {path}: status {status}, {errors[-250:]}")
    return row


# -- files ------------------------------------------------------------------------------------------------------------------


def fill(source: str, out: str, *more: str) -> list[str]:
    """A fill of the pixels that m.png marks."""
    return ["fill", source, "--missing", "m.png", "--out", out, *PLAIN, *more]


def written_files(kills: int, rng: random.Random) -> list[Row]:
    """Fills and exports that must not write, or not all of what they would write."""
    names = ("names that are taken or read", "full disks", "several fills at a time", "fills killed, given again")
    names += ("pipes, other files, headers that lie", "two resumptions of one run at a time")
    taken, full, several, given_again, foreign, resumed = rows = [Row(name) for name in names]
    with folder() as root:
        write_examples()
        write_foreign_files()
        seconds_of(partial(command, SHORT_FIT))
        run_dir = str(next(root.glob("runs/*/1")))
        export = ["export", run_dir, "--format", "checkpoint", "--out"]
        points = ["fill", "a.csv", "--coordinates", "x,y", "--values", "v", "--grid", "8,9", "--folds", "none"]
        sources = ["geo.tif", "a.png", "a.jpg", "a.webp", "a.tif", "a.npy", "a.nii.gz", "a.h5"]
        outs = ["g.tif", "out.png", "j.png", "w.png", "out.tif", "out.npy", "out.nii.gz", "out.h5"]
        commands = {out: fill(source, out) for source, out in zip(sources, outs, strict=True)}
        commands |= {"out.jpg": fill("a.png", "out.jpg"), "out.webp": fill("a.png", "out.webp")}
        commands |= {"out.ckpt": [*export, "out.ckpt"], "o.safetensors": ["export", run_dir, "--out", "o.safetensors"]}
        commands |= {out: [*points, "--out", out] for out in ("out.nc", "map.tif")}
        for name, arguments in commands.items():
            Path(name).write_text("precious")
            refuse(taken, arguments)
            for size in (400, 1000):  # the message takes up to 300
                refuse(full, [*arguments, "--force"], size)
            Path(name).unlink()
        for source in sources:
            refuse(taken, fill(source, source))
            refuse(taken, fill(source, source, "--force"))
        shutil.copy("m.png", "x_before_after.png")
        refuse(taken, ["fill", "a.png", "--missing", "x_before_after.png", "--out", "x.png", "--force", *PLAIN])
        refuse(taken, [*export, f"{run_dir}/checkpoints/last.ckpt", "--force"])
        refuse(taken, ["fill", "a.png", "a.jpg", "--missing", "m.png", "--out", "many", *PLAIN])
        os.mkfifo("pipe.png")
        refuse(foreign, fill("pipe.png", "y.png"))
        refuse(foreign, ["fill", "a.png", "--missing", "pipe.png", "--out", "y.png"])
        for name in ("links.nc", "external.nc", "virtual.h5", "other.tif", "servers.tif", "lies.wav"):
            refuse(foreign, ["fill", name, "--out", f"y{Path(name).suffix}", "--folds", "none"])
        refuse(foreign, [*points, "--like", "servers.tif", "--out", "y.tif"])
        Path("pipe.png").unlink()
        for number in range(kills):
            copy = root / f"runs/copy{number}/1"
            shutil.copytree(run_dir, copy)
            more = ["--trainer.max_steps", "300", "--ckpt_path", str(copy / "checkpoints/last.ckpt")]
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                for row, arguments, ends in (
                    (several, fill("a.png", f"s{number}.png"), [0, 2, 2]),
                    (resumed, [*FIT, *more], [0, 2]),
                ):
                    found = sorted(status for status, _ in pool.map(run, [arguments] * len(ends)))
                    row.add(found == ends, f"status {found}")
        for given in (["a.png", "--missing", "m.png"], ["frames"]):
            suffix = Path(given[0]).suffix or "-clip"

            def first(name: str, given: list[str] = given, suffix: str = suffix) -> Work:
                return partial(command, ["fill", *given, *PLAIN, "--out", f"{name}{suffix}"])

            def again(name: str, first: Callable[[str], Work] = first, suffix: str = suffix) -> Work:
                return (lambda: HELD) if Path(f"{name}{suffix}").exists() else first(name)

            killed(given_again, kills, rng, first, lambda name, suffix=suffix: tree(Path(f"{name}{suffix}")), again)  # type: ignore[misc]
    return rows


def write_foreign_files() -> None:
    """Writes files that name other files or servers, and a WAV file that claims more samples than it has."""
    layout = h5py.VirtualLayout((24, 28, 3), np.uint8)
    layout[:] = h5py.VirtualSource("a.h5", "values", shape=(24, 28, 3))
    with (
        h5py.File("links.nc", "w") as links,
        h5py.File("external.nc", "w") as other,
        h5py.File("virtual.h5", "w") as virtual,
    ):
        links["a"] = h5py.ExternalLink("a.h5", "/values")
        other.create_dataset("a", (4, 5), "f4", external=[("a.npy", 0, 80)])
        virtual.create_virtual_dataset("a", layout)
    band = '<VRTRasterBand dataType="Byte" band="1"><SimpleSource><SourceFilename>geo.tif</SourceFilename></SimpleSource>'
    vrt = f'<VRTDataset rasterXSize="28" rasterYSize="24">{band}</VRTRasterBand></VRTDataset>'
    Path("other.tif").write_text(vrt)
    service = '<Service name="TMS"><ServerUrl>http://127.0.0.1:9</ServerUrl></Service>'
    Path("servers.tif").write_text(f"<GDAL_WMS>{service}</GDAL_WMS>")
    content = bytearray(Path("a.wav").read_bytes())
    size = content.index(b"data") + 4
    content[size : size + 4] = (1 << 20).to_bytes(4, "little")
    Path("lies.wav").write_bytes(content)


# -- values -----------------------------------------------------------------------------------------------------------------


def kept_values(number: int, rng: random.Random) -> list[Row]:
    """Fills of packed NetCDF, integers beyond 2^53, foreign byte orders and numbers of any size."""
    kept, sizes = Row("fills of files: all but missing cells as before"), Row("fills of arrays of any size: finite")
    noise = np.random.default_rng(rng.randrange(2**31))
    y, x = np.mgrid[:16, :18]
    smooth = np.sin(y / 3) + np.cos(x / 4)

    def finite(array: np.ndarray) -> int:
        found = pe_fill.fill(array, members=["fourier"], std=True, folds="none")
        finite = np.isfinite(found.values).all() and np.isfinite(found.std).all()
        return HELD if finite and (found.std[found.missing] > 0).all() else BROKEN

    with folder():
        for _ in range(number):
            gap = np.zeros(smooth.shape, bool)
            top, left = noise.integers(1, 9, 2)
            gap[top : top + 3, left : left + 5] = True
            dtype = rng.choice(["int16", "uint8", "int32", "int64", "float32", ">i2"])
            missing = 0 if dtype == "uint8" else -1
            stored = (120 + 50 * smooth).astype(dtype) if dtype != "int64" else 2**53 + 1 + (1e3 * smooth).astype(dtype)
            stored[gap] = missing
            about = {"_FillValue": np.array(missing, dtype)[()]}
            if rng.random() < 0.7:
                about["scale_factor"] = np.float32(10.0 ** rng.randint(-4, 2))
                about["add_offset"] = np.float32(10.0 ** rng.randint(0, 6))
            values = {"v": (("lat", "lon"), stored, about), "other": ("lon", 2**60 + np.arange(18))}
            xarray.Dataset(values, {"lat": y[:, 0], "lon": x[0]}).to_netcdf("a.nc", engine="h5netcdf")
            np.save("a.npy", stored)
            for name, more in (("a.nc", ["--variable", "v"]), ("a.npy", ["--missing", str(missing)])):
                out = f"out{Path(name).suffix}"
                arguments = ["fill", name, "--out", out, *more, "--members", "fourier", "--folds", "none", "--force"]
                status, errors = forked(partial(command, arguments), limit=LIMIT)
                held = status == 0
                if held and name == "a.npy":
                    found = np.load(out)
                elif held:
                    with h5py.File("a.nc") as before, h5py.File(out) as after:
                        held = np.array_equal(after["other"], before["other"])
                        found = after["v"][()]
                held = held and found.dtype == stored.dtype and np.array_equal(found[~gap], stored[~gap])
                held = held and bool((found[gap] != missing).all())
                held = held and bool((abs(found[gap] / 1.0 - stored[~gap].mean()) < 1e4).all())
                kept.add(held, f"{name}, {dtype}, {about}: status {status}, {errors[-250:]}")
            scale = 10.0 ** rng.choice([-320, -310, -200, -45, -3, 0, 5, 38, 200, 300, 307])
            status, errors = forked(partial(finite, np.where(gap, np.nan, (smooth + 2) / 4 * scale)), limit=LIMIT)
            sizes.add(status == HELD, f"{scale}: status {status}, {errors[-250:]}")
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


def write_examples() -> dict[str, tuple[Callable[[str], Any], str]]:
    """Writes a small file of every format, and a mask m.png, into the working directory: what reads it, and its name."""
    picture = np.random.default_rng(0).integers(90, 110, (24, 28, 3), dtype=np.uint8)
    made: dict[str, tuple[Callable[[str], Any], str]] = {}
    for suffix in ("png", "jpg", "bmp", "gif", "webp", "ppm", "tif"):
        Image.fromarray(picture).save(f"a.{suffix}")
        made[suffix] = (ImageDataModule, f"a.{suffix}")
    Image.fromarray(np.uint8(np.arange(24)[:, None] * np.ones(28) == 9) * 255).save("m.png")
    Image.fromarray(picture[..., 0] * np.uint16(256)).save("deep.png")
    Path("frames").mkdir()
    for number in (1, 2, 4):
        Image.fromarray(picture).save(f"frames/{number}.png")
    grid = rasterio.Affine(1, 0, 0, 0, -1, 60)
    with rasterio.open("geo.tif", "w", "GTiff", 28, 24, 3, "EPSG:4326", grid, "uint8") as tiff:
        tiff.write(np.moveaxis(picture, -1, 0))
    tifffile.imwrite("stack.tif", picture, photometric="minisblack", compression="deflate")
    np.save("a.npy", picture)
    np.savez_compressed("a.npz", values=picture)
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("values", data=picture, chunks=(8, 28, 3), compression=1, fletcher32=True)
    for name in ("a.nii", "a.nii.gz"):
        nibabel.save(nibabel.Nifti1Image(picture, np.eye(4)), name)
    Path("a.csv").write_text("x,y,v\n" + "".join(f"{n % 7},{n // 7},{n * n % 17}\n" for n in range(42)))
    for suffix in ("wav", "flac", "ogg"):
        soundfile.write(f"a.{suffix}", np.sin(np.arange(800) / 9), 8000)
        made[suffix] = (RowDataModule, f"a.{suffix}")
    for suffix in ("npy", "npz", "h5", "nii", "nii.gz"):
        made[suffix] = (VideoDataModule, f"a.{suffix}")
    shutil.copy(ROOT / "datasets/bigbuckbunny.mp4", "a.mp4")
    xarray.Dataset({"values": (("y", "x"), picture[..., 0].astype(np.int16))}).to_netcdf("a.nc", engine="h5netcdf")
    return made | {
        "png 16": (ImageDataModule, "deep.png"),
        "tif stack": (VideoDataModule, "stack.tif"),
        "csv": (RowDataModule, "a.csv"),
        "nc": (LabelledDataModule, "a.nc"),
        "mp4": (lambda name: VideoDataModule(name, frames=[0, 4], resize=16), "a.mp4"),
    }


def damaged_files(mutations: int, rng: random.Random) -> Iterator[Row]:
    """Reads mutated files of every format, in turn."""
    with folder():
        made = write_examples()
        for kind, (reader, name) in made.items():
            row, original = Row(f"damaged files: {kind}"), Path(name).read_bytes()
            known, target = reader(name).values.numpy(), f"m-{name}"

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
                row.add(held, f"status {status}: {errors[-250:]}")
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
    *place, last = rng.choice(list(leaves(content)))
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
    with folder() as root:
        seconds_of(partial(command, SHORT_FIT))
        good = next(root.glob("runs/*/1/checkpoints/last.ckpt"))
        target = root / "runs/m/1/checkpoints/last.ckpt"
        target.parent.mkdir(parents=True)
        for number in range(mutations):
            row, note = (bits, "") if number % 2 else (values, "")
            if number % 20 == 0:
                row = hostile
                if number % 40:
                    torch.save({**torch.load(good, weights_only=True), "callbacks": Evil()}, target)
                else:
                    with zipfile.ZipFile(target, "w") as archive:
                        archive.writestr("a/data.pkl", pickle.dumps(Evil()))
            elif row is bits:
                target.write_bytes(mutated(good.read_bytes(), rng))
            else:
                note = altered(good, target, rng)
            start = [*FIT, "--trainer.max_steps", "25", "--ckpt_path"] if number % 3 else PREDICT
            status, errors = forked(partial(command, [*start, str(target)]), limit=LIMIT)
            held, foreign = in_order(status, errors, (1, REFUSED)), Path(SIGNATURE).exists()
            row.add(held and not foreign, f"{note}: status {status}, foreign code {foreign}, {errors[-250:]}")
    return [bits, values, hostile]


# -- memory -----------------------------------------------------------------------------------------------------------------


def memory(side: int = 8192) -> Iterator[Row]:
    """The largest resident set of commands that fit one large picture."""
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
                    tifffile.imwrite(name, values[()], photometric="rgb", compression="deflate")
            if name.endswith("h5"):
                Path("whole.h5").rename(name)
            # a new program: a fork would begin with the memory of this process
            began, log, used = time.monotonic(), Path("log"), 0.0
            program = [sys.executable, "-m", "pe_lightning", "fit", *words("large"), "--data.paths", name]
            with log.open("w") as stream:
                process = subprocess.Popen(program, stdout=stream, stderr=stream, env=os.environ | {"PYTHONPATH": str(ROOT)})
            while process.poll() is None:
                counted = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())
                used = max(used, int(counted[1]) * 1024 / 1e9 if counted else 0)
                time.sleep(0.02)
            row = Row(f"{side}^2 {name}: {used:.2f} GB, {time.monotonic() - began:.0f} s")
            held = process.returncode == 0 and used < 1
            row.add(held, f"status {process.returncode}, {used:.2f} GB: {log.read_text()[-250:]}")
            yield row


# -- solves -----------------------------------------------------------------------------------------------------------------


def solves(rng: random.Random) -> list[Row]:
    """Exact fits of every encoder, with degenerate coordinates, values and ridges."""
    grids, points = Row("exact fits on grids"), Row("exact fits at points")
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    cases: list[dict[str, Any]] = [{"name": name} for name in encoder_names()]
    cases += [{"name": "gau", "sigma": 1e-6}, {"name": "gau", "sigma": 5.0}, {"name": "sine", "frequency": 1e-9}]
    cases += [{"name": "rff", "sigma": 0.01}, {"name": "laplace", "scale": 10.0}]
    settings = itertools.product(cases, (4, 16), (0.0, 1e-12, 1e-3), (torch.float32, torch.float64), (1, 2))
    for case, count, ridge, dtype, axes in settings:
        encoder = {**case, "num_features": count}
        for size in (2, 9, 24):
            values = torch.rand(2, *[size] * axes, 1, generator=generator, dtype=dtype)
            for scaled in (0.0 * values, values, 1e6 * values):
                grids.add(*solved(partial(solve_grid, scaled, encoder, ridge=ridge), scaled))
        for kind in ("random", "duplicated", "near", "far"):
            x = torch.rand(30, axes, generator=generator) * 0.999
            if kind == "duplicated":
                x = x[torch.randint(0, 5, (30,), generator=generator)]
            elif kind == "near":
                x = torch.cat([x[:15], x[:15] * (1 - 1e-6)])
            elif kind == "far":
                x[1:] *= 0.1
            values = torch.rand(1, 30, 1, generator=generator, dtype=dtype)
            points.add(*solved(partial(solve_points, values, encoder, coords=x, ridge=ridge), values, x))
    return [grids, points]


def solved(solve: Callable[[], Any], values: torch.Tensor, coords: torch.Tensor | None = None) -> tuple[bool, str]:
    """Whether a solution is right, and what is wrong; the error of an exact one is compared with NumPy's least squares."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = solve()
    except InputError:
        return True, ""
    except Exception as error:
        return False, f"{type(error).__name__}: {error}"
    flat = values.flatten(1, -2).double()
    mean = float((flat - flat.mean(1, keepdim=True)).square().sum())
    error = float(found.squared_error.sum())
    said = found.converged is None or not bool(found.converged.any()) or float(found.relative_residual.max()) <= 0.05
    if found.solver == "dense" and coords is not None:
        matrix = ScatteredPoints(found.encoders, coords[None].to(values.dtype)).dense()[0].detach().numpy()
        target = (flat - flat.mean(1, keepdim=True))[..., 0].T.numpy()
        least = float(((matrix @ np.linalg.lstsq(matrix, target, rcond=None)[0] - target) ** 2).sum())
        said = not found.exact or error <= 1.01 * least + 1e-8 * mean  # 1 %: singular values near rounding
    finite = bool(found.weight.isfinite().all() and found.mean.isfinite().all())
    small = error <= mean * 1.01 + 1e-6 * float(flat.square().sum())
    about = f"{found.encoders[0]}: finite {finite}, squared error {error:.3g} of {mean:.3g}, honest {said}"
    return finite and small and said, about


# -- sections ---------------------------------------------------------------------------------------------------------------

Section = Callable[[int, int, random.Random], Iterable[Row]]
"""Takes the number of kills, that of mutations, and random numbers."""


def fits(name: str, *more: str, share: int = 6, signum: int = signal.SIGKILL) -> Section:
    """The section of fits with these options, of a share of the kills."""
    return lambda kills, _, rng: [killed_fits(name, -(-kills // share), rng, more, signum)]


SECTIONS: dict[str, Section] = {
    "checkpoints": lambda _, mutations, rng: damaged_checkpoints(mutations, rng),
    "fits": fits("fits killed, resumed to the same weights", share=1),
    "stopping": fits("the same with EarlyStopping", *words("early_stopping")),
    "averaging": fits("the same with SWA", *words("averaging")),
    "double": fits("the same in float64", "--trainer.precision", "64-true"),
    "accumulated": fits("the same with GradientAccumulationScheduler", *words("accumulation"), signum=signal.SIGTERM),
    "terminated": fits("fits that get SIGTERM, resumed", signum=signal.SIGTERM),
    "terminated_sweeps": lambda kills, _, rng: [
        killed_sweeps("sweeps that get SIGTERM, given again", -(-kills // 6), rng, TRAINED_SWEEP, signal.SIGTERM)
    ],
    "sweeps": lambda kills, _, rng: [killed_sweeps("sweeps killed, given again", -(-kills // 6), rng, SWEEP)],
    "comparisons": lambda kills, _, rng: [killed_comparisons(-(-kills // 6), rng)],
    "caches": faults_cache.rows,
    "names": faults_names.rows,
    "resumptions": lambda *_: faults_resumption.resumptions(),
    "not_finite": lambda *_: faults_resumption.not_finite(),
    "lightning": lambda *_: faults_lightning.lightning_classes(),
    "folders": lambda *_: [read_only_folders()],
    "files": lambda kills, _, rng: written_files(-(-kills // 6), rng),
    "outputs": lambda *_: outputs(),
    "reuse": lambda *_: reuse(),
    "values": lambda kills, _, rng: kept_values(2 * -(-kills // 6), rng),
    "readers": lambda _, mutations, rng: damaged_files(mutations, rng),
    "memory": lambda *_: memory(),
    "solves": lambda *options: solves(options[-1]),
    "declarations": lambda *options: declarations(options[-1]),
}


def section(name: str, seed: int, kills: int, mutations: int) -> list[Row]:
    """The rows of one section."""
    return list(SECTIONS[name](kills, mutations, random.Random(f"{seed} {name}")))


def main(arguments: list[str] | None = None) -> int:
    """Runs the rows; the exit status is 1 if an attempt did not hold."""
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=60, help="of fits; of the others a sixth each")
    parser.add_argument("--mutations", type=int, default=800, help="of files, and of checkpoints")
    parser.add_argument("--only", default=",".join(SECTIONS), help="rows, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="sections that run at the same time")
    options = parser.parse_args(arguments)
    names = options.only.split(",")
    if unknown := set(names) - set(SECTIONS):
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; known: {', '.join(SECTIONS)}")
    torch.set_num_threads(1)  # threads do not live on in a forked process
    with folder() as root, open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        command(SHORT_FIT)  # so that the attempts that are forked from this process neither import nor compile
        command([*PREDICT, str(next(root.glob("runs/*/1/checkpoints/last.ckpt")))])
    print(f"seed {options.seed}")
    print_titles("what", "tried", "held")
    failed, context = False, multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        running = [pool.submit(section, name, options.seed, options.kills, options.mutations) for name in names]
        for done in concurrent.futures.as_completed(running):
            for row in done.result():
                row.show()
                failed |= bool(row.failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
