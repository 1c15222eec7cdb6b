"""Estimators: fields equal to those of the modules, without Lightning."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fits import fit, signals

import pe_lightning
from pe_fill import Adaptive, Local, SparseLinear
from pe_fill.estimators.adaptive import AdaptiveFit
from pe_fill.estimators.local import PretrainedInterpolator
from pe_fill.sparse.estimator import SparseOptions, SparseRidge
from pe_lightning.errors import InputError
from pe_lightning.estimators import LinearRidge
from pe_lightning.estimators.base import Estimator
from pe_lightning.registry import Registry
from pe_lightning.signals import GridSampling, RandomSampling
from pe_lightning.training import ComplexLinear, EstimatorModule, FunctionModule, TensorDataModule

LEARNED = {"name": "gau", "num_features": 6, "trainable": True}
AUTO = {"name": "gau", "width": "auto"}
PAIRS: dict[str, tuple[Estimator, Callable[[], FunctionModule], Any, int]] = {
    "linear": (LinearRidge(AUTO), lambda: ComplexLinear.exact("gau"), "grid", 2),
    "one": (LinearRidge("bspline"), lambda: ComplexLinear("bspline", solver="exact"), "grid", 1),
    "scattered": (LinearRidge(AUTO), lambda: ComplexLinear.exact("gau"), RandomSampling(0.7), 1),
    "learned": (LinearRidge(LEARNED, 1e-3), lambda: ComplexLinear(LEARNED, solver="exact", ridge=1e-3), "grid", 2),
    "sparse": (
        SparseRidge("keys", SparseOptions(0.2), 0.0),
        lambda: SparseLinear("keys", ridge=0, num_coefficients=0.2),
        "grid",
        2,
    ),
    "denoised": (
        SparseRidge("keys", SparseOptions("auto"), 0.0),
        lambda: SparseLinear("keys", ridge=0.0, num_coefficients="auto"),
        GridSampling(1),
        1,
    ),
    "adaptive": (AdaptiveFit(noise="auto"), lambda: Adaptive(noise="auto"), "grid", 2),
    "adaptive points": (AdaptiveFit(), Adaptive, RandomSampling(0.7), 1),
    "prior": (AdaptiveFit(pretrained="pictures"), lambda: Adaptive(pretrained="pictures"), "grid", 1),
    "interpolator": (PretrainedInterpolator(), Local, "grid", 2),
}


@pytest.mark.filterwarnings("ignore:.*too few points of a signal could be held out")
@pytest.mark.parametrize("name", PAIRS)
def test_a_field_is_the_function_of_the_module(name: str, make_trainer: Any) -> None:
    estimator, make, sampling, count = PAIRS[name]
    data, module = TensorDataModule(signals(count, 36, 34), sampling=sampling), make()
    trainer = fit(module, data, make_trainer, 0)
    field, axes = estimator.fit(data.signals), [torch.arange(n) / n for n in (7, 9)]
    points = torch.rand(5, 2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(field.grid(axes), module.predict_grid(axes), rtol=1e-4, atol=2e-5)
        torch.testing.assert_close(field.at(points), module(points), rtol=1e-4, atol=2e-5)
        unknown = torch.tensor([[0.0, torch.nan], [-torch.inf, 0.0]])
        for found in (field.at(torch.cat([points, unknown])), module(torch.cat([points, unknown]))):
            assert found.isnan().all((0, 2)).tolist() == [False] * 5 + [True] * 2
            torch.testing.assert_close(found[:, :5], field.at(points), rtol=1e-4, atol=2e-5)
    assert field.label == type(module).__name__
    assert field.has_std == (count == 1 and name != "denoised")
    assert field.solution is not None
    assert module.solution is not None
    assert field.solution.ridge == pytest.approx(module.solution.ridge)
    if module.has_std:  # a linear layer does not hold its samples
        torch.testing.assert_close(field.std(points), module.std(points), rtol=1e-3, atol=1e-5)
    tensors = [value for value in field.state_dict().values() if isinstance(value, torch.Tensor)]
    assert all(value.isfinite().all() for value in tensors)
    assert trainer.global_step == 0


def test_what_has_no_deviations_or_other_axes_is_refused() -> None:
    data = TensorDataModule(signals(2, 12, 12))
    field = LinearRidge("gau").fit(data.signals)
    with pytest.raises(InputError, match="ComplexLinear has standard deviations of one signal"):
        field.std(torch.rand(3, 2))
    with pytest.raises(InputError, match=r"shape \(\*batch, 2\); got \(3, 1\)"):
        field.at(torch.rand(3, 1))


def test_what_other_packages_give_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them a fit is linear, as in the recipes ``closed_form``, and its deviations are an error."""
    values = signals(1, 24, 20)
    expected = pe_lightning.fit(values, "gau")
    assert expected.field.has_std
    monkeypatch.setattr("pe_lightning.estimators.linear.linear_spread", lambda: None)
    monkeypatch.setattr("pe_lightning.training.fit.estimators", Registry("estimator", Estimator))
    fitted = pe_lightning.fit(values)
    assert (fitted.field.label, fitted.psnr) == ("ComplexLinear", expected.psnr)
    assert not fitted.field.has_std
    with pytest.raises(InputError, match="the package pe_fill: install it"):
        fitted.std(torch.rand(3, 2))
    with pytest.raises(InputError, match=r"use pe_lightning\.ComplexLinear"):
        EstimatorModule({"name": "linear", "encoder": "gau"})


@pytest.mark.slow  # starts a process
def test_fits_do_not_import_lightning(tmp_path: Path) -> None:
    program = (
        "import sys, numpy as np, pe_lightning\n"
        "y, x = np.mgrid[:20, :20] / 20\n"
        "picture = np.sin(4 * x * y)\n"
        "picture[5:7] = np.nan\n"
        "for options in ({}, {'smooth': True}):\n"
        "    assert np.isfinite(pe_fill.fill(picture, folds='none', **options).values).all()\n"
        "pe_lightning.fit(np.nan_to_num(picture)[None, ..., None] ** 2, 'gau')\n"
        "fit = pe_fill.fit_points(np.random.default_rng(0).random((60, 2)), np.arange(60.0))\n"
        "assert fit.std([[0.5, 0.5]]) > 0\n"
        "import pe_lightning.__main__ as command\n"
        "from pe_lightning.evaluation.totals import totals\n"
        "assert [totals(name, 1) for name in ('psnr', 'snr', 'iou')]\n"
        "np.save('picture.npy', picture)\n"
        "assert command.main(['fill', 'picture.npy', '--out', 'filled.npy', '--folds', 'none', '--model', 'exact']) == 0\n"
        "found = [name for name in sys.modules if name.split('.')[0] in ('lightning', 'torchmetrics', 'wandb')]\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=120, cwd=tmp_path)
