"""Arguments of optimisers and their schedulers, which a resumed fit may change."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from pe_lightning.errors import InputError
from pe_lightning.results.runs import flatten


class OptimizerSettings:
    """The arguments of the optimisers of a Trainer, if there is one, and of their schedulers, before the first step.

    ``described`` has plain values per optimiser: class, arguments of its groups of parameters, and its schedulers.
    """

    def __init__(self, trainer: Trainer | None = None) -> None:
        optimizers, configs = ([], []) if trainer is None else (trainer.optimizers, trainer.lr_scheduler_configs)
        self._groups = [[copy.copy(group) | {"params": None} for group in one.param_groups] for one in optimizers]
        self._schedules = [copy.deepcopy(config.scheduler.state_dict()) for config in configs]
        self.described: list[dict[str, Any]] = []
        for optimizer, groups in zip(optimizers, self._groups, strict=True):
            own = [
                {"class": _class_name(config.scheduler), **state}
                for config, state in zip(configs, self._schedules, strict=True)
                if getattr(config.scheduler, "optimizer", None) is optimizer
            ]
            # the rate that a schedule changes, not the rate of its first step
            rates = [{**group, "lr": group.get("initial_lr", group["lr"])} for group in groups]
            self.described.append(_plain({"class": _class_name(optimizer), "groups": rates, "schedulers": own}))

    def changes(self, saved: list[dict[str, Any]]) -> list[str]:
        """The arguments that differ from a checkpoint, ``lr 0.1, now 0.01``; none if the checkpoint has none."""
        old, new = (dict(flatten({"optimizer": each}, entries=True)) for each in (saved, self.described))
        names = {key: key.rpartition(".")[2] for key in {**old, **new} if saved}
        follow = ("initial_lr", "base_lrs", "_last_lr")  # from lr
        keys = [key for key, name in names.items() if name not in follow and not _is_close(old.get(key), new.get(key))]
        return list(dict.fromkeys(f"{names[key]} {old.get(key)}, now {new.get(key)}" for key in keys))

    def check(self, saved: list[dict[str, Any]], step: int, max_steps: int) -> None:
        """Refuses a fit that cannot be resumed from the settings ``saved`` in a checkpoint of so many steps."""
        was, now = (
            " and ".join(" with ".join([one["class"], *(own["class"] for own in one["schedulers"])]) for one in each)
            for each in (saved, self.described)
        )
        if was != now and step:  # an optimiser without steps has no state
            raise InputError(
                f"the fit of the checkpoint has {was}, and {now} is asked for: a resumed fit keeps the classes of its "
                "optimiser and schedule, and takes other arguments of them. Leave the option out, or fit again without "
                "--ckpt_path"
            )
        if 0 <= max_steps <= step and (changes := self.changes(saved)):
            raise InputError(
                f"the fit of the checkpoint has taken its {step} steps, so that {', '.join(changes)} would change nothing: "
                "raise --trainer.max_steps, or leave the option out"
            )

    def apply(self, trainer: Trainer, averages: bool) -> None:
        """Sets these arguments in restored optimisers, with the rates of a fit that had them from its beginning."""
        schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        if averages or any(isinstance(scheduler, ReduceLROnPlateau) for scheduler in schedulers):
            raise InputError(
                "the learning rate of ReduceLROnPlateau and of StochasticWeightAveraging follows from the fit so far: a "
                "resumed fit keeps the arguments of its optimiser. Leave the option out, or fit again without --ckpt_path"
            )
        for optimizer, groups in zip(trainer.optimizers, self._groups, strict=True):
            for group, arguments in zip(optimizer.param_groups, groups, strict=True):
                group.update({**arguments, "params": group["params"]})
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")  # before a step of the optimiser
            for scheduler, state in zip(schedulers, self._schedules, strict=True):
                steps = scheduler.last_epoch
                scheduler.load_state_dict(copy.deepcopy(state))
                for _ in range(steps):
                    scheduler.step()


def _class_name(instance: object) -> str:
    """The path of a class; of one of this package, which only speeds up its base, that of the base."""
    cls = next(cls for cls in type(instance).__mro__ if not cls.__module__.startswith("pe_lightning."))
    return f"{cls.__module__}.{cls.__qualname__}"


def _plain(value: Any) -> Any:
    """Nested plain values; ``None`` in place of any other."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(entry) for entry in value) if type(value) in (list, tuple) else list(value)
    return value if isinstance(value, (bool, int, float, str)) else None


def _is_close(one: Any, other: Any) -> bool:
    """Whether values are equal; numbers, which may be computed from the data, to rounding."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        return all(map(_is_close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6)
    return bool(one == other)


def check_optimizer(optimizer: Optimizer) -> None:
    """Checks the loaded state of an optimiser with fused kernels, which write without a check of shapes."""
    fused = isinstance(optimizer, (torch.optim.Adagrad, torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD))
    for parameter, state in optimizer.state.items() if fused else ():
        for name, value in state.items():
            like = torch.ones(()) if name == "step" else parameter
            if isinstance(value, Tensor) and (
                (value.shape, value.dtype) != (like.shape, like.dtype) or value.is_contiguous() < like.is_contiguous()
            ):
                raise InputError(
                    f"the checkpoint is damaged: {name} in the state of the optimiser has shape {tuple(value.shape)} and "
                    f"dtype {value.dtype}, its parameter {tuple(like.shape)} and {like.dtype}. Fit again without --ckpt_path"
                )
