"""The short help of a verb: every option of every registered model and DataModule, with its default."""

import inspect
from typing import Any

import pytest

from pe_lightning.cli.arguments import Option
from pe_lightning.cli.help import argument_descriptions, layout, plain_text, short_help
from pe_lightning.training.base import models
from pe_lightning.training.datamodule import datamodules


class Parent:
    """A parent.

    Args:
        size: Number of things; ``None`` for all. A second sentence, which is left out because the whole text is longer than
            the limit for a description in the short help, so that only the first sentence of it is shown to the reader.
    """

    def __init__(self, size: int | None = None) -> None: ...


class Child(Parent):
    """A child.

    Args:
        name: Its :class:`~somewhere.Name`.
        flag: Whether ``a``.
    """

    def __init__(self, name: str, flag: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)


def options_of(cls: type) -> set[str]:
    parameters = inspect.signature(cls).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD}


def test_arguments_are_described_by_the_docstrings_of_the_class_and_its_parents():
    assert list(argument_descriptions(Child)) == [
        ("name", "NAME", "Its Name."),
        ("flag", "false", "Whether a."),
        ("size", "null", "Number of things; null for all."),
    ]
    assert plain_text(":class:`~a.b.C` and ``None``") == "C and null"
    assert layout([("--a 1", "Text."), ("--a_name_longer_than_the_column 2", "More.")]) == (
        f"  --a 1{' ' * 23}Text.\n  --a_name_longer_than_the_column 2\n{' ' * 30}More.\n"
    )


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
    groups = {"batching", "storage"} & options_of(cls)
    for option in options_of(cls) - groups - {"values"}:  # a tensor is for Python alone
        assert f"\n  --data.{option} " in shown
    assert ("\n  --data.batching.kind " in shown) == bool(groups)
