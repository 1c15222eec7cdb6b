"""How a module's reconstructions are scored: PSNR per signal of held-out and of trained samples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from lightning.pytorch import LightningModule
from torch import Tensor

from pe_lightning.data.batches import GridBatch, SignalInfo
from pe_lightning.errors import InputError
from pe_lightning.metrics import SignalPSNR

__all__ = ["Scoring"]


class Scoring(LightningModule):
    """Validation and test of a module that predicts on grids; ``scores`` holds the result per signal after a test."""

    info: SignalInfo | None
    own: slice | None
    train_psnr: SignalPSNR
    test_psnr: SignalPSNR
    scores: dict[str, Tensor]

    @abstractmethod
    def predict_grid(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on a separable grid: ``D`` coordinate vectors ``(n_a,)`` -> ``(S, n_1, ..., n_D, C)``."""

    def validation_step(self, batch: GridBatch, batch_idx: int) -> None:
        """Scores the held-out samples."""
        self.test_psnr.update(self.predict_grid(batch.axes), batch.values, batch.mask)

    def on_validation_epoch_end(self) -> None:
        """Logs ``val/psnr``, mean over signals; nothing when no sample is held out."""
        score = self._over_signals(self.test_psnr.per_signal()) / self.require_info().num_signals
        self.test_psnr.reset()
        if not score.isnan():
            self.log("val/psnr", score.float(), batch_size=1, sync_dist=True)

    def test_step(self, batch: GridBatch, batch_idx: int) -> dict[str, Tensor]:
        """Scores held-out and training samples; returns the prediction on the whole grid for callbacks."""
        prediction = self.predict_grid(batch.axes)
        self.test_psnr.update(prediction, batch.values, batch.mask)
        self.train_psnr.update(prediction, batch.values, batch.train_mask)
        return {"prediction": prediction}

    def on_test_epoch_end(self) -> None:
        """Keeps the scores per signal in ``self.scores`` and logs their means."""
        self.scores = {"test/psnr": self.test_psnr.per_signal().cpu(), "train/psnr": self.train_psnr.per_signal().cpu()}
        self.test_psnr.reset()
        self.train_psnr.reset()
        for name, values in self.scores.items():
            if values.isfinite().all():
                self.log(
                    name if name.startswith("test/") else "test/train_psnr",
                    values.mean().float(),
                    batch_size=1,
                    sync_dist=True,
                )

    def _over_signals(self, values: Tensor) -> Tensor:
        """The sum of ``(S,)`` values over the signals of all processes, ``()``."""
        total = values.sum()
        if self.own is not None:
            total = self.trainer.strategy.reduce(total, reduce_op="sum")
        return total

    def require_info(self) -> SignalInfo:
        """The shape of the signals.

        Raises:
            InputError: If the module has not been built.
        """
        if self.info is None:
            raise InputError(
                f"{type(self).__name__} has no parameters yet: fit it with a Trainer, load a checkpoint, or call "
                "build(SignalInfo(...))"
            )
        return self.info
