"""Signals as functions of coordinates: values, derivatives and standard deviations at any points."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from typing_extensions import Self

from pe_lightning.errors import InputError
from pe_lightning.estimators.base import POINTS_AT_ONCE
from pe_lightning.linalg import full_precision
from pe_lightning.networks import VmapEnsemble
from pe_lightning.signals.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.training.base import TrainedModule, datamodule_of
from pe_lightning.training.datamodule import OutputGrid


class FunctionModule(TrainedModule):
    """A set of signals as functions of coordinates, one network per signal; a subclass builds and fits the networks."""

    networks: VmapEnsemble
    info: SignalInfo | None = None
    """The shape of the signals, once the networks exist."""

    @abstractmethod
    def predict_grid(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on a separable grid: ``D`` coordinate vectors ``(n_a,)`` -> ``(S, n_1, ..., n_D, C)``."""

    @property
    def has_std(self) -> bool:
        """Whether :meth:`std` is available: not by default."""
        return False

    def std(self, coords: Tensor, level: float | None = None) -> Tensor:
        """Standard deviations about the predictions of one signal: ``(*batch, D)`` in [0, 1) -> ``(*batch, C)``."""
        raise InputError(f"{type(self).__name__} has no standard deviations: use Adaptive, or an exact ComplexLinear")

    @property
    def encoding(self) -> Any:
        """The encoding of the networks; tensors that each signal has for itself have a leading axis."""
        return self.networks.network.encoding

    def require_info(self) -> SignalInfo:
        """The shape of the signals."""
        if self.info is None:
            raise InputError(
                f"{type(self).__name__} has no parameters yet: fit it with a Trainer, load a checkpoint, or call "
                "build(SignalInfo(...))"
            )
        return self.info

    def on_predict_start(self) -> None:
        """Predictions on a grid of another size are means over the cells of that grid, if the samples are means."""
        output, info = datamodule_of(self.trainer, OutputGrid), self.info
        if output is not None and info is not None and info.cells:
            self.of_cells([1 / n for n in output.grid(info)])

    def on_predict_end(self) -> None:
        if self.info is not None:
            self.encoding.cells = self.info.cells

    def of_cells(self, sizes: Sequence[float]) -> Self:
        """This module, whose predictions are from now on means over cells of these lengths per axis; of length 0: values."""
        self.encoding.cells = tuple(sizes)
        return self

    def predict_step(self, batch: Sequence[Tensor] | Tensor, batch_idx: int = 0) -> Tensor:
        """Values on the grid of coordinate vectors, ``(S, n_1, ..., n_D, C)``, or at points ``(P, D)``, ``(S, P, C)``.

        In full precision: scores are of the weights, whatever the training steps round.
        """
        with full_precision(self.device):
            if not isinstance(batch, Tensor):
                return self.predict_grid(batch)
            self.encoding.check_points(batch)
            return torch.cat([self.evaluate("forward", some) for some in torch.split(batch, POINTS_AT_ONCE)], 1)

    @property
    def label(self) -> str:
        return type(self).__name__

    def at(self, points: Tensor) -> Tensor:
        """Values at points, in full precision: ``(P, D)`` in [0, 1) -> ``(S, P, C)``."""
        return self.predict_step(points.to(self.device))

    def grid(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on a separable grid: ``D`` coordinate vectors ``(n_a,)`` -> ``(S, n_1, ..., n_D, C)``."""
        return self.predict_step([x.to(self.device) for x in axes])

    def predicted(self, batch: GridBatch | PointBatch) -> Tensor:
        """The prediction at the samples of an evaluation batch, of the shape of its values."""
        return self.predict_step(batch.axes if isinstance(batch, GridBatch) else batch.coords[0])

    def forward(self, coords: npt.ArrayLike | Tensor) -> Tensor:
        """Values at any coordinates: ``(*batch, D)`` in [0, 1) -> ``(S, *batch, C)``; differentiable."""
        given = coords if isinstance(coords, Tensor) else torch.as_tensor(np.asarray(coords), device=self.device)
        return self._at("forward", given)

    def gradient(self, coords: Tensor) -> Tensor:
        """First derivatives at any coordinates: ``(*batch, D)`` -> ``(S, *batch, C, D)``; differentiable.

        The unit is values per unit of the coordinates, which is the whole length of an axis: divide by the number of
        samples ``N_a`` for the change from one sample of the axis to the next.
        """
        return self._at("gradient", coords)

    def laplacian(self, coords: Tensor) -> Tensor:
        r"""The Laplacian :math:`\sum_a \partial^2 f / \partial x_a^2` at any coordinates; differentiable.

        ``(*batch, D)`` -> ``(S, *batch, C)``, in values per squared unit of the coordinates.
        """
        return self._at("laplacian", coords)

    def _at(self, name: str, coords: Tensor) -> Tensor:
        """:meth:`evaluate` at ``(*batch, D)``: ``(S, *batch, *rest)``."""
        info = self.require_info()
        self.encoding.check_points(coords)
        found = self.evaluate(name, coords.to(next(self.parameters()).dtype).reshape(-1, info.num_axes))
        return found.reshape(len(found), *coords.shape[:-1], *found.shape[2:])

    def evaluate(self, name: str, points: Tensor) -> Tensor:
        """A function of points that are known to be valid, ``(P, D)``.

        Args:
            name: ``forward`` for values ``(S, P, C)``, ``gradient`` for ``(S, P, C, D)`` or ``laplacian`` for ``(S, P, C)``.
            points: The points.
        """
        # vmap takes no operation in place on a slope that is the same for all signals, times a feature that is not
        in_turn = name != "forward" and not self.networks.features_are_shared
        found: Tensor = self.networks.call(name, points.to(next(self.parameters()).dtype), in_turn=in_turn)
        return found
