"""Outputs of commands: what is there before, a link, the input itself, several at a time, full disks, read-only folders."""

from __future__ import annotations

import ctypes
import itertools
import os
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import attempts
from attempts import REFUSED, Row, Size, attempt, command, folder, forked, in_order, made, waves, words

COMPARE = ["compare", "s", "--out", "report"]
SLOW = "pages"
"""Verb of which only refusals are tried: it takes half a minute."""


def outputs(_: Size) -> Iterator[Row]:
    """Every verb that names an output, with every state of it."""
    sweep = ["sweep", "a.png", *words("small", "output_sweep")]
    with folder():
        attempts.write_gaps()
        Path("p").mkdir()
        for number in (1, 2):
            waves(24, 28).save(f"p/{number}.png")
        Path("c.yaml").write_text("data: {class_path: ImageDataModule, init_args: {paths: p}}\n")
        made(*attempts.SHORT_FIT)
        made(*sweep, "swept")
        shutil.copytree(next(Path("runs").glob("*/1")), "run")
        for verb, (text, suffix, inputs) in attempts.TABLES["output_files"].items():
            yield output_file(Row(f"outputs of {verb}"), [*text.split(), "--out"], suffix, inputs.split())
        for verb, (text, own) in attempts.TABLES["output_folders"].items():
            yield output_folder(Row(f"outputs of {verb}"), text.split() if text else sweep, own)
        yield predictions(Row("outputs of predict, test and validate"))


def output_file(row: Row, arguments: list[str], suffix: str, inputs: Sequence[str]) -> Row:
    """A file: new, its own, foreign, on a full disk, a link, an input by each of its names, three at a time."""
    out, link = f"new/out{suffix}", Path(f"link{suffix}")
    attempt(row, [*arguments, out], [0])
    row.add(Path(out).is_file(), "a missing parent: nothing written")
    attempt(row, [*arguments, out], [REFUSED])
    attempt(row, [*arguments, out, "--force"], [0], lambda name: name.startswith("new/"))
    Path(out).write_text("precious")
    attempt(row, [*arguments, out], [REFUSED])
    full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (400, 400))  # the message takes up to 300 bytes
    attempt(row, [*arguments, out, "--force"], [REFUSED], before=full)
    for target in (out, "nowhere"):
        link.symlink_to(target)
        attempt(row, [*arguments, str(link)], [REFUSED])
        link.unlink()
    for source in inputs:
        for name in names_of(source, link):
            for force in ([], ["--force"]):
                attempt(row, [*arguments, name, *force], [REFUSED])
        # the folder that holds the input: fill writes a.png into it, which is the input
        attempt(row, [*arguments, str(Path(source).absolute().parent), "--force"], [REFUSED])
        attempt(row, [*arguments, f"{source}/out{suffix}"], [REFUSED])
    found = sorted(status for status, _ in attempts.together([partial(command, [*arguments, f"several{suffix}"])] * 3))
    row.add(found == [0, REFUSED, REFUSED], f"{' '.join(arguments)}, 3 at a time: status {found}")
    shutil.rmtree("new")
    for path in Path().glob("several*"):
        path.unlink()
    return row


def names_of(source: str, link: Path) -> Iterator[str]:
    """A file by its name, by a link, by a second name and through a link to its folder."""
    path = Path(source).absolute()
    yield source
    for make in (os.symlink, os.link):
        make(path, link)
        yield str(link)
        link.unlink()
    Path("folder").symlink_to(path.parent)
    yield f"folder/{path.name}"
    Path("folder").unlink()


def output_folder(row: Row, arguments: list[str], own: str | None) -> Row:
    """A folder: a file, foreign, a link, new, with its own files as they were, edited and replaced, three at a time."""
    Path("theirs").mkdir()
    Path("theirs/thesis.tex").write_text("precious")
    Path("file").write_text("precious")
    Path("folder").symlink_to("theirs")
    attempt(row, [*arguments, "file"], [REFUSED])
    if own is None:
        for name in ("theirs", "folder", "p", "."):
            attempt(row, [*arguments, name], [REFUSED])
    else:
        Path("foreign", own).parent.mkdir(parents=True)
        Path("foreign", own).write_text("precious")
        attempt(row, [*arguments, "foreign"], [REFUSED])
    if own is not None and arguments[0] != SLOW:
        again = partial(attempt, row, [*arguments, "new/out"], [0], lambda name: name.startswith("new/out/"))
        again()
        again()
        attempt(row, [*arguments, "theirs"], [0])
        attempt(row, [*arguments, "folder"], [0], lambda name: not name.endswith("thesis.tex"))
        path = Path("new/out", own)
        edits: list[Callable[[], object]] = [
            lambda: path.write_text("edited"),
            lambda: path.symlink_to(Path("a.png").absolute()),
            lambda: path.hardlink_to("a.png"),
            path.mkdir,
        ]
        for edit in edits:
            path.unlink()
            edit()
            attempt(row, [*arguments, "new/out"], [REFUSED])
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            again()
        found = sorted(attempts.together([partial(command, [*arguments, "several"])] * 3))
        held = found[0][0] == 0 and all(in_order(*end) for end in found) and Path("several", own).is_file()
        row.add(held, f"{' '.join(arguments)}, 3 at a time: {found}")
    for name in ("theirs", "new", "foreign", "several"):
        shutil.rmtree(name, ignore_errors=True)
    Path("file").unlink()
    Path("folder").unlink()
    return row


def predictions(row: Row) -> Row:
    """Two checkpoints of a run, and of a folder that is none, without a root and with one that is new, and then exists."""
    Path("loose").mkdir()
    for name in ("one", "two"):
        shutil.copy("run/checkpoints/last.ckpt", f"loose/{name}.ckpt")
    data = ["--data", "ImageDataModule", "--data.paths", "samples://astronaut", "--data.resize", "32"]
    starts = [(verb, [verb, "--trainer.accelerator", "cpu"]) for verb in ("test", "validate")]
    for verb, start in [("predict", attempts.PREDICT[:-1]), *starts]:
        for checkpoints in ("run/checkpoints", "loose"):
            more = data if verb != "predict" and checkpoints == "loose" else []
            for path in sorted(Path(checkpoints).glob("*.ckpt")):
                whole = [*start, *more, "--ckpt_path", str(path)]
                for root in ([], *[["--trainer.default_root_dir", "root/new"]] * 2):
                    attempt(row, [*whole, *root], [0])
    found = len(list(Path("root/new/runs").glob("*/*")))
    row.add(found == 24, f"{found} folders below default_root_dir, not 24")
    return row


def read_only_folders(_: Size) -> Iterator[Row]:
    """Commands that find each folder, one at a time, read-only."""
    row = Row("commands with a read-only folder")
    with folder() as root:
        waves(40, 40).save("a.png")
        made(*attempts.SHORT_FIT)
        made(*attempts.SWEEP, "s")
        last = str(next(root.glob("runs/*/1/checkpoints/last.ckpt")))
        commands = [
            attempts.SHORT_FIT,
            [*attempts.FIT, "--trainer.max_steps", "25", "--ckpt_path", last],
            ["fit", "a.png", *words("small"), "--model.ridge", "0.01"],
            ["test", "--ckpt_path", last, "--trainer.accelerator", "cpu"],
            [*attempts.PREDICT, last],
            [*attempts.SWEEP, "s", "--vary", "seed_everything=5"],
            [*attempts.SWEEP, "t"],
            COMPARE,
            ["suggest", "a.png", "--out", "suggested.yaml", "--data.resize", "32"],
        ]
        cells = {path.parent for path in sorted(root.glob("s/*/metrics.json"))[1:]}  # all but the first are alike
        found = (path for path in [root, *root.rglob("*")] if path.is_dir() and cells.isdisjoint([path, *path.parents]))

        def in_read_only(path: Path, arguments: list[str]) -> int:
            drop_override()
            path.chmod(0o500)
            return command(arguments)

        for arguments, path in itertools.product(commands, sorted(found)):
            status, errors = forked(partial(in_read_only, path, arguments))
            path.chmod(0o700)
            row.add(in_order(status, errors), f"{' '.join(arguments)[:80]}, {path}: status {status}, {errors[-250:]}")
    yield row


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
