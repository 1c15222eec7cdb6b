"""The registry of sources, and what a source says of itself."""

import doctest
import importlib
import json
import pkgutil

import numpy as np
import pytest

from pe_lightning.errors import InputError
from pe_lightning.signals.raw import RawSignals, ValueRange
from pe_lightning.signals.sources import ImageSource, RowSource, Source, TensorSource, VideoSource, sources


def test_names():
    assert {"images", "rows", "video", "tensor"} <= set(sources.names())
    assert (sources.get("images"), sources.get("RowSource")) == (ImageSource, RowSource)
    with pytest.raises(InputError, match="did you mean 'images'"):
        sources.get("image")
    with pytest.raises(InputError, match="no argument 'path'; did you mean 'paths'"):
        sources.create("video", path="a.mp4")


@pytest.mark.parametrize("cls", [ImageSource, RowSource, VideoSource])
def test_arguments_are_described_as_plain_values(tmp_path, cls):
    described = cls(tmp_path, center_crop=(4, 6), max_pixels=9).describe()
    assert json.loads(json.dumps(described)) == described
    assert (described["paths"], described["center_crop"], described["color"]) == ([str(tmp_path)], [4, 6], "auto")
    assert "max_pixels" not in described  # it changes nothing that is read
    assert cls(["a", "b"]).describe()["paths"] == ["a", "b"]


@pytest.mark.parametrize("cls", [ImageSource, RowSource, VideoSource])
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"paths": []}, "paths must be one or more files"),
        ({"paths": [3]}, "got [3]"),
        ({"center_crop": 1}, "center_crop must be an integer >= 2"),
        ({"center_crop": [4, 4, 4, 4]}, "center_crop"),
        ({"resize": 2.5}, "got 2.5"),
        ({"color": "gray"}, "color must be one of auto, rgb, grey; got 'gray'"),
        ({"max_pixels": 0}, "max_pixels must be an integer >= 1"),
        ({"value_range": [1, 0]}, "value_range must be [low, high]"),
        ({"value_range": [0, float("nan")]}, "two finite numbers"),
    ],
)
def test_arguments_are_checked_before_any_file_is_read(cls, arguments, part):
    with pytest.raises(InputError) as error:
        cls(**{"paths": "not there.npy", **arguments})
    assert part in str(error.value)


def test_a_source_of_a_plugin():
    class Ramp(Source):
        metric = "snr"

        def __init__(self, size: int = 9) -> None:
            self.size = size

        def read(self):
            return RawSignals.in_memory(
                np.linspace(0, 1, self.size, dtype="f4")[None, :, None], ["ramp"], ValueRange("float32")
            )

    assert (Ramp().read().shape, Ramp(size=5).describe(), list(Ramp().files())) == ((1, 9, 1), {"size": 5}, [])
    assert (ImageSource.metric, Ramp.metric, TensorSource(np.zeros((1, 4, 1))).describe()) == ("psnr", "snr", {"paths": []})


def test_examples_in_docstrings():
    package = importlib.import_module("pe_lightning.signals.sources")
    for module in pkgutil.iter_modules(package.__path__):
        assert doctest.testmod(importlib.import_module(f"pe_lightning.signals.sources.{module.name}")).failed == 0, (
            module.name
        )
