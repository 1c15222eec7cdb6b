"""Optimisers: parameter groups, checks before the first step, schedules, gradients, the arguments of resumed fits.

Nothing here knows a model.
"""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.utilities.types import LRSchedulerTypeUnion, OptimizerLRScheduler
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, OneCycleLR, ReduceLROnPlateau

from pe_lightning.errors import InputError, paragraph
from pe_lightning.results.runs import flatten
from pe_lightning.signals.distributed import rank_zero_info

FALLING_SHARE = 0.2
"""Share of the steps of a fit at whose end :class:`FallAtEnd` falls."""


def parameter_groups(
    parameters: Sequence[nn.Parameter], encoder_parameters: Iterable[nn.Parameter], encoder_lr: float
) -> list[dict[str, Any]]:
    """Two groups: the parameters of the network at the optimiser's rate, and of the encoder at ``encoder_lr``."""
    encoder = [parameter for parameter in encoder_parameters if parameter.requires_grad]
    network = [parameter for parameter in parameters if all(parameter is not other for other in encoder)]
    return [{"params": network}, {"params": encoder, "lr": encoder_lr}]


def check_optimization(optimizer: Callable[..., Any] | None, lr_scheduler: Callable[..., Any] | None) -> None:
    """Checks the arguments of an optimiser and of a scheduler in a few steps of one number, before a model is built.

    Args:
        optimizer: Makes the optimiser from parameters; ``None``: a default one, which has no arguments to check.
        lr_scheduler: Makes the scheduler from the optimiser; ``None``: a constant rate.

    Raises:
        InputError: If PyTorch refuses them. The argument is named if they are a :class:`functools.partial` of a class.
    """
    if optimizer is not None:
        _check("optimizer", optimizer, lambda make: _error_of_steps(make, None))
    if lr_scheduler is not None:
        usual = optimizer or partial(torch.optim.Adam, lr=0.1)
        _check("lr_scheduler", lr_scheduler, lambda make: _error_of_steps(usual, make))


def _check(name: str, make: Callable[..., Any], error_of: Callable[[Callable[..., Any]], Exception | None]) -> None:
    """Raises an error of ``make`` with the arguments whose default value, in place of any of them, works."""
    if (error := error_of(make)) is None:
        return
    parts = (make.func, *make.args) if isinstance(make, partial) else ()
    cls, given = next((part for part in parts if isinstance(part, type)), None), getattr(make, "keywords", {})
    refused = name
    if cls is not None:
        wrong = refused_arguments(cls, given, lambda change: error_of(partial(make, **change)) is None)
        if not wrong and isinstance(error, ArithmeticError):  # which names no argument
            parameters = inspect.signature(cls).parameters
            wrong = [key for key in parameters if key in given and parameters[key].default is inspect.Parameter.empty]
        words = " or ".join(f"{name}.{key}={given[key]!r}" for key in wrong)
        refused = f"{cls.__name__} refuses {words}" if wrong else f"{name} {cls.__name__}"
    raise InputError(f"{refused}: {paragraph(str(error), 200)}") from error


def _error_of_steps(make: Callable[..., Any], schedule: Callable[..., Any] | None) -> Exception | None:
    """The error of an optimiser that :func:`make` returns, or of its schedule, in two steps; ``None`` without one."""
    # a matrix, for optimisers of matrices; in float64, where the first steps of large rates do not overflow
    parameter = nn.Parameter(torch.ones(2, 2, dtype=torch.float64))

    def closure() -> Tensor:
        parameter.grad = torch.ones_like(parameter)
        return parameter.detach().sum()

    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        try:
            optimizer = make([parameter])
            scheduler = None if schedule is None else schedule(optimizer)
            for _ in range(2):
                optimizer.step(closure)
                if scheduler is not None:
                    scheduler.step(*([0.0] if isinstance(scheduler, ReduceLROnPlateau) else []))
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            return error
    return None


def refused_arguments(cls: type, given: Mapping[str, Any], works: Callable[[dict[str, Any]], bool]) -> list[str]:
    """The given arguments of a class that work with their default value, in place of any of them."""
    defaults = {key: parameter.default for key, parameter in inspect.signature(cls).parameters.items() if key in given}
    return [key for key, value in defaults.items() if value is not inspect.Parameter.empty and works({key: value})]


def check_optimizer_covers(optimizer: Optimizer, parameters: Iterable[tuple[str, nn.Parameter]]) -> None:
    """Checks that every trained parameter is in the optimiser."""
    stepped = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    missing = [name for name, p in parameters if p.requires_grad and id(p) not in stepped]
    if missing:
        raise InputError(f"the optimiser leaves out {', '.join(missing)}; pass it all parameters it is called with")


def refuse_clipping_of_fused(optimizer: Optimizer, trainer: Trainer) -> None:
    """Refuses gradient clipping in mixed precision with a fused optimiser, which Lightning cannot do."""
    fused = any(group.get("fused") for group in optimizer.param_groups)
    if fused and trainer.gradient_clip_val and str(trainer.precision).endswith("mixed"):
        name = f"{type(optimizer).__module__.rpartition('.')[0]}.{type(optimizer).__name__}"
        raise InputError(
            "gradients of a fused optimiser cannot be clipped in mixed precision; leave out gradient_clip_val, or type "
            f"--model.optimizer {name} --model.optimizer.lr {optimizer.defaults['lr']:g} --model.optimizer.fused false"
        )


def with_scheduler(
    optimizer: Optimizer,
    scheduler: LRSchedulerTypeUnion | None,
    monitor: str,
    mode: Literal["max", "min"],
    validation_period: int | None,
) -> OptimizerLRScheduler:
    """The return value of ``configure_optimizers``: schedulers step after every optimiser step.

    ``ReduceLROnPlateau`` steps every ``validation_period`` epochs instead, by the value ``monitor``, whose best is ``mode``.
    """
    if scheduler is None:
        return optimizer
    if not isinstance(scheduler, ReduceLROnPlateau):
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
    monitored = getattr(scheduler, "monitor", monitor)
    if monitored == monitor and scheduler.mode != mode:
        direction = "grows" if mode == "max" else "falls"
        raise InputError(f"ReduceLROnPlateau: {monitor} {direction} as the fit improves; set mode={mode!r}")
    plateau = {"scheduler": scheduler, "monitor": monitored, "interval": "epoch", "frequency": validation_period or 1}
    return {"optimizer": optimizer, "lr_scheduler": plateau}  # type: ignore[return-value]


def step_plateau(trainer: Trainer, monitor: str, score: Tensor) -> None:
    """Steps ``ReduceLROnPlateau`` by the value that it monitors; not in the validation of a fit stopped within an epoch."""
    if trainer.should_stop and not trainer.is_last_batch:
        return
    for config in trainer.lr_scheduler_configs:
        if isinstance(config.scheduler, ReduceLROnPlateau):
            value = score if config.monitor == monitor else trainer.callback_metrics.get(str(config.monitor))
            if value is None:
                raise InputError(f"ReduceLROnPlateau: nothing is logged as {config.monitor}; there is {monitor}")
            config.scheduler.step(value)


def describe_optimizer(optimizer: Optimizer, schedule: str) -> dict[str, Any]:
    """Name, arguments that are not zero or off, and schedule, as plain values for ``metrics.json``."""
    settings = {key: x for key, x in optimizer.defaults.items() if x and isinstance(x, (bool, int, float, tuple))}
    return {"name": type(optimizer).__name__, **settings, "schedule": schedule}


def flush_subnormal(optimizer: Optimizer) -> bool:
    """Flushes gradients and momenta on CPUs to zero below 128 times the square root of the smallest normal number, in place.

    They change no weight, but their squares, and momenta as they decay, are subnormal numbers, which CPUs are slow at; GPUs
    are not. ``torch.set_flush_denormal`` would not reach threads that run already.

    Returns:
        Whether there were some.
    """
    found = False
    # not by module.parameters(), which visits the metrics too: their hashes cost time in every step
    for parameter in (parameter for group in optimizer.param_groups for parameter in group["params"]):
        for values in (parameter.grad, optimizer.state[parameter].get("momentum_buffer")):
            if values is not None and values.is_cpu:
                values = torch.view_as_real(values) if values.is_complex() else values
                count = values.count_nonzero()
                torch.hardshrink(values, 128 * torch.finfo(values.dtype).tiny ** 0.5, out=values)
                found |= bool(values.count_nonzero() != count)
    return found


def clip_by_norm(optimizer: Optimizer, max_norm: float, sum_over_processes: Callable[[Tensor], Tensor]) -> None:
    """Clips gradients by their total norm where each process has its own parameters."""
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    squared = get_total_norm([p.grad for p in parameters]).square()
    clip_grads_with_norm_(parameters, max_norm, sum_over_processes(squared).sqrt())


def check_length(scheduler: LRSchedulerTypeUnion, steps: int) -> None:
    """Refuses a schedule that ends before a fit of ``max_steps`` steps, and says where a cosine would rise again."""
    if isinstance(scheduler, OneCycleLR) and scheduler.total_steps < steps:
        raise InputError(
            f"OneCycleLR has {scheduler.total_steps} steps, the fit {steps}: set --model.lr_scheduler.total_steps {steps}"
        )
    if isinstance(scheduler, CosineAnnealingLR) and scheduler.T_max < steps:
        rank_zero_info(
            f"CosineAnnealingLR rises again after step {scheduler.T_max}, and the fit has {steps}: "
            f"--model.lr_scheduler.T_max {steps} falls to the end."
        )


class FallAtEnd:
    """The factor of a rate that is constant, and falls linearly to zero over the last fifth of the steps.

    With :class:`~torch.optim.lr_scheduler.LambdaLR` a checkpoint holds the number of steps, so that a fit that is resumed to
    more steps has the rates of a fit of that many.

    Args:
        steps: ``max_steps`` of the fit; the rate is constant if it has none, -1.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def __call__(self, step: int) -> float:
        return min(1.0, max(0.0, (self.steps - step) / (FALLING_SHARE * self.steps))) if self.steps > 0 else 1.0

    def __str__(self) -> str:
        falling = f"constant, then linearly to 0 in the last {FALLING_SHARE:.0%} of {self.steps} steps"
        return falling if self.steps > 0 else "constant"


class FactorSchedule(LambdaLR):
    """As the base class; a step that leaves the factor of the rates as it is only counts, which is faster."""

    def step(self, epoch: int | None = None) -> None:
        (factor,) = set(self.lr_lambdas)
        if epoch is None and self.last_epoch >= 0 and factor(self.last_epoch) == factor(self.last_epoch + 1):
            self.last_epoch += 1
        else:
            super().step(epoch)


def warm_up_and_cosine(optimizer: Optimizer, warm_up: int, total: float) -> LambdaLR:
    """A linear warm-up of ``warm_up`` steps, then a half cosine to zero at step ``total``; constant if that is infinite."""

    def factor(step: int) -> float:
        risen = min(1.0, (step + 1) / warm_up)
        return risen if math.isinf(total) else risen * (1 + math.cos(math.pi * min(1.0, step / max(total, 1)))) / 2

    return LambdaLR(optimizer, factor)


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
