"""The contract of an encoder, and the registry of encoders."""

from __future__ import annotations

import copy
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import Self

from pe_lightning import checks
from pe_lightning.errors import InputError
from pe_lightning.registry import Registry

__all__ = [
    "CountLike",
    "Encoder",
    "EncoderLike",
    "Width",
    "WidthLike",
    "check_choice",
    "check_count",
    "check_positive",
    "exact_dtype",
    "mean",
    "plain",
    "points",
    "registry",
]

T = TypeVar("T")

CountLike: TypeAlias = int | Literal["auto"]
"""A number of features, or ``"auto"``: as many as trained samples along the axis, once a model or solver knows them
(:meth:`Encoder.sized`), and :data:`UNSIZED` until then."""
UNSIZED = 256

WidthLike: TypeAlias = float | Literal["auto"] | None
"""A number, ``None`` for the rule that follows ``num_features``, or ``"auto"`` for the value that predicts held-out samples
best, chosen when a solver sees the data."""


@dataclass(frozen=True)
class Width:
    """The argument of an encoder that says how wide its features are.

    Args:
        argument: Name of the constructor argument.
        kind: What it measures: ``length``, in units of the [0, 1] domain; ``frequency``, in periods per unit length;
            ``octaves``, the exponent of a highest frequency ``2**sigma``.
        rule: The default value for so many features, or samples where they are fewer, per unit length.
        text: The rule in words, such as ``"0.64/K"``.
        below_mlp: The default value below a perceptron, for so many trained samples per unit length; ``None``: the rule.
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


class Encoder(nn.Module, ABC):
    r"""One axis: :math:`\psi: \mathbb{R} \to \mathbb{R}^K`.

    A subclass calls ``super().__init__(num_features)`` and defines :meth:`forward`. Features are raw: any scaling by
    row norms is the encoding's. Every argument has a default, so that a name alone is a good encoder; the default of the
    width follows ``num_features`` and is written as ``None`` in the signature. Arguments out of range raise
    :class:`~pe_lightning.errors.InputError`. Class attributes declare what solvers and encodings need to know.

    Args:
        num_features: Number of features ``K`` of the output.
        num_axes: Number of coordinates of a point. With more than one, the input is ``(*batch, num_axes)``.

    Shape:
        ``(*batch,)`` in [0, 1] -> ``(*batch, num_features)``; dtype and device of the input are kept.

    Example:
        >>> import torch
        >>> class Powers(Encoder):
        ...     def __init__(self, num_features: int = 4) -> None:
        ...         super().__init__(num_features)
        ...     def forward(self, x: torch.Tensor) -> torch.Tensor:
        ...         return x[..., None] ** torch.arange(self.num_features, dtype=x.dtype, device=x.device)
        >>> Powers(3)(torch.tensor([0.5])).tolist()
        [[1.0, 0.5, 0.25]]
    """

    formula: ClassVar[str] = ""
    """The feature in words, one line, for tables."""
    width: ClassVar[Width | None] = None
    """The argument that sets the width of the features, if there is exactly one."""
    fallback_ridge: ClassVar[float] = 1e-3
    """A good relative ridge for photographs, where a signal is too small to hold samples out."""
    normalizable: ClassVar[bool] = True
    """Whether encodings may divide the features by their largest row norm; not where they are parameters or coordinates."""
    joint: ClassVar[bool] = False
    """Whether the class takes ``num_axes`` and can encode several axes at once."""
    axiswise: ClassVar[bool] = True
    """Whether it has a use with one axis at a time, in a complex encoding; not where it then is what another encoder is."""
    directional: ClassVar[bool] = False
    """Whether simple encoding in 2-D uses four directions (the papers' choice for shifted encoders) instead of two."""
    drawn: ClassVar[bool] = False
    """Whether features are drawn at random, so that fewer of them are another draw."""
    multiple: ClassVar[int] = 1
    """``num_features`` is a multiple of it."""
    from_positions: ClassVar[Mapping[str, Callable[[Sequence[float]], Any]]] = {}
    """Rules of :attr:`from_samples` that differ where the coordinates are positions of tokens."""
    from_samples: ClassVar[Mapping[str, Callable[[Sequence[float]], Any]]] = {}
    """Arguments whose default ``"auto"`` leaves them to the data, and their values for so many trained samples per unit
    length of each axis."""

    resolution: float | None = None
    """Features per unit length, where each is the one before it, moved by ``1 / resolution``."""

    num_features: int
    num_axes: int
    trainable: bool = False
    per_feature: bool = False
    _given: dict[str, Any]
    _rng_state: Tensor

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Keeps the arguments that were given, so that :meth:`copy` and checkpoints can rebuild the encoder."""
        self = super().__new__(cls)
        bound = inspect.signature(cls.__init__).bind_partial(self, *args, **kwargs)
        # a checkpoint holds plain values only, not NumPy numbers
        given = {key: plain(value) for key, value in list(bound.arguments.items())[1:]}
        object.__setattr__(self, "_given", given)
        # so that random initial values can be drawn again and told from learned ones
        object.__setattr__(self, "_rng_state", torch.get_rng_state())
        return self

    def __init__(self, num_features: CountLike, num_axes: int = 1) -> None:
        super().__init__()
        self.num_features = self.count_value(num_features)
        self.num_axes = check_count(self, "num_axes", num_axes)

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Features of coordinates ``x``, differentiable with respect to the encoder's parameters."""

    @property
    def support(self) -> float | None:
        """Distance on the [0, 1] domain beyond which a feature is negligible; ``None``: features reach everywhere."""
        return None

    def position(self, x: Tensor) -> Tensor:
        """The number of the feature that is largest at coordinates; asked for where there is a :attr:`resolution`."""
        raise NotImplementedError(f"{type(self).__name__} is not shifted")

    def leading(self, count: int) -> Encoder:
        """An encoder of the first ``count`` features alone; asked for where there is a :attr:`resolution`."""
        raise NotImplementedError(f"{type(self).__name__} is not shifted")

    def penalty(self) -> Tensor:
        """An auxiliary loss on the encoder's own parameters, ``()``; zero unless the encoder has one."""
        return torch.zeros(())

    def distance(self, delta: Tensor) -> Tensor:
        r"""The similarity :math:`D(\Delta) = \int \psi(t, x)\,\psi(t, x + \Delta)\,dt`, ``(*batch,)`` -> ``(*batch,)``.

        Raises:
            NotImplementedError: If there is no closed form.
        """
        raise NotImplementedError(f"{type(self).__name__} has no closed form of D(delta)")

    def stable_rank(self, num_samples: int) -> float:
        r"""The predicted stable rank :math:`\|\Psi\|_F^2 / \|\Psi\|_2^2` of the features of ``num_samples`` points.

        Raises:
            NotImplementedError: If there is no closed form.
        """
        raise NotImplementedError(f"{type(self).__name__} has no closed form of the stable rank")

    @property
    def name(self) -> str:
        """The registered name, or the full class path of an unregistered encoder."""
        return registry.name_of(type(self))

    def count_value(self, value: CountLike) -> int:
        """The number of features that is meant; of ``"auto"``, the one until samples are known."""
        return UNSIZED if value == "auto" else check_count(self, "num_features", value)

    def width_value(self, value: WidthLike, resolution: float, maximum: float = 1e12) -> float:
        """The value of the argument of :attr:`width`: ``None`` and ``"auto"`` stand for the rule's."""
        assert self.width is not None
        if value is None or value == "auto":
            return self.width.rule(resolution)
        return check_positive(self, self.width.argument, value, maximum)

    @property
    def features_per_unit(self) -> float:
        """Features per unit length of the axis, without any past its ends."""
        return float(self.resolved().get("num_features", self.num_features))

    def sized(self, spacing: float, samples: float) -> Self:
        """The encoder for samples of an axis: ``num_features`` if it is ``auto``, and the width if none was given.

        Args:
            spacing: Distance that the features should have, in units of the [0, 1] domain: that of the trained samples, or
                of the grid's where they are scattered.
            samples: Trained samples per unit length, or as many as a grid of their density has. A width follows their
                distance where there are more features than samples.
        """
        made = self
        if self.width is None and self.support is not None:
            spacing = max(spacing, 1 / samples)  # narrower ones would leave samples apart
        if self.is_open:
            count = self.multiple * math.ceil(1 / (self.multiple * spacing) - 1e-6)
            changes: dict[str, Any] = {"num_features": count}
            arguments = registry.parameters(type(self))
            padding = self._given.get("padding", "auto")
            if "spacing" in arguments and padding != "wrap" and abs(count * spacing - 1) > 1e-9:
                changes["spacing"] = spacing
            if "padding" in arguments and padding == "auto":
                changes["padding"] = "edge"
            made = self.copy(**changes)
        if made.width is not None and samples < made.features_per_unit - 1e-6:
            default = registry.parameters(type(self))[made.width.argument].default
            if made.given().get(made.width.argument, default) is None:
                made = made.widened(samples, 1.0)
        return made.for_samples([samples])

    def below_mlp(self, samples: float) -> Self:
        """The encoder for a perceptron above it: its width, if none was given, by :attr:`Width.below_mlp`."""
        if self.width is None or self.width.below_mlp is None or self._given.get(self.width.argument) is not None:
            return self
        return self.copy(**{self.width.argument: self.width.below_mlp(samples)})

    def for_samples(self, samples: Sequence[float]) -> Self:
        """The encoder with all of :attr:`from_samples` that is ``auto`` set, of as many axes as there are ``samples``."""
        if self.num_axes not in (1, len(samples)):
            return self  # for the encoding to refuse
        changes = {key: rule(samples) for key, rule in self.from_samples.items() if self._given.get(key, "auto") == "auto"}
        return self.copy(num_axes=len(samples), **changes) if changes else self

    def sample_value(self, name: str, value: Any) -> Any:
        """The value of an argument of :attr:`from_samples`; of ``"auto"``, the one until samples are known."""
        return self.from_samples[name]([UNSIZED] * self.num_axes) if isinstance(value, str) and value == "auto" else value

    def widened(self, samples: float, factor: float) -> Self:
        """The encoder with its width at ``factor`` times the default for ``samples`` per unit length; more is smoother.

        The default follows the features. Where there are fewer samples, their spacing is what counts: a Gaussian narrower
        than it leaves holes.
        """
        if self.width is None:
            return self
        default = self.width.rule(min(self.features_per_unit, samples))
        return self.copy(**{self.width.argument: self.width.scaled(default, factor)})

    @property
    def is_open(self) -> bool:
        """Whether the number of features is left to the data."""
        parameter = registry.parameters(type(self)).get("num_features")
        return parameter is not None and self._given.get("num_features", parameter.default) == "auto"

    def automatic(self) -> str | None:
        """The argument of the width, if it was given as ``"auto"`` and is still to be chosen."""
        argument = None if self.width is None else self.width.argument
        value = self._given.get(argument or "")
        return argument if isinstance(value, str) and value == "auto" else None

    def given(self) -> dict[str, Any]:
        """The constructor arguments as they were given; ``None`` stands for a default that follows ``num_features``."""
        return dict(self._given)

    def resolved(self) -> dict[str, Any]:
        """Every constructor argument with the value in force: the attribute of its name, what was given, or the default."""
        return {
            key: plain(getattr(self, key, self._given.get(key, parameter.default)))
            for key, parameter in registry.parameters(type(self)).items()
        }

    def spec(self) -> dict[str, Any]:
        """A plain description that :func:`resolve` turns back into an equal encoder, but for what was learned."""
        return {"name": self.name, **self._given}

    def copy(self, **changes: Any) -> Self:
        """A copy with some constructor arguments changed, defaults resolved again and learned state kept.

        Parameters and buffers that differ from their values after construction are learned. They are carried over, but
        for those whose initial value a changed argument other than ``num_features`` sets: a learned width starts from a
        new ``sigma``.

        Raises:
            InputError: If the class has no such argument, or the change gives a learned tensor another shape.
        """
        changes = registry.arguments(type(self), changes)
        if not changes:
            return copy.deepcopy(self)
        made = self._rebuilt(changes)
        target, wanted = _state(made), made.resolved()
        initial = _state(self._rebuilt({}))
        # a default that follows num_features is no request for another value
        resized = _state(self._rebuilt({key: value for key, value in changes.items() if key == "num_features"}))
        for key, value in _state(self).items():
            if _same(initial.get(key), value):
                continue
            new = target.get(key)
            if new is None or new.shape != value.shape:
                raise InputError(
                    f"{self.name!r}: the learned {key!r} of shape {tuple(value.shape)} cannot be carried over to "
                    f"{', '.join(f'{name}={wish!r}' for name, wish in changes.items())}; change the encoder before it is "
                    "trained, or create a new one"
                )
            fresh = new.detach().clone()
            if _same(resized.get(key), new):
                new.data.copy_(value)
            if any(made.resolved()[name] != wanted[name] for name in changes):
                new.data.copy_(fresh)  # it holds the value of a changed argument
        return made

    def _rebuilt(self, changes: Mapping[str, Any]) -> Self:
        """The encoder as constructed, but for ``changes``; on the device, of the dtype and as trainable as this one."""
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.set_rng_state(self._rng_state)
            made = type(self)(**{**self._given, **changes})
        state = _state(self)
        for key, tensor in _state(made).items():
            if key in state:
                tensor.data = tensor.data.to(state[key])
                tensor.requires_grad_(state[key].requires_grad)
        return made.train(self.training)

    def extra_repr(self) -> str:
        """The arguments in force, for ``print(encoder)``."""
        return ", ".join(f"{key}={value!r}" for key, value in self.resolved().items() if value is not None)


EncoderLike: TypeAlias = "Encoder | str | Mapping[str, Any]"
"""An encoder, a registered name, or ``{"name": ..., **arguments}``."""


class EncoderRegistry(Registry[Encoder]):
    """The registry of encoders, which knows ``width`` as a name for the argument that an encoder declares as its width."""

    def arguments(self, cls: type[Encoder], given: Mapping[str, Any]) -> dict[str, Any]:
        """As in the base class. ``width: auto`` is left out for encoders that have no width."""
        arguments = dict(given)
        if "width" in arguments and "width" not in self.parameters(cls):
            value = arguments.pop("width")
            if cls.width is not None:
                arguments.setdefault(cls.width.argument, value)
            elif value != "auto":
                raise InputError(f"encoder {self.name_of(cls)!r} has no width, got width={value!r}; leave it out")
        return super().arguments(cls, arguments)


registry = EncoderRegistry("encoder", Encoder, "pe_lightning.encoders")  # type: ignore[type-abstract]


def exact_dtype(x: Tensor) -> torch.dtype:
    """The dtype to compute features of ``x`` in: that of ``x``, but float32 for the half precisions."""
    if not x.is_floating_point():
        raise InputError(f"coordinates must be floating-point numbers in [0, 1], got dtype {x.dtype}")
    return torch.promote_types(x.dtype, torch.float32)


def mean(samples: Sequence[float]) -> float:
    """The geometric mean."""
    return math.prod(samples) ** (1 / len(samples))


def points(encoder: Encoder, x: Tensor) -> Tensor:
    """The points ``(*batch, num_axes)`` that ``x`` stands for, in the dtype to compute features in.

    Raises:
        InputError: If ``x`` has another number of coordinates.
    """
    coords = x.to(exact_dtype(x))[..., None] if encoder.num_axes == 1 else x.to(exact_dtype(x))
    if coords.shape[-1:] != (encoder.num_axes,):
        raise InputError(
            f"{type(encoder).__name__}: points of {encoder.num_axes} axes have the shape (*batch, {encoder.num_axes}), "
            f"got {tuple(x.shape)}"
        )
    return coords


def check_choice(owner: object, name: str, value: T, allowed: Sequence[T]) -> T:
    """``value`` if it is one of those allowed, else an :class:`InputError` that names the owner."""
    return checks.choice(f"{type(owner).__name__}: {name}", value, allowed)


def check_count(owner: object, name: str, value: object, minimum: int = 1) -> int:
    """``value`` if it is an integer of at least ``minimum``, else an :class:`InputError` that names the owner."""
    return checks.integer(f"{type(owner).__name__}: {name}", value, minimum)


def check_positive(owner: object, name: str, value: object, maximum: float = 1e12, minimum: float = 1e-12) -> float:
    """``value`` if it is a number in [``minimum``, ``maximum``], else an :class:`InputError` that names the owner."""
    return checks.number(f"{type(owner).__name__}: {name}", value, f"[{minimum:g}, {maximum:g}]")


def plain(value: object) -> Any:
    """Numbers, also of NumPy or PyTorch, as Python's, several as a list; anything else as it is."""
    if isinstance(value, (bool, str)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, Tensor):  # a learned one of several signals has one value each
        return value.item() if value.numel() == 1 else value.tolist()
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


def _state(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, also those that are in no ``state_dict``."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _same(first: Tensor | None, second: Tensor) -> bool:
    return first is not None and torch.equal(first, second)
