"""Files and numbers of an earlier state of the code: its checkpoints load, and fits are equal to rounding.

``make.py`` wrote the files.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from golden.make import CASES, EXPECTED, FOLDER, RECIPES, fitted, keys, predictions, run, scores

from pe_lightning import load
from pe_lightning.__main__ import main

pytestmark = pytest.mark.filterwarnings("ignore:.*too few points of a signal could be held out")
GOLDEN = json.loads(EXPECTED.read_text())
# the head starts at the least squares solution, where the gradient is rounding, which Adam divides by its size; the picture
# of adaptive-prior has patches with equal differences of rows and columns, whose orientation rounding decided
TOLERANCES = {"trained-head": (2e-6, 3e-3), "adaptive-prior": (2e-3, 2e-3)}
"""Largest errors of predictions of the loaded and of the fitted model."""


@pytest.fixture(autouse=True)
def _working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.filterwarnings("ignore:The loaded checkpoint was produced with Lightning")  # of a release after the lower bound
@pytest.mark.parametrize("name", CASES)
def test_checkpoints_and_fits_predict_what_they_did(name: str, tmp_path: Path) -> None:
    expected = [torch.tensor(values) for values in GOLDEN["predictions"][name]]
    models = (load(FOLDER / f"{name}.ckpt"), fitted(name, tmp_path / "new.ckpt"))
    for model, tolerance in zip(models, TOLERANCES.get(name, (2e-6, 2e-4)), strict=True):
        found = [tensor.flatten() for tensor in predictions(model)]
        # a loaded exact fit has no standard deviations, which need its samples
        torch.testing.assert_close(found, expected[: len(found)], rtol=tolerance, atol=tolerance)
    saved = torch.load(tmp_path / "new.ckpt", weights_only=True)
    assert [path for path in texts(saved) if path.startswith(("pe_lightning.", "pe_papers."))] == []


def errors(scores: dict[str, float]) -> dict[str, float]:
    """The root mean squared errors of PSNR."""
    return {key: 10 ** (-psnr / 20) for key, psnr in scores.items()}


def texts(content: Any) -> list[str]:
    """All texts among nested values."""
    if isinstance(content, dict):
        content = list(content.values())
    return [text for entry in content for text in texts(entry)] if isinstance(content, (list, tuple)) else [str(content)]


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_have_the_same_scores_and_fields(name: str, tmp_path: Path) -> None:
    metrics, _ = run(tmp_path, *RECIPES[name])
    assert errors(scores(metrics)) == pytest.approx(errors(GOLDEN["psnr"][name]), rel=1e-3, abs=1e-8)  # 137 dB, in float32
    assert set(GOLDEN["keys"][name]) <= set(keys(metrics))


@pytest.mark.parametrize("name", RECIPES)
def test_saved_configurations_are_parsed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(FOLDER, Path(), dirs_exist_ok=True)  # the inputs
    assert main(["fit", "--config", f"{name}.yaml", "--print_config"]) == 0
    saved, parsed = (yaml.safe_load(text) for text in (Path(f"{name}.yaml").read_text(), capsys.readouterr().out))
    assert parsed["model"]["class_path"].split(".")[-1] == saved["model"]["class_path"].split(".")[-1]


@pytest.mark.parametrize("name", ["adaptive", "closed_form"])
def test_saved_configurations_repeat_their_run(name: str, tmp_path: Path) -> None:
    metrics, _ = run(tmp_path, "--config", str(FOLDER / f"{name}.yaml"))
    assert scores(metrics) == pytest.approx(GOLDEN["psnr"][name], abs=1e-2)
