"""The contract of an encoder, and the registry of encoders."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn
from typing_extensions import Self

from pe_lightning.errors import InputError
from pe_lightning.registry import Registry

__all__ = ["AUTO", "Encoder", "EncoderLike", "Width", "check_count", "check_positive", "exact_dtype", "registry", "resolve"]

GROUP = "pe_lightning.encoders"

AUTO = "auto"
Width: TypeAlias = float | Literal["auto"] | None
"""A width or frequency range: a number, ``None`` for the rule that follows ``num_features``, or ``"auto"`` for the value
that predicts held-out samples best, chosen when a solver sees the data."""


class Encoder(nn.Module, ABC):
    r"""One axis: :math:`\psi: \mathbb{R} \to \mathbb{R}^K`.

    A subclass calls ``super().__init__(num_features)`` and defines :meth:`forward`. Features are raw: any scaling by
    row norms is the encoding's. Every hyper-parameter has a default that follows ``num_features``, written as ``None``
    in the signature, so that a name alone is a good encoder; the constructor keeps what was *given* (see
    :meth:`given`), so that :meth:`replace` can resolve defaults again for another ``num_features``.

    An encoder whose features depend on all axes at once sets ``joint = True`` and takes ``num_axes``; with
    ``num_axes > 1`` its input is ``(*batch, num_axes)``.

    Args:
        num_features: Number of features ``K`` of the output.

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
    reference: ClassVar[str] = ""
    """Where it is defined: paper and equation."""
    default_rules: ClassVar[Mapping[str, str]] = {}
    """For each argument whose default is ``None``: the rule, in words, such as ``{"sigma": "0.64/K"}``."""
    joint: ClassVar[bool] = False
    """Whether the class takes ``num_axes`` and can encode several axes at once."""
    directional: ClassVar[bool] = False
    """Whether simple encoding in 2-D uses four directions (the papers' choice for shifted encoders) instead of two."""

    num_features: int
    num_axes: int
    _given: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Keeps the arguments that were given, so that :meth:`replace` and checkpoints can rebuild the encoder."""
        self = super().__new__(cls)
        bound = inspect.signature(cls.__init__).bind_partial(self, *args, **kwargs)
        # NumPy numbers, as from a sweep over np.linspace, become Python's: a checkpoint holds plain values only
        given = {key: _plain(value) for key, value in list(bound.arguments.items())[1:]}
        object.__setattr__(self, "_given", given)
        return self

    def __init__(self, num_features: int, num_axes: int = 1) -> None:
        super().__init__()
        self.num_features = check_count(self, "num_features", num_features)
        self.num_axes = check_count(self, "num_axes", num_axes)

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Features of coordinates ``x``.

        Shape:
            ``(*batch,)`` -> ``(*batch, num_features)``; for ``num_axes > 1``, ``(*batch, num_axes)`` is the input.
        """

    def distance(self, delta: Tensor) -> Tensor:
        r"""The encoder's similarity :math:`D(\Delta) = \int \psi(t, x)\,\psi(t, x + \Delta)\,dt` where theory gives it.

        Shape:
            ``(*batch,)`` -> ``(*batch,)``.

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

    def width(self, name: str, value: Width, default: float, maximum: float = 1e12) -> float:
        """The value of a width such as ``sigma``: ``None`` and ``"auto"`` stand for the rule's ``default``.

        Raises:
            InputError: If the value is neither, and not a positive number.
        """
        if value is None or value == AUTO:
            return default
        return check_positive(self, name, value, maximum)

    def automatic(self) -> str | None:
        """The argument that was given as ``"auto"`` and is still to be chosen from data, if any."""
        return next((key for key, value in self._given.items() if isinstance(value, str) and value == AUTO), None)

    def given(self) -> dict[str, Any]:
        """The constructor arguments as they were given; ``None`` stands for a default that follows ``num_features``."""
        return dict(self._given)

    def resolved(self) -> dict[str, Any]:
        """Every constructor argument with the value in force, as plain numbers and strings.

        The value is the attribute of the argument's name; without such an attribute, what was given or the default.
        """
        return {
            key: getattr(self, key, self._given.get(key, parameter.default))
            for key, parameter in registry.parameters(type(self)).items()
        }

    def spec(self) -> dict[str, Any]:
        """A plain description that :func:`resolve` turns back into an equal encoder."""
        return {"name": self.name, **self._given}

    def replace(self, **changes: Any) -> Self:
        """A new encoder of the same class with some constructor arguments changed and defaults resolved again.

        Raises:
            InputError: If the class has no such argument.
        """
        registry.check_arguments(type(self), changes)
        return type(self)(**{**self._given, **changes})

    def extra_repr(self) -> str:
        """The arguments in force, for ``print(encoder)``."""
        return ", ".join(f"{key}={value!r}" for key, value in self.resolved().items() if value is not None)


EncoderLike: TypeAlias = "Encoder | str | Mapping[str, Any]"
"""An encoder, a registered name, or ``{"name": ..., **arguments}``."""

registry: Registry[Encoder] = Registry("encoder", Encoder, GROUP)  # type: ignore[type-abstract]


def resolve(encoder: EncoderLike) -> Encoder:
    """The encoder that a name or a description stands for; an encoder is returned as it is.

    Accepts ``"gau"``, ``{"name": "gau", "sigma": 0.004}`` and ``{"class_path": ..., "init_args": {...}}``.

    Raises:
        InputError: If the name or an argument is unknown, or a value is refused.
    """
    if isinstance(encoder, Encoder):
        return encoder
    if isinstance(encoder, str):
        return registry.create(encoder)
    if isinstance(encoder, Mapping):
        arguments = dict(encoder)
        name = arguments.pop("name", None) or arguments.pop("class_path", None)
        arguments.update(arguments.pop("init_args", None) or {})
        if name is not None:
            return registry.create(name, **arguments)
    raise InputError(f"an encoder is a name such as 'gau', a mapping with a 'name', or an Encoder; got {encoder!r}")


def exact_dtype(x: Tensor) -> torch.dtype:
    """The dtype to compute features of ``x`` in: that of ``x``, but float32 for the half precisions.

    Raises:
        InputError: If ``x`` is not of a floating-point dtype.
    """
    if not x.is_floating_point():
        raise InputError(f"coordinates must be floating-point numbers in [0, 1], got dtype {x.dtype}")
    return torch.promote_types(x.dtype, torch.float32)


def check_count(owner: object, name: str, value: object, minimum: int = 1, maximum: int = 2**63 - 1) -> int:
    """``value`` if it is an integer of at least ``minimum``, else an :class:`InputError` that names it."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not minimum <= int(value) <= maximum:
        upper = "" if maximum == 2**63 - 1 else f" and <= {maximum}"
        raise InputError(f"{type(owner).__name__}: {name} must be an integer >= {minimum}{upper}, got {value!r}")
    return int(value)


def check_positive(owner: object, name: str, value: object, maximum: float = 1e12) -> float:
    """``value`` if it is a number in [1e-12, ``maximum``], else an :class:`InputError` that names it.

    The bounds are far outside anything useful on [0, 1]; past them float32 features overflow to NaN.
    """
    number: Any = value  # compared before it is converted: float() of a very long integer overflows
    if isinstance(value, bool) or not isinstance(value, Real) or not 1e-12 <= number <= maximum:
        raise InputError(
            f"{type(owner).__name__}: {name} must be a positive number from 1e-12 to {maximum:g}, got {value!r}"
        )
    return float(value)


def _plain(value: object) -> object:
    if isinstance(value, (bool, str)) or value is None:
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value
