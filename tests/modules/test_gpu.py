"""A GPU is a faster CPU: the same fits, to the rounding that training amplifies."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fits import GAU, MODULES, SAMPLINGS, MakeTrainer, fit, signals

from pe_lightning.data import Batching, TensorDataModule
from pe_lightning.modules import ComplexLinear, CoordinateModule

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def both(make: Any, make_trainer: MakeTrainer, steps: int, data: dict[str, Any], **more: Any) -> list[CoordinateModule]:
    """The module fitted on the CPU and on the GPU."""
    fitted = []
    for accelerator in ("cpu", "gpu"):
        torch.manual_seed(0)
        module = make()
        trainer = fit(
            module,
            TensorDataModule(signals(3, 24, 20), **data),
            make_trainer,
            steps,
            accelerator=accelerator,
            devices=1,
            **more,
        )
        trainer.test(module, TensorDataModule(signals(3, 24, 20), **data), verbose=False)
        fitted.append(module)
    return fitted


def close(one: CoordinateModule, other: CoordinateModule, decibels: float) -> bool:
    scores = one.scores["test/psnr"], other.scores["test/psnr"]
    return bool((scores[0] - scores[1]).abs().max() < decibels)


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_fit(kind: str, sampling: str, make_trainer: MakeTrainer) -> None:
    assert close(*both(MODULES[kind], make_trainer, 20, {"sampling": SAMPLINGS[sampling]}), decibels=0.01)


@pytest.mark.parametrize("batch", ["points", "blocks"])
def test_batches(batch: str, make_trainer: MakeTrainer) -> None:
    data = {"batching": Batching(batch, size=9 if batch == "blocks" else 50)}
    assert close(*both(MODULES["complex"], make_trainer, 20, data), decibels=0.01)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_exact_fit(sampling: str, make_trainer: MakeTrainer) -> None:
    def make() -> ComplexLinear:
        return ComplexLinear({"name": "gau", "num_features": 16}, warm_start=True, ridge=1e-3)

    assert close(*both(make, make_trainer, 0, {"sampling": SAMPLINGS[sampling]}), decibels=0.01)


def test_several_steps_and_signals_in_chunks(make_trainer: MakeTrainer) -> None:
    assert close(*both(lambda: ComplexLinear(GAU, steps_per_batch=5), make_trainer, 20, {}), decibels=0.01)
    assert close(*both(lambda: MODULES["simple"](signals_per_batch=2), make_trainer, 20, {}), decibels=0.01)


@pytest.mark.parametrize("kind", MODULES)
def test_mixed_precision(kind: str, make_trainer: MakeTrainer) -> None:
    assert close(*both(MODULES[kind], make_trainer, 20, {}, precision="bf16-mixed"), decibels=0.5)


def test_a_band_of_gram_matrices(make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
    from pe_lightning.networks import gram

    monkeypatch.setattr(gram, "MIN_BANDED_FEATURES_CPU", 64)
    monkeypatch.setattr(gram, "MIN_BANDED_FEATURES", 64)
    assert close(*both(lambda: ComplexLinear({"name": "gau", "num_features": 64}), make_trainer, 20, {}), decibels=0.01)
