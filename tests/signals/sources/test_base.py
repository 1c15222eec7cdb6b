"""The registry of sources, and what a source says of itself."""

import doctest
import importlib
import json
import pkgutil

import pytest

from pe_lightning.signals.sources import ImageSource, RowSource, VideoSource


@pytest.mark.parametrize("cls", [ImageSource, RowSource, VideoSource])
def test_arguments_are_described_as_plain_values(tmp_path, cls):
    described = cls(tmp_path, center_crop=(4, 6), max_pixels=9).describe()
    assert json.loads(json.dumps(described)) == described
    assert (described["paths"], described["center_crop"], described["color"]) == ([str(tmp_path)], [4, 6], "auto")
    assert "max_pixels" not in described  # it changes nothing that is read
    assert cls(["a", "b"]).describe()["paths"] == ["a", "b"]


def test_examples_in_docstrings():
    package = importlib.import_module("pe_lightning.signals.sources")
    for module in pkgutil.iter_modules(package.__path__):
        assert doctest.testmod(importlib.import_module(f"pe_lightning.signals.sources.{module.name}")).failed == 0, (
            module.name
        )
