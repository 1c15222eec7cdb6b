"""A GPU is a faster CPU: the same fits, to the rounding that training amplifies."""

from __future__ import annotations

from pathlib import Path

import pytest
from device_cases import CASES, Case, check_on_an_emulated_device, compare, on_gpu
from fits import GAU, MODULES, MakeTrainer

from pe_lightning.training import ComplexLinear


@on_gpu
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::pe_lightning.solvers.choice.ChoiceWarning")  # small data
def test_a_fit(name: str, make_trainer: MakeTrainer) -> None:
    compare(CASES[name], make_trainer, decibels=0.05)


@on_gpu
@pytest.mark.parametrize("kind", MODULES)
def test_mixed_precision(kind: str, make_trainer: MakeTrainer) -> None:
    compare(Case(MODULES[kind], steps=20), make_trainer, decibels=0.5, precision="bf16-mixed")


@on_gpu
def test_a_band_of_gram_matrices(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    from pe_lightning.networks import quadratic

    monkeypatch.setattr(quadratic, "MIN_BANDED_FEATURES_CPU", 64)
    monkeypatch.setattr(quadratic, "MIN_BANDED_FEATURES", 64)
    compare(Case(lambda: ComplexLinear({**GAU, "num_features": 64}), steps=20), make_trainer, decibels=0.01)


@pytest.mark.slow
def test_no_tensor_stays_on_the_cpu(tmp_path: Path) -> None:
    check_on_an_emulated_device("device_cases", len(CASES), tmp_path)
