"""Types of the arguments of encoders, which are checked and recorded when an encoder is constructed."""

from __future__ import annotations

import functools
import inspect
from abc import ABCMeta
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from torch import Tensor

from pe_lightning.signals import validation

PositiveInt: TypeAlias = Annotated[int, 1]
"""An integer of at least 1: the annotation is the least one."""
NonNegativeInt: TypeAlias = Annotated[int, 0]
PositiveFloat: TypeAlias = Annotated[float, "[1e-12, 1e+12]"]
"""A number in the interval of the annotation."""
NonNegativeFloat: TypeAlias = Annotated[float, "[0, 1e+12]"]

CountLike: TypeAlias = PositiveInt | Literal["auto"]
"""A number of features or positions, or ``"auto"``: as many as trained samples along the axis once they are known
(:meth:`Encoder.for_data`), :data:`DEFAULT_NUM_FEATURES` until then."""
WidthLike: TypeAlias = PositiveFloat | Literal["auto"] | None
"""A number, ``None`` for the rule that follows ``num_features``, or ``"auto"`` for the value that predicts held-out samples
best, chosen when a solver sees the data."""


class RecordedArguments(ABCMeta):
    """Checks the arguments of every construction against their types, and records them as plain values.

    Checked are flags, ``Literal`` types, and numbers annotated with a range, such as :data:`PositiveInt`.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(cls.__init__).bind(None, *args, **kwargs)  # type: ignore[misc]
        bound.apply_defaults()
        hints, given = _hints(cls), bound.arguments
        for name in list(given)[1:]:  # plain, since checkpoints hold no NumPy numbers
            given[name] = checked(f"{cls.__name__}: {name}", plain(given[name]), hints.get(name))
        encoder = super().__call__(*bound.args[1:], **bound.kwargs)
        object.__setattr__(encoder, "arguments", dict(list(given.items())[1:]))
        return encoder


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls.__init__, include_extras=True)  # type: ignore[misc]
    except NameError:  # imported for type checkers only: the class checks its arguments itself
        return {}


def checked(name: str, value: Any, hint: Any) -> Any:
    """The value, or an :class:`InputError` if the type has a range, is a choice or a flag, and the value is not of it."""
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
