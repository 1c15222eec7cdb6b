"""A linear layer that is held as its largest coefficients in a multi-resolution basis."""

from __future__ import annotations

from typing import Any, Literal

import torch

from pe_fill.sparse.estimator import KeepLike, SparseField, SparseOptions, SparseRidge, sparse_report
from pe_fill.sparse.lifting import LiftingName
from pe_fill.sparse.network import SparseWeight, ValueType
from pe_lightning.errors import InputError
from pe_lightning.estimators.linear import LinearField
from pe_lightning.training import ComplexLinear, trainer_of
from pe_lightning.training.coordinate import EncoderChoice

SPARSE_KEY = "pe_lightning/sparse"
WEIGHT_NAME = "networks.network.weight"
"""Name of the layer in the state of the module."""


class SparseLinear(ComplexLinear):
    """The largest coefficients of the exact fit of a :class:`ComplexLinear` in a multi-resolution basis.

    The layer is solved for, never trained; a checkpoint holds the kept coefficients and their positions.

    Args:
        encoder: A shifted encoder by name, or one per axis. ``num_features`` is ``K`` per axis; ``auto`` is as many as
            trained samples of a grid, or the size of the grid where they are scattered.
        num_coefficients: Numbers to keep of each signal, of all channels together: a count such as ``100000``, a
            share such as ``0.1``, ``{psnr: 40}`` for the fewest that reach it on the trained samples, or ``auto`` for the
            coefficients above the noise.
        transform: The multi-resolution transform of every axis.
        storage_dtype: Type of the stored numbers: ``float32``, or ``float16`` for half of the bytes.
        center: Whether each signal's mean per channel over the training samples is subtracted before the fit.
        ridge: Ridge of the exact fit, relative to the mean squared norm of the features, or ``auto``: chosen by the
            prediction of held-out training samples.
        choose_bandwidth: Whether the widths of encoders that are given none are ``auto``: chosen like the ridge.
    """

    def __init__(
        self,
        encoder: EncoderChoice,
        num_coefficients: KeepLike = 0.1,
        transform: LiftingName = "9/7",
        storage_dtype: ValueType = "float32",
        center: bool = True,
        ridge: float | Literal["auto"] = "auto",
        choose_bandwidth: bool = False,
    ) -> None:
        super().__init__(
            encoder, normalize=False, center=center, solver="exact", ridge=ridge, choose_bandwidth=choose_bandwidth
        )
        self.options = SparseOptions(num_coefficients, transform, storage_dtype)
        self.sparse_weights: list[SparseWeight] = []
        """The layers of the signals, once they are solved for or loaded."""
        self.save_arguments(num_coefficients=num_coefficients, transform=transform, storage_dtype=storage_dtype)

    @property
    def estimator(self) -> SparseRidge:
        return SparseRidge(self.encoder, self.options, self.ridge, self.center)

    @property
    def num_params(self) -> int:
        """Kept numbers of a signal, its rotation and its mean; the average over signals.

        Before the fit, numbers that will be kept: all of the dense fit, where the number depends on the signal.
        """
        means = self.mean.shape[1] if self.center and self.info is not None else 0
        if not self.sparse_weights:
            dense = super().num_params
            return min(dense, (self.options.count(dense - means) or dense) + means)
        return round(sum(kept.num_params for kept in self.sparse_weights) / len(self.sparse_weights)) + means

    def configure_model(self) -> None:
        trainer = trainer_of(self)
        if trainer is not None and self.is_fitting and trainer.max_steps != 0:
            raise InputError("SparseLinear is solved for, not trained: set --trainer.max_steps 0")
        super().configure_model()

    def take_fit(self, field: LinearField) -> None:
        """Takes the layer, and gives every process the kept numbers of all signals."""
        assert isinstance(field, SparseField)
        layers = field.layers
        if self.shard is not None:
            shares: list[Any] = [None] * self.trainer.world_size
            torch.distributed.all_gather_object(shares, layers)
            layers = [layer for share in shares for layer in share]
            field.solution = sparse_report(field.solutions[0], layers)
        self.sparse_weights = [layer.weight for layer in layers]
        super().take_fit(field)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Saves the layer as its kept numbers and their positions alone."""
        super().on_save_checkpoint(checkpoint)
        if self.sparse_weights:
            del checkpoint["state_dict"][WEIGHT_NAME]
            checkpoint[SPARSE_KEY] = [kept.pack() for kept in self.sparse_weights]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.sparse_weights = [SparseWeight.unpack(packed) for packed in checkpoint.get(SPARSE_KEY, [])]
        if self.sparse_weights:
            checkpoint["state_dict"][WEIGHT_NAME] = torch.stack([kept.weight() for kept in self.sparse_weights])
        super().on_load_checkpoint(checkpoint)
