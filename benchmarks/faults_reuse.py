"""What is reused by later commands, and what has changed: content, settings, and damage to what was left."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attempts import LIMIT, REFUSED, TABLES, Row, command, folder, forked, in_order, table, tree, words
from harness import ROOT
from PIL import Image

SMALL = words("small")
EXACT = [*SMALL[2:], "--model.ridge", "0.01"]
TRAINED = ["--config", "image/demo", *SMALL[2:], "--data.batching.steps_per_epoch", "5"]
CELL = Path("s/encoder-gau")
PRIOR = Path("prior.ckpt")
Change = Callable[[], Any]


def picture(seed: int, size: int = 24) -> Image.Image:
    """Bytes of pictures of one size are equally many in BMP."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (size, size), dtype=np.uint8))


def reuse() -> list[Row]:
    """Sweeps, fits, suggestions and reports that are given again. Held: the result of a first command, or a refusal."""
    data, settings, damage = (Row(f"given again after {what} changed") for what in ("content", "settings", "what was left"))
    with folder():
        _content(data)
        _settings(settings)
        _damage(damage)
    return [data, settings, damage]


def _sweep(*more: str) -> list[str]:
    return ["sweep", *more, "--vary", "model.encoder=gau"]


def _unfinished() -> None:
    (CELL / "metrics.json").unlink()


def _again(
    row: Row, about: str, arguments: Sequence[str], change: Change, ends: Sequence[int] = (0, 1, REFUSED), cell: Path = CELL
) -> None:
    """Counts a sweep in s that is given again. It deletes nothing, and its result is that of a new sweep, or it has none."""
    (cell / "mine.txt").write_text("mine")
    change()
    before = tree(cell)
    status, errors = forked(partial(command, [*arguments, "--out", "s"]), limit=10 * LIMIT)
    after = tree(cell)
    held = status in ends and (status == 1 or in_order(status, errors))
    held = held and before.keys() <= after.keys() and after["mine.txt"] == b"mine"
    if status == 0:
        forked(partial(command, [*arguments, "--out", "fresh"]), limit=10 * LIMIT)
        held = held and _scores(cell) == _scores(Path("fresh", cell.name))
        shutil.rmtree("fresh", ignore_errors=True)
    else:
        held = held and before == after
    row.add(held, f"{about}: status {status}, lost {sorted(before.keys() - after.keys())[:3]}, {errors[-300:]}")
    shutil.rmtree("s")


def _scores(run: Path) -> list[Any]:
    metrics = json.loads((run / "metrics.json").read_text())
    return [metrics[key] for key in ("data_fingerprint", "test/psnr", "steps")]


def _first(arguments: Sequence[str]) -> None:
    status, errors = forked(partial(command, [*arguments, "--out", "s"]), limit=10 * LIMIT)
    if status:
        raise SystemExit(errors)


def _replace(path: str, write: Callable[[], Any]) -> None:
    """Other content under the name, with the size and the times of before."""
    before = os.stat(path)
    write()
    if os.stat(path).st_size != before.st_size:
        raise SystemExit(f"{path}: another size")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _content(row: Row) -> None:
    mask = np.zeros((24, 24), np.uint8)
    mask[::2, ::2] = 255

    def write() -> None:
        for name in ("a.bmp", "folder/a.bmp"):
            Path(name).parent.mkdir(exist_ok=True)
            picture(0).save(name)
        np.save("a.npy", np.asarray(picture(0)) / 255)
        Image.fromarray(mask).save("mask.bmp")

    array = ["a.npy", "--data", "ImageDataModule"]
    streamed = ["--data.storage.in_memory", "false", "--data.batching.kind", "blocks"]
    other_array = partial(_replace, "a.npy", lambda: np.save("a.npy", np.asarray(picture(1)) / 255))
    changes: dict[str, tuple[list[str], Change]] = {
        "a picture": (["a.bmp"], lambda: _replace("a.bmp", lambda: picture(1).save("a.bmp"))),
        "a picture of another size": (["a.bmp"], lambda: picture(1, 26).save("a.bmp")),
        "a picture, now a link": (["a.bmp"], lambda: (picture(1).save("b.bmp"), os.replace("b.bmp", "c.bmp"), _link())),
        "a picture in a folder": (["folder"], lambda: _replace("folder/a.bmp", lambda: picture(1).save("folder/a.bmp"))),
        "one more picture in a folder": (["folder"], lambda: picture(1).save("folder/b.bmp")),
        "an array that is read in place": (array, other_array),
        "an array that is streamed": ([*array, *streamed], other_array),
        "a mask": (
            ["a.bmp", "--data.sampling", "mask", "--data.sampling.path", "mask.bmp"],
            lambda: _replace("mask.bmp", lambda: Image.fromarray(mask.T[::-1]).save("mask.bmp")),
        ),
        "nothing": (["a.bmp"], lambda: None),
        "the times of a picture": (["a.bmp"], lambda: os.utime("a.bmp")),
    }
    for about, (given, change) in changes.items():
        for options, state in ((EXACT, "finished"), ([*TRAINED, "--trainer.max_steps", "10"], "unfinished")):
            write()
            arguments = [*_sweep(*given, *options)]
            if state == "unfinished":  # files choose a recipe of their own without --config
                arguments = [*_sweep(*options, "--data.paths", *given)]
            _first(arguments)
            if state == "unfinished":
                _unfinished()
            ends = (0,) if about in ("nothing", "the times of a picture") else (1, REFUSED)
            _again(row, f"{about}, {state}", arguments, change, ends)
            for path in ("a.bmp", "folder/b.bmp", "c.bmp"):
                Path(path).unlink(missing_ok=True)
    write()
    _pretrained(row)
    for verb in ("fit", "suggest"):
        _decoded(row, verb)


def _link() -> None:
    Path("a.bmp").unlink()
    Path("a.bmp").symlink_to("c.bmp")


def _pretrained(row: Row) -> None:
    """A checkpoint that a model begins with: its content is neither in the data nor in the settings."""
    shutil.copy(ROOT / "tests/golden/prior.ckpt", PRIOR)

    def other() -> None:
        content = torch.load(PRIOR, weights_only=True)
        name = next(name for name, value in content["state_dict"].items() if value.is_floating_point() and value.numel() > 9)
        content["state_dict"][name] *= 1.5
        torch.save(content, PRIOR)

    model = ["--model", "Local", "--model.pretrained", str(PRIOR), "--trainer.max_steps", "0"]
    arguments = [
        "sweep",
        "samples://astronaut",
        "--data.resize",
        "24",
        *model,
        *SMALL[4:],
        "--vary",
        "data.sampling.stride=2",
    ]
    for about, change, ends in (("a pretrained model", other, (1, REFUSED)), ("no pretrained model", lambda: None, (0,))):
        _first(arguments)
        _again(row, about, arguments, change, ends, Path("s/stride-2"))


def _decoded(row: Row, verb: str) -> None:
    """The cache of decoded signals: the result is that of an empty cache."""

    def result(out: str) -> list[Any]:
        arguments = ["fit", "a.bmp", *EXACT, "--trainer.default_root_dir", out]
        if verb == "suggest":
            arguments = ["suggest", "a.bmp", "--encoders", "gau,tri", "--out", f"{out}/c.yaml"]
        status, errors = forked(partial(command, arguments), limit=10 * LIMIT)
        if status:
            raise SystemExit(errors)
        lines = Path(out, "c.yaml").read_text().splitlines() if verb == "suggest" else []
        texts = [line for line in lines if out not in line]
        return [*texts, *(_scores(path.parent) for path in Path(out).glob("runs/*/*/metrics.json"))]

    for size in (24, 26):
        picture(0).save("a.bmp")
        old = result("old")
        if size == 24:
            _replace("a.bmp", lambda: picture(1).save("a.bmp"))
        else:
            picture(1, size).save("a.bmp")
        warm = result("warm")
        shutil.rmtree(os.environ["PE_LIGHTNING_CACHE"])
        cold = result("cold")
        row.add(warm == cold != old, f"{verb} of another picture of {size}: {warm}, {cold}")
        for out in ("old", "warm", "cold"):
            shutil.rmtree(out)


def _settings(row: Row) -> None:
    picture(0).save("a.bmp")
    for about, more in table("reused_sweep_settings").items():
        for state in ("finished", "unfinished"):
            arguments = _sweep(*TRAINED, "--trainer.max_steps", "10", "--data.paths", "a.bmp")
            _first(arguments)
            if state == "unfinished":
                _unfinished()
            ends = (REFUSED,) if more else (0,)
            _again(row, f"{about}, {state}", [*arguments, *more], lambda: None, ends)


def _damage(row: Row) -> None:
    picture(0).save("a.bmp")
    arguments = _sweep(*TRAINED, "--trainer.max_steps", "10", "--data.paths", "a.bmp")
    damages: dict[str, Callable[[Path], Any]] = {
        "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
        "gone": lambda path: path.unlink(),
    }
    places = {
        name: Path("s" if name == "sweep.json" else CELL / "checkpoints" if "ckpt" in name else CELL, name)
        for name in ("last.ckpt", "best.ckpt", "config.yaml", "metrics.json", "sweep.json")
    }
    for names in TABLES["damaged_files"]:
        paths = [places[name] for name in names.split()]
        for kind, damaged in damages.items():
            for state in ("finished", "unfinished"):
                _first(arguments)
                if state == "unfinished" and names != "metrics.json":
                    _unfinished()
                _again(row, f"{names} {kind}, {state}", arguments, partial(_each, damaged, paths))


def _each(work: Callable[[Path], Any], paths: Sequence[Path]) -> None:
    for path in paths:
        work(path)
