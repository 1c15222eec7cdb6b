"""The examples in the docstrings of pe_lightning.data are true."""

import doctest
import importlib
import pkgutil

import pytest

import pe_lightning.data


@pytest.mark.parametrize("name", ["", *(f".{module.name}" for module in pkgutil.iter_modules(pe_lightning.data.__path__))])
def test_examples(name):
    result = doctest.testmod(importlib.import_module(f"pe_lightning.data{name}"))
    assert result.failed == 0
