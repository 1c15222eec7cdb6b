"""Networks of many signals, evaluated together by :func:`torch.func.vmap`."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

from pe_lightning.errors import InputError, paragraph
from pe_lightning.networks.base import Network
from pe_lightning.networks.scaling import TargetScaling


class VmapEnsemble(nn.Module):
    """``S`` networks of one architecture, one per signal, by :func:`torch.func.vmap`.

    The tensors of :attr:`network` get a leading axis of length ``S``, except the shared ones. All signals start from the
    same values, so that the fit of a signal does not depend on other signals.

    Args:
        network: The network of one signal, with its initial values.
        num_signals: Number of signals ``S``.
        shared: Names of parameters and buffers of the network that all signals share.
        chunk: Number of signals that are evaluated at a time, to save memory; their hidden layers are then computed again in
            the backward pass. ``None``: all.
    """

    def __init__(self, network: nn.Module, num_signals: int, shared: Collection[str] = (), chunk: int | None = None) -> None:
        super().__init__()
        self.network = network
        self.num_signals = num_signals
        self.chunk = chunk
        self.shared = frozenset(shared)
        named = itertools.chain(network.named_parameters(), network.named_buffers())
        # places, not tensors: `.to()` and `load_state_dict` may replace these; no walk over the modules in a step
        self._per_signal = {name: _owner(network, name) for name, _ in named if name not in self.shared}
        encoding = network.encoding if isinstance(network, Network) else None
        names = [] if encoding is None else [f"encoding.{name}" for name, _ in encoding.named_parameters()]
        self._encoding = [_owner(network, name) for name in names]
        self.features_are_shared = self.shared.issuperset(names)
        """Whether all signals have the same features at the same coordinates."""
        for _, tensor in self.per_signal():
            tensor.data = tensor.data.expand(num_signals, *tensor.shape).contiguous()

    @classmethod
    def of_signals(
        cls, network: nn.Module, num_signals: int, shared_encoder: bool, chunk: int | None = None
    ) -> VmapEnsemble:
        """Networks that share their ``encoding``, unless it is trained and ``shared_encoder`` is false.

        Modules that are no :class:`~pe_lightning.networks.Network` share nothing.
        """
        if not isinstance(network, Network):
            return cls(network, num_signals, chunk=chunk)
        is_trained = any(parameter.requires_grad for parameter in network.encoding.parameters())
        named = [*network.named_parameters(), *network.named_buffers()]
        all_shared = shared_encoder or not is_trained
        # integers, such as sizes of tables, follow from arguments
        shared = [name for name, x in named if name.startswith("encoding.") and (all_shared or not x.is_floating_point())]
        return cls(network, num_signals, shared, chunk)

    def per_signal(self) -> Iterator[tuple[str, Tensor]]:
        """The parameters and buffers with one entry per signal, ``(S, ...)``, by name."""
        yield from ((name, getattr(*owner)) for name, owner in self._per_signal.items())

    @property
    def num_params(self) -> int:
        """Trainable parameters of one signal: its own and the shared ones."""
        named = ((name, p) for name, p in self.network.named_parameters() if p.requires_grad)
        return sum(p.numel() if name in self.shared else p[0].numel() for name, p in named)

    @property
    def features_are_trained(self) -> bool:
        return any(getattr(module, name).requires_grad for module, name in self._encoding)

    @property
    def scaling(self) -> TargetScaling | None:
        """The scaling of the targets, with buffers of all signals; ``None``: networks are trained on the values."""
        found = getattr(self.network, "scaling", None)
        return found if isinstance(found, TargetScaling) else None

    def replace_signals(self, change: Callable[[Tensor], Tensor]) -> None:
        """Replaces every ``(S, ...)`` tensor by one for other signals, ``(S', ...)``."""
        for _, tensor in self.per_signal():
            tensor.data = change(tensor.data)
            self.num_signals = len(tensor)

    def network_of(self, signal: int) -> nn.Module:
        """A copy of the network of one signal."""
        network = copy_of(self.network)
        for name, tensor in itertools.chain(network.named_parameters(), network.named_buffers()):
            tensor.data = tensor.data if name in self.shared else tensor.data[signal].clone()
        return network

    def call(self, method: str, *inputs: Any, each: bool = False) -> Any:
        """Calls a method of every network; the result has a leading axis of length ``S``.

        Args:
            method: Name of the method; it takes and returns tensors, or lists of them. It reads parameters and buffers as
                attributes of their modules, without the axis of signals.
            inputs: Arguments of the method.
            each: Whether each signal has its own inputs, with a leading axis of length ``S``; else they are shared.
        """
        count = self.num_signals
        size = self.chunk or count
        if size >= count:
            return self._call_some(0, count, method, inputs, each)
        ends = [(first, min(first + size, count)) for first in range(0, count, size)]
        if torch.is_grad_enabled() and self.chunk is not None:
            parts = [checkpoint(self._call_some, *end, method, inputs, each, use_reentrant=False) for end in ends]
        else:
            parts = [self._call_some(*end, method, inputs, each) for end in ends]
        return tree_map(lambda *pieces: torch.cat(pieces), *parts)

    def _call_some(self, first: int, last: int, method: str, inputs: tuple[Any, ...], each: bool) -> Any:
        """As :meth:`call`, for some of the signals."""
        if last - first == 1:
            result = self._call_one(first, method, inputs, each)
            return result.unsqueeze(0) if isinstance(result, Tensor) else tree_map(lambda x: x.unsqueeze(0), result)
        target = _Method(self.network, method)

        def one(state: dict[str, Tensor], *inputs: Any) -> Any:
            return functional_call(target, state, inputs, tie_weights=False)

        some = last - first < self.num_signals

        def own(tensor: Tensor) -> Tensor:
            return tensor[first:last] if some else tensor

        return vmap(one, (0, *[0 if each else None] * len(inputs)), randomness="different")(
            self._state(own), *(tree_map(own, inputs) if each else inputs)
        )

    def _call_one(self, signal: int, method: str, inputs: tuple[Any, ...], each: bool) -> Any:
        """As :meth:`call`, for one signal, without the leading axis.

        An entry of a module's ``__dict__`` hides its parameter or buffer of the same name: less work for every tensor than
        :func:`torch.func.functional_call`.
        """
        alone = self.num_signals == 1

        def own(tensor: Tensor) -> Tensor:
            # the gradient of an indexed tensor is copied into zeros
            return tensor.squeeze(0) if alone else tensor[signal]

        inputs = tree_map(own, inputs) if each else inputs
        if torch.compiler.is_compiling():  # a compiled program changes no module
            return functional_call(_Method(self.network, method), self._state(own), inputs, tie_weights=False)
        try:
            for module, name in self._per_signal.values():
                vars(module)[name] = own(getattr(module, name))
            return getattr(self.network, method)(*inputs)
        finally:
            for module, name in self._per_signal.values():
                vars(module).pop(name, None)

    def _state(self, own: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """What ``own`` takes of the tensors of all signals, by their names in :class:`_Method`."""
        return {f"network.{name}": own(tensor) for name, tensor in self.per_signal()}

    def penalty(self) -> Tensor:
        """The sum of the auxiliary losses of the encoders, ``()``: of one network if all signals share their features."""
        penalties: Tensor = self.call("penalty")
        return penalties[0] if self.features_are_shared else penalties.sum()

    @torch.no_grad()
    def hidden(self, coords: Tensor) -> list[Tensor]:
        """The activations of every hidden layer at points ``(S or 1, P, D)``, each ``(S, P, width)``."""
        each = len(coords) > 1
        activations: list[Tensor] = self.call("hidden", coords if each else coords[0], each=each)
        return activations

    @torch.no_grad()
    def change(self, method: str, *inputs: Any, each: bool = False) -> None:
        """Calls a method that changes the network in place, one signal after another; arguments as in :meth:`call`."""
        for signal in range(self.num_signals):
            self._call_one(signal, method, inputs, each)

    def forward(self, coords: Tensor) -> Tensor:
        """Values of every signal at the same points: ``(*batch, D)`` -> ``(S, *batch, C)``."""
        values: Tensor = self.call("forward", coords)
        return values


def copy_of(network: nn.Module) -> nn.Module:
    """A deep copy; tensors that an evaluation leaves as attributes have none."""
    try:
        return copy.deepcopy(network)
    except RuntimeError as error:
        raise InputError(
            f"{type(network).__name__} cannot be copied: {paragraph(str(error), 300)}; leave out computed tensors as "
            "attributes, and use torch.nn.utils.parametrizations.weight_norm in place of torch.nn.utils.weight_norm"
        ) from error


def _owner(network: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module that holds a tensor of a network, and the tensor's name in the module."""
    path, _, attribute = name.rpartition(".")
    return network.get_submodule(path), attribute


class _Method(nn.Module):
    """A module whose ``forward`` is another method of a network, for :func:`torch.func.functional_call`.

    The parameters of a module that is used twice, such as an encoder of several axes, are replaced once, under its first
    name; with ``tie_weights`` they would not be restored.
    """

    def __init__(self, network: nn.Module, method: str) -> None:
        super().__init__()
        self.network = network
        self.method = method

    def forward(self, *inputs: Any) -> Any:
        return getattr(self.network, self.method)(*inputs)
