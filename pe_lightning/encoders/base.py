"""The contract of an encoder, and the registry of encoders."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import Self

from pe_lightning.encoders.arguments import CountLike, RecordedArguments, WidthLike, plain
from pe_lightning.errors import InputError
from pe_lightning.registry import Registry
from pe_lightning.signals import validation

DEFAULT_NUM_FEATURES = 256
"""Number of features per axis for ``num_features: auto`` where no samples are known: that of the papers."""

Use: TypeAlias = Literal["linear", "perceptron", "tokens"]
"""The model that features are for: a linear layer, a perceptron, or positions of tokens."""


@dataclass(frozen=True)
class Samples:
    """The trained samples that the arguments of an encoder are resolved for (:meth:`Encoder.for_data`).

    Args:
        per_unit: Trained samples per unit length of each axis; for scattered samples, those of a grid of the same density.
            One number for an encoder that is used for one axis or direction at a time.
        spacing: Distance of neighbouring features of a linear layer, in units of the [0, 1] domain: that of the trained
            samples, or of the grid where they are scattered. ``None``: that of ``per_unit``.
        use: The model that the features are for.
    """

    per_unit: tuple[float, ...]
    spacing: float | None = None
    use: Use = "linear"


@dataclass(frozen=True)
class Width:
    """The argument of an encoder that sets the width of its features.

    Args:
        argument: Name of the constructor argument.
        kind: Its quantity: ``length``, in units of the [0, 1] domain; ``frequency``, in periods per unit length;
            ``octaves``, the exponent of a highest frequency ``2**sigma``.
        rule: The default value for a number of features per unit length, or of samples where they are fewer.
        text: The rule in words, such as ``"0.64/K"``.
        below_mlp: The default value below a perceptron and for tokens, for a number of trained samples per unit length;
            ``None``: the rule.
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


class Encoder(nn.Module, metaclass=RecordedArguments):
    r"""One axis: :math:`\psi: \mathbb{R} \to \mathbb{R}^K`.

    A subclass calls ``super().__init__(num_features)`` and defines :meth:`forward`. Features are raw; encodings scale them
    by their row norms. Every argument has a default, so that a name alone is a good encoder; the default of the width
    follows ``num_features`` and is written as ``None`` in the signature. Arguments are checked against their types
    (:mod:`pe_lightning.encoders.arguments`); those out of range raise :class:`~pe_lightning.errors.InputError`. Class
    attributes declare the properties that solvers and encodings use. Initial values of parameters follow from the arguments
    alone: random ones are drawn from a ``seed``.

    Args:
        num_features: Number of features ``K`` of the output.
        num_axes: Number of coordinates of a point. With more than one, the input is ``(*batch, num_axes)``.

    Shape:
        ``(*batch,)`` in [0, 1] -> ``(*batch, num_features)``; dtype and device of the input are kept. Features of
        coordinates that are NaN or infinite are NaN: :meth:`forward` gets NaN for these.

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
    """Whether encodings may divide the features by their largest row norm; false for trained tables and for coordinates."""
    joint: ClassVar[bool] = False
    """Whether the class takes ``num_axes`` and can encode several axes at once."""
    axiswise: ClassVar[bool] = True
    """Whether it is meaningful for a single axis, in a complex encoding; false where it then equals another encoder."""
    directional: ClassVar[bool] = False
    """Whether simple encoding in 2-D uses four directions (the papers' choice for shifted encoders) instead of two."""
    drawn: ClassVar[bool] = False
    """Whether features are drawn at random, so that fewer of them are another draw."""
    multiple: ClassVar[int] = 1
    """``num_features`` is a multiple of it."""
    from_samples: ClassVar[Mapping[str, Callable[[Sequence[float]], Any]]] = {}
    """Arguments whose default is ``"auto"``, and their values for the trained samples per unit length of each axis."""
    from_positions: ClassVar[Mapping[str, Callable[[Sequence[float]], Any]]] = {}
    """Values in place of those of :attr:`from_samples` for positions of tokens."""
    cell_nodes: ClassVar[int] = 8
    """Nodes per axis of the Gauss-Legendre quadrature of :meth:`cell`, where a class has no closed form of the mean."""

    cell_size: float | tuple[float, ...] = 0.0
    """Length of the cells that calls average over, per axis if there are several: see :meth:`averaged`. Zero: points."""

    resolution: float | None = None
    """Features per unit length, if each is the previous one shifted by ``1 / resolution``; else ``None``."""

    num_features: int
    num_axes: int
    trainable: bool = False
    per_feature: bool = False
    arguments: dict[str, Any]
    """Every constructor argument as it was given, or its default: the description in checkpoints and of copies."""

    def __init__(self, num_features: CountLike, num_axes: int = 1) -> None:
        super().__init__()
        self.num_features = self.count_value(num_features)
        self.num_axes = num_axes

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Features at coordinates ``x``, differentiable with respect to the encoder's parameters."""

    def __call__(self, x: Tensor) -> Tensor:
        """Features at points, or of cells where there is a :attr:`cell_size`; NaN where a coordinate is not finite."""
        x = x.add(x.detach(), alpha=0)  # 0 times a number that is not finite is NaN
        size = self.cell_size
        if not (any(size) if isinstance(size, tuple) else size):
            features: Tensor = super().__call__(x)
            return features
        return self.cell(x, x.new_tensor(size, dtype=exact_dtype(x)))

    def cell(self, x: Tensor, size: Tensor | float) -> Tensor:
        r"""Features averaged over cells: the mean of :math:`\psi` over :math:`[x - h/2, x + h/2]`, or over a box.

        A linear layer of it has the means of its values at points: fitted to the means over pixels, it predicts the means
        over smaller pixels. This is the integrated positional encoding, with its integral in closed form for Fourier and
        shifted features, and by quadrature with :attr:`cell_nodes` nodes per axis for others. Differentiable.

        Args:
            x: Centres of the cells, as for :meth:`forward`.
            size: Lengths ``h`` > 0 of the cells, broadcast with ``x``.

        Shape:
            As :meth:`forward`.

        Reference: Barron et al., *Mip-NeRF: A Multiscale Representation for Anti-Aliasing Neural Radiance Fields*, ICCV
        2021.
        """
        coords, sizes = boxes(self, x, size)
        offsets, weights = quadrature(self.cell_nodes, self.num_axes, coords)
        places = coords[..., None, :] + sizes[..., None, :] * offsets  # (*batch, nodes, num_axes)
        features: Tensor = self.forward(places[..., 0] if self.num_axes == 1 else places)
        return (features * weights[:, None]).sum(-2).to(x.dtype)

    def averaged(self, size: float | tuple[float, ...]) -> Self:
        """This encoder, sharing its parameters, whose calls return the features of cells of a size (:meth:`cell`)."""
        encoder = copy.copy(self)
        encoder.cell_size = size
        return encoder

    def resized(self, factor: float) -> Self:
        """This encoder for coordinates that are multiplied by a factor: with cells of so many times the length."""
        size = self.cell_size
        scaled = tuple(factor * one for one in size) if isinstance(size, tuple) else factor * size
        return self.averaged(scaled) if size else self

    @property
    def support(self) -> float | None:
        """Distance on the [0, 1] domain beyond which a feature is negligible; ``None`` if there is none."""
        return None

    def position(self, x: Tensor) -> Tensor:
        """Index of the feature that is largest at coordinates; defined where there is a :attr:`resolution`."""
        raise NotImplementedError(f"{type(self).__name__} is not shifted")

    def leading(self, count: int) -> Encoder:
        """An encoder of the first ``count`` features; defined where there is a :attr:`resolution`."""
        raise NotImplementedError(f"{type(self).__name__} is not shifted")

    def periodic(self) -> Encoder:
        """This encoder with features of period 1, for a periodic axis; an :class:`InputError` if it has none."""
        raise InputError(
            f"encoder {self.name!r} has no periodic features, and an axis of the data is periodic: use linf or a shifted "
            "encoder, such as laplace, gau or tri"
        )

    def penalty(self) -> Tensor:
        """An auxiliary loss on the encoder's own parameters, ``()``; zero unless the encoder has one."""
        return torch.zeros(())

    def distance(self, delta: Tensor) -> Tensor:
        r"""The similarity :math:`D(\Delta) = \int \psi(t, x)\,\psi(t, x + \Delta)\,dt`, ``(*batch,)`` -> ``(*batch,)``.

        Raises:
            NotImplementedError: If there is no closed form.
        """
        raise NotImplementedError(f"{type(self).__name__} has no closed form of D(delta)")

    def correlation(self, squared: Tensor, unit: float = 1.0) -> Tensor:
        r""":math:`D(\Delta) / D(0)` from squared lengths of any shape, differentiable.

        Args:
            squared: Squared lengths; negative ones, from rounding, count as zero.
            unit: Length of the [0, 1] domain in the unit of the lengths.
        """
        # the derivative of the root is infinite at zero
        length = (squared.clamp_min(0) + 1e-12).sqrt() / unit
        return self.distance(length) / self.distance(length.new_zeros(1)).detach()

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
        """The number of features; for ``"auto"`` that until samples are known."""
        return (
            DEFAULT_NUM_FEATURES if value == "auto" else validation.integer(f"{type(self).__name__}: num_features", value, 1)
        )

    def set_width(self, value: WidthLike, per_unit: float, trainable: bool = False, each: bool = False) -> None:
        """Sets the argument of :attr:`width`: to the value, or to that of its rule for ``None`` and ``"auto"``.

        Args:
            value: The given value.
            per_unit: Features per unit length, for the rule.
            trainable: Whether the width is trained.
            each: Whether each feature has its own; a Fourier encoder has one width, and factors of the frequencies.
        """
        assert self.width is not None
        self.trainable, self.per_feature = trainable, each
        if each and not trainable:
            raise InputError(f"{type(self).__name__}: per_feature: true needs trainable: true")
        name = self.width.argument
        start = self.width.rule(per_unit) if value is None or value == "auto" else value
        if trainable:
            shape = (self.num_features,) if each and self.resolution else ()
            logarithm = torch.full(shape, math.log(start), dtype=torch.float32, device="cpu")
            self.register_parameter(f"log_{name}", nn.Parameter(logarithm))
        else:
            setattr(self, name, start)

    @property
    def features_per_unit(self) -> float:
        """Features per unit length of the axis, without those beyond its ends."""
        return self.resolution or float(self.resolved().get("num_features", self.num_features))

    def for_data(self, samples: Samples) -> Self:
        """The encoder with every argument resolved that was left to the data.

        - The arguments of :attr:`from_samples` (for tokens of :attr:`from_positions`) that are ``auto``. An encoder of one
          axis becomes one of as many as ``samples`` has.
        - For a linear layer: ``num_features: auto`` becomes one feature per ``spacing``, and ``spacing`` and ``padding``
          follow. Below a perceptron and for tokens the encoding divides a number of features among directions.
        - The width, if none was given: by :attr:`Width.below_mlp` below a perceptron and for tokens; else by the rule, for
          the samples where they are fewer than the features.

        Widths given as ``auto`` are left to a solver (:meth:`automatic`).
        """
        num_axes, mean_samples = len(samples.per_unit), mean(samples.per_unit)
        if self.num_axes not in (1, num_axes):
            return self  # for the encoding to refuse
        rules = {**self.from_samples, **(self.from_positions if samples.use == "tokens" else {})}
        changes = {key: rule(samples.per_unit) for key, rule in rules.items() if self.arguments.get(key) == "auto"}
        encoder = self.copy(num_axes=num_axes, **changes) if changes else self
        if samples.use == "linear":
            encoder = encoder._one_feature_per(samples.spacing or 1 / mean_samples, mean_samples)
        elif encoder.width is not None and encoder.width.below_mlp is not None and encoder._has_default_width:
            encoder = encoder.copy(**{encoder.width.argument: encoder.width.below_mlp(mean_samples)})
        follows_samples = samples.use == "linear" or (samples.use == "tokens" and num_axes == 1)
        if follows_samples and encoder._has_default_width and mean_samples < encoder.features_per_unit - 1e-6:
            encoder = encoder.widened(mean_samples, 1.0)
        return encoder

    def _one_feature_per(self, spacing: float, samples: float) -> Self:
        """The encoder with ``num_features: auto`` resolved, and ``spacing`` and ``padding`` with it."""
        if not self.is_open:
            return self
        if self.width is None and self.support is not None:
            spacing = max(spacing, 1 / samples)  # narrower features would leave some points without any
        count = self.multiple * math.ceil(1 / (self.multiple * spacing) - 1e-6)
        changes: dict[str, Any] = {"num_features": count}
        padding = self.arguments.get("padding")
        if "spacing" in self.arguments and padding != "wrap" and abs(count * spacing - 1) > 1e-9:
            changes["spacing"] = spacing
        if padding == "auto":
            changes["padding"] = "edge"
        return self.copy(**changes)

    @property
    def _has_default_width(self) -> bool:
        return self.width is not None and self.arguments[self.width.argument] is None

    def sample_value(self, name: str, value: Any) -> Any:
        """The value of an argument of :attr:`from_samples`; for ``"auto"`` that until samples are known."""
        if not (isinstance(value, str) and value == "auto"):
            return value
        return self.from_samples[name]([DEFAULT_NUM_FEATURES] * self.num_axes)

    def widened(self, samples: float, factor: float) -> Self:
        """The encoder with ``factor`` times the default width for ``samples`` per unit length; more is smoother.

        The default follows the distance of the features, or that of the samples where they are fewer: narrower features
        would leave points between samples without any.
        """
        if self.width is None:
            return self
        default = self.width.rule(min(self.features_per_unit, samples))
        return self.copy(**{self.width.argument: self.width.scaled(default, factor)})

    @property
    def is_open(self) -> bool:
        """Whether the number of features is left to the data."""
        return bool(self.arguments.get("num_features") == "auto")

    def automatic(self) -> str | None:
        """Name of the argument of the width, if it was given as ``"auto"``; else ``None``."""
        argument = None if self.width is None else self.width.argument
        return argument if self.arguments.get(argument or "") == "auto" else None

    def resolved(self) -> dict[str, Any]:
        """The value of every constructor argument: the attribute of its name, or what was given."""
        return {key: plain(getattr(self, key, given)) for key, given in self.arguments.items()}

    def spec(self) -> dict[str, Any]:
        """The description ``{"name": ..., **arguments}``, from which :func:`resolve` makes an equal encoder.

        It holds the registered name and every argument as it was given, so that equal encoders have equal descriptions
        however they were written. Learned values are not in it.
        """
        return {"name": self.name, **self.arguments}

    def changed_arguments(self) -> dict[str, Any]:
        """The arguments that differ from their defaults."""
        parameters = registry.parameters(type(self))
        return {key: value for key, value in self.arguments.items() if value != parameters[key].default}

    def copy(self, **changes: Any) -> Self:
        """A copy with some constructor arguments changed and defaults resolved again.

        Parameters and buffers keep their values, except those whose shape or initial value the changes set: a learned width
        starts from a new ``sigma``.
        """
        changes = registry.arguments(type(self), changes)
        if not changes:
            return copy.deepcopy(self)
        encoder, state = self._rebuilt(changes), _state(self)
        initial = _state(self._rebuilt({})) if state else {}
        for key, tensor in _state(encoder).items():
            if key in state:
                unchanged = key in initial and torch.equal(tensor, initial[key])
                tensor.data = (state[key].detach().clone() if unchanged else tensor.data).to(state[key])
                tensor.requires_grad_(state[key].requires_grad)
        encoder.cell_size = self.cell_size
        return encoder.train(self.training)

    def _rebuilt(self, changes: Mapping[str, Any]) -> Self:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            return type(self)(**{**self.arguments, **changes})

    def extra_repr(self) -> str:
        """The values of the arguments, for ``print(encoder)``."""
        return ", ".join(f"{key}={value!r}" for key, value in self.resolved().items() if value is not None)


EncoderLike: TypeAlias = "Encoder | str | Mapping[str, Any]"
"""An encoder, a registered name, or ``{"name": ..., **arguments}``."""


class EncoderRegistry(Registry[Encoder]):
    """The registry of encoders, in which ``width`` names the argument that an encoder declares as its width."""

    def arguments(self, cls: type[Encoder], given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of the constructor, as in the base class; ``width: auto`` is ignored by encoders without a width."""
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
    """Coordinates ``x`` as points ``(*batch, num_axes)``, in the dtype to compute features in."""
    coords = x.to(exact_dtype(x))[..., None] if encoder.num_axes == 1 else x.to(exact_dtype(x))
    if coords.shape[-1:] != (encoder.num_axes,):
        raise InputError(
            f"{type(encoder).__name__}: points of {encoder.num_axes} axes have the shape (*batch, {encoder.num_axes}), "
            f"got {tuple(x.shape)}"
        )
    return coords


def boxes(encoder: Encoder, x: Tensor, size: Tensor | float) -> tuple[Tensor, Tensor]:
    """Centres and lengths of cells, each ``(*batch, num_axes)``, in the dtype to compute features in."""
    coords = points(encoder, x)
    return coords, torch.as_tensor(size, dtype=coords.dtype, device=coords.device).expand(x.shape).reshape(coords.shape)


def quadrature(count: int, num_axes: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre nodes in the cell of length one around zero, ``(count ** num_axes, num_axes)``, and their weights."""
    nodes, weights = (torch.from_numpy(values / 2).to(like) for values in np.polynomial.legendre.leggauss(count))
    grids = [
        torch.stack(torch.meshgrid(*[values] * num_axes, indexing="ij"), -1).flatten(0, -2) for values in (nodes, weights)
    ]
    return grids[0], grids[1].prod(-1)


def projected_cell(encoder: Encoder, v: Tensor, sizes: Tensor, slopes: Sequence[float]) -> Tensor:
    r"""Features of :math:`v = w \cdot x` averaged over boxes: in closed form along one edge, by quadrature along the others.

    Args:
        encoder: An encoder of one axis.
        v: Projections of the centres, ``(*batch,)``.
        sizes: Lengths of the boxes per axis, ``(*batch, D)``.
        slopes: The numbers ``w``, ``(D,)``.

    Returns:
        ``(*batch, num_features)``.
    """
    extents = [sizes[..., axis] * abs(slope) for axis, slope in enumerate(slopes) if slope]
    if len(extents) == 1:
        return encoder.cell(v, extents[0])
    ordered = torch.stack(extents, -1).sort(-1, descending=True).values
    offsets, weights = quadrature(encoder.cell_nodes, len(extents) - 1, ordered)
    places = v[..., None] + (ordered[..., None, 1:] * offsets).sum(-1)
    return (encoder.cell(places, ordered[..., :1].expand(places.shape)) * weights[:, None]).sum(-2)


def _state(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, also those that are in no ``state_dict``."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


class PositiveParameter:
    """Attribute named as a width: its number, or the exponential of the parameter ``log_<name>`` where it is trained."""

    def __set_name__(self, owner: type[Encoder], name: str) -> None:
        self.name = name

    def __get__(self, encoder: Encoder, owner: type) -> float | Tensor:
        logarithm: Tensor | None = getattr(encoder, f"log_{self.name}", None)
        width: float | Tensor = vars(encoder)[self.name] if logarithm is None else logarithm.exp()
        return width

    def __set__(self, encoder: Encoder, value: float) -> None:
        vars(encoder)[self.name] = value
