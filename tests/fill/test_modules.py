"""Models and results of this package, in the framework's tests of models and results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from estimators.test_pickling import GRID, QUESTIONS, check
from fits import MakeTrainer, check_derivatives, check_field_of_module, fit, signals
from training.test_export import check_export

import pe_fill
import pe_lightning
from pe_fill import Adaptive, Local, SparseLinear
from pe_fill.estimators.adaptive import AdaptiveFit
from pe_fill.estimators.local import PretrainedInterpolator
from pe_fill.sparse.estimator import SparseOptions, SparseRidge
from pe_lightning.estimators import Estimator
from pe_lightning.signals import GridSampling, RandomSampling
from pe_lightning.training import FunctionModule, TensorDataModule
from pe_lightning.training.callbacks import RunRecorder

PLACES = np.random.default_rng(0).random((80, 2))
PICTURE = np.where(np.pad(np.ones((3, 5), bool), ((8, 13), (4, 15))), np.nan, np.random.default_rng(1).random((24, 24)))
PAIRS: dict[str, tuple[Estimator, FunctionModule, Any, int]] = {
    "sparse": (SparseRidge("keys", SparseOptions(0.2), 0.0), SparseLinear("keys", 0.2, ridge=0), "grid", 2),
    "denoised": (
        SparseRidge("keys", SparseOptions("auto"), 0.0),
        SparseLinear("keys", "auto", ridge=0.0),
        GridSampling(1),
        1,
    ),
    "adaptive": (AdaptiveFit(noise="auto"), Adaptive(noise="auto"), "grid", 2),
    "adaptive points": (AdaptiveFit(), Adaptive(), RandomSampling(0.7), 1),
    "prior": (AdaptiveFit(pretrained="pictures"), Adaptive(pretrained="pictures"), "grid", 1),
    "interpolator": (PretrainedInterpolator(), Local(), "grid", 2),
}


@pytest.mark.filterwarnings("ignore:.*too few points of a signal could be held out")
@pytest.mark.parametrize("name", PAIRS)
def test_a_field_is_the_function_of_the_module(name: str, make_trainer: MakeTrainer) -> None:
    estimator, module, sampling, count = PAIRS[name]
    data = TensorDataModule(signals(count, 36, 34), sampling=sampling)
    assert check_field_of_module(estimator, module, data, make_trainer) == (count == 1 and name != "denoised")


@pytest.mark.parametrize("sampling", ["grid", "random"])
def test_derivatives(sampling: str, make_trainer: MakeTrainer) -> None:
    module, data = Adaptive(angles=0, aspects=[]), TensorDataModule(signals(2, 16, 12).double(), sampling=sampling)
    fit(module, data, make_trainer, 0, precision="64-true")
    check_derivatives(module.double())


@pytest.mark.parametrize("model", [Adaptive(), SparseLinear("keys", num_coefficients=0.3)])
def test_safetensors_and_back(model, make_trainer, tmp_path: Path, capsys) -> None:
    check_export(model, 0, make_trainer, tmp_path / "run", capsys)


@pytest.mark.filterwarnings("ignore:.*too few points of a signal could be held out")
@pytest.mark.parametrize("options", [{}, {"model": "exact"}, {"periodic": "y=1"}])
def test_copies_of_point_fits(options: dict[str, Any]) -> None:
    fitted = pe_fill.fit_points(PLACES, np.sin(5 * PLACES[:, 0]), **options)
    check(fitted, lambda result: [result.predict(PLACES[:5]), result.std(PLACES[:5])])


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"std": True}, *(more | {"folds": "none"} for more in ({"model": "exact"}, {"smooth": True}, {"upscale": 2}))],
)
def test_copies_of_filled_arrays(options: dict[str, Any]) -> None:
    check(pe_fill.fill(PICTURE, **options), lambda result: [result.values, result.missing])


@pytest.mark.parametrize("model", [Adaptive(), Local()])
def test_copies_of_modules(model: Any) -> None:
    fitted = pe_lightning.fit(GRID[..., :1], model=model)
    check(fitted, lambda result: [result(QUESTIONS).detach(), result.psnr])


def test_a_run_says_that_nothing_is_trained(make_trainer: MakeTrainer, tmp_path: Path, capsys) -> None:
    recorder, data = RunRecorder(tmp_path, log=False), TensorDataModule(signals(1, 8, 8, channels=3), names=["8x8"])
    trainer = fit(module := Adaptive("gau"), data, make_trainer, 0, callbacks=[recorder])
    trainer.test(module, data, verbose=False)
    assert module.solution.solver == "adaptive"
    assert recorder.run_dir == tmp_path / "8x8-Adaptive-gau/1"
    report = json.loads((recorder.run_dir / "metrics.json").read_text())
    assert (report["optimizer"], report["learned"], "num_features" in report["encoder"]) == (None, {}, False)
    assert "solved directly in " in capsys.readouterr().out
