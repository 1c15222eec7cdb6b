"""The complex networks of all signals, evaluated together by the same few large products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder
from pe_lightning.encodings import Complex
from pe_lightning.encodings.complex import MAX_VALUES_AT_ONCE
from pe_lightning.linalg import full_precision, largest_eigenvalue, without_autocast
from pe_lightning.networks.complex import ComplexNetwork
from pe_lightning.networks.ensemble import VmapEnsemble
from pe_lightning.networks.quadratic import QuadraticErrors
from pe_lightning.signals.batches import GridBatch, PointBatch


class ComplexEnsemble:
    """Evaluates a :class:`~pe_lightning.networks.VmapEnsemble` of complex networks together.

    Channels precede samples, ``(S, C, ...)``, so that the last mode product is one large matrix product. The weight is
    ``(S, outputs, K_1, ..., K_D)``, the mean ``(S, C)``.
    """

    def __init__(self, networks: VmapEnsemble) -> None:
        network = networks.network
        assert isinstance(network, ComplexNetwork)
        self.networks, self.network = networks, network
        self.encoding: Complex = network.encoding

    def errors(
        self, batch: GridBatch | PointBatch, features: list[Any] | None = None, target: Tensor | None = None
    ) -> Tensor:
        """Prediction minus truth, ``(S, C * P)``.

        Signals that share their features are evaluated together by mode products with a leading axis, and samples of a
        grid through the whole grid where that takes fewer multiplications. Both are exact.

        Args:
            batch: The samples.
            features: The :meth:`axis_features` of the batch, if they are known.
            target: The :meth:`target` of the batch, if it is known.
        """
        if not self.networks.features_are_shared:
            return self._errors_of_own_features(batch)
        target = self.target(batch) if target is None else target
        scattered = isinstance(batch, PointBatch) and batch.index is None
        features = features or ([] if scattered else self.axis_features(batch))
        if isinstance(batch, GridBatch):
            linear = self.network.linear(features)
        elif batch.index is None:
            linear = self._linear_at_points(batch.coords)
        elif self._grid_is_cheaper(batch):
            # the whole grid by mode products, then its samples: exact, with far fewer operations
            where = batch.index.unsqueeze(1).expand(*self.network.weight.shape[:2], -1)
            linear = self.network.linear(features).flatten(2).gather(2, where)
        else:
            linear = self._linear_at_samples(features, batch.index)
        return (self._respond(linear) - target).flatten(1)

    def quadratic_errors(self, batch: GridBatch | PointBatch) -> QuadraticErrors | None:
        """The squared errors of single linear layers on fixed features at samples of a grid; ``None`` elsewhere."""
        scattered = isinstance(batch, PointBatch) and (batch.index is None or not self._grid_is_cheaper(batch))
        if self.network.head is not None or self.encoding.is_line or scattered:
            return None
        features, target = self.axis_features(batch), self.target(batch)
        if isinstance(batch, GridBatch):
            return QuadraticErrors(features, target)
        assert batch.index is not None
        sizes, (signals, channels, _) = [len(rows) for rows in features], target.shape
        known = torch.zeros(len(batch.index), math.prod(sizes), dtype=torch.bool, device=target.device)
        known.scatter_(1, batch.index, True)
        values = target.new_zeros(signals, channels, known.shape[1])
        values.scatter_(2, batch.index.unsqueeze(1).expand(signals, channels, -1), target)
        return QuadraticErrors(features, values.view(signals, channels, *sizes), known.view(-1, *sizes))

    def curvature(self, batch: GridBatch | PointBatch) -> float | None:
        """A bound of the second derivative of the mean squared error of single linear layers on a grid; ``None`` if zero."""
        assert batch.axes is not None
        with full_precision(self.network.weight.device):
            features = self.encoding.axis_features([x.to(self.network.weight) for x in batch.axes])
            eigenvalues = [largest_eigenvalue(rows) for rows in features]
        return 2 * math.prod(eigenvalues) / math.prod(batch.values.shape[1:]) or None

    @torch.no_grad()
    def set_encoders(self, signal: int, encoders: Sequence[Encoder]) -> None:
        """Sets the parameters of the encoders of one signal, or of all signals if these share them."""
        network = self.networks.network_of(signal)
        assert isinstance(network, ComplexNetwork)
        for encoder, given in zip(network.encoding.encoders, encoders, strict=True):
            for parameter, value in zip(encoder.parameters(), given.parameters(), strict=True):
                parameter.copy_(value)
        for name, parameter in network.named_parameters():
            if name.startswith("encoding."):
                whole = self.network.get_parameter(name)
                (whole if name in self.networks.shared else whole[signal]).copy_(parameter)

    def at(self, points: Tensor) -> Tensor:
        """Values of signals that share their features at points: ``(P, D)`` -> ``(S, P, C)``."""
        return self._respond(self._linear_at_points(points[None])).transpose(1, 2) + self.network.mean[:, None]

    def grid(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on a separable grid: ``D`` coordinate vectors ``(n_a,)`` -> ``(S, n_1, ..., n_D, C)``."""
        network, count, dtype = self.network, self.networks.num_signals, self.network.weight.dtype
        axes = [x.to(torch.promote_types(x.dtype, dtype)) for x in axes]
        # a few rows at a time, for their features and for hidden layers of `width` values per sample
        per_row = 0 if network.head is None else network.weight.shape[1] * count * math.prod(map(len, axes[1:]))
        # features that are computed per sample of a long axis, roughly
        per_row = max(per_row, 64 if self.encoding.is_line else self.encoding.num_features[0])
        some_rows = torch.split(axes[0], max(1, MAX_VALUES_AT_ONCE // per_row))
        if not self.networks.features_are_shared:
            return torch.cat([self.networks.call("grid", [some, *axes[1:]]) for some in some_rows], 1)
        blocks = []
        mean = network.mean.reshape(count, *[1] * len(axes), -1)
        for some in some_rows:
            features = self.encoding.operators([some, *axes[1:]], dtype, find_identity=not torch.is_grad_enabled())
            blocks.append(self._respond(network.linear(features)).movedim(1, -1) + mean)
        return torch.cat(blocks, 1) if len(blocks) > 1 else blocks[0]

    def target(self, batch: GridBatch | PointBatch) -> Tensor:
        """Values without the mean, ``(S, C, *samples)``, contiguous."""
        values = batch.values
        centred = values - self.network.mean.reshape(len(values), *[1] * (values.ndim - 2), -1)
        return centred.movedim(-1, 1).contiguous()

    def axis_features(self, batch: GridBatch | PointBatch) -> list[Any]:
        """Scaled features ``(N_a, K_a)``, tensors or operators, in the precision of the weights, autocast or not."""
        assert batch.axes is not None
        with without_autocast(self.network.weight.device):
            features: list[Any] = self.encoding.operators(batch.axes, self.network.weight.dtype)
        return features

    def _respond(self, linear: Tensor) -> Tensor:
        if self.network.head is None:
            return linear
        values: Tensor = self.networks.call("respond", linear, each=True)
        return values

    def _errors_of_own_features(self, batch: GridBatch | PointBatch) -> Tensor:
        if isinstance(batch, GridBatch):
            prediction = self.networks.call("grid", list(batch.axes))
        else:
            own = len(batch.coords) > 1
            prediction = self.networks.call("forward", batch.coords if own else batch.coords[0], each=own)
        errors: Tensor = (prediction - batch.values).flatten(1)
        return errors

    def _linear_at_points(self, coords: Tensor) -> Tensor:
        """Output of the linear layer at points: ``(S or 1, P, D)`` -> ``(S, outputs, P)``."""
        weight = self.network.weight
        if coords.shape[0] == 1:
            return self.encoding.points(weight, coords[0])
        return torch.stack([self.encoding.points(w, x) for w, x in zip(weight, coords, strict=True)])

    def _linear_at_samples(self, features: Sequence[Tensor], index: Tensor) -> Tensor:
        """Output of the linear layer at samples of a grid: indices ``(S or 1, P)`` -> ``(S, outputs, P)``."""
        weight, sizes = self.network.weight, tuple(len(rows) for rows in features)
        if len(index) == 1:
            return self.encoding.samples(weight, features, torch.unravel_index(index[0], sizes))
        pairs = zip(weight, index, strict=True)
        return torch.stack([self.encoding.samples(w, features, torch.unravel_index(i, sizes)) for w, i in pairs])

    def _grid_is_cheaper(self, batch: PointBatch) -> bool:
        assert batch.axes is not None
        if self.encoding.is_line:
            return True
        features, sizes = self.encoding.num_features, [len(x) for x in batch.axes]
        grid = sum(math.prod(sizes[: a + 1]) * math.prod(features[a:]) for a in range(len(sizes)))
        point = sum(math.prod(features[a:]) for a in range(len(sizes)))
        return bool(grid <= batch.coords.shape[1] * point)
