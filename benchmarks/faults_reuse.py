"""Commands given again after something changed: content, settings, files of a run, the data and model of a checkpoint."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attempts
import numpy as np
from attempts import REFUSED, Row, Size, attempt, command, folder, forked, made, table, tree, words
from PIL import Image

SMALL = words("small")
CELL = Path("s/encoder-gau")
Change = Callable[[], object]


def noise(seed: int, size: int = 24) -> Image.Image:
    """Files of pictures of one size are equally long in BMP."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (size, size), dtype=np.uint8))


# -- sweeps -----------------------------------------------------------------------------------------------------------------


def reuse(_: Size) -> Iterator[Row]:
    """Sweeps that are given again: they have the result of a first command, or are refused, and delete nothing."""
    with folder():
        yield changed_content(Row("given again after content changed"))
        noise(0).save("a.bmp")
        first = sweep_of(*trained(), "--data.paths", "a.bmp")
        row = Row("given again after settings changed")
        for about, more in table("reused_sweep_settings").items():
            for finished in (True, False):
                again(row, about, first, lambda: None, (REFUSED,) if more else (0,), finished, more)
        yield row
        yield damaged_files(Row("given again after what was left changed"), first)


def trained() -> list[str]:
    """Options of a fit of ten steps."""
    return ["--config", "image/demo", *SMALL[2:], "--data.batching.steps_per_epoch", "5", "--trainer.max_steps", "10"]


def sweep_of(*more: str) -> list[str]:
    """A sweep of one cell."""
    return ["sweep", *more, "--vary", "model.encoder=gau"]


def again(
    row: Row,
    about: str,
    arguments: list[str],
    change: Change,
    ends: tuple[int, ...],
    finished: bool = True,
    more: list[str] | None = None,
) -> None:
    """Counts a sweep that is given again, with more options, after a change and after it was finished or not."""
    made(*arguments, "--out", "s")
    if not finished:
        (CELL / "metrics.json").unlink(missing_ok=True)
    (CELL / "mine.txt").write_text("mine")
    change()
    arguments, before = [*arguments, *(more or [])], tree(CELL)
    status, errors = forked(partial(command, [*arguments, "--out", "s"]), limit=200)
    after = tree(CELL)
    held = status in ends and (status == 1 or attempts.in_order(status, errors))
    held &= before.keys() <= after.keys() and after["mine.txt"] == b"mine"
    if status == 0:
        made(*arguments, "--out", "fresh")
        held &= scores(CELL) == scores(Path("fresh", CELL.name))
        shutil.rmtree("fresh")
    else:
        held &= before == after
    lost = sorted(before.keys() - after.keys())[:3]
    row.add(held, f"{about}, finished {finished}: status {status}, lost {lost}, {errors[-300:]}")
    shutil.rmtree("s")


def scores(run: Path) -> list[Any]:
    """Numbers of a run that another fit of the same data has too."""
    metrics = json.loads((run / "metrics.json").read_text())
    return [metrics[key] for key in ("data_fingerprint", "test/psnr", "steps")]


def replaced(path: str, write: Change) -> None:
    """Writes other content under a name, with the size and the times of before."""
    before = os.stat(path)
    write()
    assert os.stat(path).st_size == before.st_size, path
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def changed_content(row: Row) -> Row:
    """Pictures, arrays and masks: replaced, linked, one more; and nothing but the times."""
    mask = np.zeros((24, 24), np.uint8)
    mask[::2, ::2] = 255

    def write_array(seed: int) -> None:
        np.save("a.npy", np.asarray(noise(seed)) / 255)

    def link() -> None:
        noise(1).save("c.bmp")
        Path("a.bmp").unlink()
        Path("a.bmp").symlink_to("c.bmp")

    array, other_array = ["a.npy", "--data", "ImageDataModule"], partial(replaced, "a.npy", partial(write_array, 1))
    other_mask = Image.fromarray(mask.T[::-1])
    changes: dict[str, tuple[list[str], Change]] = {
        "a picture": (["a.bmp"], partial(replaced, "a.bmp", partial(noise(1).save, "a.bmp"))),
        "a picture of another size": (["a.bmp"], partial(noise(1, 26).save, "a.bmp")),
        "a picture, now a link": (["a.bmp"], link),
        "a picture in a folder": (["folder"], partial(replaced, "folder/a.bmp", partial(noise(1).save, "folder/a.bmp"))),
        "one more picture in a folder": (["folder"], partial(noise(1).save, "folder/b.bmp")),
        "an array that is read in place": (array, other_array),
        "an array that is streamed": ([*array, *words("streamed")], other_array),
        "a mask": (["a.bmp", *words("masked")], partial(replaced, "mask.bmp", partial(other_mask.save, "mask.bmp"))),
        "nothing": (["a.bmp"], lambda: None),
        "the times of a picture": (["a.bmp"], partial(os.utime, "a.bmp")),
    }
    for about, (given, change) in changes.items():
        same = about in ("nothing", "the times of a picture")
        # files choose a recipe of their own without --config
        exact, fitted = [*given, *SMALL[2:], "--model.ridge", "0.01"], [*trained(), "--data.paths", *given]
        for options, finished in ((exact, True), (fitted, False)):
            Path("folder").mkdir()
            for name in ("a.bmp", "folder/a.bmp"):
                noise(0).save(name)
            write_array(0)
            Image.fromarray(mask).save("mask.bmp")
            again(row, about, sweep_of(*options), change, (0,) if same else (1, REFUSED), finished)
            shutil.rmtree("folder")
            for path in ("a.bmp", "c.bmp"):
                Path(path).unlink(missing_ok=True)
    return row


def damaged_files(row: Row, arguments: list[str]) -> Row:
    """Files of the cell and of the sweep that are cut or gone."""
    damages: dict[str, Callable[[Path], object]] = {
        "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
        "gone": Path.unlink,
    }
    for names in attempts.TABLES["damaged_files"]:
        folders = {"sweep.json": Path("s"), "last.ckpt": CELL / "checkpoints", "best.ckpt": CELL / "checkpoints"}
        paths = [folders.get(name, CELL) / name for name in names.split()]
        for kind, damage in damages.items():
            for finished in (True, names == "metrics.json"):
                change = partial(list, map(damage, paths))
                again(row, f"{names} {kind}", arguments, change, (0, 1, REFUSED), finished)
    return row


# -- resumptions ------------------------------------------------------------------------------------------------------------


def resumptions(size: Size) -> Iterator[Row]:
    """Fits that are resumed with other data, which is refused, as other fits, and twice at a time."""
    fit, longer = ["fit", "--config", "image/demo", *SMALL, *words("resumed_fit")], words("longer")
    with folder():
        Path("other").mkdir()
        for name, phase in (("a.png", 0.0), ("b.png", 1.0), ("other/a.png", 2.0)):
            attempts.waves(40, 40, phase).save(name)
        Image.fromarray(np.uint8(255 * (np.mgrid[:24, :24][1] > 12))).save("mask.png")
        made(*fit)
        (last,) = Path().glob("runs/*/1/checkpoints/last.ckpt")
        before, resume = tree(), ["--ckpt_path", str(last)]
        row = Row("resumptions with other data, refused; new fits from the weights are trained")
        for about, more in table("other_data").items():
            arguments = [*fit, *longer, *more, *resume]
            attempt(row, arguments, [REFUSED], about=about)
            if about != "two pictures":  # the model has one
                status, errors = forked(partial(command, [*fit, *longer, *more, "--init", str(last)]))
                row.add(status == 0, f"{about}, a new fit: {status}, {errors[-250:]}")
                attempts.restore(before)
        yield row
        row = Row("resumptions of another model, optimiser or schedule, refused")
        for about, more in table("other_fits").items():
            attempt(row, [*fit, *longer, *more, *resume], [REFUSED], about=about)
        yield row
    with folder() as root:
        made(*attempts.SHORT_FIT)
        row = Row("two resumptions of one run at a time")
        for number in range(size.few):
            copy = root / f"runs/copy{number}/1"
            shutil.copytree(next(root.glob("runs/astronaut*/1")), copy)
            more = ["--trainer.max_steps", "300", "--ckpt_path", str(copy / "checkpoints/last.ckpt")]
            found = sorted(status for status, _ in attempts.together([partial(command, [*attempts.FIT, *more])] * 2))
            row.add(found == [0, REFUSED], f"status {found}")
        yield row
