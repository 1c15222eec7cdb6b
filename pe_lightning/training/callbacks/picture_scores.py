"""Scores of whole reconstructed pictures: SSIM, and metrics of torchmetrics that a configuration names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.image import structural_similarity_index_measure

from pe_lightning.errors import InputError, last_resort, refuse
from pe_lightning.evaluation.scores import summary
from pe_lightning.signals.blocks import grid_blocks
from pe_lightning.training.datamodule import SignalDataModule

Array = npt.NDArray[np.float32]

SSIM_MARGIN = 5
"""Samples from the centre to the edge of the window of SSIM: a Gaussian of 1.5 samples, 11 x 11."""
SSIM_BLOCK = 256
"""Sides of the blocks in which SSIM is computed: it then takes about 100 MB for any picture."""


class PictureScores:
    """Scores of all samples of each reconstructed picture, clamped to [0, 1] as it is shown: SSIM, and of ``metrics``.

    ``update`` of these takes prediction and truth, ``(1, C, H, W)``, and their score is one number.
    """

    def __init__(self, metrics: Sequence[Metric] = ()) -> None:
        self.metrics = {type(metric).__name__: metric for metric in metrics}
        if len(self.metrics) < len(metrics):
            given = ", ".join(type(metric).__name__ for metric in metrics)
            raise InputError(f"RunRecorder: metrics has a class twice, and scores are named after classes; got {given}")
        for metric in metrics:
            for part in metric.modules():
                if isinstance(part, Metric):
                    part.distributed_available_fn = _alone
        self._accepted: tuple[int, ...] = ()

    @property
    def keys(self) -> list[str]:
        """``test/ssim``, and ``test/<class>`` of each metric."""
        return [f"test/{name}" for name in ("ssim", *self.metrics)]

    def check(self, data: SignalDataModule | None) -> None:
        """Refuses metrics that cannot score a picture of random values of the data's shape."""
        if not self.metrics:
            return
        wanted = f"RunRecorder: {', '.join(self.metrics)} needs pictures that are in memory and have no missing samples"
        end = "leave out --trainer.callbacks.metrics"
        if data is None:
            raise InputError(f"{wanted}, but these are other data; {end}")
        info = data.info
        refuse(
            (info.num_points is not None, f"{wanted}, but these are scattered points; {end}"),
            (info.num_axes != 2, f"{wanted}, but these are signals whose number of axes is {info.num_axes}; {end}"),
            (data.signals.streamed, f"{wanted}, but these are read from their file block by block; {end}"),
            (any(data.signals.num_missing or ()), f"{wanted}, but these have missing samples; {end}"),
        )
        shape = (*info.grid, info.channels)
        if shape == self._accepted:  # the command checks before it chooses widths, and the recorder in any Trainer
            return
        generator = torch.Generator().manual_seed(0)
        prediction, truth = (torch.rand(shape, generator=generator).numpy() for _ in range(2))
        for name, metric in self.metrics.items():
            try:
                score_picture(metric, prediction, truth)
            except Exception as error:  # a metric may raise anything
                size = f"{info.grid[0]} x {info.grid[1]} samples and {info.channels} channel(s)"
                raise InputError(f"RunRecorder: {name} cannot score pictures of {size}: {error}") from error
        self._accepted = shape

    def score(self, tested: tuple[Array, Array] | None, num_signals: int) -> dict[str, Any]:
        """The scores as plain values, or why there are none, from prediction and truth ``(S, *grid, C)`` in memory."""
        found = summary(*_per_picture(picture_ssim, "test/ssim", tested, num_signals, smallest=SSIM_MARGIN + 1))
        for name, metric in self.metrics.items():
            found |= summary(*_per_picture(partial(score_picture, metric), f"test/{name}", tested, num_signals))
        return found


def score_picture(metric: Metric, prediction: Array, truth: Array) -> float:
    """The score of a picture ``(H, W, C)`` by a metric of torchmetrics, which is reset."""
    metric.update(_channels_first(prediction).clamp(0, 1), _channels_first(truth))
    score = metric.compute()
    metric.reset()
    if not isinstance(score, Tensor) or score.numel() != 1:
        raise InputError("its score is not one number")
    return float(score)


def picture_ssim(prediction: Array, truth: Array) -> float:
    """SSIM by torchmetrics of a picture ``(H, W, C)`` in [0, 1].

    It holds some twenty arrays of the picture's size, so it gets a block at a time, with the samples around it that the
    window needs; the mean over all blocks is the same.
    """
    total = 0.0
    for block in grid_blocks(truth.shape[:2], (SSIM_BLOCK, SSIM_BLOCK)):
        starts = [max(0, along.start - SSIM_MARGIN) for along in block]
        around = tuple(slice(start, along.stop + SSIM_MARGIN) for start, along in zip(starts, block, strict=True))
        rows, columns = (slice(along.start - start, along.stop - start) for start, along in zip(starts, block, strict=True))
        pair = _channels_first(prediction[around]).clamp(0, 1), _channels_first(truth[around])
        _, similarity = structural_similarity_index_measure(*pair, data_range=1.0, return_full_image=True)
        total += float(similarity[..., rows, columns].sum(dtype=torch.float64))
    return total / truth.size


def _channels_first(picture: Array) -> Tensor:
    """``(H, W, C)`` -> ``(1, C, H, W)``."""
    return torch.from_numpy(picture).permute(2, 0, 1)[None].contiguous()


def _alone() -> bool:
    return False  # the first process computes metrics of pictures alone


def _per_picture(
    function: Callable[[Array, Array], float],
    key: str,
    tested: tuple[Array, Array] | None,
    num_signals: int,
    smallest: int = 1,
) -> tuple[Tensor, str, str]:
    """The scores ``(S,)``, their key, and the reason of NaN."""
    scores, why_not = torch.full((num_signals,), torch.nan, dtype=torch.float64), "a prediction is not finite"
    if tested is None:
        why_not = "the score of a picture needs the signals in memory"
    elif tested[1].ndim != 4 or min(tested[1].shape[1:3]) < smallest:
        why_not = f"the score is for pictures of at least {smallest} x {smallest} samples"
    else:
        for index, (prediction, truth) in enumerate(zip(*tested, strict=True)):
            if np.isnan(truth).any():
                why_not = "the score is for pictures without missing samples"
            elif np.isfinite(prediction).all():
                try:
                    scores[index] = function(prediction, truth)
                except Exception as error:  # an error in a metric must not end a fit that has succeeded
                    why_not = last_resort(error)[0]
                else:
                    why_not = "the metric has no score of such a picture" if scores[index].isnan() else why_not
    return scores, key, why_not
