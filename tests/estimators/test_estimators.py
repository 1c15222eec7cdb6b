"""Estimators: fields equal to those of the modules, without Lightning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from fits import MakeTrainer, check_field_of_module, signals

import pe_lightning
from pe_lightning.errors import InputError
from pe_lightning.estimators import LinearRidge
from pe_lightning.estimators.base import Estimator
from pe_lightning.registry import Registry
from pe_lightning.signals import RandomSampling
from pe_lightning.training import ComplexLinear, EstimatorModule, FunctionModule, TensorDataModule, make_datamodule

LEARNED = {"name": "gau", "num_features": 6, "trainable": True}
AUTO = {"name": "gau", "width": "auto"}
PAIRS: dict[str, tuple[Estimator, Callable[[], FunctionModule], Any, int]] = {
    "linear": (LinearRidge(AUTO), lambda: ComplexLinear.exact("gau"), "grid", 2),
    "one": (LinearRidge("bspline"), lambda: ComplexLinear("bspline", solver="exact"), "grid", 1),
    "scattered": (LinearRidge(AUTO), lambda: ComplexLinear.exact("gau"), RandomSampling(0.7), 1),
    "learned": (LinearRidge(LEARNED, 1e-3), lambda: ComplexLinear(LEARNED, solver="exact", ridge=1e-3), "grid", 2),
}


@pytest.mark.filterwarnings("ignore:.*too few points of a signal could be held out")
@pytest.mark.parametrize("name", PAIRS)
def test_a_field_is_the_function_of_the_module(name: str, make_trainer: MakeTrainer) -> None:
    estimator, make, sampling, count = PAIRS[name]
    check_field_of_module(estimator, make(), TensorDataModule(signals(count, 36, 34), sampling=sampling), make_trainer)


def test_points_of_other_axes_are_refused() -> None:
    data = TensorDataModule(signals(2, 12, 12))
    field = LinearRidge("gau").fit(data.signals)
    with pytest.raises(InputError, match=r"shape \(\*batch, 2\); got \(3, 1\)"):
        field.at(torch.rand(3, 1))


@pytest.mark.filterwarnings("ignore:.*too few points of a signal could be held out")
def test_folds_without_known_samples_are_passed_over() -> None:
    """The score of 3 of 5 folds is of the known samples; known samples in one fold only leave none to fit."""
    values = np.where(np.arange(20) < 6, np.arange(20) / 20, np.nan)[None, :, None]
    found = pe_lightning.fit(values, "tri", folds={"kind": "blocks", "size": 2})
    assert 0 < found.psnr < 60
    with pytest.raises(InputError, match="6 known samples are in one fold, and 0 in the others"):
        pe_lightning.fit(values, "tri", folds={"kind": "blocks", "size": 6, "number": 2})


def test_what_other_packages_give_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them a fit is linear, as in the recipes ``closed_form``, and its deviations are an error."""
    values = signals(1, 24, 20)
    expected = pe_lightning.fit(values, "gau")
    monkeypatch.setattr("pe_lightning.estimators.linear.linear_spread", lambda: None)
    monkeypatch.setattr("pe_lightning.training.fit.estimators", Registry("estimator", Estimator))
    fitted = pe_lightning.fit(values)
    assert (fitted.label, fitted.psnr) == ("ComplexLinear", expected.psnr)
    assert not fitted.has_std
    with pytest.raises(InputError, match="the package pe_fill gives"):
        fitted.std(torch.rand(3, 2))
    with pytest.raises(InputError, match=r"use pe_lightning\.ComplexLinear"):
        EstimatorModule({"name": "linear", "encoder": "gau"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_step": 3}, "no argument 'max_step'; did you mean 'max_steps'"),
        ({"max_steps": 3}, "max_steps is for a model that is trained"),
        ({"batching": {"kind": "points"}}, "batching is for a model that is trained"),
        (
            {"model": ComplexLinear("gau", solver="exact")},
            "ComplexLinear has an encoder of its own, or none: leave out encoder",
        ),
    ],
)
def test_an_argument_that_a_fit_would_not_read_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        pe_lightning.fit(torch.rand(1, 8, 6, 1), "gau", **options)


def test_lists_of_numbers_and_of_arrays_are_arrays() -> None:
    values = np.random.default_rng(0).random((2, 8, 6, 1), dtype=np.float32)
    expected = pe_lightning.fit(values, "gau").scores["test/psnr"]
    for given in (list(values), tuple(map(torch.from_numpy, values)), values.tolist()):
        assert pe_lightning.fit(given, "gau").scores["test/psnr"] == pytest.approx(expected, abs=1e-3)
    assert make_datamodule(values.tolist()).fingerprint == make_datamodule(values).fingerprint
    with pytest.raises(InputError, match="a list need arrays of one shape"):
        pe_lightning.fit([values[0], values[1, 1:]], "gau")
