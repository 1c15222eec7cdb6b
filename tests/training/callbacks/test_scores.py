"""SSIM of pictures by strips, and the memory that scores and files of a picture take."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from skimage.metrics import structural_similarity

from pe_lightning.results.reconstructions import write_reconstructions
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


def test_scores_and_files_take_little_more_memory_than_a_picture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(blocks, "ROW_BLOCK_VALUES", 1 << 12)
    prediction, truth = pictures(256, 256, 3)
    metrics = {"metric": "psnr", "signals": ["a"], "baselines": {}, "test/psnr_per_signal": [None]}
    write_reconstructions(tmp_path, metrics, prediction[None], truth[None])  # fonts and colour maps are loaded once
    tracemalloc.start()
    try:
        picture_ssim(prediction, truth)
        write_reconstructions(tmp_path, metrics, prediction[None], truth[None], train_mask=np.ones((1, 256, 256), bool))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * truth.nbytes
