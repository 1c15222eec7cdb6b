"""Outputs of every verb that names files: what is there before, a link, the input itself, and several at a time."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from attempts import (
    LIMIT,
    PREDICT,
    REFUSED,
    SHORT_FIT,
    TABLES,
    Row,
    command,
    folder,
    forked,
    in_order,
    run,
    seconds_of,
    tree,
    words,
)
from PIL import Image

SWEEP = ["sweep", "a.png", *words("small", "output_sweep")]
SLOW = "pages"
"""Verb of which only refusals are tried: it takes half a minute."""


def outputs() -> Iterator[Row]:
    """Every verb with every state of its output. Held: nothing that was there is lost, and the status is the right one."""
    with folder():
        _write_inputs()
        for verb, (text, suffix, inputs) in TABLES["output_files"].items():
            yield _file(Row(f"outputs of {verb}"), [*text.split(), "--out"], suffix, inputs.split())
        for verb, (text, own) in TABLES["output_folders"].items():
            yield _folder(Row(f"outputs of {verb}"), text.split() if text else SWEEP, own)
        yield _predictions(Row("outputs of predict, test and validate"))


def _write_inputs() -> None:
    y, x = np.mgrid[:24, :28] / 24
    picture = np.uint8(127 + 120 * np.sin(9 * x + 5 * y * y))
    Path("p").mkdir()
    for name in ("a.png", "p/1.png", "p/2.png"):
        Image.fromarray(picture).save(name)
    Image.fromarray(np.uint8(np.arange(24)[:, None] * np.ones(28) == 9) * 255).save("m.png")
    Path("a.csv").write_text("x,y,v\n" + "".join(f"{n % 7},{n // 7},{n * n % 17}\n" for n in range(42)))
    Path("c.yaml").write_text("data: {class_path: ImageDataModule, init_args: {paths: p}}\n")
    seconds_of(partial(command, SHORT_FIT))
    seconds_of(partial(command, [*SWEEP, "swept"]))
    shutil.copytree(next(Path("runs").glob("*/1")), "run")


def _attempt(
    row: Row, arguments: Sequence[str], ends: Sequence[int], may_change: Callable[[str], bool] | None = None
) -> None:
    """Counts a command that has to end with one of some statuses, and to change no file but those that it may."""
    before, (status, errors) = tree(Path()), forked(partial(command, list(arguments)), limit=10 * LIMIT)
    after = tree(Path())
    lost = [name for name, content in before.items() if after.get(name) != content and not (may_change and may_change(name))]
    held = status in ends and in_order(status, errors) and not lost
    row.add(held, f"{' '.join(map(str, arguments))}: status {status}, lost {lost[:3]}, {errors[-250:]}")


def _at_once(row: Row, arguments: Sequence[str], ends: Sequence[int]) -> None:
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        found = sorted(status for status, _ in pool.map(run, [list(arguments)] * len(ends)))
    row.add(found == list(ends), f"{' '.join(arguments)}, {len(ends)} at a time: status {found}")


def _file(row: Row, arguments: list[str], suffix: str, inputs: Sequence[str]) -> Row:
    out = f"new/out{suffix}"
    _attempt(row, [*arguments, out], [0])
    row.add(Path(out).is_file(), "a missing parent: nothing written")
    _attempt(row, [*arguments, out], [REFUSED])  # its own file of before
    _attempt(row, [*arguments, out, "--force"], [0], lambda name: name.startswith("new/"))
    Path(out).write_text("precious")
    _attempt(row, [*arguments, out], [REFUSED])
    Path(f"link{suffix}").symlink_to(out)
    _attempt(row, [*arguments, f"link{suffix}"], [REFUSED])
    Path(f"link{suffix}").unlink()
    Path(f"link{suffix}").symlink_to("nowhere")
    _attempt(row, [*arguments, f"link{suffix}"], [REFUSED])
    Path(f"link{suffix}").unlink()
    for source in inputs:
        for force in ([], ["--force"]):
            _attempt(row, [*arguments, source, *force], [REFUSED])
            for make in (os.symlink, os.link):
                make(os.path.abspath(source), f"link{suffix}")
                _attempt(row, [*arguments, f"link{suffix}", *force], [REFUSED])
                Path(f"link{suffix}").unlink()
            Path("folder").symlink_to(Path(source).absolute().parent)
            _attempt(row, [*arguments, f"folder/{Path(source).name}", *force], [REFUSED])
            Path("folder").unlink()
        # the folder that holds the input: fill writes a.png into it, which is the input
        _attempt(row, [*arguments, str(Path(source).absolute().parent), "--force"], [REFUSED])
        _attempt(row, [*arguments, f"{source}/out{suffix}"], [REFUSED])
    _at_once(row, [*arguments, f"several{suffix}"], [0, 2, 2])
    shutil.rmtree("new")
    for path in Path().glob("several*"):
        path.unlink()
    return row


def _folder(row: Row, arguments: list[str], own: str | None) -> Row:
    Path("theirs").mkdir()
    Path("theirs/thesis.tex").write_text("precious")
    Path("file").write_text("precious")
    Path("folder").symlink_to("theirs")
    _attempt(row, [*arguments, "file"], [REFUSED])
    for name in ("theirs", "folder", "p", "."):
        if own is None:
            _attempt(row, [*arguments, name], [REFUSED])
    if own is not None:
        Path("foreign", own).parent.mkdir(parents=True)
        Path("foreign", own).write_text("precious")
        _attempt(row, [*arguments, "foreign"], [REFUSED])
    if own is not None and arguments[0] != SLOW:
        out = Path("new/out")
        for _ in range(2):  # a missing parent, then its own files
            _attempt(row, [*arguments, str(out)], [0], lambda name: name.startswith("new/out/"))
        _attempt(row, [*arguments, "theirs"], [0])
        _attempt(row, [*arguments, "folder"], [0], lambda name: not name.endswith("thesis.tex"))
        for make in (
            lambda path: path.write_text("edited"),
            lambda path: path.symlink_to(Path("a.png").absolute()),
            lambda path: path.hardlink_to("a.png"),
            lambda path: path.mkdir(),
        ):
            path = out / own
            path.unlink()
            make(path)
            _attempt(row, [*arguments, str(out)], [REFUSED])
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            _attempt(row, [*arguments, str(out)], [0], lambda name: name.startswith("new/out/"))
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            found = sorted(pool.map(run, [[*arguments, "several"]] * 3))
        held = found[0][0] == 0 and all(in_order(*end) for end in found) and Path("several", own).is_file()
        row.add(held, f"{' '.join(arguments)}, 3 at a time: {found}")
    for name in ("theirs", "new", "foreign", "several"):
        shutil.rmtree(name, ignore_errors=True)
    Path("file").unlink()
    Path("folder").unlink()
    return row


def _predictions(row: Row) -> Row:
    """Two checkpoints of one folder, with and without a root that exists."""
    Path("loose").mkdir()
    for name in ("one", "two"):
        shutil.copy("run/checkpoints/last.ckpt", f"loose/{name}.ckpt")
    for checkpoints in ("run/checkpoints", "loose"):
        for verb in ("predict", "test", "validate"):
            for path in sorted(Path(checkpoints).glob("*.ckpt")):
                more = [] if verb == "predict" or checkpoints == "run/checkpoints" else ["--data.resize", "32"]
                if verb != "predict" and checkpoints == "loose":
                    more = ["--data", "ImageDataModule", "--data.paths", "samples://astronaut", *more]
                start = PREDICT[:-1] if verb == "predict" else [verb, "--trainer.accelerator", "cpu"]
                whole = [*start, *more, "--ckpt_path", str(path)]
                _attempt(row, whole, [0])
                for _ in range(2):  # a root that is new, and then exists
                    _attempt(row, [*whole, "--trainer.default_root_dir", "root/new"], [0])
    found = len(list(Path("root/new/runs").glob("*/*")))
    row.add(found == 24, f"{found} folders below default_root_dir, not 24")
    return row
