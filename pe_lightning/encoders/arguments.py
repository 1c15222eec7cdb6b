"""Types of the arguments of encoders, checked and recorded at construction, and the rules of values that follow the data."""

from __future__ import annotations

import functools
import inspect
import math
from abc import ABCMeta
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from pe_lightning.errors import InputError
from pe_lightning.registry import Registry
from pe_lightning.signals import validation
from pe_lightning.signals.distributed import run_seed

T = TypeVar("T")

PositiveInt: TypeAlias = Annotated[int, 1]
"""An integer of at least 1."""
NonNegativeInt: TypeAlias = Annotated[int, 0]
PositiveFloat: TypeAlias = Annotated[float, "[1e-12, 1e+12]"]
"""A number in the interval."""
NonNegativeFloat: TypeAlias = Annotated[float, "[0, 1e+12]"]
SeedLike: TypeAlias = NonNegativeInt | None
"""A seed; ``None`` becomes the seed of the run (:func:`~pe_lightning.signals.distributed.run_seed`) in a new encoder."""

DEFAULT_NUM_FEATURES = 256
"""Features per axis for ``num_features: auto`` where no samples are known: as in the papers."""
CountLike: TypeAlias = PositiveInt | Literal["auto"]
"""A number of features or positions, or ``"auto"``: as many as trained samples along the axis
(:func:`~pe_lightning.encoders.resolution.for_data`), :data:`DEFAULT_NUM_FEATURES` until they are known.
"""
WidthLike: TypeAlias = PositiveFloat | Literal["auto"] | None
"""A number, ``None`` for the rule, or ``"auto"`` for the value that predicts held-out samples best, chosen by a solver."""


Use: TypeAlias = Literal["linear", "perceptron", "tokens"]
"""The model that features are for: a linear layer, a perceptron, or positions of tokens."""


@dataclass(frozen=True)
class Samples:
    """The trained samples that the arguments of an encoder are resolved for.

    Args:
        per_unit: Trained samples per unit length of each axis; for scattered samples, of a grid of the same density.
        spacing: Distance of neighbouring features of a linear layer, in units of the [0, 1] domain; ``None``: the distance
            of the trained samples.
        use: The model that the features are for.
    """

    per_unit: tuple[float, ...]
    spacing: float | None = None
    use: Use = "linear"

    @property
    def mean(self) -> float:
        """Geometric mean over the axes."""
        return math.prod(self.per_unit) ** (1 / len(self.per_unit))


@dataclass(frozen=True)
class Width:
    """The argument of an encoder that sets the width of its features.

    Args:
        argument: Name of the constructor argument.
        kind: Its quantity: ``length``, in units of the [0, 1] domain; ``frequency``, in periods per unit length;
            ``octaves``, the exponent of a highest frequency ``2**sigma``.
        rule: The default value for a number of features per unit length, or of samples where they are fewer.
        text: The rule in words, such as ``"0.64/K"``.
        below_mlp: The default value below a perceptron and for tokens, for trained samples per unit length; ``None``: the
            rule.
    """

    argument: str
    kind: Literal["length", "frequency", "octaves"]
    rule: Callable[[float], float]
    text: str
    below_mlp: Callable[[float], float] | None = None

    def scaled(self, value: float, factor: float) -> float:
        """The value for features ``factor`` times as wide as with ``value``."""
        if self.kind == "length":
            return value * factor
        if self.kind == "frequency":
            return value / factor
        return max(value - math.log2(factor), 0.1)  # an exponent is positive


class EncoderRegistry(Registry[T]):
    """The registry of encoders, in which ``width`` names the argument that an encoder declares as its width."""

    def arguments(self, cls: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """As in the base class; ``width: auto`` is ignored by encoders without a width."""
        arguments, takes = dict(given), self.parameters(cls)
        if not arguments.get("per_feature", True) and "per_feature" not in takes:
            del arguments["per_feature"]  # false in files of version 0.3
        if "width" in arguments and "width" not in takes:
            value = arguments.pop("width")
            if cls.width is not None:
                arguments.setdefault(cls.width.argument, value)
            elif value != "auto":
                raise InputError(f"encoder {self.name_of(cls)!r} has no width, got width={value!r}; leave it out")
        return super().arguments(cls, arguments)


class RecordedArguments(ABCMeta):
    """Checks the arguments of every construction against their types, and records them as plain values.

    ``None`` as the argument ``seed`` becomes the seed of the run: what is recorded describes the same encoder in any run.
    Checked are flags, ``Literal`` types, and numbers annotated with a range, such as :data:`PositiveInt`.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        signature, hints = _signature(cls)
        bound = signature.bind(None, *args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        if given.get("seed", 0) is None:
            given["seed"] = run_seed()
        for name in list(given)[1:]:  # plain, since checkpoints hold no NumPy numbers
            given[name] = checked(f"{cls.__name__}: {name}", plain(given[name]), hints.get(name))
        encoder = super().__call__(*bound.args[1:], **bound.kwargs)
        vars(encoder)["arguments"] = dict(list(given.items())[1:])
        return encoder


@functools.cache
def _signature(cls: type) -> tuple[inspect.Signature, dict[str, Any]]:
    try:
        hints = get_type_hints(cls.__init__, include_extras=True)  # type: ignore[misc]
    except NameError:  # imported for type checkers only: the class checks its arguments itself
        hints = {}
    return inspect.signature(cls.__init__), hints  # type: ignore[misc]


def seeded(seed: SeedLike) -> torch.Generator:
    """A random generator on the CPU, from the argument ``seed`` of an encoder."""
    assert seed is not None  # RecordedArguments puts the seed of the run in its place
    return torch.Generator("cpu").manual_seed(seed)


def count_value(owner: str, value: Any) -> int:
    """The number of features; for ``"auto"`` the number until samples are known."""
    return DEFAULT_NUM_FEATURES if value == "auto" else validation.integer(f"{owner}: num_features", value, 1)


class PositiveParameter:
    """The attribute of a width: its number, or the exponential of the parameter ``log_<name>`` where it is trained."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, encoder: Any, owner: type) -> float | Tensor:
        logarithm: Tensor | None = getattr(encoder, f"log_{self.name}", None)
        if logarithm is None and self.name not in vars(encoder):
            raise AttributeError(f"{type(encoder).__name__} has no {self.name}")
        width: float | Tensor = vars(encoder)[self.name] if logarithm is None else logarithm.exp()
        return width

    def __set__(self, encoder: Any, value: float) -> None:
        vars(encoder)[self.name] = value


def set_width(encoder: Any, value: WidthLike, per_unit: float, trainable: bool = False, per_feature: bool = False) -> None:
    """Sets the argument of :attr:`Traits.width`: to the value, or by its rule for ``None`` and ``"auto"``.

    Args:
        encoder: The encoder, in its constructor.
        value: The given value.
        per_unit: Features per unit length, for the rule.
        trainable: Whether the width is trained.
        per_feature: Whether each frequency is trained too, which needs ``trainable``.
    """
    if per_feature and not trainable:
        raise InputError(f"{type(encoder).__name__}: per_feature: true needs trainable: true")
    name, start = encoder.width.argument, encoder.width.rule(per_unit) if value is None or value == "auto" else value
    if trainable:
        logarithm = torch.tensor(math.log(start), dtype=torch.float32, device="cpu")
        encoder.register_parameter(f"log_{name}", nn.Parameter(logarithm))
    else:
        setattr(encoder, name, start)


def sample_value(encoder: Any, name: str, value: Any) -> Any:
    """The value of an argument of :attr:`Traits.from_samples`; for ``"auto"`` the value until samples are known."""
    if not (isinstance(value, str) and value == "auto"):
        return value
    return encoder.from_samples[name](Samples((DEFAULT_NUM_FEATURES,) * encoder.num_axes))


def checked(name: str, value: Any, hint: Any) -> Any:
    """The value; an :class:`InputError` if its type is a range, a choice or a flag that it does not fit."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if (value is None and NoneType in kinds) or (isinstance(value, str) and value in words):
        return value
    for number, limit in (get_args(kind) for kind in kinds if get_origin(kind) is Annotated):
        others = f", or {', '.join(words)}" if words else ""
        check: Any = validation.integer if number is int else validation.number
        return check(name, value, limit, hint=others)
    choices = (False, True) if hint is bool else words
    return validation.choice(name, value, choices) if hint is bool or get_origin(hint) is Literal else value


def plain(value: object) -> Any:
    """Numbers of NumPy and PyTorch as Python's, several as a list; anything else unchanged."""
    if isinstance(value, (bool, str)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, Tensor):  # a learned one of several signals has one value each
        return value.item() if value.numel() == 1 else value.tolist()
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value
