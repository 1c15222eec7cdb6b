"""Scores of interpolation beside a fit: which are computed, and that the cache has them for later runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pe_lightning.__main__ import main
from pe_lightning.errors import InputError
from pe_lightning.signals.axes import Axis
from pe_lightning.signals.cache import SignalCache, Storage
from pe_lightning.signals.sources import TensorSource
from pe_lightning.training import SignalDataModule
from pe_lightning.training.callbacks import RunRecorder, baseline_scores
from pe_lightning.training.callbacks.baseline_scores import score_baselines

VALUES = torch.rand(2, 12, 9, 1, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Names of the baselines as they are computed, with an empty cache."""
    monkeypatch.setenv("PE_LIGHTNING_CACHE", str(tmp_path / "cache"))
    calls, interpolate = list[str](), baseline_scores.interpolate

    def counted(name: str, *arguments: Any) -> Tensor:
        calls.append(name)
        return interpolate(name, *arguments)

    monkeypatch.setattr(baseline_scores, "interpolate", counted)
    return calls


def datamodule(values: Tensor = VALUES, axes: Sequence[Axis] = (), **options: Any) -> SignalDataModule:
    return SignalDataModule(TensorSource(values, axes=axes), **{"sampling": "random", **options})


def test_the_cache_has_the_scores_and_the_best_prediction_for_later_runs(computed: list[str]) -> None:
    first, best = score_baselines(datamodule())
    assert sorted(computed) == sorted(first)
    computed.clear()
    again, same = score_baselines(datamodule())
    assert (computed, again) == ([], first)
    assert best is not None
    assert same is not None
    assert same[0] == best[0]
    torch.testing.assert_close(torch.from_numpy(same[1]), torch.from_numpy(best[1]), rtol=0, atol=0)
    entry = SignalCache().entries()[0].path
    entry.write_bytes(entry.read_bytes()[:-2000])
    assert (score_baselines(datamodule())[0], len(computed)) == (first, len(first))  # a damaged entry is computed again


@pytest.mark.parametrize(
    ("options", "metric", "choice"),
    [
        ({"values": VALUES.flip(1)}, "psnr", "fast"),
        ({"sampling": {"name": "random", "seed": 1}}, "psnr", "fast"),
        ({"eval_mask": "all"}, "psnr", "fast"),
        ({"axes": [Axis.from_values("t", np.arange(12.0) ** 1.5), Axis.from_values("x", np.arange(9.0))]}, "psnr", "fast"),
        ({}, "snr", "fast"),
        ({}, "psnr", "all"),
        ({"storage": Storage(cache="off")}, "psnr", "fast"),
    ],
    ids=str,
)
def test_other_signals_samples_and_metrics_are_computed(
    options: dict[str, Any], metric: str, choice: Any, computed: list[str]
) -> None:
    score_baselines(datamodule())
    computed.clear()
    score_baselines(datamodule(**options), metric, choice)
    assert "nearest" in computed


def test_what_fails_unexpectedly_is_tried_again(computed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    counted = baseline_scores.interpolate

    def broken(name: str, *arguments: Any) -> Tensor:
        if name == "nearest":
            raise MemoryError
        return counted(name, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(baseline_scores, "interpolate", broken)
        assert score_baselines(datamodule())[0]["nearest"]["test/psnr"] is None
    assert score_baselines(datamodule())[0]["nearest"]["test/psnr"] > 0


@pytest.mark.slow  # three fits
def test_command_and_python_choose(computed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pe_fill.baselines.ThinPlate.fast_places", {2: 100})
    fit = ["fit", "--config", "image/inpaint", "--data.resize", "48", "--wandb.enabled", "false"]
    found = {}
    for choice in ("none", "fast", "all"):
        assert main([*fit, "--trainer.callbacks.baselines", choice, "--trainer.default_root_dir", choice]) == 0
        (path,) = Path(choice).glob("runs/*/1/metrics.json")
        found[choice] = json.loads(path.read_text())["baselines"]
    assert found["none"] == {}
    assert found["fast"].keys() == found["all"].keys()
    assert "baselines all computes it" in found["fast"]["thin_plate"]["test/psnr_reason"]
    assert found["all"]["thin_plate"]["test/psnr"] > 0
    assert found["fast"]["nearest"] == found["all"]["nearest"]
    with pytest.raises(InputError, match="baselines must be one of none, fast, all; got 'fats'; did you mean 'fast'"):
        RunRecorder(baselines="fats")  # type: ignore[arg-type]
