"""Configurations that name what is not a class."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from pe_lightning.command_line.config_checks import check_names
from pe_lightning.errors import InputError


class OwnModel:
    def __init__(self, loss: Any = torch.nn.functional.mse_loss, activation: Any = None) -> None: ...


class Derived(OwnModel):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)


NAME = f"{__name__}.Derived"


@pytest.mark.parametrize("value", [os.getcwd, len, "text".upper, torch.nn.functional.relu, lambda: 0, torch.nn.ReLU()])
@pytest.mark.parametrize("nested", [False, True])
def test_functions_are_refused_wherever_they_are(value: Any, nested: bool) -> None:
    inner: Any = [{"class_path": NAME, "init_args": {"activation": value}}] if nested else value
    tree = {"trainer": {"callbacks": [{"class_path": NAME, "init_args": {"activation": inner}}]}}
    with pytest.raises(InputError, match=r"trainer\.callbacks\.activation.* is not a class, and a configuration"):
        check_names(tree)


def test_classes_defaults_and_plain_values_are_allowed() -> None:
    check_names(
        {
            "config": [Path("a.yaml")],
            "model": {"class_path": NAME, "init_args": {"loss": torch.nn.functional.mse_loss, "activation": torch.nn.ReLU}},
            "optimizer": {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.1, "betas": (0.9, 0.99)}},
        }
    )
    with pytest.raises(InputError, match=r"'os\.mkdir' is not a class"):
        check_names([{"class_path": "os.mkdir"}])
