"""SSIM of pictures, and metrics of torchmetrics that a configuration names."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import DEMO, NO_WANDB, error_of, fit
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI
from skimage.metrics import structural_similarity
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.image import StructuralSimilarityIndexMeasure, UniversalImageQualityIndex

from pe_lightning import ImageDataModule, RunRecorder
from pe_lightning.cli.arguments import rewrite
from pe_lightning.cli.parser import parse
from pe_lightning.errors import InputError
from pe_lightning.signals.cache import Storage
from pe_lightning.signals.loaders import Batching
from pe_lightning.training import TensorDataModule
from pe_lightning.training.callbacks import WandbSettings, picture_scores
from pe_lightning.training.callbacks.picture_scores import PictureScores, picture_ssim

SSIM = "torchmetrics.image.StructuralSimilarityIndexMeasure"
QUALITY = "torchmetrics.image.UniversalImageQualityIndex"
NAMED = ["--trainer.callbacks.metrics"]


def pictures(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    truth = generator.random(shape, dtype=np.float32)
    return truth + 0.2 * generator.standard_normal(shape, dtype=np.float32), truth


def first(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array).permute(2, 0, 1)[None]


@pytest.mark.parametrize("side", [7, 16, 100])
def test_ssim_of_blocks_is_that_of_the_whole_picture(monkeypatch: pytest.MonkeyPatch, side: int) -> None:
    prediction, truth = pictures(41, 30, 3)
    # scikit-image leaves out the border; torchmetrics reflects the picture there
    padded = [np.pad(each, ((5, 5), (5, 5), (0, 0)), mode="reflect") for each in (truth, prediction.clip(0, 1))]
    options: dict[str, Any] = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    expected = structural_similarity(*padded, data_range=1.0, channel_axis=-1, **options)
    monkeypatch.setattr(picture_scores, "SSIM_BLOCK", side)
    assert picture_ssim(prediction, truth) == pytest.approx(float(expected), rel=1e-5)
    whole = StructuralSimilarityIndexMeasure(data_range=1.0)(first(prediction).clamp(0, 1), first(truth))
    assert picture_ssim(prediction, truth) == pytest.approx(float(whole), rel=5e-7)


def test_pictures_without_a_score_say_why() -> None:
    prediction, truth = (np.stack([each, each]) for each in pictures(12, 9, 1))
    scores = PictureScores([UniversalImageQualityIndex()])
    assert scores.keys == ["test/ssim", "test/UniversalImageQualityIndex"]
    prediction[1, 2, 3] = np.inf
    found = scores.score((prediction, truth), 2)
    for key in scores.keys:
        assert found[key] is None
        assert found[f"{key}_reason"] == "a prediction is not finite"
        assert [value is None for value in found[f"{key}_per_signal"]] == [False, True]
    small = PictureScores().score((truth[:, :5, :5], truth[:, :5, :5]), 2)
    assert "at least 6 x 6" in small["test/ssim_reason"]
    truth[0, 0, 0] = np.nan
    assert "missing samples" in scores.score((truth, truth), 2)["test/ssim_reason"]
    assert "in memory" in scores.score(None, 2)["test/ssim_reason"]
    black = np.zeros((1, 9, 9, 3), np.float32)
    failed = PictureScores([OneGrey()]).score((black, black), 1)  # must not end a fit that succeeded
    assert (failed["test/ssim"], failed["test/OneGrey"]) == (1, None)
    assert "grey pictures only" in failed["test/OneGrey_reason"]


class OneGrey(Metric):
    """Refuses colour; its error is one of its own."""

    def update(self, prediction: Tensor, target: Tensor) -> None:
        if target.shape[1] > 1:
            raise AttributeError("grey pictures only")

    def compute(self) -> Tensor:
        return torch.zeros(2)


@pytest.mark.parametrize(
    ("shape", "metric", "message"),
    [
        ((1, 24, 24, 3), OneGrey(), r"OneGrey cannot score pictures of 24 x 24 samples and 3 channel\(s\): grey pictures"),
        ((1, 24, 24, 1), OneGrey(), "its score is not one number"),
        ((2, 30, 1), UniversalImageQualityIndex(), "needs pictures .* whose number of axes is 1; leave out"),
        ((1, 8, 8, 8, 1), UniversalImageQualityIndex(), "needs pictures .* whose number of axes is 3"),
    ],
)
def test_a_metric_that_the_data_do_not_suit_is_refused_before_the_fit(
    shape: tuple[int, ...], metric: Metric, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        PictureScores([metric]).check(TensorDataModule(torch.rand(shape)))


def test_pictures_in_a_file_or_with_missing_samples_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "picture.npy", np.random.default_rng(0).random((16, 16)))
    options: dict[str, Any] = {"batching": Batching("points", 8), "storage": Storage(in_memory=False)}
    with pytest.raises(InputError, match="are read from their file block by block"):
        PictureScores([UniversalImageQualityIndex()]).check(ImageDataModule(str(tmp_path / "picture.npy"), **options))
    holes = torch.rand(1, 16, 16, 1)
    holes[0, 3] = torch.nan
    with pytest.raises(InputError, match="have missing samples; leave out"):
        PictureScores([UniversalImageQualityIndex()]).check(TensorDataModule(holes))
    with pytest.raises(InputError, match="has a class twice"):
        RunRecorder(wandb=WandbSettings(enabled=False), metrics=[UniversalImageQualityIndex() for _ in range(2)])


def test_a_configured_metric_is_in_every_record_and_repeated_by_the_saved_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = fit(*DEMO, *NO_WANDB, *NAMED, f"[{QUALITY}, {{class_path: {SSIM}, init_args: {{data_range: 1.0}}}}]")
    metrics = json.loads((run / "metrics.json").read_text())
    keys = [f"test/{path.rpartition('.')[2]}" for path in (QUALITY, SSIM)]
    assert metrics[keys[1]] == pytest.approx(metrics["test/ssim"], rel=1e-5)
    assert metrics[f"{keys[0]}_per_signal"] == [metrics[keys[0]]]
    with next(run.glob("logs/*/metrics.csv")).open() as file:
        last = list(csv.DictReader(file))[-1]
    assert [float(last[key]) for key in keys] == [metrics[key] for key in keys]
    assert f"{metrics[keys[0]]:.4f}" in capsys.readouterr().out
    options: dict[str, Any] = {"subclass_mode_model": True, "subclass_mode_data": True, "save_config_callback": None}
    monkeypatch.setattr(sys, "argv", ["main.py"])
    stock = LightningCLI(LightningModule, LightningDataModule, args=[f"--config={run}/config.yaml"], run=False, **options)
    stock.trainer.fit(stock.model, stock.datamodule)
    stock.trainer.test(stock.model, stock.datamodule, verbose=False)
    (recorder,) = (callback for callback in stock.trainer.callbacks if isinstance(callback, RunRecorder))
    assert {key: recorder.metrics[key] for key in keys} == {key: metrics[key] for key in keys}


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("[torchmetrics.image.MultiScaleStructuralSimilarityIndexMeasure]", "image height must be larger than 160"),
        ("[torchmetrics.functional.image.total_variation]", "does not correspond to a subclass of Metric"),
        ("[os.getcwd]", "a configuration cannot name 'os.getcwd'"),
        ("[{class_path: torchmetrics.image.TotalVariation, init_args: {reductoin: sum}}]", "did you mean 'reduction'"),
    ],
)
def test_a_metric_that_is_none_or_needs_more_is_refused_before_there_is_a_run(
    named: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in error_of(capsys, ["fit", *DEMO, *NO_WANDB, *NAMED, named])
    assert not list(tmp_path.iterdir())


def callbacks(*options: str) -> list[dict[str, Any]]:
    entries = parse("fit", rewrite("fit", ["--config", "image/demo", *options])).trainer.callbacks
    return [{"name": entry.class_path.rpartition(".")[2], **vars(entry.init_args)} for entry in entries]


def test_arguments_of_the_recorder_of_every_run_need_no_name_before_them() -> None:
    (recorder,) = callbacks("--trainer.callbacks.table", "false")
    assert (recorder["name"], recorder["table"], recorder["pictures"]) == ("RunRecorder", False, True)
    timer, recorder = callbacks("--trainer.callbacks.table", "false", "--trainer.callbacks+", "Timer")
    assert (timer["name"], recorder["table"]) == ("Timer", False)
    # named once more, it is the same recorder: two of them were refused by Lightning when the checkpoint was written
    again = "--trainer.callbacks+", "RunRecorder", "--trainer.callbacks.pictures", "false"
    (recorder,) = callbacks("--trainer.callbacks.table", "false", *again)
    assert (recorder["table"], recorder["pictures"]) == (False, False)
    with pytest.raises(InputError, match=r"named before it: --trainer\.callbacks\+ RunRecorder"):
        callbacks("--trainer.callbacks+", "Timer", "--trainer.callbacks.table", "false")
    with pytest.raises(InputError, match=r"named before it: .* Snapshots"):
        callbacks("--trainer.callbacks.every_n_steps", "5")
