"""Fits of this package on a GPU, and on an emulated device."""

from pathlib import Path

import pytest
from device_cases import check_on_an_emulated_device, compare, on_gpu
from fill.fill_device_cases import CASES
from fits import MakeTrainer


@on_gpu
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::pe_lightning.solvers.choice.ChoiceWarning")  # small data
def test_a_fit(name: str, make_trainer: MakeTrainer) -> None:
    compare(CASES[name], make_trainer, decibels=0.05)


@pytest.mark.slow
def test_no_tensor_stays_on_the_cpu(tmp_path: Path) -> None:
    check_on_an_emulated_device("fill.fill_device_cases", len(CASES), tmp_path)
