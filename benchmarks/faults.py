"""Faults on purpose: kills, damaged files and altered checkpoints. Prints one row per kind, tried and held.

    python benchmarks/faults.py --kills 60 --mutations 800 --jobs 3   # everything
    python benchmarks/faults.py --only fits --kills 10 --seed 3       # one row, other moments
    python benchmarks/faults.py --only readers,checkpoints --mutations 100

Held means, where a section does not say otherwise: a command succeeds, or ends with status 2 and one paragraph; no file or
folder that was there is lost or changed; and what succeeds has the result of a command without the fault, bit for bit.

- ``fits``, ``sweeps``, ``comparisons``, ``fills``: killed at a random moment, given again. ``stopping``, ``averaging``,
  ``double``: fits with ``EarlyStopping``, with SWA, in float64. ``accumulated``, ``terminated``, ``terminated_sweeps``:
  SIGTERM instead; the exit status is 143, or 0 if the command had ended.
- ``caches``: killed while they are written; bytes are changed; entries are replaced by other files; removed and written
  while two processes read.
- ``resumptions``: with other data and other fits, refused; twice at a time. ``reuse``: sweeps given again after content,
  settings or files of the run changed.
- ``lightning``: every callback, logger, profiler and strategy of Lightning in a configuration is written and read back.
- ``plugins``: packages of which one entry point cannot be imported, of every group: commands work, and name it.
  ``hooks``: every hook that Lightning has, overridden in modules, DataModules and callbacks, under several strategies.
- ``options``: every option of ``fill`` for every kind of file changes the result or the report, or is refused.
- ``outputs``: verbs that name an output, which is new, its own, foreign, the input, a link to it, on a full disk, or taken
  by several at a time. ``folders``: commands of which one folder is read-only.
- ``names``, ``names_in_c``: files whose names are not UTF-8, hold escape sequences, line ends, markup or YAML, for every
  verb, also in the locale C; no control character on either stream.
- ``readers``: bytes of small files of every format are flipped, zeroed, cut or repeated: the signals or one
  :class:`InputError` in 20 seconds of processor time; with checksums (PNG, .npz) the right signals. ``checkpoints``: the
  same, and values in them replaced; no process dies, hangs, or runs foreign code.
- ``memory``: exact fits of a picture of 8192 x 8192, read in blocks, below 1 GB of resident memory.
- ``solves``: exact fits of every encoder, degenerate ones too: finite, not worse than the mean, converged if said to be,
  and as good as NumPy's where they are called exact.

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
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attempts
import faults_names
import h5py
import nibabel
import numpy as np
import soundfile
import tifffile
import torch
import xarray
from attempts import FIT, HELD, REFUSED, SWEEP, Row, Size, Work, command, folder, forked, killed, made, words
from faults_cache import caches
from faults_lightning import lightning_classes
from faults_options import options
from faults_outputs import COMPARE, outputs, read_only_folders
from faults_plugins import hooks, plugins
from faults_reuse import resumptions, reuse
from harness import ROOT, make_parser, print_titles, run_python
from PIL import Image

from pe_fill import LabelledDataModule
from pe_lightning.encoders import names as encoder_names
from pe_lightning.errors import InputError
from pe_lightning.solvers import solve_grid, solve_points
from pe_lightning.solvers.samples import ScatteredPoints
from pe_lightning.training import ImageDataModule, RowDataModule, VideoDataModule

SIGNATURE = "foreign-code-was-here"
CHECKED = ("png", "npz")
LIMIT = 20

Section = Callable[[Size], Iterable[Row]]

# -- kills ------------------------------------------------------------------------------------------------------------------


def weights(run_dir: Path) -> dict[str, bytes]:
    """The parameters in the last checkpoint."""
    state = torch.load(run_dir / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    return {name: value.numpy().tobytes() for name, value in state.items() if value is not None}


def fits(name: str, *more: str, every: bool = False, signum: int = signal.SIGKILL) -> Section:
    """Fits with these options that get a signal and are resumed, as often as there are kills, or a few."""

    def fit(root: str, *resume: str) -> Work:
        return partial(command, [*FIT, *more, "--trainer.default_root_dir", root, *resume])

    def resumed(root: str) -> Work:
        found = list(Path(root).glob("runs/*/1/checkpoints/last.ckpt"))
        return fit(root, "--ckpt_path", str(found[0])) if found else fit(root)

    def result(root: Path) -> dict[str, bytes]:
        return weights(max(root.glob("runs/*/*/metrics.json")).parent)

    def section(size: Size) -> Iterator[Row]:
        with folder():
            yield killed(Row(name), size.kills if every else size.few, size.rng, fit, result, resumed, signum)

    return section


def sweeps(name: str, sweep: list[str], signum: int = signal.SIGKILL) -> Section:
    """Sweeps that get a signal and are given again."""

    def result(out: Path) -> dict[str, dict[str, bytes]]:
        return {path.parent.name: weights(path.parent) for path in out.glob("*/metrics.json")}

    def section(size: Size) -> Iterator[Row]:
        with folder():
            first = lambda out: partial(command, [*sweep, out])  # noqa: E731
            yield killed(Row(name), size.few, size.rng, first, result, signum=signum)

    return section


def comparisons(size: Size) -> Iterator[Row]:
    """Reports that are killed while they are written over an old one."""

    def report(_: Path) -> dict[str, bytes]:
        """The files; of the page, which has the time in it, whether it is whole."""
        files = {path.name: path.read_bytes() for path in Path("report").iterdir() if path.name[0] != "."}
        return {**files, "index.html": b"%d" % files["index.html"].rstrip().endswith(b"</html>")}

    with folder():
        made(*SWEEP, "s")
        row = Row("comparisons killed, report old or new")
        yield killed(row, size.few, size.rng, lambda _: partial(command, COMPARE), report, lambda _: lambda: HELD)


def fills(size: Size) -> Iterator[Row]:
    """Fills of a picture and of a folder of frames that are killed."""
    row = Row("fills killed, given again")

    def fill_killed(suffix: str, *given: str) -> None:
        def first(name: str) -> Work:
            return partial(command, ["fill", *given, *words("plain_fill"), "--out", f"{name}{suffix}"])

        def again(name: str) -> Work:
            return (lambda: HELD) if Path(f"{name}{suffix}").exists() else first(name)

        killed(row, size.few, size.rng, first, lambda name: attempts.tree(Path(f"{name}{suffix}")), again)

    with folder():
        attempts.write_gaps()
        Path("frames").mkdir()
        for number in (1, 2, 4):
            attempts.waves(24, 28).save(f"frames/{number}.png")
        fill_killed(".png", "a.png", "--missing", "m.png")
        fill_killed("-clip", "frames")
    yield row


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


class Evil:
    """Leaves a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(SIGNATURE),)


def write_examples() -> dict[str, tuple[Callable[[str], Any], str]]:
    """Writes a small file of every format into the working directory: by kind, what reads it and its name."""
    picture = np.random.default_rng(0).integers(90, 110, (24, 28, 3), dtype=np.uint8)
    readers: dict[str, tuple[Callable[[str], Any], str]] = {}
    for suffix in ("png", "jpg", "bmp", "gif", "webp", "ppm", "tif"):
        Image.fromarray(picture).save(f"a.{suffix}")
        readers[suffix] = (ImageDataModule, f"a.{suffix}")
    Image.fromarray(picture[..., 0] * np.uint16(256)).save("deep.png")
    tifffile.imwrite("stack.tif", picture, photometric="minisblack", compression="deflate")
    np.save("a.npy", picture)
    np.savez_compressed("a.npz", values=picture)
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("values", data=picture, chunks=(8, 28, 3), compression=1, fletcher32=True)
    for name in ("a.nii", "a.nii.gz"):
        nibabel.save(nibabel.Nifti1Image(picture, np.eye(4)), name)
    for suffix in ("wav", "flac", "ogg"):
        soundfile.write(f"a.{suffix}", np.sin(np.arange(800) / 9), 8000)
        readers[suffix] = (RowDataModule, f"a.{suffix}")
    for suffix in ("npy", "npz", "h5", "nii", "nii.gz"):
        readers[suffix] = (VideoDataModule, f"a.{suffix}")
    attempts.write_gaps()
    shutil.copy(ROOT / "datasets/bigbuckbunny.mp4", "a.mp4")
    xarray.Dataset({"values": (("y", "x"), picture[..., 0].astype(np.int16))}).to_netcdf("a.nc", engine="h5netcdf")
    return readers | {
        "png 16": (ImageDataModule, "deep.png"),
        "tif stack": (VideoDataModule, "stack.tif"),
        "csv": (RowDataModule, "a.csv"),
        "nc": (LabelledDataModule, "a.nc"),
        "mp4": (lambda name: VideoDataModule(name, frames=[0, 4], resize=16), "a.mp4"),
    }


def damaged_files(size: Size) -> Iterator[Row]:
    """Reads mutated files of every format, in turn."""
    with folder():
        examples = write_examples()
        for kind, (reader, name) in examples.items():
            row, original, target = Row(f"damaged files: {kind}"), Path(name).read_bytes(), f"m-{name}"
            work = partial(read_damaged, reader, target, kind, reader(name).values.numpy())
            for _ in range(-(-size.mutations // len(examples))):
                Path(target).write_bytes(mutated(original, size.rng))
                status, errors = forked(work, limit=LIMIT)
                held = status in (HELD, REFUSED) or "MemoryError" in errors
                row.add(held, f"status {status}: {errors[-250:]}")
            yield row


def read_damaged(reader: Callable[[str], Any], target: str, kind: str, known: np.ndarray) -> int:
    """Reads a file; formats with checksums have the known values or are refused."""
    try:
        found = reader(target).values.numpy()
    except InputError as error:
        return REFUSED if len(str(error).splitlines()) == 1 else attempts.BROKEN
    # a cell of a table that lost its number is empty, and counted in a notice
    assert np.isfinite(found).all() or kind == "csv", "values that are not finite"
    assert kind not in CHECKED or np.array_equal(found, known), "accepted, and other values"
    return HELD


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


def damaged_checkpoints(size: Size) -> list[Row]:
    """Resumes from, and tests, checkpoints that are damaged, altered or hostile."""
    bits, values, hostile = Row("checkpoints: bytes changed"), Row("checkpoints: values changed"), Row("checkpoints: code")
    with folder() as root:
        made(*attempts.SHORT_FIT)
        good = next(root.glob("runs/*/1/checkpoints/last.ckpt"))
        target = root / "runs/m/1/checkpoints/last.ckpt"
        target.parent.mkdir(parents=True)
        for number in range(size.mutations):
            row, note = bits if number % 2 else values, ""
            if number % 40 == 0:
                row = hostile
                with zipfile.ZipFile(target, "w") as archive:
                    archive.writestr("a/data.pkl", pickle.dumps(Evil()))
            elif number % 20 == 0:
                row = hostile
                torch.save({**torch.load(good, weights_only=True), "callbacks": Evil()}, target)
            elif row is bits:
                target.write_bytes(mutated(good.read_bytes(), size.rng))
            else:
                note = altered(good, target, size.rng)
            start = [*FIT, "--trainer.max_steps", "25", "--ckpt_path"] if number % 3 else attempts.PREDICT
            status, errors = forked(partial(command, [*start, str(target)]), limit=LIMIT)
            held, foreign = attempts.in_order(status, errors, (1, REFUSED)), Path(SIGNATURE).exists()
            row.add(held and not foreign, f"{note}: status {status}, foreign code {foreign}, {errors[-250:]}")
    return [bits, values, hostile]


# -- memory -----------------------------------------------------------------------------------------------------------------

MEASURED = """
import sys
from pathlib import Path
from pe_lightning.__main__ import main
status = main(sys.argv[1:])
print(Path("/proc/self/status").read_text())
sys.exit(status)
"""
"""A command as a new program, since a fork would begin with the memory of this process; it prints its highest memory."""


def memory(_: Size) -> Iterator[Row]:
    """The largest resident set of commands that fit one large picture."""
    side = 8192
    with folder() as root:
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
            shown, seconds, _ = run_python(["-c", MEASURED, "fit", *words("large"), "--data.paths", name], root)
            used = int(re.findall(r"VmHWM:\s+(\d+)", shown)[0]) * 1024 / 1e9
            row = Row(f"{side}^2 {name}: {used:.2f} GB, {seconds:.0f} s")
            row.add(used < 1, f"{used:.2f} GB")
            yield row


# -- solves -----------------------------------------------------------------------------------------------------------------


def solves(size: Size) -> list[Row]:
    """Exact fits of every encoder, with degenerate coordinates, values and ridges."""
    grids, points = Row("exact fits on grids"), Row("exact fits at points")
    generator = torch.Generator().manual_seed(size.rng.randrange(2**31))
    cases: list[dict[str, Any]] = [{"name": name} for name in encoder_names()]
    cases += [{"name": "gau", "sigma": 1e-6}, {"name": "gau", "sigma": 5.0}, {"name": "sine", "frequency": 1e-9}]
    cases += [{"name": "rff", "sigma": 0.01}, {"name": "laplace", "scale": 10.0}]
    settings = itertools.product(cases, (4, 16), (0.0, 1e-12, 1e-3), (torch.float32, torch.float64), (1, 2))
    for case, count, ridge, dtype, axes in settings:
        encoder = {**case, "num_features": count}
        for side in (2, 9, 24):
            values = torch.rand(2, *[side] * axes, 1, generator=generator, dtype=dtype)
            for scaled in (0.0 * values, values, 1e6 * values):
                grids.add(*solved(partial(solve_grid, scaled, encoder, ridge=ridge), scaled))
        x = torch.rand(30, axes, generator=generator) * 0.999
        duplicated = x[torch.randint(0, 5, (30,), generator=generator)]
        near, far = torch.cat([x[:15], x[:15] * (1 - 1e-6)]), torch.cat([x[:1], 0.1 * x[1:]])
        for coords in (x, duplicated, near, far):
            values = torch.rand(1, 30, 1, generator=generator, dtype=dtype)
            points.add(*solved(partial(solve_points, values, encoder, coords=coords, ridge=ridge), values, coords))
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

TRAINED_SWEEP = ["sweep", *FIT[1:], "--vary", "model.encoder=gau,tri", "--out"]
SECTIONS: dict[str, Section] = {
    "checkpoints": damaged_checkpoints,
    "fits": fits("fits killed, resumed to the same weights", every=True),
    "stopping": fits("the same with EarlyStopping", *words("early_stopping")),
    "averaging": fits("the same with SWA", *words("averaging")),
    "double": fits("the same in float64", "--trainer.precision", "64-true"),
    "accumulated": fits("the same with GradientAccumulationScheduler", *words("accumulation"), signum=signal.SIGTERM),
    "terminated": fits("fits that get SIGTERM, resumed", signum=signal.SIGTERM),
    "terminated_sweeps": sweeps("sweeps that get SIGTERM, given again", TRAINED_SWEEP, signal.SIGTERM),
    "sweeps": sweeps("sweeps killed, given again", SWEEP),
    "comparisons": comparisons,
    "fills": fills,
    "caches": caches,
    "names": faults_names.names,
    "names_in_c": faults_names.names_in_c,
    "resumptions": resumptions,
    "reuse": reuse,
    "lightning": lightning_classes,
    "plugins": plugins,
    "hooks": hooks,
    "options": options,
    "folders": read_only_folders,
    "outputs": outputs,
    "readers": damaged_files,
    "memory": memory,
    "solves": solves,
}


def section(name: str, seed: int, kills: int, mutations: int) -> list[Row]:
    """The rows of one section."""
    return list(SECTIONS[name](Size(kills, mutations, random.Random(f"{seed} {name}"))))


def main(arguments: list[str] | None = None) -> int:
    """Runs the rows; the exit status is 1 if an attempt did not hold."""
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=60, help="of fits; of the others a sixth each")
    parser.add_argument("--mutations", type=int, default=800, help="of files, and of checkpoints")
    parser.add_argument("--only", default=",".join(SECTIONS), help="rows, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="sections that run at the same time")
    given = parser.parse_args(arguments)
    names = given.only.split(",")
    if unknown := set(names) - set(SECTIONS):
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; known: {', '.join(SECTIONS)}")
    torch.set_num_threads(1)  # threads do not live on in a forked process
    with folder() as root, open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        command(attempts.SHORT_FIT)  # so that the attempts that are forked from this process neither import nor compile
        command([*attempts.PREDICT, str(next(root.glob("runs/*/1/checkpoints/last.ckpt")))])
    print(f"seed {given.seed}")
    print_titles("what", "tried", "held")
    failed, context = False, multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(given.jobs, mp_context=context) as pool:
        running = [pool.submit(section, name, given.seed, given.kills, given.mutations) for name in names]
        for done in concurrent.futures.as_completed(running):
            for row in done.result():
                row.show()
                failed |= bool(row.failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
