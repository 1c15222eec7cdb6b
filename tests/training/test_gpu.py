"""A GPU is a faster CPU: the same fits, to the rounding that training amplifies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from device_cases import CASES, Case, assert_equal, scores
from fits import GAU, MODULES, MakeTrainer

from pe_lightning.training import ComplexLinear


def on_gpu(test: Any) -> Any:
    """Marks a test that needs a GPU."""
    return pytest.mark.gpu(pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")(test))


def compare(case: Case, make_trainer: MakeTrainer, decibels: float, **more: Any) -> None:
    """The case on the CPU and on the GPU."""
    settings = {"max_steps": case.steps, "num_sanity_val_steps": 0, "devices": 1, **more}
    cpu, gpu = (scores(case, make_trainer(accelerator=name, **settings)) for name in ("cpu", "gpu"))
    assert_equal(gpu, cpu, decibels)


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
    from pe_lightning.networks import gram

    monkeypatch.setattr(gram, "MIN_BANDED_FEATURES_CPU", 64)
    monkeypatch.setattr(gram, "MIN_BANDED_FEATURES", 64)
    compare(Case(lambda: ComplexLinear({**GAU, "num_features": 64}), steps=20), make_trainer, decibels=0.01)


@pytest.mark.slow
def test_no_tensor_stays_on_the_cpu() -> None:
    # a device in CPU memory stands for a GPU: an operation on tensors of both fails, as there
    script = Path(__file__).with_name("emulated_device.py")
    made = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=600)
    assert made.returncode == 0, made.stdout + made.stderr
    assert made.stdout.count(" ok\n") == len(CASES) + 1  # and the collectives
