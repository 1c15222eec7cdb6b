"""The contract of an encoder, and the registry of encoders."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor, nn
from typing_extensions import Self

from pe_lightning.encoders.arguments import CountLike, EncoderRegistry, RecordedArguments, Samples, Width, count_value, plain
from pe_lightning.encoders.coordinates import boxes, exact_dtype, quadrature
from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import run_seed


class Traits:
    """Class attributes by which a class of encoders declares what solvers and encodings read."""

    formula: ClassVar[str] = ""
    """The feature in one line, for tables."""
    width: ClassVar[Width | None] = None
    """The argument that sets the width of the features, if there is one."""
    multiple: ClassVar[int] = 1
    """``num_features`` is a multiple of it."""
    from_samples: ClassVar[Mapping[str, Callable[[Samples], Any]]] = {}
    """Arguments whose default is ``"auto"``, and their values for the trained samples."""
    fallback_ridge: ClassVar[float] = 1e-3
    """A good relative ridge for photographs: of signals too small to hold samples out; larger ones have a handicap."""
    normalizable: ClassVar[bool] = True
    """Whether encodings may scale the features; false for trained tables and for coordinates."""
    joint: ClassVar[bool] = False
    """Whether the class takes ``num_axes`` and can encode several axes at once."""
    axiswise: ClassVar[bool] = True
    """Whether it is meaningful for a single axis; false where it then equals another encoder."""
    directional: ClassVar[bool] = False
    """Whether simple encoding in 2-D uses four directions (the papers' choice for shifted encoders) instead of two."""
    drawn: ClassVar[bool] = False
    """Whether features are drawn at random: fewer of them are then another draw."""
    cell_nodes: ClassVar[int] = 8
    """Nodes per axis of the quadrature of :meth:`cell`."""


class Configurable(nn.Module, metaclass=RecordedArguments):
    """A module that the arguments of its constructor describe: in checkpoints, in copies and in what is printed."""

    arguments: dict[str, Any]
    """Every constructor argument as given, or its default: the description in checkpoints and of copies."""

    @property
    def name(self) -> str:
        """The registered name, or the full class path of an unregistered encoder."""
        return registry.name_of(type(self))

    @property
    def is_open(self) -> bool:
        """Whether the number of features is left to the data."""
        return bool(self.arguments.get("num_features") == "auto")

    def resolved(self) -> dict[str, Any]:
        """The value of every constructor argument: the attribute of its name, or what was given."""
        return {key: plain(getattr(self, key, given)) for key, given in self.arguments.items()}

    def spec(self) -> dict[str, Any]:
        """The description ``{"name": ..., **arguments}``, from which :func:`resolve` makes an equal encoder."""
        return {"name": self.name, **self.arguments}

    def changed_arguments(self) -> dict[str, Any]:
        """The arguments that differ from their defaults; a seed that is not given is the seed of the run."""
        cls: Any = type(self)
        defaults = {key: parameter.default for key, parameter in registry.parameters(cls).items()}
        if defaults.get("seed", 0) is None:
            defaults["seed"] = run_seed()
        return {key: value for key, value in self.arguments.items() if value != defaults[key]}

    def copy(self, **changes: Any) -> Self:
        """A copy with some arguments changed; learned values stay, except where the changes set their shape or start."""
        changes = registry.arguments(type(self), changes)
        if not changes:
            return copy.deepcopy(self)

        def made(given: Mapping[str, Any]) -> Any:
            with torch.random.fork_rng(devices=[]), torch.device("cpu"):
                return type(self)(**{**self.arguments, **given})

        encoder: Self = made(changes)
        state = _state(self)
        initial = _state(made({})) if state else {}
        usual = next((tensor for tensor in state.values() if tensor.is_floating_point()), None)
        for key, tensor in _state(encoder).items():
            if key in state:
                unchanged = key in initial and torch.equal(tensor, initial[key])
                tensor.data = (state[key].detach().clone() if unchanged else tensor.data).to(state[key])
                tensor.requires_grad_(state[key].requires_grad)
            elif usual is not None:  # a new tensor goes where the others are
                tensor.data = tensor.data.to(usual.device, usual.dtype if tensor.is_floating_point() else None)
        encoder.cell_size = self.cell_size
        return encoder.train(self.training)

    def extra_repr(self) -> str:
        return ", ".join(f"{key}={value!r}" for key, value in self.resolved().items() if value is not None)


class Encoder(Traits, Configurable):
    r"""One axis: :math:`\psi: \mathbb{R} \to \mathbb{R}^K`.

    A subclass calls ``super().__init__(num_features)`` and defines :meth:`forward`; the rest is optional. Features are raw:
    encodings scale them. Every argument has a type, which it is checked against (:mod:`pe_lightning.encoders.arguments`),
    and a default. Initial values of parameters follow from the arguments alone: random ones are drawn from a ``seed``, whose
    default ``None`` becomes the seed of the run.

    Args:
        num_features: Number of features ``K`` of the output.
        num_axes: Number of coordinates of a point.

    Shape:
        ``(*batch,)`` in [0, 1], or ``(*batch, num_axes)`` for several axes -> ``(*batch, num_features)``; dtype and device
        of the input are kept, which is checked at the first call. :meth:`forward` gets NaN for coordinates that are not
        finite.

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

    cell_size: float | None = None
    """Length of the cells over which features are averaged; ``None``: features at points."""
    _is_checked: bool = False
    """Whether shape and dtype of the features have been checked."""

    def __init__(self, num_features: CountLike, num_axes: int = 1) -> None:
        super().__init__()
        self.num_features = count_value(type(self).__name__, num_features)
        self.num_axes = num_axes

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Features at coordinates ``x``, differentiable with respect to the encoder's parameters."""

    def __call__(self, x: Tensor, size: float | None = None) -> Tensor:
        """The features at ``x``, or their means over cells of the length ``size``, by default :attr:`cell_size`."""
        coords = x.to(exact_dtype(x))
        coords = coords.add(coords.detach(), alpha=0)  # 0 times a number that is not finite is NaN
        size = size or self.cell_size
        features: Tensor = super().__call__(coords) if size is None else self.cell(coords, size)
        if not self._is_checked:
            self._check(features, coords)
        return features.to(x.dtype)

    def _check(self, features: Any, x: Tensor) -> None:
        """Refuses features of another shape or dtype than the class declares."""
        wanted = (*(x.shape if self.num_axes == 1 else x.shape[:-1]), self.num_features)
        found = (tuple(features.shape), features.dtype) if isinstance(features, Tensor) else (type(features).__name__,)
        # autocast changes the dtype of layers
        if found != (wanted, x.dtype) and (found[0] != wanted or not torch.is_autocast_enabled(x.device.type)):
            raise InputError(
                f"encoder {self.name!r} has num_features={self.num_features}, and returns {', '.join(map(str, found))} for "
                f"coordinates {tuple(x.shape)}, {x.dtype}: forward returns {wanted}, {x.dtype}; a class calls "
                "super().__init__(num_features) with the number that it returns"
            )
        self._is_checked = True

    def cell(self, x: Tensor, size: Tensor | float) -> Tensor:
        """Features averaged over cells with centres ``x`` and lengths ``size`` > 0, which are broadcast; by quadrature."""
        coords, sizes = boxes(self, x, size)
        offsets, weights = quadrature(self.cell_nodes, self.num_axes, coords)
        places = coords[..., None, :] + sizes[..., None, :] * offsets  # (*batch, nodes, num_axes)
        features: Tensor = self.forward(places[..., 0] if self.num_axes == 1 else places)
        return (features * weights[:, None]).sum(-2).to(x.dtype)

    @property
    def support(self) -> float | None:
        """Distance on the [0, 1] domain beyond which a feature is negligible; ``None`` if there is none."""
        return None

    def periodic(self) -> Encoder:
        """This encoder with features of period 1; an :class:`InputError` if it has none."""
        raise InputError(
            f"encoder {self.name!r} has no periodic features, and an axis of the data is periodic: use linf or a shifted "
            "encoder, such as laplace, gau or tri"
        )

    def penalty(self) -> Tensor:
        """An auxiliary loss on the encoder's own parameters, ``()``."""
        return torch.zeros(())

    def distance(self, delta: Tensor) -> Tensor:
        r"""The similarity :math:`D(\Delta) = \int \psi(t, x)\,\psi(t, x + \Delta)\,dt`, ``(*batch,)`` -> ``(*batch,)``."""
        raise NotImplementedError(f"{type(self).__name__} has no closed form of D(delta)")

    def stable_rank(self, num_samples: int) -> float:
        r"""The predicted stable rank :math:`\|\Psi\|_F^2 / \|\Psi\|_2^2` of the features of ``num_samples`` points."""
        raise NotImplementedError(f"{type(self).__name__} has no closed form of the stable rank")


def _state(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


EncoderLike: TypeAlias = "Encoder | str | Mapping[str, Any]"
"""An encoder, a registered name, or ``{"name": ..., **arguments}``."""

REMOVED = {
    "directional": "'directional' is a layout now: give its base as the encoder, and the number of directions, "
    "--model.encoder gau --model.layout directions --model.directions 8, in Python SimpleMLP('gau', layout='directions', "
    "directions=8); its base_width is the encoder's width",
    **{
        network: f"{network!r} is a network and no encoder: --config image/{network}, in Python "
        f"SimpleMLP('identity', activation={activation!r}) with max_steps"
        for network, activation in (("siren", "sine"), ("finer", "finer"), ("wire", "gabor"))
    },
}
"""What to type for names that are taken for those of encoders."""

registry: EncoderRegistry[Encoder] = EncoderRegistry("encoder", Encoder, "pe_lightning.encoders", removed=REMOVED)  # type: ignore[type-abstract]
