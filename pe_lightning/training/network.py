"""Any module of PyTorch from coordinates to values, as a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from typing_extensions import Self

from pe_lightning.errors import InputError, paragraph, refuse
from pe_lightning.networks import ScaledNetwork
from pe_lightning.networks.ensemble import copy_of
from pe_lightning.registry import Described, path_of
from pe_lightning.signals import validation
from pe_lightning.signals.batches import PointBatch, SignalInfo
from pe_lightning.signals.splits import PointSplit
from pe_lightning.training.base import models
from pe_lightning.training.coordinate import CoordinateModule
from pe_lightning.training.datamodule import SignalDataModule
from pe_lightning.training.function import FunctionModule
from pe_lightning.training.optimization import FallAtEnd, refused_arguments

NUM_POINTS = 4
"""Points at which a network is evaluated before a fit."""

RANDOM_KEY = "pe_lightning/random_state"


@models.register("NetworkModule")
class NetworkModule(CoordinateModule):
    """A network of your own per signal: any ``nn.Module`` from coordinates ``(P, D)`` in [0, 1) to values ``(P, C)``.

    All signals start from the same weights. The values of a point must not depend on the other points.

    Args:
        network: The network of one signal, which is copied; or a description, ``{class_path: my_module.MyNetwork, init_args:
            {...}}``, by which a checkpoint makes it again.
        points_per_chunk: Points, of all signals together, that are evaluated at a time outside training.
        signals_per_chunk: Signals whose network is evaluated at a time, for less memory in training: hidden layers are
            then computed twice. ``None``: all.
        scale_targets: Whether the network is trained on values scaled to [-1, 1]
            (:class:`~pe_lightning.networks.TargetScaling`), for outputs without bounds, better in all fits that were
            measured; predictions are values either way. Not for networks that end in a sigmoid.
        optimizer: Makes the optimiser. ``None``: Adam at rate 1e-3.
        lr_scheduler: Makes the learning-rate scheduler; stepped every optimiser step. ``None``: with the default optimiser a
            rate that falls to 0 in the last fifth of the steps, else a constant rate.
        compile: Whether training steps are compiled (:func:`torch.compile`), which takes seconds at the first step and needs
            a C++ compiler.
        lr: Learning rate in place of the optimiser's own, also of the default optimiser's. ``None``: its own.

    Raises:
        InputError: When the module is built for signals, if the network does not map ``(P, D)`` to ``(P, C)``, each point by
            itself, changes its buffers as it is evaluated, or has no parameters; before a fit, if it has no gradient.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 3))
        >>> model = NetworkModule(net)
        >>> model.build(SignalInfo(("photo",), (64, 64), 3))
        >>> model(torch.rand(5, 2)).shape
        torch.Size([1, 5, 3])
    """

    may_differ: ClassVar[frozenset[str]] = CoordinateModule.may_differ | {"points_per_chunk"}

    def __init__(
        self,
        network: Described[nn.Module] | None = None,
        points_per_chunk: int = 65536,
        signals_per_chunk: int | None = None,
        scale_targets: bool = False,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
        compile: bool = False,
        lr: float | None = None,
    ) -> None:
        super().__init__([], False, None, signals_per_chunk, optimizer, lr_scheduler, compile, lr)
        validation.integer("NetworkModule: points_per_chunk", points_per_chunk, 1)
        validation.choice("NetworkModule: scale_targets", scale_targets, (False, True))
        if network is None:
            raise InputError(
                "NetworkModule needs a network, such as --model my_module.MyNetwork. A checkpoint of a network that was an "
                "object in Python holds its weights alone: make it again, and load the checkpoint by "
                "NetworkModule.load_from_checkpoint(PATH, network=NETWORK)"
            )
        self.points_per_chunk = points_per_chunk
        self.scale_targets = scale_targets
        self._make: Callable[[], nn.Module]
        self._described: dict[str, Any] = {}
        if isinstance(network, nn.Module):
            cls, described = type(network), {}
            self._make = partial(copy_of, network)
        else:
            name, arguments = models.read(network)
            cls = models.get(name)
            self._described = models.arguments(cls, arguments)
            described = {"network": {"class_path": models.name_of(cls), "init_args": self._described}}
            self._make = partial(models.create, name, **self._described)
        self._class, self._name = cls, cls.__name__
        self._random: Tensor | None = None
        self.save_arguments(
            **described,
            points_per_chunk=points_per_chunk,
            signals_per_chunk=signals_per_chunk,
            scale_targets=scale_targets,
            compile=compile,
            lr=lr,
        )

    def default_optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        """Adam at rate 1e-3."""
        return torch.optim.Adam(parameters, lr=1e-3)

    def default_schedule(self) -> tuple[FallAtEnd, str]:
        """A constant rate that falls at the end of the fit."""
        factor = FallAtEnd(self.trainer.max_steps)
        return factor, str(factor)

    def make_network(self, info: SignalInfo) -> nn.Module:
        network = self._create()
        if any(isinstance(layer, torch.jit.ScriptModule) for layer in network.modules()):
            raise InputError(
                f"{self._name} is or has a module of torch.jit, which cannot have weights per signal: give the module that "
                "torch.jit.script or torch.jit.trace got"
            )
        network = network.cpu().float().train()
        points = _check_points(info)
        with torch.random.fork_rng(devices=[]):  # dropout draws
            self._evaluate(network, info, points)  # creates the parameters of lazy layers
            before = {name: buffer.clone() for name, buffer in network.named_buffers()}
            self._evaluate(network, info, points)
            changed = [name for name, buffer in network.named_buffers() if not torch.equal(buffer, before[name])]
            every = [parameter for layer in network.modules() for parameter in layer.parameters(recurse=False)]
            refuse(
                (not any(p.requires_grad for p in network.parameters()), f"{self._name} has no parameters to train"),
                (
                    changed,
                    f"{self._name} changes its buffers in every evaluation ({', '.join(changed)}), as BatchNorm does: use "
                    "layers without running statistics, such as nn.LayerNorm",
                ),
                (
                    len(every) > len(set(every)),
                    f"{self._name} has layers with one parameter in common: use one layer twice, or give each its own",
                ),
            )
            self._check_independence(network, info)
        return ScaledNetwork(network, info.channels) if self.scale_targets else network

    def _create(self) -> nn.Module:
        """A new network; an error of its constructor names the arguments that it refuses."""

        def works(change: dict[str, Any]) -> bool:
            try:
                self._class(**{**self._described, **change})
            except Exception:  # code of the user raises anything
                return False
            return True

        try:
            return self._make()
        except Exception as error:
            if isinstance(error, InputError) or not self._described:
                raise  # a fault of the class
            wrong = refused_arguments(self._class, self._described, works) or list(self._described)
            refused = " or ".join(f"model.{key}={self._described[key]!r}" for key in wrong)
            text = paragraph(str(error), 200)
            raise InputError(f"{self._name} refuses {refused}: {type(error).__name__}: {text}") from error

    def build_from(self, data: SignalDataModule, device: torch.device | None = None) -> None:
        """As in the base class; computes a gradient at a few points, so that no step of the fit fails where this does."""
        super().build_from(data, device)
        info, count, split = self.require_info(), self.networks.num_signals, data.signals.split
        own = count if isinstance(split, PointSplit) and len(split.index) > 1 else 1
        parameters = [parameter for parameter in self.parameters() if parameter.requires_grad]
        problem, remedy = "fails in training", "it must map coordinates to values by operations of PyTorch"
        if count > 1 and self.signals_per_chunk != 1:
            problem = f"cannot be evaluated for {count} signals together by torch.func.vmap"
            remedy = "signals_per_chunk=1 (--model.signals_per_chunk 1) evaluates one signal after another"
        with torch.device(self.device), torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=[]):
            values = torch.zeros(count, NUM_POINTS, info.channels, dtype=parameters[0].dtype.to_real())
            batch = PointBatch(_check_points(info).expand(own, -1, -1), values)
            try:
                errors = self.errors(batch)
                problem = "has no gradient"
                remedy = (
                    "for less memory, set signals_per_chunk or take batches of points, in place of torch.utils.checkpoint"
                )
                if errors.requires_grad:
                    errors.sum().backward()  # type: ignore[no-untyped-call]
            except Exception as error:  # code of the user raises anything
                words = paragraph(f"{type(error).__name__}: {error}", 300)
                raise InputError(f"{self._name} {problem}: {words}; {remedy}") from error
        if all(parameter.grad is None for parameter in parameters):
            raise InputError(
                f"{self._name} returns values that do not depend on its parameters, so that there is nothing to train: "
                "compute them without detach(), item(), NumPy and torch.no_grad()"
            )
        self.zero_grad()

    @torch.no_grad()
    def _evaluate(self, network: nn.Module, info: SignalInfo, points: Tensor) -> Tensor:
        """The values ``(P, C)`` of a network, which is checked to map ``(P, D)`` to ``(P, C)``."""
        wanted = f"it must map coordinates (..., {info.num_axes}) to floating-point values (..., {info.channels})"
        given = points.clone()
        try:
            values = network(given)
        except Exception as error:  # code of the user raises anything
            words = f"{type(error).__name__}: {error}"
            raise InputError(f"{self._name} fails at coordinates {tuple(points.shape)}: {words}; {wanted}") from error
        shape = (len(points), info.channels)
        if not isinstance(values, Tensor) or tuple(values.shape) != shape or not values.is_floating_point():
            kind = f"{tuple(values.shape)}, {values.dtype}" if isinstance(values, Tensor) else f"a {type(values).__name__}"
            raise InputError(f"{self._name} returns {kind} for coordinates {tuple(points.shape)}; {wanted}")
        if not torch.equal(points, given):
            raise InputError(
                f"{self._name} changes its input in place, the coordinates of the data in every step: compute a new tensor, "
                "such as x - 0.5 in place of x.sub_(0.5)"
            )
        return values

    def _check_independence(self, network: nn.Module, info: SignalInfo) -> None:
        """Refuses a network whose values at a point depend on other points: in training on their values, else on any."""
        points = _check_points(info)
        others = torch.cat([points[:-1] / 2, points[-1:]])
        for training, different in ((True, others), (False, points[-1:])):  # dropout draws other units for a part
            network.train(training)
            torch.manual_seed(0)
            whole = self._evaluate(network, info, points)
            torch.manual_seed(0)
            other = self._evaluate(network, info, different)
            if not torch.allclose(whole[-1], other[-1], rtol=1e-3, atol=1e-5, equal_nan=True):
                raise InputError(
                    f"{self._name} gives a point another value where it is evaluated with other points: it must map each "
                    "point by itself, without statistics of the batch or attention over points"
                )
        network.train()

    @property
    def _generator(self) -> torch.Generator:
        device = self.device
        return torch.cuda.default_generators[device.index or 0] if device.type == "cuda" else torch.default_generator

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """As in the base class; adds the state of the random generator, from which layers such as dropout draw."""
        super().on_save_checkpoint(checkpoint)
        checkpoint[RANDOM_KEY] = self._generator.get_state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self._random = checkpoint[RANDOM_KEY]

    def on_train_start(self) -> None:
        super().on_train_start()
        if self._random is not None:
            self._generator.set_state(self._random)
            self._random = None

    def build_from_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        super().build_from_checkpoint(checkpoint)
        prefix = "networks.network."
        state = checkpoint["state_dict"].items()
        saved = {name.removeprefix(prefix): tuple(x.shape[1:]) for name, x in state if name.startswith(prefix)}
        mine = {name: tuple(x.shape[1:]) for name, x in self.networks.network.state_dict().items()}
        if different := sorted(name for name in saved.keys() | mine if saved.get(name) != mine.get(name)):
            name = different[0]
            raise InputError(
                f"the checkpoint is of another network than this {self._name}: {name} has shape {saved.get(name, 'none')} "
                f"in the checkpoint, {mine.get(name, 'none')} here; pass the network that was fitted"
            )

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "network": {**self._described, "name": self._name}}

    def of_cells(self, sizes: Sequence[float]) -> Self:
        if sizes:
            raise InputError(f"{self._name} predicts values at points: leave out samples: cells, or use ComplexLinear")
        return self


def _check_points(info: SignalInfo) -> Tensor:
    """Coordinates at which a network is checked, ``(P, D)``."""
    return torch.linspace(0.1, 0.9, NUM_POINTS * info.num_axes, dtype=torch.float32).reshape(NUM_POINTS, info.num_axes)


def as_model(given: nn.Module) -> FunctionModule:
    """A module of this package as it is, and any other network as a :class:`NetworkModule`."""
    if isinstance(given, FunctionModule):
        return given
    if isinstance(given, LightningModule):
        name = type(given).__name__
        raise InputError(
            f"{name} is a LightningModule with steps of its own: fit it by lightning.pytorch.Trainer(...).fit(MODULE, DATA) "
            f"or by pe-lightning fit --model {path_of(type(given))} --data DATAMODULE; here a model is one of pe_lightning "
            "or an nn.Module from coordinates to values"
        )
    if isinstance(given, nn.Module):
        return NetworkModule(given)
    raise InputError(f"model is an nn.Module, such as nn.Sequential(...) or SimpleMLP('hash'); got {given!r}")
