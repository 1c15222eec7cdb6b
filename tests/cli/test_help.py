"""The short help of a verb: every option of every registered model and DataModule, with its default."""

import inspect

import pytest

from pe_lightning.cli.arguments import Option
from pe_lightning.cli.help import short_help
from pe_lightning.training.base import models
from pe_lightning.training.datamodule import datamodules


def options_of(cls: type) -> set[str]:
    parameters = inspect.signature(cls).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD}


@pytest.mark.parametrize("name", models.names())
def test_every_option_of_a_model_is_listed(name):
    shown = short_help("fit", [], [Option(("--model", name))])
    assert f"options of --model {name}:" in shown
    for option in options_of(models.get(name)) - {"encoder"}:
        assert f"\n  --model.{option} " in shown


@pytest.mark.parametrize("name", datamodules.names())
def test_every_option_of_a_data_module_is_listed(name):
    cls = datamodules.get(name)
    shown = short_help("test", [], [Option(("--data", name))])
    for option in options_of(cls) - {"batching", "storage", "values"}:  # a tensor is for Python alone
        assert f"\n  --data.{option} " in shown
    by_keyword = any(parameter.kind is parameter.VAR_KEYWORD for parameter in inspect.signature(cls).parameters.values())
    for group, option in (("batching", "kind"), ("storage", "in_memory")):
        assert (f"\n  --data.{group}.{option} " in shown) == (by_keyword or group in options_of(cls))
