"""SSIM of pictures by strips, and the memory that scores and files of a picture take."""

from __future__ import annotations

import numpy as np
import pytest
from skimage.metrics import structural_similarity

from pe_lightning.signals import blocks
from pe_lightning.training.callbacks.scores import picture_ssim


def pictures(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    truth = generator.random(shape, dtype=np.float32)
    return truth + 0.2 * generator.standard_normal(shape, dtype=np.float32), truth


@pytest.mark.parametrize("rows", [1, 5, 34, 100])
def test_ssim_of_strips_is_that_of_the_whole_picture(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    prediction, truth = pictures(41, 30, 3)
    expected = structural_similarity(truth, prediction.clip(0, 1), data_range=1.0, channel_axis=-1)
    monkeypatch.setattr(blocks, "ROW_BLOCK_VALUES", 30 * rows)
    assert picture_ssim(prediction, truth) == pytest.approx(float(expected), rel=1e-6)
