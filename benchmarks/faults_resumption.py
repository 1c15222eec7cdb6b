"""Resumptions with something changed, of damaged checkpoints, and fits whose weights stop being finite."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from attempts import REFUSED, Row, command, folder, forked, table, words
from attempts import tree as files_of
from PIL import Image

FIT = ["fit", "--config", "image/demo", *words("small", "resumed_fit")]
ADAM, LONGER = words("adam"), words("longer")
OPTIMIZED = [*FIT, *words("adam", "cosine")]


def pictures() -> None:
    """Writes small pictures, and a mask of their missing samples."""
    y, x = np.mgrid[:40, :40] / 40
    Path("other").mkdir()
    for name, turn in (("a.png", 0.0), ("b.png", 1.0), ("other/a.png", 2.0)):
        Image.fromarray(np.uint8(127 + 120 * np.sin(9 * x + 5 * y * y + turn))).save(name)
    Image.fromarray(np.uint8(255 * (x > 0.5))[:24, :24]).save("mask.png")


def tree(path: Path = Path()) -> dict[str, bytes]:
    """The files of a folder but those of the cache."""
    return {name: data for name, data in files_of(path).items() if not name.startswith("cache/")}


def last(number: int = 1) -> Path:
    """The last checkpoint of a run."""
    (found,) = Path().glob(f"runs/*/{number}/checkpoints/last.ckpt")
    return found


def content(path: Path) -> dict[str, Any]:
    """A checkpoint."""
    found: dict[str, Any] = torch.load(path, weights_only=True)
    return found


def finite(root: Path = Path()) -> bool:
    """Whether the weights of all checkpoints are finite."""
    states = [content(path)["state_dict"] for path in root.rglob("*.ckpt")]
    return all(bool(value.isfinite().all()) for state in states for value in state.values() if value is not None)


def restored(before: dict[str, bytes]) -> None:
    """Puts files back, and removes the others."""
    for name in tree().keys() - before.keys():
        Path(name).unlink()
    for path in sorted(Path("runs").rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    for name, data in before.items():
        Path(name).write_bytes(data)


def refused(row: Row, name: str, arguments: list[str], word: str = "") -> None:
    """Counts a resumption that has to end with one paragraph and status 2, and to change no file."""
    before, folders = tree(), set(Path().rglob("*/"))
    status, errors = forked(partial(command, arguments))
    same, told = (
        tree() == before and set(Path().rglob("*/")) == folders,
        errors.count("pe-lightning: error: ") == 1 and word in errors,
    )
    row.add(status == REFUSED and same and told, f"{name}: status {status}, unchanged {same}, {errors[-250:]}")
    restored(before)


def damages() -> dict[str, Callable[[dict[str, Any]], object]]:
    """By name, what damages the content of a checkpoint."""
    return {
        "state of another shape": lambda c: c["optimizer_states"][0]["state"][0].update(exp_avg=torch.zeros(1)),
        "no groups": lambda c: c["optimizer_states"][0].update(param_groups=[]),
        "no loops": lambda c: c.update(loops={}),
        "no weights": lambda c: c.update(state_dict={}),
        "averaged weights": lambda c: c.update({"pe_lightning/weights_are_averages": True}),
        "another version": lambda c: c.update({"pe_lightning/version": "0.0.1"}),
    }


def resumptions() -> Iterator[Row]:
    """What differs: other data and other fits are refused, other arguments of the optimiser are applied."""
    with folder():
        pictures()
        forked(partial(command, [*OPTIMIZED]))
        before, resume = tree(), ["--ckpt_path", str(last())]
        row = Row("resumptions with other data, refused; meant, they are trained")
        for name, more in table("other_data").items():
            arguments = [*OPTIMIZED, *LONGER, *more, *resume]
            refused(row, name, arguments, "other data")
            if name != "two pictures":  # of which the model has one
                status, errors = forked(partial(command, [*arguments, "--resume_with_other_data", "true"]))
                row.add(status == 0 and content(last())["global_step"] == 30, f"{name}, meant: {status}, {errors[-250:]}")
                restored(before)
        yield row
        row = Row("resumptions of another model, optimiser or schedule, refused")
        for name, more in table("other_fits").items():
            refused(row, name, [*OPTIMIZED, *LONGER, *more, *resume])
        yield row
        row = Row("resumptions of damaged checkpoints, refused")
        for name, damage in damages().items():
            damaged = content(last())
            damage(damaged)
            for place in (str(last()), "alone.ckpt"):
                torch.save(damaged, place)
                refused(row, f"{name}, {place}", [*OPTIMIZED, *LONGER, "--ckpt_path", place])
            restored(before)
        yield row
        row = Row("resumptions with other arguments of the optimiser, applied")
        for name, more in table("other_arguments").items():
            arguments = [*OPTIMIZED, *LONGER, *more]
            statuses = [forked(partial(command, arguments)), forked(partial(command, [*arguments, *resume]))]
            runs = [last(2), last()]
            groups = [content(path)["optimizer_states"][0]["param_groups"][0] for path in runs]
            wrong = [key for key, value in groups[0].items() if not np.allclose(groups[1][key] or 0, value or 0, rtol=1e-6)]
            configs = [yaml.safe_load((path.parents[1] / "config.yaml").read_text()) for path in runs]
            states = [content(path)["state_dict"] for path in runs]
            equal = all(torch.equal(states[1][key], value) for key, value in states[0].items())
            held = [status for status, _ in statuses] == [0, 0] and not wrong and configs[0] == configs[1]
            row.add(held and equal == (name == "nothing"), f"{name}: {wrong}, equal {equal}, {statuses}")
            restored(before)
        yield row


def not_finite() -> Iterator[Row]:
    """Fits whose weights stop being finite."""
    row = Row("fits whose weights stop being finite: status 2, checkpoints stay finite; or they go on")
    with folder():
        pictures()
        for name, more in table("not_finite").items():
            for go_on in (False, True):
                status, errors = forked(
                    partial(command, [*FIT, *words("diverging"), *more, *(words("go_on") if go_on else [])])
                )
                said = ("the weights are not finite after step" in errors) and status == (0 if go_on else REFUSED)
                row.add(said and finite(), f"{name}, goes on {go_on}: status {status}, finite {finite()}, {errors[-250:]}")
                shutil.rmtree("runs")
        # a fit that was well until then: its checkpoints stay, and it is resumed from them
        forked(partial(command, [*FIT, *ADAM]))
        before, resume = tree(last().parent), ["--ckpt_path", str(last())]
        status, errors = forked(partial(command, [*FIT, *ADAM, *LONGER, *resume, "--model.optimizer.lr", "1e38"]))
        row.add(status == REFUSED and tree(last().parent) == before, f"resumed at a rate of 1e38: {status}, {errors[-250:]}")
        status, errors = forked(partial(command, [*FIT, *ADAM, *LONGER, *resume]))
        row.add(status == 0 and finite(), f"resumed again: {status}, {errors[-250:]}")
        status, errors = forked(partial(command, ["test", *resume, "--trainer.accelerator", "cpu"]))
        row.add(status == 0, f"tested: {status}, {errors[-250:]}")
    yield row
