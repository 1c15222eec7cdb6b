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
from attempts import REFUSED, SMALL, Row, command, folder, forked
from attempts import tree as files_of
from PIL import Image

FIT = ["fit", "--config", "image/demo", *SMALL, "--data.paths", "a.png", "--data.resize", "24"]
FIT += ["--data.batching.steps_per_epoch", "5", "--trainer.max_steps", "20"]
ADAM = ["--model.optimizer", "torch.optim.Adam", "--model.optimizer.lr", "0.1"]
COSINE = ["--model.lr_scheduler", "CosineAnnealingLR", "--model.lr_scheduler.T_max", "50"]
OPTIMIZED = [*ADAM, *COSINE]
LONGER = ["--trainer.max_steps", "30"]

OTHER_DATA: dict[str, list[str]] = {
    "picture": ["--data.paths", "b.png"],
    "the same name, other content": ["--data.paths", "other/a.png"],
    "size": ["--data.resize", "16"],
    "crop": ["--data.resize", "null", "--data.center_crop", "24"],
    "stride": ["--data.sampling.stride", "4"],
    "offset": ["--data.sampling.offset", "1"],
    "sampling": ["--data.sampling", "random"],
    "eval mask": ["--data.eval_mask", "all"],
    "mask of missing samples": ["--data.missing", "mask.png"],
    "validation": ["--data.validation", "0.2"],
    "means over cells": ["--data.samples", "cells"],
    "two pictures": ["--data.paths", "[a.png, b.png]"],
}
"""What differs from the data of the checkpoint."""
OTHER_FITS: dict[str, list[str]] = {
    "encoder": ["--model.encoder", "tri"],
    "features": ["--model.encoder.num_features", "12"],
    "depth": ["--model.depth", "1"],
    "ridge": ["--model.ridge", "0.1"],
    "optimiser": ["--model.optimizer", "torch.optim.SGD", "--model.optimizer.lr", "0.1"],
    "schedule": ["--model.lr_scheduler", "ExponentialLR", "--model.lr_scheduler.gamma", "0.9"],
    "rate, no step left": ["--model.optimizer.lr", "0.01", "--trainer.max_steps", "20"],
}
OTHER_ARGUMENTS: dict[str, list[str]] = {
    "nothing": [],
    "rate": ["--model.optimizer.lr", "0.01"],
    "weight decay": ["--model.optimizer.weight_decay", "0.1"],
    "momenta": ["--model.optimizer.betas", "[0.8, 0.9]"],
    "length of the schedule": ["--model.lr_scheduler.T_max", "30"],
    "end of the schedule": ["--model.lr_scheduler.eta_min", "0.05"],
}
"""Arguments of the optimiser that take the place of those of the checkpoint."""
DIVERGING = ["--model.optimizer", "torch.optim.SGD", "--model.optimizer.lr", "1e15"]
GO_ON = ["--trainer.callbacks+", "FiniteWeights", "--trainer.callbacks.stop", "false"]
CHECKPOINTS = ["--trainer.callbacks+", "ModelCheckpoint", "--trainer.callbacks.every_n_train_steps", "1"]
SWA = ["--trainer.callbacks+", "StochasticWeightAveraging", "--trainer.callbacks.swa_lrs", "0.01"]
SWA += ["--trainer.callbacks.swa_epoch_start", "1"]
NOT_FINITE: dict[str, list[str]] = {
    "by its rate": [],
    "with an own ModelCheckpoint": CHECKPOINTS,
    "with checkpoints of weights alone": [*CHECKPOINTS, "--trainer.callbacks.save_weights_only", "true"],
    "with EarlyStopping": ["--trainer.callbacks+", "EarlyStopping", "--trainer.callbacks.monitor", "train/loss"],
    "with SWA": [*SWA, "--trainer.max_epochs", "6", "--trainer.max_steps", "-1"],
    "without logs": ["--trainer.log_every_n_steps", "1000", "--trainer.logger", "false"],
}


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
        forked(partial(command, [*FIT, *OPTIMIZED]))
        before, resume = tree(), ["--ckpt_path", str(last())]
        row = Row("resumptions with other data, refused; meant, they are trained")
        for name, more in OTHER_DATA.items():
            arguments = [*FIT, *OPTIMIZED, *LONGER, *more, *resume]
            refused(row, name, arguments, "other data")
            if name != "two pictures":  # of which the model has one
                status, errors = forked(partial(command, [*arguments, "--resume_with_other_data", "true"]))
                row.add(status == 0 and content(last())["global_step"] == 30, f"{name}, meant: {status}, {errors[-250:]}")
                restored(before)
        yield row
        row = Row("resumptions of another model, optimiser or schedule, refused")
        for name, more in OTHER_FITS.items():
            refused(row, name, [*FIT, *OPTIMIZED, *LONGER, *more, *resume])
        yield row
        row = Row("resumptions of damaged checkpoints, refused")
        for name, damage in damages().items():
            damaged = content(last())
            damage(damaged)
            for place in (str(last()), "alone.ckpt"):
                torch.save(damaged, place)
                refused(row, f"{name}, {place}", [*FIT, *OPTIMIZED, *LONGER, "--ckpt_path", place])
            restored(before)
        yield row
        row = Row("resumptions with other arguments of the optimiser, applied")
        for name, more in OTHER_ARGUMENTS.items():
            arguments = [*FIT, *OPTIMIZED, *LONGER, *more]
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
        for name, more in NOT_FINITE.items():
            for go_on in (False, True):
                status, errors = forked(partial(command, [*FIT, *DIVERGING, *more, *(GO_ON if go_on else [])]))
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
